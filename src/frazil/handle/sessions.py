"""The base class of all parts of ``Repository``, and its methods that open sessions and merge changes.

A merge, a cherry-pick or a revert takes the changes between two versions, carries them to the tip of a branch
as a rebase does, and commits them there. A change that the tip already has never conflicts.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.conflicts import align_nodes
from frazil.changes.diff import (
    NodeChanges,
    VersionContent,
    change_set_between,
    exact_changes,
    node_changes_of_logs,
)
from frazil.changes.reads import ReadTracker
from frazil.changes.rebase import without_identical_changes
from frazil.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    RebaseFailedError,
    SessionStateError,
    SnapshotNotFoundError,
    UncommittedChangesWarning,
)
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_list, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.handle.opening import require_writable
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import repo_changes
from frazil.repository.catalog.ancestry import FRAZIL, PARENTS, all_ancestors, at_time
from frazil.repository.catalog.context import Context, is_outdated, snapshot_errors
from frazil.repository.catalog.history_records import (
    ALONE,
    BATCHES,
    BatchRecord,
    batches_between,
    batches_brought,
    with_records,
)
from frazil.repository.catalog.repo_changes import RefEdit, resolve_id, snapshot_named
from frazil.repository.catalog.repo_update import RepoChange, newest_update
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import MICROSECOND, from_datetime, now_us
from frazil.repository.ids import new_node_id
from frazil.repository.session.commit import SessionState
from frazil.repository.session.conflicts import (
    ConflictDetector,
    ConflictSolver,
    RepeatingSolver,
    require_solver,
    solve,
)
from frazil.repository.session.differences import CommitLogs, commits_between, read_logs
from frazil.repository.session.rebase import Read, carry_over
from frazil.repository.session.session import Session, reading, state_of
from frazil.repository.session.workspace import Workspace, preload
from frazil.repository.settings.config import MOVE_NODE, check_session_lifetime
from frazil.storage.base import Storage

if TYPE_CHECKING:
    from frazil.zarr_store import IcechunkStore


def snapshot_of_version(
    info: RepoInfo, branch: str | None, tag: str | None, snapshot_id: str | None
) -> bytes:
    """Return the id of the snapshot that exactly one of the three arguments names."""
    names = [name for name in (branch, tag, snapshot_id) if name is not None]
    if len(names) != 1:
        raise ValueError(
            f"expected exactly one of branch, tag and snapshot_id, got {len(names)}: "
            f"{', '.join(map(repr, names)) or 'pass branch="main"'}"
        )
    if branch is not None:
        return repo_changes.branch_tip(info, branch)
    if tag is not None:
        return repo_changes.tag_target(info, tag)
    id_ = resolve_id(snapshot_id or "", lambda: info)
    repo_changes.require_snapshot(info, id_)
    return id_


class RepositoryBase:
    """A handle on a repository: its context, and the metadata that every commit of its sessions gets."""

    def __init__(self, context: Context, default_metadata: Mapping[str, Any] | None = None) -> None:
        self._context = context
        self._default_metadata = dict(default_metadata or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._context, self._default_metadata))

    @property
    def storage(self) -> Storage:
        """The storage of the repository, with the options of this handle."""
        return self._context.storage

    def _info(self) -> RepoInfo:
        """Return the current repo info."""
        return self._context.catalog.repo_info()

    def _update(self, change: RepoChange) -> RepoInfo:
        """Change the repo info, and return the new one."""
        return self._context.catalog.update_repo_info(change)

    def _info_v2(self) -> RepoInfo:
        """Return the current repo info, for methods that need spec version 2."""
        self._context.require_version_2()
        return self._context.catalog.repo_info()


def readonly_session_of(
    context: Context,
    info: RepoInfo,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime | None = None,
) -> Session:
    """Return a session that reads one version of ``info``. See ``Sessions.readonly_session``."""
    if as_of is not None and branch is None:
        raise ValueError("as_of needs a branch, got none. Pass branch=... too")
    id_ = snapshot_of_version(info, branch, tag, snapshot_id)
    if as_of is not None:
        id_ = at_time(info, id_, from_datetime(as_of, "as_of"))
    workspace = Workspace(context, id_)
    preload(workspace)
    return Session(SessionState(workspace, None, SessionMode.readonly, 0))


def _warn_of_loss(state: SessionState, process: int) -> None:
    """Warn of changes that a session never tried to commit. Copies in child processes are silent."""
    if state.has_tried or not state.workspace.has_changes or os.getpid() != process:
        return
    warnings.warn(
        f"a session of the branch `{state.branch}` was dropped with changes that it has not committed. They "
        "are lost. Keep the session and call session.commit(message), or call session.discard_changes()",
        UncommittedChangesWarning,
        stacklevel=3,
    )


class Sessions(RepositoryBase):
    """Methods of ``Repository`` that open sessions."""

    def readonly_session(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
    ) -> Session:
        """Open a session that reads one version of the repository.

        Exactly one of ``branch``, ``tag`` and ``snapshot_id`` names the version.

        Args:
            branch: The name of a branch, to read its tip.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first 4 or more characters, if they are of one id.
            as_of: A time with a time zone: the newest snapshot of ``branch`` that is not younger.

        Returns:
            A session that cannot write.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
                ``no-snapshot-at-time`` if the branch begins after ``as_of``.
            InvalidInputError: ``invalid-snapshot-id`` if it is not an id, or if several ids begin with it.
            ValueError: If none or several versions are named.
            TypeError: If ``as_of`` has no time zone.

        Examples:
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> before = datetime.now(UTC)
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="i4")
            ...     array[:] = [1, 2]
            >>> zarr.open_array(repo.readonly_session("main").store, path="t")[:].tolist()
            [1, 2]
            >>> repo.readonly_session("main", as_of=before).snapshot_id
            '1CECHNKREP0F1RSTCMT0'
        """
        return readonly_session_of(self._context, self._info(), branch, tag, snapshot_id, as_of)

    def writable_session(
        self, branch: str, *, lifetime: timedelta | None = None, track_reads: bool = False, name: str = ""
    ) -> Session:
        """Open a session that changes the tip of a branch.

        Args:
            branch: The name of the branch.
            lifetime: How long this session may commit, at most 7 days. Default: ``session_lifetime`` of the
                configuration, which is 24 hours unless set. See ``Session.expires_at``.
            track_reads: Whether the session records which metadata, chunks and lists of members are read
                through it and its forks. A rebase then raises ``StaleReadError`` if other commits have
                changed any of them. See ``Session.rebase``.
            name: A name for people, which leases of forks have.

        Returns:
            A session that reads the tip of the branch and can write.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
            ReadOnlyError: ``read-only-storage`` if the storage is read-only.
            InvalidInputError: ``invalid-commit-configuration`` if ``lifetime`` is out of range.

        Examples:
            >>> from datetime import UTC, datetime, timedelta
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="two arrays") as store:
            ...     for name in ("foo", "bar"):
            ...         _ = zarr.create_array(store, name=name, shape=(4,), chunks=(2,), dtype="i4")
            >>> session = repo.writable_session("main", lifetime=timedelta(days=3), track_reads=True)
            >>> session.expires_at - datetime.now(UTC) > timedelta(days=2)
            True
            >>> root = zarr.open_group(session.store)
            >>> root["bar"][:] = root["foo"][:] + 1
            >>> with repo.transaction("main", message="a correction") as store:
            ...     zarr.open_group(store)["foo"][:] = 5
            >>> try:
            ...     session.commit("bar", rebase_with=frazil.ConflictDetector())
            ... except frazil.StaleReadError as error:
            ...     print(*error.reads)
            `/foo`: another session wrote the chunks [0], [1]
        """
        check_session_lifetime("lifetime", lifetime)
        session = self._session(branch, SessionMode.writable, lifetime, track_reads=track_reads)
        state_of(session).name = name
        return session

    def rearrange_session(self, branch: str) -> Session:
        """Open a session that can only move and rename nodes of the tip of a branch.

        Args:
            branch: The name of the branch.

        Returns:
            A session for ``Session.move``.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
            SessionStateError: ``feature-flag-disabled`` if the feature ``move_node`` is off.
            ReadOnlyError: ``read-only-storage`` if the storage is read-only.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="old")
            >>> session = repo.rearrange_session("main")
            >>> session.move("/old", "/new")
            >>> session.status().moved_nodes
            [('/old', '/new')]
        """
        self._context.require_version_2()
        return self._session(branch, SessionMode.rearrange)

    def _session(
        self, branch: str, mode: SessionMode, lifetime: timedelta | None = None, *, track_reads: bool = False
    ) -> Session:
        require_writable(self.storage)
        info = self._info()
        repo_changes.require_online(info)
        if mode is SessionMode.rearrange:
            repo_changes.require_flag(info, MOVE_NODE)
        tip = repo_changes.branch_tip(info, branch)
        opened_at = now_us()
        expires_at = opened_at + (lifetime or self._context.settings.session_lifetime) // MICROSECOND
        reads = ReadTracker() if track_reads else None
        workspace = Workspace(self._context, tip, None, ChangeSet(), reads=reads)
        preload(workspace)
        state = SessionState(
            workspace, branch, mode, expires_at, dict(self._default_metadata), since=opened_at
        )
        state.seen = newest_update(info)
        session = Session(state)
        weakref.finalize(session, _warn_of_loss, state, os.getpid())
        return session

    @contextmanager
    def transaction(
        self,
        branch: str,
        *,
        message: str,
        metadata: dict[str, Any] | None = None,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
        allow_empty: bool = False,
        reads: Sequence[Read] = (),
        track_reads: bool = False,
    ) -> Iterator[IcechunkStore]:
        """Open a store to write to, and commit the changes when the ``with`` block ends.

        If the block raises an error, the changes are dropped.

        Args:
            branch: The name of the branch.
            message: The message of the commit.
            metadata: The metadata of the commit: a dictionary that JSON can hold. Default: empty.
            rebase_with: The solver for the conflicts of a rebase. See ``Session.commit``.
            rebase_tries: How often to rebase and commit again, at most. See ``Session.commit``.
            allow_empty: Whether to commit if the block changes nothing.
            reads: The nodes and selections that the changes were computed from. See ``Session.rebase``.
            track_reads: Whether to record what the block reads. See ``writable_session``.

        Yields:
            The store of a writable session.

        Raises:
            SessionStateError: ``no-changes-to-commit`` if the block changes nothing, without ``allow_empty``.
            ConflictError: ``commit-conflict`` if another commit came first. See ``Session.commit``.
            NodeNotFoundError: If ``reads`` contains an unknown path. It is raised before the block begins.
            IcechunkError: The errors of ``writable_session``.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="i4")
            ...     array[:] = [1, 2]
            >>> zarr.open_array(repo.readonly_session("main").store, path="t")[:].tolist()
            [1, 2]
        """
        session = self.writable_session(branch, track_reads=track_reads)
        reads = list(reads)
        session.check_reads(reads)
        try:
            yield session.store
        except BaseException:
            state_of(session).has_tried = True  # the error says that there is no commit
            raise
        session.commit(
            message,
            metadata,
            rebase_with=rebase_with,
            rebase_tries=rebase_tries,
            allow_empty=allow_empty,
            reads=reads,
        )

    readonly_session_async: Final = awaitable(readonly_session)
    writable_session_async: Final = awaitable(writable_session)
    rearrange_session_async: Final = awaitable(rearrange_session)


class SubHandle:
    """Methods of one kind for a handle: ``Repository.history`` and ``Repository.upkeep``."""

    def __init__(self, repo: Integration) -> None:
        self._repo = repo


#: A query, the number of one of its batches, and whether the batch comes without the earlier batches.
type StreamBatch = tuple[str, int, bool]


@dataclass(frozen=True, slots=True)
class IntegrationPlan:
    """A plan to commit the changes from the version ``base`` to the version ``end`` with the given message.

    ``origin`` records in the metadata where the changes come from. ``batches`` are the batches of streaming
    queries that the changes contain.
    """

    base: bytes
    end: bytes
    message: str
    origin: dict[str, Any]
    allow_empty: bool = False
    batches: tuple[StreamBatch, ...] = ()
    #: The detached snapshots that the commit replaces.
    merged: tuple[bytes, ...] = ()
    #: Makes further changes, and the changes of refs in the update of the commit, from its id.
    edit: Callable[[Workspace], object] | None = None
    refs: RefEdit | None = None

    def carry(self, context: Context, info: RepoInfo, tip: bytes, solver: ConflictSolver) -> Workspace:
        """Return a workspace on the snapshot ``tip`` with the changes."""
        before, after, current = (Workspace(context, id_) for id_ in (self.base, self.end, tip))
        edits = _difference(context, info, before, after)
        changes = change_set_between(edits, _version(before), _version(after))
        among = {*edits.chunks, *edits.updated, *edits.deleted, *edits.created}
        theirs = _difference(context, info, before, current, among)
        work = carry_changes(before, current, changes, theirs, _version(current), solver, self.end)
        if self.edit is not None:
            self.edit(work)
        return work

    def commit_metadata(self) -> dict[str, Any]:
        """Return the metadata of the commit under ``__frazil``."""
        out = dict(self.origin)
        for query, batch, alone in self.batches:
            out.setdefault(ALONE if alone else BATCHES, []).append([query, batch])
        return out

    def recorded_metadata(self, branch: str, info: RepoInfo, id_: bytes) -> dict[str, Any]:
        """Return the metadata of the repository, with records of the batches in the commit ``id_``."""
        records: dict[str, list[BatchRecord]] = {}
        for query, batch, alone in self.batches:
            records.setdefault(query, []).append(BatchRecord(batch, id_, branch, alone))
        return with_records(info, records) if records else info.metadata


def commit_named(context: Context, info: RepoInfo, name: str) -> tuple[SnapshotEntry, bytes]:
    """Return a snapshot and its parent. Raise an error if its own changes are not known."""
    entry = info.snapshots.entry(repo_changes.require_snapshot(info, snapshot_named(info, name)))
    if entry.parent is None:
        raise InvalidInputError(
            f"{id_to_text(entry.id)} is the first commit. Pass a later one", ErrorKind.INVALID_SNAPSHOT_ID
        )
    if entry.pruned_ancestor_tx_logs or (context.spec_version == 1 and not _follows(context, entry)):
        raise SessionStateError(
            f"the versions before {id_to_text(entry.id)} were expired, so the changes of only this commit "
            "are not known. Pass a later commit",
            ErrorKind.REBASE_TX_LOG_PRUNED,
        )
    return entry, entry.parent


def _follows(context: Context, entry: SnapshotEntry) -> bool:
    """Return whether the parent has all nodes that a commit changed or deleted.

    An expiration in spec version 1 gives the oldest remaining version another parent, and leaves no other
    trace.
    """
    assert entry.parent is not None
    (log,) = read_logs(context.assets, [CommitLogs(entry.id, (entry.id,))])
    created = np.concatenate([log.new_groups, log.new_arrays])
    chunks = id_matrix(list(log.updated_chunks), NODE_ID_BYTES)
    lists = (log.updated_groups, log.updated_arrays, log.deleted_groups, log.deleted_arrays, chunks)
    parent_nodes = Workspace(context, entry.parent).snapshot.nodes.ids
    existing = id_keys(np.concatenate([parent_nodes, created]))
    return bool(np.isin(id_keys(np.concatenate(lists)), existing).all())


def _merge_base(info: RepoInfo, one: bytes, other: bytes) -> bytes:
    """Return the newest common ancestor of two snapshots, also through merges."""
    table = info.snapshots
    for id_ in (one, other):
        repo_changes.require_snapshot(info, id_)
    common = np.intersect1d(all_ancestors(info, one), all_ancestors(info, other))
    if not len(common):
        raise SessionStateError(
            f"{id_to_text(one)} and {id_to_text(other)} have no common ancestor, because older versions were "
            "expired. The changes of either side are not known",
            ErrorKind.REBASE_TX_LOG_PRUNED,
        )
    return table.id_of(int(common[np.argmax(table.flushed_at()[common])]))


def carry_changes(
    before: Workspace,
    current: Workspace,
    changes: ChangeSet,
    theirs: NodeChanges,
    tip: VersionContent,
    solver: ConflictSolver,
    end: bytes,
) -> Workspace:
    """Return a workspace on ``current``, whose content is ``tip``, with the ``changes`` of ``before``.

    ``theirs`` leads from ``before`` to ``current``. Raises ``RebaseFailedError`` with the snapshot ``end``.
    """
    whole = Workspace(before.context, before.snapshot_id, None, None, changes)
    changes, theirs, nodes = without_identical_changes(
        changes, theirs, before.snapshot.nodes, tip, new_node_id
    )
    work = Workspace(before.context, before.snapshot_id, None, None, changes)
    at = align_nodes(changes, nodes, theirs, current.snapshot.nodes, by_chunk=True)
    conflicts, decided = solve(at, work, current, solver, reading, whole)
    carried = None if len(decided) < len(conflicts) else carry_over(at, decided, before)
    if carried is None:
        raise RebaseFailedError(id_to_text(end), conflicts)
    work.rebase_onto(current.snapshot_id, carried)
    if isinstance(solver, RepeatingSolver):
        solver.repeat(work)
    return work


def _version(workspace: Workspace) -> VersionContent:
    return VersionContent(workspace.snapshot.nodes, workspace.ref_table)


def _difference(
    context: Context, info: RepoInfo, before: Workspace, after: Workspace, among: set[bytes] | None = None
) -> NodeChanges:
    """Return the differences between two versions, which are exact for the nodes ``among``.

    Without ``among``, they are exact for all nodes with changed chunks or metadata.
    """
    logs = read_logs(context.assets, commits_between(info, before.snapshot_id, after.snapshot_id))
    edits = node_changes_of_logs(logs, before.snapshot.nodes, after.snapshot.nodes)
    resized = set(chain.from_iterable(id_list(log.updated_arrays) for log in logs))
    exact = edits.chunks.keys() | resized if among is None else among
    return exact_changes(edits, _version(before), _version(after), exact, resized)


_TRIES: Final = 1000
_TOO_LATE: Final = {ErrorKind.COMMIT_CONFLICT, ErrorKind.BRANCH_UPDATE_CONFLICT}


class Integration(Sessions):
    """Methods of ``Repository`` that merge, cherry-pick and revert."""

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        solver: ConflictSolver | None = None,
        message: str | None = None,
        metadata: dict[str, Any] | None = None,
        fast_forward: bool = True,
        from_snapshot_id: str | None = None,
    ) -> str:
        """Merge a version into a branch.

        The base is the newest version in the history of both. Nodes are compared by id, and arrays chunk by
        chunk. Identical changes never conflict. Real conflicts are passed to ``solver``: *ours* are the
        changes of the source, *theirs* the changes of the branch. ``frazil.ElementSolver()`` keeps the
        changes of both sides in a chunk. The result is one commit on the branch, whose metadata name both
        parents: ``{"__frazil": {"parents": [into, source]}}``. If the source has no changes that the branch
        does not have, nothing happens.

        Args:
            source: A branch, a tag, a snapshot id, or the first characters of an id.
            into: The branch that receives the changes.
            solver: Decides the conflicts. Default: no conflict is decided.
            message: The message of the commit. Default: ``Merge SOURCE into INTO``.
            metadata: Metadata of the commit, in addition. Default: none.
            fast_forward: Whether to move the branch without a new commit if possible.
            from_snapshot_id: The id of the expected tip of the branch. If the branch is on another snapshot,
                it does not change. Default: any tip.

        Returns:
            The id of the snapshot at the tip of the branch.

        Raises:
            RebaseFailedError: ``rebase-failed`` if the solver leaves conflicts.
            SessionStateError: ``rebase-tx-log-pruned`` if a needed transaction log is gone.
            RefNotFoundError: ``ref-not-found`` if there is no such source or branch.
            ConflictError: If other commits come first in all of 1000 attempts. ``branch-update-conflict`` if
                the branch is not on ``from_snapshot_id``.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> repo.create_branch("dev", repo.lookup_branch("main"))
            >>> for branch, part in [("main", slice(0, 2)), ("dev", slice(2, 4))]:
            ...     with repo.transaction(branch, message=f"on {branch}") as store:
            ...         zarr.open_array(store, path="t")[part] = 1
            >>> merged = repo.merge("dev")
            >>> zarr.open_array(repo.readonly_session("main").store, path="t")[:].tolist()
            [1, 1, 1, 1]
            >>> repo.lookup_snapshot(merged).message
            'Merge dev into main'
        """

        def plan(info: RepoInfo, tip: bytes) -> IntegrationPlan | bytes:
            start = snapshot_named(info, source)
            base = _merge_base(info, start, tip)
            if base == start:
                return tip
            if base == tip and fast_forward:
                self._update(repo_changes.reset_branch(into, start, tip))
                return start
            origin: dict[str, Any] = {PARENTS: [id_to_text(tip), id_to_text(start)]}
            brought, is_declared = batches_brought(info, start, tip, self.storage)
            if is_declared:
                origin[BATCHES] = []
            latest = ((query, done.last, False) for query, done in brought.items() if done.last >= 0)
            alone = ((query, each, True) for query, done in brought.items() for each in sorted(done.alone))
            text = f"Merge {source} into {into}"
            return IntegrationPlan(base, start, text, origin, True, (*latest, *alone))

        return self._integrate(plan, into, solver, message, metadata, from_snapshot_id)

    def cherry_pick(
        self,
        snapshot: str,
        onto: str = "main",
        *,
        solver: ConflictSolver | None = None,
        message: str | None = None,
        metadata: dict[str, Any] | None = None,
        from_snapshot_id: str | None = None,
    ) -> str:
        """Repeat on a branch what one commit did to its parent snapshot.

        Real conflicts are passed to ``solver``: *ours* are the changes of the commit, *theirs* the
        differences between the commit's parent and the tip of the branch.

        Args:
            snapshot: The commit: a snapshot id, the first characters of an id, or a branch or tag on it.
            onto: The branch that receives the changes.
            solver: See ``merge``.
            message: The message of the new commit. Default: the message of the commit.
            metadata: See ``merge``.
            from_snapshot_id: See ``merge``.

        Returns:
            The id of the new commit.

        Raises:
            RebaseFailedError: ``rebase-failed`` if the solver leaves conflicts.
            SessionStateError: ``no-changes-to-commit`` if the branch has all the changes already.
                ``rebase-tx-log-pruned`` if older versions were expired, so that the changes of only this
                commit are not known.
            InvalidInputError: ``invalid-snapshot-id`` if ``snapshot`` is the first snapshot.
            RefNotFoundError: ``ref-not-found`` if there is no such commit or branch.
            ConflictError: See ``merge``.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="a root") as store:
            ...     root = zarr.create_group(store)
            >>> repo.create_branch("dev", "main")
            >>> for name in ("a", "b"):
            ...     with repo.transaction("dev", message=f"add {name}") as store:
            ...         group = zarr.create_group(store, path=name)
            >>> id_ = repo.cherry_pick("dev", "main")
            >>> sorted(zarr.open_group(repo.readonly_session("main").store, mode="r"))
            ['b']
        """

        def plan(info: RepoInfo, _tip: bytes) -> IntegrationPlan:
            entry, parent = commit_named(self._context, info, snapshot)
            batches = tuple((*batch, True) for batch in batches_between(info, parent, entry.id))
            origin = {"cherry_picked": id_to_text(entry.id)}
            return IntegrationPlan(parent, entry.id, entry.message, origin, batches=batches)

        return self._integrate(plan, onto, solver, message, metadata, from_snapshot_id)

    def revert(
        self,
        snapshot: str,
        on: str = "main",
        *,
        solver: ConflictSolver | None = None,
        message: str | None = None,
        metadata: dict[str, Any] | None = None,
        from_snapshot_id: str | None = None,
    ) -> str:
        """Undo on a branch what one commit did.

        Later commits stay. If they changed the same nodes or chunks, there is a conflict, which is passed to
        ``solver``: *ours* is the undoing, *theirs* are the later changes. Nodes that the commit deleted come
        back with their ids.

        Args:
            snapshot: The commit: a snapshot id, the first characters of an id, or a branch or tag on it.
            on: The branch to change.
            solver: See ``merge``.
            message: The message of the new commit. Default: ``Revert "MESSAGE OF THE COMMIT"``.
            metadata: See ``merge``.
            from_snapshot_id: See ``merge``.

        Returns:
            The id of the new commit.

        Raises:
            IcechunkError: The errors of ``cherry_pick``.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="add a") as store:
            ...     group = zarr.create_group(store, path="a")
            >>> reverted = repo.revert("main")
            >>> repo.lookup_snapshot(reverted).message
            'Revert "add a"'
        """

        def plan(info: RepoInfo, _tip: bytes) -> IntegrationPlan:
            entry, parent = commit_named(self._context, info, snapshot)
            text, origin = f'Revert "{entry.message}"', {"reverted": id_to_text(entry.id)}
            return IntegrationPlan(entry.id, parent, text, origin)

        return self._integrate(plan, on, solver, message, metadata, from_snapshot_id)

    def _integrate(
        self,
        plan: Callable[[RepoInfo, bytes], IntegrationPlan | bytes],
        branch: str,
        solver: ConflictSolver | None,
        message: str | None,
        metadata: dict[str, Any] | None,
        expected: str | None,
    ) -> str:
        """Plan for the current tip of the branch and commit the plan; repeat if another commit came first."""
        solver, context = solver or ConflictDetector(), self._context
        require_solver(solver)
        expected_tip = None if expected is None else resolve_id(expected, context.catalog.repo_info)
        tries_left = _TRIES
        while True:
            tries_left -= 1
            info = context.catalog.repo_info()
            tip = repo_changes.branch_tip(info, branch)
            if expected_tip not in (None, tip):
                raise ConflictError(expected, id_to_text(tip), kind=ErrorKind.BRANCH_UPDATE_CONFLICT)
            try:
                with snapshot_errors():
                    integration = plan(info, tip)
                    if isinstance(integration, bytes):
                        return id_to_text(integration)
                    work = integration.carry(context, info, tip, solver)
                    expires_at = now_us() + context.settings.session_lifetime // MICROSECOND
                    own, update_us = dict(self._default_metadata), newest_update(info)
                    state = SessionState(work, branch, SessionMode.writable, expires_at, own, seen=update_us)
                    state.merged_snapshots, state.refs = integration.merged, integration.refs
                    if integration.batches:
                        state.note = partial(integration.recorded_metadata, branch)
                    is_exact = bool(expected or integration.merged or integration.refs)
                    document = {**(metadata or {}), FRAZIL: integration.commit_metadata()}
                    text = message if message is not None else integration.message
                    return Session(state).commit(
                        text,
                        document,
                        # without retries, which would accept another tip
                        rebase_with=solver if is_exact and context.settings.fast_forward_timeout else None,
                        rebase_tries=0,
                        allow_empty=integration.allow_empty,
                    )
            except ConflictError as error:
                if error.kind not in _TOO_LATE or not tries_left:
                    raise
            except (SnapshotNotFoundError, SessionStateError) as error:
                if not tries_left or not is_outdated(context, info, error):
                    raise
