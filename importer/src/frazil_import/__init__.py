"""The import of repositories in formats before spec version 1, with their whole history.

``frazil.upgrade`` and ``frazil.ImportReport`` are these names. The command ``frazil import`` uses them.
"""

from frazil_import.importer import ImportReport, upgrade

__all__ = ["ImportReport", "upgrade"]
