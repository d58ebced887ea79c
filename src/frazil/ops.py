"""The operations log."""

from frazil.repository.updates import Update, UpdateType
from frazil.repository.values import GCSummary

__all__ = ["GCSummary", "Update", "UpdateType"]
