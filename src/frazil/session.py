"""Sessions and the types that they use."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
