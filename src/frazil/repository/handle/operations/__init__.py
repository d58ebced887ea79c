"""The operations of maintenance that the methods of ``Repository`` call.

Most processes open a repository and call none of them, and other processes call one. All of them have four
times as many modules as a repository. Therefore the methods reach each operation through this package, which
imports it on demand.
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
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
    from frazil.maintenance.verification.pieces import run_locally
    from frazil.maintenance.verification.plan import Request as VerifyRequest
    from frazil.maintenance.verification.plan import verify
    from frazil.maintenance.walk import Bounds

import_on_demand(
    __name__,
    {
        "CompactionOptions": "frazil.maintenance.compaction.operation",
        "compact": "frazil.maintenance.compaction.operation",
        "compaction_commits": "frazil.maintenance.compaction.operation",
        "Patience": "frazil.maintenance.deletion",
        "Expiring": "frazil.maintenance.expire",
        "Expiry": "frazil.maintenance.expire",
        "expiry_report": "frazil.maintenance.expire",
        "expire_v1": "frazil.maintenance.expire_v1",
        "Collection": "frazil.maintenance.garbage",
        "collect": "frazil.maintenance.garbage",
        "look": "frazil.maintenance.garbage_preview",
        "RepairRequest": "frazil.maintenance.repair.plan",
        "repair_plan": "frazil.maintenance.repair.plan",
        "Retaining": "frazil.maintenance.retention.decision",
        "decide": "frazil.maintenance.retention.decision",
        "branch_policies": "frazil.maintenance.retention.policy",
        "RewriteCommit": "frazil.maintenance.rewrite",
        "is_amend": "frazil.maintenance.rewrite",
        "rewrite": "frazil.maintenance.rewrite",
        "NewCommit": "frazil.maintenance.squash",
        "Range": "frazil.maintenance.squash",
        "squash": "frazil.maintenance.squash",
        "storage_stats": "frazil.maintenance.storage_stats",
        "run_locally": "frazil.maintenance.verification.pieces",
        "VerifyRequest": "frazil.maintenance.verification.plan:Request",
        "verify": "frazil.maintenance.verification.plan",
        "Bounds": "frazil.maintenance.walk",
    },
)

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
    "VerifyRequest",
    "branch_policies",
    "collect",
    "compact",
    "compaction_commits",
    "decide",
    "expire_v1",
    "expiry_report",
    "is_amend",
    "look",
    "repair_plan",
    "rewrite",
    "run_locally",
    "squash",
    "storage_stats",
    "verify",
]
