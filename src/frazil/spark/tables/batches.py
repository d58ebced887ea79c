"""The work of a scan task: blocks of arrays become Arrow batches, column by column.

Values of a block are read once for each array, repeated along the dimensions that the array does not have,
and cut into batches. No loop runs over rows. For a remote storage, the next blocks are read while Spark
processes one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr
from numpy.typing import NDArray

from frazil.arrays.zarr_arrays import array_at
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.repository.session.session import Session
from frazil.spark.tables.decoding import Values, as_texts, to_arrow
from frazil.spark.tables.grid import Column, index_values
from frazil.spark.tables.predicates import Mask
from frazil.spark.tables.scan_plan import Scan, ScanTask
from frazil.threads import SIZES, Purpose, thread_pool

type _Region = tuple[slice, ...]


def batches(scan: Scan, task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task."""
    reader = _BlockReader(scan, task, scan.shared.session(task.tables))
    for columns in prefetched(reader.block, task.blocks, reader.is_local):
        yield from _cut(columns, scan)


class _BlockReader:
    """Reads blocks. Coordinates of one dimension come with the task, other arrays are read from the store."""

    def __init__(self, scan: Scan, task: ScanTask, session: Session) -> None:
        self.scan = scan
        self.task = task
        self.is_local = is_local(session, task.tables)
        by_name = {each.name: each for each in (*scan.grid.columns, *scan.read)}
        self._where = [(by_name[each.column], each) for each in scan.where]
        paths = {each.path for each in (*scan.grid.columns, *scan.read) if each.path in task.tables}
        self._arrays: dict[str | None, zarr.Array[Any]] = {
            path: array_at(session, path) for path in paths if path is not None
        }

    def block(self, number: NDArray[np.int64]) -> tuple[list[Values], int]:
        """Return the values of all returned columns, of shape (rows,), and the number of rows."""
        grid = self.scan.grid
        starts = number * np.array(grid.block, np.int64)
        stops = np.minimum(starts + grid.block, grid.shape)
        region = tuple(map(slice, starts.tolist(), stops.tolist()))
        rows_along = self._matching_rows(region)
        if not all(map(len, rows_along)):
            return [], 0
        # Chunks before the first and after the last matching cell are not read.
        inner = tuple(
            slice(s.start + int(rows[0]), s.start + int(rows[-1]) + 1)
            for s, rows in zip(region, rows_along, strict=True)
        )
        rows_along = [rows - rows[0] for rows in rows_along]
        picked = any(len(rows) <= rows[-1] for rows in rows_along)
        shape = tuple(map(len, rows_along))
        values: dict[str, Values] = {}

        def read(column: Column) -> Values:
            if column.name not in values:
                whole = self._read(column, inner)
                chosen = np.ix_(*(rows_along[axis] for axis in column.axes)) if picked else ()
                values[column.name] = whole.take(chosen) if picked else whole
            return values[column.name]

        cells: Mask | None = None
        for column, each in self._where:
            if len(column.axes) != 1:
                holds = broadcast(each.holds(read(column)), column.axes, shape)
                cells = holds if cells is None else cells & holds
        rows = None if cells is None else np.flatnonzero(cells)
        if rows is not None and not len(rows):
            return [], 0
        out = [_spread(read(each), each.axes, shape) for each in grid.columns]
        if rows is None:
            return out, int(np.prod(shape, dtype=np.int64))
        return [each.take((rows,)) for each in out], len(rows)

    def _matching_rows(self, region: _Region) -> list[NDArray[np.intp]]:
        """Return the cells along each dimension that meet the conditions on columns of this dimension."""
        along = [np.ones(s.stop - s.start, np.bool_) for s in region]
        for column, each in self._where:
            if len(column.axes) == 1:
                along[column.axes[0]] &= each.holds(self._read(column, region))
        return list(map(np.flatnonzero, along))

    def _read(self, column: Column, region: _Region) -> Values:
        """Return values of a column in its own dimensions."""
        mine = tuple(region[axis] for axis in column.axes)
        if column.path is None:
            return index_values(mine[0].start, mine[0].stop)
        if column.name in self.task.coordinates:
            first, values = self.task.coordinates[column.name]
            return values.take(
                tuple(slice(s.start - at, s.stop - at) for s, at in zip(mine, first, strict=True))
            )
        values = column.decoder.decode(np.asarray(self._arrays[column.path][mine]))
        # zarr does not store chunks of fill values, but the fill value is a valid coordinate.
        if self.scan.missing == "fill" or column.is_key:
            return values
        return values.or_null(_missing(self.task.tables[column.path], column.chunks, mine))


def is_local(session: Session, tables: Mapping[str, ChunkTable]) -> bool:
    """Return whether all chunks of the tables are on this machine."""
    return session.workspace.context.storage.is_local and not any(map(_is_remote, tables.values()))


def _is_remote(table: ChunkTable) -> bool:
    """Return whether its virtual chunks are on another machine, judged by the first one."""
    locations = table.foreign.locations
    return len(locations) > 0 and not locations.text(0).startswith("file:")


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


def _spread(values: Values, axes: tuple[int, ...], shape: tuple[int, ...]) -> Values:
    """Return the values of some dimensions for all cells of a shape, as one dimension."""
    data = broadcast(values.data, axes, shape).reshape(-1)
    return Values(data, None if values.null is None else broadcast(values.null, axes, shape).reshape(-1))


def broadcast(data: NDArray[Any], axes: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return values of some dimensions for all cells of a shape."""
    order = np.argsort(axes)
    wide = [1] * len(shape)
    for at, axis in enumerate(axes):
        wide[axis] = data.shape[at]
    return np.broadcast_to(data.transpose(order).reshape(wide), shape)


def _cut(columns: tuple[list[Values], int], scan: Scan) -> Iterator[pa.RecordBatch]:
    values, rows = columns
    schema = scan.schema
    for start in range(0, rows, scan.batch_rows):
        stop = min(start + scan.batch_rows, rows)
        arrays = [
            cast(to_arrow(each.take((slice(start, stop),)), column.type), field)
            for each, column, field in zip(values, scan.grid.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else _empty(stop - start)


def cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return the values with the type of a field. Raise ``InvalidInputError`` if they do not fit."""
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"The column {field.name} must have values of {field.type}, got {array.type}: {error}",
            ErrorKind.INVALID_ARRAY_METADATA,
        ) from error


def _empty(rows: int) -> pa.RecordBatch:
    """Return rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def prefetched[B, T](
    read: Callable[[B], T], blocks: Sequence[B] | NDArray[Any], is_local: bool
) -> Iterator[T]:
    """Yield the results for blocks in order; those of a remote storage are read ahead."""
    if is_local or len(blocks) < 2:
        yield from map(read, blocks)
        return
    most = SIZES[Purpose.SCAN_READS]
    with thread_pool(Purpose.SCAN_READS) as pool:
        waiting: deque[Future[T]] = deque()
        for number in blocks:
            waiting.append(pool.submit(read, number))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def blocks_of(scan: Scan, task: ScanTask) -> Iterator[Mapping[str, Any]]:
    """Yield the values of each block of a task by column: masked arrays of shape (rows,)."""
    reader = _BlockReader(scan, task, scan.shared.session(task.tables))
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
