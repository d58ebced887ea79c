"""The entries of the operations log, and the results of maintenance."""

from frazil.repository.catalog.ops_values import Update, UpdateType
from frazil.repository.catalog.version_info import ChunkStorageStats, GCSummary, LeaseInfo
from frazil.repository.handle.history_upkeep import RetentionReport, VersionReason

__all__ = [
    "ChunkStorageStats",
    "GCSummary",
    "LeaseInfo",
    "RetentionReport",
    "Update",
    "UpdateType",
    "VersionReason",
]
