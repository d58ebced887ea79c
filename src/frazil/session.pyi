__all__: list[str]

from frazil.repository.catalog.version_info import ChunkType as ChunkType
from frazil.repository.catalog.version_info import Diff as Diff
from frazil.repository.catalog.version_info import SessionMode as SessionMode
from frazil.repository.session.conflicts import ConflictSolver as ConflictSolver
from frazil.repository.session.session import ForkSession as ForkSession
from frazil.repository.session.session import Session as Session
from frazil.repository.settings.config import RepositoryConfig as RepositoryConfig
from frazil.zarr_store import IcechunkStore as IcechunkStore
