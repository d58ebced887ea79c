"""Taking snapshots out of a history: what is left is linked again, and remembers what it skipped.

Whoever rebases or compares over a gap needs the transaction logs of the snapshots that are gone. So each
snapshot that gets another parent carries the ids of those in between, oldest first, each after the list that
it carried itself: ``pruned_ancestor_tx_logs``.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import Ragged
from frazil.format.snapshot_table import SnapshotTable


class Onto(Enum):
    """The new parent of a snapshot whose parent goes."""

    #: The first of the history; all between are skipped, those that stay included (expiration).
    ROOT = "root"
    #: The next ancestor that stays (garbage collection).
    NEXT = "next"


def collapse(table: SnapshotTable, keep: NDArray[np.bool_], onto: Onto) -> SnapshotTable:
    """Only the rows in ``keep``, which has to hold for every root.

    >>> from frazil.format.snapshot_table import SnapshotEntry
    >>> ids = [bytes([n]) * 12 for n in range(4)]
    >>> entries = [SnapshotEntry(id_, parent, 0, "", {}) for id_, parent in zip(ids, [None, *ids])]
    >>> left = collapse(SnapshotTable.of(entries), np.array([True, False, True, True]), Onto.ROOT)
    >>> left.parents().tolist(), [id_[0] for id_ in left.entry(1).pruned_ancestor_tx_logs]
    ([-1, 0, 1], [1])
    """
    if keep.all():
        return table
    parents = table.parents().copy()
    rows = np.flatnonzero(keep & (parents >= 0) & ~keep[parents])
    logs = _with_own(table)
    lists = []
    for row, chain in zip(rows.tolist(), table.chains(rows.tolist()), strict=True):
        end = len(chain) - 1 if onto is Onto.ROOT else 1 + int(np.argmax(keep[chain[1:]]))
        skipped = chain[1:end][::-1]
        lists.append(np.concatenate([logs.take(skipped).compact().values, table.pruned().row(row)]))
        parents[row] = chain[end]
    return table.relinked(parents, _replaced(table.pruned(), rows, lists)).select_snapshots(keep, {}, {})


def _with_own(table: SnapshotTable) -> Ragged:
    """For each snapshot its pruned list, and its own id behind that."""
    pruned = table.pruned().compact()
    ends = np.cumsum(pruned.lengths)
    ids = np.ascontiguousarray(table.ids()).view("V12").reshape(-1)
    return Ragged.from_lengths(np.insert(pruned.values, ends, ids), pruned.lengths + 1)


def _replaced(rows: Ragged, at: NDArray[np.int64], lists: list[NDArray[np.void]]) -> Ragged:
    """The rows, other ones at ``at``."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    new = Ragged.from_lengths(np.concatenate([rows.values[:0], *lists]), lengths)
    place = np.arange(len(rows))
    place[at] = len(rows) + np.arange(len(at))
    return Ragged.concat([rows, new]).take(place)
