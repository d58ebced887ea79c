"""From the elements of an array to the values of a column (CF conventions, chapters 2.5, 4.4 and 8.1).

    _FillValue, missing_value     null
    _Unsigned                     the same bytes, read as unsigned numbers
    scale_factor, add_offset      floating point numbers
    units "days since ..."        timestamps (UTC, microseconds); text in unusual calendars
    datetime64, NaT               timestamps, null

Integers with a fill value stay integers: unlike numpy, columns have nulls. NaN stays NaN, unless it is the
fill value.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark import tables

#: How times in unusual calendars are read: as text, as the stored numbers, or not at all.
CALENDARS: Final = ("string", "raw", "error")
_USUAL: Final = frozenset({"standard", "gregorian", "proleptic_gregorian"})
_SINCE: Final = re.compile(r"\s*[A-Za-z]+\s+since\s+\S+", re.IGNORECASE)
_SPECIAL: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
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
    fills: tuple[Any, ...] = ()
    unsigned: str | None = None
    scale: float | None = None
    offset: float | None = None
    floating: str | None = None
    units: str | None = None
    calendar: str = "standard"

    def decode(self, raw: NDArray[Any]) -> Values:
        """Return values of the elements, in their shape."""
        null: NDArray[np.bool_] | None = None
        for fill in self.fills:
            is_fill = np.isnan(raw) if isinstance(fill, float) and fill != fill else raw == fill
            null = is_fill if null is None else null | is_fill
        if raw.dtype.kind in "Mm":
            nat = np.isnat(raw)
            null = nat if null is None else null | nat
        if null is not None and not null.any():
            null = None
        data = raw if self.unsigned is None else raw.view(self.unsigned)
        if self.floating is not None:
            data = data.astype(self.floating)
            if self.scale is not None:
                data *= np.asarray(self.scale, data.dtype)
            if self.offset is not None:
                data += np.asarray(self.offset, data.dtype)
        if self.units is not None:
            return self._times(data, null)
        if data.dtype.kind in "Mm":
            data = data.astype("datetime64[us]" if data.dtype.kind == "M" else "timedelta64[us]")
        return Values(data, null)

    def _times(self, data: NDArray[Any], null: NDArray[np.bool_] | None) -> Values:
        if data.dtype.kind == "f":
            nan = np.isnan(data)
            if nan.any():
                null = nan if null is None else null | nan
        numbers = data if null is None else np.where(null, data.dtype.type(0), data)
        units = self.units or ""
        try:
            if pa.types.is_duration(self.type):
                spans = tables.cf_times.decode_cf_timedelta(numbers, units, "us")
                return Values(np.asarray(spans).astype("timedelta64[us]"), null)
            times = tables.cf_times.decode_cf_datetime(numbers, units, self.calendar, time_unit="us")
        except (ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"The units of times must follow the CF conventions, got {units!r} ({self.calendar}): "
                f"{error}. Set the option cf=false to read the numbers",
                ErrorKind.INVALID_ARRAY_METADATA,
            ) from error
        if pa.types.is_string(self.type):
            flat = np.array([each.isoformat(" ") for each in times.reshape(-1).tolist()], object)
            return Values(flat.reshape(data.shape), null)
        if times.dtype.kind != "M":
            raise InvalidInputError(
                f"Timestamps cannot hold the times in {self.units!r} ({self.calendar}), which are before the "
                "calendar reform of 1582. Set the option cf=false to read the numbers",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        return Values(times.astype("datetime64[us]"), null)


def decoder(
    path: str, dtype: Any, attributes: Mapping[str, Any], *, cf: bool = True, calendars: str = "string"
) -> Decoder:
    """Return how an array's elements become values.

    Raises ``InvalidInputError`` (``invalid-array-metadata``) for a type that a column cannot have.

    >>> import numpy as np
    >>> packed = decoder("/t", np.dtype("i2"), {"scale_factor": 0.5, "_FillValue": -1})
    >>> packed.type, packed.decode(np.array([4, -1], "i2")).data.tolist()
    (DataType(double), [2.0, -0.5])
    """
    dtype = np.dtype(dtype)
    if not cf:
        return Decoder(_type(path, dtype))
    unsigned = _unsigned(dtype, attributes)
    plain = dtype if unsigned is None else np.dtype(unsigned)
    fills = _fills(dtype, attributes)
    if plain.kind in "iuf":
        scale, offset = _number(attributes, "scale_factor"), _number(attributes, "add_offset")
        floating = None if scale is None and offset is None else _floating(plain, attributes)
        units = attributes.get("units")
        if isinstance(units, str) and _SINCE.match(units):
            calendar = str(attributes.get("calendar", "standard")).lower()
            if calendar in _USUAL:
                return Decoder(TIMESTAMP, fills, unsigned, scale, offset, floating, units, calendar)
            if calendars == "error":
                raise InvalidInputError(
                    f"`{path}` must have times of a usual calendar, got the calendar {calendar!r}. Set the "
                    "option calendar=string or calendar=raw",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
            if calendars == "string":
                return Decoder(pa.string(), fills, unsigned, scale, offset, floating, units, calendar)
        if isinstance(units, str) and str(attributes.get("dtype")).startswith("timedelta64"):
            # xarray writes durations so
            return Decoder(pa.duration("us"), fills, unsigned, scale, offset, floating, units)
        if floating is not None:
            return Decoder(_type(path, np.dtype(floating)), fills, unsigned, scale, offset, floating)
    return Decoder(_type(path, plain), fills, unsigned)


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


def _unsigned(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> str | None:
    declared = str(attributes.get("_Unsigned", "")).lower()
    if dtype.kind == "i" and declared == "true":
        return f"{dtype.byteorder}u{dtype.itemsize}"
    return None


def _fills(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the elements that mean null, in the type of the array."""
    out: list[Any] = []
    for name in ("_FillValue", "missing_value"):
        value = attributes.get(name)
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str) and dtype.kind in "iufb":
                each = _from_text(each, dtype)
            if each is None:
                continue
            if dtype.kind == "b" and not isinstance(each, bool):
                continue
            try:
                with np.errstate(invalid="ignore", over="ignore"):
                    typed = np.asarray(each).astype(dtype)[()] if dtype.kind in "iuf" else each
            except (ValueError, TypeError, OverflowError):
                continue
            # No element has a value that the type cannot hold. Unsigned values are the same bytes.
            if dtype.kind in "iu" and typed != each and typed != each - (1 << 8 * dtype.itemsize):
                continue
            out.append(float("nan") if dtype.kind == "f" and typed != typed else typed)
    return tuple(out)


def _from_text(text: str, dtype: np.dtype[Any]) -> Any:
    """Return a number that JSON cannot hold, as zarr and as xarray write it."""
    if dtype.kind != "f":
        return None
    if text in _SPECIAL:
        return _SPECIAL[text]
    try:
        return struct.unpack("<d", base64.b64decode(text, validate=True))[0]
    except (ValueError, struct.error):
        return None


def _number(attributes: Mapping[str, Any], name: str) -> float | None:
    value = attributes.get(name)
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _floating(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> str:
    """Return the type of unpacked numbers.

    JSON does not keep the type of the attributes, so the type is float64 for all but short floats.
    """
    return "float32" if dtype.kind == "f" and dtype.itemsize <= 4 else "float64"


def to_arrow(values: Values, column: pa.DataType) -> pa.Array:
    """Return an Arrow array of values of one dimension. Plain types without nulls are not copied."""
    data, null = values.data, values.null
    kind = data.dtype.kind
    if kind == "M":
        whole = pa.array(np.ascontiguousarray(data).view(np.int64), pa.int64(), mask=null)
        return whole.view(column)
    if kind in "UTO":
        return pa.array(data.astype(object), pa.string(), mask=null, from_pandas=False)
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
