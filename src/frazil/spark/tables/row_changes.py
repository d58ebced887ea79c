"""The rows that differ between two versions: the table ``row_changes``.

    codes     Equal labels of the two versions get one code, a number along their dimension. The codes follow
              the order of the later version. Labels that only the earlier version has come last.
    blocks    A block is a range of codes along each dimension, about as large as a block of a scan. It has
              all rows of both versions with these labels, at any positions.
    plan      A block is read if a label has other numbers of cells in the two versions, or if values may
              differ: a chunk has another reference, the array has another meaning, or labels moved along
              one of its dimensions.
    task      Rows of both versions are joined by their codes, and their values are compared.

Labels may repeat. Rows with the same labels are in one block: equal rows are paired first, the others in the
order of their positions. So the result does not depend on the size of the blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.arrays.zarr_arrays import array_at
from frazil.changes.compare import differing
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.manifest import ChunkTable
from frazil.format.nodes import Node
from frazil.repository.session.session import Session
from frazil.spark.tables.batches import broadcast, cast, is_local, prefetched
from frazil.spark.tables.conditions import Conditions, predicates
from frazil.spark.tables.decoding import Values, to_arrow
from frazil.spark.tables.grid import Column, Grid, Selection
from frazil.spark.tables.group_grid import grid_of
from frazil.spark.tables.predicates import Mask, Predicate
from frazil.spark.tables.scan_blocks import is_small, read_column
from frazil.spark.tables.scan_plan import LARGEST_GRID, MOST_BLOCKS, Split, require_bounded, split_blocks
from frazil.spark.tables.version_slices import SharedVersion, rows_in_box

type I64 = NDArray[np.int64]

#: The columns that the table adds to those of the rows.
CHANGE: Final = "change"
SNAPSHOT_ID: Final = "snapshot_id"
WRITTEN_AT: Final = "written_at"
#: The start of the name of a column with earlier values.
BEFORE: Final = "before_"
#: Metadata of an array that do not change the elements of its chunks.
_NO_ENCODING: Final = frozenset({"attributes", "shape", "dimension_names"})
_NO_CHUNKS: Final = np.zeros((0, 0), np.uint32)


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """A column of the result.

    ``source`` is the column of the rows; it is empty for the columns of the change itself.
    """

    name: str
    type: pa.DataType
    source: str = ""
    is_before: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TableVersion:
    """One version of a table. ``values`` and ``tables`` keep what the plan has read."""

    session: Session
    grid: Grid
    where: tuple[Predicate, ...]
    is_empty: bool = False
    values: dict[str, Values] = field(default_factory=dict)
    tables: dict[str, ChunkTable] = field(default_factory=dict)

    @staticmethod
    def of(
        session: Session, selection: Selection, where: Conditions, last: Grid | None = None
    ) -> TableVersion | None:
        """Return the table in a version; None if the version has no such table.

        ``last`` is the grid of the last version. Its columns that this version lacks are null.
        """
        if last is None:
            grid = grid_of(session, selection)
            return TableVersion(session, grid, tuple(predicates(grid, where)))
        folder = "/" + selection.group.strip("/")
        paths = {each: f"{folder.rstrip('/')}/{each}" for each in selection.variables}
        names = tuple(each for each in paths if session.workspace.nodes.node(paths[each]) is not None)
        lacks_all = bool(paths) and not names
        try:
            grid = grid_of(session, replace(selection, variables=names))
        except (NodeNotFoundError, InvalidInputError) as error:
            if lacks_all or error.kind in (ErrorKind.NODE_NOT_FOUND, ErrorKind.NOT_A_GROUP):
                return None
            raise
        if lacks_all and set(grid.dims) != set(last.dims):
            return None
        existing = {each.name for each in grid.columns}
        missing = (each for each in last.columns if each.name not in existing)
        conditions = predicates(replace(grid, columns=(*grid.columns, *missing)), where)
        return TableVersion(session, grid, tuple(conditions))

    def without_rows(self) -> TableVersion:
        """Return a version without rows on the same grid."""
        return replace(self, is_empty=True)

    def in_order(self, dims: tuple[str, ...]) -> TableVersion:
        """Return the same rows with the dimensions in another order."""
        grid = self.grid
        columns = tuple(
            replace(each, axes=tuple(dims.index(grid.dims[axis]) for axis in each.axes))
            for each in grid.columns
        )
        order = [grid.dims.index(dim) for dim in dims]
        shape, block = (tuple(each[axis] for axis in order) for each in (grid.shape, grid.block))
        return replace(self, grid=Grid(dims, shape, columns, block))

    def find(self, name: str) -> Column | None:
        """Return a column; None if this version lacks it."""
        return next((each for each in self.grid.columns if each.name == name), None)

    def read(self, column: Column) -> Values:
        """Return all values of a column along its own dimensions."""
        if column.name not in self.values:
            self.values[column.name] = read_column(self.session, column)
        return self.values[column.name]

    def references(self, path: str) -> ChunkTable:
        """Return all references of an array."""
        if path not in self.tables:
            self.tables[path] = self.session.workspace.chunks.ref_table(path)
        return self.tables[path]

    def is_planned(self, column: Column) -> bool:
        """Return whether the driver reads a column: labels, and values of instances."""
        return column.name in self.grid.dims or column.instances is not None

    def is_along_axis(self, condition: Predicate) -> bool:
        """Return whether the driver evaluates a condition, for the cells along one dimension."""
        column = self.find(condition.column)
        if column is None or len(column.axes) != 1:
            return False
        return self.is_planned(column) or is_small(self.grid, column)


@dataclass(frozen=True, slots=True, eq=False)
class AxisCells:
    """Cells of one version along one dimension: ascending by the code of their label, then by position.

    ``columns`` has the values of the columns that the driver reads, for these cells.
    """

    codes: I64
    positions: I64
    columns: Mapping[str, pa.Array] = field(default_factory=dict)

    def between(self, low: int, high: int) -> AxisCells:
        """Return the cells with codes from ``low`` up to but not including ``high``."""
        start, stop = np.searchsorted(self.codes, [low, high]).tolist()
        columns = {name: each.slice(start, stop - start) for name, each in self.columns.items()}
        return AxisCells(self.codes[start:stop], self.positions[start:stop], columns)

    def compact(self) -> AxisCells:
        """Return a copy. The pickle of a part of an Arrow array has all its values."""
        return replace(self, columns={name: pa.concat_arrays([each]) for name, each in self.columns.items()})


@dataclass(frozen=True, slots=True)
class SharedRows:
    """What all tasks know about one version: its columns, and the conditions that tasks evaluate."""

    is_empty: bool
    shared: SharedVersion
    columns: Mapping[str, Column]
    where: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """The result, and its split into tasks.

    columns     all columns that the result may have; schema: those of the query, with their types in Spark
    types       the columns of the rows in the last version
    compared    those of them that are no dimensions
    """

    columns: tuple[ChangeColumn, ...]
    schema: pa.Schema
    types: Mapping[str, pa.DataType]
    compared: tuple[str, ...]
    split: Split


@dataclass(frozen=True, slots=True)
class Comparison:
    """What all tasks of a comparison of two versions share. ``block``: the codes of a block by dimension."""

    before: SharedRows
    after: SharedRows
    block: tuple[int, ...]
    request: ChangeRequest
    snapshot_id: str
    written_at: datetime


@dataclass(frozen=True, slots=True, eq=False)
class TaskRows:
    """The rows of one version in a task: cells along each dimension, and references by path."""

    cells: tuple[AxisCells, ...]
    tables: Mapping[str, ChunkTable]


@dataclass(frozen=True, slots=True, eq=False)
class ChangeTask:
    """One task: the numbers of its blocks (k, ndim), and for each column the blocks where it may differ."""

    blocks: I64
    differs: Mapping[str, Mask]
    before: TaskRows
    after: TaskRows


def codes_of(one: pa.Array, other: pa.Array) -> tuple[I64, I64]:
    """Return a number for each value, so that equal values of both arrays have equal numbers.

    Null equals null, NaN equals NaN, and zeros are equal. Numbers of different types are compared exactly.
    The codes follow the order of the first appearance, if both types are the same.

    >>> one, other = codes_of(pa.array([7.5, -0.0, None]), pa.array([None, 0.0, 8.0]))
    >>> one.tolist(), other.tolist()
    ([0, 1, 2], [2, 1, 3])
    """
    pairs = [(one, other)]
    if one.type != other.type:
        if is_number(one.type) and is_number(other.type):
            pairs = list(zip(_exact(one), _exact(other), strict=True))
        else:
            pairs = [(one, pa.nulls(len(other), one.type)), (pa.nulls(len(one), other.type), other)]
    every = [pa.concat_arrays([*map(_plain, pair)]) for pair in pairs]
    codes = _combined([pc.dictionary_encode(each, null_encoding="encode").indices for each in every])
    return codes[: len(one)], codes[len(one) :]


def _combined(codes: Iterable[Any]) -> I64:
    """Return one number for each combination of numbers."""
    wide = [np.asarray(each).astype(np.int64) for each in codes]
    return reduce(
        lambda one, other: np.unique(one * (other.max(initial=0) + 1) + other, return_inverse=True)[1], wide
    )


def is_number(column: pa.DataType) -> bool:
    """Return whether a column has numbers."""
    return bool(pa.types.is_integer(column) or pa.types.is_floating(column))


def _plain(values: pa.Array) -> pa.Array:
    """Return floating point numbers with one zero and one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(
        pc.is_nan(values), pa.scalar(np.nan, values.type), pc.add(values, pa.scalar(0.0, values.type))
    )


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
    if pa.types.is_string(column) and not pa.types.is_binary(values.type):
        return values.cast(column)
    if not (is_number(values.type) and is_number(column)):
        return pa.nulls(len(values), column)
    converted = values.cast(column, safe=False)
    before, after = codes_of(values, converted)
    return pc.if_else(pa.array(before == after), converted, pa.scalar(None, column))


# The plan


@dataclass(frozen=True, slots=True, eq=False)
class _Axis:
    """One dimension of two versions.

    codes     the code of the label of each cell of the later version
    cells     the cells of the earlier and of the later version that meet the conditions along the dimension
    moved     labels whose cells are not the same in both versions, by code
    uneven    labels with other numbers of cells, by code
    """

    codes: I64
    cells: tuple[AxisCells, AxisCells]
    moved: Mask
    uneven: Mask


def plan_changes(
    before: TableVersion | None,
    after: TableVersion | None,
    request: ChangeRequest,
    commit: tuple[str, datetime],
) -> list[tuple[Comparison, list[ChangeTask]]]:
    """Return the comparisons that find the changes from one version to another, each with its tasks.

    Rows with other dimensions are other rows: those of the earlier version are deleted, and those of the
    later version are inserted.
    """
    if before is not None and after is not None and set(before.grid.dims) == set(after.grid.dims):
        pairs = [(before.in_order(after.grid.dims), after)]
    else:
        pairs = [] if before is None else [(before, before.without_rows())]
        pairs += [] if after is None else [(after.without_rows(), after)]
    planned = [(_comparison(*pair, request, commit), _tasks(*pair, request)) for pair in pairs]
    return [each for each in planned if each[1]]


def _comparison(
    before: TableVersion, after: TableVersion, request: ChangeRequest, commit: tuple[str, datetime]
) -> Comparison:
    sides = []
    for version in (before, after):
        columns = _columns(version, request)
        paths = {each.path for each in columns if not version.is_planned(each) and each.path is not None}
        where = tuple(each for each in version.where if not version.is_along_axis(each))
        shared = SharedVersion.of(version.session, sorted(paths))
        sides.append(SharedRows(version.is_empty, shared, {each.name: each for each in columns}, where))
    return Comparison(*sides, _grid(before, after).block, request, *commit)


def _columns(version: TableVersion, request: ChangeRequest) -> list[Column]:
    """Return the columns of a version that tasks need."""
    names = {*version.grid.dims, *request.types}
    return [each for each in version.grid.columns if each.name in names]


def _grid(before: TableVersion, after: TableVersion) -> Grid:
    """Return the grid whose blocks are used: that of the later version, if it has cells."""
    return after.grid if all(after.grid.shape) else before.grid


def _tasks(before: TableVersion, after: TableVersion, request: ChangeRequest) -> list[ChangeTask]:
    grid = _grid(before, after)
    axes = [_axis(before, after, dim) for dim in grid.dims]
    counts = tuple(-(-len(each.moved) // size) for each, size in zip(axes, grid.block, strict=True))
    require_bounded(grid, prod(counts), LARGEST_GRID)
    differs = {name: _may_differ(before, after, name, axes, grid.block) for name in request.compared}
    uneven = [_blocks_with(each.uneven, at, grid.block) for at, each in enumerate(axes)]
    is_other = np.array(before.is_empty or after.is_empty)
    needed = reduce(np.logical_or, [*differs.values(), *uneven], is_other)
    needed = needed & (_with_rows(before, axes, 0, grid.block) | _with_rows(after, axes, 1, grid.block))
    blocks = np.argwhere(np.broadcast_to(needed, counts)).astype(np.int64)
    require_bounded(grid, len(blocks), MOST_BLOCKS)
    columns = [*_columns(before, request), *_columns(after, request)]
    tasks = []
    for numbers in split_blocks(blocks, grid, columns, request.split):
        size = np.array(grid.block, np.int64)
        spans = list(
            zip(
                (numbers.min(axis=0) * size).tolist(),
                ((numbers.max(axis=0) + 1) * size).tolist(),
                strict=True,
            )
        )
        flags = {name: np.broadcast_to(each, counts)[tuple(numbers.T)] for name, each in differs.items()}
        sides = (
            _task_rows(
                version,
                [each.cells[side].between(*span) for each, span in zip(axes, spans, strict=True)],
                request,
            )
            for side, version in enumerate((before, after))
        )
        tasks.append(ChangeTask(numbers, flags, *sides))
    return tasks


def _axis(before: TableVersion, after: TableVersion, dim: str) -> _Axis:
    one, other = before.grid.column(dim), after.grid.column(dim)
    changed = _changed_chunks(before, after, one, other)
    if changed is not None and not len(changed) and one.shape == other.shape:
        before.values[dim] = after.read(other)
        later, _ = codes_of(labels := to_arrow(after.read(other), other.type), labels[:0])
        earlier = later
    else:
        later, earlier = codes_of(
            *(to_arrow(version.read(each), each.type) for version, each in ((after, other), (before, one)))
        )
    count = int(max(later.max(initial=-1), earlier.max(initial=-1))) + 1
    cells = (_cells(before, dim, earlier), _cells(after, dim, later))
    numbers = [np.bincount(each.codes, minlength=count) for each in cells]
    uneven = numbers[0] != numbers[1]
    pairs = [each.positions[~uneven[each.codes]] for each in cells]
    moved = uneven.copy()
    moved[cells[0].codes[~uneven[cells[0].codes]][pairs[0] != pairs[1]]] = True
    return _Axis(later, cells, moved, uneven)


def _cells(version: TableVersion, dim: str, codes: I64) -> AxisCells:
    """Return the cells along a dimension that meet all conditions along it."""
    chosen = np.full(len(codes), not version.is_empty)
    axis = version.grid.dims.index(dim)
    for each in version.where:
        if version.is_along_axis(each) and (column := version.grid.column(each.column)).axes == (axis,):
            chosen &= each.holds(version.read(column))
    positions = np.flatnonzero(chosen)
    positions = positions[np.argsort(codes[positions], kind="stable")]
    columns = {
        each.name: to_arrow(version.read(each), each.type).take(pa.array(positions))
        for each in version.grid.columns
        if version.is_planned(each) and each.axes == (axis,)
    }
    return AxisCells(codes[positions], positions, columns)


def _task_rows(version: TableVersion, cells: Sequence[AxisCells], request: ChangeRequest) -> TaskRows:
    """Return the values and the references that a task needs for its cells."""
    tables = {}
    for column in _columns(version, request):
        if column.path is None or version.is_planned(column):
            continue
        numbers = [
            np.unique(cells[axis].positions // chunk)
            for axis, chunk in zip(column.axes, column.chunks, strict=True)
        ]
        is_empty = not all(map(len, numbers))
        low = [0 if is_empty else int(each[0]) for each in numbers]
        high = [0 if is_empty else int(each[-1]) + 1 for each in numbers]
        table = rows_in_box(version.references(column.path), low, high)
        if any(stop - start > len(each) for start, stop, each in zip(low, high, numbers, strict=True)):
            inside = [np.isin(table.index[:, axis], each) for axis, each in enumerate(numbers)]
            table = table.select_chunks(reduce(np.logical_and, inside)).prune().compact()
        tables[column.path] = table
    return TaskRows(tuple(each.compact() for each in cells), tables)


def _changed_chunks(
    before: TableVersion, after: TableVersion, one: Column | None, other: Column | None
) -> NDArray[np.uint32] | None:
    """Return the chunks of a column that differ; None if all values may differ.

    Arrays are compared by their metadata and references: another array at the path is another array.
    """
    if one is None or other is None:
        return _NO_CHUNKS if one is other else None
    if repr(one.decoder) != repr(other.decoder) or one.axes != other.axes or one.instances != other.instances:
        return None
    chunks = _changed_references(before, after, one.path, other.path)
    if other.instances is None or chunks is None:
        return chunks
    numbers = _changed_references(before, after, other.instances.path, other.instances.path)
    return _NO_CHUNKS if numbers is not None and not len(numbers) + len(chunks) else None


def _changed_references(
    before: TableVersion, after: TableVersion, one: str | None, other: str | None
) -> NDArray[np.uint32] | None:
    if one is None or other is None:
        return _NO_CHUNKS if one is other else None
    old, new = (
        before.session.workspace.nodes.require_array(one),
        after.session.workspace.nodes.require_array(other),
    )
    if _encoding(old) != _encoding(new):
        return None
    assert old.array is not None
    assert new.array is not None
    if old.id == new.id and list(old.array.manifests) == list(new.array.manifests):
        return _NO_CHUNKS
    return differing(before.references(one), after.references(other))


def _encoding(node: Node) -> Mapping[str, Any]:
    """Return what gives the bytes of a chunk their elements. The decoder has the meaning of attributes."""
    document = json.loads(node.user_data)
    return {name: value for name, value in document.items() if name not in _NO_ENCODING}


def _may_differ(
    before: TableVersion, after: TableVersion, name: str, axes: Sequence[_Axis], block: Sequence[int]
) -> Mask:
    """Return the blocks in which values of a column may differ: one along dimensions it does not have."""
    column = after.find(name)
    chunks = _changed_chunks(before, after, before.find(name), column)
    if chunks is None:
        return np.ones((1,) * len(axes), np.bool_)
    blocks = np.zeros((1,) * len(axes), np.bool_)
    if column is None:
        return blocks
    for axis in column.axes:
        blocks = blocks | _blocks_with(axes[axis].moved, axis, block)
    return blocks | _blocks_of(column, chunks, axes, block) if len(chunks) else blocks


def _blocks_of(
    column: Column, chunks: NDArray[np.uint32], axes: Sequence[_Axis], block: Sequence[int]
) -> Mask:
    """Return the blocks with labels of some chunks of the later version, at least.

    Each chunk adds one to a box of blocks, by the corners of the box and a sum along each dimension.
    """
    first, last, shape = [], [], [1] * len(axes)
    inside = np.ones(len(chunks), np.bool_)
    for at, axis in enumerate(column.axes):
        numbers = axes[axis].codes // block[axis]
        starts = np.arange(0, len(numbers), column.chunks[at])
        inside &= chunks[:, at] < len(starts)
        first.append(np.minimum.reduceat(numbers, starts) if len(starts) else starts)
        last.append(np.maximum.reduceat(numbers, starts) if len(starts) else starts)
        shape[axis] = -(-len(axes[axis].moved) // block[axis])
    index = chunks[inside].T
    boxes = np.zeros([shape[axis] + 1 for axis in column.axes], np.int32)
    for corner in product((0, 1), repeat=len(index)):
        at = tuple(
            (last[n][each] + 1, first[n][each])[not end]
            for n, (each, end) in enumerate(zip(index, corner, strict=True))
        )
        np.add.at(boxes, at, (-1) ** sum(corner))
    for axis in range(boxes.ndim):
        np.cumsum(boxes, axis=axis, out=boxes)
    covered = boxes[tuple(slice(-1) for _ in column.axes)] > 0
    return covered.transpose(np.argsort(column.axes)).reshape(shape)


def _blocks_with(labels: Mask, axis: int, block: Sequence[int]) -> Mask:
    """Return the blocks along one dimension that have any of these labels, in the shape of all blocks."""
    starts = np.arange(0, len(labels), block[axis])
    blocks = np.logical_or.reduceat(labels, starts) if len(starts) else labels
    return blocks.reshape([-1 if each == axis else 1 for each in range(len(block))])


def _with_rows(version: TableVersion, axes: Sequence[_Axis], side: int, block: Sequence[int]) -> Mask:
    """Return the blocks in which a version has rows, before conditions that tasks evaluate."""
    present = np.array(not version.is_empty)
    for axis, each in enumerate(axes):
        has_cells = np.zeros(len(each.moved), np.bool_)
        has_cells[each.cells[side].codes] = True
        present = present & _blocks_with(has_cells, axis, block)
    return present


# The tasks


def change_batches(comparison: Comparison, task: ChangeTask) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one task."""
    work = _TaskWork(comparison, task)
    yield from filter(None, prefetched(work.changes, np.arange(len(task.blocks)), work.is_local))


class _Arrays:
    """The open arrays of one version in a task."""

    def __init__(self, shared: SharedRows, rows: TaskRows) -> None:
        session = shared.shared.session(rows.tables)
        self.is_local = is_local(session, rows.tables)
        self._arrays = {path: array_at(session, path) for path in rows.tables}

    def read(self, path: str, positions: Sequence[I64]) -> NDArray[Any]:
        """Return the elements at positions along each axis. Positions far apart are not read as one box."""
        array, boxes, inner = self._arrays[path], [], []
        for each in positions:
            low, high = int(each.min()), int(each.max()) + 1
            is_box = high - low <= 2 * len(each)
            boxes.append(slice(low, high) if is_box else each)
            inner.append(each - low if is_box else np.arange(len(each)))
        is_whole = all(isinstance(each, slice) for each in boxes)
        raw = np.asarray(array[tuple(boxes)] if is_whole else array.oindex[tuple(boxes)])
        return raw[np.ix_(*inner)] if inner else raw


class _BlockRows:
    """The rows of one version in a block, ascending by key. Columns are read when they are needed.

    ``keys`` has a number for the labels of each row.
    """

    def __init__(
        self,
        shared: SharedRows,
        arrays: _Arrays,
        cells: Sequence[AxisCells],
        spans: Sequence[tuple[int, int]],
        types: Mapping[str, pa.DataType],
    ) -> None:
        self._shared, self._arrays, self._types = shared, arrays, types
        self._cells = [each.between(*span) for each, span in zip(cells, spans, strict=True)]
        self._shape = tuple(len(each.codes) for each in self._cells)
        self._values: dict[str, pa.Array] = {}
        self.has_repeats = any((np.diff(each.codes) == 0).any() for each in self._cells)
        keys = np.zeros((), np.int64)
        for each, (low, high) in zip(self._cells, spans, strict=True):
            keys = keys[..., None] * (high - low) + (each.codes - low)
        holds = np.full(self._shape, not shared.is_empty)
        for condition in shared.where:
            if holds.any():
                column = shared.columns.get(condition.column)
                axes = () if column is None else column.axes
                holds &= broadcast(condition.holds(self._read(condition.column)), axes, self._shape)
        self._rows = np.flatnonzero(holds)
        self.keys: I64 = keys.reshape(-1)[self._rows]

    def take(self, name: str, rows: I64) -> pa.Array:
        """Return the values of a column in some rows; nulls if this version lacks the column."""
        column = self._shared.columns.get(name)
        if column is None or not len(rows):
            return pa.nulls(len(rows), self._types[name] if column is None else column.type)
        if name not in self._values:
            planned = self._cells[column.axes[0]].columns.get(name) if column.axes else None
            if planned is None:
                values = self._read(name)
                null = None if values.null is None else values.null.reshape(-1)
                planned = to_arrow(Values(values.data.reshape(-1), null), column.type)
            self._values[name] = planned
        shape = [self._shape[axis] for axis in column.axes]
        cells = np.arange(prod(shape)).reshape(shape)
        index = broadcast(cells, column.axes, self._shape).reshape(-1)
        return self._values[name].take(pa.array(index[self._rows[rows]]))

    def _read(self, name: str) -> Values:
        """Return the values of a column along its own dimensions."""
        column = self._shared.columns.get(name)
        if column is None:
            return Values(np.zeros((), self._types[name].to_pandas_dtype()), np.ones((), np.bool_))
        assert column.path is not None
        positions = [self._cells[axis].positions for axis in column.axes]
        return column.decoder.decode(self._arrays.read(column.path, positions))


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The changed rows of a block: rows of the earlier version, and rows of the later one."""

    inserted: I64
    updated: tuple[I64, I64]
    deleted: I64

    @staticmethod
    def of(before: _BlockRows, after: _BlockRows, differs: Sequence[str], compared: Sequence[str]) -> _Rows:
        """Return the changes. Only the columns ``differs`` of rows with the same labels may differ."""
        one, other = np.arange(len(before.keys)), np.arange(len(after.keys))
        if before.has_repeats or after.has_repeats:
            # Equal rows are no changes. All columns count, as each row may be paired with several others.
            values = [codes_of(before.take(each, one), after.take(each, other)) for each in compared]
            rows = _combined(map(np.concatenate, [(before.keys, after.keys), *values]))
            same = _pairs(rows[: len(one)], rows[len(one) :])
            one, other = np.delete(one, same[0]), np.delete(other, same[1])
            at = _pairs(before.keys[one], after.keys[other])
            updated = one[at[0]], other[at[1]]
        else:
            at = _pairs(before.keys, after.keys)
            is_other = np.zeros(len(at[0]), np.bool_)
            for each in differs if len(at[0]) else ():
                is_other |= np.not_equal(*codes_of(before.take(each, at[0]), after.take(each, at[1])))
            updated = at[0][is_other], at[1][is_other]
        return _Rows(np.delete(other, at[1]), updated, np.delete(one, at[0]))

    @property
    def counts(self) -> list[int]:
        """The numbers of inserted, updated and deleted rows."""
        return [len(self.inserted), len(self.updated[0]), len(self.deleted)]


def _pairs(one: I64, other: I64) -> tuple[I64, I64]:
    """Return the positions of equal keys. Keys that are equal in one array are paired in their order."""
    count = int(max(one.max(initial=0), other.max(initial=0))) + 1
    numbers = []
    for keys in (one, other):
        order = np.argsort(keys, kind="stable")
        occurrence = np.empty(len(keys), np.int64)
        occurrence[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
        numbers.append(occurrence * count + keys)
    _, at_one, at_other = np.intersect1d(*numbers, assume_unique=True, return_indices=True)
    return at_one, at_other


class _TaskWork:
    """The comparison of the blocks of one task."""

    def __init__(self, comparison: Comparison, task: ChangeTask) -> None:
        self._comparison = comparison
        self._task = task
        self._sides = [
            (shared, _Arrays(shared, rows), rows.cells)
            for shared, rows in ((comparison.before, task.before), (comparison.after, task.after))
        ]
        self.is_local = all(arrays.is_local for _, arrays, _ in self._sides)

    def changes(self, number: int) -> pa.RecordBatch | None:
        """Return the changes in a block; None if there are none."""
        request, size = self._comparison.request, np.array(self._comparison.block, np.int64)
        low = self._task.blocks[number] * size
        spans = list(zip(low.tolist(), (low + size).tolist(), strict=True))
        before, after = (_BlockRows(*each, spans, request.types) for each in self._sides)
        differs = [name for name, blocks in self._task.differs.items() if blocks[number]]
        rows = _Rows.of(before, after, differs, request.compared)
        if not sum(rows.counts):
            return None
        names = {field.name.lower() for field in request.schema}
        values = {
            each.name.lower(): self._column(each, before, after, rows)
            for each in request.columns
            if each.name.lower() in names
        }
        arrays = [cast(values[field.name.lower()], field) for field in request.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=request.schema)

    def _column(self, column: ChangeColumn, before: _BlockRows, after: _BlockRows, rows: _Rows) -> pa.Array:
        """Return a column of the result: inserted rows, then updated, then deleted ones."""
        if column.name == CHANGE:
            return pa.array(np.repeat(["inserted", "updated", "deleted"], rows.counts), column.type)
        if column.name in (SNAPSHOT_ID, WRITTEN_AT):
            value = getattr(self._comparison, column.name)
            return pa.repeat(pa.scalar(value, column.type), sum(rows.counts))
        earlier = np.concatenate([rows.updated[0], rows.deleted]) if column.is_before else rows.deleted
        later = np.concatenate([rows.inserted, rows.updated[1]])
        first = (
            pa.nulls(len(rows.inserted), column.type)
            if column.is_before
            else as_type(after.take(column.source, later), column.type)
        )
        return pa.concat_arrays([first, as_type(before.take(column.source, earlier), column.type)])
