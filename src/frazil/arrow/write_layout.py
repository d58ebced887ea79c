"""The layout of rows in arrays, and how rows become chunks.

    row ──coordinates──> position along each dimension ──> unit of writing ──> task

A unit is the smallest box of whole chunks of all the arrays. A task that has all rows of a unit writes
it, and no other task writes the same chunks. Every writer of rows ends in `write_rows`, which has to get all
rows of each unit. A chunk that these rows do not fill is read first, and written with the new values.

Before the rows are written, some boxes of cells are *cleared*: the cells of new coordinates, and in mode
overwrite-region the box around the rows. The driver clears whole chunks, which costs one chunk for each
array. The tasks clear the *edges*: units that a cleared box contains in part.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import zarr
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.arrays.box_writing import are_fill, missing_element, whole_chunks
from frazil.arrow.grid import Decoder, decoder, dims_of, to_arrow
from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.columns import I64
from frazil.jobs.blocks import regular_grid
from frazil.jobs.engine import Task
from frazil.jobs.task_results import Outcome
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at


def misplaced(text: str) -> InvalidInputError:
    """Return the error (``invalid-chunk-index``) for rows whose cells are not where they must be."""
    return InvalidInputError(text, ErrorKind.INVALID_CHUNK_INDEX)


#: Times of new arrays.
UNITS: Final = "microseconds since 1970-01-01"
#: The text that xarray writes for a fill value of NaN.
NAN_AS_TEXT: Final = base64.b64encode(struct.pack("<d", np.nan)).decode()


def encode(values: pa.Array, decoder: Decoder, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Return the elements of ``dtype`` that ``decoder`` reads as these values, shape (n,).

    Floats are rounded to the precision of the array.
    """
    plain = as_type(values, decoder.type, name)
    null = plain.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(plain.type):  # a complex number: without one of its parts it is missing
        elements = np.empty(len(plain), decoder.coding.dtype)
        for part, target in zip(plain.flatten(), (elements.real, elements.imag), strict=True):
            null = null | part.is_null().to_numpy(zero_copy_only=False)
            target[:] = to_numpy(pc.fill_null(part, 0))
        return decoder.coding.encode(elements, null, name=f"The column {name}")
    if plain.null_count and not (pa.types.is_string(plain.type) or pa.types.is_binary(plain.type)):
        zero = pa.scalar(0, pa.int32() if pa.types.is_date(plain.type) else pa.int64())
        plain = pc.fill_null(plain, False if pa.types.is_boolean(plain.type) else zero.cast(plain.type))
    data = to_numpy(plain)
    column = f"The column {name}"
    if dtype.kind in "iu" and data.dtype.kind == "f" and (count := np.count_nonzero(np.isnan(data) & ~null)):
        raise misfit(f"{column} must have no NaN in an array of integers, got {count}. Write null")
    if dtype.kind == "V" and len(plain):
        longest = pc.max(pc.binary_length(plain)).as_py() or 0
        if longest > dtype.itemsize:  # numpy would cut the value
            raise misfit(f"The values of {name} must have at most {dtype.itemsize} bytes, got {longest}")
    return decoder.coding.encode(data, null, nearest=True, name=column)


def as_type(values: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    """Return the values as another type that can hold them. Raise ``InvalidInputError`` if it cannot.

    Values of another kind are refused, also where Arrow has a conversion: a number is not a time, and a text
    is not a number.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if values.type == target:
        return values
    if not pa.types.is_null(values.type) and _kind(values.type) != _kind(target):
        raise misfit(f"The column {name} must be {target}, got {values.type}. Convert them")
    if pa.types.is_struct(values.type):  # a cast of Arrow takes null for a part of another name
        parts = dict(zip((each.name for each in values.type), values.flatten(), strict=True))
        if sorted(parts) != sorted(each.name for each in target):
            raise misfit(f"The column {name} must be {target}, got {values.type}. Rename its parts")
        converted = [as_type(parts[each.name], each.type, f"{name}.{each.name}") for each in target]
        return pa.StructArray.from_arrays(converted, fields=list(target), mask=values.is_null())
    try:
        if pa.types.is_timestamp(values.type) and values.type.tz is None and pa.types.is_timestamp(target):
            return values.cast(pa.timestamp("us")).cast(target)  # times without a zone are UTC
        # Floats are rounded to the available precision; integers are kept exactly or refused.
        converted = values.cast(target, safe=not pa.types.is_floating(target))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise misfit(f"The column {name} must be {target}, got {values.type}: {error}") from error
    if pa.types.is_date(target) and pa.types.is_timestamp(values.type):
        at_midnight = pc.equal(converted.cast(pa.timestamp("us")), values.cast(pa.timestamp("us")))
        if pc.all(at_midnight).as_py() is False:
            raise misfit(f"The column {name} must be {target}, got times that are not at midnight in UTC")
    if not pa.types.is_floating(target):
        return converted
    source, stored = to_numpy(pc.fill_null(values, 0)), to_numpy(pc.fill_null(converted, 0))
    if pa.types.is_integer(values.type):
        limit = 2 ** (np.finfo(stored.dtype).nmant + 1)
        large = np.flatnonzero((source > limit) | (source < -limit))
        lost = [at for at in large.tolist() if int(source[at]) != int(stored[at])]
        if lost:
            raise misfit(
                f"The column {name} must be exact in {target}, got {source[lost[0]]}, which is read as "
                f"{int(stored[lost[0]])}"
            )
    elif pa.types.is_floating(values.type):
        too_large = np.isinf(stored) & ~np.isinf(source)
        if too_large.any():
            raise misfit(f"The values of {name} must fit into {target}, got {source[too_large][0]}")
    return converted


_KINDS: Final = (
    pa.types.is_boolean,
    lambda each: pa.types.is_integer(each) or pa.types.is_floating(each) or pa.types.is_decimal(each),
    lambda each: pa.types.is_string(each) or pa.types.is_large_string(each) or pa.types.is_string_view(each),
    lambda each: pa.types.is_timestamp(each) or pa.types.is_date(each),
    pa.types.is_duration,
    pa.types.is_struct,
)


def _kind(column: pa.DataType) -> int:
    """Return which of ``_KINDS`` a type is; all other types are one kind more."""
    plain = column.value_type if pa.types.is_dictionary(column) else column
    return next((number for number, is_one in enumerate(_KINDS) if is_one(plain)), len(_KINDS))


def to_numpy(values: pa.Array) -> NDArray[Any]:
    """Return the values as numpy has them. Times keep their unit."""
    is_time = pa.types.is_timestamp(values.type)
    if not is_time and not pa.types.is_duration(values.type):
        data: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return data
    times: NDArray[Any] = values.view(pa.int64()).to_numpy(zero_copy_only=False)
    return times.view(f"{'M' if is_time else 'm'}8[{values.type.unit}]")


type Positions = Sequence[I64]
#: The distinct values of the columns that are dimensions.
type Distinct = Mapping[str, pa.Array]
#: The first cell and the end of a box along each dimension.
type Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RowAxis:
    """A dimension. ``values`` are its coordinates, None where rows give the number of the cell."""

    name: str
    size: int
    values: pa.Array | None

    def find_positions(self, column: pa.Array) -> I64:
        """Return the positions of values, -1 for unknown values. Raise ``InvalidInputError`` for nulls."""
        if column.null_count:
            raise misfit(f"The column {self.name} must have no nulls, got {column.null_count}")
        if self.values is None:
            at = np.asarray(as_type(column, pa.int64(), self.name).to_numpy(zero_copy_only=False))
            return np.where((at >= 0) & (at < self.size), at, -1)
        keys = normalize_zeros(as_type(column, self.values.type, self.name))
        index = pc.fill_null(pc.index_in(keys, value_set=self.values), -1)
        positions: I64 = index.to_numpy(zero_copy_only=False).astype(np.int64)
        return positions


@dataclass(frozen=True, slots=True)
class TableArray:
    """An array to write to. ``axes`` are its dimensions, numbered as those of the layout.

    ``missing``: the element of a cell without a row, which is read as null or NaN, or is the fill value.
    """

    name: str
    path: str
    axes: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    decoder: Decoder
    missing: Any


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The layout of rows. ``unit`` is the shape of a unit in cells, ``edges`` (k, ndim) are units."""

    group: str
    axes: tuple[RowAxis, ...]
    variables: tuple[TableArray, ...]
    unit: tuple[int, ...]
    edges: I64
    cleared: tuple[Box, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return tuple(axis.size for axis in self.axes)

    @property
    def units(self) -> tuple[int, ...]:
        """Number of units along each dimension."""
        return tuple(-(-size // step) for size, step in zip(self.shape, self.unit, strict=True))

    def find_edges(self, boxes: Sequence[Box]) -> I64:
        """Return the units (k, ndim) that the boxes contain in part."""
        parts = []
        for box in boxes:
            inner = whole_chunks(box, self.unit, self.shape)
            along = [
                np.arange(start // step, -(-stop // step))
                for (start, stop), step in zip(box, self.unit, strict=True)
            ]
            for axis, (low, high) in enumerate(inner):
                partial = along[axis][(along[axis] < low) | (along[axis] >= high)]
                grid = np.meshgrid(*along[:axis], partial, *along[axis + 1 :], indexing="ij")
                parts.append(np.stack([each.reshape(-1) for each in grid], axis=1))
        return np.unique(np.concatenate(parts), axis=0) if parts else np.zeros((0, len(self.axes)), np.int64)

    def require_positions(self, rows: pa.Table) -> Positions:
        """Return the positions of all rows along each dimension, or raise ``InvalidInputError``."""
        located = []
        for axis in self.axes:
            positions = axis.find_positions(rows[axis.name].combine_chunks())
            located.append(positions)
            if len(positions) and positions.min() < 0:
                value = rows[axis.name][int(np.argmin(positions))].as_py()
                if value is None or value != value:
                    raise misplaced(
                        f"Rows must have a coordinate of each dimension, got {axis.name} = {value!r}. Leave "
                        "out rows without coordinates"
                    )
                raise misplaced(f"Coordinates must exist, got {axis.name} = {value!r}. Mode upsert adds them")
        return located


def flat_index(positions: Positions, shape: Sequence[int]) -> I64:
    """Return one number for the positions of each row along the dimensions of a shape."""
    index = np.zeros_like(positions[0])
    for at, size in zip(positions, shape, strict=True):
        index = index * size + at
    return index


def layout_of(session: Session, group: str, names: Sequence[str]) -> RowLayout:
    """Return the layout for columns of these names: dimensions, and arrays on all of them."""
    require_distinct_names(names)
    arrays, dims = open_arrays(session, group, names)
    dims = dims or tuple(arrays)
    variables = {name: array for name, array in arrays.items() if name not in dims}
    if not variables:
        raise NodeNotFoundError(f"`{group}` must have an array for one of {', '.join(names)}, got none")
    for name in names:
        if name not in dims and (name not in variables or set(dims_of(variables[name])) != set(dims)):
            raise misfit(
                f"The columns must be dimensions ({', '.join(dims)}) or arrays on all dimensions, got {name}"
                f"{'' if name in variables else '. merge_schema (the option mergeSchema) adds an array'}"
            )
    missing = [dim for dim in dims if dim not in names]
    if missing:
        raise misfit(f"Rows must have a column for each dimension, got none for {', '.join(missing)}")
    first = next(iter(variables.values()))
    sizes = dict(zip(dims_of(first), first.shape, strict=True))
    axes = tuple(_axis(session, group, dim, sizes[dim]) for dim in dims)
    targets = tuple(
        TableArray(
            name,
            f"{group.rstrip('/')}/{name}",
            tuple(dims.index(dim) for dim in dims_of(array)),
            tuple(regular_grid(array)),
            np.dtype(array.dtype),
            decoder(array.path, array.dtype, array.attrs.asdict()),
            missing_element(array),
        )
        for name, array in variables.items()
    )
    steps = [[each.chunks[each.axes.index(axis)] for each in targets] for axis in range(len(dims))]
    unit = tuple(int(np.lcm.reduce(each)) for each in steps)
    return RowLayout(group, axes, targets, unit, np.zeros((0, len(dims)), np.int64))


def layout_if_any(
    session: Session, group: str, names: Sequence[str], dims: Sequence[str] | None
) -> RowLayout | None:
    """Return the layout of `layout_of`, or None if there are no arrays and ``dims`` can create them."""
    try:
        return layout_of(session, group, names)
    except NodeNotFoundError:
        if not dims:
            raise
        return None


def open_arrays(
    session: Session, group: str, names: Sequence[str]
) -> tuple[dict[str, zarr.Array[Any]], tuple[str, ...]]:
    """Return the arrays of these names, and the dimensions of the first one by name with the most of them.

    Columns have any order. A single coordinate is not a table: without other arrays there are no dimensions.
    """
    arrays = {name: array for name in names if (array := open_array(session, group, name)) is not None}
    candidates = (dims_of(arrays[name]) for name in sorted(arrays) if dims_of(arrays[name]) != (name,))
    return arrays, max(candidates, key=len, default=())


def open_array(session: Session, group: str, name: str) -> zarr.Array[Any] | None:
    """Return an array of a group; None if there is none."""
    path = f"{group.rstrip('/')}/{name}"
    node = session.workspace.node(path)
    if node is None or node.array is None:
        return None
    return array_at(session, path, "r" if session.read_only else "r+")


def _axis(session: Session, group: str, dim: str, size: int) -> RowAxis:
    array = open_array(session, group, dim)
    if array is None or dims_of(array) != (dim,):
        return RowAxis(dim, size, None)
    codec = decoder(array.path, array.dtype, array.attrs.asdict())
    values = normalize_zeros(to_arrow(codec.decode(np.asarray(array[...])), codec.type))
    if len(pc.unique(values)) < len(values):
        raise misfit(f"`{array.path}` must have each coordinate once, got some twice")
    return RowAxis(dim, size, values)


def normalize_zeros(values: pa.Array) -> pa.Array:
    """Return floating point numbers with 0 instead of -0, because Arrow compares their bits."""
    if not (pa.types.is_float32(values.type) or pa.types.is_float64(values.type)):
        return values
    return pc.add(values, pa.scalar(0, values.type))


def require_distinct_names(names: Sequence[str]) -> None:
    """Raise ``InvalidInputError`` for two columns of one name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise misfit(f"The columns must have different names, got several named {', '.join(twice)}")


@dataclass(frozen=True, slots=True)
class UnitGroups:
    """Which of the tasks (``groups``) writes which unit.

    For each dimension, ``counts`` is the number of units with rows, and ``ranks`` numbers these units.
    """

    layout: RowLayout
    ranks: tuple[I64, ...]
    counts: tuple[int, ...]
    groups: int

    @staticmethod
    def of(layout: RowLayout, touched: Sequence[I64], groups: int) -> UnitGroups:
        """Return a grouping of the units at ``touched``, positions along each dimension, and of the edges."""
        ranks = []
        for axis, (positions, step, count) in enumerate(zip(touched, layout.unit, layout.units, strict=True)):
            rank = np.full(count, -1, np.int64)
            units = np.union1d(positions // step, layout.edges[:, axis])
            rank[units] = np.arange(len(units))
            ranks.append(rank)
        counts = tuple(int(rank.max(initial=-1)) + 1 for rank in ranks)
        return UnitGroups(layout, tuple(ranks), counts, max(1, min(groups, math.prod(counts))))

    @property
    def total(self) -> int:
        """Number of units."""
        return math.prod(self.counts)

    def group(self, rows: pa.Table) -> NDArray[np.int32]:
        """Return the task of each row."""
        positions = self.layout.require_positions(rows)
        return self._groups_of([at // step for at, step in zip(positions, self.layout.unit, strict=True)])

    def edges(self, group: int) -> I64:
        """Return those edges (k, ndim) of the layout that a task writes."""
        every = self.layout.edges
        return np.asarray(every[self._groups_of(list(every.T)) == group])

    def _groups_of(self, units: Positions) -> NDArray[np.int32]:
        """Return the task of each unit, given by its position along each dimension."""
        ranks = [rank[at] for at, rank in zip(units, self.ranks, strict=True)]
        return (flat_index(ranks, self.counts) * self.groups // max(self.total, 1)).astype(np.int32)


if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types
else:
    pd = ModuleOnDemand("pandas")

#: A column with the flags of rows whose cells must not have values, as INSERT of SQL demands. It is no array.
ABSENT: Final = "__frazil_absent"

#: The rows of the task that runs in this thread.
CURRENT: ContextVar[pa.Table] = ContextVar("rows")


@contextmanager
def with_rows(rows: pa.Table) -> Iterator[None]:
    """Enter a context in which ``CURRENT`` has these rows."""
    token = CURRENT.set(rows)
    try:
        yield
    finally:
        CURRENT.reset(token)


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows of an Arrow table. ``total`` is the digest of these rows and of rows that tasks have written."""

    table: pa.Table
    total: int | None = None

    @staticmethod
    def of(table: pa.Table) -> ArrowRows:
        """Return the rows of a table. Arrow cannot take rows of string views: they become strings."""
        is_view = pa.types.is_string_view
        fields = [each.with_type(pa.string()) if is_view(each.type) else each for each in table.schema]
        return ArrowRows(table.cast(pa.schema(fields)))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.table.schema

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """Return the distinct values of some columns."""
        return {name: distinct_values([self.table[name]]) for name in dims}

    def nulls(self, names: Sequence[str]) -> set[str]:
        """Return which of these columns have nulls."""
        return {name for name in names if self.table[name].null_count}

    def digest(self) -> int:
        """Return the `rows_digest` of all rows."""
        return rows_digest(self.table) if self.total is None else self.total

    def run(
        self, grouping: UnitGroups, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Call the task for each group in this process, and yield its results."""
        groups = grouping.group(self.table)
        order = np.argsort(groups, kind="stable")
        bounds = np.searchsorted(groups[order], np.arange(grouping.groups + 1))
        for number, message in messages.items():
            with with_rows(self.table.take(pa.array(order[bounds[number] : bounds[number + 1]]))):
                yield task(shared, message)


def distinct_values(columns: Sequence[Any]) -> pa.Array:
    """Return the distinct values of columns of one type."""
    return pc.unique(normalize_zeros(columns[0] if len(columns) == 1 else pa.chunked_array(columns)))


def rows_digest(rows: pa.Table) -> int:
    """Return the sum of the hashes of all rows, modulo 2**64: it does not depend on their order."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    while any(pa.types.is_struct(each.type) for each in rows.schema):
        rows = rows.flatten()
    for column in map(pa.ChunkedArray.combine_chunks, rows.columns):
        kind = column.type
        if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
            column = column.view(pa.int64())
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
            column = column.cast(pa.binary() if is_bytes else pa.string())
        # All nulls have one hash.
        of_column = np.zeros(len(column), np.uint64)
        values = column.drop_null().to_numpy(zero_copy_only=False)
        of_column[column.is_valid().to_numpy(zero_copy_only=False)] = pd.util.hash_array(values)
        hashes = hashes * np.uint64(1_000_003) + of_column
    mixed: NDArray[np.uint64] = pd.util.hash_array(hashes)
    return int(mixed.sum(dtype=np.uint64))


#: The most columns that a message names.
_NAMED: Final = 8


def message_of(count: int, columns: Sequence[str], group: str, mode: str) -> str:
    """Return the commit message for rows, if the user gives none."""
    names = ", ".join([*columns[:_NAMED], *(["..."] if len(columns) > _NAMED else [])])
    return f"Write {counted(count, 'row')} to `/{group.strip('/')}` ({names}), mode {mode}"


def write_rows(session: Session, layout: RowLayout, rows: pa.Table, edges: I64 | None = None) -> Outcome:
    """Write the rows to the arrays of the layout, through a session or a fork.

    Cleared cells without a row get the missing element of their array. ``edges`` (k, ndim) are units that are
    written even if they have no row.
    """
    positions = layout.require_positions(rows)
    cells = flat_index(positions, layout.shape)
    order = np.argsort(cells, kind="stable")
    twice = np.flatnonzero(cells[order][1:] == cells[order][:-1])
    if len(twice):
        row = int(order[twice[0]])
        cell = _cell(rows, row, layout)
        raise misplaced(f"Each cell must have one row, got {len(twice)} more, the first at {cell}")
    units = [at // step for at, step in zip(positions, layout.unit, strict=True)]
    number = flat_index(units, layout.units)
    order = np.argsort(number, kind="stable")
    numbers, firsts = np.unique(number[order], return_index=True)
    members = dict(zip(numbers.tolist(), np.split(order, firsts[1:]) if len(numbers) else [], strict=True))
    targets = numbers if edges is None else np.union1d(numbers, flat_index(list(edges.T), layout.units))
    nobody = np.zeros(0, np.int64)
    absent = rows[ABSENT].to_numpy() if ABSENT in rows.column_names else np.zeros(len(rows), np.bool_)
    arrays = [array_at(session, each.path, "r+") for each in layout.variables]
    values = [encode(rows[each.name], each.decoder, each.dtype, each.name) for each in layout.variables]
    for unit in targets.tolist():
        mine = members.get(unit, nobody)
        corner = np.unravel_index(unit, layout.units) if layout.units else ()
        starts = [int(at) * step for at, step in zip(corner, layout.unit, strict=True)]
        region = [
            slice(start, min(start + step, size))
            for start, step, size in zip(starts, layout.unit, layout.shape, strict=True)
        ]
        local = [at[mine] - start for at, start in zip(positions, starts, strict=True)]
        parts = [  # of the cleared boxes, as positions in the region
            [
                slice(max(start - own.start, 0), min(stop, own.stop) - own.start)
                for (start, stop), own in zip(box, region, strict=True)
            ]
            for box in layout.cleared
        ]
        cleared = [part for part in parts if all(each.start < each.stop for each in part)]
        for variable, array, column in zip(layout.variables, arrays, values, strict=True):
            own = tuple(region[axis] for axis in variable.axes)
            boxes = [tuple(box[axis] for axis in variable.axes) for box in cleared]
            places = tuple(local[axis] for axis in variable.axes)
            fresh = absent[mine]
            block = _block(array, own, 0 if fresh.any() else len(mine), boxes, variable.missing)
            if fresh.any():
                _require_missing(block[places][fresh], variable, layout, rows.take(pa.array(mine[fresh])))
            if len(mine):
                block[places] = column[mine]
            array[own] = block
    return Outcome(rows=len(rows), chunks=len(targets) * len(arrays))


def _require_missing(existing: NDArray[Any], variable: TableArray, layout: RowLayout, rows: pa.Table) -> None:
    """Raise ``InvalidInputError`` (``invalid-chunk-index``) for a cell of a row that has a value already."""
    found = ~are_fill(existing.reshape(-1, 1), np.asarray(variable.missing, existing.dtype))
    if found.any():
        row = int(np.argmax(found))
        raise misplaced(
            f"INSERT must add rows to cells without values, got {_cell(rows, row, layout)}, where "
            f"{variable.name} has a value. MERGE INTO and INSERT OVERWRITE replace values"
        )


def _cell(rows: pa.Table, row: int, layout: RowLayout) -> str:
    """Return the labels of the cell of a row for an error."""
    return ", ".join(f"{axis.name} = {rows[axis.name][row].as_py()}" for axis in layout.axes)


def _block(
    array: zarr.Array[Any], region: tuple[slice, ...], rows: int, cleared: Sequence[Any], missing: Any
) -> NDArray[Any]:
    """Return the values of a region before the rows are written: empty, or the existing ones, cleared."""
    shape = tuple(each.stop - each.start for each in region)
    whole = tuple(slice(0, size) for size in shape)
    if rows == math.prod(shape):
        return np.empty(shape, array.dtype)
    if whole in cleared:
        return np.full(shape, missing, array.dtype)
    block = np.array(array[region])
    for box in cleared:
        block[box] = missing
    return block
