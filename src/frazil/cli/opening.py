"""From the text of a target to a storage, a repository, and one version of the repository."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.cli.profiles import profile_of
from frazil.cli.target import Target
from frazil.cli.version_text import MAIN, VersionText, parse_version
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.history import at_time
from frazil.repository.catalog.missing_names import no_version
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.clock import from_datetime
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.storage.base import Storage
from frazil.storage.urls import storage_from_url


@dataclass(frozen=True, slots=True)
class OpenVersion:
    """One version of a repository.

    Attributes:
        repo: The repository.
        id: The id of the snapshot.
        name: The version in words: ``main``, ``dev~3``.
        path: The path of the target, ``/`` without one.
    """

    repo: Repository
    id: str
    name: str
    path: str


def storage_of(target: Target) -> Storage:
    """Return the storage of a target's location, which may be the name of a profile."""
    profile = profile_of(target.location)
    return storage_from_url(profile.location, profile.options)


def repository_of(target: Target) -> Repository:
    """Open the repository at a target's location."""
    return Repository.open(storage_of(target))


def open_version(target: Target, default: str = MAIN) -> OpenVersion:
    """Open the repository of a target, and find the version that it names.

    Raises:
        RefNotFoundError: ``ref-not-found`` for a name that is no branch, no tag and no id.
        SnapshotNotFoundError: ``snapshot-not-found`` for an unknown id, and for ``~N`` before the first
            version.
    """
    repo = repository_of(target)
    name = target.version or default
    return OpenVersion(repo, version_id(repo, name), name, target.path or "/")


def version_id(repo: Repository, text: str) -> str:
    """Return the id of the snapshot that the text of a version means."""
    info = context_of(repo).catalog.repo_info()
    exact = find_snapshot(text, lambda: info)
    return id_to_text(_ancestor(info, parse_version(text), text) if exact is None else exact)


def branch_of(repo: Repository, target: Target) -> str:
    """Return the branch that a command changes: the version of its target, which must be a branch.

    Raises:
        InvalidInputError: ``invalid-argument`` for a version that is no branch.
    """
    branch = target.version or MAIN
    if branch in repo.list_branches():
        return branch
    raise InvalidInputError(
        f"the version of a change must be a branch, got {branch!r}. `frazil refs {target.location}` lists "
        "the branches",
        ErrorKind.INVALID_ARGUMENT,
    )


def _ancestor(info: RepoInfo, version: VersionText, text: str) -> bytes:
    id_ = find_snapshot(version.name, lambda: info)
    if id_ is None:
        raise no_version(info, version.name)
    if version.time is not None:
        id_ = at_time(info, id_, from_datetime(version.time))
    steps = version.back
    for rows in info.snapshots.parts(require_snapshot(info, id_)):
        if steps < len(rows):
            return info.snapshots.id_of(int(rows[steps]))
        steps -= len(rows)
    raise InvalidInputError(
        f"the history of `{text.rpartition('~')[0] or MAIN}` must have more than {version.back} versions, "
        f"got {version.back - steps}",
        ErrorKind.INVALID_ARGUMENT,
    )
