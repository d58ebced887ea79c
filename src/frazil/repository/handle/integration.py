"""The methods of ``Repository`` that bring changes from one branch to another: merge, cherry-pick, revert.

All three methods take the changes between two versions, carry them to the tip of a branch as a rebase does,
and commit them there. The new commits are ordinary commits for every reader. Their metadata record under
``__frazil`` where the changes come from.

The base of a merge is the newest version in both histories. Earlier merges count: the metadata of a merge
commit name its second parent, and the search follows that parent too.

A change that the tip already has never conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.conflicts import align_nodes
from frazil.changes.diff import VersionContent, change_set_between, exact_changes
from frazil.changes.node_changes import NodeChanges, node_changes_of_logs
from frazil.changes.rebase import without_identical_changes
from frazil.errors import (
    ConflictError,
    ErrorKind,
    InternalError,
    InvalidInputError,
    RebaseFailedError,
    SessionStateError,
    SnapshotNotFoundError,
)
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_list, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.repository.catalog import repo_changes, repo_requirements
from frazil.repository.catalog.ancestry import FRAZIL, PARENTS, all_ancestors
from frazil.repository.catalog.context import Context, is_outdated, snapshots_wanted
from frazil.repository.catalog.repo_requirements import find_snapshot, no_version
from frazil.repository.catalog.repo_update import newest_update
from frazil.repository.catalog.stream_records import (
    ALONE,
    BATCHES,
    BatchRecord,
    BatchSet,
    batches_between,
    batches_brought,
    with_records,
)
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import now_us
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.ids import new_node_id
from frazil.repository.session.commit import SessionState
from frazil.repository.session.conflicts import ConflictDetector, ConflictSolver, require_solver, solve
from frazil.repository.session.differences import CommitLogs, commits_between, read_logs
from frazil.repository.session.rebase import carry_over
from frazil.repository.session.session import Session, reading
from frazil.repository.session.workspace import Workspace

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

    @property
    def commit_metadata(self) -> dict[str, Any]:
        """The metadata of the commit under ``__frazil``."""
        return {**self.origin, **_batches_by_key(self.batches)}

    def recorded_metadata(self, branch: str, info: RepoInfo, id_: bytes) -> dict[str, Any]:
        """Return the metadata of the repository, with records of the batches in the commit ``id_``."""
        records: dict[str, list[BatchRecord]] = {}
        for query, batch, alone in self.batches:
            records.setdefault(query, []).append(BatchRecord(batch, id_, branch, alone))
        return with_records(info, records) if records else info.metadata


def plan_merge(
    context: Context, info: RepoInfo, source: str, into: str, *, fast_forward: bool
) -> IntegrationPlan | bytes:
    """Return the plan of ``Repository.merge``, or the new tip of ``into`` if no commit is needed.

    With ``fast_forward``, the new tip is the source if it is a descendant of the branch. The caller moves the
    branch.
    """
    tip = repo_requirements.branch_tip(info, into)
    start = _snapshot_named(info, source)
    base = _merge_base(info, start, tip)
    if base == start:
        return tip
    if base == tip and fast_forward:
        return start
    origin: dict[str, Any] = {PARENTS: [id_to_text(tip), id_to_text(start)]}
    batches, is_declared = batches_brought(info, start, tip, context.storage)
    if is_declared:
        origin[BATCHES] = []
    return IntegrationPlan(base, start, f"Merge {source} into {into}", origin, True, _stream_batches(batches))


def plan_cherry_pick(context: Context, info: RepoInfo, snapshot: str) -> IntegrationPlan:
    """Return the plan of ``Repository.cherry_pick``."""
    entry, parent = _commit_named(context, info, snapshot)
    batches = tuple((*batch, True) for batch in batches_between(info, parent, entry.id))
    origin = {"cherry_picked": id_to_text(entry.id)}
    return IntegrationPlan(parent, entry.id, entry.message, origin, batches=batches)


def plan_revert(context: Context, info: RepoInfo, snapshot: str) -> IntegrationPlan:
    """Return the plan of ``Repository.revert``."""
    entry, parent = _commit_named(context, info, snapshot)
    return IntegrationPlan(entry.id, parent, f'Revert "{entry.message}"', {"reverted": id_to_text(entry.id)})


def _stream_batches(batches: Mapping[str, BatchSet]) -> tuple[StreamBatch, ...]:
    latest = ((query, done.last, False) for query, done in batches.items() if done.last >= 0)
    alone = ((query, batch, True) for query, done in batches.items() for batch in sorted(done.alone))
    return (*latest, *alone)


def _batches_by_key(batches: Iterable[StreamBatch]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for query, batch, alone in batches:
        out.setdefault(ALONE if alone else BATCHES, []).append([query, batch])
    return out


def _snapshot_named(info: RepoInfo, name: str) -> bytes:
    """Return the snapshot of a branch, a tag, or an id."""
    id_ = find_snapshot(name, lambda: info)
    if id_ is None:
        raise no_version(info, name)
    repo_requirements.require_snapshot(info, id_)
    return id_


def _commit_named(context: Context, info: RepoInfo, name: str) -> tuple[SnapshotEntry, bytes]:
    """Return a snapshot and its parent. Raise an error if the changes of this commit alone are not known."""
    entry = info.snapshots.entry(repo_requirements.require_snapshot(info, _snapshot_named(info, name)))
    if entry.parent is None:
        raise InvalidInputError(
            f"{id_to_text(entry.id)} is the first snapshot, which changes nothing. Pass a later commit",
            ErrorKind.INVALID_SNAPSHOT_ID,
        )
    if entry.pruned_ancestor_tx_logs or (context.spec_version == 1 and not _follows(context, entry)):
        raise SessionStateError(
            f"the versions before {id_to_text(entry.id)} were expired, so the changes of this commit alone "
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
        repo_requirements.require_snapshot(info, id_)
    common = np.intersect1d(all_ancestors(info, one), all_ancestors(info, other))
    if not len(common):
        raise SessionStateError(
            f"{id_to_text(one)} and {id_to_text(other)} have no common ancestor, because older versions were "
            "expired. The changes of either side are not known",
            ErrorKind.REBASE_TX_LOG_PRUNED,
        )
    return table.id_of(int(common[np.argmax(table.flushed_at()[common])]))


def carry_changes(
    context: Context, info: RepoInfo, plan: IntegrationPlan, tip: bytes, solver: ConflictSolver
) -> Workspace:
    """Return a workspace on the snapshot ``tip`` with the changes of a plan."""
    before, after, current = (Workspace(context, id_) for id_ in (plan.base, plan.end, tip))
    changes, changed_nodes = _changes(context, info, before, after)
    theirs = _difference(context, info, before, current, changed_nodes)
    changes, theirs, nodes = without_identical_changes(
        changes, theirs, before.snapshot.nodes, _version(current), new_node_id
    )
    work = Workspace(context, plan.base, None, None, changes)
    at = align_nodes(changes, nodes, theirs, current.snapshot.nodes, by_chunk=True)
    conflicts, decided = solve(at, work, current, solver, reading)
    carried = None if len(decided) < len(conflicts) else carry_over(at, decided, before)
    if carried is None:
        raise RebaseFailedError(id_to_text(plan.end), conflicts)
    work.rebase_onto(tip, carried)
    return work


def _version(workspace: Workspace) -> VersionContent:
    return VersionContent(workspace.snapshot.nodes, workspace.ref_table)


def _edits(
    context: Context, info: RepoInfo, before: Workspace, after: Workspace
) -> tuple[NodeChanges, set[bytes]]:
    """Return the node changes in the logs between two versions, and the ids of arrays with new metadata."""
    logs = read_logs(context.assets, commits_between(info, before.snapshot_id, after.snapshot_id))
    edits = node_changes_of_logs(logs, before.snapshot.nodes, after.snapshot.nodes)
    return edits, set(chain.from_iterable(id_list(log.updated_arrays) for log in logs))


def _changes(
    context: Context, info: RepoInfo, before: Workspace, after: Workspace
) -> tuple[ChangeSet, set[bytes]]:
    """Return the changes between two versions as a change set, and the ids of all changed nodes."""
    edits, resized = _edits(context, info, before, after)
    edits = exact_changes(edits, _version(before), _version(after), edits.chunks.keys() | resized, resized)
    changes = change_set_between(edits, _version(before), _version(after))
    return changes, {*edits.chunks, *edits.updated, *edits.deleted, *edits.created}


def _difference(
    context: Context, info: RepoInfo, before: Workspace, after: Workspace, among: set[bytes]
) -> NodeChanges:
    """Return the differences between two versions; they are exact for the nodes ``among``."""
    edits, resized = _edits(context, info, before, after)
    return exact_changes(edits, _version(before), _version(after), among, resized)


_MICROSECOND: Final = timedelta(microseconds=1)
_TRIES: Final = 1000
_TOO_LATE: Final = {ErrorKind.COMMIT_CONFLICT, ErrorKind.BRANCH_UPDATE_CONFLICT}


class Integration(RepositoryBase):
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
    ) -> str:
        """Merge a version into a branch.

        The base is the newest version in the history of both. Nodes are compared by id, and arrays chunk by
        chunk. Identical changes never conflict. Real conflicts are passed to ``solver``: *ours* are the
        changes of the source, *theirs* the changes of the branch. ``frazil.ElementSolver()`` keeps the
        changes of both sides in a chunk. The result is one commit on the branch,
        whose metadata name both parents: ``{"__frazil": {"parents": [into, source]}}``.

        If the branch is an ancestor of the source, the branch is moved to the source without a new commit,
        unless ``fast_forward`` is False. If the source has no changes that the branch does not have, nothing
        happens.

        Args:
            source: A branch, a tag, a snapshot id, or the first characters of an id.
            into: The branch that receives the changes.
            solver: Decides the conflicts. Default: no conflict is decided.
            message: The message of the commit. Default: ``Merge SOURCE into INTO``.
            metadata: Metadata of the commit, in addition. Default: none.
            fast_forward: Whether to move the branch without a new commit if possible.

        Returns:
            The id of the snapshot at the tip of the branch.

        Raises:
            RebaseFailedError: ``rebase-failed`` if the solver leaves conflicts. The error lists all
                conflicts.
            SessionStateError: ``rebase-tx-log-pruned`` if a needed transaction log is gone.
            RefNotFoundError: ``ref-not-found`` if there is no such source or branch.
            ConflictError: If other commits come first in all of 1000 attempts.

        Examples:
            >>> import frazil, zarr
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
            merge = plan_merge(self._context, info, source, into, fast_forward=fast_forward)
            if isinstance(merge, bytes) and merge != tip:
                self._context.catalog.update_repo_info(repo_changes.reset_branch(into, merge, tip))
            return merge

        return self._integrate(plan, into, solver, message, metadata)

    def cherry_pick(
        self,
        snapshot: str,
        onto: str = "main",
        *,
        solver: ConflictSolver | None = None,
        message: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Repeat on a branch what one commit did to its parent snapshot.

        Real conflicts are passed to ``solver``: *ours* are the changes of the commit, *theirs* the
        differences between the commit's parent and the tip of the branch.

        Args:
            snapshot: The commit: a snapshot id, the first characters of an id, or a branch or tag on it.
            onto: The branch that receives the changes.
            solver: Decides the conflicts. Default: no conflict is decided.
            message: The message of the new commit. Default: the message of the commit.
            metadata: Metadata of the new commit, in addition. Default: none.

        Returns:
            The id of the new commit.

        Raises:
            RebaseFailedError: ``rebase-failed`` if the solver leaves conflicts. The error lists all
                conflicts.
            SessionStateError: ``no-changes-to-commit`` if the branch has all the changes already.
                ``rebase-tx-log-pruned`` if older versions were expired, so that the changes of this commit
                alone are not known.
            InvalidInputError: ``invalid-snapshot-id`` if ``snapshot`` is the first snapshot, which has no
                parent.
            RefNotFoundError: ``ref-not-found`` if there is no such commit or branch.
            ConflictError: If other commits come first in all of 1000 attempts.

        Examples:
            >>> import frazil, zarr
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
            return plan_cherry_pick(self._context, info, snapshot)

        return self._integrate(plan, onto, solver, message, metadata)

    def revert(
        self,
        snapshot: str,
        on: str = "main",
        *,
        solver: ConflictSolver | None = None,
        message: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Undo on a branch what one commit did.

        Later commits stay. If they changed the same nodes or chunks, there is a conflict, which is passed to
        ``solver``: *ours* is the undoing, *theirs* are the later changes. Nodes that the commit deleted come
        back with their ids.

        Args:
            snapshot: The commit: a snapshot id, the first characters of an id, or a branch or tag on it.
            on: The branch to change.
            solver: Decides the conflicts. Default: no conflict is decided.
            message: The message of the new commit. Default: ``Revert "MESSAGE OF THE COMMIT"``.
            metadata: Metadata of the new commit, in addition. Default: none.

        Returns:
            The id of the new commit.

        Raises:
            IcechunkError: The errors of ``cherry_pick``.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="add a") as store:
            ...     group = zarr.create_group(store, path="a")
            >>> reverted = repo.revert("main")
            >>> repo.lookup_snapshot(reverted).message
            'Revert "add a"'
        """

        def plan(info: RepoInfo, _tip: bytes) -> IntegrationPlan:
            return plan_revert(self._context, info, snapshot)

        return self._integrate(plan, on, solver, message, metadata)

    def _integrate(
        self,
        plan: Callable[[RepoInfo, bytes], IntegrationPlan | bytes],
        branch: str,
        solver: ConflictSolver | None,
        message: str | None,
        metadata: dict[str, Any] | None,
    ) -> str:
        """Plan for the current tip of the branch and commit the plan; repeat if another commit came first.

        If ``plan`` returns a snapshot id, no commit is needed.
        """
        solver = solver or ConflictDetector()
        require_solver(solver)
        for tries_left in reversed(range(_TRIES)):
            info = self._context.catalog.repo_info()
            tip = repo_requirements.branch_tip(info, branch)
            try:
                with snapshots_wanted():
                    integration = plan(info, tip)
                    if isinstance(integration, bytes):
                        return id_to_text(integration)
                    session = self._session_with_changes(info, integration, branch, tip, solver)
                    document = {**(metadata or {}), FRAZIL: integration.commit_metadata}
                    text = message if message is not None else integration.message
                    return session.commit(text, document, allow_empty=integration.allow_empty)
            except ConflictError as error:
                if error.kind not in _TOO_LATE or not tries_left:
                    raise
            except (SnapshotNotFoundError, SessionStateError) as error:
                if not tries_left or not is_outdated(self._context, info, error):
                    raise
        raise InternalError(
            "the merge ended without an attempt. This is a defect in Frazil, please report it"
        )

    def _session_with_changes(
        self, info: RepoInfo, plan: IntegrationPlan, branch: str, tip: bytes, solver: ConflictSolver
    ) -> Session:
        """Return a session on the branch with the changes of a plan."""
        work = carry_changes(self._context, info, plan, tip, solver)
        expires_at = now_us() + self._context.settings.session_lifetime // _MICROSECOND
        metadata = dict(self._default_metadata)
        seen = newest_update(info)
        state = SessionState(work, branch, SessionMode.writable, expires_at, metadata, seen=seen)
        if plan.batches:
            state.note = partial(plan.recorded_metadata, branch)
        return Session(state)
