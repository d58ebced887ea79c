"""Taking changes from one version to another: the road between two versions, the conflicts on it, and who
decides them.

All commits of the road are looked at together first: usually nothing conflicts, and then it takes their
transaction logs and one snapshot, however many there are. Where something stays undecided, the road is gone
commit by commit, up to the one that cannot be passed; what was decided before it is kept.

What the session has read is compared first, over the whole road. No solver decides it, and where something is
stale no step is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_edits import Coords, table_of
from frazil.changes.conflicts import Clash, ConflictType, find_conflicts
from frazil.changes.node_alignment import Did, Meeting, meet
from frazil.changes.node_edits import Edits, edits_between, rows_of
from frazil.changes.reads import NOTHING_READ, ReadSet, StaleRead, joined_reads, stale_reads
from frazil.changes.rebase import Choice, is_whole, ours_can_stand, rebased
from frazil.errors import (
    ErrorKind,
    InvalidInputError,
    RebaseFailedError,
    SessionStateError,
    StaleReadError,
    StorageError,
)
from frazil.format.ids import NODE_ID_BYTES, id_matrix, id_to_text
from frazil.format.manifest import ChunkRef
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import NodeTable
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.expired_versions import with_current
from frazil.repository.catalog.repo_requirements import (
    CHANGES_STAY,
    branch_tip,
    require_base,
    require_snapshot,
)
from frazil.repository.session.conflicts import Conflict, Side, Sides, VersionSelection
from frazil.repository.session.workspace import Workspace
from frazil.threads import Purpose, map_bounded

if TYPE_CHECKING:
    from frazil.repository.session.session import Session

#: Stale reads that a message lists before it only counts.
_LISTED: Final = 5

OpenSession = Callable[[Workspace], "Session"]


@dataclass(frozen=True, slots=True)
class Step:
    """A commit on the road, and the transaction logs that lead to it from the one before."""

    snapshot: bytes
    logs: tuple[bytes, ...]


def road(info: RepoInfo, start: bytes, end: bytes) -> list[Step]:
    """The commits after ``start`` up to ``end``, oldest first.

    Where ``start`` is no ancestor of ``end`` (the branch was reset, or its tip amended) it is one step, back
    to the common ancestor and forth. Raises ``SnapshotNotFoundError`` for a start that nobody remembers.
    """
    table = info.snapshots
    first = table.find_snapshot(start)
    steps: list[Step] = []
    rows: list[int] = []
    # Part by part: in a repository of version 1 every ancestor is a file to read.
    for part in table.parts(require_snapshot(info, end)):
        for row, entry in zip(part.tolist(), table.entries(part), strict=True):
            if row == first:
                return steps[::-1]
            pruned = entry.pruned_ancestor_tx_logs
            if start in pruned:  # the start was expired, or is only known to other refs
                steps.append(Step(entry.id, (*pruned[pruned.index(start) + 1 :], entry.id)))
                return steps[::-1]
            steps.append(Step(entry.id, (*pruned, entry.id)))
            rows.append(row)
    require_base(info, start)
    back = table.chain(first)
    left = back[: int(np.argmax(np.isin(back, rows)))]
    meet = rows.index(int(back[len(left)]))
    logs = [id_ for entry in table.entries(left) for id_ in (*entry.pruned_ancestor_tx_logs, entry.id)]
    return [Step(end, (*logs, *(id_ for step in steps[:meet][::-1] for id_ in step.logs)))]


def read_logs(assets: Assets, steps: Sequence[Step]) -> list[TransactionLog]:
    """The logs of some steps, fetched side by side.

    Raises ``SessionStateError`` (``rebase-tx-log-pruned``) if one is gone: what it told cannot be compared.
    """
    ids = [id_ for step in steps for id_ in step.logs]

    def fetch(id_: bytes) -> TransactionLog:
        try:
            return assets.transaction_log(id_)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            raise SessionStateError(
                f"the transaction log of snapshot {id_to_text(id_)} is gone, so its changes are not known: "
                "make your changes again in a new session",
                ErrorKind.REBASE_TX_LOG_PRUNED,
            ) from error

    return map_bounded(Purpose.CATALOG_READS, fetch, ids)


def rebase(
    workspace: Workspace, branch: str, solver: Any, open_session: OpenSession, reads: Sequence[ReadSet] = ()
) -> None:
    """Take the workspace's changes to the tip of ``branch``.

    ``reads`` are read besides what the workspace has tracked. Raises ``StaleReadError`` if others have
    changed any of it; the workspace stays where it is. Raises ``RebaseFailedError``; the workspace is then on
    the last version that it could be taken to.
    """
    require_solver(solver)
    if workspace.reads is not None:
        reads = [*reads, workspace.reads.reads()]
    joined = joined_reads(reads)
    with_current(workspace.context, lambda info: _take(info, workspace, branch, solver, open_session, joined))


def _take(
    info: RepoInfo, workspace: Workspace, branch: str, solver: Any, open_session: OpenSession, reads: ReadSet
) -> None:
    steps = road(info, workspace.snapshot_id, branch_tip(info, branch))
    if not steps:
        return
    conflicts = _go(workspace, steps, solver, open_session, reads)
    if conflicts and len(steps) > 1:
        for step in steps:
            conflicts = _go(workspace, [step], solver, open_session)
            if conflicts:
                raise RebaseFailedError(id_to_text(step.snapshot), conflicts, CHANGES_STAY)
    elif conflicts:
        raise RebaseFailedError(id_to_text(steps[-1].snapshot), conflicts, CHANGES_STAY)


def require_solver(solver: Any) -> None:
    if not callable(getattr(solver, "solve", None)):
        raise TypeError(f"expected a ConflictSolver, an object with a method `solve`, found {solver!r}")


def require_unchanged(context: Context, reads: ReadSet, start: bytes, end: bytes) -> None:
    """Raises ``StaleReadError`` if ``reads``, of the snapshot ``start``, are others in ``end``."""
    if start == end or not reads:
        return
    steps = road(context.catalog.repo_info(), start, end)
    if stale := _stale_in(context, reads, start, steps):
        raise _stale_error(context, reads, start, steps, stale)


def _stale_in(context: Context, reads: ReadSet, start: bytes, steps: Sequence[Step]) -> list[StaleRead]:
    before, after = (context.assets.snapshot(id_).nodes for id_ in (start, steps[-1].snapshot))
    return stale_reads(reads, edits_between(read_logs(context.assets, steps), before, after))


def _stale_error(
    context: Context, reads: ReadSet, start: bytes, steps: Sequence[Step], stale: list[StaleRead]
) -> StaleReadError:
    """The error for ``stale``, with the first snapshot of the road that changed any of it."""
    culprit = steps[-1].snapshot
    for step in steps if len(steps) > 1 else ():
        if _stale_in(context, reads, start, [step]):
            culprit = step.snapshot
            break
        start = step.snapshot
    snapshot = id_to_text(culprit)
    listing = "; ".join(map(str, stale[:_LISTED]))
    rest = f"; and {len(stale) - _LISTED} more" if len(stale) > _LISTED else ""
    return StaleReadError(
        snapshot,
        stale,
        f"others changed what was read, first in snapshot {snapshot}: {listing}{rest}. What was written from "
        "it may be wrong, so nothing was committed: read it again and write again in a new session",
    )


def _go(
    workspace: Workspace,
    steps: Sequence[Step],
    solver: Any,
    open_session: OpenSession,
    reads: ReadSet = NOTHING_READ,
) -> list[Conflict]:
    """Go some steps; if there are conflicts that the solver does not decide, all of them, and no step."""
    context = workspace.context
    end = steps[-1].snapshot
    base = workspace.snapshot.nodes
    theirs_now = Workspace(context, end)
    tip = theirs_now.snapshot.nodes
    theirs = edits_between(read_logs(context.assets, steps), base, tip)
    if stale := stale_reads(reads, theirs):
        raise _stale_error(context, reads, workspace.snapshot_id, steps, stale)
    own = workspace.own_changes()
    if lost := _outdated(own, base, tip, theirs):
        return lost
    at = meet(own, base, theirs, tip)
    conflicts, decided = solve(at, workspace, theirs_now, solver, open_session)
    if len(decided) < len(conflicts):
        return conflicts
    changes = carry_over(at, decided, Workspace(context, workspace.snapshot_id))
    if changes is None:
        return conflicts
    changes.ready = own.ready
    tracker = workspace.reads
    with nullcontext() if tracker is None else tracker.lock:
        # Other threads, and solvers, may have read since the first comparison.
        late = NOTHING_READ if tracker is None else tracker.reads()
        if stale := stale_reads(late, theirs):
            raise _stale_error(context, late, workspace.snapshot_id, steps, stale)
        workspace.rebase_onto(end, changes)
    return []


def _outdated(own: ChangeSet, base: NodeTable, tip: NodeTable, theirs: Edits) -> list[Conflict]:
    """Arrays whose manifests were written for the commit, and that theirs has touched: whichever chunks it
    was, these manifests are those of another array now. No solver can mend that.
    """
    ids = list(own.ready)
    if not ids:
        return []
    matrix = id_matrix(ids, NODE_ID_BYTES)
    rows, now = rows_of(base, matrix).tolist(), rows_of(tip, matrix).tolist()
    touched = theirs.chunks.keys() | theirs.updated.keys() | theirs.deleted.keys() | theirs.moved.keys()
    # Those that were written anew no log tells of; nor where new arrays go along with a group.
    same = [
        not theirs.moved if row < 0 else at >= 0 and base.node(row).array == tip.node(at).array
        for row, at in zip(rows, now, strict=True)
    ]
    return [
        Conflict(ConflictType.ChunkDoubleUpdate, own.ready[id_].path)
        for id_, kept in zip(ids, same, strict=True)
        if id_ in touched or not kept
    ]


def carry_over(at: Meeting, decided: Sequence[tuple[Clash, Choice]], base: Workspace) -> ChangeSet | None:
    """Ours, relative to the tip; None where what was decided cannot be done together.

    Raises ``SessionStateError`` (``merge-failed``) where nothing was to decide: that is a conflict without a
    row in the table.
    """
    changes = rebased(at, decided, base.chunks.ref_table)
    if not (decided or at.moves or at.theirs.moved) or is_whole(at, changes):
        return changes
    if decided:
        return None
    raise SessionStateError(
        "the changes of both sides cannot be combined: a node would have no group, or two nodes one path. "
        "Make the changes again in a new session",
        ErrorKind.MERGE_FAILED,
    )


def solve(
    at: Meeting, workspace: Workspace, theirs: Workspace, solver: Any, open_session: OpenSession
) -> tuple[list[Conflict], list[tuple[Clash, Choice]]]:
    """The conflicts, and those of them that the solver decides."""
    clashes = find_conflicts(at)
    if not clashes:
        return [], []
    base = Workspace(workspace.context, workspace.snapshot_id)
    conflicts = [
        Conflict.of(clash, _sides(at, clash, workspace, theirs, base, open_session)) for clash in clashes
    ]
    answers = list(solver.solve(conflicts))
    if len(answers) != len(conflicts):
        raise InvalidInputError(
            f"expected an answer of the solver for each of {len(conflicts)} conflicts, found {len(answers)}",
            ErrorKind.INVALID_COMMIT_CONFIGURATION,
        )
    choices = [_choice(at, clash, answer, workspace) for clash, answer in zip(clashes, answers, strict=True)]
    return conflicts, [(clash, choice) for clash, choice in zip(clashes, choices, strict=True) if choice]


def _sides(
    at: Meeting, clash: Clash, ours: Workspace, theirs: Workspace, base: Workspace, open_session: OpenSession
) -> Callable[[], Sides]:
    id_ = clash.node_id

    def side(workspace: Workspace, path: str | None) -> Side:
        there = path is not None and workspace.nodes.node(path) is not None
        return Side(workspace, id_, path if there else None, open_session)

    def make() -> Sides:
        new = clash.ours is Did.CREATED
        their_path = at.place(at.ours.created[id_]) if new else _path(theirs.snapshot.nodes, id_)
        mine = at.ours.created.get(id_, clash.path)
        gone = clash.ours is Did.DELETED
        return Sides(
            side(ours, None if gone else mine),
            side(theirs, their_path),
            side(base, _path(base.snapshot.nodes, id_)),
        )

    return make


def _path(nodes: NodeTable, id_: bytes) -> str | None:
    row = int(rows_of(nodes, id_matrix([id_], NODE_ID_BYTES))[0])
    return None if row < 0 else nodes.paths.text(row)


def _choice(at: Meeting, clash: Clash, answer: Any, workspace: Workspace) -> Choice | None:
    """What an answer means; None if it decides nothing."""
    if answer is None or answer is VersionSelection.Fail:
        return None
    if answer is VersionSelection.UseTheirs:
        return Choice(False)
    if answer is VersionSelection.UseOurs:
        return Choice(True) if ours_can_stand(at, clash) else None
    if clash.type is ConflictType.ZarrMetadataDoubleUpdate and isinstance(answer, bytes):
        return Choice(True, document=answer)
    if clash.type is ConflictType.ChunkDoubleUpdate and isinstance(answer, Sequence | np.ndarray):
        return _choice_of_chunks(clash, list(answer), workspace)
    raise _bad_answer(clash, answer)


def _choice_of_chunks(clash: Clash, answers: list[Any], workspace: Workspace) -> Choice | None:
    assert clash.chunks is not None
    if len(answers) != len(clash.chunks):
        raise InvalidInputError(
            f"`{clash.path}`: expected answers for {len(clash.chunks)} chunks, found {len(answers)}",
            ErrorKind.INVALID_COMMIT_CONFIGURATION,
        )
    selections = {VersionSelection.UseOurs: True, VersionSelection.UseTheirs: False}
    data = {
        row: answer
        for row, answer in enumerate(answers)
        if isinstance(answer, bytes | bytearray | memoryview)
    }
    kinds = [True if row in data else selections.get(answer, answer) for row, answer in enumerate(answers)]
    if any(kind is None or kind is VersionSelection.Fail for kind in kinds):
        return None
    if not all(isinstance(kind, bool | np.bool_) for kind in kinds):
        raise _bad_answer(clash, answers)
    ours = np.array(kinds, bool)
    if not data:
        return Choice(ours)
    at: list[Coords] = list(map(tuple, clash.chunks[list(data)].tolist()))
    refs: dict[Coords, ChunkRef | None] = dict(
        zip(at, map(workspace.chunks.store_bytes, data.values()), strict=True)
    )
    return Choice(ours, table_of(refs, clash.chunks.shape[1]))


def _bad_answer(clash: Clash, answer: Any) -> InvalidInputError:
    return InvalidInputError(
        f"no answer to {clash.type.name} at `{clash.path}`: {answer!r}. Expected a VersionSelection, bytes "
        "for metadata, or a sequence for chunks",
        ErrorKind.INVALID_COMMIT_CONFIGURATION,
    )
