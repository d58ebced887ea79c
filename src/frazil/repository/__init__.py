"""Repositories, sessions and their configuration: the room that both decides and does I/O."""

from frazil.repository.attribution import Attribution
from frazil.repository.catalog.ops_values import Update
from frazil.repository.catalog.version_info import (
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
from frazil.repository.handle.graph import AncestryGraph
from frazil.repository.handle.repository import Repository
from frazil.repository.session.conflicts import ConflictSolver
from frazil.repository.session.session import Session
from frazil.repository.settings.config import RepositoryConfig
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
