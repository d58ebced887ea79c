"""Rewrite of manifests: a commit that only changes how references are distributed over files.

After a change of the splitting configuration, old manifests stay unchanged until a commit touches them. A
rewrite touches all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from frazil.changes.change_set import ChangeSet, PreparedManifests
from frazil.format.snapshot import Snapshot
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.context import Context, with_current
from frazil.repository.catalog.repo_changes import branch_tip, require_online
from frazil.repository.catalog.repo_update import newest_update
from frazil.repository.catalog.version_info import CommitMethod
from frazil.repository.clock import now_us
from frazil.repository.session.commit import RESERVED, write_commit
from frazil.repository.session.commit_files import REWRITE, REWRITE_AMEND, PendingCommit
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config_document import splitting_document


@dataclass(frozen=True, slots=True)
class RewriteCommit:
    """The commit of a rewrite.

    Attributes:
        branch: The name of the branch.
        message: The message of the commit.
        metadata: The metadata of the user. Reserved entries of the format are added.
        amend: Whether the commit replaces the tip of the branch. This needs spec version 2.
    """

    branch: str
    message: str
    metadata: dict[str, Any]
    amend: bool = False


def is_amend(commit_method: str) -> bool:
    """Return whether the commit replaces the tip of the branch."""
    if not isinstance(commit_method, str):
        raise TypeError(f"commit_method must be text, got {type(commit_method).__name__}")
    if commit_method not in get_args(CommitMethod):
        raise ValueError(f"commit_method must be one of {get_args(CommitMethod)}, got {commit_method!r}")
    return commit_method == "amend"


def rewrite(
    context: Context,
    commit: RewriteCommit,
    write: Callable[[Snapshot], dict[bytes, PreparedManifests]] = lambda parent: {},
) -> bytes:
    """Write all manifests again in a commit, and return the id of the new snapshot."""
    start, parent = open_tip(context, commit)
    return commit_manifests(context, commit, start, parent, write(parent), writes_others=True)


def open_tip(context: Context, commit: RewriteCommit) -> tuple[SessionStart, Snapshot]:
    """Return the newest version of the branch, and the start of the session on it."""
    if commit.amend:
        context.require_version_2()
    since = now_us()
    info, parent = with_current(
        context, lambda info: (info, Workspace(context, branch_tip(info, commit.branch)).snapshot)
    )
    require_online(info)
    return SessionStart(newest_update(info), since), parent


def commit_manifests(
    context: Context,
    commit: RewriteCommit,
    start: SessionStart,
    parent: Snapshot,
    manifests: dict[bytes, PreparedManifests],
    *,
    writes_others: bool,
) -> bytes:
    """Commit new manifests with the same content as the old ones.

    The transaction log names no chunks, because no chunk has other content. So a session that is rebased
    across the commit has no conflict with it.
    """
    kind = _KINDS[commit.amend, writes_others]
    metadata = commit.metadata
    if writes_others:
        before = metadata.get(RESERVED)
        splitting = splitting_document(context.settings.splitting)
        reserved = {**(before if isinstance(before, dict) else {}), "splitting_config": splitting}
        metadata = {**metadata, RESERVED: reserved}
    changes = ChangeSet(ready=manifests)
    return write_commit(
        PendingCommit(context, kind, commit.branch, parent, changes, commit.message, metadata, start)
    )


_KINDS: Final = {
    (False, True): REWRITE,
    (True, True): REWRITE_AMEND,
    (False, False): replace(REWRITE, rewrites_manifests=False),
    (True, False): replace(REWRITE_AMEND, rewrites_manifests=False),
}
