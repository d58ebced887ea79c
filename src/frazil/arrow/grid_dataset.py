"""A group as a dataset of pyarrow: the scans of DuckDB, Polars and DataFusion read rows of a grid.

The engines accept subclasses of ``pyarrow.dataset.Dataset``. They call ``scanner`` with the columns and the
filter of a query, or ``get_fragments`` for parts that are read in parallel. A scan reads the blocks of the
grid with cells that the filter may choose, and only the needed columns. Then pyarrow applies the filter to
each of them, so the rows are exact. No loop runs over rows.

A filter is an expression of pyarrow, which no public function takes apart. But pyarrow leaves out fragments
whose guarantee contradicts a filter. So a fragment that is never opened stands for a piece of a dimension,
and guarantees the smallest and the largest coordinate of the piece. A dimension is cut into a few pieces, and
those at the end of a run that is left are cut again, until the ends of all runs are exact. For columns of
data, a box of cells guarantees what the statistics of its chunks say about its rows.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, product
from math import prod
from operator import and_
from os import PathLike
from typing import Any, Final, override

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from frazil.answers.conditions import ValueRanges
from frazil.answers.tiles import Intervals
from frazil.arrow.cells import (
    BlockReader,
    Region,
    column_ranges,
    finest_block,
    has_ranges,
    prefetched,
    shape_of,
)
from frazil.arrow.grid import Column, Grid, Selection, Values, grid_of, to_arrow
from frazil.format.columns import I64
from frazil.handle.addresses import open_address
from frazil.repository.session.session import Session

#: The rows of a batch.
_BATCH_ROWS: Final = 1 << 17
#: About how many rows one read takes, at least a chunk of each array.
BLOCK_ROWS: Final = 1 << 19
#: The name of a file that no dataset has. The error for a method that would read it shows this text.
_NO_FILE: Final = "no files: call to_table() of the dataset of Frazil first"

#: The most boxes of cells whose ranges are in memory together.
_MOST_BOXES: Final = 1 << 18
#: More than the rounding of a number of 32 bits.
_ROUNDING: Final = 1e-5
#: The column with the numbers of rows in the grid. No array has this name.
_NUMBER: Final = "/"

#: Names of columns, expressions by name, or all columns.
type _Columns = Sequence[str] | Mapping[str, pc.Expression] | None


def _without_zones(column: Column) -> Column:
    """Return a column with times in UTC that have no time zone, as in xarray, and with whole ``uint64``."""
    coding, kind = column.decoder.coding, column.type
    if kind == pa.int64() and coding.packed_dtype == np.uint64 and coding.floating is None:
        kind = pa.uint64()
    elif pa.types.is_timestamp(kind):
        kind = pa.timestamp("us")
    return replace(column, decoder=replace(column.decoder, type=kind))


def _all_of(filters: Sequence[pc.Expression | None]) -> pc.Expression | None:
    """Return the expression that all filters hold; None without filters."""
    needed = [each for each in filters if each is not None]
    return reduce(and_, needed) if needed else None


@dataclass(frozen=True, slots=True)
class _GridScan:
    """The rows of a grid: those of regions, a product of intervals along each dimension."""

    reader: BlockReader
    grid: Grid
    schema: pa.Schema
    axes: tuple[Intervals, ...] | None = None

    def matching(self, expression: pc.Expression | None) -> _GridScan:
        """Return the scan of the blocks with cells that a filter may choose."""
        grid = self.grid
        if self.axes is not None:
            return self
        names = set() if expression is None else columns_of(expression, self.schema)
        axes = []
        for axis, (size, block) in enumerate(zip(grid.shape, grid.block, strict=True)):
            coordinates = {
                each.name: to_arrow(self.reader.coordinate(each), each.type)
                for each in grid.columns
                if each.name in names and each.is_key and each.axes == (axis,)
            }
            intervals = matching_intervals(expression, self.schema, coordinates, size, block)
            chunks = (
                dict(zip(each.axes, each.chunks, strict=False)).get(axis, 1)
                for each in grid.columns
                if not each.is_key
            )
            axes.append(regions_of(intervals, block, max(chunks, default=1)))
        return replace(self, axes=tuple(axes))

    def parts(self, count: int) -> list[_GridScan]:
        """Return about ``count`` scans of parts along the first dimension with enough blocks."""
        assert self.axes is not None
        if not self.axes:
            return [self]
        lengths = [len(starts) for starts, _ in self.axes]
        axis = next((at for at, length in enumerate(lengths) if length >= count), int(np.argmax(lengths)))
        starts, stops = self.axes[axis]
        rows = np.array_split(np.arange(len(starts)), max(1, min(count, len(starts))))
        return [
            replace(self, axes=(*self.axes[:axis], (starts[each], stops[each]), *self.axes[axis + 1 :]))
            for each in rows
        ]

    def blocks(self, expression: pc.Expression | None, needed: Sequence[Column]) -> Iterator[list[Region]]:
        """Yield the parts of each block with cells that a filter may choose, by the statistics of chunks."""
        assert self.axes is not None
        session, grid, axes = self.reader.session, self.grid, self.axes
        names = set() if expression is None else columns_of(expression, self.schema)
        data = [each for each in needed if each.path and not (each.is_key and len(each.axes) == 1)]
        conditions = [each for each in data if each.name in names and has_ranges(session, each)]
        if not conditions:
            slices = (map(slice, starts.tolist(), stops.tolist()) for starts, stops in axes)
            yield from ([region] for region in product(*slices))
            return

        def ranges(boxes: Sequence[Intervals]) -> dict[str, ValueRanges]:
            values = ((each.name, column_ranges(session, each, boxes)) for each in conditions)
            return {name: each for name, each in values if each is not None}

        steps = finest_block(session, grid, data)
        numbers = [len(regions_of(each, step, 0)[0]) for each, step in zip(axes, steps, strict=True)]
        count = len(axes[0][0])
        step = max(1, count * _MOST_BOXES // max(1, prod(numbers)))
        for first in range(0, count, step):
            starts, stops = (each[first : first + step] for each in axes[0])
            slab = ((starts, stops), *axes[1:])
            yield from matching_parts(expression, self.schema, slab, steps, ranges)

    def scanner(self, columns: _Columns, expression: pc.Expression | None, batch_rows: int) -> GridScanner:
        """Return a scanner of columns of the rows that hold a filter."""
        columns = self.schema.names if columns is None else columns
        # pyarrow checks the names and types of both.
        empty = ds.dataset(self.schema.empty_table())
        projected = empty.scanner(columns=columns, filter=expression).projected_schema
        names = set() if expression is None else columns_of(expression, self.schema)
        if isinstance(columns, Mapping):
            names = names.union(*(columns_of(each, self.schema) for each in columns.values()))
        else:
            names, columns = names.union(columns), list(columns)
        needed = [each for each in self.grid.columns if each.name in names]
        schema = pa.schema([self.schema.field(each.name) for each in needed])

        numbered = columns if isinstance(columns, Mapping) else {name: pc.field(name) for name in columns}
        numbered = {**numbered, _NUMBER: pc.field(_NUMBER)}

        def read(region: Region, is_part: bool) -> pa.Table:
            if needed:
                rows = pa.table([self.reader.rows(each, region) for each in needed], schema=schema)
            else:
                rows = pa.table([pa.nulls(prod(shape_of(region)))], [""]).select([])
            if expression is None and isinstance(columns, list):
                return rows.select(columns)
            if not is_part:
                return ds.dataset(rows).to_table(columns=columns, filter=expression)
            cells = np.ix_(*(np.arange(each.start, each.stop) for each in region))
            numbers = np.ravel_multi_index(cells, self.grid.shape).reshape(-1)
            rows = rows.append_column(_NUMBER, pa.array(numbers))
            return ds.dataset(rows).to_table(columns=numbered, filter=expression)

        def batches() -> Generator[pa.RecordBatch]:
            blocks = self.matching(expression).blocks(expression, needed)
            regions = (
                (region, len(parts) > 1, at == len(parts))
                for parts in blocks
                for at, region in enumerate(parts, 1)
            )
            tables = list[pa.Table]()
            for is_part, is_last, rows in prefetched(lambda each: (*each[1:], read(*each[:2])), regions):
                tables.append(rows)
                if is_last:
                    if is_part:  # rows in the order that they have when the block is read whole
                        rows = pa.concat_tables(tables).sort_by(_NUMBER).drop_columns(_NUMBER)
                    tables.clear()
                    yield from rows.to_batches(max_chunksize=batch_rows)

        return GridScanner(self.schema, projected, batches)


class GridScanner(ds.Scanner):  # type: ignore[misc]  # pyarrow ships no types
    """A scanner whose rows are read in the thread of the reader.

    The scanner of pyarrow reads an iterator ahead, in a thread of its own. If an engine leaves a scan after a
    few rows, that thread still runs Python when the interpreter ends, which aborts the process.
    """

    def __init__(
        self, dataset: pa.Schema, projected: pa.Schema, batches: Callable[[], Generator[pa.RecordBatch]]
    ) -> None:
        self._schemas, self._batches = (dataset, projected), batches

    @property
    def dataset_schema(self) -> pa.Schema:
        """All columns of the dataset."""
        return self._schemas[0]

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._schemas[1]

    @override
    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the batches."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

    @override
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        return self._batches()

    @override
    def scan_batches(self) -> Iterator[Any]:
        """Raise ``NotImplementedError``: the batches belong to no fragment of pyarrow."""
        raise NotImplementedError("scan_batches must be to_batches for the rows of a grid")

    @override
    def to_table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(self._batches(), self.projected_schema)

    @override
    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows."""
        batches, count = [], 0
        with closing(self._batches()) as rest:
            while count < num_rows and (batch := next(rest, None)) is not None:
                batches.append(batch.slice(0, num_rows - count))
                count += batches[-1].num_rows
        return pa.Table.from_batches(batches, self.projected_schema)

    @override
    def take(self, indices: Any) -> pa.Table:
        """Return rows by their numbers."""
        return self.to_table().take(indices)

    @override
    def count_rows(self) -> int:
        """Return the number of rows."""
        return sum(each.num_rows for each in self._batches())


class GridDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow ships no types
    """The rows of a group, a row for each cell: see ``dataset``. It is a ``pyarrow.dataset.Dataset``.

    Each scan reads the version of the session. ``scanner``, ``to_table``, ``to_batches``, ``head``,
    ``count_rows``, ``take`` and ``filter`` are those of pyarrow. ``join`` and ``sort_by`` are those of the
    table that ``to_table`` returns.

    Args:
        session: The session that reads the version.
        grid: The columns and the shape.
        where: A filter for all scans. Default: all rows.
    """

    def __init__(self, session: Session, grid: Grid, where: pc.Expression | None = None) -> None:
        grid = replace(grid, columns=tuple(map(_without_zones, grid.columns)))
        schema = grid.schema()
        ipc, system = ds.IpcFileFormat(), LocalFileSystem()
        super().__init__([ipc.make_fragment(_NO_FILE, system)], schema, ipc, system)
        self._scan = _GridScan(BlockReader(session), grid, schema)
        self._where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return (GridDataset, (self._scan.reader.session, self._scan.grid, self._where))

    @override
    def scanner(
        self,
        columns: _Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int = _BATCH_ROWS,
        **options: Any,
    ) -> GridScanner:
        """Return a scanner of the rows. A filter leaves out chunks before they are read.

        It compares coordinates, and the statistics of chunks for columns of data.

        Args:
            columns: Names of columns, or expressions by name. Default: all columns.
            filter: An expression that the rows must hold. Default: all rows.
            batch_size: The most rows of a batch. Default: 131,072.
            options: Other options of ``pyarrow.dataset.Dataset.scanner``, which have no effect.

        Returns:
            A scanner, which can be used once.

        Raises:
            pyarrow.ArrowInvalid: An expression has a column that does not exist.

        Examples:
            >>> import frazil, numpy as np, pyarrow.compute as pc, zarr
            >>> from frazil import arrow
            >>> with frazil.Repository.create("air").transaction("main", message="an array") as store:
            ...     t = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
            >>> arrow.dataset("air").scanner(["t"], pc.field("x") >= 2).to_table().to_pydict()
            {'t': [2.0, 3.0]}
        """
        return self._scan.scanner(columns, _all_of([self._where, filter]), batch_size)

    @override
    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:
        """Return parts of the rows, which an engine reads in parallel.

        Args:
            filter: An expression. Parts without cells that it may choose are left out. Default: all rows.

        Returns:
            An iterator of fragments.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> from frazil import arrow
            >>> with frazil.Repository.create("sea").transaction("main", message="an array") as store:
            ...     t = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
            >>> sum(each.count_rows() for each in arrow.dataset("sea").get_fragments())
            4
        """
        scan = self._scan.matching(_all_of([self._where, filter]))
        return (_GridFragment(each, self._where) for each in scan.parts(2 * (os.cpu_count() or 1)))

    @override
    def filter(self, expression: pc.Expression) -> GridDataset:
        """Return the dataset of the rows that hold an expression.

        Args:
            expression: An expression.

        Returns:
            A dataset. Its scans leave out chunks before they read them, whatever an engine hands over.

        Examples:
            >>> import frazil, numpy as np, pyarrow.compute as pc, zarr
            >>> from frazil import arrow
            >>> with frazil.Repository.create("land").transaction("main", message="an array") as store:
            ...     t = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
            >>> arrow.dataset("land").filter(pc.field("x") < 3).count_rows()
            3
        """
        return GridDataset(self._scan.reader.session, self._scan.grid, _all_of([self._where, expression]))


def within_bounds(dataset: GridDataset, bounds: Iterable[tuple[str, float, float]]) -> GridDataset:
    """Return a dataset with all rows between bounds of floating-point columns. NaN is above lower bounds.

    It has some more rows: bounds are a little wider, because they can be rounded to numbers of 32 bits.
    """
    for name, low, high in bounds:
        if name in dataset.schema.names and pa.types.is_floating(dataset.schema.field(name).type):
            field, kind = pc.field(name), dataset.schema.field(name).type
            least, most = (
                pa.scalar(each + sign * (_ROUNDING * abs(each) + 1e-30), kind)
                for each, sign in ((low, -1), (high, 1))
            )
            dataset = dataset.filter(~(field < least))
            dataset = dataset.filter(field <= most) if high < math.inf else dataset
    return dataset


class _GridFragment(ds.Fragment):  # type: ignore[misc]  # pyarrow ships no types
    """A part of the rows of a dataset."""

    def __init__(self, scan: _GridScan, where: pc.Expression | None) -> None:
        self._scan, self._where = scan, where

    @property
    def physical_schema(self) -> pa.Schema:
        """The columns."""
        return self._scan.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """What is true for all rows: nothing is known."""
        return pc.scalar(True)

    @override
    def scanner(
        self,
        schema: pa.Schema = None,
        columns: _Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int = _BATCH_ROWS,
        **options: Any,
    ) -> GridScanner:
        """Return a scanner of the rows of this part."""
        return self._scan.scanner(columns, _all_of([self._where, filter]), batch_size)


def dataset(
    source: str | PathLike[str] | Session,
    group: str = "/",
    *,
    variables: Sequence[str] = (),
    cf: bool = True,
    calendars: str = "string",
) -> GridDataset:
    """Return the arrays of a group as one table, a row for each cell, which engines of SQL scan.

    Coordinates are columns too. Values are decoded by the CF conventions: packed numbers, missing values,
    times (in UTC, without a time zone). The first call reads metadata only.

    Args:
        source: An address ``LOCATION[@VERSION][:PATH]``, the folder of a repository as a path object, or a
            session.
        group: The path of a group, or of an array, below the path of the address. Default: that path.
        variables: Names of the arrays, which have the same dimensions. Default: those with the dimensions of
            the array with the most dimensions.
        cf: Whether values are decoded. Default: True.
        calendars: How times of unusual calendars are read: ``"string"``, ``"raw"`` (the stored numbers) or
            ``"error"``. Default: ``"string"``.

    Returns:
        A ``pyarrow.dataset.Dataset``.

    Raises:
        NodeNotFoundError: There is no such group or array.
        InvalidInputError: ``invalid-array-metadata`` for arrays that do not fit into one table.
        RepositoryNotFoundError: There is no repository at the location.
        MissingExtraError: pyarrow is not installed.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil import arrow
        >>> with frazil.Repository.create("ice").transaction("main", message="an array") as store:
        ...     t = zarr.create_array(store, name="air/t", data=np.arange(4.0), dimension_names=["x"])
        >>> arrow.dataset("ice@main:air").to_table().to_pydict()
        {'x': [0, 1, 2, 3], 't': [0.0, 1.0, 2.0, 3.0]}
    """
    session, path = (source, "/") if isinstance(source, Session) else open_address(source)
    path = "/" + f"{path}/{group}".strip("/").replace("//", "/")
    node = session.workspace.require_node(path)
    if node.array is not None:
        path, _, name = path.rpartition("/")
        variables = (name,)
    selection = Selection(path, tuple(variables), cf, calendars, BLOCK_ROWS)
    return GridDataset(session, grid_of(session, selection))


#: The most pieces of the first cut. A piece takes about 50 microseconds.
FIRST_PIECES: Final = 256
#: The pieces that a piece is cut into.
_FAN: Final = 16
#: With more pieces that are left, none is cut again.
_MOST_PIECES: Final = 1 << 12


def columns_of(expression: pc.Expression, schema: pa.Schema) -> set[str]:
    """Return the names of the columns that an expression needs."""

    def columns_among(names: list[str]) -> set[str]:
        rest = pa.schema([each for each in schema if each.name not in names])
        try:
            ds.Scanner.from_batches([], schema=rest, columns={"": expression})
        except (pa.ArrowInvalid, pa.ArrowKeyError):  # it cannot do without one of them
            half = len(names) // 2
            return columns_among(names[:half]) | columns_among(names[half:]) if half else set(names)
        return set()

    return columns_among(schema.names)


def matching_intervals(
    expression: pc.Expression, schema: pa.Schema, coordinates: Mapping[str, pa.Array], size: int, block: int
) -> Intervals:
    """Return the elements of a dimension with cells that an expression may choose.

    ``coordinates`` have the dimension alone, ``size`` elements. No piece of the first cut is larger than
    ``block``, or than the dimension by ``FIRST_PIECES``.
    """
    ranged = {name: each for name, each in coordinates.items() if _has_ranges(each.type)}
    step = min(block * -(-size // (block * FIRST_PIECES)), -(-size // _FAN)) if ranged else size
    starts = np.arange(0, size, max(step, 1))
    stops = np.minimum(starts + step, size)
    if not ranged:
        return starts, stops
    # A piece with a null or NaN guarantees nothing.
    is_null = {name: each.is_null(nan_is_null=True) for name, each in ranged.items()}
    unknown = {name: each.to_numpy(zero_copy_only=False) for name, each in is_null.items()}
    has_set = "is_in(" in str(expression)

    def matches(starts: I64, stops: I64) -> NDArray[np.bool_]:
        guarantees = [
            _guarantee(ranged, unknown, slice(start, stop), has_set)
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        return _compatible(expression, schema, guarantees)

    is_left = matches(starts, stops)
    starts, stops = starts[is_left], stops[is_left]
    while 0 < len(starts) <= _MOST_PIECES and (stops - starts).sum() < size:
        has_next = starts[1:] == stops[:-1]
        is_end = ~(np.append(False, has_next) & np.append(has_next, False)) & (stops - starts > 1)
        if not is_end.any():
            break
        lengths = -(-(stops - starts)[is_end, np.newaxis] // _FAN)
        low = starts[is_end, np.newaxis] + np.arange(_FAN) * lengths
        high = np.minimum(low + lengths, stops[is_end, np.newaxis])
        low, high = low[low < high], high[low < high]
        is_left = matches(low, high)
        starts = np.append(starts[~is_end], low[is_left])
        stops = np.append(stops[~is_end], high[is_left])
        order = np.argsort(starts)
        starts, stops = starts[order], stops[order]
    return starts, stops


def regions_of(intervals: Intervals, block: int, chunk: int) -> Intervals:
    """Return the intervals cut at multiples of ``block``. Those with less than a chunk between are one."""
    starts, stops = intervals
    is_first = np.append(True, starts[1:] - stops[:-1] >= chunk)[: len(starts)]
    starts, stops = starts[is_first], stops[np.append(is_first[1:], True)[: len(stops)]]
    first = starts // block
    counts = (stops - 1) // block - first + 1
    owner = np.repeat(np.arange(len(starts)), counts)
    number = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.maximum(starts[owner], number * block), np.minimum(stops[owner], (number + 1) * block)


def _has_ranges(column: pa.DataType) -> bool:
    """Return whether values of a type are pruned by their smallest and largest value."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_string)
    return any(is_kind(column) for is_kind in kinds)


def _guarantee(
    coordinates: Mapping[str, pa.Array], unknown: Mapping[str, NDArray[np.bool_]], piece: slice, has_set: bool
) -> pc.Expression:
    """Return the expression that is true for all cells of a piece."""
    guarantee = pc.scalar(True)
    for name, array in coordinates.items():
        if not unknown[name][piece].any():
            bounds = pc.min_max(array[piece])
            guarantee &= _between(name, bounds["min"], bounds["max"], has_set)
    return guarantee


def _between(name: str, low: pa.Scalar, high: pa.Scalar, has_set: bool) -> pc.Expression:
    """Return the expression that a column is between two bounds.

    pyarrow compares the numbers of a set with the bounds as they are, but with values of 32 bits after it has
    rounded them.
    """
    if has_set and pa.types.is_float32(low.type):
        ends = (
            np.nextafter(np.float32(each.as_py()), end)
            for each, end in ((low, np.float32(-np.inf)), (high, np.float32(np.inf)))
        )
        low, high = (pa.scalar(end, low.type) for end in ends)
    return (pc.field(name) >= low) & (pc.field(name) <= high)


def _compatible(
    expression: pc.Expression, schema: pa.Schema, guarantees: list[pc.Expression]
) -> NDArray[np.bool_]:
    """Return which guarantees do not contradict an expression."""
    system, ipc = LocalFileSystem(), ds.IpcFileFormat()
    fragments = [ipc.make_fragment(str(at), system, each) for at, each in enumerate(guarantees)]
    pieces = ds.FileSystemDataset(fragments, schema, ipc, system)
    matching = np.zeros(len(guarantees), np.bool_)
    try:
        matching[[int(each.path) for each in pieces.get_fragments(expression)]] = True
    except pa.ArrowInvalid:  # a number of a guarantee is none in the type of the expression
        matching[:] = True
    return matching


def matching_boxes(
    expression: pc.Expression, schema: pa.Schema, ranges: Mapping[str, ValueRanges], is_box: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which boxes have rows that an expression may choose, among those of ``is_box``.

    ``ranges`` are the values of columns in the boxes, in shapes that can be broadcast. The rows of a box are
    of up to three sorts for each column: numbers in a range, NaN and null. A guarantee stands for each sort.
    """
    if not ranges:
        return is_box
    places = np.flatnonzero(is_box)
    has_set = "is_in(" in str(expression)
    sorts = [
        _sorts_of_rows(name, schema.field(name).type, ranges[name], is_box.shape, places, has_set)
        for name in ranges
    ]
    guarantees = [
        [reduce(operator.and_, each) for each in product(*columns)] for columns in zip(*sorts, strict=True)
    ]
    owner = np.repeat(places, list(map(len, guarantees)))
    matching = np.zeros(is_box.size, np.bool_)
    matching[owner[_compatible(expression, schema, list(chain.from_iterable(guarantees)))]] = True
    return matching.reshape(is_box.shape)


def _sorts_of_rows(
    name: str, column: pa.DataType, ranges: ValueRanges, shape: tuple[int, ...], places: I64, has_set: bool
) -> Iterator[list[pc.Expression]]:
    """Yield the guarantees of the sorts of rows of each box."""

    def of_boxes(array: NDArray[Any]) -> NDArray[Any]:
        return np.broadcast_to(array, shape).reshape(-1)[places]

    null = of_boxes(~(ranges.has_values & ranges.is_known))
    low, high = (to_arrow(Values(of_boxes(each), null), column) for each in (ranges.low, ranges.high))
    field, nothing = pc.field(name), pc.field(name).is_null()
    nan = field == pa.scalar(math.nan, column) if pa.types.is_floating(column) else None
    flags = (ranges.is_known, ranges.has_values, ranges.has_nan, ranges.has_null)
    # pyarrow folds more of what is equal to a value, but one zero is not the other one.
    is_one = pc.fill_null(pc.equal(low, high), False).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column):
        is_one = is_one & (of_boxes(ranges.low) != 0)
    for at, (is_known, has_values, has_nan, has_null) in enumerate(zip(*map(of_boxes, flags), strict=True)):
        sorts = [] if is_known else [pc.scalar(True)]
        if is_known and has_values:
            sorts.append(field == low[at] if is_one[at] else _between(name, low[at], high[at], has_set))
        if is_known and has_nan:
            sorts.append(nan)
        if is_known and has_null:
            sorts.append(nothing)
        yield sorts


def matching_parts(
    expression: pc.Expression,
    schema: pa.Schema,
    blocks: Sequence[Intervals],
    steps: Sequence[int],
    ranges_of: Callable[[Sequence[Intervals]], Mapping[str, ValueRanges]],
) -> Iterator[list[tuple[slice, ...]]]:
    """Yield the parts of each block with rows that an expression may choose; one part if it is whole.

    ``blocks`` are a product of intervals, and ``steps`` the shape of the parts that they are cut into.
    """
    parts = [regions_of(each, step, 0) for each, step in zip(blocks, steps, strict=True)]
    owners = [
        np.searchsorted(starts, inner, "right") - 1
        for (starts, _), (inner, _) in zip(blocks, parts, strict=True)
    ]
    is_left = np.ones([len(starts) for starts, _ in blocks], np.bool_)
    is_left = matching_boxes(expression, schema, ranges_of(blocks), is_left)[np.ix_(*owners)]
    is_left = matching_boxes(expression, schema, ranges_of(parts), is_left)
    firsts = [np.flatnonzero(np.diff(owner, prepend=-1)) for owner in owners]
    counts = is_left.astype(np.int64)
    for axis, first in enumerate(firsts):
        counts = np.add.reduceat(counts, first, axis=axis)
    for block in np.argwhere(counts).tolist():
        spot = tuple(
            slice(int(first[at]), int(np.append(first, len(owner))[at + 1]))
            for first, owner, at in zip(firsts, owners, block, strict=True)
        )
        if is_left[spot].all():
            yield [
                tuple(
                    slice(int(starts[at]), int(stops[at]))
                    for (starts, stops), at in zip(blocks, block, strict=True)
                )
            ]
            continue
        # Neighbours along the last axis are one part.
        edges = np.diff(np.pad(is_left[spot].astype(np.int8), [(0, 0)] * (len(spot) - 1) + [(1, 1)]), axis=-1)
        low = np.argwhere(edges == 1) + [each.start for each in spot]
        high = np.argwhere(edges == -1) + [each.start for each in spot]
        high[:, :-1] += 1
        yield [
            tuple(
                slice(int(starts[first]), int(stops[last - 1]))
                for (starts, stops), first, last in zip(parts, begin, end, strict=True)
            )
            for begin, end in zip(low.tolist(), high.tolist(), strict=True)
        ]
