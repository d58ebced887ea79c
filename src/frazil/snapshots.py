"""The types that describe snapshots: their metadata, their history, and their differences."""

from frazil.repository.catalog.version_info import Diff, ManifestFileInfo, SnapshotInfo
from frazil.repository.handle.version_history import AncestryGraph
from frazil.repository.history.bisect import BisectReport
from frazil.repository.history.blame import Blame, ChunkCommit
from frazil.repository.history.branch_watch import BranchVersion, Watch
from frazil.repository.history.reports import ValueDifference

__all__ = [
    "AncestryGraph",
    "BisectReport",
    "Blame",
    "BranchVersion",
    "ChunkCommit",
    "Diff",
    "ManifestFileInfo",
    "SnapshotInfo",
    "ValueDifference",
    "Watch",
]
