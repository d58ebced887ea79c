"""The operations log, and what upkeep returns."""

from frazil.repository.updates import Update, UpdateType
from frazil.repository.values import GCSummary, LeaseInfo

__all__ = ["GCSummary", "LeaseInfo", "Update", "UpdateType"]
