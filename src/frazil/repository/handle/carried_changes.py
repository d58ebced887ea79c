"""Carrying the changes between two versions to the tip of a branch, as a rebase carries a session's changes.

A change that the tip already has never conflicts.
"""

from __future__ import annotations

from itertools import chain

from frazil.changes.change_set import ChangeSet
from frazil.changes.identical_changes import without_identical_changes
from frazil.changes.node_alignment import align_nodes
from frazil.changes.node_changes import NodeChanges, node_changes_of_logs
from frazil.changes.version_changes import VersionContent, change_set_between, exact_changes
from frazil.errors import RebaseFailedError
from frazil.format.ids import id_list, id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.context import Context
from frazil.repository.handle.integration_plan import IntegrationPlan
from frazil.repository.ids import new_node_id
from frazil.repository.session.commit_range import commits_between, read_logs
from frazil.repository.session.conflict_answers import solve
from frazil.repository.session.conflicts import ConflictSolver
from frazil.repository.session.rebase import carry_over
from frazil.repository.session.session import reading
from frazil.repository.session.workspace import Workspace


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
