"""Before rows are written: arrays that are not there are created, dimensions grow, and modes are kept.

What the modes mean is in `axes`. The chunks of new arrays do not depend on how few rows the first batch has:
with a chunk of a coordinate for each batch, each batch would cost a request for each one before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr

from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.jobs.blocks import regular_grid
from frazil.repository.session.session import Session
from frazil.spark.tables.axes import GROWING, MODES, Growth, ascending, grown, require_behind, shown
from frazil.spark.tables.decoding import decoder
from frazil.spark.tables.encoding import NAN_AS_TEXT, UNITS, as_type, encode
from frazil.spark.tables.write_layout import Distinct, Layout, dims_of, layout_of, open_array

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
#: Elements in a chunk of a new coordinate, and cells along the first dimension, at least.
_LABELS: Final = 4096
#: A coordinate in more chunks than these, smaller than ``_LABELS``, gets larger ones when it grows.
_PIECES: Final = 16
#: Bytes of an array that are moved at once.
_MOVED: Final = 64 << 20


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
        _require_append_dim(append_dim, dims)
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
    fresh = _new(layout, distinct, mode, append_dim)
    if not fresh:
        return layout
    for name, values in fresh.items():
        _grow(session, layout, name, values)
    return layout_of(session, group, schema.names)


def _new(layout: Layout, distinct: Distinct, mode: str, append_dim: str | None) -> dict[str, pa.Array]:
    """Coordinates to add, by dimension."""
    along = append_dim or layout.axes[0].name
    _require_append_dim(append_dim, [axis.name for axis in layout.axes])
    out: dict[str, pa.Array] = {}
    for axis in layout.axes:
        values = distinct[axis.name]
        found = axis.find(values)
        fresh = values.filter(pa.array(found < 0))
        is_appended = mode == "append" and axis.name == along
        if is_appended and len(fresh) < len(values):
            there = shown(values.filter(pa.array(found >= 0))[0])
            raise InvalidInputError(
                f"mode append: expected rows that are new along {along}, found {along} = {there}, which is "
                "there: mode upsert replaces it",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        if len(fresh) and not is_appended and mode not in GROWING:
            raise InvalidInputError(
                f"mode {mode}: expected coordinates that are in the repository, found {axis.name} = "
                f"{shown(fresh[0])}: mode upsert adds it"
                + ("" if mode == "append" else f", mode append if it is behind the others along {axis.name}"),
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        if is_appended and axis.size:
            require_behind(axis, fresh)
        if len(fresh):
            out[axis.name] = fresh
    return out


def _require_append_dim(append_dim: str | None, dims: Sequence[str]) -> None:
    if append_dim is not None and append_dim not in dims:
        raise InvalidInputError(
            f"expected one of the dimensions {', '.join(dims)} to append along, found {append_dim!r}",
            ErrorKind.NOT_ALLOWED,
        )


def _grow(session: Session, layout: Layout, name: str, fresh: pa.Array) -> None:
    """Make a dimension longer, in all arrays of the group that have it; what has to move, moves."""
    axis = next(each for each in layout.axes if each.name == name)
    growth = None
    if axis.values is None:
        numbers = fresh.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if numbers.min() < 0:
            raise InvalidInputError(
                f"expected numbers of cells from 0 on, found {name} = {numbers.min()}",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        size = int(numbers.max()) + 1
    else:
        growth = grown(axis, fresh)
        size = len(growth.values)
    for each in session.workspace.nodes.children(layout.group):
        array = open_array(session, layout.group, each)
        if array is None or name not in dims_of(array):
            continue
        dims = dims_of(array)
        array.resize(tuple(size if dim == name else n for dim, n in zip(dims, array.shape, strict=True)))
        if growth is not None and each == name and dims == (name,):
            _write_labels(session, array, growth)
        elif growth is not None:
            for at in (at for at, dim in enumerate(dims) if dim == name):
                _move(array, at, growth)


def _write_labels(session: Session, array: zarr.Array[Any], growth: Growth) -> None:
    """The coordinates of an axis that has grown, from the first new one on."""
    how = decoder(array.path, array.dtype, array.attrs.asdict())
    name = array.path.rpartition("/")[2]
    start = growth.first_moved
    new = encode(growth.values.slice(start), how, np.dtype(array.dtype), name)
    (step,) = regular_grid(array)
    if step < _LABELS and len(growth.values) > _PIECES * step:
        new = np.concatenate([np.asarray(array[:start]), new])
        start = 0
        array = _recut(session, array)
    array[start:] = new


def _recut(session: Session, array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The array without its elements, in larger chunks; as it is where its chunks are made of others."""
    path = "/" + array.path.strip("/")
    node = session.workspace.nodes.require_array(path)
    document = json.loads(node.user_data)
    if any(codec.get("name") == "sharding_indexed" for codec in document["codecs"]):
        return array
    length = array.shape[0]
    array.resize((0,))
    document |= {"shape": [length]}
    document["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [_LABELS]}}
    session.workspace.nodes.set_node(path, json.dumps(document).encode())
    return zarr.open_array(session.store, path=path.strip("/"), mode="r+", zarr_format=3)


def _move(array: zarr.Array[Any], axis: int, growth: Growth) -> None:
    """Take the elements of an array, which has its new shape, to where their coordinates are now.

    From the end to the start, in pieces of whole chunks: nothing moves to a lower position, so no piece is
    overwritten before it was read. What has no element gets the fill value.
    """
    first = growth.first_moved
    old = growth.old
    if first == len(old):
        return
    grid = regular_grid(array)
    one = max(1, array.nbytes // max(array.shape[axis], 1))
    step = grid[axis] * max(1, _MOVED // (one * grid[axis]))
    for start in reversed(range(first - first % step, array.shape[axis], step)):
        stop = min(start + step, array.shape[axis])
        low, high = np.searchsorted(old, [start, stop])
        shape = tuple(stop - start if at == axis else size for at, size in enumerate(array.shape))
        block = np.full(shape, array.fill_value, array.dtype)
        if high > low:
            source = _along(array.ndim, axis, slice(int(low), int(high)))
            block[_along(array.ndim, axis, old[low:high] - start)] = array[source]
        array[_along(array.ndim, axis, slice(start, stop))] = block


def _along(ndim: int, axis: int, selection: Any) -> tuple[Any, ...]:
    return tuple(selection if at == axis else slice(None) for at in range(ndim))


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
    strange = [dim for dim in chunks if dim not in dims]
    if strange:
        raise InvalidInputError(
            f"expected chunks of the dimensions {', '.join(dims)}, found some of {', '.join(strange)}",
            ErrorKind.NOT_ALLOWED,
        )
    place = zarr.open_group(session.store, path=group.strip("/"), mode="a", zarr_format=3)
    sizes, kept = [], []
    for dim in dims:
        there = open_array(session, group, dim)
        if there is not None and dims_of(there) == (dim,):
            sizes.append(there.shape[0])
            kept.append(dim)
            continue
        values = ascending(distinct[dim])
        if pa.types.is_float16(values.type):  # no index of pandas has them
            values = values.cast(pa.float32())
        sizes.append(len(values))
        step = max(chunks.get(dim, 0), _LABELS)
        _create(place, dim, values.type, (len(values),), [dim], (step,))
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
    """Whole rows of the last dimensions, as many as a chunk has room for; along the first dimension also
    room for those that may come.
    """
    left, out = _CHUNK, []
    for size, dim in zip(reversed(shape), reversed(dims), strict=True):
        wanted = max(size, _LABELS) if dim == dims[0] else max(size, 1)
        out.append(chunks.get(dim, min(wanted, left)))
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
