"""The history of a repository: the ancestors of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from frazil.errors import ErrorKind, SnapshotNotFoundError
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.clock import utc_text


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
