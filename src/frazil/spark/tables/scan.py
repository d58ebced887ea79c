"""A scan of a grid: the plan of the blocks that tasks read, and the work of a task.

The driver evaluates a condition on a coordinate (or on an array with fewer dimensions than the grid) on all
of its values, without assuming an order, and plans the blocks in which any cell is left. The tasks evaluate
it again, cell by cell, so that their rows are exact. Values of a block are read once for each array, repeated
along the dimensions that the array does not have, and cut into Arrow batches. No loop runs over rows.

The context and the nodes, which all tasks share, are pickled once. A task has the rows of the chunk tables
that are in its part of the grid, and requests only chunks.

A batch of ``mapInArrow`` has all columns, whether a query names them or not. So in `frame_of_rows` each
column is an Arrow function of Spark. It returns the values of a *segment*, some rows of one block, as a list.
Spark drops the functions of columns that a query does not name, and its generated code makes rows of lists.
The last step is nondeterministic on purpose. Otherwise Spark would merge it with a function of the user, and
copy the lists of a segment for each of its rows.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from math import prod
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, DataType, IntegerType, StructType

from frazil.arguments import misfit
from frazil.arrow.cells import (
    BlockReader,
    Region,
    broadcast,
    column_ranges,
    finest_block,
    has_ranges,
    prefetched,
    shape_of,
    spread,
)
from frazil.arrow.grid import Column, Grid, Values, as_texts, to_arrow
from frazil.cf_times import Mask
from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.errors import InvalidInputError
from frazil.format.columns import I64
from frazil.format.manifest import ChunkTable
from frazil.format.nodes import Node, NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.repository.catalog.context import Context
from frazil.repository.session.session import Session, reading
from frazil.repository.session.workspace import Workspace
from frazil.spark.runtime.session import is_sail
from frazil.spark.tables.schemas import ColumnCondition, to_spark, to_spark_type

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


def matching_blocks(reader: BlockReader, grid: Grid, where: Iterable[ColumnCondition], missing: str) -> Mask:
    """Return the blocks in which all conditions may hold."""
    matching = np.ones(counts_of(grid), np.bool_)
    by_axes: dict[tuple[int, ...], Mask] = {}
    for each in where:
        column = grid.column(each.column)
        if not is_small(grid, column):
            if has_ranges(reader.session, column):
                sizes = zip(grid.shape, grid.block, strict=True)
                boxes = [(np.arange(0, n, m), np.minimum(np.arange(m, n + m, m), n)) for n, m in sizes]
                absent = "fill" if column.is_key else missing
                ranges = column_ranges(reader.session, column, boxes, missing=absent)
                matching &= True if ranges is None else each.may_hold(ranges)
            continue
        holds = each.holds(reader.coordinate(column))
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
    column: Column, chunks: NDArray[np.uint32], numbers: Sequence[I64], counts: Sequence[int]
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

    blocks: I64
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
    reader = BlockReader(session)
    in_memory = {each.name for each in every if is_small(grid, each) and len(each.axes) <= 1}
    variables = [each for each in every if each.path is not None and each.name not in in_memory]
    shared = SharedVersion.of(session, sorted({each.path for each in variables if each.path is not None}))
    tables = {node.path: session.workspace.ref_table(node.path) for node in shared.nodes}
    require_bounded(grid, prod(counts_of(grid)), LARGEST_GRID)
    needed_blocks = matching_blocks(reader, grid, where, missing)
    large = [each for each in needed.values() if not is_small(grid, each)]
    if missing != "skip" and any(has_ranges(session, each) for each in large):
        # Blocks of several chunks become chunks, if statistics leave out half of the cells.
        fine = replace(grid, block=finest_block(session, grid, variables))
        if prod(counts_of(fine)) <= MOST_CHUNKS:
            fine_blocks = matching_blocks(reader, fine, where, missing)
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

    def task(blocks: I64) -> ScanTask:
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
            if each.path is not None and each.name in in_memory:
                region = tuple(slice(int(low[axis]), int(high[axis])) for axis in each.axes)
                part = reader.coordinate(each).take(region)
                null = None if part.null is None or not part.null.any() else part.null.copy()
                # A copy, so that the whole array is not pickled.
                values[each.name] = (tuple(s.start for s in region), Values(part.data.copy(), null))
        return ScanTask(blocks, refs, values)

    blocks = np.argwhere(needed_blocks).astype(np.int64)
    return scan, list(map(task, split_blocks(blocks, grid, every, split)))


@dataclass(frozen=True, slots=True, eq=False)
class ScanRequest:
    """The rows that a user asks for. ``schema`` has their columns; see `plan_scan`."""

    session: Session
    grid: Grid
    schema: pa.Schema
    where: Sequence[ColumnCondition] = ()
    missing: str = "fill"
    split: Split = Split()  # a frozen value
    batch_rows: int = 1 << 17

    def plan(self) -> tuple[Scan, list[ScanTask]]:
        """Return the tasks, and what they share."""
        more = {each: getattr(self, each) for each in ("schema", "missing", "split", "batch_rows")}
        return plan_scan(self.session, self.grid, self.where, **more)


def require_bounded(grid: Grid, blocks: int, most: int) -> None:
    """Raise ``InvalidInputError`` (``invalid-argument``) for more blocks than a query can plan."""
    if blocks > most:
        shape = " x ".join(map(str, grid.shape))
        raise InvalidInputError(
            f"A query must read at most {most} blocks of cells, got {blocks} in a grid of "
            f"{prod(grid.shape)} cells ({shape}). Choose cells with the option where, skip missing chunks "
            "with include-missing=skip, or make blocks larger with block-rows. A LIMIT of the query does not "
            "help: Spark plans all tasks first"
        )


def split_blocks(blocks: I64, grid: Grid, columns: Sequence[Column], split: Split) -> list[I64]:
    """Return the blocks of each task."""
    if not len(blocks):
        return []
    block_rows = int(np.prod(grid.block, dtype=np.int64))
    if split.partitions is not None:
        number = split.partitions
    elif split.rows is not None:
        number = -(-len(blocks) * block_rows // split.rows)
    else:
        number = max(-(-len(blocks) * block_rows * row_bytes(columns) // TARGET_BYTES), os.cpu_count() or 1)
    return np.array_split(blocks, max(1, min(number, len(blocks))))


def row_bytes(columns: Sequence[Column]) -> int:
    """Return about how many bytes a row has."""
    types = [each.type for each in columns]
    return sum(max(1, t.bit_width // 8) if pa.types.is_primitive(t) else 16 for t in types) or 1


def batches(scan: Scan, task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task."""
    reader = ScanReader(scan, task)
    for block in prefetched(reader.block, task.blocks, is_local=reader.is_local):
        for start in range(0, block.num_rows, scan.batch_rows):
            yield block.slice(start, scan.batch_rows)


@dataclass(frozen=True, slots=True)
class BlockCells:
    """The cells of a block that meet the conditions.

    ``region`` is the smallest box around them. ``along`` has the places in it along each dimension, and
    ``rows`` the cells among those; None are all. ``values`` are the columns of conditions, read already.
    """

    count: int
    region: Region = ()
    along: tuple[I64, ...] | None = None
    rows: I64 | None = None
    values: Mapping[str, Values] = field(default_factory=dict)


class ScanReader:
    """Reads the blocks of one task: columns of the cells that meet the conditions."""

    def __init__(self, scan: Scan, task: ScanTask) -> None:
        session = scan.shared.session(task.tables)
        self.scan = scan
        self.is_local: Final = is_local(session, task.tables)
        sparse = {} if scan.missing == "fill" else task.tables
        self._reader = BlockReader(session, task.coordinates, sparse)
        by_name = {each.name: each for each in (*scan.grid.columns, *scan.read)}
        self._where = [(by_name[each.column], each) for each in scan.where]
        self._task = task
        self._cells: dict[int, BlockCells] = {}

    def block(self, number: I64) -> pa.RecordBatch:
        """Return the rows of a block."""
        cells, columns = self.cells(number), list(zip(self.scan.grid.columns, self.scan.schema, strict=True))
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * cells.count, pa.struct([])))
        if not cells.count:
            return pa.RecordBatch.from_pylist([], self.scan.schema)
        arrays = [cast(self.rows(column, cells), field) for column, field in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.scan.schema)

    def cells(self, number: I64) -> BlockCells:
        """Return the cells of a block that meet the conditions. Only columns of conditions are read."""
        grid = self.scan.grid
        starts = number * np.array(grid.block, np.int64)
        region = tuple(map(slice, starts.tolist(), np.minimum(starts + grid.block, grid.shape).tolist()))
        if not self._where:
            return BlockCells(prod(shape_of(region)), region)
        # The cells along each dimension that meet the conditions on columns of this dimension
        along = [np.ones(length, np.bool_) for length in shape_of(region)]
        for column, each in self._where:
            if len(column.axes) == 1:
                along[column.axes[0]] &= each.holds(self._reader.values(column, region))
        if not all(each.any() for each in along):
            return BlockCells(0)
        places = [np.flatnonzero(each) for each in along]
        # Chunks before the first and after the last matching cell are not read.
        region = tuple(
            slice(each.start + int(own[0]), each.start + int(own[-1]) + 1)
            for each, own in zip(region, places, strict=True)
        )
        is_whole = shape_of(region) == (shape := tuple(map(len, places)))
        box = BlockCells(prod(shape), region, None if is_whole else tuple(own - own[0] for own in places))
        columns = {column.name: column for column, _ in self._where if len(column.axes) != 1}
        if not columns:
            return box
        values = {name: self._within(column, box) for name, column in columns.items()}
        holds = np.ones(shape, np.bool_)
        for column, each in self._where:
            if column.name in values:
                holds &= broadcast(each.holds(values[column.name]), column.axes, shape)
        rows = np.flatnonzero(holds)
        return replace(box, count=len(rows), rows=None if len(rows) == holds.size else rows, values=values)

    def rows(self, column: Column, cells: BlockCells) -> pa.Array:
        """Return the values of a column in some cells, as a column of Arrow."""
        if cells.rows is None and cells.along is None and column.name not in cells.values:
            return self._reader.rows(column, cells.region)
        return to_arrow(self.values(column, cells), column.type)

    def values(self, column: Column, cells: BlockCells) -> Values:
        """Return the values of a column in some cells, of shape (rows,)."""
        values = cells.values.get(column.name)
        if values is None:
            values = self._within(column, cells)
        shape = shape_of(cells.region) if cells.along is None else tuple(map(len, cells.along))
        every = spread(values, column.axes, shape)
        return every if cells.rows is None else every.take((cells.rows,))

    def _within(self, column: Column, cells: BlockCells) -> Values:
        """Return values of a column in its own dimensions, at the places of the cells along them."""
        whole = self._reader.values(column, cells.region)
        if cells.along is None:
            return whole
        return whole.take(np.ix_(*(cells.along[axis] for axis in column.axes)))

    def lists(self, segments: I64, number: int | None) -> pa.Array:
        """Return a list of the values of a column for each segment, or their lengths without a ``number``.

        The cells of each block that meet the conditions stay in memory, for all columns.
        """
        size = self.scan.batch_rows
        numbers, places = np.divmod(segments, _segments_of_block(self.scan))
        blocks, first, at = np.unique(numbers, return_index=True, return_inverse=True)
        new = [each for each in blocks.tolist() if each not in self._cells]
        read = prefetched(self.cells, self._task.blocks[new], is_local=self.is_local)
        self._cells.update(zip(new, read, strict=True))
        cells = [self._cells[each] for each in blocks.tolist()]
        lengths = np.clip(np.array([each.count for each in cells])[at] - places * size, 0, size)
        if number is None:
            return pa.array(lengths, pa.int32())
        column, field = self.scan.grid.columns[number], self.scan.schema.field(number)
        stops = np.add.reduceat(lengths, first) + (starts := places[first] * size)

        def part(index: int) -> pa.Array:
            return cast(self.rows(column, cells[index])[int(starts[index]) : int(stops[index])], field)

        with_rows = np.flatnonzero(stops > starts).tolist()
        parts = list(prefetched(part, with_rows, is_local=self.is_local)) or [pa.array([], field.type)]
        offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.concat_arrays(parts))


def is_local(session: Session, tables: Mapping[str, ChunkTable]) -> bool:
    """Return whether all chunks are on this machine, judged by the first virtual one of each table."""
    locations = (table.foreign.locations for table in tables.values())
    return session.workspace.context.storage.is_local and all(
        not len(each) or each.text(0).startswith("file:") for each in locations
    )


def cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return the values with the type of a field. Raise ``InvalidInputError`` if they do not fit."""
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise misfit(f"The column {field.name} must be {field.type}, got {array.type}: {error}") from error


def blocks_of(scan: Scan, task: ScanTask) -> Iterator[Mapping[str, Any]]:
    """Yield the values of each block of a task by column: masked arrays of shape (rows,)."""
    reader = ScanReader(scan, task)

    def block(number: I64) -> list[Values] | None:
        cells = reader.cells(number)
        return [reader.values(each, cells) for each in scan.grid.columns] if cells.count else None

    for columns in prefetched(block, task.blocks, is_local=reader.is_local):
        if columns is not None:
            yield {
                name: np.ma.MaskedArray(as_texts(each.data), np.ma.nomask if each.null is None else each.null)
                for name, each in zip(scan.schema.names, columns, strict=True)
            }


def table(scan: Scan, tasks: Sequence[ScanTask]) -> pa.Table:
    """Return all rows of a scan, read in this process without Spark."""
    every = [batch for each in tasks for batch in batches(scan, each)]
    return pa.Table.from_batches(every, scan.schema)


# The DataFrames of a scan

#: With more columns, the code that Spark generates for a row is too large for the compiler of the JVM.
MOST_COLUMNS: Final = 32


def function_of(
    plan: Scan, work: Callable[[Scan, ScanTask], Iterator[pa.RecordBatch]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a worker of Spark runs: its batches have a task in each row of their last column."""
    shared = pickle.dumps(plan)

    def rows(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scan_: Scan = pickle.loads(shared)
        for batch in messages:
            for task in batch.column(batch.num_columns - 1).to_pylist():
                yield from work(scan_, pickle.loads(task))

    return rows


def frame_of_tasks(
    spark: SparkSession,
    plan: Scan,
    tasks: Sequence[ScanTask],
    work: Callable[[Scan, ScanTask], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Return the batches of a function of tasks, each of which is in a separate Spark partition."""
    return _tasks(spark, plan, tasks).select("number", "task").mapInArrow(function_of(plan, work), schema)


def frame_of_rows(spark: SparkSession, plan: Scan, tasks: Sequence[ScanTask], text: str) -> DataFrame:
    """Return the rows of a scan. The plans of its queries have the ``text``."""
    generates_code = spark.conf.get("spark.sql.codegen.wholeStage", "true") == "true"
    # Sail copies the list of a segment for each of its rows.
    if len(plan.schema) > MOST_COLUMNS or not generates_code or is_sail(spark):
        return frame_of_tasks(spark, plan, tasks, batches, to_spark(plan.schema))
    shared = pickle.dumps(plan)
    segments = _tasks(spark, plan, tasks).select("task", sql.explode(_numbers("segments")).alias("segment"))
    columns = [(f"column_{number}", each) for number, each in enumerate(plan.schema)]
    lists = [
        _lists(shared, number, field.name, ArrayType(to_spark_type(field.type))).alias(name)
        for number, (name, field) in enumerate(columns)
    ]
    counts = _lists(shared, None, text, IntegerType()).alias("rows")
    rows = segments.select(counts, *lists).select("*", sql.explode(_numbers("rows")).alias("row"))
    row = sql.col("row") + sql.spark_partition_id() * 0
    return rows.select(*(sql.get(name, row).alias(field.name) for name, field in columns))


def _tasks(spark: SparkSession, plan: Scan, tasks: Sequence[ScanTask]) -> DataFrame:
    """Return a row for each task, in a separate partition."""
    segments = _segments_of_block(plan)
    numbered = [
        (number, pickle.dumps(each), len(each.blocks) * segments) for number, each in enumerate(tasks)
    ]
    frame = spark.createDataFrame(numbered, "number int, task binary, segments int")
    if not numbered:
        return frame
    # Sail has no partition by number. With a hash, several tasks may be in one partition.
    partition = frame.repartition if is_sail(spark) else frame.repartitionById
    return partition(len(numbered), "number")


def _numbers(length: str) -> SparkColumn:
    """Return the numbers below a column."""
    numbers = sql.sequence(sql.lit(0), sql.col(length) - 1)
    return sql.when(sql.col(length) > 0, numbers).otherwise(sql.array().cast("array<int>"))


def _segments_of_block(plan: Scan) -> int:
    return max(1, -(-prod(plan.grid.block) // plan.batch_rows))


def _lists(shared: bytes, number: int | None, name: str, result: DataType) -> SparkColumn:
    """Return the lists of a column for segments of tasks, or without a ``number`` their lengths."""

    def function(tasks: pa.Array, segments: pa.Array) -> pa.Array:
        every = zip(tasks.to_pylist(), segments.to_pylist(), strict=True)
        parts = [
            _reader(shared, task).lists(np.array([segment for _, segment in group]), number)
            for task, group in groupby(every, itemgetter(0))
        ]
        return pa.concat_arrays(parts)

    function.__name__ = name
    # Spark warns if the kind is an argument too, which its types demand.
    values: SparkColumn = arrow_udf(function, result)("task", "segment")  # type: ignore[call-overload]
    return values


@functools.lru_cache(maxsize=1)
def _reader(shared: bytes, task: bytes) -> ScanReader:
    return ScanReader(pickle.loads(shared), pickle.loads(task))
