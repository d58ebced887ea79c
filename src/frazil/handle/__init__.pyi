__all__: list[str]

from frazil.handle.history import History as History
from frazil.handle.upkeep import Upkeep as Upkeep
