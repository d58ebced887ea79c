"""Bringing changes from one branch to another: merge, cherry-pick, revert.

All three take the changes between two versions, carry them to the tip of a branch as a rebase does, and
commit them there. Commits are ordinary ones to every reader; under ``__frazil`` their metadata say where they
come from.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final

from frazil.errors import (
    ConflictError,
    ErrorKind,
    InternalError,
    SessionStateError,
    SnapshotNotFoundError,
)
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import repo_changes, repo_requirements
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.catalog.expired_versions import is_outdated, snapshots_wanted
from frazil.repository.catalog.lineage import FRAZIL
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import now_us
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.carried_changes import carry_changes
from frazil.repository.handle.integration_plan import (
    IntegrationPlan,
    plan_cherry_pick,
    plan_merge,
    plan_revert,
)
from frazil.repository.session.conflict_answers import require_solver
from frazil.repository.session.conflicts import ConflictDetector, ConflictSolver
from frazil.repository.session.session import Session
from frazil.repository.session.session_state import SessionState

_MICROSECOND: Final = timedelta(microseconds=1)
_TRIES: Final = 1000
_TOO_LATE: Final = {ErrorKind.COMMIT_CONFLICT, ErrorKind.BRANCH_UPDATE_CONFLICT}


class Integration(RepositoryBase):
    """Methods of ``Repository``."""

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
        """Do on the branch ``onto`` what a commit did to its parent; the id of the new commit.

        ``snapshot`` is its id, the first characters of that, or a branch or tag that leads to it. *Ours* is
        that commit, *theirs* what is different on the branch from the commit's parent. The message is that of
        the commit.

        Raises ``RebaseFailedError``; ``SessionStateError`` if the branch has all of it already
        (``no-changes-to-commit``), or if older versions were expired, so that what the commit did is not
        known any more (``rebase-tx-log-pruned``); ``InvalidInputError`` for the first snapshot, which has no
        parent.
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
        """Undo on the branch ``on`` what a commit did; the id of the new commit.

        What came after it stays: where that changed the same nodes or chunks it is a conflict, of *theirs*,
        with the undoing as *ours*. Nodes that the commit deleted come back with their ids. Raises as
        ``cherry_pick``.
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
        """Plan for the branch as it is, and commit the plan; again if another commit came first.

        A plan that is a snapshot id needs no commit.
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
        raise InternalError("merge ended without an attempt. This is a defect in Frazil: please report it")

    def _session_with_changes(
        self, info: RepoInfo, plan: IntegrationPlan, branch: str, tip: bytes, solver: ConflictSolver
    ) -> Session:
        """A session on the branch with the changes of a plan."""
        work = carry_changes(self._context, info, plan, tip, solver)
        expires_at = now_us() + self._context.settings.session_lifetime // _MICROSECOND
        metadata = dict(self._default_metadata)
        seen = newest_update(info)
        state = SessionState(work, branch, SessionMode.writable, expires_at, metadata, seen=seen)
        if plan.batches:
            state.note = partial(plan.recorded_metadata, branch)
        return Session(state)

    merge_async = awaitable(merge)
    cherry_pick_async = awaitable(cherry_pick)
    revert_async = awaitable(revert)
