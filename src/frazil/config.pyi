__all__: list[str]

from frazil.logs import initialize_logs as initialize_logs
from frazil.logs import set_logs_filter as set_logs_filter
from frazil.logs import shutdown_telemetry as shutdown_telemetry
from frazil.repository.attribution import Attribution as Attribution
from frazil.repository.catalog.protection import BranchProtection as BranchProtection
from frazil.repository.catalog.version_info import FeatureFlag as FeatureFlag
from frazil.repository.settings.conditions import ManifestPreloadCondition as ManifestPreloadCondition
from frazil.repository.settings.conditions import ManifestSplitCondition as ManifestSplitCondition
from frazil.repository.settings.conditions import ManifestSplitDimCondition as ManifestSplitDimCondition
from frazil.repository.settings.config import CachingConfig as CachingConfig
from frazil.repository.settings.config import ChunksConfig as ChunksConfig
from frazil.repository.settings.config import CompressionAlgorithm as CompressionAlgorithm
from frazil.repository.settings.config import CompressionConfig as CompressionConfig
from frazil.repository.settings.config import PackingConfig as PackingConfig
from frazil.repository.settings.config import RepositoryConfig as RepositoryConfig
from frazil.repository.settings.config import RepoUpdateRetryConfig as RepoUpdateRetryConfig
from frazil.repository.settings.manifest_config import ManifestConfig as ManifestConfig
from frazil.repository.settings.manifest_config import ManifestPreloadConfig as ManifestPreloadConfig
from frazil.repository.settings.manifest_config import ManifestSplittingConfig as ManifestSplittingConfig
from frazil.repository.settings.manifest_config import ManifestSplitValues as ManifestSplitValues
from frazil.repository.settings.manifest_config import (
    ManifestVirtualChunkLocationCompressionConfig as ManifestVirtualChunkLocationCompressionConfig,
)
from frazil.repository.settings.manifest_config import SplitSizesDict as SplitSizesDict
from frazil.repository.settings.manifest_config import from_dict as from_dict
from frazil.repository.settings.manifest_config import to_dict as to_dict
from frazil.storage.object_store_config import ObjectStoreConfig as ObjectStoreConfig
