"""Looking back: ancestors of a snapshot, the ops log, differences, the picture of the history."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.changes.diff import Changes, compose
from frazil.errors import ErrorKind, InvalidInputError, SnapshotNotFoundError
from frazil.format.ids import id_to_text
from frazil.format.keys import backup_key
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, decode_repo_info
from frazil.repository.assets import Assets
from frazil.repository.mutations import require_snapshot
from frazil.storage.base import Storage


def ancestry(info: RepoInfo, id_: bytes) -> Iterator[SnapshotEntry]:
    """The snapshot and all before it, newest first."""
    rows = info.snapshots.chain(require_snapshot(info, id_))
    return map(info.snapshots.entry, rows.tolist())


def at_time(info: RepoInfo, tip: bytes, when_us: int) -> bytes:
    """The newest snapshot of a branch's history that is not younger than ``when_us``."""
    rows = info.snapshots.chain(require_snapshot(info, tip))
    times = info.snapshots.flushed_at()[rows]
    old_enough = rows[times <= when_us]
    if not len(old_enough):
        raise SnapshotNotFoundError(
            f"no snapshot at or before {when_us} us: the first one is of {int(times[-1])} us",
            ErrorKind.NO_SNAPSHOT_AT_TIME,
        )
    return info.snapshots.id_of(int(old_enough[0]))


def ops_log(storage: Storage, info: RepoInfo) -> Iterator[OpsEntry]:
    """All operations, newest first; the older part is read from the backups as it is asked for."""
    while True:
        yield from map(info.ops.entry, range(len(info.ops)))
        if info.repo_before_updates is None:
            return
        key = backup_key(info.repo_before_updates)
        info = decode_repo_info(storage.get(key), key)


def difference(assets: Assets, info: RepoInfo, before: bytes, after: bytes) -> Changes:
    """What the commits after ``before``, up to ``after``, changed.

    Raises ``InvalidInputError`` (``bad-snapshot-chain-for-diff``) unless ``before`` is a strict ancestor of ``after``.
    """
    start, end = require_snapshot(info, before), require_snapshot(info, after)
    rows = info.snapshots.chain(end).tolist()
    if start == end or start not in rows:
        raise InvalidInputError(
            f"expected an ancestor of {id_to_text(after)} to compare with, found {id_to_text(before)}",
            ErrorKind.BAD_SNAPSHOT_CHAIN_FOR_DIFF,
        )
    ids = map(info.snapshots.id_of, reversed(rows[: rows.index(start)]))
    logs = [assets.transaction_log(id_) for id_ in ids]
    return compose(logs, assets.snapshot(before).nodes, assets.snapshot(after).nodes)




def graph_lines(info: RepoInfo, tips: dict[str, bytes]) -> list[str]:
    """The history of several refs as text: newest first, a lane for each line of descent.

    Lanes that come from the same snapshot meet there.
    """
    table = info.snapshots
    parents = table.parents()
    names: dict[int, list[str]] = {}
    reached: set[int] = set()
    for name, id_ in tips.items():
        row = require_snapshot(info, id_)
        names.setdefault(row, []).append(name)
        reached.update(table.chain(row).tolist())
    times = table.flushed_at()
    lanes: list[int] = []  # the snapshot that each lane waits for
    lines: list[str] = []
    for row in sorted(reached, key=lambda row: -int(times[row])):
        mine = [lane for lane, waits in enumerate(lanes) if waits == row]
        if not mine:
            lanes.append(row)
            mine = [len(lanes) - 1]
        lane, merged = mine[0], mine[1:]
        if merged:
            cells = ["│" if i not in merged else "╯" for i in range(len(lanes))]
            cells[lane] = "├"
            dashed = [("─" if lane <= i < merged[-1] else " ") for i in range(len(lanes))]
            lines.append("".join(map("".join, zip(cells, dashed, strict=True))).rstrip())
            for gone in reversed(merged):
                del lanes[gone]
        entry = table.entry(row)
        labels = f" ({', '.join(sorted(names[row]))})" if row in names else ""
        marks = " ".join("●" if i == lane else "│" for i in range(len(lanes)))
        lines.append(f"{marks} {id_to_text(entry.id)[:8]}{labels} {entry.message}")
        parent = int(parents[row])
        if parent < 0:
            del lanes[lane]
        else:
            lanes[lane] = parent
            lines.append(" ".join("│" for _ in lanes))
    return lines
