"""New arrays for the columns of rows.

Their chunks do not depend on the number of rows of the first batch: with one chunk of a coordinate for each
batch, every batch would read all chunks of the batches before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.session.session import Session
from frazil.spark.tables.axes import ascending
from frazil.spark.tables.decoding import decoder
from frazil.spark.tables.encoding import NAN_AS_TEXT, UNITS, as_type, encode
from frazil.spark.tables.write_layout import Distinct, dims_of, open_array

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
#: The integer for a missing time: that of NaT.
_NO_TIME: Final = -(1 << 63)
#: Elements in a chunk of a new array.
_CHUNK: Final = 1 << 20
#: The least number of elements in a chunk of a new coordinate, and of cells along the first dimension.
LABELS: Final = 4096


def create_arrays(
    session: Session,
    group: str,
    schema: pa.Schema,
    distinct: Distinct,
    dims: Sequence[str],
    chunks: Mapping[str, int],
) -> list[str]:
    """Create arrays for columns of these types, on the coordinates of the rows in ascending order.

    A dimension whose coordinate exists keeps it. Returns the names of these dimensions. Raises
    ``InvalidInputError`` (``invalid-array-metadata``) for a type that no array has.
    """
    missing = [dim for dim in dims if dim not in schema.names]
    variables = [name for name in schema.names if name not in dims]
    if missing or not variables:
        raise InvalidInputError(
            f"The rows must have columns for the dimensions {', '.join(dims)} and at least one more, got "
            f"{', '.join(schema.names)}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    unknown = [dim for dim in chunks if dim not in dims]
    if unknown:
        raise InvalidInputError(
            f"chunks must be for the dimensions {', '.join(dims)}, got {', '.join(unknown)}",
            ErrorKind.INVALID_ARGUMENT,
        )
    node = zarr.open_group(session.store, path=group.strip("/"), mode="a", zarr_format=3)
    sizes, existing = [], []
    for dim in dims:
        coordinate = open_array(session, group, dim)
        if coordinate is not None and dims_of(coordinate) == (dim,):
            sizes.append(coordinate.shape[0])
            existing.append(dim)
            continue
        values = ascending(distinct[dim])
        if pa.types.is_float16(values.type):  # pandas has no index of float16
            values = values.cast(pa.float32())
        sizes.append(len(values))
        step = max(chunks.get(dim, 0), LABELS)
        create_array(node, dim, values.type, (len(values),), [dim], (step,))
        array = open_array(session, group, dim)
        assert array is not None
        codec = decoder(array.path, array.dtype, array.attrs.asdict())
        array[...] = encode(as_type(values, codec.type, dim), codec, np.dtype(array.dtype), dim)
    shape = tuple(sizes)
    steps = _steps(shape, dims, chunks)
    for name in variables:
        create_array(node, name, schema.field(name).type, shape, dims, steps)
    return existing


def _steps(shape: tuple[int, ...], dims: Sequence[str], chunks: Mapping[str, int]) -> tuple[int, ...]:
    """Return chunks of whole rows along the last dimensions, at most ``_CHUNK`` elements.

    Along the first dimension a chunk also has room for cells of later batches.
    """
    left, out = _CHUNK, []
    for size, dim in zip(reversed(shape), reversed(dims), strict=True):
        wanted = max(size, LABELS) if dim == dims[0] else max(size, 1)
        out.append(chunks.get(dim, min(wanted, left)))
        left = max(1, left // out[-1])
    return tuple(reversed(out))


def create_array(
    group: zarr.Group,
    name: str,
    column: pa.DataType,
    shape: tuple[int, ...],
    dims: Sequence[str],
    chunks: tuple[int, ...],
) -> None:
    """Create an array for a column. Raise ``InvalidInputError`` for a type that no array has."""
    attributes: dict[str, Any] = {}
    if pa.types.is_timestamp(column) or pa.types.is_date(column):
        dtype, attributes = "int64", {"units": UNITS, "calendar": "proleptic_gregorian"}
    elif pa.types.is_duration(column):
        dtype, attributes = "int64", {"units": "microseconds", "dtype": "timedelta64[us]"}
    elif column in _DTYPES:
        dtype = _DTYPES[column]
    else:
        raise InvalidInputError(
            f"The column {name} must have numbers, booleans, text, timestamps or durations, got {column}",
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
