"""The links of a history from which versions are removed: new parents, and the logs of the removed versions.

A rebase or a comparison over a gap needs the transaction logs of the removed snapshots. So a snapshot with a
new parent lists the ids of those in between, oldest first (``pruned_ancestor_tx_logs``). So that their number
does not grow for ever, a collection writes the union of old logs that follow each other in their place. A log
stays as it is if a session, a stream, a job or a ref may name its version, or if it moved nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.diff import union_of_logs
from frazil.format.columns import I64, U8, Ragged
from frazil.format.ids import OBJECT_ID_BYTES, id_list, id_matrix, ids_among
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import SnapshotTable
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.history_records import recorded_snapshots
from frazil.repository.clock import MICROSECOND
from frazil.repository.ids import new_object_id
from frazil.survey.columns import ObjectListing

#: The age of a log before it can be part of a union.
_AGE: Final = timedelta(days=30)
#: A list with fewer logs that can be part of a union stays as it is, so that a union is written seldom.
_FEWEST: Final = 16
#: The largest size of the files of one union, in bytes. A log or union of this size stays.
_MOST_BYTES: Final = 64 << 20


class NewParent(Enum):
    """The new parent of a snapshot whose parent is removed."""

    #: The first snapshot of the history. All snapshots in between are skipped, also those that remain
    #: (expiration).
    ROOT = "root"
    #: The next ancestor that remains (garbage collection).
    NEXT = "next"


def collapse(table: SnapshotTable, keep: NDArray[np.bool_], parent: NewParent) -> SnapshotTable:
    """Return only the rows in ``keep``, which must be true for every root."""
    if keep.all():
        return table
    parents = table.parents()
    rows = np.flatnonzero(keep & (parents >= 0) & ~keep[parents])
    if parent is NewParent.ROOT:
        linked = _shortened(table, list(table.chains(rows.tolist())))
    else:
        linked = _onto_next(table, rows, keep)
    return linked.select_snapshots(keep, {}, {})


def relink(table: SnapshotTable, row: int, parent: int) -> SnapshotTable:
    """Return the table with an ancestor of a snapshot as its parent. All snapshots stay in the table."""
    chain = table.chain(row)
    return _shortened(table, [chain[: int(np.argmax(chain == parent)) + 1]])


def _shortened(table: SnapshotTable, chains: Sequence[I64]) -> SnapshotTable:
    """Return the table in which the last row of each chain is the parent of the first."""
    logs, parents, lists = _with_own(table), table.parents().copy(), list[NDArray[np.void]]()
    for chain in chains:
        skipped = logs.take(chain[1:-1][::-1]).compact().values
        lists.append(np.concatenate([skipped, table.pruned().row(int(chain[0]))]))
        parents[chain[0]] = chain[-1]
    rows = np.array([chain[0] for chain in chains], np.int64)
    return table.relinked(parents, _with_lists(table.pruned(), rows, lists))


def _onto_next(table: SnapshotTable, rows: NDArray[np.int64], keep: NDArray[np.bool_]) -> SnapshotTable:
    """Link the snapshots again, all of them at the same time, one generation of ancestors in each round."""
    parents = table.parents().copy()
    walkers = np.arange(len(rows))
    ancestors = parents[rows]
    passed: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = [(walkers[:0], ancestors[:0])]
    while len(walkers):
        passed.append((walkers, ancestors))
        ancestors = parents[ancestors]
        arrived = keep[ancestors]
        parents[rows[walkers[arrived]]] = ancestors[arrived]
        walkers, ancestors = walkers[~arrived], ancestors[~arrived]
    # The oldest ancestor of each snapshot comes first, and the snapshot's own list comes last.
    number = np.concatenate([walkers for walkers, _ in passed[::-1]])
    skipped = np.concatenate([ancestors for _, ancestors in passed[::-1]])
    order = np.argsort(number, kind="stable")
    logs = _with_own(table).take(skipped[order])
    starts = np.searchsorted(number[order], np.arange(len(rows)), "right")
    ends = np.append(0, np.cumsum(logs.lengths))[starts]
    own = table.pruned().take(rows).compact()
    values = np.insert(logs.compact().values, np.repeat(ends, own.lengths), own.values)
    lengths = np.diff(ends, prepend=0) + own.lengths
    return table.relinked(parents, _spread(table.pruned(), rows, Ragged.from_lengths(values, lengths)))


def _with_own(table: SnapshotTable) -> Ragged:
    """Return the pruned list of each snapshot, followed by its own id."""
    pruned = table.pruned().compact()
    ends = np.cumsum(pruned.lengths)
    ids = np.ascontiguousarray(table.ids()).view("V12").reshape(-1)
    return Ragged.from_lengths(np.insert(pruned.values, ends, ids), pruned.lengths + 1)


def _with_lists(rows: Ragged, at: NDArray[np.int64], lists: list[NDArray[np.void]]) -> Ragged:
    """Return the rows, with other rows at ``at``."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return _spread(rows, at, Ragged.from_lengths(np.concatenate([rows.values[:0], *lists]), lengths))


def _spread(rows: Ragged, at: NDArray[np.int64], new: Ragged) -> Ragged:
    """Return the rows, with the rows of ``new`` at ``at``."""
    place = np.arange(len(rows))
    place[at] = len(rows) + np.arange(len(at))
    return Ragged.concat([rows, new]).take(place)


@dataclass(frozen=True, slots=True)
class LogUnion:
    """A union of logs. ``ids`` are the logs, oldest first, which follow each other in some lists."""

    ids: tuple[bytes, ...]
    log: TransactionLog


def planned_unions(context: Context, info: RepoInfo, logs: ObjectListing, now: int) -> list[LogUnion]:
    """Read the logs that a collection unites, and return their unions, under new ids."""
    if info.spec_version < 2 or not info.table.pruned().lengths.any():
        return []
    lifetime = max(_AGE, context.settings.session_lifetime) // MICROSECOND
    groups = dict.fromkeys(_groups(info, logs.select_files(logs.modified < now - lifetime)))
    unions = []
    for ids in groups:
        logs_of_group = [log for log in context.assets.transaction_logs(ids) if log is not None]
        # Another collection may have united the logs, and deleted them.
        if len(logs_of_group) == len(ids) and not any(log.moves for log in logs_of_group):
            unions.append(LogUnion(ids, replace(union_of_logs(logs_of_group), id=new_object_id())))
    return unions


def with_unions(table: SnapshotTable, unions: Iterable[LogUnion]) -> SnapshotTable:
    """Return the table with unions in the place of their logs. A list without all of these logs stays."""
    by_first: dict[bytes, list[LogUnion]] = {}
    for each in sorted(unions, key=lambda union: len(union.ids), reverse=True):
        by_first.setdefault(each.ids[0], []).append(each)
    if not by_first:
        return table
    pruned = table.pruned()
    compact = pruned.compact()
    ids = np.ascontiguousarray(compact.values).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    has_first = ids_among(ids, id_matrix(list(by_first)))
    rows = np.unique(np.repeat(np.arange(len(pruned)), compact.lengths)[has_first])
    lists = [_replaced(pruned.row(row).tolist(), by_first) for row in rows.tolist()]
    arrays = [np.frombuffer(b"".join(each), pruned.values.dtype) for each in lists]
    return table.relinked(table.parents(), _with_lists(pruned, rows, arrays))


def _replaced(ids: list[bytes], by_first: dict[bytes, list[LogUnion]]) -> list[bytes]:
    left: list[bytes] = []
    at = 0
    while at < len(ids):
        unions = by_first.get(ids[at], ())
        match = next((each for each in unions if tuple(ids[at : at + len(each.ids)]) == each.ids), None)
        left.append(ids[at] if match is None else match.log.id)
        at += 1 if match is None else len(match.ids)
    return left


def _groups(info: RepoInfo, old: ObjectListing) -> Iterator[tuple[bytes, ...]]:
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
            sizes, _ = old.find_sizes(ids)
            yield from _runs(ids, free, sizes)


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
