"""The types of virtual chunks: containers and references."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
