"""Sessions, which read one version of a repository, or change it and commit the changes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, override

from frazil.arguments import checks_arguments
from frazil.changes.change_set import transaction_log
from frazil.changes.diff import compose_logs
from frazil.changes.merge import ForkGenerations
from frazil.changes.reads import ReadSet, joined_reads
from frazil.display import Lines, Listing, Shown, counted, record_html
from frazil.errors import ConflictError, ErrorKind, IcechunkError, InvalidInputError, SessionStateError
from frazil.format.flexbuffer import MetadataColumn
from frazil.format.ids import REPO, id_to_text
from frazil.format.nodes import Node
from frazil.logs import timed
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import presentation
from frazil.repository.catalog.version_info import Diff, SessionMode
from frazil.repository.ids import new_object_id
from frazil.repository.session.commit import (
    NO_RETRIES,
    CommitRetries,
    CommitRetryPolicy,
    SessionState,
    write_commit,
)
from frazil.repository.session.commit_files import AMEND, COMMIT, FLUSH, MERGE, CommitKind, PendingCommit
from frazil.repository.session.conflicts import ConflictSolver, require_solver
from frazil.repository.session.rebase import Read, declared_reads, rebase, require_unchanged
from frazil.repository.session.session_methods import (
    InspectMethods,
    RearrangeMethods,
    fork_state,
    merge_fork_states,
)
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config import RepositoryConfig

if TYPE_CHECKING:
    from frazil.zarr_store import IcechunkStore


_log = logging.getLogger(__name__)
#: The HTML of a session has at most this number of nodes.
_SHOWN_NODES: Final = 50


@checks_arguments
class Session(RearrangeMethods, InspectMethods):
    """One version of a repository, with the changes that are not committed yet.

    ``Repository.readonly_session``, ``Repository.writable_session``, ``Repository.rearrange_session`` and
    ``fork`` create sessions. Programs do not call the constructor.

    A session reads one snapshot, whatever other writers commit. A writable session expires: after its
    lifetime (24 hours by default, option ``session_lifetime``) it refuses writes and commits. So garbage
    collection knows how old an uncommitted chunk can be.

    A read-only session and a fork can be pickled, a writable session cannot.

    Specification: *Consistency and Optimistic Concurrency*.

    Examples:
        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> session = repo.writable_session("main")
        >>> session.has_uncommitted_changes, session.branch
        (False, 'main')
        >>> array = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> session.status().new_arrays
        {'/t'}
        >>> snapshot = session.commit("an array")
        >>> repo.lookup_branch("main") == snapshot == session.snapshot_id
        True
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, Session):
            return False
        mine, other = self._state, value._state
        same = (mine.branch, mine.mode) == (other.branch, other.mode)
        return same and mine.workspace is other.workspace

    __hash__: Final = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        state = self._state
        lines = ["<frazil.session.Session>", f"read_only: {self.read_only}"]
        lines.append(f"snapshot_id: {self.snapshot_id}")
        if not self.read_only:
            lines.append(f"branch: {state.branch}")
            lines.append(f"has_uncommitted_changes: {self.has_uncommitted_changes}")
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        """Return the session as HTML, for notebooks, with changes and nodes if they need no read."""
        title, workspace = "frazil.session.Session", self._state.workspace
        rows: list[tuple[str, Shown]] = list(Lines(title, repr(self))._rows())
        if workspace.has_snapshot:
            if workspace.has_changes:
                rows.append(("changes", self.status()))
            table = workspace.node_table()
            nodes = ((node.path, _sizes(node)) for node in map(table.node, range(len(table))))
            rows.append((counted(len(table), "node"), Listing("nodes", nodes, _SHOWN_NODES)))
        return record_html(title, rows)

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.read_only:
            raise ValueError(
                "a writable session cannot be pickled. Pickle a fork, session.fork(), to send work to "
                "another process, and call session.merge(fork) when the work is done"
            )
        return (type(self), (self._state,))

    def __dask_tokenize__(self) -> tuple[str, ...]:
        """Return what the values depend on: the version, or an id for this call if they can change."""
        workspace = self._state.workspace
        if not self.read_only:
            return ("frazil.Session", id_to_text(new_object_id()))
        context = workspace.context
        places = (context.storage.origin(), *context.virtual.containers)
        return ("frazil.Session", id_to_text(workspace.snapshot_id), *map(repr, places))

    # Properties

    @property
    def snapshot_id(self) -> str:
        """The id of the snapshot that this session reads.

        A commit or a flush changes it to the new snapshot, a rebase to the tip of the branch.
        """
        return id_to_text(self._state.workspace.snapshot_id)

    @property
    def branch(self) -> str | None:
        """The branch that a commit moves. None for a read-only session and for a fork."""
        return None if self.read_only else self._state.branch

    @property
    def config(self) -> RepositoryConfig:
        """A copy of the configuration that this session uses."""
        return deepcopy(self._state.workspace.context.config)

    @property
    def has_uncommitted_changes(self) -> bool:
        """Whether the session has changes that it has not committed."""
        return self._state.workspace.has_changes

    @property
    def session_id(self) -> str:
        """The unique id of this session. A fork has the id of its session."""
        return id_to_text(self._state.session_id)

    @property
    def store(self) -> IcechunkStore:
        """A zarr store that reads and writes through this session."""
        from frazil.zarr_store import IcechunkStore  # the import table allows this one import upwards

        return IcechunkStore(self)

    # Changes

    def status(self) -> Diff:
        """Return the uncommitted changes of the session.

        Returns:
            The nodes and chunks that differ from the session's snapshot. Empty if nothing changed.

        Examples:
            >>> import frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> array[:2] = 1
            >>> session.status().updated_chunks
            {'/t': [[0]]}
        """
        workspace = self._state.workspace
        log = transaction_log(workspace.own_changes(), bytes(12))
        return presentation.diff(compose_logs([log], workspace.start, workspace.node_table()))

    def discard_changes(self) -> None:
        """Discard all uncommitted changes.

        Tracked reads stay: the values that the program read may still be in its variables. Forks that
        inherited discarded changes cannot be merged any more.

        Raises:
            ReadOnlyError: The session is read-only (``read-only-session``).

        Examples:
            >>> import frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> group = zarr.create_group(session.store, path="data")
            >>> session.discard_changes()
            >>> session.has_uncommitted_changes
            False
        """
        self._require_not_reading()
        state = self._state
        with state.workspace.commit_lock:
            state.workspace.discard_changes()
            state.merged = ForkGenerations()
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
        """Write the changes as a new snapshot, and move the branch to it.

        The commit succeeds if the branch is still at the session's snapshot. Otherwise the commit is *late*:

        - With ``rebase_with``, a late commit is rebased with this solver and retried, up to ``rebase_tries``
          times. The metadata of the commit then record the number of rebases under ``__icechunk``.
        - Without it, and with the option ``fast_forward_timeout``, a late commit is rebased onto the new tip
          and retried until the timeout expires. A conflict ends the retries.
        - Otherwise a late commit raises ``ConflictError``.

        A retry uses the files of earlier attempts again where they are still valid. After an error the
        session keeps its changes. After a commit the session is read-only, and reads the new snapshot.

        Specification: *Write New Snapshot*.

        Args:
            message: Describes the commit. Any text that UTF-8 can encode.
            metadata: Values that JSON can hold, by name. They are stored with the snapshot, on top of the
                default metadata of the repository. Default: none.
            rebase_with: Decides the conflicts of a late commit: a ``ConflictSolver``, or any object with a
                method ``solve``. Default: None, no rebase with a solver.
            rebase_tries: The largest number of rebases with ``rebase_with``, at least 0. Default: 1000.
            allow_empty: Whether to make a commit without changes. Default: False.
            reads: The inputs of the changes, as for ``rebase``. Before each rebase, Frazil compares them, and
                the tracked reads of a session with ``track_reads``, with the commits of other writers. A
                commit without a rebase needs no comparison.

        Returns:
            The id of the new snapshot.

        Raises:
            ConflictError: Another writer moved the branch first (``commit-conflict``); the error has
                ``expected_parent`` and ``actual_parent``. Or a garbage collection is running that will delete
                chunks of the session (``garbage-collection-running``): commit again later.
            RebaseFailedError: The solver left a conflict undecided (``rebase-failed``).
            StaleReadError: Another writer changed a read of this session (``stale-read``).
            SessionStateError: There are no changes (``no-changes-to-commit``), the session cannot commit
                (``commit-not-allowed``) or has expired (``session-expired``), or garbage collection has
                deleted its chunks (``garbage-collected``).
            ReadOnlyError: The status of the repository is not online (``read-only-repository``).
            OutcomeUnknownError: An answer of the storage was lost, and Frazil cannot find out whether the
                commit took effect (``outcome-unknown``).
            InvalidInputError: The message or the metadata cannot be stored (``bad-metadata``), or
                ``rebase_tries`` is negative (``invalid-commit-configuration``).

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> session = repo.writable_session("main")
            >>> group = zarr.create_group(session.store, path="data")
            >>> snapshot = session.commit("a group", {"author": "Ada"})
            >>> repo.lookup_snapshot(snapshot).metadata
            {'author': 'Ada'}
        """
        read_sets = [] if isinstance(reads, tuple) and not reads else self._read_sets(reads)
        policy = self._retry_policy(rebase_with, rebase_tries)
        kind = MERGE if self._state.merged_snapshots else COMMIT
        return self._write_commit(kind, message, metadata, allow_empty, policy, read_sets)

    def _retry_policy(self, solver: ConflictSolver | None, max_retries: int) -> CommitRetryPolicy:
        if solver is None:
            timeout = self._state.workspace.context.settings.fast_forward_timeout
            if not timeout:
                return NO_RETRIES
            kinds = frozenset({ErrorKind.COMMIT_CONFLICT, ErrorKind.GARBAGE_COLLECTION_RUNNING})
            return CommitRetryPolicy(kinds=kinds, timeout=timeout)
        require_solver(solver)
        if max_retries < 0:
            raise InvalidInputError(
                f"rebase_tries must be at least 0, got {max_retries}", ErrorKind.INVALID_COMMIT_CONFIGURATION
            )
        return CommitRetryPolicy(solver, max_retries=max_retries, records_all=True)

    def _write_commit(
        self,
        kind: CommitKind,
        message: str,
        metadata: dict[str, Any] | None,
        allow_empty: bool = False,
        policy: CommitRetryPolicy = NO_RETRIES,
        reads: Sequence[ReadSet] = (),
    ) -> str:
        """Commit, and rebase and retry while the policy allows it. Return the id of the new snapshot."""
        state = self._state
        workspace = state.workspace
        context, branch = workspace.context, state.branch if kind.moves_branch else None
        with (
            workspace.commit_lock,
            context.storage.local_queue(REPO),  # which saves lost attempts, for a second at most
            CommitRetries(policy, context, branch) as retries,
        ):
            if retries.join_queue(workspace):
                before = workspace.snapshot_id
                self.rebase(policy.solver, reads=reads)
                retries.count += workspace.snapshot_id != before
            while True:
                branch = self._require_branch() if kind.moves_branch else None
                if state.mode is not SessionMode.readonly:
                    self._require_not_ended()
                if kind.needs_changes and not workspace.has_changes and not allow_empty:
                    raise SessionStateError(
                        "the session has no changes to commit", ErrorKind.NO_CHANGES_TO_COMMIT
                    ).with_remedy(
                        "Write first, or pass allow_empty=True", shell="The branch has all of them already"
                    )
                state.has_tried = True
                if own := retries.metadata(metadata or {}):
                    MetadataColumn.of([own])  # raises an error before the first file is written
                pending = PendingCommit(
                    context,
                    kind,
                    branch,
                    workspace.snapshot,
                    workspace.own_changes(),
                    message,
                    {**state.default_metadata, **own},
                    state.session_start(),
                    workspace.writer,
                    workspace.earlier_manifests,
                    state.note,
                    state.merged_snapshots,
                    state.refs,
                )
                try:
                    with timed(_log, kind.name, f"{kind.name} on {state.branch!r}"):
                        id_ = write_commit(pending)
                    break
                except ConflictError as error:
                    retries.wait(error)
                retries.join_queue(workspace)
                self.rebase(policy.solver, reads=reads)
            if state.lease is not None:
                state.lease.give_back(context.storage)
            state.workspace = workspace.end_at(id_)
            state.mode = SessionMode.readonly
            state.merged = ForkGenerations()
            return id_to_text(id_)

    def rebase(self, solver: ConflictSolver, *, reads: Sequence[Read | ReadSet] = ()) -> None:
        """Move the session's changes onto the tip of its branch, so that they can be committed there.

        A change that does not conflict with the commits of other writers stays as it is. The solver decides
        the conflicts. Afterwards the session reads the tip of the branch with its own changes. A rebase
        writes no chunks.

        Forks from before the rebase cannot be merged any more: merge them first.

        Args:
            solver: Decides the conflicts: a ``ConflictSolver``, or any object with a method ``solve``.
                ``ConflictDetector()`` decides none of them.
            reads: The inputs of the changes. An item is the path of an array, the path of a group (with all
                nodes below it), or a pair of an array's path and a selection of its elements. A selection is
                a slice, an integer, or a tuple of these. Frazil compares the chunks that hold the elements.

        Raises:
            RebaseFailedError: The solver left conflicts undecided (``rebase-failed``). The error has
                ``snapshot`` and ``conflicts``. The session is then on the last snapshot before this one, and
                keeps its changes.
            StaleReadError: Since the session was opened, another writer has changed one of ``reads``, or a
                tracked read of a session with ``track_reads``: data or metadata, or a node that was created,
                deleted or moved (``stale-read``). No solver is called, and the session stays on its snapshot.
                Reads of nodes that the session itself has created do not count.
            NodeNotFoundError: A path of ``reads`` does not exist.
            InvalidInputError: A path of ``reads`` is not valid (``invalid-path``), or a selection does not
                fit (``not-an-array``, ``invalid-chunk-index``).
            SessionStateError: The session cannot commit (``commit-not-allowed``), or a transaction log that
                the comparison needs was deleted (``rebase-tx-log-pruned``).

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
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
        with state.workspace.commit_lock, timed(_log, "rebase", f"rebase on {state.branch!r}"):
            branch = self._require_branch()
            read_sets = self._read_sets(reads)
            before = state.workspace.snapshot_id
            try:
                rebase(state.workspace, branch, solver, reading, read_sets)
            finally:
                if state.workspace.snapshot_id != before:
                    state.origin = state.origin or before
                    state.clean_reads = tuple(read_sets)
                    # Forks of the old snapshot cannot be merged any more.
                    state.merged = ForkGenerations()

    def check_reads(self, reads: Sequence[Read]) -> None:
        """Check that ``commit`` and ``rebase`` accept ``reads``, before the work begins.

        Args:
            reads: The inputs of the changes, as for ``rebase``.

        Raises:
            NodeNotFoundError: A path does not exist.
            InvalidInputError: A path is not valid (``invalid-path``), or a selection does not fit
                (``not-an-array``, ``invalid-chunk-index``).

        Examples:
            >>> import frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> session.check_reads(["/t"])
            >>> session.check_reads(["/u"])
            Traceback (most recent call last):
            frazil.errors.NodeNotFoundError: reads must be paths of nodes ... got `/u`
        """
        if reads := list(reads):
            self._declared(reads)

    def _declared(self, reads: Sequence[Read | ReadSet]) -> list[ReadSet]:
        """Return the declared reads, of the version that the session was opened with."""
        workspace = self._state.workspace
        origin = Workspace(workspace.context, self._state.origin or workspace.snapshot_id)
        return declared_reads(reads, origin, workspace)

    def _read_sets(self, reads: Sequence[Read | ReadSet]) -> list[ReadSet]:
        """Return the declared reads. New ones are compared with the commits of earlier rebases."""
        reads = list(reads)
        if not reads:
            return []
        state = self._state
        workspace = state.workspace
        read_sets = self._declared(reads)
        if state.origin is not None:
            new = [each for each in read_sets if not any(each is other for other in state.clean_reads)]
            require_unchanged(workspace.context, joined_reads(new), state.origin, workspace.snapshot_id)
            state.clean_reads = (*state.clean_reads, *new)
        return read_sets

    def _require_branch(self) -> str:
        if self._state.branch is None or self._state.mode is SessionMode.readonly:
            raise SessionStateError(
                "this session cannot commit: it is read-only, is a fork, or has committed before",
                ErrorKind.COMMIT_NOT_ALLOWED,
            ).with_remedy("Merge a fork into its session, or open Repository.writable_session", shell="")
        return self._state.branch

    def amend(
        self,
        message: str,
        *,
        metadata: dict[str, Any] | None = None,
        allow_empty: bool = False,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
    ) -> str:
        """Replace the last commit of the branch by a commit that contains its changes and the session's.

        The new commit has the parent of the replaced commit. The replaced commit stays in the history of
        other branches and tags that contain it. Afterwards the session is read-only, and reads the new
        snapshot.

        If another writer has moved the branch since the session was opened, the amend is *late*. With
        ``rebase_with``, a late amend is rebased and retried, as ``commit`` does. It then replaces the last
        commit at that time, which is the commit of the other writer, and contains its changes. Otherwise a
        late amend raises ``ConflictError``, also with the option ``fast_forward_timeout``.

        Args:
            message: Describes the new commit. The message of the replaced commit is not used.
            metadata: Values that JSON can hold, by name. The metadata of the replaced commit are not used,
                except those that Frazil itself has stored there. Default: none.
            allow_empty: Whether to amend without changes, such as to correct the message. Default: False.
            rebase_with: Decides the conflicts of a late amend: a ``ConflictSolver``, or any object with a
                method ``solve``. Default: None, no rebase.
            rebase_tries: The largest number of rebases with ``rebase_with``, at least 0. Default: 1000.

        Returns:
            The id of the new snapshot.

        Raises:
            ConflictError: Another writer moved the branch first (``commit-conflict``).
            RebaseFailedError: The solver left a conflict undecided (``rebase-failed``).
            StaleReadError: Another writer changed a tracked read of this session (``stale-read``).
            SessionStateError: The last commit is the first of the repository
                (``no-amend-for-initial-commit``), the commit moved nodes and this session cannot
                (``rearrange-session-only``), or the session cannot commit: see ``commit``.
            InvalidInputError: The message or the metadata cannot be stored (``bad-metadata``).
            FormatError: The repository has spec version 1 (``unsupported-spec-version``).

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="a gruop") as store:
            ...     group = zarr.create_group(store, path="data")
            >>> snapshot = repo.writable_session("main").amend("a group", allow_empty=True)
            >>> [commit.message for commit in repo.ancestry(branch="main")]
            ['a group', 'Repository initialized']
        """
        self._state.workspace.context.require_version_2()
        policy = NO_RETRIES if rebase_with is None else self._retry_policy(rebase_with, rebase_tries)
        return self._write_commit(AMEND, message, metadata, allow_empty, policy)

    def flush(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Write the changes as a new snapshot, and leave the branch as it is.

        The parent of the new snapshot is the session's snapshot, even if the branch has moved. Afterwards the
        session is read-only, and reads the new snapshot.

        ``Repository.merge_snapshots`` merges detached snapshots into a branch. A lease protects the snapshot
        for 8 days (spec version 2). Create a branch or tag on it to keep it for longer: otherwise garbage
        collection deletes it.

        Args:
            message: Describes the snapshot. Any text that UTF-8 can encode.
            metadata: Values that JSON can hold, by name. Default: none.

        Returns:
            The id of the new snapshot.

        Raises:
            SessionStateError: The session has expired (``session-expired``).
            SnapshotNotFoundError: The session's snapshot was expired. Rebase first.
            InvalidInputError: The message or the metadata cannot be stored (``bad-metadata``).
            IcechunkError: The session is a fork (``unknown``).

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> session = repo.writable_session("main")
            >>> group = zarr.create_group(session.store, path="draft")
            >>> snapshot = session.flush("a draft")
            >>> repo.create_branch("draft", snapshot)
            >>> sorted(repo.list_branches())
            ['draft', 'main']
        """
        return self._write_commit(FLUSH, message, metadata)

    # Forks

    def fork(self) -> ForkSession:
        """Return a session that can be pickled, for a part of the work in another process.

        The fork sees the changes that this session has made so far. It cannot commit: pass it to ``merge``
        of this session when its work is done. The first fork takes a lease in the storage, so that garbage
        collections spare the chunks of all forks while the session can commit.

        Returns:
            The fork. Threads of one process can also use forks.

        Raises:
            SessionStateError: The session is read-only (``cannot-fork-read-only-session``).

        Examples:
            >>> import frazil, pickle, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> fork = pickle.loads(pickle.dumps(session.fork()))
            >>> zarr.open_array(fork.store, path="t")[:2] = 1
            >>> session.merge(fork)
            >>> array[:].tolist()
            [1, 1, 0, 0]
        """
        state = self._state
        if self.read_only:
            raise SessionStateError(
                "a read-only session has no forks. Pickle it", ErrorKind.CANNOT_FORK_READ_ONLY_SESSION
            )
        return ForkSession(fork_state(state))

    def merge(self, *others: ForkSession) -> None:
        """Add the changes of forks to this session.

        The same fork can be merged several times, with or without new changes: identical changes never
        conflict. In a session with ``track_reads``, the reads of the forks are added too.

        Args:
            *others: Forks of this session. If one of them cannot be merged, nothing is merged.

        Raises:
            SessionStateError: Two forks changed the same chunk or node (``merge-failed``), a fork belongs to
                another snapshot or inherited changes that the session has discarded (``merge-not-allowed``),
                or the session has expired (``session-expired``).
            ReadOnlyError: This session is read-only (``read-only-store``).

        Examples:
            >>> import frazil, zarr
            >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> one, two = session.fork(), session.fork()
            >>> zarr.open_array(one.store, path="t")[:2] = 1
            >>> zarr.open_array(two.store, path="t")[2:] = 2
            >>> session.merge(one, two)
            >>> array[:].tolist()
            [1, 1, 2, 2]
        """
        for other in others:
            if not isinstance(other, Session):
                raise TypeError(f"others must be results of session.fork(), got {type(other).__name__}")
        # Other threads that merge forks wait for this lock.
        with self._state.workspace.commit_lock:
            self._require_not_reading(ErrorKind.READ_ONLY_STORE)
            self._require_not_ended()
            merge_fork_states(self._state, [other._state for other in others])

    commit_async: Final = awaitable(commit)
    rebase_async: Final = awaitable(rebase)
    amend_async: Final = awaitable(amend)
    flush_async: Callable[..., Coroutine[Any, Any, str]] = awaitable(flush)
    merge_async: Final = awaitable(merge)


def _sizes(node: Node) -> str:
    """Return the dimensions of an array as text, with their names."""
    if node.array is None:
        return "group"
    names = node.array.dimension_names or (None,) * len(node.array.shape)
    sizes = zip(names, node.array.shape, strict=True)
    return ", ".join(f"{size:,}" if name is None else f"{name} {size:,}" for name, size in sizes) or "scalar"


def reading(workspace: Workspace) -> Session:
    """Return a read-only session of a workspace."""
    return Session(SessionState(workspace, None, SessionMode.readonly, 0))


@checks_arguments
class ForkSession(Session):
    """A copy of a session for a part of its work, in another process or thread.

    ``Session.fork`` creates forks. Pickle a fork, write with it, and pass it to ``Session.merge``. A fork can
    be pickled at any time (this makes its chunks durable first), and can be forked again. It cannot commit or
    flush.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        self._state.ends()  # reads the expiry from the writer, which is not pickled
        return (type(self), (self._state,))

    @override
    def flush(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        raise IcechunkError("a fork cannot be flushed. Merge it into the session that created it")

    flush_async: Callable[..., Coroutine[Any, Any, str]] = awaitable(flush)


def scratch_session(session: Session, *, stores_files: bool = False) -> Session:
    """Return a session on the same version for changes that nobody commits.

    Without ``stores_files`` it stores no files of chunks: all chunks are inline.
    """
    context, id_ = session.workspace.context, session.workspace.snapshot_id
    if not stores_files:
        settings = replace(context.settings, inline_chunk_threshold_bytes=sys.maxsize)
        context = replace(context, settings=settings)
    return Session(SessionState(Workspace(context, id_), "", SessionMode.writable, sys.maxsize))


def state_of(session: Session) -> SessionState:
    """Return the mutable state of a session, with its workspace, its lease, and the note of its commit."""
    return session._state
