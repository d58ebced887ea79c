"""The commit, which makes a new version from a change set.

First the commit stores the files of the version (``commit_files``). Then one conditional write makes the
version visible (``Catalog.finish_commit``). Before this write all files are durable, and readers see no
change. A commit that is refused leaves files that no version refers to; garbage collection deletes them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from frazil.changes.change_set import ChangeSet
from frazil.errors import ConflictError, ErrorKind, InvalidInputError, SessionStateError, StorageError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.snapshot import Snapshot
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.expired_versions import require_listed
from frazil.repository.catalog.history_records import CARRIED, with_amended
from frazil.repository.catalog.repo_changes import new_snapshot, with_metadata
from frazil.repository.catalog.repo_requirements import (
    require_base,
    require_flag,
    require_online,
    require_tip,
)
from frazil.repository.catalog.repo_update import NewFiles, RepoChange
from frazil.repository.session.commit_files import CommitFiles, write_commit_files
from frazil.repository.session.pending_commit import PendingCommit
from frazil.repository.session.required_files import is_safe, require_uncollected
from frazil.repository.session.uploads import uploading
from frazil.repository.settings.feature_flags import MOVE_NODE, Flag


def write_commit(pending: PendingCommit) -> bytes:
    """Write the changes as a new version. Return the id of the new snapshot.

    Raises ``ConflictError`` with both parents if the branch has moved; readers then see no change. Raises
    ``SessionStateError`` (``no-amend-for-initial-commit``, ``rearrange-session-only``,
    ``feature-flag-disabled``), and ``InvalidInputError`` (``bad-metadata``) for a message or metadata that
    cannot be stored.
    """
    _require_text(pending.message)
    try:
        while (id_ := _attempt_commit(pending)) is None:
            pass  # a garbage collection ran at the same time: the next attempt checks its list
    except StorageError as error:
        # A file of the parent is missing. If the branch has left the parent, the file was collected.
        # Otherwise it is lost.
        if error.kind == ErrorKind.OBJECT_NOT_FOUND:
            _require_possible(pending, pending.context.catalog.repo_info())
            require_listed(pending.context, pending.parent.id, error)
        raise
    return id_


def _attempt_commit(pending: PendingCommit) -> bytes | None:
    """Make one attempt of ``write_commit``. Return None if a garbage collection ran since it began."""
    context, kind, parent = pending.context, pending.kind, pending.parent
    start = context.catalog.begin_commit()
    if kind.replaces_parent:
        _require_not_first(start.info, parent.id)
    # In spec version 1 this reads the branch. It must come before the check for garbage collections.
    row = _require_possible(pending, start.info)
    require_uncollected(pending, start.info)
    before = start.info.snapshots.entry(row)
    replaced = None
    if kind.replaces_parent:
        replaced = _replaced_log(pending, before)
        pending = replace(pending, metadata={**_carried_metadata(before), **pending.metadata})
    # An unconditional commit looks for a garbage collection between its files and its update.
    is_joint = context.storage.is_local and not pending.is_unconditional
    with uploading(context.storage, pending.begin_flush(is_joint=is_joint)) as uploads:
        if not is_joint:
            uploads.run(lambda: start.save_backup(context.storage))
        files = write_commit_files(pending, uploads, before, replaced)
        change = _commit_change(pending, files.snapshot, before)

        def confirm() -> None:
            uploads.confirm()
            pending.earlier_manifests.confirm_stored()

        rest = NewFiles(uploads.take_files(), confirm) if is_joint else None
        if rest is None:
            confirm()
            if pending.is_unconditional and not _is_still_safe(pending, start.info, files):
                return None
        if context.catalog.finish_commit(change, start, rest) is None:
            return None
    files.store_in_cache(context.assets)
    return files.snapshot.id


def _is_still_safe(pending: PendingCommit, info: RepoInfo, files: CommitFiles) -> bool:
    """Return whether no garbage collection has deleted files of an unconditional commit.

    A collection that has begun since has either seen the snapshot, or stored its list before the snapshot.
    """
    try:
        is_safe(pending, info, files.manifest_ids)
    except (ConflictError, SessionStateError):
        return False  # the next attempt writes its files again; it raises if that is not enough
    return True


def _commit_change(pending: PendingCommit, snapshot: Snapshot, before: SnapshotEntry) -> RepoChange:
    """Return the repo change that lists the snapshot and moves the branch.

    ``before`` is the entry of the parent.
    """
    kind, parent, branch = pending.kind, pending.parent.id, pending.target_branch
    entry = SnapshotEntry(
        snapshot.id,
        before.parent if kind.replaces_parent else parent,
        snapshot.flushed_at,
        pending.message,
        pending.metadata,
        before.pruned_ancestor_tx_logs if kind.replaces_parent else (),
    )
    change = new_snapshot(entry, branch, parent, needed_flag(pending.changes))
    if kind.replaces_parent:
        change = with_metadata(change, partial(_amended_records, old=parent, branch=branch or ""), entry.id)
    if pending.note is not None and pending.context.spec_version > 1:
        change = with_metadata(change, pending.note, entry.id)
    return change


def _require_text(message: str) -> None:
    try:
        message.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"message must be text that UTF-8 can encode, got {message!r:.80}", ErrorKind.BAD_METADATA
        ) from None


def _require_possible(pending: PendingCommit, info: RepoInfo) -> int:
    """Make the checks of the update before the files are written. Return the row of the parent."""
    require_online(info)
    if flag := needed_flag(pending.changes):
        require_flag(info, flag)
    if pending.target_branch is not None:
        require_tip(info, pending.target_branch, pending.parent.id)
    return require_base(info, pending.parent.id)


def needed_flag(changes: ChangeSet) -> Flag | None:
    """Return the feature flag that the changes need, or None."""
    return MOVE_NODE if changes.moves else None


def _require_not_first(info: RepoInfo, id_: bytes) -> None:
    row = info.snapshots.find_snapshot(id_)
    if row >= 0 and info.snapshots.entry(row).parent is None:
        raise SessionStateError(
            "the first commit of a repository cannot be amended. Make a new commit",
            ErrorKind.NO_AMEND_FOR_INITIAL_COMMIT,
        )


def _carried_metadata(before: SnapshotEntry) -> dict[str, Any]:
    return {name: before.metadata[name] for name in CARRIED if name in before.metadata}


def _amended_records(info: RepoInfo, new: bytes, *, old: bytes, branch: str) -> dict[str, Any]:
    return with_amended(info, old, new, branch)


def _replaced_log(pending: PendingCommit, before: SnapshotEntry) -> TransactionLog:
    """Return the log of the commit that the new one replaces."""
    log = pending.context.assets.transaction_log(before.id)
    if log.moves and not pending.changes.only_moves:
        raise SessionStateError(
            f"this session cannot amend commit {id_to_text(before.id)}, because the commit moved nodes",
            ErrorKind.REARRANGE_SESSION_ONLY,
        ).with_remedy("Amend it in a session of Repository.rearrange_session", shell="")
    return log
