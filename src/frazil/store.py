"""The zarr store of a session."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
