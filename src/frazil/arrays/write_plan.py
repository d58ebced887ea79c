"""The plan of a write: boxes of chunks into which the same elements are written.

The chunks of each dimension fall into few runs: the first chunk, the chunks that are written whole, and the
last chunk. A box has a run of each dimension. So a write has at most three boxes for each dimension, however
many chunks it has. Boxes are split into parts of limited size, which are encoded one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from frazil.arrays.axes import AxisChunks, chunk_bounds, chunks_of_slice
from frazil.format.columns import I64, U32

if TYPE_CHECKING:
    from frazil.arrays.encoding import Encoding
    from frazil.arrays.selection import AxisSlice


@dataclass(frozen=True, slots=True, eq=False)
class AxisRun:
    """Chunks of one dimension into which the same elements are written.

    Attributes:
        numbers: The numbers of the chunks, int64 of shape (k,).
        target: The position of the first element of the first chunk in the values.
        spacing: The distance of the chunks in the values.
        length: The length of a chunk.
        elements: The written elements of a chunk.
        count: The number of written elements of a chunk.
        is_complete: Whether all elements of the chunks that the array has are written.
    """

    numbers: I64
    target: int
    spacing: int
    length: int
    elements: slice
    count: int
    is_complete: bool

    def split(self, most: int) -> list[AxisRun]:
        """Return parts of about equal size with at most ``most`` chunks."""
        parts = np.array_split(np.arange(len(self.numbers)), -(-len(self.numbers) // most))
        return [
            replace(self, numbers=self.numbers[part], target=self.target + int(part[0]) * self.spacing)
            for part in parts
        ]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkBox:
    """A box of chunks, with a run of each dimension."""

    runs: tuple[AxisRun, ...]

    @property
    def tiles(self) -> tuple[int, ...]:
        """The number of chunks along each dimension."""
        return tuple(len(run.numbers) for run in self.runs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a chunk."""
        return tuple(run.length for run in self.runs)

    @property
    def elements(self) -> tuple[slice, ...]:
        """The written elements of a chunk."""
        return tuple(run.elements for run in self.runs)

    @property
    def is_complete(self) -> bool:
        """Whether all elements of the chunks that the array has are written."""
        return all(run.is_complete for run in self.runs)

    @property
    def is_whole(self) -> bool:
        """Whether the written elements are the chunk."""
        return self.is_complete and all(run.count == run.length for run in self.runs)

    def index(self) -> U32:
        """Return the coordinates of the chunks, uint32 of shape (m, ndim)."""
        index = np.empty((*self.tiles, len(self.runs)), np.uint32)
        for axis, run in enumerate(self.runs):
            across = [-1 if each == axis else 1 for each in range(len(self.runs))]
            index[..., axis] = run.numbers.reshape(across)
        return index.reshape(prod(self.tiles), len(self.runs))

    def view(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the elements of the chunks in the values, without a copy, shape ``(*tiles, *counts)``."""
        counts = tuple(run.count for run in self.runs)
        ends = [run.target + (len(run.numbers) - 1) * run.spacing + run.count for run in self.runs]
        spot: list[Any] = [slice(run.target, end) for run, end in zip(self.runs, ends, strict=True)]
        corner = values[(*spot, ...)]  # with the ellipsis, a single element stays an array
        steps = tuple(s * run.spacing for s, run in zip(corner.strides, self.runs, strict=True))
        return as_strided(corner, self.tiles + counts, steps + corner.strides, writeable=False)

    def parts(self, most: int) -> Iterator[ChunkBox]:
        """Split the box into parts with at most ``most`` chunks. They follow each other in C order."""
        split: list[list[AxisRun]] = []
        for run in reversed(self.runs):
            split.append(run.split(max(1, most)))
            most //= len(run.numbers)
        return map(ChunkBox, product(*reversed(split)))


def boxes_of(encoding: Encoding, slices: tuple[AxisSlice, ...]) -> list[ChunkBox]:
    """Return the boxes of a selection that is not empty."""
    runs = []
    for each, size, length in zip(slices, encoding.shape, encoding.lengths, strict=True):
        axis = chunks_of_slice(each.start, each.count, each.step, length)
        runs.append(list(_runs(axis, size, length)))
    return list(map(ChunkBox, product(*runs)))


def _runs(axis: AxisChunks, size: int, length: int | I64) -> Iterator[AxisRun]:
    """Yield the runs of a dimension of ``size`` elements."""
    class_, rows = axis.classes()
    for number, row in enumerate(rows.tolist()):
        members = np.flatnonzero(class_ == number)
        low, high = (int(each[0]) for each in chunk_bounds(axis.number[row : row + 1], length))
        first, count = int(axis.first[row]), int(axis.count[row])
        # Chunks of a class with all their elements are whole chunks, or one chunk at the end of the array.
        is_complete = axis.step == 1 and first == 0 and count >= min(high, size) - low
        elements = slice(first, first + (count - 1) * axis.step + 1, axis.step)
        for part in np.split(members, _changes(axis.target[members])):
            target = axis.target[part]
            spacing = int(target[1] - target[0]) if len(target) > 1 else 0
            yield AxisRun(
                axis.number[part], int(target[0]), spacing, high - low, elements, count, is_complete
            )


def _changes(target: I64) -> I64:
    """Return where to split positions, so that the positions of each part have equal distances."""
    distance = np.diff(target)
    return np.flatnonzero(np.diff(distance)) + 2
