"""The state of a session, and its commit, which makes a new version from a change set, with its retries.

First the commit stores the files of the version (``commit_files``). Then one conditional write makes the
version visible (``Catalog.finish_commit``). Before this write all files are durable, and readers see no
change. A commit that is refused leaves files that no version refers to; garbage collection deletes them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import numpy as np

from frazil import host
from frazil.changes.merge import ForkGenerations
from frazil.changes.reads import ReadSet
from frazil.display import span
from frazil.errors import ConflictError, ErrorKind, ReadOnlyError, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, id_list, id_matrix, id_to_text, snapshot_key
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.assets import MANIFEST_CHUNK_FILES
from frazil.repository.catalog.collection_guard import (
    RETENTION,
    CommitReferences,
    Lease,
    SessionStart,
    flush_lease,
    is_uncollected,
    lease_file,
)
from frazil.repository.catalog.context import Context, require_listed
from frazil.repository.catalog.history_records import CARRIED, with_amended
from frazil.repository.catalog.repo_changes import (
    MetadataEdit,
    RefEdit,
    base_not_found,
    in_one_update,
    new_snapshot,
    require_base,
    require_flag,
    require_online,
    require_tip,
    with_metadata,
    without_detached,
)
from frazil.repository.catalog.repo_update import NewFiles
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import MICROSECOND, elapsed_us, now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.repository.paths import utf8
from frazil.repository.retries import commit_queue
from frazil.repository.session.commit_files import PendingCommit, uploading, write_commit_files
from frazil.repository.session.conflicts import ConflictDetector, ConflictSolver
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config import MOVE_NODE


@dataclass(slots=True)
class SessionState:
    """The mutable state of a session. Commits, rebases and merges change it."""

    workspace: Workspace
    branch: str | None
    mode: SessionMode
    expires_at: int
    default_metadata: dict[str, Any] = field(default_factory=dict)
    generation: int = 0
    discarded_before: int = 0
    merged: ForkGenerations = field(default_factory=ForkGenerations)
    session_id: bytes = field(default_factory=new_object_id)
    #: Time of the newest update of the repository when the session was opened, in microseconds since 1970.
    seen: int = 0
    #: Protects the files of the session from garbage collections while the session has forks.
    lease: Lease | None = None
    #: The name of the session in the list of leases.
    name: str = ""
    #: Changes the metadata of the repository in the update of the commit.
    note: MetadataEdit | None = None
    #: Changes refs in the update of the commit.
    refs: RefEdit | None = None
    #: The detached snapshots that the commit contains. Its update removes them from the list.
    merged_snapshots: tuple[bytes, ...] = ()
    #: Time of the oldest chunk file of the session, if the file can be older than the session.
    since: int | None = None
    #: After a rebase: the snapshot that the session was opened with.
    origin: bytes | None = None
    #: Declared reads that were compared with all commits up to the session's snapshot.
    clean_reads: tuple[ReadSet, ...] = ()
    #: The time of creation, by ``elapsed_us`` of this process.
    created_at: int = field(default_factory=elapsed_us)
    #: Whether the session has tried to commit. The error of an attempt says that the changes are not saved.
    has_tried: bool = False

    def ends(self) -> int:
        """Return when the session expires, in microseconds since 1970."""
        keep_until = self.workspace.writer.keep_until
        if keep_until is not None:
            self.expires_at = min(self.expires_at, keep_until)
        return self.expires_at

    def session_start(self) -> SessionStart:
        """Return when the session started. Garbage collections spare files that are not older."""
        lifetime = self.workspace.context.settings.session_lifetime // MICROSECOND
        starts = [self.ends() - lifetime, now_us() - (elapsed_us() - self.created_at)]
        if self.since is not None:
            starts.append(self.since)
        # The earliest of them, because this host's clock may have been set back since.
        return SessionStart(self.seen, min(starts))


class PermissionChecks:
    """Checks of what a session may do now. Base of ``Session``."""

    _state: SessionState

    @property
    def workspace(self) -> Workspace:
        """The nodes and chunks that this session sees. For other modules of Frazil."""
        return self._state.workspace

    @property
    def read_only(self) -> bool:
        """Whether the session can only read. A session is read-only after its commit."""
        return self._state.mode is SessionMode.readonly

    @property
    def mode(self) -> SessionMode:
        """Whether the session is read-only, writable, or a session that moves nodes."""
        return self._state.mode

    @property
    def expires_at(self) -> datetime:
        """The time after which this session cannot write or commit.

        With deduplication, a chunk that the session found in storage can make this earlier. At least a third
        of the lifetime is left after such a chunk was found.
        """
        return to_datetime(self._state.ends())

    def require_writable(self) -> None:
        """Raise an error if this session cannot write to nodes and chunks now.

        Raises:
            ReadOnlyError: The session is read-only (``read-only-store``).
            SessionStateError: The session can only move nodes (``rearrange-session-only``), or has expired
                (``session-expired``).

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.writable_session("main").require_writable()
            >>> repo.rearrange_session("main").require_writable()
            Traceback (most recent call last):
            frazil.errors.SessionStateError: this session can only move nodes...
        """
        if self._state.mode is not SessionMode.writable:
            self._require_not_reading(ErrorKind.READ_ONLY_STORE)
            raise SessionStateError(
                "this session can only move nodes", ErrorKind.REARRANGE_SESSION_ONLY
            ).with_remedy(
                "Commit or discard its changes, and open Repository.writable_session to write", shell=""
            )
        self._require_not_ended()

    def _require_not_ended(self) -> None:
        ends = self._state.ends()
        if now_us() >= ends:
            raise SessionStateError(
                f"this session expired at {to_datetime(ends).isoformat()}. Garbage collection may have "
                "deleted its chunks. Write again in a new session, or with a longer session_lifetime",
                ErrorKind.SESSION_EXPIRED,
            )

    def _require_not_reading(self, kind: ErrorKind = ErrorKind.READ_ONLY_SESSION) -> None:
        if self.read_only:
            is_new = self._state.branch is None
            raise ReadOnlyError(
                f"this session {'is read-only' if is_new else 'has committed its changes'}", kind
            ).with_remedy(
                "Open Repository.writable_session to write, or Repository.rearrange_session to move", shell=""
            )


#: The key of a commit's metadata that the format reserves.
RESERVED: Final = "__icechunk"
#: The number of attempts without a pause, and the longest pause between later attempts, in seconds.
_EAGER: Final = 3
_LONGEST: Final = 1.0
#: A commit to an object store that changes the chunks of this many arrays joins the queue at once.
_MANY_ARRAYS: Final = 8
#: After this many lost attempts, a commit to an object store joins the queue.
_LOSSES: Final = 2
#: The lease of a detached snapshot has this number of characters of its message.
_NAME_LENGTH: Final = 200


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


class CommitRetries(ExitStack):
    """The retries of one commit, and its place among other commits to the branch. A context manager.

    In every round one of the writers succeeds. Pauses of random length (on a local disk) and a queue (on an
    object store) make it likely that every writer does. The queue saves work, and is no condition: a commit
    joins it once a place is cheaper than lost attempts. The threads of one handle queue in its
    ``retry_lock``, and then for a ticket (``repository.retries``).
    """

    def __init__(self, policy: CommitRetryPolicy, context: Context, branch: str | None) -> None:
        super().__init__()
        self.policy = policy
        self.count: int = 0
        self._context = context
        self._branch = branch
        self._started = host.monotonic_us()
        self._is_queued = False

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
        """Pause until the next attempt should begin."""
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

    def join_queue(self, workspace: Workspace) -> bool:
        """Wait for other commits to the branch, if lost attempts cost more. Return whether any came first."""
        storage = self._context.storage
        if self._is_queued or self._branch is None or storage.is_local or self.policy.max_retries == 0:
            return False
        changed_arrays = workspace.sealed.chunks.keys() | workspace.changes.chunks.keys()
        self._is_queued = len(changed_arrays) >= _MANY_ARRAYS or self.count >= _LOSSES
        if not self._is_queued:
            return False
        self.enter_context(self._context.assets.retry_lock)
        return self.enter_context(commit_queue(storage, self._branch, self._seconds_left()))

    def _seconds_left(self) -> float | None:
        """Return the seconds until the timeout of the policy, or None without a timeout."""
        if self.policy.timeout is None:
            return None
        return self.policy.timeout.total_seconds() - (host.monotonic_us() - self._started) / 1e6


_NO_IDS: Final = np.zeros((0, OBJECT_ID_BYTES), np.uint8)


def _required_files(pending: PendingCommit, new_manifests: U8) -> CommitReferences:
    """Return the files that a commit needs, with the manifests that workers have prepared for it."""
    if pending.writer is not None:
        pending.writer.flush()
    prepared = pending.changes.ready.values()
    ids = np.concatenate([_NO_IDS, *(each.files.ids for each in prepared)])
    ids = ids[~np.isin(id_keys(ids), id_keys(pending.parent.manifests.ids))]
    manifests = ids[np.unique(id_keys(ids), return_index=True)[1]]
    parts = [pending.changes.chunk_files()]
    for id_ in id_list(manifests):
        try:
            parts.append(MANIFEST_CHUNK_FILES.read(pending.context.storage, id_).chunk_ids)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            raise SessionStateError(
                f"garbage collection deleted `{MANIFEST_CHUNK_FILES.key(id_)}`: its cut-off was later than "
                "the start of the session. Write again in a new session",
                ErrorKind.GARBAGE_COLLECTED,
            ) from error
    chunks = np.concatenate(parts)
    chunks = chunks[np.unique(id_keys(chunks), return_index=True)[1]]
    of_parent = pending.parent.manifests.ids if pending.is_unconditional else _NO_IDS
    return CommitReferences(chunks, np.concatenate([manifests, of_parent, new_manifests]))


def write_commit(pending: PendingCommit) -> bytes:
    """Write the changes as a new version. Return the id of the new snapshot.

    Raises ``ConflictError`` with both parents if the branch has moved; readers then see no change. Raises
    ``SessionStateError`` (``no-amend-for-initial-commit``, ``rearrange-session-only``,
    ``feature-flag-disabled``), and ``InvalidInputError`` (``bad-metadata``).
    """
    utf8("message", pending.message, ErrorKind.BAD_METADATA)
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
    # In spec version 1 this reads the branch. It must come before the check for garbage collections.
    start = context.catalog.begin_commit(partial(_require_possible, pending))
    info = start.info
    before = info.snapshots.entry(info.snapshots.find_snapshot(parent.id))
    if kind.replaces_parent and before.parent is None:
        raise SessionStateError(
            "the first commit cannot be amended. Make a new commit", ErrorKind.NO_AMEND_FOR_INITIAL_COMMIT
        )
    opened = pending.session_start.update
    try:
        if not is_uncollected(context.storage, info, opened, partial(_required_files, pending, _NO_IDS)):
            pending.earlier_manifests.clear()  # the collection may have deleted them
    except SessionStateError as error:
        if pending.is_unconditional and context.storage.head(snapshot_key(parent.id)) is None:
            raise base_not_found(parent.id) from error  # the parent was dropped with its manifests
        raise
    replaced = None
    if kind.replaces_parent:
        replaced = _replaced_log(pending, before)
        carried: dict[str, Any] = {name: before.metadata[name] for name in CARRIED if name in before.metadata}
        pending = replace(pending, metadata={**carried, **pending.metadata})
    # An unconditional commit looks for a garbage collection between its files and its update.
    is_joint = context.storage.is_local and not pending.is_unconditional
    flush = None if pending.writer is None else pending.writer.begin_uploads(is_joint=is_joint)
    with uploading(context.storage, flush) as uploads:
        if not is_joint:
            uploads.run(lambda: start.save_backup(context.storage))
        snapshot, manifests, updates = write_commit_files(pending, uploads, before, replaced)
        if pending.branch is None and context.spec_version > 1:
            # Stored before the update, so a collection that finds the snapshot in the list finds the lease.
            since, until = pending.session_start.since, now_us() + RETENTION // MICROSECOND
            lease = partial(lease_file, since, until, "flush", pending.message[:_NAME_LENGTH])
            uploads.put([(flush_lease(snapshot.id), lease)])

        def confirm() -> None:
            uploads.confirm()
            pending.earlier_manifests.update({each.node.id: each for each in updates})

        rest = NewFiles(uploads.take_files(), confirm) if is_joint else None
        if rest is None:
            confirm()
            if pending.is_unconditional:
                # A collection that has begun since has either seen the snapshot, or stored its list before.
                try:
                    new = id_matrix([each.ref.id for each in manifests])
                    is_uncollected(context.storage, info, opened, partial(_required_files, pending, new))
                except (ConflictError, SessionStateError):
                    return None  # the next attempt writes its files again; it raises if that is not enough
        entry = SnapshotEntry(
            snapshot.id,
            before.parent if kind.replaces_parent else parent.id,
            snapshot.flushed_at,
            pending.message,
            pending.metadata,
            before.pruned_ancestor_tx_logs if kind.replaces_parent else (),
        )
        branch, flag = pending.branch, MOVE_NODE if pending.changes.moves else None
        change = new_snapshot(entry, branch, parent.id, flag)
        if kind.replaces_parent:
            change = with_metadata(
                change, lambda info, new: with_amended(info, parent.id, new, branch or ""), entry.id
            )
        if pending.note is not None and context.spec_version > 1:
            change = with_metadata(change, pending.note, entry.id)
        if pending.merged:
            change = without_detached(change, pending.merged)
        if pending.refs is not None:
            change = in_one_update(change, *pending.refs(entry.id))
        if context.catalog.finish_commit(change, start, rest) is None:
            if branch is None:
                Lease(flush_lease(snapshot.id)).give_back(context.storage)
            return None
    # So that the next session does not read them.
    written = {each.manifest.id: each.manifest for each in manifests}
    context.assets.store_written(snapshot, written.values())
    return snapshot.id


def _require_possible(pending: PendingCommit, info: RepoInfo) -> None:
    """Make the checks of the update before the files are written."""
    require_online(info)
    if pending.changes.moves:
        require_flag(info, MOVE_NODE)
    if pending.branch is not None:
        require_tip(info, pending.branch, pending.parent.id)
    require_base(info, pending.parent.id)


def _replaced_log(pending: PendingCommit, before: SnapshotEntry) -> TransactionLog:
    """Return the log of the commit that the new one replaces."""
    log = pending.context.assets.transaction_log(before.id)
    if log.moves and replace(pending.changes, moves={}):
        raise SessionStateError(
            f"this session cannot amend commit {id_to_text(before.id)}, because the commit moved nodes",
            ErrorKind.REARRANGE_SESSION_ONLY,
        ).with_remedy("Amend it in a session of Repository.rearrange_session", shell="")
    return log
