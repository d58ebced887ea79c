"""The blocks of a selection: the part of each chunk that is read, and its place in the result.

Blocks are columns. Blocks with the same part of a chunk of the same shape are a *group*: the decoder and the
copy treat all blocks of a group in one call. A box has at most three groups for each dimension, however many
chunks it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from frazil.arrays.axes import AxisChunks
from frazil.format.columns import I64, U32


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a chunk that a group reads.

    Attributes:
        shape: The shape of the chunk.
        slices: The selected elements of the chunk, for each dimension.
        counts: The shape of the part.
    """

    shape: tuple[int, ...]
    slices: tuple[slice, ...]
    counts: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the part is the chunk."""
        return self.shape == self.counts

    def elements(self) -> tuple[int, int]:
        """Return the first element of the part in the chunk, in C order, and the element after the last."""
        first = last = 0
        for length, each in zip(self.shape, self.slices, strict=True):
            first = first * length + each.start
            last = last * length + each.stop - 1
        return first, last + 1


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of a selection, m rows.

    Attributes:
        index: The coordinates of the chunks, uint32 of shape (m, ndim).
        target: The first element of each block in the result, int64 of shape (m, ndim).
        group: The number of the part of each block, int64 of shape (m,).
        parts: The parts.
    """

    index: U32
    target: I64
    group: I64
    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return len(self.index)


def blocks_of_axes(axes: Sequence[AxisChunks]) -> Blocks:
    """Return the blocks of the box that the selections of all dimensions span. A scalar has one block.

    Examples:
        >>> from frazil.arrays.axes import chunks_of_slice
        >>> blocks = blocks_of_axes([chunks_of_slice(0, 4, 1, 2), chunks_of_slice(1, 2, 1, 2)])
        >>> blocks.index.tolist(), len(blocks.parts)
        ([[0, 0], [0, 1], [1, 0], [1, 1]], 2)
    """
    shape = tuple(len(axis.number) for axis in axes)
    m, ndim = prod(shape), len(axes)
    index, target = np.empty((m, ndim), np.uint32), np.empty((m, ndim), np.int64)
    group = np.zeros(shape, np.int64)
    rows_of_classes: list[I64] = []
    for d, axis in enumerate(axes):
        across = tuple(-1 if e == d else 1 for e in range(ndim))
        index.reshape(*shape, ndim)[..., d] = axis.number.reshape(across)
        target.reshape(*shape, ndim)[..., d] = axis.target.reshape(across)
        class_, rows = axis.classes()
        group *= len(rows)
        group += class_.reshape(across)
        rows_of_classes.append(rows)
    return Blocks(index, target, group.reshape(m), _parts(axes, rows_of_classes))


def _parts(axes: Sequence[AxisChunks], rows_of_classes: Sequence[I64]) -> tuple[Part, ...]:
    parts = [Part((), (), ())]
    for axis, rows in zip(axes, rows_of_classes, strict=True):
        columns = (axis.length[rows], axis.first[rows], axis.count[rows])
        classes = list(zip(*(column.tolist() for column in columns), strict=True))
        parts = [
            Part(
                (*part.shape, length),
                (*part.slices, slice(first, first + (count - 1) * axis.step + 1, axis.step)),
                (*part.counts, count),
            )
            for part in parts
            for length, first, count in classes
        ]
    return tuple(parts)


def place_blocks(out: NDArray[Any], target: I64, counts: tuple[int, ...], values: NDArray[Any]) -> None:
    """Copy blocks of one shape to their places in the result.

    Args:
        out: The result.
        target: The first element of each block in the result, int64 of shape (m, ndim).
        counts: The shape of a block.
        values: The blocks, shape (m, ...), or one element for all blocks.
    """
    if not counts:
        out[...] = values.reshape(())
        return
    if len(target) == 1:
        spot = tuple(slice(a, a + n) for a, n in zip(target[0].tolist(), counts, strict=True))
        out[spot] = values[0] if values.ndim else values
        return
    low = target.min(axis=0)
    distance = target - low
    spacing = np.gcd.reduce(distance, axis=0)
    spacing[spacing == 0] = 1
    place = distance // spacing
    tiles = tuple((place.max(axis=0) + 1).tolist())
    ends = (low + distance.max(axis=0) + np.array(counts)).tolist()
    corner = out[tuple(map(slice, low.tolist(), ends))]
    strides = tuple(s * n for s, n in zip(corner.strides, spacing.tolist(), strict=True)) + corner.strides
    grid = as_strided(corner, tiles + counts, strides)
    if len(target) == prod(tiles) and _is_in_order(place, tiles):
        grid[...] = values.reshape(tiles + counts) if values.ndim else values
    else:
        grid[tuple(place.T)] = values


def _is_in_order(place: I64, tiles: tuple[int, ...]) -> bool:
    numbers = np.ravel_multi_index(tuple(place.T), tiles)
    return bool((numbers == np.arange(len(numbers))).all())
