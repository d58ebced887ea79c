"""The history of a repository: the ancestors of a snapshot, and the ops log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from frazil.errors import ErrorKind, SnapshotNotFoundError
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry
from frazil.repository.catalog.files import older_ops_backup
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.clock import utc_text
from frazil.storage.base import Storage

#: A key of the metadata in the oldest backup of the ops log: the time of the newest operation that a
#: collection has removed, in microseconds since 1970.
OPS_START: Final = "frazil.ops_start"


def ancestry(info: RepoInfo, id_: bytes) -> Iterator[list[SnapshotEntry]]:
    """Return the snapshot and all its ancestors, newest first, in parts."""
    parts = info.snapshots.parts(require_snapshot(info, id_))
    return map(list, map(info.snapshots.entries, parts))


def is_in_history(info: RepoInfo, id_: bytes, of: bytes) -> bool:
    """Return whether a snapshot is the snapshot ``of``, or one of its ancestors."""
    row = info.snapshots.find_snapshot(id_)
    return any((rows == row).any() for rows in info.snapshots.parts(require_snapshot(info, of)))


def mentioning(
    info: RepoInfo, tip: bytes, name: str, text: str = "", *, until: bytes | None = None
) -> Iterator[SnapshotEntry]:
    """Yield the snapshot and its ancestors whose metadata have an item ``name``, newest first.

    With ``text``, the item must contain this text. The search ends before ``until``. Other metadata are not
    decoded.
    """
    snapshots = info.snapshots
    last = -1 if until is None else snapshots.find_snapshot(until)
    for rows in snapshots.parts(require_snapshot(info, tip)):
        end = np.flatnonzero(rows == last)  # no row is -1
        yield from snapshots.entries(snapshots.mentioning(rows[: end[0]] if len(end) else rows, name, text))
        if len(end):
            return


def at_time(info: RepoInfo, tip: bytes, when_us: int) -> bytes:
    """Return the newest snapshot at or before the time ``when_us`` in the history of ``tip``."""
    oldest = 0
    for rows in info.snapshots.parts(require_snapshot(info, tip)):
        times = info.snapshots.flushed_at()[rows]
        old_enough = rows[times <= when_us]
        if len(old_enough):
            return info.snapshots.id_of(int(old_enough[0]))
        oldest = int(times[-1]) if len(times) else oldest
    raise SnapshotNotFoundError(
        f"there is no snapshot at or before {utc_text(when_us)}: the first snapshot of this history is of "
        f"{utc_text(oldest)}. Pass this time or a later time",
        ErrorKind.NO_SNAPSHOT_AT_TIME,
    )


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
