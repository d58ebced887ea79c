"""From the values of a column to the elements of an array: ``decoding`` the other way round."""

from __future__ import annotations

import base64
import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray
from xarray.coding.times import encode_cf_datetime

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.tables.decoding import Decoder

#: Times of new arrays.
UNITS: Final = "microseconds since 1970-01-01"
#: What xarray writes for a fill value of NaN.
NAN_AS_TEXT: Final = base64.b64encode(struct.pack("<d", np.nan)).decode()


def encode(values: pa.Array, decoder: Decoder, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Elements of ``dtype`` that ``decoder`` makes these values of, shape (n,).

    Raises ``InvalidInputError`` (``invalid-array-metadata``) for values that the array cannot hold, and for
    nulls where it has no element for them.
    """
    plain = as_type(values, decoder.type, name)
    null = plain.is_null().to_numpy(zero_copy_only=False) if plain.null_count else None
    if pa.types.is_string(decoder.type) or pa.types.is_binary(decoder.type):
        return _texts(plain, decoder, dtype, name)
    if null is not None:
        plain = pc.fill_null(plain, _zero(decoder.type))
    data = _numbers(plain)
    if decoder.units is not None:
        times = data.view("datetime64[us]")
        data = np.asarray(encode_cf_datetime(times, decoder.units, decoder.calendar)[0])
    elif dtype.kind in "Mm":
        data = data.view(f"{dtype.kind}8[us]").astype(dtype)
    if decoder.floating is not None:
        data = data.astype(np.float64)
        data = (data - (decoder.offset or 0.0)) / (1.0 if decoder.scale is None else decoder.scale)
    stored = dtype if decoder.unsigned is None else np.dtype(decoder.unsigned)
    elements = _narrowed(data, stored, null, name)
    elements = elements if stored == dtype else elements.view(dtype)
    if null is not None:
        elements = elements.copy()
        elements[null] = _null(decoder, dtype, name)
    return elements


def as_type(values: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """The values as another type that can hold them; ``InvalidInputError`` if it cannot."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if values.type == wanted:
        return values
    try:
        if pa.types.is_timestamp(values.type) and values.type.tz is None and pa.types.is_timestamp(wanted):
            return values.cast(pa.timestamp("us")).cast(wanted)  # it is UTC
        # Numbers with a fraction are rounded to the precision that there is; whole ones are kept or refused.
        return values.cast(wanted, safe=not pa.types.is_floating(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"expected values of {wanted} in the column {name}, found {values.type}: {error}",
            ErrorKind.INVALID_ARRAY_METADATA,
        ) from error


def _zero(column: pa.DataType) -> pa.Scalar:
    return pa.scalar(0, pa.int64()).cast(column) if not pa.types.is_boolean(column) else pa.scalar(False)


def _numbers(values: pa.Array) -> NDArray[Any]:
    if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type):
        values = values.view(pa.int64())
    data: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return data


def _narrowed(
    data: NDArray[Any], dtype: np.dtype[Any], null: NDArray[np.bool_] | None, name: str
) -> NDArray[Any]:
    """As elements of an array's type."""
    if dtype.kind not in "iu" or data.dtype == dtype or data.dtype.kind == "b":
        return data.astype(dtype, copy=False)
    if data.dtype.kind == "f":
        data = np.rint(data)
    given = data if null is None else data[~null]
    limits = np.iinfo(dtype)
    # NaN is in no range.
    if given.size and not (given.min() >= limits.min and given.max() <= limits.max):
        raise InvalidInputError(
            f"expected values that {dtype} can hold in the column {name}, found {given.min()} to "
            f"{given.max()}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    if null is not None:
        data = np.where(null, data.dtype.type(0), data)
    return data.astype(dtype)


def _null(decoder: Decoder, dtype: np.dtype[Any], name: str) -> Any:
    """The element for null."""
    if decoder.fills:
        return decoder.fills[0]
    if dtype.kind == "f":
        return np.nan
    if dtype.kind in "Mm":
        return np.array("NaT", dtype)
    raise InvalidInputError(
        f"expected no nulls in the column {name}: its array has no _FillValue for them",
        ErrorKind.INVALID_ARRAY_METADATA,
    )


def _texts(values: pa.Array, decoder: Decoder, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    if decoder.units is not None:
        raise InvalidInputError(
            f"expected times of a usual calendar in the column {name}, found those of {decoder.calendar!r}: "
            "they cannot be written as text",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    if values.null_count:
        values = pc.fill_null(values, _null(decoder, dtype, name))
    data: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return data.astype(dtype) if dtype.kind in "USTV" else data
