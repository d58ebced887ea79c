"""Credentials for storages and for containers of virtual chunks."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
