"""The public handle ``Repository``, with its ``history`` and ``upkeep``."""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.repository.handle import operations
    from frazil.repository.handle.history import History
    from frazil.repository.handle.upkeep import Upkeep

import_on_demand(
    __name__,
    {
        "operations": "frazil.repository.handle.operations",
        "History": "frazil.repository.handle.history",
        "Upkeep": "frazil.repository.handle.upkeep",
    },
)

__all__ = ["History", "Upkeep", "operations"]
