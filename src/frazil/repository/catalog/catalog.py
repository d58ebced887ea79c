"""The catalog: the refs, snapshots, configuration and metadata of a repository, and their updates.

There are two implementations: one file ``repo`` in spec version 2 (``CatalogV2``), and many small files in
version 1 (``CatalogV1``). All other modules read ``RepoInfo`` values, and change them with pure functions
from one value to the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from frazil.errors import ErrorKind, FormatError, InternalError
from frazil.format.repo_info import RepoInfo
from frazil.remedies import call
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.backups import restore_advice
from frazil.repository.catalog.collection_guard import unless_collected
from frazil.repository.catalog.protection import with_protection
from frazil.repository.catalog.repo_update import (
    ConditionalChange,
    NewFiles,
    RepoChange,
    UpdateSettings,
    UpdateStart,
    begin_update,
    open_current_repo_info,
    update_repo_info,
)
from frazil.storage.base import Storage


class CommitStart(Protocol):
    """The state of the repository that a commit starts from."""

    @property
    def info(self) -> RepoInfo:
        """The repo info."""

    def save_backup(self, storage: Storage) -> None:
        """Write the backup that the update of the commit needs."""


class Catalog(ABC):
    """The methods of the catalogs of both spec versions."""

    __slots__ = ()

    #: The spec version of the repository: 1 or 2.
    spec_version: ClassVar[int]

    @abstractmethod
    def repo_info(self) -> RepoInfo:
        """Return the current repo info."""

    def full_repo_info(self) -> RepoInfo:
        """Return the current repo info with a table of all snapshots, for maintenance."""
        return self.repo_info()

    def update_repo_info(self, change: RepoChange) -> RepoInfo:
        """Change the repository. Return the new repo info. See ``repo_update``."""
        info = self._update(change)
        if info is None:
            raise InternalError("an update without a condition was given up")
        return info

    def update_full_repo_info(self, change: ConditionalChange) -> RepoInfo | None:
        """Change the repository with a change that needs the table of all snapshots.

        Return the new repo info. If ``change`` returns None, change nothing and return None.
        """
        return self._update(change)

    @abstractmethod
    def begin_commit(self) -> CommitStart:
        """Return the state that a commit starts from."""

    @abstractmethod
    def finish_commit(
        self, change: RepoChange, start: CommitStart, files: NewFiles | None = None
    ) -> RepoInfo | None:
        """Change the repository after the files of a commit and the backup of ``start`` are stored.

        The caller stores them before the call, or passes ``files``: then this method stores these files and
        the backup.

        Return the new repo info. If a garbage collection has run since ``start`` was read, or may have run,
        change nothing and return None.
        """

    @abstractmethod
    def _update(self, change: ConditionalChange) -> RepoInfo | None:
        """Try a change until it is stored. Return the new repo info, or None if ``change`` returned None."""


@dataclass(frozen=True, slots=True)
class CatalogV2(Catalog):
    """The catalog of spec version 2, in the file ``repo``."""

    storage: Storage
    assets: Assets
    settings: UpdateSettings
    #: The principal named in the handle's attribution.
    principal: str | None = None

    spec_version: ClassVar[int] = 2

    def repo_info(self) -> RepoInfo:
        """See ``Catalog.repo_info``."""
        with restore_advice(self.storage):
            info = open_current_repo_info(self.storage, self.assets.repo_info_cache)
            info.snapshots  # noqa: B018  # decoded here, so that damage gets the advice
            return info

    def begin_commit(self) -> UpdateStart:
        """See ``Catalog.begin_commit``."""
        with restore_advice(self.storage):
            return begin_update(self.storage, self.assets.repo_info_cache)

    def finish_commit(
        self, change: RepoChange, start: CommitStart, files: NewFiles | None = None
    ) -> RepoInfo | None:
        """See ``Catalog.finish_commit``."""
        at = start if isinstance(start, UpdateStart) else None
        return self._update(unless_collected(change, start.info), at, files)

    def _update(
        self, change: ConditionalChange, start: UpdateStart | None = None, files: NewFiles | None = None
    ) -> RepoInfo | None:
        change, cache = with_protection(change, self.principal), self.assets.repo_info_cache
        return update_repo_info(self.storage, change, self.settings, cache=cache, start=start, files=files)


def needs_version_2() -> FormatError:
    """Return the error for an operation that spec version 1 does not support."""
    return FormatError(
        "the repository must have spec version 2 for this operation, got version 1",
        ErrorKind.UNSUPPORTED_SPEC_VERSION,
    ).with_remedy("Upgrade it with `{}`", call("upgrade_icechunk_repository"))
