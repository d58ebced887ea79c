"""The types of virtual chunks: containers and references."""

from frazil.repository.settings.virtual_containers import VirtualChunkContainer, VirtualChunkSpec

__all__ = ["VirtualChunkContainer", "VirtualChunkSpec"]
