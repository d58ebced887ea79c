__all__: list[str]

from frazil.handle.repository import Repository as Repository
from frazil.handle.version_history import AncestryGraph as AncestryGraph
from frazil.maintenance.plan import ChunkStorageStats as ChunkStorageStats
from frazil.maintenance.plan import GCSummary as GCSummary
from frazil.repository.attribution import Attribution as Attribution
from frazil.repository.catalog.presentation import Update as Update
from frazil.repository.catalog.version_info import CommitMethod as CommitMethod
from frazil.repository.catalog.version_info import Diff as Diff
from frazil.repository.catalog.version_info import FeatureFlag as FeatureFlag
from frazil.repository.catalog.version_info import ManifestFileInfo as ManifestFileInfo
from frazil.repository.catalog.version_info import RepoStatus as RepoStatus
from frazil.repository.catalog.version_info import SnapshotInfo as SnapshotInfo
from frazil.repository.catalog.version_info import SpecVersion as SpecVersion
from frazil.repository.session.conflicts import ConflictSolver as ConflictSolver
from frazil.repository.session.session import Session as Session
from frazil.repository.settings.config import RepositoryConfig as RepositoryConfig
from frazil.storage import Storage as Storage
from frazil.storage import StorageSettings as StorageSettings
from frazil.storage.credential_families import AnyCredential as AnyCredential
