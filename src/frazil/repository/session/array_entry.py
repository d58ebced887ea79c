"""One array, prepared for lookups of its references, and the references that many chunks get from tables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges, Coords
from frazil.format.chunk_table import ChunkTable, stack
from frazil.format.columns import I64, U32
from frazil.format.snapshot import ManifestRef, ManifestRefs, Node

#: With more manifests, a look-up searches among slabs.
_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class _Slabs:
    """Boxes that do not overlap along one dimension: where they start, sorted, and their numbers."""

    axis: int
    starts: list[int]
    numbers: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayEntry:
    """An array with its edits, newest first, and the half-open boxes of its manifests, (m, ndim, 2)."""

    node: Node
    manifests: Sequence[ManifestRef]
    edits: tuple[ChunkChanges, ...]
    boxes: U32
    lows: list[list[int]]
    highs: list[list[int]]
    slabs: _Slabs | None

    @staticmethod
    def of(node: Node, layers: Sequence[ChangeSet]) -> ArrayEntry | None:
        """Return the entry of a node, with its edits in ``layers``, or None for a group."""
        if node.array is None:
            return None
        edits = [layer.chunks.get(node.id) for layer in layers]
        boxes = ManifestRefs.of(node.array.manifests, len(node.array.shape)).extents
        return ArrayEntry(
            node,
            node.array.manifests,
            tuple(each for each in edits if each is not None),
            boxes,
            boxes[:, :, 0].tolist(),
            boxes[:, :, 1].tolist(),
            _slabs(boxes) if len(boxes) > _FEW else None,
        )

    def manifests_at(self, coords: Coords) -> list[int]:
        """Return the numbers of the manifests whose box contains the coordinates."""
        if len(coords) != self.boxes.shape[1]:
            return []
        if self.slabs is not None:
            at = bisect_right(self.slabs.starts, coords[self.slabs.axis]) - 1
            numbers = [self.slabs.numbers[at]] if at >= 0 else []
        elif len(self.lows) > _FEW:
            numbers = self.manifests_meeting(np.array([coords], np.int64))
        else:
            numbers = list(range(len(self.lows)))
        return [number for number in numbers if self._contains(number, coords)]

    def manifests_meeting(self, index: NDArray[np.integer]) -> list[int]:
        """Return the numbers of the manifests whose box meets the box around coordinates, (n, ndim)."""
        if not len(index) or not len(self.boxes):
            return []
        meets = (self.boxes[:, :, 0] <= index.max(axis=0)) & (self.boxes[:, :, 1] > index.min(axis=0))
        numbers: list[int] = np.flatnonzero(meets.all(axis=1)).tolist()
        return numbers

    def _contains(self, number: int, coords: Coords) -> bool:
        low, high = self.lows[number], self.highs[number]
        return all(a <= c < b for a, c, b in zip(low, coords, high, strict=True))


def _slabs(boxes: U32) -> _Slabs | None:
    """Return the boxes as slabs along the first dimension in which they do not overlap."""
    for axis in range(boxes.shape[1]):
        order = np.argsort(boxes[:, axis, 0], kind="stable")
        starts, stops = boxes[order, axis].T
        if (stops[:-1] <= starts[1:]).all():
            return _Slabs(axis, starts.tolist(), order.tolist())
    return None


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
