"""The public handle ``Repository``: opening, refs, history, integration, recovery and upkeep."""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.repository.handle import operations
    from frazil.repository.handle.upkeep import Upkeep

import_on_demand(
    __name__,
    {"operations": "frazil.repository.handle.operations", "Upkeep": "frazil.repository.handle.upkeep"},
)

__all__ = ["Upkeep", "operations"]
