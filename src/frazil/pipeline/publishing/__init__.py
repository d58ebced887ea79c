"""Write, audit, publish: readers get only versions that were checked.

branches     `publish`, `rollback_to`: a branch moves to a version of another branch, or of its own history
audit        the audit branch: its work, its report, and its rebase onto commits of other writers
operation    `write_audit_publish`
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
