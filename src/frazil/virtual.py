"""The types of virtual chunks: containers and references."""

from frazil.repository.settings.config import VirtualChunkContainer, VirtualChunkSpec

__all__ = ["VirtualChunkContainer", "VirtualChunkSpec"]
