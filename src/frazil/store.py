"""The zarr store."""

from frazil.zarr_store import IcechunkStore

__all__ = ["IcechunkStore"]
