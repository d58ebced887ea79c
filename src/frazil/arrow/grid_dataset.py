"""A group as a dataset of pyarrow: the scans of DuckDB, Polars and DataFusion read rows of a grid.

The engines accept subclasses of ``pyarrow.dataset.Dataset``. They call ``scanner`` with the columns and the
filter of a query, or ``get_fragments`` for parts that are read in parallel. A scan reads the blocks of the
grid with cells that the filter may choose, and only the needed columns. Then pyarrow applies the filter to
each of them, so the rows are exact. No loop runs over rows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from math import prod
from operator import and_
from os import PathLike
from typing import Any, Final, override

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from frazil.answers.conditions import ValueRanges
from frazil.answers.ranges import Intervals
from frazil.arrow.cells import (
    BlockReader,
    Region,
    column_ranges,
    finest_block,
    has_ranges,
    prefetched,
    shape_of,
)
from frazil.arrow.grid import Column, Grid, Selection, grid_of, to_arrow
from frazil.arrow.pruning import columns_of, matching_intervals, matching_parts, regions_of
from frazil.handle.addresses import open_address
from frazil.repository.session.session import Session

#: The rows of a batch.
_BATCH_ROWS: Final = 1 << 17
#: About how many rows one read takes, at least a chunk of each array.
_BLOCK_ROWS: Final = 1 << 19
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
    selection = Selection(path, tuple(variables), cf, calendars, _BLOCK_ROWS)
    return GridDataset(session, grid_of(session, selection))
