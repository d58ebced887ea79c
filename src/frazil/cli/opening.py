"""From the text of a target to a storage, a repository, and one version of the repository.

A command imports what it needs. The history, the branches and the tags are in one file, ``repo``. To look at
nodes, a command opens the context of the repository, and to change it, the class `Repository`, whose methods
import all maintenance.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import click

import frazil
from frazil.cli.command import AUTHOR
from frazil.cli.target import Target
from frazil.cli.version_text import MAIN, VersionText, parse_version
from frazil.errors import ErrorKind, FormatError, InvalidInputError, RepositoryNotFoundError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.lazy_names import value_of
from frazil.repository.catalog.history import at_time
from frazil.repository.catalog.missing_names import no_version
from frazil.repository.catalog.repo_info_file import RepoInfoCache, open_current_repo_info
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.clock import from_datetime
from frazil.storage.base import Storage
from frazil.storage.profiles import profile_of
from frazil.storage.urls import storage_from_url

if TYPE_CHECKING:
    from frazil.repository.catalog.context import Context
    from frazil.repository.handle.repository import Repository
    from frazil.storage.credential_families import AnyCredential

_OPENING: Final = "frazil.repository.handle.opening"
_ENVIRONMENT: Final = "frazil.storage.access:environment_access"
#: The variable with the URL prefixes of virtual chunks that commands may read, separated by spaces.
VIRTUAL_ACCESS: Final = "FRAZIL_VIRTUAL_ACCESS"


@dataclass(frozen=True)
class OpenVersion:
    """One version of a repository.

    Attributes:
        storage: The storage of the repository.
        info: The refs and snapshots of the repository.
        raw_id: The id of the snapshot as bytes.
        path: The path of the target, ``/`` without one.
    """

    storage: Storage
    info: RepoInfo
    raw_id: bytes
    path: str

    @property
    def id(self) -> str:
        """The id of the snapshot as text."""
        return id_to_text(self.raw_id)

    @cached_property
    def context(self) -> Context:
        """The context of the repository, for its nodes and chunks."""
        opening = value_of(_OPENING)
        if self.info.spec_version == 1:
            return _context_of(self.storage)
        options = opening.HandleOptions(authorized=virtual_access())
        context: Context = opening.opened_before(self.storage, options, self.info)
        return context

    @cached_property
    def repo(self) -> Repository:
        """The repository, with all its methods."""
        return frazil.Repository(self.context)


def storage_of(target: Target) -> Storage:
    """Return the storage of a target's location, which may be the name of a profile."""
    profile = profile_of(target.location)
    return storage_from_url(profile.location, profile.options)


def context_at(target: Target) -> Context:
    """Open the context of the repository at a target's location."""
    return _context_of(storage_of(target))


def repo_info_of(storage: Storage) -> RepoInfo:
    """Read the refs and snapshots of a repository, of spec version 1 too."""
    try:
        info = open_current_repo_info(storage, RepoInfoCache())
        info.snapshots  # noqa: B018  # decoded here, because most commands need them
        return info
    except (FormatError, RepositoryNotFoundError):
        return _context_of(storage).catalog.repo_info()  # spec version 1, or an error with advice


def repository_of(target: Target) -> Repository:
    """Open the repository at a target's location."""
    return open_repository(storage_of(target))


def open_repository(storage: Storage, *, create: bool = False) -> Repository:
    """Open the repository of a storage, or create it. Its commits have the author of the command."""
    open_ = frazil.Repository.open_or_create if create else frazil.Repository.open
    repo = open_(storage, authorize_virtual_chunk_access=virtual_access())
    repo.set_default_commit_metadata(author_metadata())
    return repo


def author_metadata() -> dict[str, Any]:
    """Return the metadata with the author of the command's commits: ``--author`` or ``FRAZIL_AUTHOR``."""
    context = click.get_current_context(silent=True)
    name = context and context.meta.get(AUTHOR)
    return {"author": name} if name else {}


def virtual_access() -> dict[str, AnyCredential] | None:
    """Return the prefixes of virtual chunks that the environment allows, with its credentials; or None."""
    prefixes = os.environ.get(VIRTUAL_ACCESS, "").split()
    return {each: value_of(_ENVIRONMENT)(each) for each in prefixes} or None


def open_version(target: Target, default: str = MAIN) -> OpenVersion:
    """Open the repository of a target, and find the version that it names."""
    storage = storage_of(target)
    info = repo_info_of(storage)
    return OpenVersion(storage, info, version_id(info, target.version or default), target.path or "/")


def version_id(info: RepoInfo, text: str) -> bytes:
    """Return the id of the snapshot that the text of a version means."""
    exact = find_snapshot(text, lambda: info)
    id_ = _ancestor(info, parse_version(text), text) if exact is None else exact
    require_snapshot(info, id_)
    return id_


def branch_of(repo: Repository, target: Target) -> str:
    """Return the branch that a command changes: the version of its target, which must be a branch."""
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


def _context_of(storage: Storage) -> Context:
    opening = value_of(_OPENING)
    options = opening.HandleOptions(authorized=virtual_access())
    context: Context = opening.open_context(storage, options)
    return context
