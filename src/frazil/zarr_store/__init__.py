"""The zarr store of a session."""

from frazil.zarr_store.store import IcechunkStore

__all__ = ["IcechunkStore"]
