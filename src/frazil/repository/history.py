"""Looking back: ancestors of a snapshot, the ops log, differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from frazil.changes.diff import Changes, compose
from frazil.errors import ErrorKind, InvalidInputError, SnapshotNotFoundError, StorageError
from frazil.format.ids import id_to_text
from frazil.format.keys import backup_key
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, decode_repo_info
from frazil.format.transaction_log import TransactionLog
from frazil.repository.assets import Assets
from frazil.repository.mutations import require_snapshot
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


def difference(assets: Assets, info: RepoInfo, before: bytes, after: bytes) -> Changes:
    """What the commits after ``before``, up to ``after``, changed.

    Raises ``InvalidInputError`` (``bad-snapshot-chain-for-diff``) unless ``before`` is a strict ancestor of
    ``after``.
    """
    start, end = require_snapshot(info, before), require_snapshot(info, after)
    rows = info.snapshots.chain(end).tolist()
    if start == end or start not in rows:
        raise InvalidInputError(
            f"expected an ancestor of {id_to_text(after)} to compare with, found {id_to_text(before)}",
            ErrorKind.BAD_SNAPSHOT_CHAIN_FOR_DIFF,
        )
    logs = list(_logs(assets, info, reversed(rows[: rows.index(start)])))
    return compose(logs, assets.snapshot(before).nodes, assets.snapshot(after).nodes)


def _logs(assets: Assets, info: RepoInfo, rows: Iterable[int]) -> Iterator[TransactionLog]:
    """The transaction logs of snapshots, and before each those of its ancestors that were expired.

    Not all collectors of garbage know that the latter are still needed: what is gone is left out.
    """
    for entry in map(info.snapshots.entry, rows):
        for id_ in entry.pruned_ancestor_tx_logs:
            try:
                yield assets.transaction_log(id_)
            except StorageError as error:
                if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                    raise
        yield assets.transaction_log(entry.id)
