"""The references of many chunks, in the order in which a caller asks for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from frazil.format.chunk_table import ChunkTable, stack
from frazil.format.columns import I64, U32


class ChunkRows:
    """The references of the chunks at ``index``, which several tables have. The first table overrides."""

    def __init__(self, index: U32) -> None:
        self._index = index
        self._missing: I64 = np.arange(len(index))
        self._parts: list[tuple[I64, ChunkTable]] = []

    def missing_in(self, low: I64, high: I64) -> I64:
        """Return the rows without a reference whose coordinates are in a half-open box."""
        coords = self._index[self._missing]
        return self._missing[((coords >= low) & (coords < high)).all(axis=1)]

    def look_up(self, table: ChunkTable, rows: I64 | None = None) -> None:
        """Look up the references of rows that have none yet. Default: all of them."""
        wanted = self._missing if rows is None else rows
        if not len(wanted) or not len(table):
            return
        place = table.find_chunks(self._index if len(wanted) == len(self._index) else self._index[wanted])
        is_match = place >= 0
        if is_match.all():
            matched = wanted
        else:
            matched, place = wanted[is_match], place[is_match]
        if len(matched):
            self._parts.append((matched, table.select_chunks(place)))
            self._missing = np.setdiff1d(self._missing, matched, assume_unique=True)

    def table(self) -> ChunkTable:
        """Return the references as a table in the order of ``index``. Chunks without one are ``ABSENT``."""
        if len(self._parts) == 1 and not len(self._missing):
            return self._parts[0][1]
        if len(self._missing) or not self._parts:
            self._parts.append((self._missing, _absent(self._index[self._missing])))
        rows = np.concatenate([rows for rows, _ in self._parts])
        tables = [table for _, table in self._parts]
        stacked = stack(tables, np.concatenate([table.index for table in tables]))
        order = np.empty(len(rows), np.int64)
        order[rows] = np.arange(len(rows))
        return stacked.select_chunks(order)


def _absent(index: U32) -> ChunkTable:
    """Return a table of missing chunks in the order of ``index``, which may be unsorted."""
    one = ChunkTable.from_absent(np.zeros((1, index.shape[1]), np.uint32))
    return replace(one.select_chunks(np.zeros(len(index), np.int64)), index=index)
