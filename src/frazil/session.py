"""Sessions, under the name that users of the format know."""

from frazil.repository.config import RepositoryConfig
from frazil.repository.conflicts import ConflictSolver
from frazil.repository.session import ForkSession, Session
from frazil.repository.values import ChunkType, Diff, SessionMode
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
