"""The import of repositories in formats before spec version 1, with their whole history."""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.importing.importer import upgrade
    from frazil.importing.report import ImportReport

import_on_demand(
    __name__,
    {
        "upgrade": "frazil.importing.importer",
        "ImportReport": "frazil.importing.report",
    },
)

__all__ = ["ImportReport", "upgrade"]
