__all__: list[str]

from frazil.repository.settings.config import VirtualChunkContainer as VirtualChunkContainer
from frazil.repository.settings.config import VirtualChunkSpec as VirtualChunkSpec
