"""The commit, which makes a new version from a change set, and its retries.

First the commit stores the files of the version (``commit_files``). Then one conditional write makes the
version visible (``Catalog.finish_commit``). Before this write all files are durable, and readers see no
change. A commit that is refused leaves files that no version refers to; garbage collection deletes them.

Several writers commit to one branch. A commit is late if another writer has moved the branch first. A late
commit is rebased onto the new tip if there are no conflicts, or if a solver decides them. Then it is retried:

    commit ──> is the branch at the parent? ── yes ──> done
      ^                     no
      │                      v
      └── no ── conflicts with the other commits? ── yes ──> RebaseFailedError
                  (no attempt or no time is left: ConflictError)

In every round one of the writers succeeds, so all writers together make progress. On a local disk, a pause of
random length before each retry makes it likely that every writer succeeds. On an object store, a commit that
has lost several times joins a queue, and a commit of many arrays does so before its first attempt.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Self, override

import numpy as np

from frazil import host
from frazil.changes.change_set import ChangeSet
from frazil.display import span
from frazil.errors import ConflictError, ErrorKind, InvalidInputError, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, REPO, id_keys, id_list, id_to_text, snapshot_key
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.snapshot import Snapshot
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.assets import MANIFEST_CHUNK_FILES
from frazil.repository.catalog.collection_guard import RequiredFiles, is_uncollected
from frazil.repository.catalog.context import Context, require_listed
from frazil.repository.catalog.history_records import CARRIED, with_amended
from frazil.repository.catalog.repo_changes import (
    base_not_found,
    new_snapshot,
    require_base,
    require_flag,
    require_online,
    require_tip,
    with_metadata,
)
from frazil.repository.catalog.repo_update import NewFiles, RepoChange
from frazil.repository.retries import commit_queue
from frazil.repository.session.commit_files import CommitFiles, PendingCommit, uploading, write_commit_files
from frazil.repository.session.conflicts import ConflictDetector, ConflictSolver
from frazil.repository.settings.resolved import MOVE_NODE, Flag
from frazil.storage.local_commit import local_queue

#: The key of a commit's metadata that the format reserves.
RESERVED: Final = "__icechunk"
#: The number of attempts without a pause, and the longest pause between later attempts, in seconds.
_EAGER: Final = 3
_LONGEST: Final = 1.0
#: A commit to an object store that changes the chunks of this many arrays joins the queue at once.
_MANY_ARRAYS: Final = 8
#: After this many lost attempts, a commit to an object store joins the queue.
_LOSSES: Final = 2


@dataclass(frozen=True, slots=True)
class CommitRetryPolicy:
    """Which commits are retried, how often, for how long, and with which solver they are rebased.

    ``kinds`` has the kinds of errors after which a commit is retried. If ``max_retries`` is None, only
    ``timeout`` limits the retries; if ``timeout`` is None, only ``max_retries`` does. With ``records_all``,
    the metadata of a commit record the number of rebases even if it is 0.
    """

    solver: ConflictSolver = field(default_factory=ConflictDetector)
    kinds: frozenset[ErrorKind] = frozenset({ErrorKind.COMMIT_CONFLICT})
    max_retries: int | None = None
    timeout: timedelta | None = None
    records_all: bool = False


#: The policy of a plain commit, with one attempt.
NO_RETRIES: Final = CommitRetryPolicy(max_retries=0)


def fast_forward_policy(timeout: timedelta) -> CommitRetryPolicy:
    """Return the policy of a commit with ``fast_forward_timeout``. Zero allows one attempt."""
    if not timeout:
        return NO_RETRIES
    kinds = frozenset({ErrorKind.COMMIT_CONFLICT, ErrorKind.GARBAGE_COLLECTION_RUNNING})
    return CommitRetryPolicy(kinds=kinds, timeout=timeout)


def rebase_policy(solver: ConflictSolver, max_retries: int) -> CommitRetryPolicy:
    """Return the policy of a commit that is rebased with a solver, at most ``max_retries`` times."""
    return CommitRetryPolicy(solver, max_retries=max_retries, records_all=True)


class CommitRetries(ExitStack):
    """The retries of one commit, and its place among other commits to the branch. A context manager.

    The queues save work, and are no condition: local commits queue in the storage, for a second at most, and
    other commits queue once ``join_queue`` expects that a place in the queue is cheaper than lost attempts.
    The threads of one handle queue in its ``retry_lock``, and then for a ticket (``catalog.turns``).
    """

    def __init__(self, policy: CommitRetryPolicy, context: Context, branch: str | None) -> None:
        super().__init__()
        self.policy = policy
        self.count = 0
        self._context = context
        self._branch = branch
        self._started = host.monotonic_seconds()
        self._is_queued = False

    @override
    def __enter__(self) -> Self:
        self.enter_context(local_queue(self._context.storage, REPO))
        return self

    def metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return the metadata of the next attempt, with the number of rebases before it."""
        if not self.count and not self.policy.records_all:
            return metadata
        reserved = metadata.get(RESERVED)
        return {
            **metadata,
            RESERVED: {**(reserved if isinstance(reserved, dict) else {}), "rebase_attempts": self.count},
        }

    def wait(self, error: ConflictError) -> None:
        """Pause until the next attempt should begin.

        Raises ``error`` if the policy allows no other attempt. If the timeout has expired, the error has the
        number of attempts.
        """
        policy = self.policy
        if error.kind not in policy.kinds or self.count == policy.max_retries:
            raise error
        self.count += 1
        if policy.timeout is not None:
            left = self._seconds_left() or 0.0
            if left <= 0:
                raise ConflictError(
                    error.expected_parent,
                    error.actual_parent,
                    f"{error.message}. {self.count} attempts failed within the fast_forward_timeout of "
                    f"{span(policy.timeout)}. Commit again, increase fast_forward_timeout, or let the "
                    "writers write to forks of one session",
                    error.kind,
                ) from error
            if self.count > _EAGER and not self._is_queued:
                longest = min(0.002 * 2.0 ** min(self.count - _EAGER, 20), _LONGEST, left)
                host.pause(host.random_between(0, longest))
        self.enter_context(self._context.assets.retry_lock)

    def join_queue(self, changed_arrays: int) -> bool:
        """Wait for other commits to the branch, if lost attempts cost more. Return whether there were some.

        A place costs three requests. It saves the files of lost attempts, one for each changed array and two
        more, and it is fair to a commit that has lost several times.
        """
        context = self._context
        if (
            self._is_queued
            or self._branch is None
            or context.storage.is_local
            or self.policy.max_retries == 0
        ):
            return False
        self._is_queued = changed_arrays >= _MANY_ARRAYS or self.count >= _LOSSES
        if not self._is_queued:
            return False
        self.enter_context(context.assets.retry_lock)
        return self.enter_context(commit_queue(context.storage, self._branch, self._seconds_left()))

    def _seconds_left(self) -> float | None:
        """Return the seconds until the timeout of the policy, or None without a timeout."""
        if self.policy.timeout is None:
            return None
        return self.policy.timeout.total_seconds() - (host.monotonic_seconds() - self._started)


_NO_IDS: Final = np.zeros((0, OBJECT_ID_BYTES), np.uint8)


def is_safe(pending: PendingCommit, info: RepoInfo, new_manifests: U8 = _NO_IDS) -> bool:
    """Return ``is_uncollected`` for the files of a commit and for its new manifests."""
    update = pending.session_start.update
    return is_uncollected(
        pending.context.storage,
        info,
        update,
        lambda: _required_files(pending).with_manifests(new_manifests),
    )


def require_uncollected(pending: PendingCommit, info: RepoInfo) -> None:
    """Raise the errors of ``is_uncollected``.

    After a garbage collection, the manifests of earlier attempts are not used again: the collection may have
    deleted them.
    """
    try:
        if not is_safe(pending, info):
            pending.earlier_manifests.forget_manifests()
    except SessionStateError as error:
        parent = pending.parent.id
        if pending.is_unconditional and pending.context.storage.head(snapshot_key(parent)) is None:
            raise base_not_found(parent) from error  # the parent was dropped with its manifests
        raise


def _required_files(pending: PendingCommit) -> RequiredFiles:
    if pending.writer is not None:
        pending.writer.flush()
    prepared = _prepared_files(pending)
    manifests = [prepared.manifests, *([pending.parent.manifests.ids] if pending.is_unconditional else [])]
    chunks = np.concatenate([pending.changes.chunk_files(), prepared.chunks])
    return RequiredFiles(chunks, np.concatenate(manifests))


def _prepared_files(pending: PendingCommit) -> RequiredFiles:
    """Return the manifests that workers have prepared for this commit, and their chunk files.

    Raises ``SessionStateError`` (``garbage-collected``) if a manifest itself was deleted.
    """
    prepared = pending.changes.ready.values()
    ids = np.concatenate([_NO_IDS, *(each.files.ids for each in prepared)])
    ids = ids[~np.isin(id_keys(ids), id_keys(pending.parent.manifests.ids))]
    manifests = ids[np.unique(id_keys(ids), return_index=True)[1]]
    parts = [_NO_IDS]
    for id_ in id_list(manifests):
        try:
            parts.append(MANIFEST_CHUNK_FILES.read(pending.context.storage, id_).chunk_ids)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            raise SessionStateError(
                f"garbage collection deleted `{MANIFEST_CHUNK_FILES.key(id_)}`, which was written for this "
                "commit: the cut-off of the collection was later than the start of the session. Write again "
                "in a new session",
                ErrorKind.GARBAGE_COLLECTED,
            ) from error
    chunks = np.concatenate(parts)
    return RequiredFiles(chunks[np.unique(id_keys(chunks), return_index=True)[1]], manifests)


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
