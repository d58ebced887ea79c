"""What a repository knows of its refs, snapshots and configuration, and the way to change it.

There are two: one file ``repo`` in spec version 2, and many small ones in version 1. Everything above sees
``RepoInfo`` values and hands in pure functions from one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from frazil.errors import ErrorKind, FormatError
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.backups import hinting
from frazil.repository.catalog.repo_update import Attempt, Change, begin, read_repo_info, update_repo_info
from frazil.repository.retries import RetryPolicy
from frazil.repository.settings.engine_settings import Effective
from frazil.storage.base import Storage


class Begun(Protocol):
    """What an attempt to change something starts from."""

    @property
    def info(self) -> RepoInfo: ...

    def save(self, storage: Storage) -> None:
        """Make the backup that the attempt needs."""


class Catalog(Protocol):
    """See the module."""

    @property
    def spec_version(self) -> int: ...

    def repo_info(self) -> RepoInfo:
        """As it is now."""

    def whole(self) -> RepoInfo:
        """As it is now, with a table of all snapshots."""

    def begin(self) -> Begun:
        """The first attempt of an update."""

    def update(self, change: Change, settings: Effective, begun: Begun | None) -> RepoInfo:
        """Change it; what it is then. See ``repository.update``."""

    def update_whole(self, change: Change, settings: Effective) -> RepoInfo:
        """``update`` for a change that needs the table of all snapshots."""


@dataclass(frozen=True, slots=True)
class CatalogV2:
    """The file ``repo``."""

    storage: Storage
    assets: Assets
    spec_version: int = 2

    def repo_info(self) -> RepoInfo:
        with hinting(self.storage):
            return read_repo_info(self.storage, self.assets.last_seen)[0]

    def whole(self) -> RepoInfo:
        return self.repo_info()

    def begin(self) -> Attempt:
        with hinting(self.storage):
            return begin(self.storage, self.assets.last_seen)

    def update(self, change: Change, settings: Effective, begun: Begun | None) -> RepoInfo:
        return update_repo_info(
            self.storage,
            change,
            policy=policy_of(settings),
            keep=settings.num_updates_per_repo_info_file,
            level=settings.compression_level,
            last_seen=self.assets.last_seen,
            begun=begun if isinstance(begun, Attempt) else None,
        )

    def update_whole(self, change: Change, settings: Effective) -> RepoInfo:
        return self.update(change, settings, None)


def policy_of(settings: Effective) -> RetryPolicy:
    retries = settings.repo_update_retries
    return RetryPolicy(retries.max_tries, retries.initial_backoff_ms, retries.max_backoff_ms)


def needs_version_2() -> FormatError:
    """For what spec version 1 does not have."""
    return FormatError(
        "this operation needs a repository of spec version 2, found version 1: "
        "upgrade it with frazil.upgrade_icechunk_repository",
        ErrorKind.UNSUPPORTED_SPEC_VERSION,
    )
