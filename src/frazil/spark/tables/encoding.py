"""From the values of a column to the elements of an array: ``decoding`` the other way round."""

from __future__ import annotations

import base64
import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.tables.decoding import Decoder

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
