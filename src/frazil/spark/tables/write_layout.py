"""The layout of rows in arrays: dimensions with their coordinates, and the arrays of the other columns.

    row ──coordinates──> position along each dimension ──> unit of writing ──> task

A unit is the smallest box of whole chunks of all the arrays. A task that has all rows of a unit writes
it, and no other task writes the same chunks.

Before the rows are written, some boxes of cells are *cleared*: the cells of new coordinates, and in mode
overwrite-region the box around the rows. The driver clears whole chunks, which costs one chunk for each
array. The tasks clear the *edges*: units that a cleared box contains in part.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import zarr
from numpy.typing import NDArray

from frazil.arrays.box_writing import missing_element, whole_chunks
from frazil.arrays.zarr_arrays import array_at
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.jobs.blocks import regular_grid
from frazil.repository.session.session import Session
from frazil.spark.tables.grid import Decoder, decoder, to_arrow

#: Times of new arrays.
UNITS: Final = "microseconds since 1970-01-01"
#: The text that xarray writes for a fill value of NaN.
NAN_AS_TEXT: Final = base64.b64encode(struct.pack("<d", np.nan)).decode()


def encode(values: pa.Array, decoder: Decoder, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Return the elements of ``dtype`` that ``decoder`` reads as these values, shape (n,).

    Floats are rounded to the precision of the array. Raises ``InvalidInputError``
    (``invalid-array-metadata``) for other values that the array cannot hold, for values whose element is the
    fill value, and for nulls if the array has no element for them.
    """
    plain = as_type(values, decoder.type, name)
    null = plain.is_null().to_numpy(zero_copy_only=False)
    if plain.null_count and not _holds_objects(plain.type):
        plain = pc.fill_null(plain, _zero(plain.type))
    data = _numbers(plain)
    column = f"The column {name}"
    if dtype.kind in "iu" and data.dtype.kind == "f" and (count := np.count_nonzero(np.isnan(data) & ~null)):
        raise InvalidInputError(
            f"{column} must have no NaN, because its array has integers, got {count}. Write null for a "
            "missing value",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    if dtype.kind == "V":
        _require_room(plain, dtype, name)
    return decoder.coding.encode(data, null, nearest=True, name=column)


def as_type(values: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Return the values as another type that can hold them. Raise ``InvalidInputError`` if it cannot.

    Values of another kind are refused, also where Arrow has a conversion: a number is not a time, and a text
    is not a number.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if values.type == wanted:
        return values
    if not pa.types.is_null(values.type) and _kind(values.type) != _kind(wanted):
        raise InvalidInputError(
            f"The column {name} must have values of {wanted}, got {values.type}. Convert the values",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    try:
        if pa.types.is_timestamp(values.type) and values.type.tz is None and pa.types.is_timestamp(wanted):
            return values.cast(pa.timestamp("us")).cast(wanted)  # times without a zone are UTC
        # Floats are rounded to the available precision; integers are kept exactly or refused.
        converted = values.cast(wanted, safe=not pa.types.is_floating(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"The column {name} must have values of {wanted}, got {values.type}: {error}",
            ErrorKind.INVALID_ARRAY_METADATA,
        ) from error
    if pa.types.is_floating(wanted):
        given, stored = _numbers(pc.fill_null(values, 0)), _numbers(pc.fill_null(converted, 0))
        if pa.types.is_integer(values.type):
            _exact(given, stored, str(wanted), name)
        elif pa.types.is_floating(values.type):
            _finite(given, stored, str(wanted), name)
    return converted


_KINDS: Final = (
    pa.types.is_boolean,
    lambda each: pa.types.is_integer(each) or pa.types.is_floating(each) or pa.types.is_decimal(each),
    lambda each: pa.types.is_string(each) or pa.types.is_large_string(each) or pa.types.is_string_view(each),
    lambda each: pa.types.is_timestamp(each) or pa.types.is_date(each),
    pa.types.is_duration,
)


def _kind(column: pa.DataType) -> int:
    """Return which of ``_KINDS`` a type is; all other types are one kind more."""
    plain = column.value_type if pa.types.is_dictionary(column) else column
    return next((number for number, is_one in enumerate(_KINDS) if is_one(plain)), len(_KINDS))


def _finite(values: NDArray[Any], converted: NDArray[Any], wanted: str, name: str) -> None:
    """Raise ``InvalidInputError`` for numbers that do not fit into a smaller type."""
    lost = np.isinf(converted) & ~np.isinf(values)
    if lost.any():
        raise InvalidInputError(
            f"The values of the column {name} must fit into {wanted}, got {values[lost][0]}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _exact(values: NDArray[Any], converted: NDArray[Any], wanted: str, name: str) -> None:
    """Raise ``InvalidInputError`` for integers that become other numbers."""
    limit = 2 ** (np.finfo(converted.dtype).nmant + 1)
    large = np.flatnonzero((values > limit) | (values < -limit))
    lost = [at for at in large.tolist() if int(values[at]) != int(converted[at])]
    if lost:
        raise InvalidInputError(
            f"The column {name} must have integers that are exact in {wanted}, got {values[lost[0]]}, which "
            f"is read as {int(converted[lost[0]])}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _holds_objects(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_binary(column))


def _zero(column: pa.DataType) -> pa.Scalar:
    return pa.scalar(0, pa.int64()).cast(column) if not pa.types.is_boolean(column) else pa.scalar(False)


def _numbers(values: pa.Array) -> NDArray[Any]:
    kind = {pa.types.is_timestamp: "M", pa.types.is_duration: "m"}
    for is_kind, letter in kind.items():
        if is_kind(values.type):
            times: NDArray[Any] = values.view(pa.int64()).to_numpy(zero_copy_only=False)
            return times.view(f"{letter}8[{values.type.unit}]")
    data: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return data


def _require_room(values: pa.Array, dtype: np.dtype[Any], name: str) -> None:
    """Raise ``InvalidInputError`` for bytes that are longer than the elements: numpy would cut them."""
    longest = pc.max(pc.binary_length(values)).as_py() if len(values) else None
    if longest is not None and longest > dtype.itemsize:
        raise InvalidInputError(
            f"The values of the column {name} must have at most {dtype.itemsize} bytes, got one of {longest}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


type Positions = list[NDArray[np.int64]]
#: The distinct values of the columns that are dimensions.
type Distinct = Mapping[str, pa.Array]
#: The first cell and the end of a box along each dimension.
type Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension. ``values`` are its coordinates, None where rows give the number of the cell."""

    name: str
    size: int
    values: pa.Array | None
    path: str | None = None

    def find_positions(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the positions of values, -1 for unknown values. Raise ``InvalidInputError`` for nulls."""
        if column.null_count:
            raise InvalidInputError(
                f"The column {self.name} must have a coordinate in every row, got {column.null_count} nulls",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        if self.values is None:
            at = np.asarray(as_type(column, pa.int64(), self.name).to_numpy(zero_copy_only=False))
            return np.where((at >= 0) & (at < self.size), at, -1)
        wanted = normalize_zeros(as_type(column, self.values.type, self.name))
        index = pc.fill_null(pc.index_in(wanted, value_set=self.values), -1)
        positions: NDArray[np.int64] = index.to_numpy(zero_copy_only=False).astype(np.int64)
        return positions


@dataclass(frozen=True, slots=True)
class Variable:
    """An array to write to.

    ``axes`` are its dimensions, numbered as those of the layout. ``missing`` is the element of a cell without
    a row: one that is read as null or NaN, else the fill value of the array.
    """

    name: str
    path: str
    axes: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    decoder: Decoder
    missing: Any


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of rows: see the module.

    ``unit`` is the shape of a unit in cells. ``edges`` are the units (k, ndim) that tasks write even if they
    have no row.
    """

    group: str
    axes: tuple[Axis, ...]
    variables: tuple[Variable, ...]
    unit: tuple[int, ...]
    edges: NDArray[np.int64]
    cleared: tuple[Box, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return tuple(axis.size for axis in self.axes)

    @property
    def units(self) -> tuple[int, ...]:
        """Number of units along each dimension."""
        return tuple(-(-size // step) for size, step in zip(self.shape, self.unit, strict=True))

    def find_edges(self, boxes: Sequence[Box]) -> NDArray[np.int64]:
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

    def find_positions(self, rows: pa.Table) -> Positions:
        """Return the positions of all rows along each dimension, -1 for an unknown coordinate."""
        return [axis.find_positions(_whole(rows[axis.name])) for axis in self.axes]

    def require_positions(self, rows: pa.Table) -> Positions:
        """Return the positions of all rows along each dimension.

        Raises ``InvalidInputError`` for an unknown coordinate.
        """
        located = self.find_positions(rows)
        for axis, positions in zip(self.axes, located, strict=True):
            if len(positions) and positions.min() < 0:
                value = rows[axis.name][int(np.argmin(positions))].as_py()
                raise InvalidInputError(
                    f"The coordinates must exist in the repository, got {axis.name} = {value!r}. Write "
                    "with mode upsert or append to add new coordinates",
                    ErrorKind.INVALID_CHUNK_INDEX,
                )
        return located


def layout_of(session: Session, group: str, names: Sequence[str]) -> Layout:
    """Return the layout for columns of these names: dimensions, and arrays on all of them.

    Raises ``NodeNotFoundError`` if no column is an array, ``InvalidInputError`` (``invalid-array-metadata``)
    for columns that are neither an array nor a dimension, for arrays on different dimensions, and for
    coordinates that occur twice.
    """
    require_distinct_names(names)
    arrays = {name: array for name in names if (array := open_array(session, group, name)) is not None}
    # The dimensions of the first array by name: columns have any order. A coordinate alone is not a table.
    candidates = (dims_of(arrays[name]) for name in sorted(arrays) if dims_of(arrays[name]) != (name,))
    dims = max(candidates, key=len, default=tuple(arrays))
    variables = {name: array for name, array in arrays.items() if name not in dims}
    if not variables:
        raise NodeNotFoundError(
            f"The group `{group}` must have an array for one of the columns {', '.join(names)}, got none"
        )
    for name in names:
        if name not in dims and (name not in variables or set(dims_of(variables[name])) != set(dims)):
            raise InvalidInputError(
                f"The columns must be dimensions ({', '.join(dims)}) or arrays on all dimensions, got {name}"
                f"{'' if name in variables else '. merge_schema (the option mergeSchema) adds an array'}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
    missing = [dim for dim in dims if dim not in names]
    if missing:
        raise InvalidInputError(
            f"The rows must have a column for each dimension, got none for {', '.join(missing)}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    first = next(iter(variables.values()))
    sizes = dict(zip(dims_of(first), first.shape, strict=True))
    axes = tuple(_axis(session, group, dim, sizes[dim]) for dim in dims)
    targets = tuple(_variable(group, name, array, dims) for name, array in variables.items())
    steps = [[each.chunks[each.axes.index(axis)] for each in targets] for axis in range(len(dims))]
    unit = tuple(int(np.lcm.reduce(each)) for each in steps)
    return Layout(group, axes, targets, unit, np.zeros((0, len(dims)), np.int64))


def open_array(session: Session, group: str, name: str) -> zarr.Array[Any] | None:
    """Return an array of a group; None if there is none."""
    path = f"{group.rstrip('/')}/{name}"
    node = session.workspace.node(path)
    if node is None or node.array is None:
        return None
    mode = "r" if session.read_only else "r+"
    return array_at(session, path, mode)


def dims_of(array: zarr.Array[Any]) -> tuple[str, ...]:
    """Return the names of the dimensions of an array."""
    names = getattr(array.metadata, "dimension_names", None) or (None,) * array.ndim
    return tuple(each or f"dim_{axis}" for axis, each in enumerate(names))


def _axis(session: Session, group: str, dim: str, size: int) -> Axis:
    array = open_array(session, group, dim)
    if array is None or dims_of(array) != (dim,):
        return Axis(dim, size, None)
    codec = decoder(array.path, array.dtype, array.attrs.asdict())
    values = normalize_zeros(to_arrow(codec.decode(np.asarray(array[...])), codec.type))
    if len(pc.unique(values)) < len(values):
        raise InvalidInputError(
            f"`{array.path}` must have each coordinate once, got some twice, which rows cannot distinguish",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return Axis(dim, size, values, "/" + array.path.strip("/"))


def _variable(group: str, name: str, array: zarr.Array[Any], dims: Sequence[str]) -> Variable:
    chunks = regular_grid(array)
    return Variable(
        name,
        f"{group.rstrip('/')}/{name}",
        tuple(dims.index(dim) for dim in dims_of(array)),
        tuple(chunks),
        np.dtype(array.dtype),
        decoder(array.path, array.dtype, array.attrs.asdict()),
        missing_element(array),
    )


def normalize_zeros(values: pa.Array) -> pa.Array:
    """Return floating point numbers with 0 instead of -0, because Arrow compares their bits."""
    if not (pa.types.is_float32(values.type) or pa.types.is_float64(values.type)):
        return values
    return pc.add(values, pa.scalar(0, values.type))


def require_distinct_names(names: Sequence[str]) -> None:
    """Raise ``InvalidInputError`` for two columns of one name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"The columns must have different names, got several named {', '.join(twice)}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
