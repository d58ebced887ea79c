"""Removes snapshots from a history, and links the remaining ones again.

A rebase or a comparison over a gap needs the transaction logs of the removed snapshots. Therefore each
snapshot with a new parent gets the ids of the removed snapshots in between, oldest first. Each id comes after
the list that the removed snapshot had itself. The field is ``pruned_ancestor_tx_logs``.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import Ragged
from frazil.format.snapshot_table import SnapshotTable


class Onto(Enum):
    """The new parent of a snapshot whose parent is removed."""

    #: The first snapshot of the history. All snapshots in between are skipped, also those that remain
    #: (expiration).
    ROOT = "root"
    #: The next ancestor that remains (garbage collection).
    NEXT = "next"


def collapse(table: SnapshotTable, keep: NDArray[np.bool_], onto: Onto) -> SnapshotTable:
    """Return only the rows in ``keep``, which must be true for every root."""
    if keep.all():
        return table
    parents = table.parents()
    rows = np.flatnonzero(keep & (parents >= 0) & ~keep[parents])
    linked = (_onto_root if onto is Onto.ROOT else _onto_next)(table, rows, keep)
    return linked.select_snapshots(keep, {}, {})


def relink(table: SnapshotTable, row: int, parent: int) -> SnapshotTable:
    """Return the table with an ancestor of a snapshot as its parent. All snapshots stay in the table."""
    chain = table.chain(row)
    skipped = chain[1 : int(np.argmax(chain == parent))][::-1]
    logs = np.concatenate([_with_own(table).take(skipped).compact().values, table.pruned().row(row)])
    parents = table.parents().copy()
    parents[row] = parent
    return table.relinked(parents, with_lists(table.pruned(), np.array([row]), [logs]))


def _onto_root(table: SnapshotTable, rows: NDArray[np.int64], keep: NDArray[np.bool_]) -> SnapshotTable:
    logs = _with_own(table)
    parents = table.parents().copy()
    lists = []
    for row, chain in zip(rows.tolist(), table.chains(rows.tolist()), strict=True):
        skipped = chain[1:-1][::-1]
        lists.append(np.concatenate([logs.take(skipped).compact().values, table.pruned().row(row)]))
        parents[row] = chain[-1]
    return table.relinked(parents, with_lists(table.pruned(), rows, lists))


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


def with_lists(rows: Ragged, at: NDArray[np.int64], lists: list[NDArray[np.void]]) -> Ragged:
    """Return the rows, with other rows at ``at``."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return _spread(rows, at, Ragged.from_lengths(np.concatenate([rows.values[:0], *lists]), lengths))


def _spread(rows: Ragged, at: NDArray[np.int64], new: Ragged) -> Ragged:
    """Return the rows, with the rows of ``new`` at ``at``."""
    place = np.arange(len(rows))
    place[at] = len(rows) + np.arange(len(at))
    return Ragged.concat([rows, new]).take(place)
