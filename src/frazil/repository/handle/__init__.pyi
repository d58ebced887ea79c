__all__: list[str]

from frazil.repository.handle.history import History as History
from frazil.repository.handle.upkeep import Upkeep as Upkeep
