"""Repositories, sessions and their configuration: the room that both decides and does I/O."""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.maintenance.garbage_files import ChunkStorageStats, GCSummary
    from frazil.repository.attribution import Attribution
    from frazil.repository.catalog.presentation import Update
    from frazil.repository.catalog.version_info import (
        CommitMethod,
        Diff,
        FeatureFlag,
        ManifestFileInfo,
        RepoStatus,
        SnapshotInfo,
        SpecVersion,
    )
    from frazil.repository.handle.repository import Repository
    from frazil.repository.handle.version_history import AncestryGraph
    from frazil.repository.session.conflicts import ConflictSolver
    from frazil.repository.session.session import Session
    from frazil.repository.settings.config import RepositoryConfig
    from frazil.storage import Storage, StorageSettings
    from frazil.storage.credential_families import AnyCredential

import_on_demand(
    __name__,
    {
        "Attribution": "frazil.repository.attribution",
        "Update": "frazil.repository.catalog.presentation",
        "ChunkStorageStats": "frazil.maintenance.garbage_files",
        "CommitMethod": "frazil.repository.catalog.version_info",
        "Diff": "frazil.repository.catalog.version_info",
        "FeatureFlag": "frazil.repository.catalog.version_info",
        "GCSummary": "frazil.maintenance.garbage_files",
        "ManifestFileInfo": "frazil.repository.catalog.version_info",
        "RepoStatus": "frazil.repository.catalog.version_info",
        "SnapshotInfo": "frazil.repository.catalog.version_info",
        "SpecVersion": "frazil.repository.catalog.version_info",
        "AncestryGraph": "frazil.repository.handle.version_history",
        "Repository": "frazil.repository.handle.repository",
        "ConflictSolver": "frazil.repository.session.conflicts",
        "Session": "frazil.repository.session.session",
        "RepositoryConfig": "frazil.repository.settings.config",
        "Storage": "frazil.storage",
        "StorageSettings": "frazil.storage",
        "AnyCredential": "frazil.storage.credential_families",
    },
)

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
