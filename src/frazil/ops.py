"""The entries of the operations log, and the results of maintenance."""

from frazil.maintenance.doctor import DoctorFinding, DoctorReport
from frazil.maintenance.plan import (
    ChunkStorageStats,
    GarbageFile,
    GarbageFiles,
    GarbageReason,
    GCSummary,
)
from frazil.maintenance.retention import RetentionReport, VersionReason
from frazil.repository.catalog.presentation import Update, UpdateType
from frazil.repository.catalog.version_info import LeaseInfo
from frazil.repository.history.reports import StateChange, UndoPlan

__all__ = [
    "ChunkStorageStats",
    "DoctorFinding",
    "DoctorReport",
    "GCSummary",
    "GarbageFile",
    "GarbageFiles",
    "GarbageReason",
    "LeaseInfo",
    "RetentionReport",
    "StateChange",
    "UndoPlan",
    "Update",
    "UpdateType",
    "VersionReason",
]
