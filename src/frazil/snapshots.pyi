__all__: list[str]

from frazil.handle.version_history import AncestryGraph as AncestryGraph
from frazil.history.blame import Blame as Blame
from frazil.history.blame import ChunkCommit as ChunkCommit
from frazil.history.reports import ValueDifference as ValueDifference
from frazil.history.versions import BisectReport as BisectReport
from frazil.history.versions import BranchVersion as BranchVersion
from frazil.history.versions import Watch as Watch
from frazil.repository.catalog.version_info import Diff as Diff
from frazil.repository.catalog.version_info import ManifestFileInfo as ManifestFileInfo
from frazil.repository.catalog.version_info import SnapshotInfo as SnapshotInfo
