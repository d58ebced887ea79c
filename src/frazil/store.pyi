__all__: list[str]

from frazil.repository.settings.config import VirtualChunkSpec as VirtualChunkSpec
from frazil.zarr_store import IcechunkStore as IcechunkStore
