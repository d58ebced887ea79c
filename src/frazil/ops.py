"""The entries of the operations log, and the results of maintenance."""

from frazil.repository.catalog.ops_values import Update, UpdateType
from frazil.repository.catalog.version_info import ChunkStorageStats, GCSummary, LeaseInfo

__all__ = ["ChunkStorageStats", "GCSummary", "LeaseInfo", "Update", "UpdateType"]
