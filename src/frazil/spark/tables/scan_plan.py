"""The plan of a scan: which blocks each task reads.

    conditions on coordinates ──> where each one holds, along its own dimensions
                              ──> blocks in which any cell is left

    blocks, in the order of the grid ──> partitions of about one size, with the references of their chunks

The driver evaluates a condition on a coordinate (or on an array with fewer dimensions than the grid) on all
of its values, without assuming an order. The tasks evaluate it again, cell by cell, so that their rows are
exact.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.repository.session.session import Session
from frazil.spark.tables.decoding import Values
from frazil.spark.tables.grid import Column, Grid
from frazil.spark.tables.predicates import Predicate
from frazil.spark.tables.scan_blocks import (
    counts_of,
    is_small,
    matching_blocks,
    read_column,
    stored_blocks,
)
from frazil.spark.tables.version_slices import SharedVersion, rows_in_box

#: Bytes of rows in one task, if `Split` does not set another number.
TARGET_BYTES: Final = 128 << 20
#: The most blocks of a grid, and the most that a query reads: planning takes seconds.
LARGEST_GRID: Final = 1 << 30
MOST_BLOCKS: Final = 1 << 22
#: The value of a cell whose chunk is missing: the fill value of the array, null, or no row if no variable
#: has a chunk.
MISSING: Final = ("fill", "null", "skip")


@dataclass(frozen=True, slots=True)
class Split:
    """How rows are split into tasks. Without an attribute, a task gets about 128 MiB of rows.

    Attributes:
        partitions: The number of tasks.
        rows: The number of rows of a task.
    """

    partitions: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """What all tasks of a query share.

    grid      the grid, with the columns of the result
    schema    names and types of the columns of the result
    read      columns that only conditions need
    where     conditions that every row must meet
    """

    grid: Grid
    schema: pa.Schema
    shared: SharedVersion
    read: tuple[Column, ...] = ()
    where: tuple[Predicate, ...] = ()
    missing: str = "fill"
    batch_rows: int = 1 << 17


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One task: the numbers of its blocks (k, ndim), references by path, and values of coordinates.

    ``coordinates``: column -> the first cell of its values along each of its axes, and the values.
    """

    blocks: NDArray[np.int64]
    tables: Mapping[str, ChunkTable] = field(default_factory=dict)
    coordinates: Mapping[str, tuple[tuple[int, ...], Values]] = field(default_factory=dict)


def plan_scan(
    session: Session,
    grid: Grid,
    where: Sequence[Predicate] = (),
    *,
    schema: pa.Schema | None = None,
    missing: str = "fill",
    split: Split = Split(),  # a frozen value
    batch_rows: int = 1 << 17,
) -> tuple[Scan, list[ScanTask]]:
    """Return the tasks that read all rows that may meet the conditions.

    ``schema`` has the columns of the result; the default is all columns. Raises ``InvalidInputError`` for a
    column that does not exist.
    """
    schema = grid.schema if schema is None else schema
    wanted = tuple(map(grid.column, schema.names))
    where = [replace(each, column=grid.column(each.column).name) for each in where]
    needed = {grid.column(each.column).name: grid.column(each.column) for each in where}
    also = tuple(each for name, each in needed.items() if name not in {one.name for one in wanted})
    every = (*wanted, *also)
    coordinates = {
        each.name: read_column(session, each) for each in every if is_small(grid, each) and _is_in_tasks(each)
    }
    variables = [each for each in every if each.path is not None and each.name not in coordinates]
    shared = SharedVersion.of(session, sorted({each.path for each in variables if each.path is not None}))
    tables = {node.path: session.workspace.ref_table(node.path) for node in shared.nodes}
    narrow = Grid(grid.dims, grid.shape, wanted, grid.block)
    scan = Scan(narrow, schema, shared, also, tuple(where), missing, batch_rows)
    require_bounded(grid, prod(counts_of(grid)), LARGEST_GRID)
    needed_blocks = matching_blocks(session, grid, where, coordinates)
    if missing == "skip":
        needed_blocks &= stored_blocks(
            grid, [each for each in variables if len(each.axes) == len(grid.shape)], tables
        )
    require_bounded(grid, int(np.count_nonzero(needed_blocks)), MOST_BLOCKS)
    blocks = np.argwhere(needed_blocks).astype(np.int64)
    tasks = [
        _scan_task(grid, each, variables, tables, every, coordinates)
        for each in split_blocks(blocks, grid, every, split)
    ]
    return scan, tasks


def require_bounded(grid: Grid, blocks: int, most: int) -> None:
    """Raise ``InvalidInputError`` (``invalid-argument``) for more blocks than a query can plan."""
    if blocks > most:
        shape = " x ".join(map(str, grid.shape))
        raise InvalidInputError(
            f"A query must read at most {most} blocks of cells, got {blocks} in a grid of "
            f"{prod(grid.shape)} cells ({shape}). Choose cells with the option where, skip missing chunks "
            "with include-missing=skip, or make blocks larger with block-rows. A LIMIT of the query does not "
            "help: Spark plans all tasks first",
            ErrorKind.INVALID_ARGUMENT,
        )


def _is_in_tasks(column: Column) -> bool:
    """Return whether tasks carry the values of a column: one of at most one dimension."""
    return column.path is None or len(column.axes) <= 1


def split_blocks(
    blocks: NDArray[np.int64], grid: Grid, columns: Sequence[Column], split: Split
) -> list[NDArray[np.int64]]:
    """Return the blocks of each task."""
    if not len(blocks):
        return []
    block_rows = int(np.prod(grid.block, dtype=np.int64))
    row_bytes = sum(_width(each) for each in columns) or 1
    if split.partitions is not None:
        number = split.partitions
    elif split.rows is not None:
        number = -(-len(blocks) * block_rows // split.rows)
    else:
        number = max(-(-len(blocks) * block_rows * row_bytes // TARGET_BYTES), os.cpu_count() or 1)
    return np.array_split(blocks, max(1, min(number, len(blocks))))


def _width(column: Column) -> int:
    try:
        return max(1, int(column.type.bit_width) // 8)
    except ValueError:  # text and bytes
        return 16


def _scan_task(
    grid: Grid,
    blocks: NDArray[np.int64],
    variables: Sequence[Column],
    tables: Mapping[str, ChunkTable],
    columns: Sequence[Column],
    coordinates: Mapping[str, Values],
) -> ScanTask:
    size = np.array(grid.block, np.int64)
    low = blocks.min(axis=0) * size if grid.shape else np.zeros(0, np.int64)
    high = np.minimum((blocks.max(axis=0) + 1) * size, grid.shape) if grid.shape else low
    refs: dict[str, ChunkTable] = {}
    for each in variables:
        assert each.path is not None
        start = [int(low[axis]) // chunk for axis, chunk in zip(each.axes, each.chunks, strict=True)]
        stop = [-(-int(high[axis]) // chunk) for axis, chunk in zip(each.axes, each.chunks, strict=True)]
        refs[each.path] = rows_in_box(tables[each.path], start, stop)
    values: dict[str, tuple[tuple[int, ...], Values]] = {}
    for each in columns:
        if each.path is not None and each.name in coordinates:
            region = tuple(slice(int(low[axis]), int(high[axis])) for axis in each.axes)
            values[each.name] = (
                tuple(int(low[axis]) for axis in each.axes),
                _compact(coordinates[each.name].take(region)),
            )
    return ScanTask(blocks, refs, values)


def _compact(values: Values) -> Values:
    """Return a copy, so that the whole array is not pickled."""
    null = values.null
    return Values(values.data.copy(), None if null is None or not null.any() else null.copy())
