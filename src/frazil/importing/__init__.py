"""Repositories in the formats before spec version 1, imported with their whole history."""

from frazil.importing.importer import upgrade
from frazil.importing.report import ImportReport

__all__ = ["ImportReport", "upgrade"]
