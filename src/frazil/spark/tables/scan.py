"""A scan of a grid: the plan of the blocks that tasks read, and the work of a task.

The driver evaluates a condition on a coordinate (or on an array with fewer dimensions than the grid) on all
of its values, without assuming an order, and plans the blocks in which any cell is left. The tasks evaluate
it again, cell by cell, so that their rows are exact. Values of a block are read once for each array, repeated
along the dimensions that the array does not have, and cut into Arrow batches. No loop runs over rows.

The context and the nodes, which all tasks share, are pickled once. A task has the rows of the chunk tables
that are in its part of the grid, and requests only chunks.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.arrays.array import Array
from frazil.arrow.cells import broadcast, column_ranges, finest_block, has_ranges, read_column, spread
from frazil.arrow.grid import Column, Grid, Values, as_texts, column_error, to_arrow
from frazil.cf_times import Mask
from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.format.manifest import ChunkTable
from frazil.format.nodes import Node, NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.repository.catalog.context import Context
from frazil.repository.session.session import Session, reading
from frazil.repository.session.workspace import Workspace
from frazil.spark.tables.conditions import ColumnCondition
from frazil.spark.tables.schemas import argument_error
from frazil.threads import SIZES, Purpose, in_order, thread_pool

#: References of some arrays, by path.
type Tables = Mapping[str, ChunkTable]


@dataclass(frozen=True, slots=True)
class SharedVersion:
    """The version that all tasks of a scan read. Each process unpickles ``context`` once."""

    context: bytes
    snapshot_id: bytes
    nodes: tuple[Node, ...]

    @staticmethod
    def of(session: Session, paths: Sequence[str]) -> SharedVersion:
        """Return the version of a session, with the arrays at these paths."""
        workspace = session.workspace
        nodes = []
        for node in map(workspace.require_array, paths):
            assert node.array is not None
            of = node.array
            array = type(of)(of.shape, of.num_chunks, of.dimension_names)  # without its manifests
            nodes.append(replace(node, array=array))
        return SharedVersion(pickle.dumps(workspace.context), workspace.snapshot_id, tuple(nodes))

    def session(self, tables: Tables) -> Session:
        """Return a session that reads these arrays, with the references of the tables."""
        ids = {node.path: node.id for node in self.nodes}
        changes = ChangeSet(
            chunks={ids[path]: ChunkChanges(path, table.ndim, (table,)) for path, table in tables.items()}
        )
        # The session never reads the file of the snapshot.
        nodes = NodeTable.from_nodes(self.nodes)
        snapshot = Snapshot(self.snapshot_id, 0, "", {}, nodes, ManifestFiles.empty())
        return reading(Workspace(_context(self.context), self.snapshot_id, changes, snapshot=snapshot))


@functools.lru_cache(maxsize=4)
def _context(pickled: bytes) -> Context:
    """Return the context, one for each process: it keeps the connections."""
    context: Context = pickle.loads(pickled)
    return context


def rows_in_box(table: ChunkTable, low: Sequence[int], high: Sequence[int]) -> ChunkTable:
    """Return the rows in a box of chunk coordinates, ``low`` up to but not including ``high``."""
    if not table.ndim:
        return table
    # Rows are sorted by the first coordinate: only these rows are compared.
    first = table.index[:, 0]
    start, stop = np.searchsorted(first, [low[0], high[0]])
    rows = slice(int(start), int(stop))
    index = table.index[rows]
    inside = ((index >= np.array(low, np.int64)) & (index < np.array(high, np.int64))).all(axis=1)
    within = table.select_chunks(rows)
    return (within if inside.all() else within.select_chunks(inside)).prune().compact()


#: The most values of a column that the driver reads to plan with.
LARGEST_COLUMN: Final = 1 << 22


def is_small(grid: Grid, column: Column) -> bool:
    """Return whether the driver reads all values of a column, to evaluate conditions on them."""
    if column.instances is not None:
        return True
    is_key = column.is_key or len(column.axes) < len(grid.shape)
    return is_key and prod(column.shape) <= LARGEST_COLUMN


def counts_of(grid: Grid) -> tuple[int, ...]:
    """Return the number of blocks along each dimension."""
    return tuple(-(-size // block) for size, block in zip(grid.shape, grid.block, strict=True))


def matching_blocks(
    session: Session,
    grid: Grid,
    where: Iterable[ColumnCondition],
    coordinates: Mapping[str, Values],
    missing: str = "fill",
) -> Mask:
    """Return the blocks in which all conditions may hold. ``coordinates``: values in memory, by column."""
    matching = np.ones(counts_of(grid), np.bool_)
    by_axes: dict[tuple[int, ...], Mask] = {}
    for each in where:
        column = grid.column(each.column)
        if not is_small(grid, column):
            if has_ranges(session, column):
                sizes = zip(grid.shape, grid.block, strict=True)
                boxes = [(np.arange(0, n, m), np.minimum(np.arange(m, n + m, m), n)) for n, m in sizes]
                absent = "fill" if column.is_key else missing
                ranges = column_ranges(session, column, boxes, missing=absent)
                matching &= True if ranges is None else each.may_hold(ranges)
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
        matching &= broadcast(any_holds, axes, matching.shape)
    return matching


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


#: Bytes of rows in one task, if `Split` does not set another number.
TARGET_BYTES: Final = 128 << 20
#: The most blocks of a grid, and the most that a query reads: planning takes seconds.
LARGEST_GRID: Final = 1 << 30
MOST_BLOCKS: Final = 1 << 22
#: The most chunks that are compared with conditions one by one.
MOST_CHUNKS: Final = 1 << 24
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
    """What all tasks of a query share. ``read`` are columns that only the conditions ``where`` need."""

    grid: Grid
    schema: pa.Schema
    shared: SharedVersion
    read: tuple[Column, ...] = ()
    where: tuple[ColumnCondition, ...] = ()
    missing: str = "fill"
    batch_rows: int = 1 << 17


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One task: its blocks (k, ndim), references by path, and the first cells and values of coordinates."""

    blocks: NDArray[np.int64]
    tables: Mapping[str, ChunkTable] = field(default_factory=dict)
    coordinates: Mapping[str, tuple[tuple[int, ...], Values]] = field(default_factory=dict)


def plan_scan(
    session: Session,
    grid: Grid,
    where: Sequence[ColumnCondition] = (),
    *,
    schema: pa.Schema | None = None,
    missing: str = "fill",
    split: Split = Split(),  # a frozen value
    batch_rows: int = 1 << 17,
) -> tuple[Scan, list[ScanTask]]:
    """Return the tasks that read all rows that may meet the conditions, and what they share.

    ``schema`` has the columns of the result; the default is all columns.
    """
    schema = grid.schema() if schema is None else schema
    columns = tuple(map(grid.column, schema.names))
    needed = {each.column: grid.column(each.column) for each in where}
    also = tuple(each for name, each in needed.items() if name not in {one.name for one in columns})
    every = (*columns, *also)
    coordinates = {
        each.name: read_column(session, each)
        for each in every
        if is_small(grid, each) and (each.path is None or len(each.axes) <= 1)
    }
    variables = [each for each in every if each.path is not None and each.name not in coordinates]
    shared = SharedVersion.of(session, sorted({each.path for each in variables if each.path is not None}))
    tables = {node.path: session.workspace.ref_table(node.path) for node in shared.nodes}
    require_bounded(grid, prod(counts_of(grid)), LARGEST_GRID)
    needed_blocks = matching_blocks(session, grid, where, coordinates, missing)
    large = [each for each in needed.values() if not is_small(grid, each)]
    if missing != "skip" and any(has_ranges(session, each) for each in large):
        # Blocks of several chunks become chunks, if statistics leave out half of the cells.
        fine = replace(grid, block=finest_block(session, grid, variables))
        if prod(counts_of(fine)) <= MOST_CHUNKS:
            fine_blocks = matching_blocks(session, fine, where, coordinates, missing)
            cells = [
                np.count_nonzero(each) * prod(of.block)
                for each, of in ((needed_blocks, grid), (fine_blocks, fine))
            ]
            if 2 * cells[1] <= cells[0]:
                grid, needed_blocks = fine, fine_blocks
    narrow = Grid(grid.dims, grid.shape, columns, grid.block)
    scan = Scan(narrow, schema, shared, also, tuple(where), missing, batch_rows)
    whole = [each for each in variables if each.path and len(each.axes) == len(grid.shape)]
    if missing == "skip" and whole:
        stored = np.zeros_like(needed_blocks)
        numbers = [np.arange(size) // block for size, block in zip(grid.shape, grid.block, strict=True)]
        for each in whole:
            stored |= blocks_of_chunks(each, tables[str(each.path)].index, numbers, stored.shape)
        needed_blocks &= stored
    require_bounded(grid, int(np.count_nonzero(needed_blocks)), MOST_BLOCKS)
    size = np.array(grid.block, np.int64)

    def task(blocks: NDArray[np.int64]) -> ScanTask:
        low = blocks.min(axis=0) * size if grid.shape else np.zeros(0, np.int64)
        high = np.minimum((blocks.max(axis=0) + 1) * size, grid.shape) if grid.shape else low
        refs: dict[str, ChunkTable] = {}
        for each in variables:
            assert each.path is not None
            start = [int(low[axis]) // chunk for axis, chunk in zip(each.axes, each.chunks, strict=True)]
            stop = [-(-int(high[axis]) // chunk) for axis, chunk in zip(each.axes, each.chunks, strict=True)]
            refs[each.path] = rows_in_box(tables[each.path], start, stop)
        values: dict[str, tuple[tuple[int, ...], Values]] = {}
        for each in every:
            if each.path is not None and each.name in coordinates:
                region = tuple(slice(int(low[axis]), int(high[axis])) for axis in each.axes)
                part = coordinates[each.name].take(region)
                null = None if part.null is None or not part.null.any() else part.null.copy()
                # A copy, so that the whole array is not pickled.
                values[each.name] = (tuple(s.start for s in region), Values(part.data.copy(), null))
        return ScanTask(blocks, refs, values)

    blocks = np.argwhere(needed_blocks).astype(np.int64)
    return scan, list(map(task, split_blocks(blocks, grid, every, split)))


def require_bounded(grid: Grid, blocks: int, most: int) -> None:
    """Raise ``InvalidInputError`` (``invalid-argument``) for more blocks than a query can plan."""
    if blocks > most:
        shape = " x ".join(map(str, grid.shape))
        raise argument_error(
            f"A query must read at most {most} blocks of cells, got {blocks} in a grid of "
            f"{prod(grid.shape)} cells ({shape}). Choose cells with the option where, skip missing chunks "
            "with include-missing=skip, or make blocks larger with block-rows. A LIMIT of the query does not "
            "help: Spark plans all tasks first"
        )


def split_blocks(
    blocks: NDArray[np.int64], grid: Grid, columns: Sequence[Column], split: Split
) -> list[NDArray[np.int64]]:
    """Return the blocks of each task."""
    if not len(blocks):
        return []
    block_rows = int(np.prod(grid.block, dtype=np.int64))
    types = [each.type for each in columns]
    row_bytes = sum(max(1, t.bit_width // 8) if pa.types.is_primitive(t) else 16 for t in types) or 1
    if split.partitions is not None:
        number = split.partitions
    elif split.rows is not None:
        number = -(-len(blocks) * block_rows // split.rows)
    else:
        number = max(-(-len(blocks) * block_rows * row_bytes // TARGET_BYTES), os.cpu_count() or 1)
    return np.array_split(blocks, max(1, min(number, len(blocks))))


type _Region = tuple[slice, ...]


def batches(scan: Scan, task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task."""
    reader = BlockReader(scan, task)
    schema = scan.schema
    for values, rows in prefetched(reader.block, task.blocks, reader.is_local):
        for start in range(0, rows, scan.batch_rows):
            stop = min(start + scan.batch_rows, rows)
            arrays = [
                cast(to_arrow(each.take((slice(start, stop),)), column.type), field)
                for each, column, field in zip(values, scan.grid.columns, schema, strict=True)
            ]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            else:  # rows without columns
                yield pa.RecordBatch.from_struct_array(pa.array([{}] * (stop - start), pa.struct([])))


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a block that meet the conditions.

    ``region`` is the smallest box around them. ``along`` has the places in it along each dimension, and
    ``rows`` the cells among those; None are all. ``values`` are the columns of conditions, read already.
    """

    count: int
    region: _Region = ()
    along: tuple[NDArray[np.int64], ...] = ()
    rows: NDArray[np.int64] | None = None
    values: Mapping[str, Values] = field(default_factory=dict)


class BlockReader:
    """Reads blocks. Coordinates of one dimension come with the task, other arrays are read from the store."""

    def __init__(self, scan: Scan, task: ScanTask) -> None:
        session = scan.shared.session(task.tables)
        self.scan = scan
        self.task = task
        self.is_local: Final = is_local(session, task.tables)
        by_name = {each.name: each for each in (*scan.grid.columns, *scan.read)}
        self._where = [(by_name[each.column], each) for each in scan.where]
        paths = {each.path for each in (*scan.grid.columns, *scan.read) if each.path in task.tables}
        self._arrays: dict[str | None, Array] = {
            path: Array(session, path) for path in paths if path is not None
        }

    def block(self, number: NDArray[np.int64]) -> tuple[list[Values], int]:
        """Return the values of all returned columns, of shape (rows,), and the number of rows."""
        cells = self.cells(number)
        if not cells.count:
            return [], 0
        return [self.column(each, cells) for each in self.scan.grid.columns], cells.count

    def cells(self, number: NDArray[np.int64]) -> Cells:
        """Return the cells of a block that meet the conditions. Only columns of conditions are read."""
        grid = self.scan.grid
        starts = number * np.array(grid.block, np.int64)
        stops = np.minimum(starts + grid.block, grid.shape)
        region = tuple(map(slice, starts.tolist(), stops.tolist()))
        # The cells along each dimension that meet the conditions on columns of this dimension
        along = [np.ones(s.stop - s.start, np.bool_) for s in region]
        for column, each in self._where:
            if len(column.axes) == 1:
                along[column.axes[0]] &= each.holds(self._read(column, region))
        rows_along = list(map(np.flatnonzero, along))
        if not all(map(len, rows_along)):
            return Cells(0)
        # Chunks before the first and after the last matching cell are not read.
        inner = tuple(
            slice(s.start + int(rows[0]), s.start + int(rows[-1]) + 1)
            for s, rows in zip(region, rows_along, strict=True)
        )
        places = tuple(rows - rows[0] for rows in rows_along)
        shape = tuple(map(len, places))
        count = int(np.prod(shape, dtype=np.int64))
        box = Cells(count, inner, places)
        columns = {column.name: column for column, _ in self._where if len(column.axes) != 1}
        if not columns:
            return box
        values = {name: self._within(column, box) for name, column in columns.items()}
        holds = np.ones(shape, np.bool_)
        for column, each in self._where:
            if column.name in values:
                holds &= broadcast(each.holds(values[column.name]), column.axes, shape)
        rows = np.flatnonzero(holds)
        return Cells(len(rows), inner, places, rows, values)

    def column(self, column: Column, cells: Cells) -> Values:
        """Return the values of a column in some cells, of shape (rows,)."""
        values = cells.values.get(column.name)
        if values is None:
            values = self._within(column, cells)
        every = spread(values, column.axes, tuple(map(len, cells.along)))
        return every if cells.rows is None else every.take((cells.rows,))

    def _within(self, column: Column, cells: Cells) -> Values:
        """Return values of a column in its own dimensions, at the places of the cells along them."""
        whole = self._read(column, cells.region)
        if all(len(places) > places[-1] for places in cells.along):
            return whole
        return whole.take(np.ix_(*(cells.along[axis] for axis in column.axes)))

    def _read(self, column: Column, region: _Region) -> Values:
        """Return values of a column in its own dimensions."""
        mine = tuple(region[axis] for axis in column.axes)
        if column.path is None:
            return Values(np.arange(mine[0].start, mine[0].stop, dtype=np.int64))
        if column.name in self.task.coordinates:
            first, values = self.task.coordinates[column.name]
            return values.take(
                tuple(slice(s.start - at, s.stop - at) for s, at in zip(mine, first, strict=True))
            )
        values = column.decoder.decode(np.asarray(self._arrays[column.path][mine]))
        # zarr does not store chunks of fill values, but the fill value is a valid coordinate.
        if self.scan.missing == "fill" or column.is_key:
            return values
        absent = _missing(self.task.tables[column.path], column.chunks, mine)
        if absent is None:
            return values
        return Values(values.data, absent if values.null is None else values.null | absent)


def is_local(session: Session, tables: Mapping[str, ChunkTable]) -> bool:
    """Return whether all chunks are on this machine, judged by the first virtual one of each table."""
    locations = (table.foreign.locations for table in tables.values())
    return session.workspace.context.storage.is_local and all(
        not len(each) or each.text(0).startswith("file:") for each in locations
    )


def _missing(table: ChunkTable, chunks: Sequence[int], region: _Region) -> Mask | None:
    """Return the elements of a region whose chunk is not stored; None if all chunks are stored."""
    first = [s.start // step for s, step in zip(region, chunks, strict=True)]
    last = [-(-s.stop // step) for s, step in zip(region, chunks, strict=True)]
    low, high = np.array(first, np.int64), np.array(last, np.int64)
    index = table.index.astype(np.int64)
    inside = ((index >= low) & (index < high)).all(axis=1)
    stored = np.zeros(tuple((high - low).tolist()), np.bool_)
    stored[tuple((index[inside] - low).T)] = True
    if stored.all():
        return None
    absent = ~stored
    for axis, (s, step) in enumerate(zip(region, chunks, strict=True)):
        numbers = np.arange(s.start, s.stop) // step - first[axis]
        absent = absent.take(numbers, axis=axis)
    return absent


def cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return the values with the type of a field. Raise ``InvalidInputError`` if they do not fit."""
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise column_error(
            f"The column {field.name} must have values of {field.type}, got {array.type}: {error}"
        ) from error


def prefetched[B, T](
    read: Callable[[B], T], blocks: Sequence[B] | NDArray[Any], is_local: bool
) -> Iterator[T]:
    """Yield the results for blocks in order; those of a remote storage are read ahead."""
    if is_local or len(blocks) < 2:
        yield from map(read, blocks)
        return
    with thread_pool(Purpose.SCAN_READS) as pool:
        yield from in_order(lambda each: pool.submit(read, each), blocks, SIZES[Purpose.SCAN_READS])


def blocks_of(scan: Scan, task: ScanTask) -> Iterator[Mapping[str, Any]]:
    """Yield the values of each block of a task by column: masked arrays of shape (rows,)."""
    reader = BlockReader(scan, task)
    for values, rows in prefetched(reader.block, task.blocks, reader.is_local):
        if rows:
            yield {
                name: np.ma.MaskedArray(as_texts(each.data), np.ma.nomask if each.null is None else each.null)
                for name, each in zip(scan.schema.names, values, strict=True)
            }


def table(scan: Scan, tasks: Sequence[ScanTask]) -> pa.Table:
    """Return all rows of a scan, read in this process without Spark."""
    every = [batch for each in tasks for batch in batches(scan, each)]
    return pa.Table.from_batches(every, scan.schema)
