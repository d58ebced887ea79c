"""From the elements of an array to the values of a column, by the CF conventions (`frazil.cf`).

Integers with a fill value stay integers: unlike numpy, columns have nulls. NaN stays NaN, unless it is the
fill value. Times become timestamps (UTC, microseconds). Times in other calendars are objects of cftime, and
become text in a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.cf import Coding, coding_of
from frazil.errors import ErrorKind, InvalidInputError

#: How times in unusual calendars are read: as text, as the stored numbers, or not at all.
CALENDARS: Final = ("string", "raw", "error")
_USUAL: Final = frozenset({"standard", "gregorian", "proleptic_gregorian"})
TIMESTAMP: Final = pa.timestamp("us", "UTC")

_TYPES: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    # Spark has no unsigned numbers: the next larger type holds them. uint64 is checked.
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.int64(),
    "float16": pa.float32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}


@dataclass(frozen=True, slots=True)
class Values:
    """Values of a column, and a mask of the nulls; None if there are none."""

    data: NDArray[Any]
    null: NDArray[np.bool_] | None = None

    def take(self, region: tuple[Any, ...]) -> Values:
        """Return the values of a region."""
        return Values(self.data[region], None if self.null is None else self.null[region])

    def or_null(self, null: NDArray[np.bool_] | None) -> Values:
        """Return the values with more nulls."""
        if null is None:
            return self
        return Values(self.data, null if self.null is None else self.null | null)


@dataclass(frozen=True, slots=True)
class Decoder:
    """How the elements of one array become values. ``type`` is the type of the column."""

    type: pa.DataType
    coding: Coding

    @property
    def calendar(self) -> str | None:
        """The calendar of times that become text; None for other values."""
        return self.coding.calendar if pa.types.is_string(self.type) else None

    def decode(self, raw: NDArray[Any]) -> Values:
        """Return values of the elements, in their shape."""
        try:
            data, null = self.coding.decode(raw)
        except InvalidInputError as error:
            raise self._undefined() from error
        if data.dtype.kind in "Mm":
            data = data.astype(f"{data.dtype.kind}8[us]")
        elif self.coding.calendar is not None and self.calendar is None:
            raise self._undefined()  # dates before the reform of the calendar in 1582
        return Values(data, null)

    def _undefined(self) -> InvalidInputError:
        return InvalidInputError(
            "Times must have units of the CF conventions, and be after the calendar reform of 1582, got "
            f"{self.coding.units!r} ({self.coding.calendar}). Set the option cf=false to read the numbers",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def decoder(
    path: str, dtype: Any, attributes: Mapping[str, Any], *, cf: bool = True, calendars: str = "string"
) -> Decoder:
    """Return how an array's elements become values.

    Raises ``InvalidInputError`` (``invalid-array-metadata``) for a type that a column cannot have.
    """
    coding = coding_of(attributes if cf else {}, dtype)
    if coding.calendar is not None and coding.calendar not in _USUAL:
        if calendars == "error":
            raise InvalidInputError(
                f"`{path}` must have times of a usual calendar, got the calendar {coding.calendar!r}. Set "
                "the option calendar=string or calendar=raw",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        if calendars == "string":
            return Decoder(pa.string(), coding)
        coding = coding_of(attributes, dtype, times=False)
    if coding.is_time:
        return Decoder(TIMESTAMP if coding.calendar else pa.duration("us"), coding)
    plain = np.dtype(bool) if coding.boolean else coding.floating or coding.unsigned or coding.dtype
    return Decoder(_type(path, plain), coding)


def _type(path: str, dtype: np.dtype[Any]) -> pa.DataType:
    if dtype.kind in "UT" or dtype.kind == "O":
        return pa.string()
    if dtype.kind == "S" or (dtype.kind == "V" and dtype.names is None):
        return pa.binary()
    if dtype.kind == "M":
        return TIMESTAMP
    if dtype.kind == "m":
        return pa.duration("us")
    column_type = _TYPES.get(dtype.name)
    if column_type is None:
        raise InvalidInputError(
            f"`{path}` must have numbers, booleans, text, bytes or times, got {dtype}. Name the other arrays "
            "with the option variables",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return column_type


def is_readable(dtype: Any) -> bool:
    """Return whether a column can hold elements of this type."""
    dtype = np.dtype(dtype)
    return dtype.kind in "UTOSMm" or (dtype.kind == "V" and dtype.names is None) or dtype.name in _TYPES


def as_texts(data: NDArray[Any]) -> NDArray[Any]:
    """Return objects of cftime as texts, None as None; other values unchanged."""
    flat = data.reshape(-1)
    if data.dtype.kind != "O" or not any(hasattr(each, "calendar") for each in flat):
        return data
    texts = np.array([None if each is None else each.isoformat(" ") for each in flat.tolist()], object)
    return texts.reshape(data.shape)


def to_arrow(values: Values, column: pa.DataType) -> pa.Array:
    """Return an Arrow array of values of one dimension. Plain types without nulls are not copied."""
    data, null = values.data, values.null
    kind = data.dtype.kind
    if kind == "M":
        whole = pa.array(np.ascontiguousarray(data).view(np.int64), pa.int64(), mask=null)
        return whole.view(column)
    if kind in "UTO":
        return pa.array(as_texts(data).astype(object), pa.string(), mask=null, from_pandas=False)
    if kind in "SV":
        return pa.array(data.tolist(), pa.binary(), mask=null)
    if data.dtype == np.uint64 and data.size and int(data.max()) > np.iinfo(np.int64).max:
        raise InvalidInputError(
            f"Numbers must be below 2**63, the largest integer of Spark, got {int(data.max())}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    if not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))
    if kind in "uf" and data.dtype.name not in ("float32", "float64"):
        data = data.astype(column.to_pandas_dtype())
    if kind == "m":
        return pa.array(np.ascontiguousarray(data).view(np.int64), pa.int64(), mask=null).view(column)
    return pa.array(np.ascontiguousarray(data), column, mask=null, from_pandas=False)
