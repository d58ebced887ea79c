__all__: list[str]

from frazil.zarr_store.store import IcechunkStore as IcechunkStore
