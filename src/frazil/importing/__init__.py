"""The import of repositories in formats before spec version 1, with their whole history."""

from frazil.importing.importer import upgrade
from frazil.importing.report import ImportReport

__all__ = ["ImportReport", "upgrade"]
