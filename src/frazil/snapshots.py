"""The types that describe snapshots: their metadata, their history, and their differences."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
