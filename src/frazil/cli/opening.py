"""The repository of a target, opened as far as a command asks.

The history, the branches and the tags are in one file, ``repo``. To look at nodes, a command opens the
context of the repository, and to change it, the class `Repository`, whose methods import all maintenance. So
each step is an attribute of `OpenTarget`, which imports and reads what it needs.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import click

from frazil.cli.command import AUTHOR
from frazil.errors import FormatError, InvalidInputError, RepositoryNotFoundError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.ancestry import version_id
from frazil.repository.catalog.repo_changes import find_snapshot
from frazil.repository.catalog.repo_update import RepoInfoCache, open_current_repo_info
from frazil.repository.target import MAIN, Target
from frazil.storage.base import Storage
from frazil.storage.profiles import storage_of_location

if TYPE_CHECKING:
    from frazil.handle.repository import Repository
    from frazil.repository.catalog.context import Context
    from frazil.repository.session.session import Session
    from frazil.repository.session.workspace import Workspace


def storage_of(target: Target, dry_run: bool = False) -> Storage:
    """Return the storage of a target's location.

    A rehearsal (``dry_run``) makes the change with the same code, on an overlay of the storage whose writes
    stay in memory. So it shows the result or the error of the change itself.
    """
    storage = storage_of_location(target.location)
    if dry_run:
        from frazil.maintenance.repair.storages import Overlay

        return Overlay(storage)
    return storage


def author_metadata() -> dict[str, Any]:
    """Return the metadata with the author of the command's commits: ``--author`` or ``FRAZIL_AUTHOR``."""
    context = click.get_current_context(silent=True)
    name = context and context.meta.get(AUTHOR)
    return {"author": name} if name else {}


class OpenTarget:
    """A repository, and the version and node of it that a target names.

    Attributes:
        target: The target.
        storage: The storage of the repository.
    """

    def __init__(self, target: Target, storage: Storage | None = None, *, dry_run: bool = False) -> None:
        self.target = target
        self.storage: Final = storage_of(target, dry_run) if storage is None else storage

    @cached_property
    def info(self) -> RepoInfo:
        """The refs and snapshots of the repository, of spec version 1 too."""
        try:
            info = open_current_repo_info(self.storage, RepoInfoCache())
            info.snapshots  # noqa: B018  # decoded here, because most commands need them
            return info
        except (FormatError, RepositoryNotFoundError):
            return self.context.catalog.repo_info()  # spec version 1, or an error with advice

    @cached_property
    def context(self) -> Context:
        """The context of the repository, for its nodes and chunks."""
        from frazil.handle.addresses import virtual_access
        from frazil.handle.opening import HandleOptions, open_context, opened_before

        options = HandleOptions(authorized=virtual_access())
        known: RepoInfo | None = self.__dict__.get("info")
        if known is None or known.spec_version == 1:
            return open_context(self.storage, options)
        return opened_before(self.storage, options, known)

    @cached_property
    def repo(self) -> Repository:
        """The repository, with all its methods. Its commits have the author of the command."""
        from frazil.handle.repository import Repository

        repo = Repository(self.context)
        repo.set_default_commit_metadata(author_metadata())
        return repo

    @cached_property
    def raw_id(self) -> bytes:
        """The id of the snapshot that the target names."""
        return version_id(self.info, self.target.version or MAIN)

    @property
    def id(self) -> str:
        """The same id as text."""
        return id_to_text(self.raw_id)

    @property
    def path(self) -> str:
        """The path of the target, ``/`` without one."""
        return self.target.path or "/"

    @cached_property
    def workspace(self) -> Workspace:
        """The nodes and chunks of the version."""
        from frazil.repository.session.workspace import Workspace

        id_ = self.raw_id  # reads the refs, before the context
        return Workspace(self.context, id_)

    def session(self, id_: str | None = None) -> Session:
        """Return a session that reads the version, or another one."""
        from frazil.handle.sessions import readonly_session_of

        id_ = id_ or self.id
        return readonly_session_of(self.context, self.info, snapshot_id=id_)

    @cached_property
    def branch(self) -> str:
        """The branch that a command changes: the version of the target, which must be a branch."""
        branch = self.target.version or MAIN
        if branch in self.repo.list_branches():
            return branch
        raise InvalidInputError(
            f"the version of a change must be a branch, got {branch!r}. `frazil refs {self.target.location}` "
            "lists the branches"
        )

    def source(self, text: str) -> str:
        """Return a version as the methods of `Repository` accept it: a name as it is, or an id."""
        info = self.context.catalog.repo_info()
        return text if find_snapshot(text, lambda: info) is not None else id_to_text(version_id(info, text))
