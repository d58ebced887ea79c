"""Sessions: read one version of a repository, or change it and commit."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from copy import deepcopy
from operator import index
from typing import TYPE_CHECKING, Any

from frazil.arguments import checks_arguments
from frazil.changes.diff import compose_logs
from frazil.changes.log import transaction_log
from frazil.changes.reads import ReadSet, joined_reads
from frazil.display import Lines
from frazil.errors import (
    ConflictError,
    ErrorKind,
    IcechunkError,
    InvalidInputError,
    SessionStateError,
)
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkTable
from frazil.logs import span, timed
from frazil.repository.asynchronous import awaitable, on_thread
from frazil.repository.catalog import presentation
from frazil.repository.catalog.version_info import ChunkType, Diff, SessionMode
from frazil.repository.paths import absolute
from frazil.repository.session.chunk_listing import virtual_chunk_locations
from frazil.repository.session.commit import write_commit
from frazil.repository.session.commit_retries import (
    NO_RETRIES,
    CommitRetries,
    CommitRetryPolicy,
    fast_forward_policy,
    rebase_policy,
)
from frazil.repository.session.conflict_answers import require_solver
from frazil.repository.session.conflicts import ConflictSolver
from frazil.repository.session.declared_reads import Read, declared_reads
from frazil.repository.session.fork_merge import fork_state, merge_fork_states
from frazil.repository.session.node_moves import Rearranging
from frazil.repository.session.pending_commit import AMEND, COMMIT, FLUSH, CommitKind, PendingCommit
from frazil.repository.session.rebase import rebase
from frazil.repository.session.session_state import SessionState
from frazil.repository.session.stale_reads import require_unchanged
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config import RepositoryConfig

if TYPE_CHECKING:
    from frazil.zarr_store import IcechunkStore

_log = logging.getLogger(__name__)


@checks_arguments
class Session(Rearranging):
    """One version of a repository, with the changes made to it and not yet committed.

    Made by ``Repository.readonly_session``, ``writable_session`` and ``fork``; not by its constructor. A
    writable session ends: after its lifetime (24 hours unless configured) a commit is refused, so that
    garbage collection knows how old an uncommitted chunk can be.

    >>> import frazil
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> session = repo.writable_session("main")
    >>> session.has_uncommitted_changes, session.branch
    (False, 'main')
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Session) and self._identity() == value._identity()

    __hash__ = None  # type: ignore[assignment]

    def _identity(self) -> tuple[Any, ...]:
        state = self._state
        return (id(state.workspace), state.branch, state.mode)

    def __repr__(self) -> str:
        state = self._state
        lines = ["<frazil.session.Session>", f"read_only: {self.read_only}"]
        lines.append(f"snapshot_id: {self.snapshot_id}")
        if not self.read_only:
            lines.append(f"branch: {state.branch}")
            lines.append(f"has_uncommitted_changes: {self.has_uncommitted_changes}")
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        """The session as HTML, for notebooks."""
        return Lines("frazil.session.Session", repr(self))._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.read_only:
            raise ValueError(
                "a writable session cannot be pickled: use session.fork() to send work to other processes, "
                "and session.merge() when it comes back"
            )
        return (type(self), (self._state,))

    # What it is

    @property
    def workspace(self) -> Workspace:
        """Nodes and chunks as this session sees them."""
        return self._state.workspace

    @property
    def snapshot_id(self) -> str:
        """The version that this session started from, or made by its commit."""
        return id_to_text(self._state.workspace.snapshot_id)

    @property
    def branch(self) -> str | None:
        """The branch that a commit goes to; None if this session can only read."""
        return None if self.read_only else self._state.branch

    @property
    def config(self) -> RepositoryConfig:
        """A copy of the configuration that this session works with."""
        return deepcopy(self._state.workspace.context.config)

    @property
    def has_uncommitted_changes(self) -> bool:
        return self._state.workspace.has_changes

    @property
    def session_id(self) -> str:
        """Unique for each session; its forks have the same."""
        return id_to_text(self._state.session_id)

    @property
    def store(self) -> IcechunkStore:
        """A zarr store over this session."""
        from frazil.zarr_store import IcechunkStore  # the one edge upwards, named in the import table

        return IcechunkStore(self)

    # Changes

    def status(self) -> Diff:
        """What changed since the session's snapshot."""
        workspace = self._state.workspace
        log = transaction_log(workspace.own_changes(), bytes(12))
        return presentation.diff(compose_logs([log], workspace.start, workspace.nodes.node_table()))

    def discard_changes(self) -> None:
        """Forget everything that was not committed."""
        self._require_not_reading()
        state = self._state
        with state.workspace.commit_lock:
            state.workspace.discard_changes()
            state.merged.clear()
            state.generation += 1
            state.discarded_before = state.generation

    def commit(
        self,
        message: str,
        metadata: dict[str, Any] | None = None,
        *,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
        allow_empty: bool = False,
        reads: Sequence[Read] = (),
    ) -> str:
        """Make the changes the new tip of the branch; the id of the snapshot.

        With ``rebase_with``, a commit that comes too late is rebased with this solver and tried again, up to
        ``rebase_tries`` times; the metadata then say under ``__icechunk`` how often it was rebased. What a
        lost attempt has written and is still good is used by the next.

        Without it, a commit that comes too late fails; or, with a ``fast_forward_timeout`` in the
        configuration, goes on top of the others if there is no conflict, again and again until the time is
        up.

        ``reads`` says what the changes were made from, as in ``rebase``. Before each rebase it is compared
        with what others have committed, and so is what a session with ``track_reads`` has read. A commit that
        needs no rebase compares nothing: nobody has changed anything.

        Raises ``ConflictError``, with ``expected_parent`` and ``actual_parent``, if another commit came
        first: nothing is lost, the session keeps its changes. Raises ``RebaseFailedError`` and
        ``StaleReadError`` as ``rebase`` does. Raises ``SessionStateError`` without changes
        (``no-changes-to-commit``, unless ``allow_empty``), on a session that cannot commit
        (``commit-not-allowed``) or has expired (``session-expired``).

        After it the session reads the new snapshot.
        """
        read_sets = self._read_sets(reads)
        policy = self._retry_policy(rebase_with, rebase_tries)
        return self._write_commit(COMMIT, message, metadata, allow_empty, policy, read_sets)

    def _retry_policy(self, solver: ConflictSolver | None, max_retries: int) -> CommitRetryPolicy:
        if solver is None:
            return fast_forward_policy(self._state.workspace.context.settings.fast_forward_timeout)
        require_solver(solver)
        if max_retries < 0:
            raise InvalidInputError(
                f"rebase_tries: expected at least 0, found {max_retries}",
                ErrorKind.INVALID_COMMIT_CONFIGURATION,
            )
        return rebase_policy(solver, max_retries)

    def _write_commit(
        self,
        kind: CommitKind,
        message: str,
        metadata: dict[str, Any] | None,
        allow_empty: bool = False,
        policy: CommitRetryPolicy = NO_RETRIES,
        reads: Sequence[ReadSet] = (),
    ) -> str:
        """Commit, and while the policy allows it, rebase and commit again; the id of the new snapshot."""
        retries = CommitRetries(policy)
        with ExitStack() as locks:
            locks.enter_context(self._state.workspace.commit_lock)
            while True:
                pending = self._pending_commit(kind, message, retries.metadata(metadata or {}), allow_empty)
                try:
                    with span(kind.name), timed(_log, f"{kind.name} on {pending.branch!r}"):
                        return self._finish_commit(write_commit(pending))
                except ConflictError as error:
                    retries.wait(error)
                locks.enter_context(self._state.workspace.context.assets.retry_lock)
                self.rebase(policy.solver, reads=reads)

    def _pending_commit(
        self, kind: CommitKind, message: str, metadata: dict[str, Any], allow_empty: bool
    ) -> PendingCommit:
        self._require_commit_allowed(kind, allow_empty)
        state = self._state
        workspace = state.workspace
        return PendingCommit(
            workspace.context,
            kind,
            state.branch,
            workspace.snapshot,
            workspace.own_changes(),
            message,
            {**state.default_metadata, **metadata},
            state.session_start(),
            workspace.writer.flush,
            workspace.earlier_manifests,
            state.note,
        )

    def _require_commit_allowed(self, kind: CommitKind, allow_empty: bool) -> None:
        state = self._state
        if kind.moves_branch:
            self._require_branch()
        if not self.read_only:
            self._require_not_ended()
        if kind.needs_changes and not state.workspace.has_changes and not allow_empty:
            raise SessionStateError(
                "no changes to commit: write something first, or give allow_empty=True",
                ErrorKind.NO_CHANGES_TO_COMMIT,
            )

    def _finish_commit(self, id_: bytes) -> str:
        """Make this a session that reads the new snapshot; the id as text."""
        state = self._state
        if state.lease is not None:
            state.lease.give_back(state.workspace.context.storage)
        state.workspace = state.workspace.end_at(id_)
        state.mode = SessionMode.readonly
        state.merged.clear()
        return id_to_text(id_)

    def rebase(self, solver: ConflictSolver, *, reads: Sequence[Read | ReadSet] = ()) -> None:
        """Take the session's changes to the tip of its branch, so that they can be committed there.

        Changes that do not conflict with what was committed meanwhile go on as they are; the solver decides
        the others. Afterwards the session reads the tip with its own changes.

        Raises ``RebaseFailedError``, with ``snapshot`` and ``conflicts``, for what the solver leaves
        undecided: the session then stands right before that snapshot, and keeps its changes. Raises
        ``SessionStateError`` if the session cannot commit (``commit-not-allowed``), or if a transaction log
        on the way is gone (``rebase-tx-log-pruned``).

        ``reads`` says what the changes were made from: paths of nodes, a group with all that is below it; or
        pairs of an array's path and a selection of its elements, of which the chunks are compared that hold
        them. Raises ``StaleReadError`` if others have changed any of it since the session was opened, or
        anything that a session with ``track_reads`` has read: new data or metadata, a node created, deleted
        or moved. No solver is asked then, and the session stays where it was. Reads of what the session
        itself has created do not count. An unknown path is a ``NodeNotFoundError``.

        Forks that were made before cannot be merged any more: merge them first.

        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     made = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> early, late = repo.writable_session("main"), repo.writable_session("main")
        >>> zarr.open_array(early.store, path="t")[:2] = 1
        >>> zarr.open_array(late.store, path="t")[2:] = 2
        >>> snapshot = early.commit("the first half")
        >>> late.rebase(frazil.ConflictDetector())
        >>> snapshot = late.commit("the second half")
        >>> zarr.open_array(repo.readonly_session("main").store, path="t")[:].tolist()
        [1, 1, 2, 2]
        """
        state = self._state
        with state.workspace.commit_lock, span("rebase"), timed(_log, f"rebase on {state.branch!r}"):
            branch = self._require_branch()
            read_sets = self._read_sets(reads)
            before = state.workspace.snapshot_id
            try:
                rebase(state.workspace, branch, solver, reading, read_sets)
            finally:
                if state.workspace.snapshot_id != before:
                    state.origin = state.origin or before
                    state.clean_reads = tuple(read_sets)
                    # Forks of the old snapshot are refused, whatever they have seen.
                    state.merged.clear()

    def check_reads(self, reads: Sequence[Read]) -> None:
        """Raise ``NodeNotFoundError`` or ``InvalidInputError`` if ``reads`` cannot be declared."""
        if reads := list(reads):
            declared_reads(reads, self._origin(), self._state.workspace)

    def _origin(self) -> Workspace:
        """What the session was opened with."""
        state = self._state
        return Workspace(state.workspace.context, state.origin or state.workspace.snapshot_id)

    def _read_sets(self, reads: Sequence[Read | ReadSet]) -> list[ReadSet]:
        """What was declared, compared with the commits that earlier rebases have passed without it."""
        reads = list(reads)
        if not reads:
            return []
        state = self._state
        workspace = state.workspace
        read_sets = declared_reads(reads, self._origin(), workspace)
        if state.origin is not None:
            new = [each for each in read_sets if not any(each is other for other in state.clean_reads)]
            require_unchanged(workspace.context, joined_reads(new), state.origin, workspace.snapshot_id)
            state.clean_reads = (*state.clean_reads, *new)
        return read_sets

    def _require_branch(self) -> str:
        if self._state.branch is None or self.read_only:
            raise SessionStateError(
                "this session cannot commit: it only reads, is a fork (merge it into its session), or has "
                "committed before. Open one with Repository.writable_session",
                ErrorKind.COMMIT_NOT_ALLOWED,
            )
        return self._state.branch

    def amend(
        self, message: str, *, metadata: dict[str, Any] | None = None, allow_empty: bool = False
    ) -> str:
        """Make a commit that takes the place of the branch's last one, and does what both did; its id.

        The commit that it replaces stays where a tag or another branch leads to it. Its message and metadata
        are not taken over. Raises as ``commit`` does; ``SessionStateError`` for the first commit of a
        repository (``no-amend-for-initial-commit``), and for one that moved nodes in a session that cannot
        (``rearrange-session-only``); ``FormatError`` in a repository of spec version 1.
        """
        self._state.workspace.context.require_version_2()
        return self._write_commit(AMEND, message, metadata, allow_empty)

    def flush(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Save the changes as a snapshot that no branch leads to; its id.

        It follows the snapshot that the session started from, wherever the branch is now; create a branch or
        tag on it, or garbage collection will remove it. After it the session only reads, the new snapshot.
        """
        return self._write_commit(FLUSH, message, metadata)

    # Forks

    def fork(self) -> ForkSession:
        """A session that can be pickled and sent to another process, to do a part of the work.

        It sees what this session has changed so far, cannot commit, and comes back with ``merge``.
        """
        state = self._state
        if self.read_only:
            raise SessionStateError(
                "a read-only session cannot be forked: pickle it, or fork a writable session",
                ErrorKind.CANNOT_FORK_READ_ONLY_SESSION,
            )
        return ForkSession(fork_state(state))

    def merge(self, *others: ForkSession) -> None:
        """Take over what forks of this session have changed.

        Raises ``SessionStateError`` (``merge-failed``) if two forks changed the same chunk or node: then
        nothing is merged. A fork may come back again, with more or without: what was merged already is the
        same reference, and no conflict.
        """
        for other in others:
            if not isinstance(other, Session):
                raise TypeError(f"expected a ForkSession, found {type(other).__name__}")
        # The lock makes other threads, with forks of their own, wait.
        with self._state.workspace.commit_lock:
            self._require_changeable()
            self._require_not_ended()
            merge_fork_states(self._state, [other._state for other in others])

    # Chunks

    def get_node_id(self, path: str) -> str:
        """The id of a group or array, which stays the same when the node is moved.

        Raises ``NodeNotFoundError`` if there is no node at ``path``.
        """
        workspace, path = self._state.workspace, absolute(path)
        workspace.notes.note_document(path)
        return id_to_text(workspace.nodes.require_node(path).id)

    def chunk_type(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType:
        """Where a chunk's bytes are: native, virtual, inline, or nowhere (``uninitialized``)."""
        workspace, path = self._state.workspace, absolute(array_path)
        coords = _coordinates(chunk_coordinates)
        workspace.notes.note_chunk(path, coords)
        workspace.nodes.require_array(path)
        return presentation.chunk_type(workspace.chunks.ref(path, coords))

    async def chunk_coordinates(
        self, array_path: str, batch_size: int = 1000
    ) -> AsyncIterator[tuple[int, ...]]:
        """Coordinates of all chunks of an array that are there."""
        if batch_size < 1:
            raise InvalidInputError(
                f"batch_size: expected at least 1, found {batch_size}", ErrorKind.INVALID_ARGUMENT
            )
        table = await on_thread(self.chunk_table, array_path)
        for start in range(0, len(table), batch_size):
            for coords in table.index[start : start + batch_size].tolist():
                yield tuple(coords)

    def chunk_table(self, array_path: str) -> ChunkTable:
        """All references of an array, as columns."""
        workspace, path = self._state.workspace, absolute(array_path)
        workspace.notes.note_tree(path)
        return workspace.chunks.ref_table(path)

    def all_virtual_chunk_locations(self) -> list[str]:
        """The URL of every virtual chunk of every array; relative locations lead where their container is.

        Raises ``InvalidInputError`` (``no-container-for-virtual-chunk``) for a relative one without
        container.
        """
        return virtual_chunk_locations(self._state.workspace)

    commit_async = awaitable(commit)
    rebase_async = awaitable(rebase)
    amend_async = awaitable(amend)
    flush_async = awaitable(flush)
    merge_async = awaitable(merge)
    get_node_id_async = awaitable(get_node_id)
    chunk_type_async = awaitable(chunk_type)
    all_virtual_chunk_locations_async = awaitable(all_virtual_chunk_locations)


def reading(workspace: Workspace) -> Session:
    """A session that reads a workspace."""
    return Session(SessionState(workspace, None, SessionMode.readonly, 0))


@checks_arguments
class ForkSession(Session):
    """A part of a session's work, for another process: pickle it, change something, bring it back to
    ``merge``.

    It can be pickled at any time (its chunks are made durable first), forked again, and never committed.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        self._state.ends()  # the writer, which has found chunks again, is not pickled
        return (type(self), (self._state,))

    def flush(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        raise IcechunkError(
            "a fork cannot be flushed: merge it into the session that it came from", ErrorKind.UNKNOWN
        )


def _coordinates(given: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(map(index, given))
    except TypeError:
        raise TypeError(f"chunk_coordinates: expected integers, found {given!r}") from None
