__all__: list[str]

from frazil.repository.catalog.version_info import Diff as Diff
from frazil.repository.catalog.version_info import ManifestFileInfo as ManifestFileInfo
from frazil.repository.catalog.version_info import SnapshotInfo as SnapshotInfo
from frazil.repository.handle.version_history import AncestryGraph as AncestryGraph
from frazil.repository.history.bisect import BisectReport as BisectReport
from frazil.repository.history.blame import Blame as Blame
from frazil.repository.history.blame import ChunkCommit as ChunkCommit
from frazil.repository.history.branch_watch import BranchVersion as BranchVersion
from frazil.repository.history.branch_watch import Watch as Watch
from frazil.repository.history.reports import ValueDifference as ValueDifference
