"""The operations log, and the results of upkeep."""

from frazil.repository.updates import Update, UpdateType
from frazil.repository.values import ChunkStorageStats, GCSummary, LeaseInfo

__all__ = ["ChunkStorageStats", "GCSummary", "LeaseInfo", "Update", "UpdateType"]
