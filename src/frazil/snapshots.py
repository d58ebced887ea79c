"""The types that describe snapshots: their metadata, their history, and their differences."""

from frazil.repository.catalog.version_info import Diff, ManifestFileInfo, SnapshotInfo
from frazil.repository.handle.comparison import BisectReport, ValueDifference
from frazil.repository.handle.graph import AncestryGraph
from frazil.repository.handle.provenance import Blame, ChunkCommit
from frazil.repository.handle.watching import BranchVersion, Watch

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
