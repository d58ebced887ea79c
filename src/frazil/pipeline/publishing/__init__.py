"""Write, audit, publish: readers get only versions that were checked.

`publish` and `rollback_to` move a branch to a version of another branch, or of its own history.
`write_audit_publish` also has the audit branch: its work, its report, and its rebase onto commits of other
writers.
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
