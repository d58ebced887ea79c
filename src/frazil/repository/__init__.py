"""Transactions: the only room that both decides and does I/O."""

from frazil.repository.attribution import Attribution
from frazil.repository.config import RepositoryConfig
from frazil.repository.conflicts import ConflictSolver
from frazil.repository.graph import AncestryGraph
from frazil.repository.repository import Repository
from frazil.repository.session import Session
from frazil.repository.updates import Update
from frazil.repository.values import (
    ChunkStorageStats,
    CommitMethod,
    Diff,
    FeatureFlag,
    GCSummary,
    ManifestFileInfo,
    RepoStatus,
    SnapshotInfo,
    SpecVersion,
)
from frazil.storage import Storage, StorageSettings
from frazil.storage.credentials import AnyCredential

__all__ = [
    "AncestryGraph",
    "AnyCredential",
    "Attribution",
    "ChunkStorageStats",
    "CommitMethod",
    "ConflictSolver",
    "Diff",
    "FeatureFlag",
    "GCSummary",
    "ManifestFileInfo",
    "RepoStatus",
    "Repository",
    "RepositoryConfig",
    "Session",
    "SnapshotInfo",
    "SpecVersion",
    "Storage",
    "StorageSettings",
    "Update",
]
