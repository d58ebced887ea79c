"""The zarr store."""

from frazil.repository.virtual_values import VirtualChunkSpec
from frazil.zarr_store import IcechunkStore

__all__ = ["IcechunkStore", "VirtualChunkSpec"]
