"""Frazil: transactional, versioned storage for Zarr arrays, in the Icechunk format.

>>> import frazil, zarr
>>> repo = frazil.Repository.create(frazil.in_memory_storage())
>>> session = repo.writable_session("main")
>>> array = zarr.create_array(session.store, name="t", shape=(6,), chunks=(3,), dtype="f4")
>>> array[:] = 1
>>> snapshot = session.commit("first")
>>> repo.lookup_branch("main") == snapshot
True
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, needed={"frazil.members.collection": "xarray"})
