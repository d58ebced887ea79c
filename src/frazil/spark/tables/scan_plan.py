"""Which blocks of a grid a query needs, and which of them are one task.

    conditions on coordinates ──> where each one holds, along its own dimensions
                              ──> blocks in which any cell is left
    blocks, in the order of the grid ──> partitions of about one size, with the references of their chunks

A condition on a coordinate (or on anything with fewer dimensions than the grid) is evaluated here on all of
its values: no order is assumed. The tasks evaluate it again, cell by cell, so that what they return is exact.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.repository.session.session import Session
from frazil.spark.tables.decoding import Values
from frazil.spark.tables.grid import Column, Grid, index_values
from frazil.spark.tables.predicates import Mask, Predicate
from frazil.spark.tables.version_slices import Shared, part
from frazil.zarr_store.arrays import array_at

#: Values of a coordinate that the driver reads to plan with: at most so many.
KNOWN: Final = 1 << 22
#: Bytes of rows in one task, unless told otherwise.
TARGET_BYTES: Final = 128 << 20
#: Blocks of a grid, and those of them that a query reads: no more, so that planning takes seconds.
MASKED: Final = 1 << 30
BLOCKS: Final = 1 << 22
#: What becomes of cells whose chunk is not there: the array's fill value, null, or no row where that is so
#: for all variables.
MISSING: Final = ("fill", "null", "skip")

type Box = NDArray[np.int64]  # (k, ndim)


@dataclass(frozen=True, slots=True)
class Split:
    """How rows become tasks: a number of them, or of rows in each, or by ``TARGET_BYTES``."""

    partitions: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """What all tasks of a query know.

    grid      its columns are those that are returned
    schema    of what is returned: names and types of these columns
    read      columns that only conditions need
    where     conditions that every row must meet
    """

    grid: Grid
    schema: pa.Schema
    shared: Shared
    read: tuple[Column, ...] = ()
    where: tuple[Predicate, ...] = ()
    missing: str = "fill"
    batch_rows: int = 1 << 17


@dataclass(frozen=True, slots=True)
class Part:
    """One task: blocks (k, ndim) by number, references by path, and values of coordinates that are at hand.

    ``known`` maps a column to the first cell of its values along each of its axes, and these.
    """

    blocks: Box
    tables: Mapping[str, ChunkTable] = field(default_factory=dict)
    known: Mapping[str, tuple[tuple[int, ...], Values]] = field(default_factory=dict)


def is_known(grid: Grid, column: Column) -> bool:
    """Whether a condition on it is evaluated when a query is planned."""
    if column.instances is not None:
        return True
    return column.size <= KNOWN and (column.is_key or len(column.axes) < len(grid.shape))


def read_whole(session: Session, column: Column) -> Values:
    """All values of a column along its own dimensions; those of instances repeated."""
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


def plan(
    session: Session,
    grid: Grid,
    where: Sequence[Predicate] = (),
    *,
    schema: pa.Schema | None = None,
    missing: str = "fill",
    split: Split = Split(),  # a frozen value
    batch_rows: int = 1 << 17,
) -> tuple[Scan, list[Part]]:
    """The tasks that read all rows that may meet the conditions.

    ``schema`` has the columns that are wanted, all unless given. Raises ``InvalidInputError`` for a column
    that is not there.
    """
    schema = grid.schema if schema is None else schema
    wanted = tuple(map(grid.column, schema.names))
    where = [replace(each, column=grid.column(each.column).name) for each in where]
    needed = {grid.column(each.column).name: grid.column(each.column) for each in where}
    also = tuple(each for name, each in needed.items() if name not in {one.name for one in wanted})
    every = (*wanted, *also)
    known = {
        each.name: read_whole(session, each) for each in every if is_known(grid, each) and _at_hand(each)
    }
    variables = [each for each in every if each.path is not None and each.name not in known]
    shared = Shared.of(session, sorted({each.path for each in variables if each.path is not None}))
    tables = {node.path: session.workspace.chunks.ref_table(node.path) for node in shared.nodes}
    narrow = Grid(grid.dims, grid.shape, wanted, grid.block)
    scan = Scan(narrow, schema, shared, also, tuple(where), missing, batch_rows)
    _require_bounded(grid, prod(counts_of(grid)), MASKED)
    alive = _pruned(session, grid, where, known)
    if missing == "skip":
        alive &= _present(grid, [each for each in variables if len(each.axes) == len(grid.shape)], tables)
    _require_bounded(grid, int(np.count_nonzero(alive)), BLOCKS)
    blocks = np.argwhere(alive).astype(np.int64)
    parts = [
        _part(grid, chosen, variables, tables, every, known) for chosen in _chosen(blocks, grid, every, split)
    ]
    return scan, parts


def _require_bounded(grid: Grid, blocks: int, most: int) -> None:
    """``InvalidInputError`` (``not-allowed``) for more blocks than a query can be planned with."""
    if blocks > most:
        shape = " x ".join(map(str, grid.shape))
        raise InvalidInputError(
            f"expected at most {most} blocks of cells to read, found {blocks} in a grid of "
            f"{prod(grid.shape)} cells ({shape}): say which cells with the option where, leave out chunks "
            "that are not there with include-missing=skip, or make blocks larger with block-rows. A limit "
            "of the query comes too late: Spark plans all tasks first",
            ErrorKind.NOT_ALLOWED,
        )


def _at_hand(column: Column) -> bool:
    """Whether its values travel with the tasks: those along one dimension."""
    return column.path is None or len(column.axes) <= 1


def counts_of(grid: Grid) -> tuple[int, ...]:
    """Number of blocks along each dimension."""
    return tuple(-(-size // block) for size, block in zip(grid.shape, grid.block, strict=True))


def _pruned(session: Session, grid: Grid, where: Iterable[Predicate], known: Mapping[str, Values]) -> Mask:
    """Blocks in which all conditions may hold."""
    alive = np.ones(counts_of(grid), np.bool_)
    together: dict[tuple[int, ...], Mask] = {}
    for each in where:
        column = grid.column(each.column)
        if not is_known(grid, column):
            continue
        values = known.get(column.name)
        holds = each.holds(read_whole(session, column) if values is None else values)
        together[column.axes] = together[column.axes] & holds if column.axes in together else holds
    for axes, holds in together.items():
        any_holds = holds
        for at, axis in enumerate(axes):
            starts = np.arange(0, grid.shape[axis], grid.block[axis])
            if len(starts):
                any_holds = np.logical_or.reduceat(any_holds, starts, axis=at)
        # The axes of an array may be in another order than those of the grid.
        order = np.argsort(axes)
        shape = [1] * len(grid.shape)
        for axis in axes:
            shape[axis] = alive.shape[axis]
        alive &= any_holds.transpose(order).reshape(shape)
    return alive


def _present(grid: Grid, variables: Sequence[Column], tables: Mapping[str, ChunkTable]) -> Mask:
    """Blocks in which some variable has a chunk."""
    found = np.zeros(counts_of(grid), np.bool_)
    if not variables:
        return ~found
    for each in variables:
        assert each.path is not None
        index = tables[each.path].index.astype(np.int64)
        steps = zip(each.axes, each.chunks, strict=True)
        places = {axis: (index[:, at], step) for at, (axis, step) in enumerate(steps)}
        first = [places[axis][0] * places[axis][1] // grid.block[axis] for axis in range(len(grid.shape))]
        last = [
            np.minimum((places[axis][0] + 1) * places[axis][1] - 1, grid.shape[axis] - 1) // grid.block[axis]
            for axis in range(len(grid.shape))
        ]
        if not len(index) or not grid.shape:
            found |= bool(len(index))
            continue
        # A chunk may reach over several blocks where variables have chunks of other shapes.
        spans = [int((b - a).max()) + 1 for a, b in zip(first, last, strict=True)]
        for shift in np.ndindex(*spans):
            at = tuple(np.minimum(a + by, b) for a, b, by in zip(first, last, shift, strict=True))
            found[at] = True
    return found


def _chosen(blocks: Box, grid: Grid, columns: Sequence[Column], split: Split) -> list[Box]:
    """The blocks of each task."""
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


def _part(
    grid: Grid,
    blocks: Box,
    variables: Sequence[Column],
    tables: Mapping[str, ChunkTable],
    columns: Sequence[Column],
    known: Mapping[str, Values],
) -> Part:
    size = np.array(grid.block, np.int64)
    low = blocks.min(axis=0) * size if grid.shape else np.zeros(0, np.int64)
    high = np.minimum((blocks.max(axis=0) + 1) * size, grid.shape) if grid.shape else low
    refs: dict[str, ChunkTable] = {}
    for each in variables:
        assert each.path is not None
        start = [int(low[axis]) // chunk for axis, chunk in zip(each.axes, each.chunks, strict=True)]
        stop = [-(-int(high[axis]) // chunk) for axis, chunk in zip(each.axes, each.chunks, strict=True)]
        refs[each.path] = part(tables[each.path], start, stop)
    cut: dict[str, tuple[tuple[int, ...], Values]] = {}
    for each in columns:
        if each.path is not None and each.name in known:
            region = tuple(slice(int(low[axis]), int(high[axis])) for axis in each.axes)
            cut[each.name] = (
                tuple(int(low[axis]) for axis in each.axes),
                _compact(known[each.name].take(region)),
            )
    return Part(blocks, refs, cut)


def _compact(values: Values) -> Values:
    """Without the array that it is a part of."""
    null = values.null
    return Values(values.data.copy(), None if null is None or not null.any() else null.copy())


def rows_of(grid: Grid, parts: Sequence[Part]) -> int:
    """Rows in all, before conditions are applied in the tasks."""
    size, shape = np.array(grid.block, np.int64), np.array(grid.shape, np.int64)
    return sum(
        int(
            reduce(
                np.multiply, (np.minimum((part.blocks + 1) * size, shape) - part.blocks * size).T, np.int64(1)
            ).sum()
        )
        if grid.shape
        else 1
        for part in parts
    )
