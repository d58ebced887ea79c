"""The ops log of a repository: its newest part in ``repo``, and older parts in the backups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from frazil.errors import FormatError
from frazil.format.keys import backup_key
from frazil.format.repo_info import OpsEntry, RepoInfo, decode_repo_info
from frazil.storage.base import Storage

#: A key of the metadata in the oldest backup of the ops log: the time of the newest operation that a
#: collection has removed, in microseconds since 1970.
OPS_START: Final = "frazil.ops_start"


def ops_log(storage: Storage, info: RepoInfo) -> Iterator[OpsEntry]:
    """Yield all operations, newest first. Older parts are read from the backups when they are needed."""
    for name, part in ops_parts(storage, info):
        yield from entries_of(name, part)


def ops_parts(storage: Storage, info: RepoInfo) -> Iterator[tuple[str | None, RepoInfo]]:
    """Yield the files with the parts of the ops log, newest first. The name of ``repo`` is None."""
    name: str | None = None
    while True:
        yield name, info
        older = older_ops_backup(storage, info)
        if older is None:
            return
        name, info = info.repo_before_updates, older


def entries_of(name: str | None, info: RepoInfo) -> Iterator[OpsEntry]:
    """Return the operations of one part of the ops log, newest first."""
    entries = map(info.ops.entry, range(len(info.ops)))
    # An entry without a path is in this file: the newest, and all entries that an upgrade has written.
    return (replace(entry, backup_path=entry.backup_path or name) for entry in entries)


def ops_start(info: RepoInfo) -> int | None:
    """Return the time of the newest operation that was removed before the oldest part of the ops log.

    None means that ``info`` is not the oldest part, or that no operation was removed.
    """
    start = info.metadata.get(OPS_START)
    return start if info.repo_before_updates is None and isinstance(start, int) else None


def older_ops_backup(storage: Storage, info: RepoInfo) -> RepoInfo | None:
    """Return the backup with the next older part of the ops log, or None if ``info`` has the oldest part.

    A backup has no id. But all its updates must be older than the updates of the file that names it;
    otherwise the function raises ``FormatError``. So a loop over the backups always ends.
    """
    if info.repo_before_updates is None:
        return None
    key = backup_key(info.repo_before_updates)
    older = decode_repo_info(storage.get(key), key)
    if len(older.ops) and len(info.ops) and older.ops.updated_at[0] >= info.ops.updated_at[-1]:
        raise FormatError(
            f"{key}: the updates must be before {info.ops.updated_at[-1]} us, got an update at "
            f"{older.ops.updated_at[0]} us. The file has the name of another file. Restore it from a copy"
        )
    return older
