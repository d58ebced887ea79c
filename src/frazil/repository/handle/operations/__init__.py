"""The operations of a repair that the methods of ``Repository`` call. The package imports them on demand."""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.maintenance.repair.plan import RepairRequest, repair_plan

import_on_demand(
    __name__,
    {
        "RepairRequest": "frazil.maintenance.repair.plan",
        "repair_plan": "frazil.maintenance.repair.plan",
    },
)

__all__ = ["RepairRequest", "repair_plan"]
