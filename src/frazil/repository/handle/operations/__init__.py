"""The operations of maintenance that the methods of ``Repository`` call.

Most processes open a repository and call none of them, and other processes call one. All of them have four
times as many modules as a repository. Therefore the methods reach each operation through this package, which
imports it on demand.
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.maintenance.collection import Collection
    from frazil.maintenance.compaction import Compaction, compaction_commits
    from frazil.maintenance.deletion import DeleteLimits
    from frazil.maintenance.expire import ExpirationChange, Expiry, expiry_report
    from frazil.maintenance.expire_v1 import expire_v1
    from frazil.maintenance.repair.plan import repair_plan
    from frazil.maintenance.retention.decision import RetentionChange, decide
    from frazil.maintenance.retention.policy import branch_policies
    from frazil.maintenance.rewrite import RewriteCommit, is_amend, rewrite
    from frazil.maintenance.squash import NewCommit, Range, squash
    from frazil.maintenance.statistics import storage_stats
    from frazil.maintenance.verification.plan import verify
    from frazil.survey.steps import run_with
    from frazil.survey.survey import Bounds

import_on_demand(
    __name__,
    {
        "Compaction": "frazil.maintenance.compaction",
        "compaction_commits": "frazil.maintenance.compaction",
        "DeleteLimits": "frazil.maintenance.deletion",
        "ExpirationChange": "frazil.maintenance.expire",
        "Expiry": "frazil.maintenance.expire",
        "expiry_report": "frazil.maintenance.expire",
        "expire_v1": "frazil.maintenance.expire_v1",
        "Collection": "frazil.maintenance.collection",
        "repair_plan": "frazil.maintenance.repair.plan",
        "RetentionChange": "frazil.maintenance.retention.decision",
        "decide": "frazil.maintenance.retention.decision",
        "branch_policies": "frazil.maintenance.retention.policy",
        "RewriteCommit": "frazil.maintenance.rewrite",
        "is_amend": "frazil.maintenance.rewrite",
        "rewrite": "frazil.maintenance.rewrite",
        "NewCommit": "frazil.maintenance.squash",
        "Range": "frazil.maintenance.squash",
        "squash": "frazil.maintenance.squash",
        "storage_stats": "frazil.maintenance.statistics",
        "run_with": "frazil.survey.steps",
        "verify": "frazil.maintenance.verification.plan",
        "Bounds": "frazil.survey.survey",
    },
)

__all__ = [
    "Bounds",
    "Collection",
    "Compaction",
    "DeleteLimits",
    "ExpirationChange",
    "Expiry",
    "NewCommit",
    "Range",
    "RetentionChange",
    "RewriteCommit",
    "branch_policies",
    "compaction_commits",
    "decide",
    "expire_v1",
    "expiry_report",
    "is_amend",
    "repair_plan",
    "rewrite",
    "run_with",
    "squash",
    "storage_stats",
    "verify",
]
