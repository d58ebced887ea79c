"""Which blocks of a grid a query reads: conditions on small columns, and stored chunks.

A condition on a small column (a coordinate, or an array with fewer dimensions than the grid) is evaluated on
all values of the column. The tasks evaluate it again, cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arrays.zarr_arrays import array_at
from frazil.format.manifest import ChunkTable
from frazil.repository.session.session import Session
from frazil.spark.tables.decoding import Values
from frazil.spark.tables.grid import Column, Grid, index_values
from frazil.spark.tables.predicates import Mask, Predicate

#: The most values of a column that the driver reads to plan with.
LARGEST_COLUMN: Final = 1 << 22


def is_small(grid: Grid, column: Column) -> bool:
    """Return whether the driver reads all values of a column, to evaluate conditions on them."""
    if column.instances is not None:
        return True
    return column.size <= LARGEST_COLUMN and (column.is_key or len(column.axes) < len(grid.shape))


def read_column(session: Session, column: Column) -> Values:
    """Return all values of a column along its own dimensions; those of instances repeated."""
    if column.path is None:
        return index_values(0, column.shape[0])
    raw = np.asarray(_open(session, column.path)[...])
    values = column.decoder.decode(raw)
    if column.instances is None:
        return values
    numbers = np.asarray(_open(session, column.instances.path)[...]).astype(np.int64)
    if column.instances.by_size:
        numbers = np.repeat(np.arange(len(numbers)), numbers)
    return values.take((numbers,))


def _open(session: Session, path: str) -> zarr.Array[Any]:
    return array_at(session, path)


def counts_of(grid: Grid) -> tuple[int, ...]:
    """Return the number of blocks along each dimension."""
    return tuple(-(-size // block) for size, block in zip(grid.shape, grid.block, strict=True))


def matching_blocks(
    session: Session, grid: Grid, where: Iterable[Predicate], coordinates: Mapping[str, Values]
) -> Mask:
    """Return the blocks in which all conditions may hold.

    ``coordinates`` are values in memory, by column.
    """
    matching = np.ones(counts_of(grid), np.bool_)
    by_axes: dict[tuple[int, ...], Mask] = {}
    for each in where:
        column = grid.column(each.column)
        if not is_small(grid, column):
            continue
        values = coordinates.get(column.name)
        holds = each.holds(read_column(session, column) if values is None else values)
        by_axes[column.axes] = by_axes[column.axes] & holds if column.axes in by_axes else holds
    for axes, holds in by_axes.items():
        any_holds = holds
        for at, axis in enumerate(axes):
            starts = np.arange(0, grid.shape[axis], grid.block[axis])
            if len(starts):
                any_holds = np.logical_or.reduceat(any_holds, starts, axis=at)
        # The axes of an array may be in another order than those of the grid.
        order = np.argsort(axes)
        shape = [1] * len(grid.shape)
        for axis in axes:
            shape[axis] = matching.shape[axis]
        matching &= any_holds.transpose(order).reshape(shape)
    return matching


def stored_blocks(grid: Grid, variables: Sequence[Column], tables: Mapping[str, ChunkTable]) -> Mask:
    """Return the blocks in which some variable has a stored chunk."""
    stored = np.zeros(counts_of(grid), np.bool_)
    if not variables:
        return ~stored
    numbers = [np.arange(size) // block for size, block in zip(grid.shape, grid.block, strict=True)]
    for each in variables:
        assert each.path is not None
        stored |= blocks_of_chunks(each, tables[each.path].index, numbers, stored.shape)
    return stored


def blocks_of_chunks(
    column: Column, chunks: NDArray[np.uint32], numbers: Sequence[NDArray[np.int64]], counts: Sequence[int]
) -> Mask:
    """Return the blocks with cells of some chunks, or more blocks if the cells of a chunk are scattered.

    ``numbers`` has the block of each cell along each dimension. The result has one block along dimensions
    that the column does not have. Each chunk adds one to a box of blocks: at its corners, before sums along
    each dimension.
    """
    shape = [count if axis in column.axes else 1 for axis, count in enumerate(counts)]
    bounds = []
    for at, (axis, step) in enumerate(zip(column.axes, column.chunks, strict=True)):
        starts = np.arange(0, len(numbers[axis]), step)
        chunks = chunks[chunks[:, at] < len(starts)]
        if not len(chunks):
            return np.zeros(shape, np.bool_)
        bounds.append([each.reduceat(numbers[axis], starts) for each in (np.minimum, np.maximum)])
    boxes = np.zeros([shape[axis] + 1 for axis in column.axes], np.int32)
    for corner in product((0, 1), repeat=len(bounds)):
        ends = tuple(bounds[at][end][chunks[:, at]] + end for at, end in enumerate(corner))
        np.add.at(boxes, ends, (-1) ** sum(corner))
    for axis in range(boxes.ndim):
        np.cumsum(boxes, axis=axis, out=boxes)
    blocks = boxes[tuple(slice(-1) for _ in column.axes)] > 0
    return blocks.transpose(np.argsort(column.axes)).reshape(shape)
