"""Maintenance of a repository: garbage collection, expiration, statistics, compaction and verification.

A process mostly does one operation, so the modules are imported on demand.
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
