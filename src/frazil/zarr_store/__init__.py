"""The zarr store of a session."""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.zarr_store.store import IcechunkStore

import_on_demand(
    __name__,
    {
        "IcechunkStore": "frazil.zarr_store.store",
    },
)

__all__ = ["IcechunkStore"]
