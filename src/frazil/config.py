"""The configuration of a repository."""

from frazil.logs import initialize_logs, set_logs_filter, shutdown_telemetry
from frazil.repository.attribution import Attribution
from frazil.repository.catalog.protection import BranchProtection
from frazil.repository.catalog.version_info import FeatureFlag
from frazil.repository.settings.conditions import (
    ManifestPreloadCondition,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
)
from frazil.repository.settings.config import (
    CachingConfig,
    ChunksConfig,
    CompressionAlgorithm,
    CompressionConfig,
    PackingConfig,
    RepositoryConfig,
    RepoUpdateRetryConfig,
)
from frazil.repository.settings.manifest_config import (
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
    ManifestSplitValues,
    ManifestVirtualChunkLocationCompressionConfig,
    SplitSizesDict,
    from_dict,
    to_dict,
)
from frazil.storage.object_store_config import ObjectStoreConfig

__all__ = [
    "Attribution",
    "BranchProtection",
    "CachingConfig",
    "ChunksConfig",
    "CompressionAlgorithm",
    "CompressionConfig",
    "FeatureFlag",
    "ManifestConfig",
    "ManifestPreloadCondition",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplitValues",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "ObjectStoreConfig",
    "PackingConfig",
    "RepoUpdateRetryConfig",
    "RepositoryConfig",
    "SplitSizesDict",
    "from_dict",
    "initialize_logs",
    "set_logs_filter",
    "shutdown_telemetry",
    "to_dict",
]
