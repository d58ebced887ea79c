"""The backups: earlier versions of the file ``repo``, which every update stores under ``overwritten/``.

A backup has the state of the repository before an update. The names sort by the clock of the writer, newest
first. Clocks differ, so only the ops logs in the backups tell which of them has the latest state.
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
from frazil.format.ids import OVERWRITTEN, REPO, backup_key
from frazil.format.repo_info import RepoInfo, decode_repo_info, encode_repo_info
from frazil.remedies import call
from frazil.repository.catalog.repo_update import newest_update
from frazil.repository.clock import to_datetime
from frazil.storage.base import Storage
from frazil.storage.checks import require_whole, skip_damage

_NAME: Final = re.compile(rf"{REPO}\.\d+\.\w+")
#: The search for the latest state reads this number of backups at a time, because clocks of writers differ.
_CANDIDATES: Final = 8


@dataclass(frozen=True, slots=True)
class Backup:
    """An earlier version of the file ``repo``.

    Attributes:
        name: The name, for ``Repository.upkeep.restore``.
        written_at: When the backup was stored, before the update that replaced this version.
        size_bytes: The size of the file in bytes.
    """

    name: str
    written_at: datetime
    size_bytes: int


def backups(storage: Storage) -> list[Backup]:
    """Return all backups, newest first by their names."""
    objects = sorted((info.key.removeprefix(f"{OVERWRITTEN}/"), info) for info in storage.list(OVERWRITTEN))
    return [Backup(name, info.modified, info.size) for name, info in objects if _NAME.fullmatch(name)]


@dataclass(frozen=True, slots=True)
class BackupState:
    """The content of a backup."""

    name: str
    info: RepoInfo

    @property
    def newest_update(self) -> datetime:
        """The time of the last update in the backup."""
        return to_datetime(newest_update(self.info))


def read_backup(storage: Storage, name: str) -> BackupState:
    """Read and decode a whole backup. Raises ``StorageError`` or ``FormatError`` if that fails."""
    key = backup_key(name)
    data = storage.get(key)
    try:
        info = decode_repo_info(data, key)
        encode_repo_info(info, level=1)  # this decodes all fields
    except FormatError:
        require_whole(storage, key, data)
        raise
    except IcechunkError as error:
        raise FormatError(f"{key}: {error.message}") from error
    return BackupState(name, info)


def latest_backup(storage: Storage) -> BackupState | None:
    """Return the readable backup with the latest state, or None if there is none.

    Raises ``StorageError`` if the storage does not return a backup, which may have the latest state.
    """
    names = (info.key.removeprefix(f"{OVERWRITTEN}/") for info in storage.list(OVERWRITTEN))
    ordered = iter(nsmallest(1 << 16, filter(_NAME.fullmatch, names)))
    while batch := list(islice(ordered, _CANDIDATES)):
        if states := list(_readable(storage, batch)):
            return max(states, key=lambda state: newest_update(state.info))
    return None


def _readable(storage: Storage, names: list[str]) -> Iterator[BackupState]:
    for name in names:
        with skip_damage():
            yield read_backup(storage, name)


def with_restore_advice[E: IcechunkError](storage: Storage, error: E) -> E:
    """Return an error about a lost or damaged ``repo``, with advice to restore the newest readable backup."""
    state = None
    if error.kind != ErrorKind.UNSUPPORTED_SPEC_VERSION:  # in that case the file is not damaged
        with suppress(StorageError):  # the first error is more useful
            state = latest_backup(storage)
    if state is None:
        return error
    return type(error)(
        f"{error.problem}. The newest backup that can be read is `{backup_key(state.name)}`, of the update "
        f"at {state.newest_update.isoformat()}",
        error.kind,
    ).with_remedy("`{}` restores it", call("restore"))


@contextmanager
def restore_advice(storage: Storage) -> Iterator[None]:
    """Apply ``with_restore_advice`` to the errors of a block that reads an existing ``repo``."""
    try:
        yield
    except (FormatError, RepositoryNotFoundError) as error:
        raise with_restore_advice(storage, error) from error.__cause__
