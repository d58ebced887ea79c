"""The methods of ``Repository`` that bring changes from one branch to another: merge, cherry-pick, revert.

All three methods take the changes between two versions, carry them to the tip of a branch as a rebase does,
and commit them there. The new commits are ordinary commits for every reader. Their metadata record under
``__frazil`` where the changes come from.
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
