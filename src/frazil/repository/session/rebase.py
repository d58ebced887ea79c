"""The rebase of a session, which moves its changes from their snapshot to the tip of the branch.

The rebase first compares all commits up to the tip together. Usually there are no conflicts. Then the rebase
only reads the transaction logs and one snapshot, whatever the number of commits. If a conflict stays
undecided, the rebase continues commit by commit, and stops before the commit that causes the conflict. The
decisions for earlier commits stay.

Before that, the rebase compares the reads of the session with all commits. No solver decides about reads. If
a read is stale, the session stays on its snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from frazil.changes.change_set import ChangeSet
from frazil.changes.conflicts import ConflictType, NodeConflict
from frazil.changes.node_alignment import NodeAlignment, align_nodes
from frazil.changes.node_changes import NodeChanges, node_changes_of_logs, rows_of
from frazil.changes.reads import NOTHING_READ, ReadSet, joined_reads, stale_reads
from frazil.changes.rebase import Resolution, is_whole, rebased
from frazil.errors import ErrorKind, RebaseFailedError, SessionStateError
from frazil.format.ids import NODE_ID_BYTES, id_matrix, id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import NodeTable
from frazil.repository.catalog.expired_versions import with_current
from frazil.repository.catalog.repo_requirements import CHANGES_STAY, branch_tip
from frazil.repository.session.commit_range import CommitLogs, commits_between, read_logs
from frazil.repository.session.conflict_answers import require_solver, solve
from frazil.repository.session.conflicts import Conflict, OpenSession
from frazil.repository.session.stale_reads import stale_error
from frazil.repository.session.workspace import Workspace


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
    with_current(
        workspace.context, lambda info: _rebase_to_tip(info, workspace, branch, solver, open_session, joined)
    )


def _rebase_to_tip(
    info: RepoInfo, workspace: Workspace, branch: str, solver: Any, open_session: OpenSession, reads: ReadSet
) -> None:
    commits = commits_between(info, workspace.snapshot_id, branch_tip(info, branch))
    if not commits:
        return
    conflicts = _rebase_over(workspace, commits, solver, open_session, reads)
    if conflicts and len(commits) > 1:
        for commit in commits:
            conflicts = _rebase_over(workspace, [commit], solver, open_session)
            if conflicts:
                raise RebaseFailedError(id_to_text(commit.snapshot), conflicts, CHANGES_STAY)
    elif conflicts:
        raise RebaseFailedError(id_to_text(commits[-1].snapshot), conflicts, CHANGES_STAY)


def _rebase_over(
    workspace: Workspace,
    commits: Sequence[CommitLogs],
    solver: Any,
    open_session: OpenSession,
    reads: ReadSet = NOTHING_READ,
) -> list[Conflict]:
    """Rebase over some commits.

    If the solver leaves a conflict undecided, return all conflicts and change nothing.
    """
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
    return []


def _outdated_manifests(
    own: ChangeSet, base: NodeTable, tip: NodeTable, theirs: NodeChanges
) -> list[Conflict]:
    """Return the conflicts of arrays that have prepared manifests and that theirs has changed.

    Any change of such an array is a conflict, because the manifests belong to the array before the change. No
    solver can decide these conflicts.
    """
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
    """Return our changes relative to the tip, or None if the decisions contradict each other.

    Raises ``SessionStateError`` (``merge-failed``) if the changes contradict each other, but the table of
    conflicts has no row for that.
    """
    changes = rebased(at, decided, base.ref_table)
    if not (decided or at.moves or at.theirs.moved) or is_whole(at, changes):
        return changes
    if decided:
        return None
    raise SessionStateError(
        "the changes of both sides cannot be combined: a node would have no group, or two nodes would have "
        "the same path. Make the changes again in a new session",
        ErrorKind.MERGE_FAILED,
    )
