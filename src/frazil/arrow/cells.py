"""The reader of blocks of all tables: columns of a grid in a region, and values for all cells of a region."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.answers.conditions import ValueRanges
from frazil.answers.tiles import Intervals, TileGrid, box_ranges, decoded_ranges, has_statistics
from frazil.arrays.array import Array
from frazil.arrays.encoding import encoding_of
from frazil.arrow.grid import Column, Grid, Values, to_arrow
from frazil.errors import InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.repository.session.session import Session
from frazil.threads import SIZES, Purpose, in_order, thread_pool

#: A slice with both ends for each dimension.
type Region = tuple[slice, ...]
#: By column: its first cell along each of its dimensions, and its values from there on.
type Coordinates = Mapping[str, tuple[tuple[int, ...], Values]]


#: The types whose values have the order of their elements.
_ORDERED: Final = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean),
    *(pa.types.is_timestamp, pa.types.is_date, pa.types.is_duration),
)


def shape_of(region: Region) -> tuple[int, ...]:
    """Return the number of cells along each dimension."""
    return tuple(each.stop - each.start for each in region)


class BlockReader:
    """Reads the columns of a grid by region.

    Columns of ``coordinates`` are in memory. If it is None, coordinates of one dimension are read whole when
    a region needs them, and stay in memory. Cells of ``sparse`` arrays without a chunk in their table are
    null.
    """

    def __init__(
        self,
        session: Session,
        coordinates: Coordinates | None = None,
        sparse: Mapping[str, ChunkTable] | None = None,
    ) -> None:
        self.session = session
        self._is_caching = coordinates is None
        self._coordinates = dict(coordinates or {})
        self._sparse = sparse or {}
        self._arrays: dict[str, Array] = {}
        # Column -> a region and its rows: neighbouring regions often have the same values of a coordinate.
        self._repeated: dict[str, tuple[Any, pa.Array]] = {}

    def coordinate(self, column: Column) -> Values:
        """Return all values of a column, which stay in memory."""
        if column.name not in self._coordinates:
            self.share(column, read_column(self.session, column))
        return self._coordinates[column.name][1]

    def share(self, column: Column, values: Values) -> None:
        """Take all values of a column from another reader."""
        self._coordinates[column.name] = (0,) * values.data.ndim, values

    def values(self, column: Column, region: Region) -> Values:
        """Return the values of a column in a region, in its own dimensions."""
        own = tuple(region[axis] for axis in column.axes)
        if column.path is None:
            return Values(np.arange(own[0].start, own[0].stop, dtype=np.int64))
        if self._is_caching and column.is_key and len(own) == 1:
            return self.coordinate(column).take(own)
        if column.name in self._coordinates:
            first, values = self._coordinates[column.name]
            places = (slice(each.start - at, each.stop - at) for each, at in zip(own, first, strict=True))
            return values.take(tuple(places))
        if column.path not in self._arrays:
            self._arrays[column.path] = Array(self.session, column.path)
        values = column.decoder.decode(np.asarray(self._arrays[column.path][own]))
        # zarr does not store chunks of fill values, but the fill value is a valid coordinate.
        if column.path not in self._sparse or column.is_key:
            return values
        absent = _absent(self._sparse[column.path], column.chunks, own)
        if absent is None:
            return values
        return Values(values.data, absent if values.null is None else values.null | absent)

    def rows(self, column: Column, region: Region) -> pa.Array:
        """Return the values of a column for all cells of a region, as one dimension."""
        own, shape = tuple(region[axis] for axis in column.axes), shape_of(region)
        if len(own) == len(shape) > 1:
            return to_arrow(spread(self.values(column, region), column.axes, shape), column.type)
        repeated = self._repeated.get(column.name)
        if repeated is not None and repeated[0] == (own, shape):
            return repeated[1]
        values = self.values(column, region)
        if values.data.dtype.kind in "OUTSV":  # each value becomes a text of Arrow once
            flat = np.arange(values.data.size).reshape(values.data.shape)
            texts = to_arrow(values.flat(), column.type)
            rows = texts.take(pa.array(broadcast(flat, column.axes, shape).reshape(-1)))
        else:
            rows = to_arrow(spread(values, column.axes, shape), column.type)
        self._repeated[column.name] = (own, shape), rows
        return rows


def read_column(session: Session, column: Column) -> Values:
    """Return all values of a column along its own dimensions; those of instances repeated."""
    if column.path is None:
        return Values(np.arange(column.shape[0], dtype=np.int64))
    values = column.decoder.decode(np.asarray(Array(session, column.path)[...]))
    if column.instances is None:
        return values
    numbers = np.asarray(Array(session, column.instances.path)[...]).astype(np.int64)
    if column.instances.by_size:
        numbers = np.repeat(np.arange(len(numbers)), numbers)
    return values.take((numbers,))


def _absent(table: ChunkTable, chunks: Sequence[int], region: Region) -> NDArray[np.bool_] | None:
    """Return the elements of a region whose chunk is not stored; None if all chunks are stored."""
    first = [s.start // step for s, step in zip(region, chunks, strict=True)]
    last = [-(-s.stop // step) for s, step in zip(region, chunks, strict=True)]
    low, high = np.array(first, np.int64), np.array(last, np.int64)
    index = table.index.astype(np.int64)
    inside = ((index >= low) & (index < high)).all(axis=1)
    absent = np.ones(tuple((high - low).tolist()), np.bool_)
    absent[tuple((index[inside] - low).T)] = False
    if not absent.any():
        return None
    for axis, (s, step) in enumerate(zip(region, chunks, strict=True)):
        absent = absent.take(np.arange(s.start, s.stop) // step - first[axis], axis=axis)
    return absent


def spread(values: Values, axes: tuple[int, ...], shape: tuple[int, ...]) -> Values:
    """Return the values of some dimensions for all cells of a shape, as one dimension."""
    null = None if values.null is None else broadcast(values.null, axes, shape)
    return Values(broadcast(values.data, axes, shape), null).flat()


def broadcast(data: NDArray[Any], axes: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return values of some dimensions, in any order, for all cells of a shape."""
    wide = [1] * len(shape)
    for at, axis in enumerate(axes):
        wide[axis] = data.shape[at]
    return np.broadcast_to(data.transpose(np.argsort(axes)).reshape(wide), shape)


def prefetched[B, T](read: Callable[[B], T], blocks: Iterable[B], *, is_local: bool = False) -> Generator[T]:
    """Yield the results for blocks in order, which are read ahead; those on this machine one by one."""
    if is_local:
        yield from map(read, blocks)
        return
    with thread_pool(Purpose.SCAN_READS) as pool:
        yield from in_order(lambda each: pool.submit(read, each), blocks, SIZES[Purpose.SCAN_READS])


def finest_block(session: Session, grid: Grid, columns: Sequence[Column]) -> tuple[int, ...]:
    """Return the shape of the smallest blocks to read columns in: chunks, or inner chunks of shards."""
    block = [0] * len(grid.shape)
    for each in columns:
        assert each.path is not None
        encoding = encoding_of(session.workspace.require_array(each.path).user_data)
        lengths = each.chunks if encoding is None or each.instances else encoding.lengths
        for axis, length in zip(each.axes, lengths, strict=False):
            block[axis] = max(block[axis], length if isinstance(length, int) else int(np.diff(length).max()))
    return tuple(min(each or most, most) for each, most in zip(block, grid.block, strict=True))


def has_ranges(session: Session, column: Column) -> bool:
    """Return whether the statistics of chunks can have ranges of a column."""
    if column.path is None or column.instances is not None or not column.axes:
        return False
    is_ordered = any(is_type(column.type) for is_type in _ORDERED)
    return (
        is_ordered
        and _tile_grid(session, column) is not None
        and has_statistics(session.workspace, column.path)
    )


def _tile_grid(session: Session, column: Column) -> TileGrid | None:
    """Return the grid of the tiles of a column, if their statistics say something about its values."""
    assert column.path is not None
    document = session.workspace.require_array(column.path).user_data
    return TileGrid.of(column.path, document, column.decoder.coding)


def column_ranges(
    session: Session, column: Column, boxes: Sequence[Intervals], *, missing: str = "fill"
) -> ValueRanges | None:
    """Return the ranges of a column that ``has_ranges`` in boxes, or None if nothing is known.

    ``boxes`` are intervals along each dimension of the grid. The result has the shape of their product, with
    1 for dimensions that the column does not have. ``missing`` says what tiles without a chunk have: their
    fill value, or else null.
    """
    grid, coding, decoder = _tile_grid(session, column), column.decoder.coding, column.decoder
    own = [boxes[axis] for axis in column.axes]
    if grid is None or column.path is None or not all(len(starts) for starts, _ in own):
        return None
    session.workspace.note_tree(column.path)  # chunks that are left out decide about the rows, too
    raw = box_ranges(session.workspace, grid, coding, own, has_fill=missing == "fill")
    if not raw.is_known.any():
        return None

    def decode(elements: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        values = decoder.decode(elements)
        return values.data, values.null

    try:
        ranges = decoded_ranges(raw, coding, decode)
    except InvalidInputError:  # a time that is none, which a scan reports if it reads it
        return None
    wide = [len(starts) if axis in column.axes else 1 for axis, (starts, _) in enumerate(boxes)]
    order = np.argsort(column.axes)
    return ValueRanges(
        *(getattr(ranges, each.name).transpose(order).reshape(wide) for each in fields(ranges))
    )
