"""One array, prepared for lookups of its references."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges, Coords
from frazil.format.columns import U32
from frazil.format.snapshot import ManifestRefs, Node

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
