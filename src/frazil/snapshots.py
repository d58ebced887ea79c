"""What a repository tells of its snapshots."""

from frazil.repository.graph import AncestryGraph
from frazil.repository.values import Diff, ManifestFileInfo, SnapshotInfo

__all__ = ["AncestryGraph", "Diff", "ManifestFileInfo", "SnapshotInfo"]
