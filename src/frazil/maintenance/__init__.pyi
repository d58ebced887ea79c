__all__: list[str]

from frazil.maintenance.chunk_statistics import StatisticsReport as StatisticsReport
from frazil.maintenance.chunk_statistics import build_statistics as build_statistics
from frazil.maintenance.compaction import Compaction as Compaction
from frazil.maintenance.compaction import RewriteCommit as RewriteCommit
from frazil.maintenance.compaction import compaction_commits as compaction_commits
from frazil.maintenance.compaction import is_amend as is_amend
from frazil.maintenance.compaction import rewrite as rewrite
from frazil.maintenance.doctor import DoctorReport as DoctorReport
from frazil.maintenance.doctor import examine as examine
from frazil.maintenance.expiration import SquashRange as SquashRange
from frazil.maintenance.expiration import expire as expire
from frazil.maintenance.expiration import expire_v1 as expire_v1
from frazil.maintenance.expiration import squash as squash
from frazil.maintenance.expiration import squash_report as squash_report
from frazil.maintenance.repair.plan import repair_plan as repair_plan
from frazil.maintenance.repair.plan import restore_report as restore_report
from frazil.maintenance.repair.plan import restore_repository as restore_repository
from frazil.maintenance.retention import Decision as Decision
from frazil.maintenance.retention import Retention as Retention
from frazil.maintenance.retention import RetentionReport as RetentionReport
from frazil.maintenance.retention import branch_policies as branch_policies
from frazil.maintenance.retention import decide as decide
from frazil.maintenance.retention import removal_change as removal_change
from frazil.maintenance.statistics import storage_stats as storage_stats
from frazil.maintenance.verification.plan import VerificationState as VerificationState
from frazil.maintenance.verification.plan import verify as verify
