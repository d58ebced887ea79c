"""From the values of a column to the elements of an array: ``decoding`` the other way round."""

from __future__ import annotations

import base64
import struct
import warnings
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark import tables
from frazil.spark.tables.decoding import Decoder, decoder

#: Times of new arrays.
UNITS: Final = "microseconds since 1970-01-01"
#: The text that xarray writes for a fill value of NaN.
NAN_AS_TEXT: Final = base64.b64encode(struct.pack("<d", np.nan)).decode()


def encode(values: pa.Array, decoder: Decoder, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Return the elements of ``dtype`` that ``decoder`` reads as these values, shape (n,).

    Raises ``InvalidInputError`` (``invalid-array-metadata``) for values that the array cannot hold, and for
    nulls if it has no element for them.
    """
    plain = as_type(values, decoder.type, name)
    null = plain.is_null().to_numpy(zero_copy_only=False) if plain.null_count else None
    if pa.types.is_string(decoder.type) or pa.types.is_binary(decoder.type):
        return _texts(plain, decoder, dtype, name)
    if null is not None:
        plain = pc.fill_null(plain, _zero(decoder.type))
    data = _numbers(plain)
    if decoder.units is not None:
        data = _times(data, decoder)
        _whole(data, dtype.kind in "iu" and decoder.floating is None, null, f"{decoder.units!r}", name)
    elif dtype.kind in "Mm":
        times = data.view(f"{dtype.kind}8[us]")
        data = times.astype(dtype)
        _same(data.astype(times.dtype) == times, null, str(dtype), name)
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
    if pa.types.is_floating(wanted) and pa.types.is_floating(values.type):
        _finite(_numbers(pc.fill_null(values, 0)), _numbers(pc.fill_null(converted, 0)), str(wanted), name)
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


def _times(data: NDArray[Any], decoder: Decoder) -> NDArray[Any]:
    """Return the numbers of a column of times in the units of the array, from microseconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about fractions: see _whole
        if pa.types.is_duration(decoder.type):
            return np.asarray(
                tables.cf_times.encode_cf_timedelta(data.view("timedelta64[us]"), decoder.units)[0]
            )
        return np.asarray(
            tables.cf_times.encode_cf_datetime(data.view("datetime64[us]"), decoder.units, decoder.calendar)[
                0
            ]
        )


def _whole(data: NDArray[Any], wanted: bool, null: NDArray[np.bool_] | None, units: str, name: str) -> None:
    """Raise ``InvalidInputError`` for times between two whole units: integers would store another time."""
    if wanted and data.dtype.kind == "f":
        _same(np.abs(data - np.rint(data)) < _ROUNDED, null, f"whole {units}", name)


#: The part of a unit that counting in floating point numbers may lose.
_ROUNDED: Final = 1e-7


def _same(same: NDArray[np.bool_], null: NDArray[np.bool_] | None, wanted: str, name: str) -> None:
    """Raise ``InvalidInputError`` if a value differs from the value that its element is read as."""
    good = same if null is None else same | null
    if not good.all():
        raise InvalidInputError(
            f"The column {name} must have times in whole {wanted}, got {int((~good).sum())} with a fraction, "
            "which would be lost. Round the times, or create an array with finer units",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _finite(values: NDArray[Any], converted: NDArray[Any], wanted: str, name: str) -> None:
    """Raise ``InvalidInputError`` for numbers that do not fit into a smaller type."""
    lost = np.isinf(converted) & ~np.isinf(values)
    if lost.any():
        raise InvalidInputError(
            f"The values of the column {name} must fit into {wanted}, got {values[lost][0]}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


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
    """Return the values as elements of the array's type."""
    if dtype.kind == "f" and data.dtype.kind == "f" and dtype.itemsize < data.dtype.itemsize:
        with np.errstate(over="ignore"):
            smaller = data.astype(dtype)
        _finite(data, smaller, str(dtype), name)
        return smaller
    if dtype.kind not in "iu" or data.dtype == dtype or data.dtype.kind == "b":
        return data.astype(dtype, copy=False)
    if data.dtype.kind == "f":
        data = np.rint(data)
    given = data if null is None else data[~null]
    limits = np.iinfo(dtype)
    # NaN is outside of every range.
    if given.size and not (given.min() >= limits.min and given.max() <= limits.max):
        raise InvalidInputError(
            f"The values of the column {name} must fit into {dtype}, got {given.min()} to {given.max()}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    if null is not None:
        data = np.where(null, data.dtype.type(0), data)
    return data.astype(dtype)


def _null(decoder: Decoder, dtype: np.dtype[Any], name: str) -> Any:
    """Return the element for null."""
    if decoder.fills:
        return decoder.fills[0]
    if dtype.kind == "f":
        return np.nan
    if dtype.kind in "Mm":
        return np.array("NaT", dtype)
    raise InvalidInputError(
        f"The column {name} must not have nulls, because its array has no _FillValue for them",
        ErrorKind.INVALID_ARRAY_METADATA,
    )


def missing_element(array: zarr.Array[Any]) -> Any:
    """Return the element of a cell without a value: one that is read as null or NaN, else the fill value."""
    dtype = np.dtype(array.dtype)
    try:
        return _null(decoder(array.path, dtype, array.attrs.asdict()), dtype, array.path)
    except InvalidInputError:
        return array.fill_value


def _texts(values: pa.Array, decoder: Decoder, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    if decoder.units is not None:
        raise InvalidInputError(
            f"The column {name} must have times of a usual calendar, got {decoder.calendar!r}, which cannot "
            "be written as text",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    if values.null_count:
        values = pc.fill_null(values, _null(decoder, dtype, name))
    data: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if dtype.kind in "USV" and len(values):
        # Numpy would truncate them.
        longest = pc.max(pc.utf8_length(values) if dtype.kind == "U" else pc.binary_length(values)).as_py()
        room = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        if longest > room:
            raise InvalidInputError(
                f"The values of the column {name} must have at most {room} "
                f"{'characters' if dtype.kind == 'U' else 'bytes'}, got one of {longest}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
    return data.astype(dtype) if dtype.kind in "USTV" else data
