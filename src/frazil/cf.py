"""The CF conventions for values: elements of an array to values, and values to elements.

This module is the one decoder and the one encoder of Frazil. It follows xarray: the same values, data types
and missing values, for ``_FillValue``, ``missing_value``, ``_Unsigned``, ``scale_factor``, ``add_offset``,
``dtype="bool"``, times (``units="days since ..."``) and durations (``dtype="timedelta64[...]"``).

Times have microseconds, or nanoseconds if this is the unit of the array. So years far from 1970 are times
too, and the rounding of fractions of days differs from xarray by less than a microsecond. Times that numpy
cannot hold (other calendars, and before the Gregorian calendar) need cftime.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from frazil.arguments import misfit
from frazil.cf_times import (
    STORED_NUMBERS,
    STORED_NUMBERS_SHELL,
    Mask,
    TimeUnits,
    Values,
    refused,
    units_of,
    value_text,
)

_MISSING: Final = ("_FillValue", "missing_value")
#: Attributes of arrays whose values differ from the stored numbers.
PACKED: Final = frozenset({*_MISSING, "scale_factor", "add_offset", "_Unsigned"})
#: Attributes that give the elements of an array another meaning.
MEANING: Final = PACKED | {"units", "calendar", "dtype"}
#: The attribute with which xarray marks integers as booleans.
BOOLEAN: Final = ("dtype", "bool")

#: Calendars whose times are those of numpy. None: durations.
_NUMPY_CALENDARS: Final = frozenset({None, "standard", "gregorian", "proleptic_gregorian"})
_SPECIAL: Final = {"nan": np.nan, "infinity": np.inf, "-infinity": -np.inf}
#: A packed value fits if it differs from the stored one by at most this part of a step.
_PART_OF_STEP: Final = 1e-3
_LATITUDE: Final = frozenset(
    {"degrees_north", "degree_north", "degree_n", "degrees_n", "degreen", "degreesn"}
)
_LONGITUDE: Final = frozenset({"degrees_east", "degree_east", "degree_e", "degrees_e", "degreee", "degreese"})
_KINDS: Final = {
    "latitude": (_LATITUDE, frozenset({"lat", "latitude", "nav_lat"})),
    "longitude": (_LONGITUDE, frozenset({"lon", "longitude", "nav_lon"})),
}


@dataclass(frozen=True, slots=True)
class Coding:
    """How the elements of one array become values, and the reverse. See `coding_of`.

    Attributes:
        fills: The elements that mean a missing value, in the type ``dtype``. ``_FillValue`` is first.
        unsigned: The type that the bytes of integers are read as, for ``_Unsigned``; None if it is ``dtype``.
        floating: The data type of unpacked numbers; None without packing.
        promoted: The data type of `decode_with_nan` for numbers that can be missing; None if none can be.
        times: The units and the calendar of times and durations; None for other values.
        misfit: The part of the packing that is not a number, such as ``scale_factor '0.5'``; "" without one.
    """

    dtype: np.dtype[Any]
    fills: tuple[Any, ...] = ()
    unsigned: np.dtype[Any] | None = None
    scale: float | None = None
    offset: float | None = None
    floating: np.dtype[Any] | None = None
    promoted: np.dtype[Any] | None = None
    boolean: bool = False
    units: str | None = None
    times: TimeUnits | None = None
    misfit: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether each element is its own value, and none is missing. NaN and NaT are values here."""
        parts = (self.unsigned, self.floating, self.promoted, self.times)
        return not (self.boolean or self.fills or any(each is not None for each in parts))

    @property
    def is_time(self) -> bool:
        """Whether numbers are times or durations."""
        return self.times is not None

    @property
    def calendar(self) -> str | None:
        """The calendar of times; None for other values, and for durations."""
        return None if self.times is None else self.times.calendar

    @property
    def step(self) -> tuple[str, np.timedelta64]:
        """The unit in which times differ, such as days: its name and its length."""
        if self.times is None or self.times.unit is None:
            return "s", np.timedelta64(1, "s")
        return self.times.units.split()[0], np.timedelta64(self.times.unit, "us")

    @property
    def packed_dtype(self) -> np.dtype[Any]:
        """The data type of numbers before they are unpacked."""
        return self.dtype if self.unsigned is None else self.unsigned

    @property
    def number_dtype(self) -> np.dtype[Any]:
        """The data type of decoded values that are no times: missing ones keep an arbitrary value."""
        return np.dtype(np.bool_) if self.boolean else self.floating or self.packed_dtype

    @property
    def packing(self) -> tuple[float, float]:
        """The scale and the offset of unpacked numbers: 1 and 0 without packing."""
        self.require_numbers()
        return 1.0 if self.scale is None else self.scale, self.offset or 0.0

    def require_numbers(self) -> None:
        """Raise ``InvalidInputError`` if the scale or the offset is not a number."""
        if self.misfit:
            text = f"scale_factor and add_offset must be numbers, got {self.misfit}"
            raise misfit(text).with_remedy(*STORED_NUMBERS, shell=STORED_NUMBERS_SHELL)

    @property
    def keeps_order(self) -> bool:
        """Whether values have the order of the numbers before they are unpacked, or the opposite order."""
        return not self.boolean and bool(np.isfinite(self.packing).all())

    # ---- elements to values

    def decode(self, elements: ArrayLike) -> tuple[Values, Mask | None]:
        """Return the values of elements in their shape, and which are missing, or None if none is.

        Missing integers keep an arbitrary value, because numpy has no missing integers. Missing times are
        NaT, or None among objects of cftime. NaN is a value, unless it is a fill value or a time.
        """
        stored = np.asarray(elements)
        missing = self.missing(stored)
        data = self._unpacked(stored)
        return data if self.times is None else self.times.decode(data, missing), missing

    def decode_with_nan(self, elements: ArrayLike) -> Values:
        """Return the values of elements as xarray does: missing numbers are NaN, missing times NaT.

        Integers that can be missing become floats. A missing boolean is True, as in xarray.
        """
        stored = np.asarray(elements)
        if self.is_plain:
            return stored
        if self.is_time:
            return self.decode(stored)[0]
        missing = self.missing(stored)
        if self.boolean:
            data = stored.astype(np.bool_)
            return data if missing is None else data | missing
        data = self._unpacked(stored)
        if self.promoted is not None:
            data = data.astype(self.promoted, copy=self.floating is None)
            if missing is not None:
                data[missing] = np.nan
        return data if data.dtype.isnative else data.astype(data.dtype.newbyteorder("="))

    def missing(self, elements: Values) -> Mask | None:
        """Return which elements are missing values, or None if none is."""
        missing: Mask | None = None
        for fill in self.fills:
            is_fill = np.asarray(np.isnan(elements) if fill != fill else elements == fill)
            missing = is_fill if missing is None else missing | is_fill
        if elements.dtype.kind in "mM" or (self.is_time and elements.dtype.kind == "f"):
            nothing = np.asarray(np.isnat(elements) if elements.dtype.kind in "mM" else np.isnan(elements))
            missing = nothing if missing is None else missing | nothing
        return missing if missing is not None and missing.any() else None

    def _unpacked(self, stored: Values) -> Values:
        """Return unpacked numbers, before they become times. The result can be the argument."""
        if self.boolean:
            return stored.astype(np.bool_)
        return self._scaled(stored if self.unsigned is None else stored.view(self.unsigned))

    def _scaled(self, numbers: Values) -> Values:
        if self.floating is None:
            return numbers
        self.require_numbers()
        data = np.asarray(numbers.astype(self.floating))
        if self.scale is not None:
            data *= self.scale
        if self.offset is not None:
            data += self.offset
        return data

    def unpacked_range(self, low: ArrayLike, high: ArrayLike) -> tuple[Values, Values]:
        """Return the smallest and the largest value of numbers in a range, if the coding keeps their order.

        The numbers are read as ``unsigned`` already. Times are numbers here.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            ends = self._scaled(np.asarray(low)), self._scaled(np.asarray(high))
        return ends[::-1] if self.packing[0] < 0 else ends

    # ---- values to elements

    def encode(
        self,
        values: ArrayLike,
        missing: Mask | None = None,
        *,
        nearest: bool = False,
        name: str = "the array",
    ) -> Values:
        """Return the elements that `decode` reads as these values, as xarray would write them."""
        if missing is None and np.ma.isMaskedArray(values):
            missing = np.ma.getmaskarray(values)
        array = np.asarray(values)
        if array.dtype.kind == "f" and (self.is_time or self.dtype.kind in "mM") and np.isnan(array).all():
            array = np.full(array.shape, None, object)
        if array.dtype.kind in "OUT" and self.dtype.kind not in "OUTSVc":
            array = self._from_objects(array, name)
        if missing is None:
            missing = _missing_values(array)
        elif not missing.any():
            missing = None
        if self.dtype.kind in "iuf":
            elements = self._from_numbers(array, missing, nearest, name)
        else:
            elements = self._cast(array, missing, name)
        for fill in self.fills:
            is_fill = np.asarray(elements == fill)
            if missing is not None:
                is_fill &= ~missing
            if is_fill.any():
                demand = f"values other than the fill value {fill}, which means a missing value"
                step = fill if self.unsigned is None else np.asarray(fill).view(self.unsigned)[()]
                raise refused(name, demand, array[is_fill], self._nearest(step))
        if missing is not None:
            element = self.missing_element()
            if element is None:
                raise misfit(
                    f"{name} must not have missing values, because it has no _FillValue for them, got "
                    f"{int(missing.sum())} missing values"
                )
            elements[missing] = element
        return elements

    def missing_element(self) -> Any:
        """Return an element that decodes as missing: the first fill value, NaN or NaT. None if none does."""
        if self.fills:
            return self.fills[0]
        if self.dtype.kind in "fc":
            return self.dtype.type(np.nan if self.dtype.kind == "f" else complex(np.nan, np.nan))
        if self.dtype.kind in "mM":
            return np.array("NaT", self.dtype)[()]
        return None

    def text(self, value: Any) -> str:
        """Return one decoded value as a text. `encode` reads the text of a time as the same time."""
        if self.floating is not None and not self.is_time:
            # the sums and products of a packing end in digits without a meaning
            return str(float(f"{float(value):.15g}"))
        return value_text(value)

    def _from_numbers(self, values: Values, missing: Mask | None, nearest: bool, name: str) -> Values:
        """Return elements of numbers, times and booleans."""
        is_coded = self.unsigned is not None or self.floating is not None or self.boolean or self.is_time
        if values.dtype == self.dtype and not is_coded:
            return values if missing is None else values.copy()
        numbers = values if self.times is None else self.times.encode(values, missing, name)
        if numbers.dtype.kind not in "biuf":
            raise refused(name, "numbers", values)
        if numbers.dtype.kind == "b":
            numbers = numbers.astype(np.int8)  # numpy compares booleans with no large numbers
        plain = self.packed_dtype
        if missing is not None:
            numbers = np.where(missing, numbers.dtype.type(0), numbers)
        steps = numbers
        if self.floating is not None:
            scale, offset = self.packing
            with np.errstate(divide="ignore", invalid="ignore"):  # a scale of 0 has one value
                steps = np.asarray((numbers.astype(np.float64) - offset) / scale)
            if missing is not None:
                steps[missing] = 0
        if plain.kind in "iu":
            steps = np.rint(steps) if steps.dtype.kind == "f" else steps
            limits = np.iinfo(plain)
            low, high = limits.min, limits.max
            with np.errstate(invalid="ignore"):
                fits = (steps >= low) & (steps <= high)
                elements = np.asarray(np.where(fits, steps, 0).astype(plain))
        else:
            with np.errstate(over="ignore"):
                elements = np.asarray(steps.astype(plain))
            fits = np.asarray(np.isinf(elements) <= np.isinf(steps))
        elements = elements if plain == self.dtype else elements.view(self.dtype)
        if not nearest or self.floating is None:
            fits = fits & self._is_same(elements, numbers)
        if missing is not None:
            fits = fits | missing
        if not fits.all():
            at = tuple(np.argwhere(~np.asarray(fits))[0])
            units = self.units if self.is_time else None
            packings = (("scale_factor", self.scale), ("add_offset", self.offset), ("units", units))
            packing = [f"{key} {each!r}" for key, each in packings if each is not None]
            demand = f"values of {self.dtype}{' with ' * bool(packing)}{', '.join(packing)}"
            raise refused(name, demand, values[at], self._nearest(np.asarray(steps)[at]))
        return elements

    def _is_same(self, elements: Values, numbers: Values) -> Mask:
        """Return which elements decode as the given values, up to the rounding of floats."""
        decoded = self._unpacked(elements)
        if decoded.dtype.kind in "iub" and (self.is_time or numbers.dtype.kind in "iub"):
            return np.asarray(decoded == numbers)
        if self.times is not None:
            # a microsecond, or the rounding of a count in float64
            least = 1.0 / (self.times.unit or 1_000_000)
            allowed: Any = np.maximum(least, 2 * np.spacing(np.abs(numbers.astype(np.float64))))
        else:
            allowed = self._rounding(numbers)
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(decoded.astype(np.float64) - numbers.astype(np.float64)) <= allowed
        return np.asarray(near | (decoded == numbers) | ((decoded != decoded) & (numbers != numbers)))

    def _rounding(self, numbers: Values) -> Values | float:
        """Return how far a stored number can be from the given one."""
        if self.floating is None:
            rounding = np.finfo(self.dtype) if self.dtype.kind == "f" else None
            return 0.0 if rounding is None else np.abs(numbers) * float(rounding.eps) + float(rounding.tiny)
        scale, offset = self.packing
        size = np.abs(numbers.astype(np.float64)) + abs(offset)
        if self.dtype.kind == "f":
            return np.asarray(size * float(np.finfo(self.dtype).eps))
        noise = self.noise(numbers)
        if any(float(np.float32(each)) != each for each in (scale, offset)):
            return noise
        # files with a packing in float32 have values in float32 too
        single = np.minimum(8 * float(np.finfo(np.float32).eps) * size, _PART_OF_STEP * abs(scale))
        return np.asarray(np.maximum(noise, single))

    def noise(self, values: Values) -> Values:
        """Return how far float64 can move unpacked values, which other packings of them also unpack to."""
        size = np.abs(np.asarray(values, np.float64)) + abs(self.offset or 0.0)
        return np.asarray(8 * float(np.finfo(np.float64).eps) * size)

    def _nearest(self, step: Any) -> str:
        """Return words that name the value of the element nearest to a number, which no element may have."""
        if self.dtype.kind not in "iuf":
            return ""
        plain = self.packed_dtype
        if plain.kind == "f":
            limits = np.finfo(plain)
            element = np.asarray(np.clip(np.float64(step), limits.min, limits.max), plain)
            if element in self.fills:
                element = np.nextafter(element, plain.type(0 if element else 1))
        else:
            least, most = int(np.iinfo(plain).min), int(np.iinfo(plain).max)
            whole = min(max(round(min(max(step, least), most)), least), most) if step == step else least
            fills = {int(np.asarray(fill).view(plain)) for fill in self.fills}
            steps = (each for distance in count() for each in (whole - distance, whole + distance))
            whole = next(each for each in steps if least <= each <= most and each not in fills)
            element = np.asarray(whole, plain)
        return f": the nearest is {self.text(self.decode(element.view(self.dtype))[0])}"

    def _cast(self, values: Values, missing: Mask | None, name: str) -> Values:
        """Return elements of the types that have no packing: booleans, text, bytes, times of numpy."""
        kinds = {"b": "biuf", "M": "M", "m": "m", "c": "biufc"}.get(self.dtype.kind, "OUTSV")
        if self.dtype.kind == "c" and values.dtype.kind == "U":
            with suppress(ValueError):
                values = values.astype(np.complex128)
        elif self.dtype.kind == "S" and values.dtype.kind in "UT":
            values = np.strings.encode(values.astype(np.str_), "utf-8")
        if values.dtype.kind not in kinds:
            raise refused(name, f"values of the type {self.dtype}", values)
        if missing is not None:
            values = values.copy()
            element = self.missing_element()
            values[missing] = np.zeros((), values.dtype)[()] if element is None else element
        elements = np.asarray(values.astype(self.dtype))
        back = elements.astype(values.dtype) if self.dtype.kind in "bMm" else elements
        if self.dtype.kind in "USbMm":
            same = np.asarray(back == values) | (np.isnat(values) if values.dtype.kind in "mM" else False)
            if missing is not None:
                same = same | missing
            if not same.all():
                nearest = f": the nearest is {self.text(elements[~same][0])}"
                raise refused(name, f"values of {self.dtype}", values[~same], nearest)
        return elements

    def _from_objects(self, values: Values, name: str) -> Values:
        """Return objects and texts as an array of numbers or times; None and NaN are missing."""
        flat = [None if _is_missing(each) else each for each in values.reshape(-1).tolist()]
        first = next((each for each in flat if each is not None), None)
        times = self.times
        if times is None and self.dtype.kind in "mM":
            times = TimeUnits("", None if self.dtype.kind == "m" else "proleptic_gregorian")
        if times is not None and isinstance(first, str | None):
            return times.parse(np.array(flat, object), name).reshape(values.shape)
        if hasattr(first, "calendar"):  # of cftime
            dates = np.empty(len(flat), object)
            dates[:] = flat
            return dates.reshape(values.shape)
        try:
            if times is not None:
                kind = "m8[us]" if times.calendar is None else "M8[us]"
                moments = np.array(["NaT" if each is None else each for each in flat], kind)
                return moments.reshape(values.shape)
            numbers = np.array([0 if each is None else each for each in flat])
            if numbers.dtype.kind == "O":  # whole numbers beyond 64 bits
                numbers = numbers.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise refused(name, "values of one type", values, f": {error}") from error
        lost = np.array([each is None for each in flat])
        return (np.where(lost, np.nan, numbers) if lost.any() else numbers).reshape(values.shape)


def coding_of(attributes: Mapping[str, Any], dtype: Any, *, times: bool = True) -> Coding:
    """Return how the elements of an array become values."""
    dtype = np.dtype(dtype)
    units = attributes.get("units")
    units = units if isinstance(units, str) else None
    markers: list[Any] = []
    for name in _MISSING:
        value = attributes.get(name)
        for each in value if isinstance(value, list | tuple) else [value]:
            is_special = dtype.kind in "iu" and isinstance(each, str) and each.lower() in _SPECIAL
            is_text = isinstance(each, str) and dtype.kind in "iuf"
            # xarray reads numbers in texts of _FillValue only
            if each is not None and not is_special and not (is_text and name != "_FillValue"):
                markers.append(fill_value(each, dtype) if is_text else each)
    typed = [_TYPED[dtype.kind](each, dtype) for each in markers if dtype.kind in _TYPED]
    fills = tuple(each for each in typed if each is not None)
    if dtype.kind not in "iuf":
        return Coding(dtype, fills, units=units)
    kind = {"true": "u", "false": "i"}.get(str(attributes.get("_Unsigned", "")).lower(), dtype.kind)
    is_same = dtype.kind == "f" or kind == dtype.kind
    unsigned = None if is_same else np.dtype(f"{dtype.byteorder}{kind}{dtype.itemsize}")
    boolean = dtype.kind in "iu" and attributes.get(BOOLEAN[0]) == BOOLEAN[1]
    scale, offset = _number(attributes, "scale_factor"), _number(attributes, "add_offset")
    misfit = "" if boolean else _misfit(attributes)
    if boolean:
        scale = offset = None
    floating = np.dtype(np.float64) if misfit or scale is not None or offset is not None else None
    promoted = None
    if any(each == each for each in markers):
        # xarray promotes also for a fill value that no element can have, to the smallest type
        smallest = np.float32 if dtype.itemsize <= 2 else np.float64
        promoted = floating or (dtype.newbyteorder("=") if dtype.kind == "f" else np.dtype(smallest))
    units_of_times = units_of(attributes) if times and not boolean else None
    if units_of_times is not None and units_of_times.calendar in _NUMPY_CALENDARS and dtype == np.int64:
        fills = (*fills, dtype.type(np.iinfo(np.int64).min))  # xarray reads and writes it for NaT
    return Coding(
        dtype, fills, unsigned, scale, offset, floating, promoted, boolean, units, units_of_times, misfit
    )


def missing_element_of(attributes: Mapping[str, Any], dtype: Any) -> Any:
    """Return an element that decodes as missing, or None if none does. It does not depend on the packing."""
    return coding_of(without_packing(attributes), dtype).missing_element()


def without_packing(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes without those of packing."""
    return {name: value for name, value in attributes.items() if name not in ("scale_factor", "add_offset")}


def decoded(values: Values, attributes: Mapping[str, Any]) -> Values:
    """Return decoded values. Missing values become NaN, and times stay numbers."""
    return coding_of(attributes, values.dtype, times=False).decode_with_nan(values)


def geographic_kind(name: str, attributes: Mapping[str, Any]) -> str | None:
    """Return ``latitude``, ``longitude`` or None for a coordinate, by standard name, units, or name."""
    for kind, (units, names) in _KINDS.items():
        standard_name, unit = attributes.get("standard_name"), str(attributes.get("units", "")).lower()
        by_name = not standard_name and not unit and name.lower() in names
        if standard_name == kind or unit in units or by_name:
            return kind
    return None


def fill_value(text: str, dtype: np.dtype[Any]) -> Any:
    """Return a ``_FillValue`` that is a text, as a number of the array.

    xarray writes floats for Zarr format 3 as the base64 text of eight bytes. zarr writes ``"NaN"``.
    """
    special = _SPECIAL.get(text.lower())
    try:
        if dtype.kind != "f":
            return dtype.type(int(text))
        if special is not None:
            return dtype.type(special)
        try:
            return dtype.type(struct.unpack("<d", base64.b64decode(text, validate=True))[0])
        except (ValueError, struct.error):
            return dtype.type(float(text))
    except (ValueError, OverflowError) as error:
        raise misfit(f"_FillValue must be a number of type {dtype}, got {text!r}") from error


def _missing_values(values: Values) -> Mask | None:
    """Return which values are missing by themselves: NaN, NaT, None; None if none is."""
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind in "mM":
        missing = np.isnat(values)
    elif values.dtype.kind == "O":
        flat = np.array([_is_missing(each) for each in values.reshape(-1).tolist()], np.bool_)
        missing = flat.reshape(values.shape)
    else:
        return None
    return np.asarray(missing) if missing.any() else None


def _is_missing(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and value.lower() in ("nan", "nat"))


def _typed_number(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number in the data type of the array; None if it has no such element."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return None
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return dtype.type(value)
    if value != value or value in (np.inf, -np.inf) or int(value) != value:
        return None
    limits, whole = np.iinfo(dtype), int(value)
    # unsigned numbers are the same bytes
    whole = whole - (1 << 8 * dtype.itemsize) if dtype.kind == "i" and whole > limits.max else whole
    return dtype.type(whole) if limits.min <= whole <= limits.max else None


def _typed_bytes(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the bytes of a text: base64, as xarray writes them, or the text itself."""
    if not isinstance(value, str):
        return None
    try:
        data = base64.b64decode(value, validate=True)
    except ValueError:
        data = value.encode()
    return np.bytes_(data) if len(data) <= dtype.itemsize else np.bytes_(value.encode())


_TYPED: Final[Mapping[str, Callable[[Any, np.dtype[Any]], Any]]] = {
    **dict.fromkeys("iuf", _typed_number),
    **dict.fromkeys("UTO", lambda value, dtype: value if isinstance(value, str) else None),
    "S": _typed_bytes,
    "b": lambda value, dtype: np.bool_(value) if isinstance(value, bool) else None,
}


def _number(attributes: Mapping[str, Any], name: str) -> float | None:
    value = attributes.get(name)
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return None
    return float(value)


def _misfit(attributes: Mapping[str, Any]) -> str:
    """Return the first of the scale and the offset that is a text or a list, with its name; "" if none is."""
    for name in ("scale_factor", "add_offset"):
        value = attributes.get(name)
        if isinstance(value, str) or (isinstance(value, list | tuple) and len(value) != 1):
            return f"{name} {value!r:.100}"
    return ""


#: The methods of ``cell_methods`` whose names differ from the names of the statistics in numpy and xarray.
_CELL_METHODS: Final = {
    "var": "variance",
    "std": "standard_deviation",
    "min": "minimum",
    "max": "maximum",
    "first": "point",
    "last": "point",
}


def cell_method(statistic: str) -> str:
    """Return the method of a statistic in the attribute ``cell_methods``."""
    return _CELL_METHODS.get(statistic, statistic)
