"""Rewriting manifests: a commit that changes nothing but how references are spread over files.

After a change of the splitting configuration, old manifests stay as they are until a commit touches them.
This touches all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frazil.changes.change_set import ChangeSet
from frazil.changes.prepared_manifests import PreparedManifests
from frazil.format.snapshot import Snapshot
from frazil.repository.catalog.collection_guard import SessionStart, newest_update
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.expired_versions import with_current
from frazil.repository.catalog.repo_requirements import branch_tip, require_online
from frazil.repository.clock import now_us
from frazil.repository.session.commit import write_commit
from frazil.repository.session.commit_retries import RESERVED
from frazil.repository.session.pending_commit import REWRITE, REWRITE_AMEND, PendingCommit
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config_document import splitting_document


def rewrite(
    context: Context,
    branch: str,
    message: str,
    metadata: dict[str, Any],
    *,
    amend: bool,
    write: Callable[[Snapshot], dict[bytes, PreparedManifests]] = lambda parent: {},
) -> bytes:
    """The id of the new snapshot. ``metadata`` are the user's; what the format reserves is added. ``write``
    may write the manifests of some arrays, by node id.
    """
    if amend:
        context.require_version_2()
    since = now_us()
    info, parent = with_current(
        context, lambda info: (info, Workspace(context, branch_tip(info, branch)).snapshot)
    )
    require_online(info)
    reserved_before = metadata.get(RESERVED)
    reserved = {
        **(reserved_before if isinstance(reserved_before, dict) else {}),
        "splitting_config": splitting_document(context.settings.splitting),
    }
    return write_commit(
        PendingCommit(
            context,
            REWRITE_AMEND if amend else REWRITE,
            branch,
            parent,
            ChangeSet(ready=write(parent)),
            message,
            {**metadata, RESERVED: reserved},
            SessionStart(newest_update(info), since),
        )
    )
