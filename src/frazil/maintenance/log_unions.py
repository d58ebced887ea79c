"""Unions of the transaction logs of removed versions, so that their number does not grow for ever.

A version whose ancestors were removed has a list of their transaction logs, which comparisons and rebases
need. The specification does not say that these are the logs of single commits. So a collection writes the
union of old logs that follow each other, and puts its id in their place. Comparisons still see all changes.

A log stays alone if somebody may name its version: a session or a stream that started there, for 30 days
after the next commit; a ref; a record of a job or of a streaming query. Logs that moved nodes stay as well.
An operation that names another removed version gets an error, and never an incomplete answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.log import union_of_logs
from frazil.format.columns import I64, U8, Ragged
from frazil.format.ids import OBJECT_ID_BYTES, id_list, id_matrix, ids_among
from frazil.format.keys import transaction_key
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot_table import SnapshotTable
from frazil.format.transaction_log import TransactionLog, encode_transaction_log
from frazil.maintenance.collapse import with_lists
from frazil.maintenance.listing import Listed
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.history_records import recorded_snapshots
from frazil.repository.ids import new_object_id
from frazil.threads import Purpose, map_bounded

#: The age of a log before it can be part of a union.
_AGE: Final = timedelta(days=30)
#: A list with fewer logs that can be part of a union stays as it is, so that a union is written seldom.
_FEWEST: Final = 16
#: The largest size of the files of one union, in bytes. A log or union of this size stays.
_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class LogUnion:
    """A union of logs. ``ids`` are the logs, oldest first, which follow each other in some lists."""

    ids: tuple[bytes, ...]
    log: TransactionLog


def planned_unions(context: Context, info: RepoInfo, logs: Listed, now: int) -> list[LogUnion]:
    """Read the logs that a collection unites, and return their unions, under new ids."""
    if info.spec_version < 2 or not info.table.pruned().lengths.any():
        return []
    lifetime = max(_AGE, context.settings.session_lifetime) // timedelta(microseconds=1)
    groups = dict.fromkeys(_groups(info, logs.select_files(logs.modified < now - lifetime)))
    unions = []
    for ids in groups:
        files = list(map_bounded(Purpose.CATALOG_READS, context.assets.transaction_log, ids))
        if not any(log.moves for log in files):
            unions.append(LogUnion(ids, replace(union_of_logs(files), id=new_object_id())))
    return unions


def put_unions(context: Context, unions: Iterable[LogUnion]) -> None:
    """Store the unions."""
    level = context.settings.compression_level
    for each in unions:
        context.storage.put(transaction_key(each.log.id), encode_transaction_log(each.log, level=level))


def with_unions(table: SnapshotTable, unions: Iterable[LogUnion]) -> SnapshotTable:
    """Return the table with unions in the place of their logs. A list without all of these logs stays."""
    by_first: dict[bytes, list[LogUnion]] = {}
    for each in sorted(unions, key=lambda union: len(union.ids), reverse=True):
        by_first.setdefault(each.ids[0], []).append(each)
    if not by_first:
        return table
    pruned = table.pruned()
    compact = pruned.compact()
    has_first = ids_among(_matrix(compact), id_matrix(list(by_first)))
    rows = np.unique(np.repeat(np.arange(len(pruned)), compact.lengths)[has_first])
    lists = [_replaced(pruned.row(row).tolist(), by_first) for row in rows.tolist()]
    arrays = [np.frombuffer(b"".join(each), pruned.values.dtype) for each in lists]
    return table.relinked(table.parents(), with_lists(pruned, rows, arrays))


def _replaced(ids: list[bytes], by_first: dict[bytes, list[LogUnion]]) -> list[bytes]:
    left: list[bytes] = []
    at = 0
    while at < len(ids):
        unions = by_first.get(ids[at], ())
        match = next((each for each in unions if tuple(ids[at : at + len(each.ids)]) == each.ids), None)
        left.append(ids[at] if match is None else match.log.id)
        at += 1 if match is None else len(match.ids)
    return left


def _matrix(lists: Ragged) -> U8:
    return np.ascontiguousarray(lists.values).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)


def _groups(info: RepoInfo, old: Listed) -> Iterator[tuple[bytes, ...]]:
    """Yield the ids of logs for each union."""
    table = info.table
    named = np.concatenate([table.ids(), id_matrix(recorded_snapshots(info))])
    pruned = table.pruned()
    for row in np.flatnonzero(pruned.lengths >= _FEWEST).tolist():
        ids = np.frombuffer(pruned.row(row).tobytes(), np.uint8).reshape(-1, OBJECT_ID_BYTES)
        is_old = ids_among(ids, old.ids)
        has_old_successor = np.append(is_old[1:], bool(ids_among(table.ids()[row : row + 1], old.ids)[0]))
        free = is_old & has_old_successor & ~ids_among(ids, named)
        if np.count_nonzero(free) >= _FEWEST:
            yield from _runs(ids, free, _sizes(ids, old))


def _sizes(ids: U8, files: Listed) -> I64:
    sizes = dict(zip(id_list(files.ids), files.sizes.tolist(), strict=True))
    return np.array([sizes.get(id_, 0) for id_ in id_list(ids)], np.int64)


def _runs(ids: U8, free: NDArray[np.bool_], sizes: I64) -> Iterator[tuple[bytes, ...]]:
    """Yield the runs of free logs, cut where a union would become too large."""
    free = free & (sizes < _MOST_BYTES)
    ends = np.cumsum(np.where(free, sizes, 0))
    parts = np.cumsum(~free) + len(ids) * (ends // _MOST_BYTES)
    cuts = np.flatnonzero(np.diff(parts)) + 1
    for rows in np.split(np.arange(len(ids)), cuts):
        run = rows[free[rows]]
        if len(run) > 1:
            yield tuple(id_list(ids[run]))
