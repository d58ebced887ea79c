"""The zarr store of a session."""

from frazil.repository.settings.config import VirtualChunkSpec
from frazil.zarr_store import IcechunkStore

__all__ = ["IcechunkStore", "VirtualChunkSpec"]
