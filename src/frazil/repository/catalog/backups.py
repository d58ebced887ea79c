"""Earlier versions of the file ``repo``, which every update leaves under ``overwritten/``.

A backup holds the repository as it was before an update. The names sort by the clock of the writer, newest
first; which of some is the latest state is what their ops logs say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from itertools import islice
from typing import Final

from frazil.errors import ErrorKind, FormatError, IcechunkError, RepositoryNotFoundError, StorageError
from frazil.format.keys import OVERWRITTEN, REPO, backup_key
from frazil.format.repo_info import RepoInfo, decode_repo_info, encode_repo_info
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.clock import to_datetime
from frazil.storage.base import Storage

_NAME: Final = re.compile(rf"{REPO}\.\d+\.\w+")
#: Among so many of the newest names the latest state is looked for: clocks of writers differ.
_CANDIDATES: Final = 8


@dataclass(frozen=True, slots=True)
class Backup:
    """An earlier version of the file ``repo``.

    ``name`` is what ``Repository.restore`` takes. ``written_at`` is when the storage got it, which was before
    the update that followed; ``size_bytes`` is the size of the file.
    """

    name: str
    written_at: datetime
    size_bytes: int


def backups(storage: Storage) -> list[Backup]:
    """Return all of them, newest first, by name."""
    objects = sorted((info.key.removeprefix(f"{OVERWRITTEN}/"), info) for info in storage.list(OVERWRITTEN))
    return [Backup(name, info.modified, info.size) for name, info in objects if _NAME.fullmatch(name)]


@dataclass(frozen=True, slots=True)
class BackupState:
    """What a backup holds."""

    name: str
    info: RepoInfo

    @property
    def newest_update(self) -> datetime:
        return to_datetime(newest_update(self.info))


def read_backup(storage: Storage, name: str) -> BackupState:
    """Raise ``StorageError`` or ``FormatError`` if it cannot be read from its beginning to its end."""
    key = backup_key(name)
    info = decode_repo_info(storage.get(key), key)
    try:
        encode_repo_info(info, level=1)  # decodes everything
    except FormatError:
        raise
    except IcechunkError as error:
        raise FormatError(f"{key}: {error.message}") from error
    return BackupState(name, info)


def latest_backup(storage: Storage) -> BackupState | None:
    """Return the backup with the latest state that can be read, or None if there is none."""
    names = (info.key.removeprefix(f"{OVERWRITTEN}/") for info in storage.list(OVERWRITTEN))
    ordered = iter(nsmallest(1 << 16, filter(_NAME.fullmatch, names)))
    while batch := list(islice(ordered, _CANDIDATES)):
        if states := list(_readable(storage, batch)):
            return max(states, key=lambda state: newest_update(state.info))
    return None


def _readable(storage: Storage, names: list[str]) -> Iterator[BackupState]:
    for name in names:
        with suppress(StorageError, FormatError):
            yield read_backup(storage, name)


def with_hint[E: IcechunkError](storage: Storage, error: E) -> E:
    """An error about a ``repo`` that is lost or damaged, with the way to get it back, if there is one."""
    state = None
    if error.kind != ErrorKind.UNSUPPORTED_SPEC_VERSION:  # then nothing is damaged
        with suppress(StorageError):  # the error itself says more
            state = latest_backup(storage)
    if state is None:
        return error
    return type(error)(
        f"{error.message}. The newest backup that can be read is `{backup_key(state.name)}`, of the update "
        f"at {state.newest_update.isoformat()}: `frazil.Repository.restore(storage)` puts it back",
        error.kind,
    )


@contextmanager
def hinting(storage: Storage) -> Iterator[None]:
    """``with_hint`` for what reads the ``repo`` of a repository that was there before."""
    try:
        yield
    except (FormatError, RepositoryNotFoundError) as error:
        raise with_hint(storage, error) from error.__cause__
