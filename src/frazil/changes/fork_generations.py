"""The changes that a session has made and merged, with their generations.

A *generation* is the number of forks and merges of the session until then. A fork does not contain changes of
its own generation and later. Many forks may come back one by one. So the cost of a lookup and of an addition
depends on the size of the fork, not on the changes that were merged before: the references of an array are
in few layers, each at least twice as long as the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.moves import Moves
from frazil.format.columns import I64, U32
from frazil.format.coordinates import box, lowest
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node

#: With more tables than this, the tables are arranged, because each fork would be compared with all of them.
_MOST_BOXES: Final = 256


@dataclass(slots=True)
class Layers:
    """The references of one array, deletions included, with the generation in which each was set last."""

    parts: list[tuple[ChunkTable, I64]] = field(default_factory=list)
    #: Tables that are not arranged yet. Most forks write regions of their own, which are compared as boxes.
    fresh: list[tuple[ChunkTable, int]] = field(default_factory=list)
    #: The smallest coordinates of each of these tables, and the largest ones plus one.
    boxes: list[tuple[list[int], list[int]]] = field(default_factory=list)

    def add(self, table: ChunkTable, generation: int) -> None:
        """Add references that were set in a generation."""
        if len(table):
            self.fresh.append((table, generation))
            self.boxes.append((lowest(table.index), box(table.index)))

    def differing(self, table: ChunkTable, since: int) -> U32:
        """Return the coordinates, (k, ndim), where ``since`` or later another reference was set."""
        if len(table) and self._meets_fresh(table):
            self._arrange()
        wrong = np.zeros(len(table), np.bool_)
        open_ = np.ones(len(table), np.bool_)
        for part, generations in reversed(self.parts):
            rows = part.find_chunks(table.index)
            present = np.flatnonzero(open_ & (rows >= 0))
            open_[present] = False
            present = present[generations[rows[present]] >= since]
            wrong[present] = ~table.same(present, part, rows[present])
        return table.index[wrong]

    def _meets_fresh(self, table: ChunkTable) -> bool:
        """Return whether a table that is not arranged yet may have references of the same chunks."""
        if not self.boxes or len(self.boxes) > _MOST_BOXES:
            return bool(self.boxes)
        if any(each.ndim != table.ndim for each, _ in self.fresh):
            return True
        boxes = np.array(self.boxes, np.int64)
        meets = (boxes[:, 0] < box(table.index)) & (boxes[:, 1] > lowest(table.index))
        return bool(meets.all(axis=1).any())

    def _arrange(self) -> None:
        parts = self.parts
        for generation, group in groupby(self.fresh, itemgetter(1)):
            together = ChunkTable.merge_tables(list(map(itemgetter(0), group)))
            parts.append((together, np.full(len(together), generation, np.int64)))
            while len(parts) > 1 and len(parts[-2][0]) <= 2 * len(parts[-1][0]):
                parts[-2:] = [_joined(*parts[-2:])]
        self.fresh.clear()
        self.boxes.clear()


def _joined(early: tuple[ChunkTable, I64], late: tuple[ChunkTable, I64]) -> tuple[ChunkTable, I64]:
    both = ChunkTable.merge_tables([early[0], late[0]])
    at = np.empty(len(both), np.int64)
    for table, generations in (early, late):
        at[both.find_chunks(table.index)] = generations
    return both, at


@dataclass(slots=True)
class ForkGenerations:
    """The changes of a session, with the generation of each change."""

    nodes: dict[str, tuple[int, Node | None]] = field(default_factory=dict)
    touched: dict[bytes, int] = field(default_factory=dict)
    deleted: dict[bytes, int] = field(default_factory=dict)
    moves: list[tuple[int, Moves]] = field(default_factory=list)
    chunks: dict[bytes, Layers] = field(default_factory=dict)

    def add(self, generation: int, changes: ChangeSet) -> None:
        """Add changes of a generation, which is the latest so far."""
        self.nodes.update((path, (generation, node)) for path, node in changes.nodes.items())
        self.touched.update(dict.fromkeys(chain(changes.chunks, changes.updated), generation))
        self.deleted.update(dict.fromkeys(changes.deleted, generation))
        if changes.moves:
            self.moves.append((generation, changes.moves))
        for id_, chunk_changes in changes.chunks.items():
            if chunk_changes:
                self.chunks.setdefault(id_, Layers()).add(chunk_changes.table(), generation)

    def clear(self) -> None:
        """Remove all changes."""
        for part in (self.nodes, self.touched, self.deleted, self.moves, self.chunks):
            part.clear()

    def moves_since(self, since: int) -> Iterator[Moves]:
        """Return the moves of the generation ``since`` and later."""
        return (moves for generation, moves in self.moves if generation >= since)
