"""A zarr store over a session."""

from frazil.zarr_store.store import IcechunkStore

__all__ = ["IcechunkStore"]
