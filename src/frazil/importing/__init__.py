"""Repositories in the formats before spec version 1, imported with their whole history."""

from frazil.importing.report import ImportReport
from frazil.importing.upgrade import upgrade

__all__ = ["ImportReport", "upgrade"]
