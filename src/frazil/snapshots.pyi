__all__: list[str]

from frazil.handle.version_history import AncestryGraph as AncestryGraph
from frazil.history.bisect import BisectReport as BisectReport
from frazil.history.blame import Blame as Blame
from frazil.history.blame import ChunkCommit as ChunkCommit
from frazil.history.branch_watch import BranchVersion as BranchVersion
from frazil.history.branch_watch import Watch as Watch
from frazil.history.reports import ValueDifference as ValueDifference
from frazil.repository.catalog.version_info import Diff as Diff
from frazil.repository.catalog.version_info import ManifestFileInfo as ManifestFileInfo
from frazil.repository.catalog.version_info import SnapshotInfo as SnapshotInfo
