"""Bringing changes from one branch to another: merge, cherry-pick, revert.

All three make a change set of what changed between two versions, take it to the tip of a branch as a rebase
does, and commit it there. What the tip has the same already is no conflict.

A merge looks for the newest version that both histories have. What was merged before counts: a merge
commit's metadata name its second parent, and ancestors are looked for behind that too. Commits are ordinary
ones to every reader; under ``__frazil`` their metadata say where they come from.
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
from frazil.changes.identical_changes import without_twins
from frazil.changes.node_alignment import meet
from frazil.changes.node_edits import Edits, edits_between
from frazil.changes.version_changes import Version, changes_between, exact
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
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import repo_changes, repo_requirements
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.expired_versions import is_outdated, snapshots_wanted
from frazil.repository.catalog.lineage import FRAZIL, PARENTS, all_ancestors
from frazil.repository.catalog.missing_names import no_version
from frazil.repository.catalog.stream_batches import ALONE, BATCHES, Done, batches_between, batches_brought
from frazil.repository.catalog.stream_records import Record, with_records
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.clock import new_node_id, now_us
from frazil.repository.session.commit_range import CommitLogs, commits_between, read_logs
from frazil.repository.session.conflict_answers import require_solver, solve
from frazil.repository.session.conflicts import ConflictDetector, ConflictSolver
from frazil.repository.session.rebase import carry_over
from frazil.repository.session.session import Session, reading
from frazil.repository.session.session_state import SessionState
from frazil.repository.session.workspace import Workspace

_MICROSECOND: Final = timedelta(microseconds=1)


_TRIES: Final = 1000
_TOO_LATE: Final = {ErrorKind.COMMIT_CONFLICT, ErrorKind.BRANCH_UPDATE_CONFLICT}


@dataclass(frozen=True, slots=True)
class _Plan:
    """Make what changed from ``base`` to ``end``, with this message and these words on where it is from."""

    base: bytes
    end: bytes
    message: str
    told: dict[str, Any]
    allow_empty: bool = False
    batches: tuple[tuple[str, int, bool], ...] = ()

    @property
    def origin(self) -> dict[str, Any]:
        """What the metadata of the commit say on where it is from."""
        return {**self.told, **_declaration(self.batches)}

    def note(self, branch: str, info: RepoInfo, id_: bytes) -> dict[str, Any]:
        """The metadata of the repository, with records of the batches that come with the commit."""
        records: dict[str, list[Record]] = {}
        for query, batch, alone in self.batches:
            records.setdefault(query, []).append(Record(batch, id_, branch, alone))
        return with_records(info, records) if records else info.metadata


class Integration:
    """Methods of ``Repository``."""

    _context: Context
    _default_metadata: dict[str, Any]

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
        """Bring all that ``source`` has and the branch ``into`` has not to ``into``; the id of its tip.

        ``source`` is a branch, a tag, a snapshot id or the first characters of one. The base is the newest
        version that both come from; nodes are compared by id, arrays chunk by chunk. Where both changed the
        same, ``solver`` decides: *ours* are the changes of the source, *theirs* those of the branch. The
        result is one commit on the branch, whose metadata name both parents:
        ``{"__frazil": {"parents": [into, source]}}``.

        If the branch is a version that the source comes from it is just moved to the source, unless
        ``fast_forward`` is False. If the source has nothing new, nothing happens.

        Raises ``RebaseFailedError`` with the conflicts that the solver leaves (all of them without one), and
        ``SessionStateError`` if a transaction log on the way is gone (``rebase-tx-log-pruned``).

        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     made = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
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

        def plan(info: RepoInfo, tip: bytes) -> _Plan | bytes:
            start = _named(info, source)
            base = _merge_base(info, start, tip)
            if base == start:
                return tip
            if base == tip and fast_forward:
                self._context.catalog.update_repo_info(repo_changes.reset_branch(into, start, tip))
                return start
            told: dict[str, Any] = {PARENTS: [id_to_text(tip), id_to_text(start)]}
            brought, is_declared = batches_brought(info, start, tip, self._context.storage)
            if is_declared:
                told[BATCHES] = []
            text = f"Merge {source} into {into}"
            return _Plan(base, start, text, told, True, _flat(brought))

        return self._carry_out(plan, into, solver, message, metadata)

    def cherry_pick(
        self,
        snapshot: str,
        onto: str = "main",
        *,
        solver: ConflictSolver | None = None,
        message: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Do on the branch ``onto`` what a commit did to its parent; the id of the new commit.

        ``snapshot`` is its id, the first characters of that, or a branch or tag that leads to it. *Ours* is
        that commit, *theirs* what is different on the branch from the commit's parent. The message is that of
        the commit.

        Raises ``RebaseFailedError``; ``SessionStateError`` if the branch has all of it already
        (``no-changes-to-commit``), or if older versions were expired, so that what the commit did is not
        known any more (``rebase-tx-log-pruned``); ``InvalidInputError`` for the first snapshot, which has no
        parent.
        """

        def plan(info: RepoInfo, tip: bytes) -> _Plan:
            entry, parent = _commit_of(self._context, info, snapshot)
            told = {"cherry_picked": id_to_text(entry.id)}
            picked = tuple((*each, True) for each in batches_between(info, parent, entry.id))
            return _Plan(parent, entry.id, entry.message, told, batches=picked)

        return self._carry_out(plan, onto, solver, message, metadata)

    def revert(
        self,
        snapshot: str,
        on: str = "main",
        *,
        solver: ConflictSolver | None = None,
        message: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Undo on the branch ``on`` what a commit did; the id of the new commit.

        What came after it stays: where that changed the same nodes or chunks it is a conflict, of *theirs*,
        with the undoing as *ours*. Nodes that the commit deleted come back with their ids. Raises as
        ``cherry_pick``.
        """

        def plan(info: RepoInfo, tip: bytes) -> _Plan:
            entry, parent = _commit_of(self._context, info, snapshot)
            told = {"reverted": id_to_text(entry.id)}
            return _Plan(entry.id, parent, f'Revert "{entry.message}"', told)

        return self._carry_out(plan, on, solver, message, metadata)

    def _carry_out(
        self,
        plan: Callable[[RepoInfo, bytes], _Plan | bytes],
        branch: str,
        solver: ConflictSolver | None,
        message: str | None,
        metadata: dict[str, Any] | None,
    ) -> str:
        """Make a plan for the branch as it is, and commit what it says; again when others were first."""
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
                    session = self._bring(info, integration, branch, tip, solver)
                    document = {**(metadata or {}), FRAZIL: integration.origin}
                    if integration.batches:
                        session._state.note = partial(integration.note, branch)
                    text = message if message is not None else integration.message
                    return session.commit(text, document, allow_empty=integration.allow_empty)
            except ConflictError as error:
                if error.kind not in _TOO_LATE or not tries_left:
                    raise
            except (SnapshotNotFoundError, SessionStateError) as error:
                if not tries_left or not is_outdated(self._context, info, error):
                    raise
        raise InternalError("merge ended without an attempt. This is a defect in Frazil: please report it")

    def _bring(self, info: RepoInfo, plan: _Plan, branch: str, tip: bytes, solver: ConflictSolver) -> Session:
        """A session on the branch with the changes of a plan."""
        context = self._context
        base, end = plan.base, plan.end
        before, after, there = (Workspace(context, id_) for id_ in (base, end, tip))
        changes, mine = _changes(context, info, before, after)
        theirs = _difference(context, info, before, there, mine)
        changes, theirs, nodes = without_twins(
            changes, theirs, before.snapshot.nodes, _version(there), new_node_id
        )
        work = Workspace(context, base, None, None, changes)
        at = meet(changes, nodes, theirs, there.snapshot.nodes, by_chunk=True)
        conflicts, decided = solve(at, work, there, solver, reading)
        brought = None if len(decided) < len(conflicts) else carry_over(at, decided, before)
        if brought is None:
            raise RebaseFailedError(id_to_text(end), conflicts)
        work.rebase_onto(tip, brought)
        expires_at = now_us() + context.settings.session_lifetime // _MICROSECOND
        metadata = dict(self._default_metadata)
        seen = newest_update(info)
        return Session(SessionState(work, branch, SessionMode.writable, expires_at, metadata, seen=seen))

    merge_async = awaitable(merge)
    cherry_pick_async = awaitable(cherry_pick)
    revert_async = awaitable(revert)


def _flat(brought: Mapping[str, Done]) -> tuple[tuple[str, int, bool], ...]:
    """Query, batch, and whether it comes alone."""
    lines = ((query, done.last, False) for query, done in brought.items() if done.last >= 0)
    singles = ((query, batch, True) for query, done in brought.items() for batch in sorted(done.alone))
    return (*lines, *singles)


def _declaration(batches: Iterable[tuple[str, int, bool]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for query, batch, alone in batches:
        out.setdefault(ALONE if alone else BATCHES, []).append([query, batch])
    return out


def _named(info: RepoInfo, name: str) -> bytes:
    """The snapshot of a branch, a tag, or an id."""
    id_ = find_snapshot(name, lambda: info)
    if id_ is None:
        raise no_version(info, name)
    repo_requirements.require_snapshot(info, id_)
    return id_


def _commit_of(context: Context, info: RepoInfo, name: str) -> tuple[SnapshotEntry, bytes]:
    """A snapshot and its parent."""
    entry = info.snapshots.entry(repo_requirements.require_snapshot(info, _named(info, name)))
    if entry.parent is None:
        raise InvalidInputError(
            f"{id_to_text(entry.id)} is the first snapshot, which changes nothing: name a commit after it",
            ErrorKind.INVALID_SNAPSHOT_ID,
        )
    if entry.pruned_ancestor_tx_logs or (context.spec_version == 1 and not _follows(context, entry)):
        raise SessionStateError(
            f"the versions before {id_to_text(entry.id)} were expired, so the changes of this commit alone "
            "are not known: name a later commit",
            ErrorKind.REBASE_TX_LOG_PRUNED,
        )
    return entry, entry.parent


def _follows(context: Context, entry: SnapshotEntry) -> bool:
    """Whether what a commit changed or deleted is in its parent. An expiration in spec version 1 gives the
    oldest version that stays another parent, and leaves no other trace.
    """
    assert entry.parent is not None
    (log,) = read_logs(context.assets, [CommitLogs(entry.id, (entry.id,))])
    created = np.concatenate([log.new_groups, log.new_arrays])
    chunks = id_matrix(list(log.updated_chunks), NODE_ID_BYTES)
    lists = (log.updated_groups, log.updated_arrays, log.deleted_groups, log.deleted_arrays, chunks)
    there = id_keys(np.concatenate([Workspace(context, entry.parent).snapshot.nodes.ids, created]))
    return bool(np.isin(id_keys(np.concatenate(lists)), there).all())


def _merge_base(info: RepoInfo, one: bytes, other: bytes) -> bytes:
    """The newest snapshot that both come from, what was merged into them included."""
    table = info.snapshots
    for id_ in (one, other):
        repo_requirements.require_snapshot(info, id_)
    common = np.intersect1d(all_ancestors(info, one), all_ancestors(info, other))
    if not len(common):
        raise SessionStateError(
            f"{id_to_text(one)} and {id_to_text(other)} have no version in common: older versions were "
            "expired, so what either side changed is not known",
            ErrorKind.REBASE_TX_LOG_PRUNED,
        )
    return table.id_of(int(common[np.argmax(table.flushed_at()[common])]))


def _version(workspace: Workspace) -> Version:
    return Version(workspace.snapshot.nodes, workspace.chunks.ref_table)


def _edits(context: Context, info: RepoInfo, before: Workspace, after: Workspace) -> tuple[Edits, set[bytes]]:
    """What the logs tell, and which arrays got other metadata on the way."""
    logs = read_logs(context.assets, commits_between(info, before.snapshot_id, after.snapshot_id))
    edits = edits_between(logs, before.snapshot.nodes, after.snapshot.nodes)
    return edits, set(chain.from_iterable(id_list(log.updated_arrays) for log in logs))


def _changes(
    context: Context, info: RepoInfo, before: Workspace, after: Workspace
) -> tuple[ChangeSet, set[bytes]]:
    """What changed between two versions, and the ids of all nodes that did."""
    edits, resized = _edits(context, info, before, after)
    edits = exact(edits, _version(before), _version(after), edits.chunks.keys() | resized, resized)
    changes = changes_between(edits, _version(before), _version(after))
    return changes, {*edits.chunks, *edits.updated, *edits.deleted, *edits.created}


def _difference(
    context: Context, info: RepoInfo, before: Workspace, after: Workspace, among: set[bytes]
) -> Edits:
    """What is different between two versions; exact ``among`` some nodes."""
    edits, resized = _edits(context, info, before, after)
    return exact(edits, _version(before), _version(after), among, resized)
