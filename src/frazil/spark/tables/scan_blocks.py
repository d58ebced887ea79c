"""Which blocks of a grid a query reads: conditions on small columns, and stored chunks.

A condition on a small column (a coordinate, or an array with fewer dimensions than the grid) is evaluated on
all values of the column. The tasks evaluate it again, cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import zarr

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
    for each in variables:
        assert each.path is not None
        index = tables[each.path].index.astype(np.int64)
        steps = zip(each.axes, each.chunks, strict=True)
        chunks_along = {axis: (index[:, at], step) for at, (axis, step) in enumerate(steps)}
        first = [
            chunks_along[axis][0] * chunks_along[axis][1] // grid.block[axis]
            for axis in range(len(grid.shape))
        ]
        last = [
            np.minimum((chunks_along[axis][0] + 1) * chunks_along[axis][1] - 1, grid.shape[axis] - 1)
            // grid.block[axis]
            for axis in range(len(grid.shape))
        ]
        if not len(index) or not grid.shape:
            stored |= bool(len(index))
            continue
        # A chunk may lie in several blocks if variables have chunks of different shapes.
        spans = [int((b - a).max()) + 1 for a, b in zip(first, last, strict=True)]
        for shift in np.ndindex(*spans):
            at = tuple(np.minimum(a + by, b) for a, b, by in zip(first, last, shift, strict=True))
            stored[at] = True
    return stored
