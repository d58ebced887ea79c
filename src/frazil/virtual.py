"""The types of virtual chunks: containers and references."""

from frazil.repository.settings.config import VirtualChunkContainer as VirtualChunkContainer
from frazil.repository.settings.config import VirtualChunkSpec as VirtualChunkSpec
