"""Branches that move: to the tip of another branch (`publish`), or back in the history (`rollback_to`)."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    InvalidInputError,
    SnapshotNotFoundError,
)
from frazil.format.ids import id_from_text
from frazil.jobs.job import takes_versions
from frazil.repository.catalog.ancestry import is_in_history
from frazil.repository.catalog.presentation import snapshot_infos
from frazil.repository.catalog.repo_changes import branch_tip
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.handle.repository import Repository, context_of


@takes_versions
def publish(repo: Repository, branch: str, onto: str = "main", *, tag: str | None = None) -> str:
    """Fast-forward a branch to the tip of another branch.

    The branch does not move if it has all commits of the other branch already.

    Args:
        repo: The repository.
        branch: The name of the branch with the new commits.
        onto: The name of the branch that moves.
        tag: The name of a tag to create for the snapshot. The default, None, creates no tag.

    Returns:
        The id of the snapshot that ``onto`` points to.

    Raises:
        ConflictError: ``onto`` has commits that ``branch`` does not have, or gets a commit during the call
            (``branch-update-conflict``). ``repo.merge(branch, into=onto)`` merges both branches without a
            check.
        AlreadyExistsError: The tag exists at another snapshot, or was deleted (``tag-already-exists``).

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import publish
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.create_branch("new", repo.lookup_branch("main"))
        >>> with repo.transaction("new", message="data") as store:
        ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> publish(repo, "new") == repo.lookup_branch("main") == repo.lookup_branch("new")
        True
    """
    onto_tip, branch_tip_id = repo.lookup_branch(onto), repo.lookup_branch(branch)
    is_published = is_behind(repo, branch, onto)
    snapshot_id = onto_tip if is_published else branch_tip_id
    is_tagged = tag in repo.list_tags() and repo.lookup_tag(str(tag)) == snapshot_id
    if not is_tagged:
        require_new_tag(repo, tag)
    if not is_published:
        if not is_behind(repo, onto, branch):
            raise ConflictError(
                onto_tip,
                branch_tip_id,
                f"`{onto}` must be in the history of `{branch}`, got commits on `{onto}` that `{branch}` "
                f'does not have. Merge both with repo.merge("{branch}", into="{onto}")',
                ErrorKind.BRANCH_UPDATE_CONFLICT,
            )
        repo.reset_branch(onto, snapshot_id, from_snapshot_id=onto_tip)
    if tag is not None and not is_tagged:
        repo.create_tag(tag, snapshot_id)
    return snapshot_id


@takes_versions
def rollback_to(repo: Repository, branch: str, to: str | datetime) -> str:
    """Move a branch back to a version in its history.

    Later versions stay in the repository until they expire. ``repo.ops_log()`` lists the move.

    Args:
        repo: The repository.
        branch: The name of the branch that moves.
        to: The id of a snapshot, the name of a tag, or a time with a time zone, which means the last version
            at that time.

    Returns:
        The id of the snapshot that the branch points to.

    Raises:
        InvalidInputError: The snapshot is not in the history of the branch (``invalid-snapshot-id``), or the
            time has no time zone (``invalid-argument``).
        SnapshotNotFoundError: The time is before the first snapshot (``no-snapshot-at-time``).
        ConflictError: Another writer commits to the branch during the call.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import rollback_to
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> first = repo.lookup_branch("main")
        >>> later = repo.writable_session("main").commit("nothing new", allow_empty=True)
        >>> rollback_to(repo, "main", first) == repo.lookup_branch("main") == first
        True
    """
    tip = repo.lookup_branch(branch)
    snapshot_id = rollback_target(repo, branch, to)
    if snapshot_id != tip:
        repo.reset_branch(branch, snapshot_id, from_snapshot_id=tip)
    return snapshot_id


def rollback_target(repo: Repository, branch: str, to: str | datetime) -> str:
    """Return the id of the snapshot that a branch is moved back to: see `rollback_to`."""
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise InvalidInputError(f"to must be a time with a time zone, got {to.isoformat()}")
        infos = repo.ancestry(branch=branch)
        last_id = next((info.id for info in infos if info.written_at <= to), None)
        if last_id is None:
            raise SnapshotNotFoundError(
                f"to must not be before the first snapshot of `{branch}`, got {to.isoformat()}",
                ErrorKind.NO_SNAPSHOT_AT_TIME,
            )
        return last_id
    snapshot_id = repo.lookup_tag(to) if to in repo.list_tags() else repo.lookup_snapshot(to).id
    info = context_of(repo).catalog.repo_info()
    if not is_in_history(info, id_from_text(snapshot_id), branch_tip(info, branch)):
        raise InvalidInputError(
            f"to must be a snapshot in the history of `{branch}`, got {to}. Use repo.reset_branch to "
            "move the branch to any snapshot",
            ErrorKind.INVALID_SNAPSHOT_ID,
        )
    return snapshot_id


def commits_ahead(repo: Repository, branch: str, base: str) -> list[SnapshotInfo]:
    """Return the commits of a branch that the branch ``base`` does not have, newest first."""
    info = context_of(repo).catalog.repo_info()
    snapshots = info.snapshots
    base_rows, rows = (
        snapshots.chain(snapshots.find_snapshot(branch_tip(info, name))) for name in (base, branch)
    )
    common = np.flatnonzero(np.isin(rows, base_rows))
    return snapshot_infos(list(snapshots.entries(rows[: common[0]] if len(common) else rows)))


def is_behind(repo: Repository, branch: str, other: str) -> bool:
    """Return whether the tip of a branch is in the history of another branch."""
    info = context_of(repo).catalog.repo_info()
    return is_in_history(info, branch_tip(info, branch), branch_tip(info, other))


def require_new_tag(repo: Repository, tag: str | None) -> None:
    """Raise ``AlreadyExistsError`` for a tag that cannot be created."""
    if tag is None:
        return
    if tag in repo.list_tags():
        raise AlreadyExistsError(
            f"tag must be a new name, got `{tag}`, which points to {repo.lookup_tag(tag)}",
            ErrorKind.TAG_ALREADY_EXISTS,
        )
    if tag in context_of(repo).catalog.repo_info().deleted_tags:
        raise AlreadyExistsError(
            f"tag must be a new name, got `{tag}`, which was deleted. A deleted tag cannot be created again",
            ErrorKind.TAG_ALREADY_EXISTS,
        )


def create_tag_once(repo: Repository, tag: str | None, snapshot_id: str) -> None:
    """Create a tag unless an earlier run has created it."""
    if tag is not None and tag not in repo.list_tags():
        repo.create_tag(tag, snapshot_id)
