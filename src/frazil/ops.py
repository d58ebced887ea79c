"""The operations log, and the results of upkeep."""

from frazil.repository.updates import Update, UpdateType
from frazil.repository.values import ChunkStorageStats, GCSummary

__all__ = ["ChunkStorageStats", "GCSummary", "Update", "UpdateType"]
