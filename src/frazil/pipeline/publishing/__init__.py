"""Write, audit, publish: readers get no version that was not checked.

branches     `publish`, `rollback_to`: one branch moves to a version of another, or of its own past
audit        the audit branch: its work, its report, and its rebase onto what others commit
operation    `write_audit_publish`
"""

from frazil.pipeline.publishing.audit import AUDIT
from frazil.pipeline.publishing.branches import publish, rollback_to
from frazil.pipeline.publishing.operation import Published, write_audit_publish

__all__ = ["AUDIT", "Published", "publish", "rollback_to", "write_audit_publish"]
