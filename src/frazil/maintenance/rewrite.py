"""Rewrite of manifests: a commit that only changes how references are distributed over files.

After a change of the splitting configuration, old manifests stay unchanged until a commit touches them. A
rewrite touches all of them.
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
    """Write all manifests again in a commit, and return the id of the new snapshot.

    Args:
        context: Repository.
        branch: Name of the branch.
        message: Message of the commit.
        metadata: Metadata of the user. Reserved entries of the format are added.
        amend: Whether the commit replaces the tip of the branch. This needs spec version 2.
        write: Function that writes the manifests of some arrays in other processes, by node id. Default: this
            process writes all of them.

    Returns:
        The id of the new snapshot, 12 bytes.

    Examples:
        >>> import frazil
        >>> from frazil.repository.handle.interior import context_of
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> id_ = rewrite(context_of(repo), "main", "rewrite the manifests", dict(), amend=False)
        >>> repo.lookup_snapshot(repo.lookup_branch("main")).message
        'rewrite the manifests'
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
