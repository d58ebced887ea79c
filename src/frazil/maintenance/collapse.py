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
    """Return only the rows in ``keep``, which must be true for every root.

    Examples:
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
    """Return the pruned list of each snapshot, followed by its own id."""
    pruned = table.pruned().compact()
    ends = np.cumsum(pruned.lengths)
    ids = np.ascontiguousarray(table.ids()).view("V12").reshape(-1)
    return Ragged.from_lengths(np.insert(pruned.values, ends, ids), pruned.lengths + 1)


def _replaced(rows: Ragged, at: NDArray[np.int64], lists: list[NDArray[np.void]]) -> Ragged:
    """Return the rows, with other rows at ``at``."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    new = Ragged.from_lengths(np.concatenate([rows.values[:0], *lists]), lengths)
    place = np.arange(len(rows))
    place[at] = len(rows) + np.arange(len(at))
    return Ragged.concat([rows, new]).take(place)
