"""Frazil: transactional, versioned storage for Zarr arrays, in the Icechunk format.

>>> import frazil, zarr
>>> repo = frazil.Repository.create(frazil.in_memory_storage())
>>> session = repo.writable_session("main")
>>> array = zarr.create_array(session.store, name="t", shape=(6,), chunks=(3,), dtype="f4")
>>> array[:] = 1
>>> snapshot = session.commit("first")
>>> repo.lookup_branch("main") == snapshot
True
"""

from frazil.about import __version__, print_debug_info, user_agent
from frazil.config import (
    Attribution,
    CachingConfig,
    ChunksConfig,
    CompressionAlgorithm,
    CompressionConfig,
    FeatureFlag,
    ManifestConfig,
    ManifestPreloadCondition,
    ManifestPreloadConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
    PackingConfig,
    RepositoryConfig,
)
from frazil.conflicts import (
    BasicConflictSolver,
    Conflict,
    ConflictDetector,
    ConflictSolver,
    ConflictType,
    VersionSelection,
)
from frazil.credentials import (
    AnyAzureCredential,
    AnyAzureStaticCredential,
    AnyCredential,
    AnyGcsCredential,
    AnyGcsStaticCredential,
    AnyS3Credential,
    AzureCredentials,
    AzureRefreshableCredential,
    AzureStaticCredentials,
    Credentials,
    GcsBearerCredential,
    GcsCredentials,
    GcsStaticCredentials,
    S3Credentials,
    S3StaticCredentials,
    azure_anonymous_credentials,
    azure_credentials,
    azure_from_env_credentials,
    azure_refreshable_credentials,
    azure_static_credentials,
    containers_credentials,
    gcs_credentials,
    gcs_from_env_credentials,
    gcs_refreshable_credentials,
    gcs_static_credentials,
    s3_anonymous_credentials,
    s3_credentials,
    s3_from_env_credentials,
    s3_refreshable_credentials,
    s3_static_credentials,
)
from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    FormatError,
    IcechunkError,
    InternalError,
    InvalidInputError,
    InvalidMetadataError,
    MissingExtraError,
    NodeNotFoundError,
    NotFoundError,
    OutcomeUnknownError,
    ReadOnlyError,
    RebaseFailedError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SessionSnapshotNotFoundError,
    SessionStateError,
    SnapshotNotFoundError,
    StaleReadError,
    StorageError,
    TaskFailedError,
    ValidationFailedError,
)
from frazil.importing import ImportReport, upgrade
from frazil.logs import initialize_logs, set_logs_filter, shutdown_telemetry
from frazil.ops import GCSummary, LeaseInfo, Update, UpdateType
from frazil.repository.catalog.backups import Backup
from frazil.repository.catalog.checks import Check
from frazil.repository.catalog.compaction_info import CompactionLimits, CompactionReport
from frazil.repository.catalog.findings import Finding, VerificationReport
from frazil.repository.catalog.repairs import ChunkSource, LostChunks, RepairPlan, RepairStep, SourceChunk
from frazil.repository.catalog.restoration import RestoreReport
from frazil.repository.catalog.verification_state import VerificationState
from frazil.repository.catalog.version_info import ChunkType, RepoAvailability, RepoStatus, SpecVersion
from frazil.repository.handle.history_upkeep import CommitPattern, Retention, RetentionReport
from frazil.repository.handle.repository import Repository
from frazil.repository.handle.upgrade import upgrade_icechunk_repository
from frazil.repository.handle.upkeep import OpsLogRetention
from frazil.session import ForkSession, Session, SessionMode
from frazil.snapshots import AncestryGraph, Diff, ManifestFileInfo, SnapshotInfo
from frazil.storage import (
    AnyObjectStoreConfig,
    ChecksumAlgorithm,
    ObjectStoreConfig,
    S3Options,
    Storage,
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
    azure_storage,
    gcs_storage,
    gcs_store,
    hf_storage,
    http_storage,
    http_store,
    in_memory_storage,
    local_filesystem_storage,
    local_filesystem_store,
    r2_storage,
    redirect_storage,
    s3_storage,
    s3_store,
    storage_from_url,
    tigris_storage,
)
from frazil.store import IcechunkStore
from frazil.types import CommitMethod
from frazil.virtual import VirtualChunkContainer, VirtualChunkSpec


def spec_version() -> SpecVersion:
    """Return the version of the format that new repositories get.

    Returns:
        The newest version that this library writes.

    Examples:
        >>> spec_version()
        SpecVersion.v2 (current)
    """
    return SpecVersion.current()


def supported_spec_versions() -> list[SpecVersion]:
    """Return the versions of the format that this library reads and writes.

    Returns:
        The versions, the newest first.

    Examples:
        >>> supported_spec_versions()
        [SpecVersion.v2 (current), SpecVersion.v1]
    """
    return sorted(SpecVersion, key=int, reverse=True)


__all__ = [
    "AlreadyExistsError",
    "AncestryGraph",
    "AnyAzureCredential",
    "AnyAzureStaticCredential",
    "AnyCredential",
    "AnyGcsCredential",
    "AnyGcsStaticCredential",
    "AnyObjectStoreConfig",
    "AnyS3Credential",
    "Attribution",
    "AzureCredentials",
    "AzureRefreshableCredential",
    "AzureStaticCredentials",
    "Backup",
    "BasicConflictSolver",
    "CachingConfig",
    "Check",
    "ChecksumAlgorithm",
    "ChunkSource",
    "ChunkType",
    "ChunksConfig",
    "CommitMethod",
    "CommitPattern",
    "CompactionLimits",
    "CompactionReport",
    "CompressionAlgorithm",
    "CompressionConfig",
    "Conflict",
    "ConflictDetector",
    "ConflictError",
    "ConflictSolver",
    "ConflictType",
    "Credentials",
    "Diff",
    "ErrorKind",
    "FeatureFlag",
    "Finding",
    "ForkSession",
    "FormatError",
    "GCSummary",
    "GcsBearerCredential",
    "GcsCredentials",
    "GcsStaticCredentials",
    "IcechunkError",
    "IcechunkStore",
    "ImportReport",
    "InternalError",
    "InvalidInputError",
    "InvalidMetadataError",
    "LeaseInfo",
    "LostChunks",
    "ManifestConfig",
    "ManifestFileInfo",
    "ManifestPreloadCondition",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "MissingExtraError",
    "NodeNotFoundError",
    "NotFoundError",
    "ObjectStoreConfig",
    "OpsLogRetention",
    "OutcomeUnknownError",
    "PackingConfig",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RepairPlan",
    "RepairStep",
    "RepoAvailability",
    "RepoStatus",
    "Repository",
    "RepositoryConfig",
    "RepositoryNotFoundError",
    "RestoreReport",
    "Retention",
    "RetentionReport",
    "S3Credentials",
    "S3Options",
    "S3StaticCredentials",
    "Session",
    "SessionMode",
    "SessionSnapshotNotFoundError",
    "SessionStateError",
    "SnapshotInfo",
    "SnapshotNotFoundError",
    "SourceChunk",
    "SpecVersion",
    "StaleReadError",
    "Storage",
    "StorageConcurrencySettings",
    "StorageError",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "TaskFailedError",
    "Update",
    "UpdateType",
    "ValidationFailedError",
    "VerificationReport",
    "VerificationState",
    "VersionSelection",
    "VirtualChunkContainer",
    "VirtualChunkSpec",
    "__version__",
    "azure_anonymous_credentials",
    "azure_credentials",
    "azure_from_env_credentials",
    "azure_refreshable_credentials",
    "azure_static_credentials",
    "azure_storage",
    "containers_credentials",
    "gcs_credentials",
    "gcs_from_env_credentials",
    "gcs_refreshable_credentials",
    "gcs_static_credentials",
    "gcs_storage",
    "gcs_store",
    "hf_storage",
    "http_storage",
    "http_store",
    "in_memory_storage",
    "initialize_logs",
    "local_filesystem_storage",
    "local_filesystem_store",
    "print_debug_info",
    "r2_storage",
    "redirect_storage",
    "s3_anonymous_credentials",
    "s3_credentials",
    "s3_from_env_credentials",
    "s3_refreshable_credentials",
    "s3_static_credentials",
    "s3_storage",
    "s3_store",
    "set_logs_filter",
    "shutdown_telemetry",
    "spec_version",
    "storage_from_url",
    "supported_spec_versions",
    "tigris_storage",
    "upgrade",
    "upgrade_icechunk_repository",
    "user_agent",
]
