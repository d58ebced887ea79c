"""The CF conventions for values: elements of an array to values, and values to elements.

==============================  =====================================================================
``_FillValue, missing_value``   missing values
``_Unsigned``                   the same bytes, read as unsigned numbers; ``"false"``: as signed numbers
``scale_factor, add_offset``    numbers: ``element * scale_factor + add_offset``, as float64
``dtype="bool"``                integers that xarray wrote for booleans
``units="days since ..."``      times: datetime64; objects of cftime in the calendars of models
``dtype="timedelta64[...]"``    durations that xarray wrote: timedelta64
==============================  =====================================================================

This module is the one decoder and the one encoder of Frazil. It follows xarray: the same values, data types
and missing values. Numpy is enough, except for times that numpy cannot hold: those of other calendars, and
those before the Gregorian calendar. They need cftime.

Times have microseconds, or nanoseconds if this is the unit of the array. So years far from 1970 are times
too, and the rounding of fractions of days differs from xarray by less than a microsecond.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.lazy_names import value_of

if TYPE_CHECKING:
    from collections.abc import Callable

type Values = NDArray[Any]
type Mask = NDArray[np.bool_]

_MISSING: Final = ("_FillValue", "missing_value")
#: Attributes of arrays whose values differ from the stored numbers.
PACKED: Final = frozenset({*_MISSING, "scale_factor", "add_offset", "_Unsigned"})
#: The attribute with which xarray marks integers as booleans.
BOOLEAN: Final = ("dtype", "bool")

_SPECIAL: Final = {"nan": np.nan, "infinity": np.inf, "-infinity": -np.inf}
_SINCE: Final = re.compile(r"\s*(?P<unit>[A-Za-z_]+)\s+since\s+(?P<reference>\S.*?)\s*", re.IGNORECASE)
_DATE: Final = re.compile(
    r"(?P<year>[+-]?\d{1,6})-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?"
    r"(?:[T\s]+(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?)?)?"
    r"\s*(?:Z|UTC|GMT|(?P<sign>[+-])(?P<zone_hour>\d{1,2}):?(?P<zone_minute>\d{2})?)?",
    re.IGNORECASE,
)
#: Microseconds of the units of times that numpy has too.
_UNITS: Final[Mapping[str, int]] = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "hour": 3_600_000_000,
    "hr": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
}
_STANDARD: Final = frozenset({"standard", "gregorian"})
_PROLEPTIC: Final = "proleptic_gregorian"
#: The first day of the Gregorian calendar. Earlier dates of the calendar ``standard`` are Julian.
_FIRST: Final = (1582, 10, 15)
_REFORM: Final = np.datetime64("1582-10-15", "us")
_DAY: Final = 86_400_000_000
#: A packed value fits if it differs from the stored one by at most this part of a step.
_PART_OF_STEP: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Coding:
    """How the elements of one array become values, and the reverse. See `coding_of`.

    Attributes:
        dtype: The data type of the elements.
        fills: The elements that mean a missing value, in the type ``dtype``. ``_FillValue`` is first.
        unsigned: The type that the bytes of integers are read as, for ``_Unsigned``; None if it is ``dtype``.
        scale: The number ``scale_factor``, or None.
        offset: The number ``add_offset``, or None.
        floating: The data type of unpacked numbers; None without packing.
        promoted: The data type of `decode_with_nan` for numbers that can be missing; None if none can be.
        boolean: The elements are booleans.
        units: The attribute ``units``, or None.
        calendar: The calendar of times; None for other values.
        timedelta: The elements are durations in ``units``.
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
    calendar: str | None = None
    timedelta: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether each element is its own value, and none is missing. NaN and NaT are values here."""
        return not (self.is_packed or self.boolean or self.is_time)

    @property
    def is_packed(self) -> bool:
        """Whether numbers differ from their elements, or can be missing."""
        parts = (self.unsigned, self.floating, self.promoted)
        return bool(self.fills) or any(each is not None for each in parts)

    @property
    def is_time(self) -> bool:
        """Whether numbers are times or durations."""
        return self.calendar is not None or self.timedelta

    # ---- elements to values

    def decode(self, elements: ArrayLike) -> tuple[Values, Mask | None]:
        """Return the values of elements in their shape, and which are missing, or None if none is.

        Missing integers keep an arbitrary value, because numpy has no missing integers. Missing times are
        NaT, or None among objects of cftime. NaN is a value, unless it is a fill value or a time.

        Raises:
            InvalidInputError: ``invalid-array-metadata`` for times that their units do not define.
            MissingExtraError: ``missing-extra`` for times that need cftime.

        >>> packed = coding_of({"scale_factor": 0.5, "_FillValue": -1}, np.dtype("i2"))
        >>> packed.decode(np.array([4, -1], "i2"))
        (array([ 2. , -0.5]), array([False,  True]))
        """
        stored = np.asarray(elements)
        missing = self.missing(stored)
        data = self._unpacked(stored)
        if self.is_time:
            data = self._times(data, missing)
        return data, missing

    def decode_with_nan(self, elements: ArrayLike) -> Values:
        """Return the values of elements as xarray does: missing numbers are NaN, missing times NaT.

        Integers that can be missing become floats. A missing boolean is True, as in xarray.

        >>> coding_of({"_FillValue": -9}, np.dtype("i2")).decode_with_nan(np.array([1, -9], "i2"))
        array([ 1., nan], dtype=float32)
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
            is_fill = np.asarray(np.isnan(elements) if _is_nan(fill) else elements == fill)
            missing = is_fill if missing is None else missing | is_fill
        if elements.dtype.kind in "mM" or (self.is_time and elements.dtype.kind == "f"):
            nothing = np.asarray(np.isnat(elements) if elements.dtype.kind in "mM" else np.isnan(elements))
            missing = nothing if missing is None else missing | nothing
        return missing if missing is not None and missing.any() else None

    def _unpacked(self, stored: Values) -> Values:
        """Return unpacked numbers, before they become times. The result can be the argument."""
        if self.boolean:
            return stored.astype(np.bool_)
        data = stored if self.unsigned is None else stored.view(self.unsigned)
        if self.floating is not None:
            data = np.asarray(data.astype(self.floating))
            if self.scale is not None:
                data *= self.scale
            if self.offset is not None:
                data += self.offset
        return data

    def _times(self, numbers: Values, missing: Mask | None) -> Values:
        if missing is not None:
            numbers = np.where(missing, numbers.dtype.type(0), numbers)
        clock = _clock(self.units or "", self.calendar)
        if clock is not None:
            times = clock.times(numbers)
            if self.calendar not in _STANDARD or not times.size or times.min() >= _REFORM:
                if missing is not None:
                    times[missing] = "NaT"
                return times
        dates = self._dates("num2date", numbers if numbers.dtype.kind == "f" else numbers.astype(np.int64))
        if missing is not None:
            dates[missing] = None
        return dates

    # ---- values to elements

    def encode(
        self,
        values: ArrayLike,
        missing: Mask | None = None,
        *,
        nearest: bool = False,
        name: str = "the array",
    ) -> Values:
        """Return the elements that `decode` reads as these values, as xarray would write them.

        Args:
            values: Values of the kind that `decode` returns. Times can also be ISO texts or `datetime`.
            missing: Which values are missing. By default NaN, NaT and None are missing.
            nearest: Round numbers to a step of the packing. By default a number between two is an error.
            name: The name of the array in messages.

        Raises:
            InvalidInputError: ``invalid-array-metadata`` for values that do not fit the range or the
                precision of the elements, for a value whose element is a fill value, and for missing values
                if the array has no element for them.
            MissingExtraError: ``missing-extra`` for times that need cftime.

        >>> packed = coding_of({"scale_factor": 0.5, "_FillValue": -1}, np.dtype("i2"))
        >>> packed.encode([2.0, np.nan])
        array([ 4, -1], dtype=int16)
        >>> try:
        ...     packed.encode(2.2, name="t")
        ... except InvalidInputError as error:
        ...     print(error)
        t must have values of int16 with scale_factor 0.5, got 2.2: the nearest is 2.0
        """
        given = np.asarray(values)
        if given.dtype.kind in "OUT" and self.dtype.kind not in "OUTSV":
            given = self._from_objects(given, name)
        if missing is None:
            missing = _missing_values(given)
        elif not missing.any():
            missing = None
        if self.is_time:
            given = self._with_calendar(given, name)
        if self.dtype.kind in "iuf":
            elements = self._from_numbers(given, missing, nearest, name)
        else:
            elements = self._cast(given, missing, name)
        for fill in self.fills:
            is_fill = np.asarray(elements == fill)
            if missing is not None:
                is_fill &= ~missing
            if is_fill.any():
                wanted = f"values other than the fill value {fill}, which means a missing value"
                plain = self.dtype if self.unsigned is None else self.unsigned
                raise self._refused(
                    name, wanted, given[is_fill], self._nearest(np.asarray(fill).view(plain)[()])
                )
        if missing is not None:
            element = self.missing_element()
            if element is None:
                raise InvalidInputError(
                    f"{name} must not have missing values, because it has no _FillValue for them, got "
                    f"{int(missing.sum())} missing values",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
            elements[missing] = element
        return elements

    def missing_element(self) -> Any:
        """Return the element that decodes as a missing value, or None if there is none.

        This is the first fill value, NaN for floats, and NaT for times of numpy.

        >>> coding_of({"_FillValue": -9}, np.dtype("i2")).missing_element()
        np.int16(-9)
        """
        if self.fills:
            return self.fills[0]
        if self.dtype.kind == "f":
            return self.dtype.type(np.nan)
        if self.dtype.kind in "mM":
            return np.array("NaT", self.dtype)[()]
        return None

    def text(self, value: Any) -> str:
        """Return one decoded value as a text. `encode` reads the text of a time as the same time.

        >>> coding_of({"scale_factor": 0.01}, "i2").text(np.float64(2.8200000000000003))
        '2.82'
        """
        item = value if hasattr(value, "calendar") else np.asarray(value)[()]
        if isinstance(item, np.timedelta64 | np.datetime64) and np.isnat(item):
            return "NaT"
        if isinstance(item, np.timedelta64):
            seconds = item / np.timedelta64(1, "s")
            return f"{seconds:.15g} s"
        if isinstance(item, np.datetime64):
            text = str(item.astype("M8[s]") if item.astype("M8[s]") == item else item)
            return text.rstrip("0") if "." in text else text
        if hasattr(item, "isoformat"):
            return str(item.isoformat())
        # the sums and products of a packing end in digits without a meaning
        return f"{item:.15g}" if self.floating is not None and isinstance(item, float) else str(item)

    def _from_numbers(self, given: Values, missing: Mask | None, nearest: bool, name: str) -> Values:
        """Return elements of numbers, times and booleans."""
        numbers = self._numbers(given, missing) if self.is_time else given
        if numbers.dtype.kind not in "biuf":
            raise self._refused(name, "numbers", given)
        plain = self.dtype if self.unsigned is None else self.unsigned
        if missing is not None:
            numbers = np.where(missing, numbers.dtype.type(0), numbers)
        steps = numbers
        if self.floating is not None:
            steps = (numbers.astype(np.float64) - (self.offset or 0.0)) / (
                1.0 if self.scale is None else self.scale
            )
            steps = np.asarray(steps)
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
        within = (
            fits if nearest and self.floating is not None else fits & self._is_same(elements, given, numbers)
        )
        if missing is not None:
            within = within | missing
        if not within.all():
            first = tuple(np.argwhere(~np.atleast_1d(within))[0])
            at = first if given.ndim else ()
            raise self._misfit(given[at], np.asarray(steps)[at], name)
        return elements

    def _is_same(self, elements: Values, given: Values, numbers: Values) -> Mask:
        """Return which elements decode as the given values, up to the rounding of floats."""
        decoded = self._unpacked(elements)
        if self.is_time and self.dtype.kind in "iu" and self.floating is None:
            return np.asarray(decoded == numbers)
        if self.is_time:
            # a microsecond, or the rounding of a count in float64
            unit = _UNITS.get(_unit(self.units or ""), _DAY)
            allowed = np.maximum(1.0 / unit, 2 * np.spacing(np.abs(numbers.astype(np.float64))))
        else:
            allowed = self._rounding(numbers)
        if decoded.dtype.kind in "iub" and numbers.dtype.kind in "iub":
            return np.asarray(decoded == numbers)
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(decoded.astype(np.float64) - numbers.astype(np.float64)) <= allowed
        return np.asarray(near | (decoded == numbers) | ((decoded != decoded) & (numbers != numbers)))

    def _rounding(self, numbers: Values) -> Values | float:
        """Return how far a stored number can be from the given one."""
        if self.floating is None:
            rounding = np.finfo(self.dtype) if self.dtype.kind == "f" else None
            return 0.0 if rounding is None else np.abs(numbers) * float(rounding.eps) + float(rounding.tiny)
        scale, offset = 1.0 if self.scale is None else self.scale, self.offset or 0.0
        size = np.abs(numbers.astype(np.float64)) + abs(offset)
        if self.dtype.kind == "f":
            return np.asarray(size * float(np.finfo(self.dtype).eps))
        rounding_of_floats = 8 * float(np.finfo(np.float64).eps) * size
        # the packing of most files has the precision of float32
        is_single = all(float(np.float32(each)) == each for each in (scale, offset))
        if is_single:
            single = np.minimum(8 * float(np.finfo(np.float32).eps) * size, _PART_OF_STEP * abs(scale))
            return np.asarray(np.maximum(rounding_of_floats, single))
        return np.asarray(rounding_of_floats)

    def _misfit(self, given: Any, step: Any, name: str) -> InvalidInputError:
        """Return the error for a value that no element holds, with the nearest value that one holds."""
        packing = [
            f"{key} {number!r}"
            for key, number in (("scale_factor", self.scale), ("add_offset", self.offset))
            if number is not None
        ]
        packing += [f"units {self.units!r}"] if self.is_time else []
        wanted = f"values of {self.dtype}{' with ' * bool(packing)}{', '.join(packing)}"
        return self._refused(name, wanted, given, self._nearest(step))

    def _nearest(self, step: Any) -> str:
        """Return words that name the value of the element nearest to a number, which no element may have."""
        if self.dtype.kind not in "iuf":
            return ""
        plain = self.dtype if self.unsigned is None else self.unsigned
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

    def _refused(self, name: str, wanted: str, given: Any, more: str = "") -> InvalidInputError:
        first = given.reshape(-1)[0] if isinstance(given, np.ndarray) else given
        return InvalidInputError(
            f"{name} must have {wanted}, got {self.text(first)}{more}", ErrorKind.INVALID_ARRAY_METADATA
        )

    def _cast(self, given: Values, missing: Mask | None, name: str) -> Values:
        """Return elements of the types that have no packing: booleans, text, bytes, times of numpy."""
        kinds = {"b": "biuf", "M": "M", "m": "m", "c": "biufc"}.get(self.dtype.kind, "OUTSV")
        if given.dtype.kind not in kinds:
            raise self._refused(name, f"values of the type {self.dtype}", given)
        if missing is not None:
            given = given.copy()
            element = self.missing_element()
            given[missing] = np.zeros((), given.dtype)[()] if element is None else element
        elements = np.asarray(given.astype(self.dtype))
        back = elements.astype(given.dtype) if self.dtype.kind in "bMm" else elements
        if self.dtype.kind in "USbMm":
            same = np.asarray(back == given) | (np.isnat(given) if given.dtype.kind in "mM" else False)
            if missing is not None:
                same = same | missing
            if not same.all():
                lost = given[~same] if given.ndim else given
                nearest = elements[~same] if given.ndim else elements
                text = self.text(np.asarray(nearest).reshape(-1)[0])
                raise self._refused(name, f"values of {self.dtype}", lost, f": the nearest is {text}")
        return elements

    # ---- times

    def _from_objects(self, given: Values, name: str) -> Values:
        """Return objects and texts as an array of numbers or times; None and NaN are missing."""
        flat = [None if _is_missing(each) else each for each in given.reshape(-1).tolist()]
        some = next((each for each in flat if each is not None), None)
        if some is None:
            kind = {"m": "m", "M": "M"}.get(self.dtype.kind, "M" if self.calendar is not None else "m")
            is_time = self.is_time or self.dtype.kind in "mM"
            return np.full(given.shape, "NaT", f"{kind}8[us]") if is_time else np.full(given.shape, np.nan)
        if isinstance(some, str) and (self.is_time or self.dtype.kind in "mM"):
            read = self._durations if self.timedelta or self.dtype.kind == "m" else self._moments
            texts = iter(read([str(each) for each in flat if each is not None], name))
            flat = [None if each is None else next(texts) for each in flat]
            some = next(each for each in flat if each is not None)
        if hasattr(some, "calendar"):  # of cftime
            dates = np.empty(len(flat), object)
            dates[:] = flat
            return dates.reshape(given.shape)
        times = "M8[us]" if self.calendar is not None or self.dtype.kind == "M" else None
        times = "m8[us]" if self.timedelta or self.dtype.kind == "m" else times
        try:
            if times is not None:
                filled = np.array(["NaT" if each is None else each for each in flat], times)
            else:
                numbers = np.array([0 if each is None else each for each in flat])
                is_large = numbers.dtype.kind == "O" and all(type(each) is int for each in numbers.tolist())
                numbers = numbers.astype(np.float64) if is_large else numbers
                lost = np.array([each is None for each in flat])
                filled = np.where(lost, np.nan, numbers) if lost.any() else numbers
        except (TypeError, ValueError, OverflowError) as error:
            raise self._refused(
                name, "values of one type that fits its values", given, f": {error}"
            ) from error
        return filled.reshape(given.shape)

    def _durations(self, texts: list[str], name: str) -> list[Any]:
        """Return the durations of texts: each is a number with a unit."""
        out = []
        for text in texts:
            number, _, unit = text.strip().partition(" ")
            try:
                out.append(np.timedelta64(round(float(number) * _UNITS[_unit(unit)]), "us"))
            except (KeyError, ValueError) as error:
                raise self._refused(name, "durations, such as 90 s or 1.5 days", text) from error
        return out

    def _moments(self, texts: list[str], name: str) -> list[Any]:
        """Return the times of ISO texts: datetime64, or objects of cftime if numpy cannot hold them."""
        calendar = self.calendar or _PROLEPTIC
        dates = list(map(_date, texts))
        out = []
        is_early = any(date is not None and date[0][:3] < _FIRST for date in dates)
        is_numpy = calendar == _PROLEPTIC or (calendar in _STANDARD and not is_early)
        for text, date in zip(texts, dates, strict=True):
            if date is None:
                raise self._refused(name, "times, such as 2024-03-01 or 2024-03-01T06:00:00", text)
            fields, zone = date
            try:
                moment: Any = (
                    _moment(fields) if is_numpy else self._cftime().datetime(*fields, calendar=calendar)
                )
            except ValueError as error:
                raise self._refused(name, f"times of the calendar {calendar}", text, f": {error}") from error
            out.append(moment - (np.timedelta64(zone, "us") if is_numpy else timedelta(microseconds=zone)))
        return out

    def _with_calendar(self, given: Values, name: str) -> Values:
        """Return times in the form that this calendar has: datetime64, or objects of cftime."""
        if self.timedelta:
            if given.dtype.kind != "m" and not _is_empty(given):
                raise self._refused(name, "durations", given)
            return given
        if given.dtype.kind not in "MO":
            if _is_empty(given):
                return np.full(given.shape, "NaT", "M8[us]")
            raise self._refused(name, "times, such as 2024-03-01 or 2024-03-01T06:00:00", given)
        is_numpy = self.calendar in {*_STANDARD, _PROLEPTIC}
        if given.dtype.kind == "M":
            moments = given[~np.isnat(given)]
            is_early = self.calendar in _STANDARD and moments.size and moments.min() < _REFORM
            if (is_numpy and not is_early) or not moments.size:
                return given
            texts = np.datetime_as_string(given.astype("M8[us]"))
            return self._from_objects(np.asarray(texts, object), name)
        return given

    def _numbers(self, times: Values, missing: Mask | None) -> Values:
        """Return times as numbers in the units of the array: integers if all are whole."""
        clock = _clock(self.units or "", self.calendar)
        if times.dtype.kind in "mM":
            if clock is None:
                if missing is not None and missing.all():
                    return np.zeros(times.shape, np.int64)
                raise self._undefined("")
            return clock.numbers(times, missing)
        dates = times
        if missing is not None:
            dates = dates.copy()
            dates[missing] = next(iter(dates[~missing]))
        return self._dates("date2num", dates)

    def _dates(self, function: str, values: Values) -> Values:
        """Call a function of cftime with values in any shape."""
        cftime = self._cftime()
        if not values.size:
            return np.empty(values.shape, object if function == "num2date" else np.int64)
        keywords = {"only_use_cftime_datetimes": True} if function == "num2date" else {}
        try:
            flat = getattr(cftime, function)(
                values.reshape(-1), self.units, calendar=self.calendar, **keywords
            )
        except (ValueError, OverflowError, TypeError) as error:
            raise self._undefined(f": {error}") from error
        return np.asarray(flat).reshape(values.shape)

    def _cftime(self) -> Any:
        with needs(
            f"the calendar {self.calendar} (or stored numbers: --raw, decode=False)", extra="pipeline"
        ):
            return value_of("cftime")

    def _undefined(self, reason: str) -> InvalidInputError:
        return InvalidInputError(
            f"the units of times must follow the CF conventions, got {self.units!r} ({self.calendar})"
            f"{reason}. Stored numbers need no units: --raw, decode=False",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def coding_of(attributes: Mapping[str, Any], dtype: Any, *, times: bool = True) -> Coding:
    """Return how the elements of an array become values.

    Args:
        attributes: The attributes of the array.
        dtype: The data type of the elements.
        times: Numbers with units such as ``days since 2000-01-01`` are times. False leaves them numbers.

    Raises:
        InvalidInputError: ``invalid-array-metadata`` for a fill value that is text, but no number.

    >>> coding_of({"units": "days since 2000-01-01"}, "i4").decode(np.array([1, 2], "i4"))[0].astype("M8[D]")
    array(['2000-01-02', '2000-01-03'], dtype='datetime64[D]')
    """
    dtype = np.dtype(dtype)
    units = attributes.get("units")
    units = units if isinstance(units, str) else None
    fills = _fills(attributes, dtype)
    if dtype.kind not in "iuf":
        return Coding(dtype, fills, units=units)
    unsigned = _unsigned(attributes, dtype)
    plain = dtype if unsigned is None else unsigned
    boolean = dtype.kind in "iu" and attributes.get(BOOLEAN[0]) == BOOLEAN[1]
    scale, offset = _number(attributes, "scale_factor"), _number(attributes, "add_offset")
    if boolean:
        scale = offset = None
    floating = None if scale is None and offset is None else np.dtype(np.float64)
    calendar, timedelta = None, False
    if times and units is not None and not boolean:
        if _SINCE.fullmatch(units):
            calendar = str(attributes.get("calendar", "standard")).lower()
        elif str(attributes.get("dtype")).startswith("timedelta64"):
            timedelta = _unit(units) in {*_UNITS, "nanosecond"}
    promoted = None
    if _has_fill(attributes):
        promoted = floating or _promoted(plain)
    return Coding(
        dtype, fills, unsigned, scale, offset, floating, promoted, boolean, units, calendar, timedelta
    )


def decoded(values: Values, attributes: Mapping[str, Any]) -> Values:
    """Return decoded values. Missing values become NaN, and times stay numbers.

    >>> decoded(np.array([1, 2, -9], "i2"), {"_FillValue": -9, "scale_factor": 0.5}).tolist()
    [0.5, 1.0, nan]
    """
    return coding_of(attributes, values.dtype, times=False).decode_with_nan(values)


def fill_value(text: str, dtype: np.dtype[Any]) -> Any:
    """Return a ``_FillValue`` that is a text, as a number of the array.

    xarray writes floats for Zarr format 3 as the base64 text of eight bytes. zarr writes ``"NaN"``.

    Raises:
        InvalidInputError: ``invalid-array-metadata`` for other texts.

    >>> fill_value("AAAAAADYjsA=", np.dtype("f4"))
    np.float32(-987.0)
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
        raise InvalidInputError(
            f"_FillValue must be a number of type {dtype}, got {text!r}", ErrorKind.INVALID_ARRAY_METADATA
        ) from error


def _missing_values(given: Values) -> Mask | None:
    """Return which values are missing by themselves: NaN, NaT, None; None if none is."""
    if given.dtype.kind == "f":
        missing = np.isnan(given)
    elif given.dtype.kind in "mM":
        missing = np.isnat(given)
    elif given.dtype.kind == "O":
        flat = np.array([_is_missing(each) for each in given.reshape(-1).tolist()], np.bool_)
        missing = flat.reshape(given.shape)
    else:
        return None
    return np.asarray(missing) if missing.any() else None


def _is_missing(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and value.lower() in ("nan", "nat"))


def _is_empty(given: Values) -> bool:
    """Return whether all values are missing numbers, which have no type of their own."""
    return given.dtype.kind == "f" and bool(np.isnan(given).all())


def _is_nan(fill: Any) -> bool:
    return isinstance(fill, float | np.floating) and bool(fill != fill)


def _unsigned(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    wanted = {"true": "u", "false": "i"}.get(str(attributes.get("_Unsigned", "")).lower(), "")
    if dtype.kind not in "iu" or wanted in ("", dtype.kind):
        return None
    return np.dtype(f"{dtype.byteorder}{wanted}{dtype.itemsize}")


def _given_fills(attributes: Mapping[str, Any]) -> list[Any]:
    out: list[Any] = []
    for name in _MISSING:
        value = attributes.get(name)
        out += value if isinstance(value, list | tuple) else [value]
    return [each for each in out if each is not None]


def _has_fill(attributes: Mapping[str, Any]) -> bool:
    """Return whether an attribute names a fill value other than NaN, even one that no element can have."""
    special = {"nan", base64.b64encode(struct.pack("<d", np.nan)).decode().lower()}
    return any(each == each and str(each).lower() not in special for each in _given_fills(attributes))


def _fills(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return the elements that mean a missing value, in the data type of the array."""
    out: list[Any] = []
    for each in _given_fills(attributes):
        if isinstance(each, str) and dtype.kind in "iuf":
            if dtype.kind in "iu" and each.lower() in _SPECIAL:
                continue
            each = fill_value(each, dtype)
        typed = _TYPED[dtype.kind](each, dtype) if dtype.kind in _TYPED else None
        if typed is not None:
            out.append(typed)
    return tuple(out)


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


def _typed_text(value: Any, dtype: np.dtype[Any]) -> Any:
    return value if isinstance(value, str) else None


def _typed_bool(value: Any, dtype: np.dtype[Any]) -> Any:
    return np.bool_(value) if isinstance(value, bool) else None


_TYPED: Final[Mapping[str, Callable[[Any, np.dtype[Any]], Any]]] = {
    **dict.fromkeys("iuf", _typed_number),
    **dict.fromkeys("UTO", _typed_text),
    "S": _typed_bytes,
    "b": _typed_bool,
}


def _number(attributes: Mapping[str, Any], name: str) -> float | None:
    value = attributes.get(name)
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return None
    return float(value)


def _promoted(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the smallest floating point type that xarray uses for numbers that can be missing."""
    if dtype.kind == "f":
        return dtype.newbyteorder("=")
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


# ---- times of numpy


@dataclass(frozen=True, slots=True)
class _Clock:
    """Times of numpy: counts of ``factor`` ticks after ``reference``, which is None for durations."""

    factor: int
    ticks: str
    reference: np.datetime64 | None

    def times(self, numbers: Values) -> Values:
        """Return numbers without NaN as datetime64 or timedelta64."""
        start = 0 if self.reference is None else int(self.reference.astype(np.int64))
        if numbers.size:
            for end in (numbers.min(), numbers.max()):
                if not np.isfinite(end) or abs(int(end) * self.factor + start) >= 2**63 - self.factor:
                    raise InvalidInputError(
                        f"times must be within the range of datetime64[{self.ticks}], got the number {end}. "
                        "Stored numbers have no range: --raw, decode=False",
                        ErrorKind.INVALID_ARRAY_METADATA,
                    )
        if numbers.dtype.kind == "f":
            whole = np.floor(numbers.astype(np.float64))
            rest = np.rint((numbers - whole) * self.factor).astype(np.int64)
            counts = whole.astype(np.int64) * self.factor + rest
        else:
            counts = numbers.astype(np.int64) * self.factor
        return np.asarray(counts + start).view(f"{'m' if self.reference is None else 'M'}8[{self.ticks}]")

    def numbers(self, times: Values, missing: Mask | None) -> Values:
        """Return datetime64 or timedelta64 as numbers: integers if all are whole."""
        kind = "m" if self.reference is None else "M"
        counts = times.astype(f"{kind}8[{self.ticks}]").astype(np.int64)
        if missing is not None:
            counts = np.where(missing, 0, counts)
        elif self.reference is not None:
            counts = np.asarray(counts)
        if self.reference is not None:
            counts = counts - self.reference.astype(np.int64)
        whole, rest = np.divmod(counts, self.factor)
        if missing is not None:
            rest = np.where(missing, 0, rest)
        return np.asarray(whole + rest / self.factor if rest.any() else whole)


@lru_cache(maxsize=256)
def _clock(units: str, calendar: str | None) -> _Clock | None:
    """Return the clock of units and a calendar; None if numpy does not have it."""
    ticks = "ns" if _unit(units) == "nanosecond" else "us"
    factor = 1 if ticks == "ns" else _UNITS.get(_unit(units))
    if factor is None:
        return None
    if calendar is None:
        return _Clock(factor, ticks, None)
    match = _SINCE.fullmatch(units)
    date = None if match is None else _date(match["reference"])
    if date is None or calendar not in {*_STANDARD, _PROLEPTIC}:
        return None
    fields, zone = date
    try:
        reference = _moment(fields)
        if calendar in _STANDARD and fields[:3] < _FIRST:
            if fields[0] < 1:
                return None
            reference = _julian(fields)
    except ValueError:
        return None
    return _Clock(factor, ticks, (reference - np.timedelta64(zone, "us")).astype(f"M8[{ticks}]"))


def _unit(units: str) -> str:
    """Return the unit of ``days since ...`` or ``days`` in the singular and in lower case."""
    unit = units.split()[0].lower() if units.split() else ""
    return unit[:-1] if len(unit) > 1 and unit.endswith("s") else unit


def _date(text: str) -> tuple[tuple[int, ...], int] | None:
    """Return year to microsecond, and the microseconds of the time zone; None for another text."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    names = ("year", "month", "day", "hour", "minute", "second")
    defaults = (1, 1, 1, 0, 0, 0)
    fields = tuple(int(match[name] or default) for name, default in zip(names, defaults, strict=True))
    microsecond = int((match["fraction"] or "").ljust(6, "0")[:6])
    zone = (int(match["zone_hour"] or 0) * 60 + int(match["zone_minute"] or 0)) * 60_000_000
    return (*fields, microsecond), -zone if match["sign"] == "-" else zone


def _moment(fields: tuple[int, ...]) -> np.datetime64:
    """Return a date of the proleptic Gregorian calendar. Raise ``ValueError`` for one that does not exist."""
    year, month, day, hour, minute, second, microsecond = fields
    sign = "-" if year < 0 else ""
    text = (
        f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{microsecond:06d}"
    )
    return np.datetime64(text, "us")


def _julian(fields: tuple[int, ...]) -> np.datetime64:
    """Return the moment of a date of the Julian calendar, as numpy counts it."""
    year, month, day = fields[:3]
    # March is the first month of this count, so that a leap day is the last day of a year.
    shift = (14 - month) // 12
    years, months = year + 4800 - shift, month + 12 * shift - 3
    number = day + (153 * months + 2) // 5 + 365 * years + years // 4 - 32083
    days = number - 2_440_588  # the number of 1970-01-01
    return np.datetime64(days, "D") + (_moment((1970, 1, 1, *fields[3:])) - np.datetime64(0, "us"))
