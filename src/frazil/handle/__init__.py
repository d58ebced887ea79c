"""The public handle ``Repository``, with its ``history`` and ``upkeep``."""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
