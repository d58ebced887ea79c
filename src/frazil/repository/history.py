"""Looking back: ancestors of a snapshot, the ops log, differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

from frazil.changes.compare import compare
from frazil.changes.diff import Changes, compose
from frazil.errors import ErrorKind, SnapshotNotFoundError, StorageError
from frazil.format.keys import backup_key
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, decode_repo_info
from frazil.format.transaction_log import TransactionLog
from frazil.repository.assets import Assets
from frazil.repository.context import Context
from frazil.repository.mutations import require_snapshot
from frazil.repository.workspace import Workspace
from frazil.storage.base import Storage


def ancestry(info: RepoInfo, id_: bytes) -> Iterator[list[SnapshotEntry]]:
    """The snapshot and all before it, newest first, in parts."""
    parts = info.snapshots.parts(require_snapshot(info, id_))
    return map(list, map(info.snapshots.entries, parts))


def at_time(info: RepoInfo, tip: bytes, when_us: int) -> bytes:
    """The newest snapshot of a branch's history that is not younger than ``when_us``."""
    oldest = 0
    for rows in info.snapshots.parts(require_snapshot(info, tip)):
        times = info.snapshots.flushed_at()[rows]
        old_enough = rows[times <= when_us]
        if len(old_enough):
            return info.snapshots.id_of(int(old_enough[0]))
        oldest = int(times[-1]) if len(times) else oldest
    raise SnapshotNotFoundError(
        f"no snapshot at or before {when_us} us: the first one is of {oldest} us",
        ErrorKind.NO_SNAPSHOT_AT_TIME,
    )


def ops_log(storage: Storage, info: RepoInfo) -> Iterator[OpsEntry]:
    """All operations, newest first; the older part is read from the backups as it is asked for."""
    name: str | None = None
    while True:
        entries = map(info.ops.entry, range(len(info.ops)))
        # What does not say where it is, is in this file: its newest, and all that came by an upgrade.
        yield from (replace(entry, backup_path=entry.backup_path or name) for entry in entries)
        name = info.repo_before_updates
        if name is None:
            return
        key = backup_key(name)
        info = decode_repo_info(storage.get(key), key)


def difference(context: Context, info: RepoInfo, before: bytes, after: bytes) -> Changes:
    """What changed from one snapshot to another.

    Where ``before`` is an ancestor of ``after`` their logs tell all that the commits in between did. Two
    others, on different branches say, are compared as they are.
    """
    start, end = require_snapshot(info, before), require_snapshot(info, after)
    rows = info.snapshots.chain(end).tolist()
    old, new = Workspace(context, before), Workspace(context, after)
    if start == end or start not in rows:
        return compare(old.base, new.base, old.table, new.table)
    groups = list(map(partial(_logs, context.assets), map(info.snapshots.entry, rows[: rows.index(start)])))
    oldest_first = list(chain.from_iterable(reversed(groups)))
    return compose(oldest_first, old.base, new.base, list(chain.from_iterable(groups)))


def _logs(assets: Assets, entry: SnapshotEntry) -> list[TransactionLog]:
    """The transaction logs of a snapshot's ancestors that were expired, oldest first, and its own.

    Not all collectors of garbage know that the former are still needed: what is gone is left out.
    """
    logs = []
    for id_ in entry.pruned_ancestor_tx_logs:
        try:
            logs.append(assets.transaction_log(id_))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
    return [*logs, assets.transaction_log(entry.id)]
