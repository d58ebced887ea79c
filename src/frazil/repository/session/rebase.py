"""The rebase of a session, which moves its changes from their snapshot to the tip of the branch.

The rebase first compares the reads of the session, and then its changes, with all commits up to the tip
together. If a conflict stays undecided, it continues commit by commit, and stops before the one that causes
the conflict. The decisions for earlier commits stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from operator import index
from typing import Any, Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.conflicts import ConflictType, NodeAlignment, NodeConflict, align_nodes
from frazil.changes.diff import NodeChanges, node_changes_of_logs, rows_of
from frazil.changes.reads import NOTHING_READ, ReadSet, StaleRead, joined_reads, stale_reads
from frazil.changes.rebase import Resolution, is_whole, rebased
from frazil.changes.zarr_metadata import chunk_lengths
from frazil.errors import (
    ErrorKind,
    InvalidInputError,
    NodeNotFoundError,
    RebaseFailedError,
    SessionStateError,
    StaleReadError,
)
from frazil.format.columns import U32
from frazil.format.ids import NODE_ID_BYTES, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import Node, NodeTable
from frazil.repository.catalog.context import Context, with_current
from frazil.repository.catalog.repo_changes import CHANGES_STAY, branch_tip
from frazil.repository.paths import absolute
from frazil.repository.session.conflicts import Conflict, OpenSession, RepeatingSolver, require_solver, solve
from frazil.repository.session.differences import CommitLogs, commits_between, read_logs
from frazil.repository.session.workspace import Workspace

#: A declared read: a path, or the path of an array with a selection of its elements.
type Read = str | tuple[str, Any]


def declared_reads(reads: Sequence[Read | ReadSet], origin: Workspace, current: Workspace) -> list[ReadSet]:
    """Convert the declared reads of a session to read sets."""
    trees: set[str] = set()
    boxes: dict[str, list[U32]] = {}
    nodes = origin.snapshot.nodes
    for read in reads:
        if isinstance(read, ReadSet):
            continue
        name, selection = read if isinstance(read, tuple) and len(read) == 2 else (read, None)
        if not isinstance(name, str):
            raise TypeError(f"reads must be paths, or pairs of a path and a selection, got {read!r}")
        path = absolute(name)
        row, below = nodes.find_node(path), nodes.below(path)
        if row < 0 and path != "/" and below.start == below.stop:
            if current.node(path) is None:
                raise NodeNotFoundError(
                    f"reads must be paths of nodes that the session has or was opened with, got `{path}`"
                )
        elif selection is None:
            trees.add(path)
        else:
            box = chunk_box(origin.require_array(path), selection)
            boxes.setdefault(path, []).append(box)
    columns = {path: np.stack(corners) for path, corners in boxes.items()}
    read_set = ReadSet(trees=frozenset(trees), boxes=columns)
    return [*([read_set] if read_set else []), *(read for read in reads if isinstance(read, ReadSet))]


def chunk_box(node: Node, selection: Any) -> U32:
    """Return the box of chunks that hold a selection of an array's elements, (2, ndim), half-open."""
    lengths = node.array_data.shape
    parts = selection if isinstance(selection, tuple) else (selection,)
    ellipses = [number for number, part in enumerate(parts) if part is Ellipsis]
    at = ellipses[0] if ellipses else len(parts)
    head, tail = parts[:at], parts[at + 1 :]
    missing = len(lengths) - len(head) - len(tail)
    if missing < 0 or len(ellipses) > 1:
        raise _bad_selection(node.path, len(lengths), selection)
    axes = (*head, *[slice(None)] * missing, *tail)
    spans = [_span(node.path, each, length) for each, length in zip(axes, lengths, strict=True)]
    edges = chunk_lengths(node.user_data)
    bounds = [_chunks_of(*span, each) for span, each in zip(spans, edges, strict=True)]
    return np.array(bounds, np.uint32).reshape(len(lengths), 2).T


def _span(path: str, part: Any, length: int) -> tuple[int, int]:
    """Return the half-open range of elements of one dimension; (0, 0) if it is empty."""
    if isinstance(part, slice):
        try:
            numbers = range(*part.indices(length))
        except (TypeError, ValueError):
            raise _bad_selection(path, None, part) from None
        return (min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]) + 1) if numbers else (0, 0)
    try:
        number = index(part)
    except TypeError:
        raise _bad_selection(path, None, part) from None
    if isinstance(part, bool | np.bool_):
        raise _bad_selection(path, None, part)
    if not -length <= number < length:
        raise InvalidInputError(
            f"reads must select elements of `{path}`, got index {number} of {length} elements",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    return number % length, number % length + 1


def _chunks_of(low: int, high: int, edges: int | list[int]) -> tuple[int, int]:
    """Return the range of chunks of one dimension that hold the elements from ``low`` up to ``high``."""
    if low == high:
        return 0, 0
    if isinstance(edges, int):
        return low // edges, (high - 1) // edges + 1
    first, last = np.searchsorted(np.cumsum(edges), [low, high - 1], side="right").tolist()
    return first, last + 1


def _bad_selection(path: str, ndim: int | None, selection: Any) -> InvalidInputError:
    dimensions = "" if ndim is None else f" of at most {ndim} dimensions"
    return InvalidInputError(
        f"reads must select elements of `{path}` with slices and integers{dimensions}, got {selection!r}",
        ErrorKind.INVALID_CHUNK_INDEX,
    )


#: A message lists this number of stale reads, and the number of the others.
_LISTED: Final = 5


def require_unchanged(context: Context, reads: ReadSet, start: bytes, end: bytes) -> None:
    """Raise ``StaleReadError`` if commits after ``start``, up to ``end``, have changed one of ``reads``."""
    if start == end or not reads:
        return
    commits = commits_between(context.catalog.repo_info(), start, end)
    if stale := stale_in(context, reads, start, commits):
        raise stale_error(context, reads, start, commits, stale)


def stale_in(
    context: Context, reads: ReadSet, start: bytes, commits: Sequence[CommitLogs]
) -> list[StaleRead]:
    """Return the reads of the snapshot ``start`` that the commits have changed."""
    before, after = (context.assets.snapshot(id_).nodes for id_ in (start, commits[-1].snapshot))
    return stale_reads(reads, node_changes_of_logs(read_logs(context.assets, commits), before, after))


def stale_error(
    context: Context, reads: ReadSet, start: bytes, commits: Sequence[CommitLogs], stale: list[StaleRead]
) -> StaleReadError:
    """Return the error for the stale reads, with the first snapshot that changed one of them."""
    culprit = commits[-1].snapshot
    for commit in commits if len(commits) > 1 else ():
        if stale_in(context, reads, start, [commit]):
            culprit = commit.snapshot
            break
        start = commit.snapshot
    snapshot = id_to_text(culprit)
    listing = "; ".join(map(str, stale[:_LISTED]))
    rest = f"; and {len(stale) - _LISTED} more" if len(stale) > _LISTED else ""
    text = f"other writers changed data that this session has read, first in {snapshot}: {listing}{rest}"
    return StaleReadError(snapshot, stale, f"{text}. Read and write again in a new session")


def rebase(
    workspace: Workspace, branch: str, solver: Any, open_session: OpenSession, reads: Sequence[ReadSet] = ()
) -> None:
    """Rebase the changes of a workspace onto the tip of ``branch``.

    ``reads`` are compared in addition to the tracked reads of the workspace. Raises ``StaleReadError`` if
    other commits have changed a read; the workspace then stays on its snapshot. Raises ``RebaseFailedError``
    for an undecided conflict; the workspace is then on the last snapshot before it.
    """
    require_solver(solver)
    if workspace.reads is not None:
        reads = [*reads, workspace.reads.reads()]
    joined = joined_reads(reads)

    def to_tip(info: RepoInfo) -> None:
        commits = commits_between(info, workspace.snapshot_id, branch_tip(info, branch))
        if not commits:
            return
        conflicts = _rebase_over(workspace, commits, solver, open_session, joined)
        if conflicts and len(commits) > 1:
            for commit in commits:
                conflicts = _rebase_over(workspace, [commit], solver, open_session)
                if conflicts:
                    raise RebaseFailedError(id_to_text(commit.snapshot), conflicts, CHANGES_STAY)
        elif conflicts:
            raise RebaseFailedError(id_to_text(commits[-1].snapshot), conflicts, CHANGES_STAY)

    with_current(workspace.context, to_tip)


def _rebase_over(
    workspace: Workspace,
    commits: Sequence[CommitLogs],
    solver: Any,
    open_session: OpenSession,
    reads: ReadSet = NOTHING_READ,
) -> list[Conflict]:
    """Rebase over some commits."""
    context = workspace.context
    end = commits[-1].snapshot
    base = workspace.snapshot.nodes
    theirs_at_end = Workspace(context, end)
    tip = theirs_at_end.snapshot.nodes
    theirs = node_changes_of_logs(read_logs(context.assets, commits), base, tip)
    if stale := stale_reads(reads, theirs):
        raise stale_error(context, reads, workspace.snapshot_id, commits, stale)
    own = workspace.own_changes()
    if lost := _outdated_manifests(own, base, tip, theirs):
        return lost
    at = align_nodes(own, base, theirs, tip)
    conflicts, decided = solve(at, workspace, theirs_at_end, solver, open_session)
    if len(decided) < len(conflicts):
        return conflicts
    changes = carry_over(at, decided, Workspace(context, workspace.snapshot_id))
    if changes is None:
        return conflicts
    changes.ready = own.ready
    tracker = workspace.reads
    with nullcontext() if tracker is None else tracker.lock:
        # Other threads and solvers may have read more since the first comparison.
        late = NOTHING_READ if tracker is None else tracker.reads()
        if stale := stale_reads(late, theirs):
            raise stale_error(context, late, workspace.snapshot_id, commits, stale)
        workspace.rebase_onto(end, changes)
    if isinstance(solver, RepeatingSolver):
        solver.repeat(workspace)
    return []


def _outdated_manifests(
    own: ChangeSet, base: NodeTable, tip: NodeTable, theirs: NodeChanges
) -> list[Conflict]:
    """Return the conflicts of arrays that have prepared manifests and that theirs has changed."""
    ids = list(own.ready)
    if not ids:
        return []
    matrix = id_matrix(ids, NODE_ID_BYTES)
    rows, now = rows_of(base, matrix).tolist(), rows_of(tip, matrix).tolist()
    touched = theirs.chunks.keys() | theirs.updated.keys() | theirs.deleted.keys() | theirs.moved.keys()
    # Logs do not contain rewritten manifests, nor new arrays in a group that theirs has moved.
    same = [
        not theirs.moved if row < 0 else at >= 0 and base.node(row).array == tip.node(at).array
        for row, at in zip(rows, now, strict=True)
    ]
    return [
        Conflict(ConflictType.ChunkDoubleUpdate, own.ready[id_].path)
        for id_, is_same in zip(ids, same, strict=True)
        if id_ in touched or not is_same
    ]


def carry_over(
    at: NodeAlignment, decided: Sequence[tuple[NodeConflict, Resolution]], base: Workspace
) -> ChangeSet | None:
    """Return our changes relative to the tip, or None if the decisions contradict each other."""
    changes = rebased(at, decided, base.ref_table)
    if not (decided or at.moves or at.theirs.moved) or is_whole(at, changes):
        return changes
    if decided:
        return None
    raise SessionStateError(
        "the changes of both sides fit no tree of groups and arrays. Make yours again in a new session",
        ErrorKind.MERGE_FAILED,
    )
