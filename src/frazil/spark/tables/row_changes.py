"""The rows that differ between two versions: the table ``row_changes``.

Equal labels of the two versions get one code, a number along their dimension, in the order of the later
version. A block is a range of codes along each dimension, with all rows of both versions with these labels.
It is read if a label has other numbers of cells in the two versions, or if values may differ: a chunk has
another reference, the array has another meaning, or labels moved along one of its dimensions. A task joins
the rows of both versions by their codes, and compares their values.

Labels may repeat. Rows with the same labels are in one block: equal rows are paired first, the others in the
order of their positions. So the result does not depend on the size of the blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from itertools import chain
from math import prod
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.arrow.cells import BlockReader, broadcast, prefetched
from frazil.arrow.grid import Column, Grid, Selection, Values, grid_of, is_number, to_arrow
from frazil.cf_times import Mask
from frazil.changes.diff import differing
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.columns import I64
from frazil.format.manifest import ChunkTable
from frazil.repository.session.session import Session
from frazil.spark.tables import scan
from frazil.spark.tables.schemas import ColumnCondition, Conditions, predicates
from frazil.zarr_store.arrays import array_at

#: The columns that the table adds to those of the rows.
CHANGE: Final = "change"
SNAPSHOT_ID: Final = "snapshot_id"
COMMIT_TIME: Final = "written_at"
#: The start of the name of a column with earlier values.
BEFORE: Final = "before_"
#: Metadata of an array that do not change the elements of its chunks.
_NO_ENCODING: Final = frozenset({"attributes", "shape", "dimension_names"})


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """A column of the result. ``source``: the column of the rows, empty for columns of the change."""

    name: str
    type: pa.DataType
    source: str = ""
    is_before: bool = False


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """The result: all columns that it may have, the schema of the query, and the split into tasks."""

    columns: tuple[ChangeColumn, ...]
    schema: pa.Schema
    split: scan.Split

    @property
    def compared(self) -> list[str]:
        """The columns whose values are compared."""
        return [each.source for each in self.columns if each.is_before]


@dataclass(frozen=True, slots=True, eq=False)
class TableVersion:
    """One version of a table. A column that it lacks is null: in the grid without an array."""

    reader: BlockReader
    grid: Grid
    where: tuple[ColumnCondition, ...]
    is_empty: bool = False
    tables: dict[str, ChunkTable] = field(default_factory=dict)

    @staticmethod
    def of(
        session: Session, selection: Selection, where: Conditions, last: Grid | None = None
    ) -> TableVersion | None:
        """Return the table in a version, with the columns of the ``last`` one; None if it lacks all."""
        folder = "/" + selection.group.strip("/")
        paths = {each: f"{folder.rstrip('/')}/{each}" for each in selection.variables}
        names = [each for each in paths if last is None or session.workspace.node(paths[each]) is not None]
        lacks_all = bool(paths) and not names
        try:
            grid = grid_of(session, replace(selection, variables=tuple(names)))
        except (NodeNotFoundError, InvalidInputError) as error:
            is_empty = lacks_all or error.kind in (ErrorKind.NODE_NOT_FOUND, ErrorKind.NOT_A_GROUP)
            if last is None or not is_empty:
                raise
            return None
        if last is not None:
            if lacks_all and set(grid.dims) != set(last.dims):
                return None
            existing = {each.name for each in grid.columns}
            missing = (
                Column(each.name, None, (), each.decoder)
                for each in last.columns
                if each.name not in existing
            )
            grid = replace(grid, columns=(*grid.columns, *missing))
        return TableVersion(BlockReader(session), grid, tuple(predicates(grid, where)))

    def in_order(self, dims: tuple[str, ...]) -> TableVersion:
        """Return the same rows with the dimensions in another order."""
        grid = self.grid
        axes = [dims.index(dim) for dim in grid.dims]
        order = [grid.dims.index(dim) for dim in dims]
        columns = tuple(replace(each, axes=tuple(axes[axis] for axis in each.axes)) for each in grid.columns)
        shape, block = (tuple(each[axis] for axis in order) for each in (grid.shape, grid.block))
        return replace(self, grid=Grid(dims, shape, columns, block))

    def references(self, path: str) -> ChunkTable:
        """Return all references of an array."""
        if path not in self.tables:
            self.tables[path] = self.reader.session.workspace.ref_table(path)
        return self.tables[path]

    def is_planned(self, column: Column) -> bool:
        """Return whether the driver reads a column: labels, and values of instances."""
        return column.name in self.grid.dims or column.instances is not None

    def axis_of(self, condition: ColumnCondition) -> int | None:
        """Return the dimension along which the driver evaluates a condition; None if the tasks do."""
        column = self.grid.column(condition.column)
        is_along_axis = len(column.axes) == 1 and (
            self.is_planned(column) or scan.is_small(self.grid, column)
        )
        return column.axes[0] if is_along_axis else None


@dataclass(frozen=True, slots=True, eq=False)
class AxisCells:
    """Cells of one version along one dimension, by code and position; ``columns`` are those of the driver."""

    codes: I64
    positions: I64
    columns: Mapping[str, pa.Array]

    def between(self, low: int, high: int) -> AxisCells:
        """Return the cells with codes from ``low`` up to but not including ``high``."""
        start, stop = np.searchsorted(self.codes, [low, high]).tolist()
        # A copy: the pickle of a part of an Arrow array has all values.
        columns = {name: pa.concat_arrays([each[start:stop]]) for name, each in self.columns.items()}
        return AxisCells(self.codes[start:stop], self.positions[start:stop], columns)


@dataclass(frozen=True, slots=True)
class SharedRows:
    """What all tasks know about one version: its columns, and the conditions that tasks evaluate."""

    is_empty: bool
    shared: scan.SharedVersion
    columns: Mapping[str, Column]
    where: tuple[ColumnCondition, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What all tasks of a comparison share. ``sides`` are the earlier and the later version."""

    sides: tuple[SharedRows, SharedRows]
    block: tuple[int, ...]
    request: ChangeRequest
    snapshot_id: str
    written_at: datetime


#: The rows of one version in a task: cells along each dimension, and references by path.
type TaskRows = tuple[tuple[AxisCells, ...], Mapping[str, ChunkTable]]


@dataclass(frozen=True, slots=True, eq=False)
class ChangeTask:
    """One task: the numbers of its blocks (k, ndim), and for each column the blocks where it may differ."""

    blocks: I64
    differs: Mapping[str, Mask]
    sides: tuple[TaskRows, TaskRows]


def codes_of(one: pa.Array, other: pa.Array) -> tuple[I64, I64]:
    """Return a number for each value, so that equal values of both arrays have equal numbers.

    Null equals null, NaN equals NaN, and zeros are equal. Numbers of different types are compared exactly.
    The codes follow the order of the first appearance, if both types are the same; null has the last one.
    """
    pairs = [(one, other)]
    if one.type != other.type:
        if is_number(one.type) and is_number(other.type):
            pairs = list(zip(_exact(one), _exact(other), strict=True))
        else:
            pairs = [(one, pa.nulls(len(other), one.type)), (pa.nulls(len(one), other.type), other)]
    codes = _combined([_codes(pa.concat_arrays(list(pair))) for pair in pairs])
    return codes[: len(one)], codes[len(one) :]


def _codes(values: pa.Array) -> I64:
    """Return a number for each value, in the order of the first appearance. Null has the last one."""
    is_time = pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type)
    if not is_time and not is_number(values.type):
        return np.asarray(pc.dictionary_encode(values, null_encoding="encode").indices).astype(np.int64)
    numbers = values.view(pa.int64()) if is_time else values
    data = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    # Dictionaries of Arrow take ten times as long for numbers. numpy calls all NaN equal, and both zeros.
    _, first, inverse = np.unique(data, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), np.int64)
    ranks[np.argsort(first)] = np.arange(len(first))
    codes = ranks[inverse]
    if values.null_count:
        codes[np.asarray(values.is_null())] = len(first)
    return codes


def _combined(codes: Iterable[I64]) -> I64:
    """Return one number for each combination of numbers."""
    first, *others = codes
    for each in others:
        first = np.unique(first * (each.max(initial=0) + 1) + each, return_inverse=True)[1]
    return first


def _exact(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return numbers as float64, and what float64 loses of large integers."""
    wide = values.cast(pa.float64(), safe=False)
    if pa.types.is_floating(values.type):
        return wide, pa.array(np.zeros(len(values), np.int64))
    whole = values.cast(pa.int64())
    return wide, pc.fill_null(pc.subtract(whole, wide.cast(pa.int64(), safe=False)), 0)


def as_type(values: pa.Array, column: pa.DataType) -> pa.Array:
    """Return values in another type; null where the type cannot hold the value."""
    if values.type == column:
        return values
    if is_number(values.type) and pa.types.is_string(column):
        return values.cast(column)
    if not (is_number(values.type) and is_number(column)):
        return pa.nulls(len(values), column)
    converted = values.cast(column, safe=False)
    before, after = codes_of(values, converted)
    return pc.if_else(pa.array(before == after), converted, pa.scalar(None, column))


def plan_changes(
    before: TableVersion | None,
    after: TableVersion | None,
    request: ChangeRequest,
    commit: tuple[str, datetime],
) -> list[tuple[Comparison, list[ChangeTask]]]:
    """Return the comparisons that find the changes from one version to another, each with its tasks."""
    # Rows with other dimensions are other rows.
    if before is not None and after is not None and set(before.grid.dims) == set(after.grid.dims):
        pairs = [(before.in_order(after.grid.dims), after)]
    else:
        pairs = [(each, replace(each, is_empty=True)) for each in (before,) if each is not None]
        pairs += [(replace(each, is_empty=True), each) for each in (after,) if each is not None]
    plans = [_ComparisonPlan(*pair, request) for pair in pairs]
    return [(each.comparison(commit), tasks) for each in plans if (tasks := each.tasks())]


@dataclass(frozen=True, slots=True, eq=False)
class _ComparedAxis:
    """One dimension of two versions, by code: labels whose cells moved, or have another number of cells.

    ``codes`` are those of the later version. ``cells`` of both versions meet the conditions along it.
    """

    codes: I64
    cells: tuple[AxisCells, AxisCells]
    moved: Mask
    uneven: Mask


class _ComparisonPlan:
    """The blocks of two versions on the same dimensions that may have changes."""

    def __init__(self, before: TableVersion, after: TableVersion, request: ChangeRequest) -> None:
        self._versions = (before, after)
        self._request = request
        # A version without cells has no useful blocks.
        self._grid = after.grid if all(after.grid.shape) else before.grid
        self._axes = [self._axis(dim) for dim in self._grid.dims]
        sizes = zip(self._axes, self._grid.block, strict=True)
        self._counts = tuple(-(-len(each.moved) // size) for each, size in sizes)
        names = {*self._grid.dims, *(each.source for each in request.columns)}
        self._columns = [
            [each for each in version.grid.columns if each.name in names] for version in self._versions
        ]

    def comparison(self, commit: tuple[str, datetime]) -> Comparison:
        """Return what the tasks share."""
        before, after = (
            SharedRows(
                version.is_empty,
                scan.SharedVersion.of(version.reader.session, sorted(self._paths(side))),
                {each.name: each for each in self._columns[side]},
                tuple(each for each in version.where if version.axis_of(each) is None),
            )
            for side, version in enumerate(self._versions)
        )
        return Comparison((before, after), self._grid.block, self._request, *commit)

    def tasks(self) -> list[ChangeTask]:
        """Return the tasks that compare all blocks in which rows may differ."""
        scan.require_bounded(self._grid, prod(self._counts), scan.LARGEST_GRID)
        is_other = np.array(any(each.is_empty for each in self._versions))
        differs = {name: self._may_differ(name) for name in self._request.compared}
        uneven = [self._blocks_with(axis, each.uneven) for axis, each in enumerate(self._axes)]
        needed = reduce(np.logical_or, [*differs.values(), *uneven], is_other)
        needed = np.broadcast_to(needed & (self._with_rows(0) | self._with_rows(1)), self._counts)
        blocks = np.argwhere(needed).astype(np.int64)
        scan.require_bounded(self._grid, len(blocks), scan.MOST_BLOCKS)
        tasks = []
        for numbers in scan.split_blocks(
            blocks, self._grid, list(chain(*self._columns)), self._request.split
        ):
            low = (numbers.min(axis=0) * self._grid.block).tolist()
            high = ((numbers.max(axis=0) + 1) * self._grid.block).tolist()
            spans = list(zip(self._axes, low, high, strict=True))
            before, after = (
                self._task_rows(side, [axis.cells[side].between(*span) for axis, *span in spans])
                for side in (0, 1)
            )
            flags = {
                name: np.broadcast_to(each, self._counts)[tuple(numbers.T)] for name, each in differs.items()
            }
            tasks.append(ChangeTask(numbers, flags, (before, after)))
        return tasks

    def _task_rows(self, side: int, cells: Sequence[AxisCells]) -> TaskRows:
        """Return the cells of a task, and the references of their chunks."""
        tables = {}
        for path, column in self._paths(side).items():
            steps = zip(column.axes, column.chunks, strict=True)
            numbers = [np.unique(cells[axis].positions // chunk) for axis, chunk in steps]
            low = [int(each[0]) if len(each) else 0 for each in numbers]
            high = [int(each[-1]) + 1 if len(each) else 0 for each in numbers]
            table = scan.rows_in_box(self._versions[side].references(path), low, high)
            if any(stop - start > len(each) for start, stop, each in zip(low, high, numbers, strict=True)):
                inside = [np.isin(table.index[:, axis], each) for axis, each in enumerate(numbers)]
                table = table.select_chunks(np.logical_and.reduce(inside)).prune().compact()
            tables[path] = table
        return tuple(cells), tables

    def _paths(self, side: int) -> dict[str, Column]:
        """Return the arrays of a version that tasks read."""
        is_planned = self._versions[side].is_planned
        return {
            each.path: each for each in self._columns[side] if each.path is not None and not is_planned(each)
        }

    def _axis(self, dim: str) -> _ComparedAxis:
        before, after = self._versions
        one, other = (version.grid.column(dim) for version in self._versions)
        changed = self._changed_chunks(one, other)
        if changed is not None and not len(changed) and one.shape == other.shape:
            before.reader.share(one, after.reader.coordinate(other))
            one = other
        later = to_arrow(after.reader.coordinate(other), other.type)
        earlier = later[:0] if one is other else to_arrow(before.reader.coordinate(one), one.type)
        codes, old_codes = codes_of(later, earlier)
        count = int(max(codes.max(initial=-1), old_codes.max(initial=-1))) + 1
        cells = (_cells(before, dim, codes if one is other else old_codes), _cells(after, dim, codes))
        numbers = [np.bincount(each.codes, minlength=count) for each in cells]
        uneven = numbers[0] != numbers[1]
        moved = uneven.copy()
        even = [~uneven[each.codes] for each in cells]
        is_other = cells[0].positions[even[0]] != cells[1].positions[even[1]]
        moved[cells[0].codes[even[0]][is_other]] = True
        return _ComparedAxis(codes, cells, moved, uneven)

    def _changed_chunks(self, one: Column, other: Column) -> NDArray[np.uint32] | None:
        """Return the chunks of a column that differ; None if all values may differ."""
        if (one.axes, one.instances, repr(one.decoder)) != (other.axes, other.instances, repr(other.decoder)):
            return None
        chunks = self._changed_references(one.path, other.path)
        if other.instances is None or chunks is None:
            return chunks
        numbers = self._changed_references(other.instances.path, other.instances.path)
        return chunks if numbers is not None and not len(numbers) + len(chunks) else None

    def _changed_references(self, one: str | None, other: str | None) -> NDArray[np.uint32] | None:
        if one is None or other is None:
            return np.zeros((0, 0), np.uint32) if one is other else None
        before, after = self._versions
        old = before.reader.session.workspace.require_array(one)
        new = after.reader.session.workspace.require_array(other)
        assert old.array is not None
        assert new.array is not None
        documents = (json.loads(each.user_data).items() for each in (old, new))
        # What gives the bytes of a chunk their elements. The decoder has the meaning of attributes.
        encodings = [{key: value for key, value in each if key not in _NO_ENCODING} for each in documents]
        if encodings[0] != encodings[1]:
            return None
        if old.id == new.id and list(old.array.manifests) == list(new.array.manifests):
            return np.zeros((0, 0), np.uint32)
        return differing(before.references(one), after.references(other))

    def _may_differ(self, name: str) -> Mask:
        """Return the blocks in which values of a column may differ."""
        one, other = (version.grid.column(name) for version in self._versions)
        chunks = self._changed_chunks(one, other)
        blocks = np.full((1,) * len(self._axes), chunks is None)
        if chunks is None:
            return blocks
        for axis in other.axes:
            blocks = blocks | self._blocks_with(axis, self._axes[axis].moved)
        if not len(chunks):
            return blocks
        # Cells of the later version: labels that only the earlier one has are moved.
        numbers = [each.codes // size for each, size in zip(self._axes, self._grid.block, strict=True)]
        return blocks | scan.blocks_of_chunks(other, chunks, numbers, self._counts)

    def _with_rows(self, side: int) -> Mask:
        """Return the blocks in which a version has rows, before conditions that tasks evaluate."""
        blocks = np.array(not self._versions[side].is_empty)
        for axis, each in enumerate(self._axes):
            has_cells = np.zeros(len(each.moved), np.bool_)
            has_cells[each.cells[side].codes] = True
            blocks = blocks & self._blocks_with(axis, has_cells)
        return blocks

    def _blocks_with(self, axis: int, labels: Mask) -> Mask:
        """Return the blocks along one dimension that have any of these labels, in the shape of all blocks."""
        starts = np.arange(0, len(labels), self._grid.block[axis])
        blocks = np.logical_or.reduceat(labels, starts) if len(starts) else labels
        return blocks.reshape([-1 if each == axis else 1 for each in range(len(self._counts))])


def _cells(version: TableVersion, dim: str, codes: I64) -> AxisCells:
    """Return the cells along a dimension that meet all conditions along it."""
    axis = version.grid.dims.index(dim)
    chosen = np.full(len(codes), not version.is_empty)
    for each in version.where:
        if version.axis_of(each) == axis:
            chosen &= each.holds(version.reader.coordinate(version.grid.column(each.column)))
    positions = np.flatnonzero(chosen)
    positions = positions[np.argsort(codes[positions], kind="stable")]
    columns = {
        each.name: to_arrow(version.reader.coordinate(each), each.type).take(pa.array(positions))
        for each in version.grid.columns
        if version.is_planned(each) and each.axes == (axis,)
    }
    return AxisCells(codes[positions], positions, columns)


def change_batches(comparison: Comparison, task: ChangeTask) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one task."""
    request, size = comparison.request, np.array(comparison.block, np.int64)
    columns = {each.name.lower(): each for each in request.columns}
    sides = [_VersionReader(*each) for each in zip(comparison.sides, task.sides, strict=True)]

    def changes(number: int) -> pa.RecordBatch | None:
        low = task.blocks[number] * size
        spans = list(zip(low.tolist(), (low + size).tolist(), strict=True))
        before, after = (_BlockRows(each, spans) for each in sides)
        differs = [name for name, blocks in task.differs.items() if blocks[number]]
        rows = _changed_rows(before, after, differs, request.compared)
        if not any(map(len, rows)):
            return None
        arrays = [
            scan.cast(_values(comparison, columns[each.name.lower()], before, after, rows), each)
            for each in request.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=request.schema)

    is_local = all(each.is_local for each in sides)
    yield from filter(None, prefetched(changes, range(len(task.blocks)), is_local=is_local))


def _values(
    comparison: Comparison, column: ChangeColumn, before: _BlockRows, after: _BlockRows, rows: _Rows
) -> pa.Array:
    """Return a column of the result: inserted rows, then updated, then deleted ones."""
    inserted, old, new, deleted = rows
    counts = [len(inserted), len(new), len(deleted)]
    if column.name == CHANGE:
        return pa.array(np.repeat(["inserted", "updated", "deleted"], counts), column.type)
    if not column.source:
        return pa.repeat(pa.scalar(getattr(comparison, column.name), column.type), sum(counts))
    if column.is_before:
        earlier = before.take(column.source, np.concatenate([old, deleted]))
        return pa.concat_arrays([pa.nulls(len(inserted), column.type), as_type(earlier, column.type)])
    parts = (after.take(column.source, np.concatenate([inserted, new])), before.take(column.source, deleted))
    return pa.concat_arrays([as_type(each, column.type) for each in parts])


class _VersionReader:
    """One version in a task, with its open arrays."""

    def __init__(self, shared: SharedRows, rows: TaskRows) -> None:
        self.shared, (self.cells, tables) = shared, rows
        session = shared.shared.session(tables)
        self.is_local = scan.is_local(session, tables)
        self._arrays = {path: array_at(session, path) for path in tables}

    def read(self, column: Column, cells: Sequence[AxisCells]) -> Values:
        """Return the values of a column at some cells. Cells that are far apart are not read as one box."""
        if column.path is None:
            dtype = "M8[us]" if pa.types.is_timestamp(column.type) else column.type.to_pandas_dtype()
            return Values(np.zeros((), dtype), np.ones((), np.bool_))
        array, boxes, inner = self._arrays[column.path], [], []
        for axis in column.axes:
            positions = cells[axis].positions
            low, high = int(positions.min()), int(positions.max()) + 1
            is_box = high - low <= 2 * len(positions)
            boxes.append(slice(low, high) if is_box else positions)
            inner.append(positions - low if is_box else np.arange(len(positions)))
        is_whole = all(isinstance(each, slice) for each in boxes)
        raw = np.asarray(array[tuple(boxes)] if is_whole else array.oindex[tuple(boxes)])
        return column.decoder.decode(raw[np.ix_(*inner)] if inner else raw)


class _BlockRows:
    """The rows of one version in a block, ascending by ``keys``, the numbers of their labels."""

    def __init__(self, side: _VersionReader, spans: Sequence[tuple[int, int]]) -> None:
        self._side = side
        self._cells = [each.between(*span) for each, span in zip(side.cells, spans, strict=True)]
        self._shape = tuple(len(each.codes) for each in self._cells)
        self._values: dict[str, pa.Array] = {}
        self.has_repeats = any((np.diff(each.codes) == 0).any() for each in self._cells)
        keys = np.zeros((), np.int64)
        for each, (low, high) in zip(self._cells, spans, strict=True):
            keys = keys[..., None] * (high - low) + (each.codes - low)
        holds = np.full(self._shape, not side.shared.is_empty)
        for condition in side.shared.where:
            if holds.any():
                column = side.shared.columns[condition.column]
                holds &= broadcast(condition.holds(side.read(column, self._cells)), column.axes, self._shape)
        self._rows = np.flatnonzero(holds)
        self.keys: I64 = keys.reshape(-1)[self._rows]

    def take(self, name: str, rows: I64) -> pa.Array:
        """Return the values of a column in some rows."""
        column = self._side.shared.columns[name]
        if not len(rows):
            return pa.nulls(0, column.type)
        if name not in self._values:
            values = self._cells[column.axes[0]].columns.get(name) if column.axes else None
            if values is None:
                read = self._side.read(column, self._cells)
                null = None if read.null is None else read.null.reshape(-1)
                values = to_arrow(Values(read.data.reshape(-1), null), column.type)
            self._values[name] = values
        shape = [self._shape[axis] for axis in column.axes]
        index = broadcast(np.arange(prod(shape)).reshape(shape), column.axes, self._shape).reshape(-1)
        return self._values[name].take(pa.array(index[self._rows[rows]]))


#: Inserted rows, updated rows in the earlier and in the later version, and deleted rows.
type _Rows = tuple[I64, I64, I64, I64]


def _changed_rows(
    before: _BlockRows, after: _BlockRows, differs: Sequence[str], compared: Sequence[str]
) -> _Rows:
    """Return the changed rows of a block. Unless labels repeat, only the columns ``differs`` may differ."""
    one, other = np.arange(len(before.keys)), np.arange(len(after.keys))
    if before.has_repeats or after.has_repeats:
        # Equal rows are no changes. All columns count, as a row may be paired with any row of its labels.
        values = [codes_of(before.take(each, one), after.take(each, other)) for each in compared]
        codes = _combined(map(np.concatenate, [(before.keys, after.keys), *values]))
        same = _pairs(codes[: len(one)], codes[len(one) :])
        one, other = np.delete(one, same[0]), np.delete(other, same[1])
    old, new = _pairs(before.keys[one], after.keys[other])
    deleted, inserted = np.delete(one, old), np.delete(other, new)
    old, new = one[old], other[new]
    if not (before.has_repeats or after.has_repeats):
        is_other = np.zeros(len(old), np.bool_)
        for each in differs:
            is_other |= np.not_equal(*codes_of(before.take(each, old), after.take(each, new)))
        old, new = old[is_other], new[is_other]
    return inserted, old, new, deleted


def _pairs(one: I64, other: I64) -> tuple[I64, I64]:
    """Return the positions of equal keys. Keys that are equal in one array are paired in their order."""
    count = int(max(one.max(initial=0), other.max(initial=0))) + 1
    numbers: list[I64] = []
    for keys in (one, other):
        order = np.argsort(keys, kind="stable")
        occurrence = np.empty(len(keys), np.int64)
        occurrence[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
        numbers.append(occurrence * count + keys)
    first, second = numbers
    _, at_one, at_other = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    return at_one, at_other
