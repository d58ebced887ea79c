"""The operations of maintenance that the methods of ``Repository`` call.

Most processes open a repository and call none of them. They have a fifth of the modules of a repository.
Therefore the methods reach this module through `frazil.repository.handle`, which imports it on demand.
"""

from frazil.maintenance.compaction.operation import CompactionOptions, compact, compaction_commits
from frazil.maintenance.deletion import Patience
from frazil.maintenance.expire import Expiring, Expiry, expiry_report
from frazil.maintenance.expire_v1 import expire_v1
from frazil.maintenance.garbage import Collection, collect
from frazil.maintenance.garbage_preview import look
from frazil.maintenance.repair.plan import RepairRequest, repair_plan
from frazil.maintenance.retention.decision import Retaining, decide
from frazil.maintenance.retention.policy import branch_policies
from frazil.maintenance.rewrite import RewriteCommit, is_amend, rewrite
from frazil.maintenance.squash import NewCommit, Range, squash
from frazil.maintenance.storage_stats import storage_stats
from frazil.maintenance.verification import plan
from frazil.maintenance.walk import Bounds

__all__ = [
    "Bounds",
    "Collection",
    "CompactionOptions",
    "Expiring",
    "Expiry",
    "NewCommit",
    "Patience",
    "Range",
    "RepairRequest",
    "Retaining",
    "RewriteCommit",
    "branch_policies",
    "collect",
    "compact",
    "compaction_commits",
    "decide",
    "expire_v1",
    "expiry_report",
    "is_amend",
    "look",
    "plan",
    "repair_plan",
    "rewrite",
    "squash",
    "storage_stats",
]
