"""Sessions and the types that they use."""

from frazil.repository.catalog.version_info import ChunkType, Diff, SessionMode
from frazil.repository.session.conflicts import ConflictSolver
from frazil.repository.session.session import ForkSession, Session
from frazil.repository.settings.config import RepositoryConfig
from frazil.zarr_store import IcechunkStore

__all__ = [
    "ChunkType",
    "ConflictSolver",
    "Diff",
    "ForkSession",
    "IcechunkStore",
    "RepositoryConfig",
    "Session",
    "SessionMode",
]
