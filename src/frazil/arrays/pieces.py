"""The pieces of a selection: the selected elements of each chunk, and their place in the result.

Pieces are columns. The *region* of a piece is the selection in its chunk. A box has at most three regions for
each dimension, however many chunks it has. The decoder and the copy treat all pieces of a region in one call.
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
class Region:
    """The elements of a chunk that are selected.

    Attributes:
        shape: The shape of the chunk.
        slices: The selected elements of the chunk, for each dimension.
        counts: The shape of the region.
    """

    shape: tuple[int, ...]
    slices: tuple[slice, ...]
    counts: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the region is the chunk."""
        return self.shape == self.counts

    def elements(self) -> tuple[int, int]:
        """Return the first element of the region in the chunk, in C order, and the element after the last."""
        first = last = 0
        for length, each in zip(self.shape, self.slices, strict=True):
            first = first * length + each.start
            last = last * length + each.stop - 1
        return first, last + 1


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The pieces of a selection, m rows.

    Attributes:
        index: The coordinates of the chunks, uint32 of shape (m, ndim).
        target: The first element of each piece in the result, int64 of shape (m, ndim).
        region: The number of the region of each piece, int64 of shape (m,).
        regions: The regions.
    """

    index: U32
    target: I64
    region: I64
    regions: tuple[Region, ...]

    def __len__(self) -> int:
        return len(self.index)


def pieces_of_axes(axes: Sequence[AxisChunks]) -> Pieces:
    """Return the pieces of the box that the selections of all dimensions span. A scalar has one piece."""
    shape = tuple(len(axis.number) for axis in axes)
    m, ndim = prod(shape), len(axes)
    index, target = np.empty((m, ndim), np.uint32), np.empty((m, ndim), np.int64)
    region = np.zeros(shape, np.int64)
    rows_of_classes: list[I64] = []
    for d, axis in enumerate(axes):
        across = tuple(-1 if e == d else 1 for e in range(ndim))
        index.reshape(*shape, ndim)[..., d] = axis.number.reshape(across)
        target.reshape(*shape, ndim)[..., d] = axis.target.reshape(across)
        class_, rows = axis.classes()
        region *= len(rows)
        region += class_.reshape(across)
        rows_of_classes.append(rows)
    return Pieces(index, target, region.reshape(m), _regions(axes, rows_of_classes))


def _regions(axes: Sequence[AxisChunks], rows_of_classes: Sequence[I64]) -> tuple[Region, ...]:
    regions = [Region((), (), ())]
    for axis, rows in zip(axes, rows_of_classes, strict=True):
        columns = (axis.length[rows], axis.first[rows], axis.count[rows])
        classes = list(zip(*(column.tolist() for column in columns), strict=True))
        regions = [
            Region(
                (*region.shape, length),
                (*region.slices, slice(first, first + (count - 1) * axis.step + 1, axis.step)),
                (*region.counts, count),
            )
            for region in regions
            for length, first, count in classes
        ]
    return tuple(regions)


def place_pieces(out: NDArray[Any], target: I64, counts: tuple[int, ...], values: NDArray[Any]) -> None:
    """Copy pieces of one shape to their places in the result."""
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
