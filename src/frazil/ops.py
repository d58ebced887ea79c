"""The entries of the operations log, and the results of maintenance."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
