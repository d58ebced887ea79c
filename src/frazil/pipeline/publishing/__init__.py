"""Write, audit, publish: readers get only versions that were checked.

branches     `publish`, `rollback_to`: a branch moves to a version of another branch, or of its own history
audit        the audit branch: its work, its report, and its rebase onto commits of other writers
operation    `write_audit_publish`
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.pipeline.publishing.branches import publish, rollback_to
    from frazil.pipeline.publishing.operation import Published, write_audit_publish
    from frazil.repository.catalog.protection import AUDIT

import_on_demand(
    __name__,
    {
        "AUDIT": "frazil.repository.catalog.protection",
        "publish": "frazil.pipeline.publishing.branches",
        "rollback_to": "frazil.pipeline.publishing.branches",
        "Published": "frazil.pipeline.publishing.operation",
        "write_audit_publish": "frazil.pipeline.publishing.operation",
    },
    extra="pipeline",
)

__all__ = ["AUDIT", "Published", "publish", "rollback_to", "write_audit_publish"]
