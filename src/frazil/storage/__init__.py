"""Storages: bytes under keys, in object stores, local files, memory, and on web servers.

``frazil.storage.base`` has the contract that all of them keep.
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__)
