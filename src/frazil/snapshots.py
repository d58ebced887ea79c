"""The types that describe snapshots: their metadata, their history, and their differences."""

from frazil.repository.catalog.version_info import Diff, ManifestFileInfo, SnapshotInfo
from frazil.repository.handle.graph import AncestryGraph

__all__ = ["AncestryGraph", "Diff", "ManifestFileInfo", "SnapshotInfo"]
