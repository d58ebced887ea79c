"""Virtual chunks: containers and references."""

from frazil.repository.virtual_values import VirtualChunkContainer, VirtualChunkSpec

__all__ = ["VirtualChunkContainer", "VirtualChunkSpec"]
