"""The state of the forks of a session, and the merge of their changes."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.changes.merge import check_forks
from frazil.errors import ErrorKind, SessionStateError
from frazil.format.ids import id_to_text
from frazil.repository.catalog.leases import Lease
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.session.read_tracker import ReadTracker
from frazil.repository.session.session_state import SessionState
from frazil.repository.session.workspace import Workspace


def fork_state(state: SessionState) -> SessionState:
    """Return the state of a new fork, which contains all changes of the session until now."""
    workspace = state.workspace
    # Other threads wait for this lock. Their chunks are durable before the fork, or are written after it.
    with workspace.commit_lock:
        workspace.writer.flush()
        _seal_changes(state)
        if state.lease is None:
            since = state.session_start().since
            state.lease = Lease.take(workspace.context.storage, since, state.ends(), name=state.name)
        forked = Workspace(
            workspace.context,
            workspace.snapshot_id,
            workspace.all_changes(),
            reads=None if workspace.reads is None else ReadTracker(),
        )
    return SessionState(
        forked,
        None,
        state.mode,
        state.ends(),
        generation=state.generation,
        session_id=state.session_id,
        seen=state.seen,
        lease=state.lease,
    )


def merge_fork_states(state: SessionState, others: Sequence[SessionState]) -> None:
    """Merge the changes and the tracked reads of forks into a session. The caller holds its commit lock."""
    for other in others:
        _require_mergeable(state, other)
    # A repeated fork and the session itself add nothing.
    forks = list({id(other.workspace): other for other in others}.values())
    forks = [fork for fork in forks if fork is not state]
    trackers = [fork.workspace.reads for fork in forks]
    forks = [fork for fork in forks if fork.workspace.has_changes]
    if forks:
        _merge_changes(state, forks)
    if state.workspace.reads is not None:
        for tracker in filter(None, trackers):
            state.workspace.reads.add(tracker.reads())


def _merge_changes(state: SessionState, forks: Sequence[SessionState]) -> None:
    changes = [fork.workspace.durable_changes() for fork in forks]
    _seal_changes(state)
    twins = check_forks(changes, state.merged, [fork.generation for fork in forks])
    state.workspace.merge_changes(changes, twins)
    state.expires_at = min(state.expires_at, *(fork.ends() for fork in forks))
    state.seen = min(state.seen, *(fork.seen for fork in forks))
    for each in changes:
        state.merged.add(state.generation, each)
    state.generation += 1


def _seal_changes(state: SessionState) -> None:
    """Seal the changes since the last fork or merge. Earlier forks do not contain them."""
    if state.workspace.changes:
        state.merged.add(state.generation, state.workspace.changes)
        state.generation += 1
        state.workspace.seal_changes()


def _require_mergeable(state: SessionState, other: SessionState) -> None:
    _require_same_mode(state.mode, other.mode)
    snapshot_id, workspace = state.workspace.snapshot_id, other.workspace
    if workspace.snapshot_id != snapshot_id:
        raise SessionStateError(
            f"the fork must be of snapshot {id_to_text(snapshot_id)}, as the session, got a fork of "
            f"{id_to_text(workspace.snapshot_id)}. Merge forks before a rebase, into the session "
            "that created them",
            ErrorKind.MERGE_NOT_ALLOWED,
        )
    if other.generation < state.discarded_before and workspace.inherited:
        raise SessionStateError(
            "the session has discarded changes that this fork contains. Fork the session and write again",
            ErrorKind.MERGE_NOT_ALLOWED,
        )


def _require_same_mode(mode: SessionMode, other: SessionMode) -> None:
    if mode is not other:
        kinds = {
            SessionMode.rearrange: ErrorKind.REARRANGE_SESSION_ONLY,
            SessionMode.writable: ErrorKind.NON_REARRANGE_SESSION,
        }
        raise SessionStateError(
            f"the fork must be of a {mode.name} session, got a fork of a {other.name} session",
            kinds.get(mode, ErrorKind.MERGE_NOT_ALLOWED),
        )
