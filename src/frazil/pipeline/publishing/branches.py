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
from frazil.jobs.versions import takes_versions
from frazil.repository.catalog.history import is_in_history
from frazil.repository.catalog.presentation import snapshot_infos
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository


@takes_versions
def publish(repo: Repository, branch: str, onto: str = "main", *, tag: str | None = None) -> str:
    """Fast-forward the branch ``onto`` to the tip of ``branch``. Returns the id of the snapshot.

    Nothing moves if ``onto`` has all commits of ``branch`` already. ``tag`` is a name for the snapshot.

    Raises ``ConflictError`` (``branch-update-conflict``) if ``onto`` has commits that ``branch`` does not
    have, or gets some at this moment: ``repo.merge(branch, into=onto)`` brings both together, unchecked.

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
                f"expected `{onto}` to be in the history of `{branch}`, found commits of its own: to bring "
                f'both together use repo.merge("{branch}", into="{onto}")',
                ErrorKind.BRANCH_UPDATE_CONFLICT,
            )
        repo.reset_branch(onto, snapshot_id, from_snapshot_id=onto_tip)
    if tag is not None and not is_tagged:
        repo.create_tag(tag, snapshot_id)
    return snapshot_id


@takes_versions
def rollback_to(repo: Repository, branch: str, to: str | datetime) -> str:
    """Move a branch back to a version of its own past. Returns the id of the snapshot.

    ``to`` is a snapshot, a tag, or a time, for the last version at that time. Later versions stay in the
    repository until they expire; ``repo.ops_log()`` lists the move. Raises ``InvalidInputError``
    (``invalid-snapshot-id``) for a snapshot that is not in the history of the branch,
    ``SnapshotNotFoundError`` for a time before the first, and ``ConflictError`` if somebody commits at this
    moment.

    >>> import frazil
    >>> from frazil.pipeline import rollback_to
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> first = repo.lookup_branch("main")
    >>> later = repo.writable_session("main").commit("nothing new", allow_empty=True)
    >>> rollback_to(repo, "main", first) == repo.lookup_branch("main") == first
    True
    """
    tip = repo.lookup_branch(branch)
    if isinstance(to, datetime):
        snapshot_id = _snapshot_at(repo, branch, to)
    else:
        snapshot_id = repo.lookup_tag(to) if to in repo.list_tags() else repo.lookup_snapshot(to).id
        if not is_in_history(
            context_of(repo).catalog.repo_info(), id_from_text(snapshot_id), id_from_text(tip)
        ):
            raise InvalidInputError(
                f"expected a snapshot in the history of `{branch}`, found {to}, which is not; to let the "
                "branch point there anyway use repo.reset_branch",
                ErrorKind.INVALID_SNAPSHOT_ID,
            )
    if snapshot_id != tip:
        repo.reset_branch(branch, snapshot_id, from_snapshot_id=tip)
    return snapshot_id


def _snapshot_at(repo: Repository, branch: str, time: datetime) -> str:
    """The last snapshot of a branch at a time."""
    if time.tzinfo is None:
        raise InvalidInputError(
            f"expected a time with a time zone, found {time.isoformat()}", ErrorKind.INVALID_ARGUMENT
        )
    infos = repo.ancestry(branch=branch)
    snapshot_id = next((info.id for info in infos if info.written_at <= time), None)
    if snapshot_id is None:
        raise SnapshotNotFoundError(
            f"no snapshot of `{branch}` is as old as {time.isoformat()}", ErrorKind.NO_SNAPSHOT_AT_TIME
        )
    return snapshot_id


def commits_ahead(repo: Repository, branch: str, base: str) -> list[SnapshotInfo]:
    """The commits of a branch that the branch ``base`` does not have, newest first."""
    info = context_of(repo).catalog.repo_info()
    snapshots = info.snapshots
    base_rows, rows = (
        snapshots.chain(snapshots.find_snapshot(branch_tip(info, name))) for name in (base, branch)
    )
    common = np.flatnonzero(np.isin(rows, base_rows))
    return snapshot_infos(list(snapshots.entries(rows[: common[0]] if len(common) else rows)))


def is_behind(repo: Repository, branch: str, other: str) -> bool:
    """Whether the tip of a branch is in the history of another."""
    info = context_of(repo).catalog.repo_info()
    return is_in_history(info, branch_tip(info, branch), branch_tip(info, other))


def require_new_tag(repo: Repository, tag: str | None) -> None:
    """Raise ``AlreadyExistsError`` for a tag that cannot be created.

    It is called before a branch moves: afterwards the version would be published without its tag.
    """
    if tag is None:
        return
    if tag in repo.list_tags():
        raise AlreadyExistsError(
            f"tag: expected a new name, found `{tag}` at {repo.lookup_tag(tag)}", ErrorKind.TAG_ALREADY_EXISTS
        )
    if tag in context_of(repo).catalog.repo_info().deleted_tags:
        raise AlreadyExistsError(
            f"tag: expected a new name, found `{tag}`, which was deleted and is never used again",
            ErrorKind.TAG_ALREADY_EXISTS,
        )


def create_tag_once(repo: Repository, tag: str | None, snapshot_id: str) -> None:
    """Create a tag that does not exist. An earlier run may have created it."""
    if tag is not None and tag not in repo.list_tags():
        repo.create_tag(tag, snapshot_id)
