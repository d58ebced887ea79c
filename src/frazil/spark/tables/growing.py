"""Before rows are written: arrays that are not there are created, dimensions grow, and modes are kept.

append             all rows are new along one dimension, whose coordinates go behind those that are there
upsert             rows replace cells or are new, along any dimension
overwrite-region   the box of all coordinates that the rows have: what no row fills is cleared
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import zarr

from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.repository.session import Session
from frazil.spark.tables.decoding import decoder
from frazil.spark.tables.encoding import NAN_AS_TEXT, UNITS, as_type, encode
from frazil.spark.tables.layout import Distinct, Layout, dims_of, layout_of, open_array

MODES: Final = ("append", "overwrite-region", "upsert")

_DTYPES: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): "bool",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.string(): str,
    pa.large_string(): str,
}
#: The integer that stands for no time: that of NaT.
_NO_TIME: Final = -(1 << 63)
#: Elements in a chunk of a new array, unless told otherwise.
_CHUNK: Final = 1 << 20


def prepare(
    session: Session,
    group: str,
    schema: pa.Schema,
    distinct: Distinct,
    mode: str,
    *,
    dims: Sequence[str] | None = None,
    append_dim: str | None = None,
    chunks: Mapping[str, int] | None = None,
) -> Layout:
    """Make room for rows with these columns and coordinates; the layout to write them by.

    ``distinct`` has the coordinates of all rows by dimension. Raises ``InvalidInputError``
    (``invalid-chunk-index``) where a mode does not allow what the rows bring, and what ``layout_of`` raises.
    """
    if mode not in MODES:
        raise InvalidInputError(
            f"expected one of the modes {', '.join(MODES)}, found {mode!r}", ErrorKind.NOT_ALLOWED
        )
    try:
        layout = layout_of(session, group, schema.names)
    except NodeNotFoundError:
        if not dims:
            raise
        kept = create(session, group, schema, distinct, dims, chunks or {})
        layout = layout_of(session, group, schema.names)
        if not kept:
            return layout
    if dims and tuple(dims) != tuple(axis.name for axis in layout.axes):
        raise InvalidInputError(
            f"expected the dimensions {', '.join(axis.name for axis in layout.axes)} of the arrays that are "
            f"there, found {', '.join(dims)}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    grown = _new(layout, distinct, mode, append_dim)
    if not grown:
        return layout
    for name, values in grown.items():
        _grow(session, layout, name, values)
    return layout_of(session, group, schema.names)


def _new(layout: Layout, distinct: Distinct, mode: str, append_dim: str | None) -> dict[str, pa.Array]:
    """Coordinates to add, by dimension."""
    along = append_dim or layout.axes[0].name
    if along not in {axis.name for axis in layout.axes}:
        raise InvalidInputError(
            f"expected one of the dimensions {', '.join(axis.name for axis in layout.axes)} to append "
            f"along, found {along!r}",
            ErrorKind.NOT_ALLOWED,
        )
    out: dict[str, pa.Array] = {}
    for axis in layout.axes:
        values = distinct[axis.name]
        found = axis.find(values)
        fresh = values.filter(pa.array(found < 0))
        if mode == "append" and axis.name == along and len(fresh) < len(values):
            there = values.filter(pa.array(found >= 0))[0].as_py()
            raise InvalidInputError(
                f"expected rows that are new along {along}, found {along} = {there!r}, which is there: "
                "write with mode upsert to replace it",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        may_grow = mode == "upsert" or (mode == "append" and axis.name == along)
        if len(fresh) and not may_grow:
            raise InvalidInputError(
                f"expected coordinates that are in the repository, found {axis.name} = "
                f"{fresh[0].as_py()!r}: write with mode upsert, or append along this dimension, to add them",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        if len(fresh):
            out[axis.name] = _ascending(fresh)
    return out


def _ascending(values: pa.Array) -> pa.Array:
    half = pa.types.is_float16(values.type)  # Arrow cannot order them
    return values.take(pc.sort_indices(values.cast(pa.float32()) if half else values))


def _grow(session: Session, layout: Layout, name: str, values: pa.Array) -> None:
    """Make a dimension longer, in all arrays of the group that have it."""
    axis = next(each for each in layout.axes if each.name == name)
    if axis.values is None:
        numbers = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if numbers.min() < 0:
            raise InvalidInputError(
                f"expected numbers of cells from 0 on, found {name} = {numbers.min()}",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        size = int(numbers.max()) + 1
    else:
        size = axis.size + len(values)
    for each in session.workspace.children(layout.group):
        array = open_array(session, layout.group, each)
        if array is not None and name in dims_of(array):
            shape = [size if dim == name else n for dim, n in zip(dims_of(array), array.shape, strict=True)]
            array.resize(tuple(shape))
    coordinate = open_array(session, layout.group, name)
    if axis.values is not None and coordinate is not None:
        how = decoder(coordinate.path, coordinate.dtype, coordinate.attrs.asdict())
        coordinate[axis.size :] = encode(values, how, np.dtype(coordinate.dtype), name)


def create(
    session: Session,
    group: str,
    schema: pa.Schema,
    distinct: Distinct,
    dims: Sequence[str],
    chunks: Mapping[str, int],
) -> list[str]:
    """New arrays for columns of these types, on the coordinates of the rows, in ascending order.

    A dimension whose coordinates are there already keeps them: the names of these are returned. Raises
    ``InvalidInputError`` (``invalid-array-metadata``) for a type that no array has.
    """
    missing = [dim for dim in dims if dim not in schema.names]
    variables = [name for name in schema.names if name not in dims]
    if missing or not variables:
        raise InvalidInputError(
            f"expected columns for the dimensions {', '.join(dims)} and one more at least, found "
            f"{', '.join(schema.names)}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    place = zarr.open_group(session.store, path=group.strip("/"), mode="a", zarr_format=3)
    sizes, kept = [], []
    for dim in dims:
        there = open_array(session, group, dim)
        if there is not None and dims_of(there) == (dim,):
            sizes.append(there.shape[0])
            kept.append(dim)
            continue
        values = _ascending(distinct[dim])
        if pa.types.is_float16(values.type):  # no index of pandas has them
            values = values.cast(pa.float32())
        sizes.append(len(values))
        _create(place, dim, values.type, (len(values),), [dim], (max(len(values), 1),))
        array = open_array(session, group, dim)
        assert array is not None
        how = decoder(array.path, array.dtype, array.attrs.asdict())
        array[...] = encode(as_type(values, how.type, dim), how, np.dtype(array.dtype), dim)
    shape = tuple(sizes)
    steps = _steps(shape, dims, chunks)
    for name in variables:
        _create(place, name, schema.field(name).type, shape, dims, steps)
    return kept


def _steps(shape: tuple[int, ...], dims: Sequence[str], chunks: Mapping[str, int]) -> tuple[int, ...]:
    """Whole rows of the last dimensions, as many as a chunk has room for."""
    left, out = _CHUNK, []
    for size, dim in zip(reversed(shape), reversed(dims), strict=True):
        step = chunks.get(dim, max(1, min(size, left)))
        out.append(max(1, min(step, max(size, 1)) if dim not in chunks else step))
        left = max(1, left // out[-1])
    return tuple(reversed(out))


def _create(
    group: zarr.Group,
    name: str,
    column: pa.DataType,
    shape: tuple[int, ...],
    dims: Sequence[str],
    chunks: tuple[int, ...],
) -> None:
    attributes: dict[str, Any] = {}
    if pa.types.is_timestamp(column) or pa.types.is_date(column):
        dtype, attributes = "int64", {"units": UNITS, "calendar": "proleptic_gregorian"}
    elif pa.types.is_duration(column):
        dtype, attributes = "int64", {"units": "microseconds", "dtype": "timedelta64[us]"}
    elif column in _DTYPES:
        dtype = _DTYPES[column]
    else:
        raise InvalidInputError(
            f"expected numbers, booleans, text, timestamps or durations in the column {name}, found {column}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    fill: Any = None
    if name not in dims and pa.types.is_floating(column):
        fill, attributes["_FillValue"] = np.nan, NAN_AS_TEXT
    if name not in dims and "units" in attributes:
        fill = attributes["_FillValue"] = _NO_TIME
    group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill_value=fill,
        dimension_names=list(dims),
        attributes=attributes,
    )
