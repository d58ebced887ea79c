"""Converts the numbers of coordinates to one encoding: times to common units, and dtypes and missing values.

One file may have "days since 2000-01-01", the next file "days since 2000-02-01". The numbers of all files are
converted to one unit exactly. Two units of one calendar differ by a factor and an offset:

>>> unit_conversion("hours since 2000-01-02", "days since 2000-01-01", "standard")
(Fraction(1, 24), Fraction(1, 1))

Months and years have no fixed length. They are accepted if the units of all files are the same text, and
refused otherwise. A conversion is exact if xarray decodes the same values before and after it.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Self

import cftime  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import xarray as xr
from numpy.typing import NDArray

# Lengths of units in microseconds.
_LENGTHS: Final = {
    **dict.fromkeys(("microseconds", "microsecond", "microsec", "microsecs"), 1),
    **dict.fromkeys(("milliseconds", "millisecond", "millisec", "millisecs", "msec", "msecs", "ms"), 1_000),
    **dict.fromkeys(("seconds", "second", "secs", "sec", "s"), 1_000_000),
    **dict.fromkeys(("minutes", "minute", "mins", "min"), 60_000_000),
    **dict.fromkeys(("hours", "hour", "hrs", "hr", "h"), 3_600_000_000),
    **dict.fromkeys(("days", "day", "d"), 86_400_000_000),
}
_NAMES: Final = {
    86_400_000_000: "days",
    3_600_000_000: "hours",
    60_000_000: "minutes",
    1_000_000: "seconds",
    1_000: "milliseconds",
    1: "microseconds",
}

#: The attributes with the numbers that mean a missing value.
MISSING: Final = ("_FillValue", "missing_value")
#: Floats hold all whole numbers up to this one.
_WHOLE: Final = 1 << 53

_GREGORIAN: Final = {"standard", "gregorian", "proleptic_gregorian"}

#: A factor and an offset: numbers are multiplied by the factor, then the offset is added.
type Rule = tuple[Fraction, Fraction]
_SAME: Final[Rule] = (Fraction(1), Fraction(0))


def is_time(units: object) -> bool:
    """Return whether these are units of a time axis.

    >>> is_time("days since 2000-01-01"), is_time("days"), is_time(None)
    (True, False, False)
    """
    return isinstance(units, str) and " since " in f" {units} "


def is_time_or_duration(attrs: Mapping[str, Any]) -> bool:
    """Return whether the attributes of a variable describe a time or a duration.

    >>> is_time_or_duration({"units": "hours"}), is_time_or_duration({"units": "m"})
    (True, False)
    """
    units = attrs.get("units")
    return is_time(units) or (isinstance(units, str) and units.lower() in _LENGTHS)


def unit_conversion(units: str, target: str, calendar: str = "standard") -> Rule | None:
    """Return the factor and the offset from ``units`` to ``target``; None if there are none."""
    if units == target:
        return _SAME
    try:
        length, start = _origin(units, calendar)
        target_length, target_start = _origin(target, calendar)
    except (ValueError, KeyError, IndexError):
        return None
    apart = start - target_start
    microseconds = (apart.days * 86_400 + apart.seconds) * 1_000_000 + apart.microseconds
    return Fraction(length, target_length), Fraction(microseconds, target_length)


@dataclass(frozen=True, slots=True)
class Encoding:
    """The meaning of the stored numbers of a coordinate.

    ``units`` and ``calendar`` are those of a time; ``units`` is "" for other coordinates. ``missing`` are the
    numbers that mean a missing value, besides NaN.
    """

    dtype: np.dtype[Any]
    units: str = ""
    calendar: str = "standard"
    missing: tuple[float, ...] = ()

    @classmethod
    def of(cls, dtype: np.dtype[Any], attrs: Mapping[str, Any]) -> Self:
        """Return the encoding of a variable with these attributes."""
        units = attrs.get("units")
        numbers = [each for name in MISSING for each in np.ravel(attrs.get(name, ())).tolist()]
        numbers = [each for each in numbers if isinstance(each, int | float) and each == each]
        typed = [(each, np.array(each).astype(dtype).item()) for each in numbers]
        # A float is rounded to the dtype. An integer that the dtype cannot hold is in no array.
        missing = dict.fromkeys(own for each, own in typed if dtype.kind == "f" or own == each)
        calendar = str(attrs.get("calendar", "standard"))
        return cls(dtype, str(units) if is_time(units) else "", calendar, tuple(missing))

    def with_times_of(self, other: Encoding) -> Encoding:
        """Return the encoding with the units and the calendar of another one."""
        return replace(self, units=other.units, calendar=other.calendar)

    def is_missing(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the values that are missing."""
        mask: NDArray[np.bool_] = (values != values) | np.isin(values, self.missing)
        return mask

    def decoded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return times as xarray decodes them."""
        attrs = {"units": self.units, "calendar": self.calendar}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(xr.conventions.decode_cf_variable("t", xr.Variable("n", values, attrs)).values)


@dataclass(frozen=True, slots=True)
class Conversion:
    """An exact conversion of the numbers of a coordinate from one encoding to another."""

    source: Encoding
    target: Encoding
    rule: Rule

    @classmethod
    def between(cls, source: Encoding, target: Encoding) -> Self | None:
        """Return the conversion; None if the units have no linear conversion, or the calendars differ."""
        rule = unit_conversion(source.units, target.units, target.calendar)
        return None if rule is None or not _is_one_calendar(source, target) else cls(source, target, rule)

    def apply(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the converted numbers, and a mask of the values without an exact conversion.

        >>> hours, days = (Encoding(np.dtype("i4"), f"{each} since 2000-01-01") for each in ("hours", "days"))
        >>> numbers, inexact = Conversion.between(hours, days).apply(np.array([24, 36, 48], "i4"))
        >>> numbers[~inexact].tolist(), inexact.tolist()
        ([1, 2], [False, True, False])
        """
        absent = self.source.is_missing(values)
        numbers, inexact = self._numbers(values[~absent])
        result = np.zeros(values.shape, self.target.dtype)
        wrong = np.zeros(values.shape, np.bool_)
        result[~absent], wrong[~absent] = numbers, inexact | self.target.is_missing(numbers)
        if self.target.missing:
            result[absent] = self.target.missing[0]
        elif self.target.dtype.kind == "f":
            result[absent] = np.nan
        else:
            wrong |= absent
        return result, wrong

    def _numbers(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the converted numbers of values that are not missing, and a mask of the inexact ones."""
        dtype = self.target.dtype
        kinds = values.dtype.kind + dtype.kind
        with np.errstate(invalid="ignore", over="ignore"):
            if self.rule == _SAME and kinds == "ff":
                result = values.astype(dtype)
                return result, result.astype(values.dtype) != values
            quotient, whole = _whole_numbers(values, self.rule)
            result = quotient.astype(dtype)
            exact = whole & (result == quotient) & (result.astype(np.int64) == quotient)
            if not self.target.units:
                return result, ~exact
            # xarray decodes parts of a unit, and floats of units below a second, with rounding errors.
            short = "f" in kinds and min(_length(self.source.units), _length(self.target.units)) < 1_000_000
            rows = np.flatnonzero(~exact | short)
            exact[rows] = False
            factor, offset = map(float, self.rule)
            number = values[rows] * factor + offset
            for candidate in (number.astype(dtype), np.rint(number).astype(dtype)) if len(rows) else ():
                same = self._decodes_same(values[rows], candidate)
                result[rows[same]], exact[rows[same]] = candidate[same], True
        return result, ~exact

    def _decodes_same(self, values: NDArray[Any], numbers: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the values that xarray decodes as it decodes the converted numbers."""
        try:
            same = self.source.decoded(values) == self.target.decoded(numbers)
        except (ValueError, OverflowError):  # times that xarray cannot decode
            same = False
        return np.broadcast_to(same, values.shape)


def _is_one_calendar(one: Encoding, other: Encoding) -> bool:
    """Return whether the days of two encodings have the same dates."""
    if not one.units or one.calendar == other.calendar:
        return True
    calendars = {one.calendar, other.calendar}
    if not calendars <= _GREGORIAN:
        return False
    # The Gregorian calendars have the same dates since 1582.
    years = [_origin(each.units, each.calendar)[1].year for each in (one, other)]
    return "proleptic_gregorian" not in calendars or min(years) > 1582


def inexact_text(name: str, value: Any, target: Encoding) -> str:
    """Return the text of the problem of a value without an exact conversion."""
    units = f" in {target.units!r}" if target.units else ""
    missing = f", where {', '.join(map(str, target.missing))} means missing" if target.missing else ""
    return f"{name} has the value {value}, which has no exact form as {target.dtype}{units}{missing}"


def _whole_numbers(values: NDArray[Any], rule: Rule) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the whole results of a rule, and a mask of the values with such a result."""
    whole = np.ones(values.shape, np.bool_)
    if values.dtype.kind == "f":
        whole = (values == np.rint(values)) & (np.abs(values) < _WHOLE)
    together = math.lcm(*(each.denominator for each in rule))
    factor, offset = (int(each * together) for each in rule)
    whole &= np.abs(values.astype(np.float64)) * abs(factor) + abs(offset) < 2.0**62
    number = np.where(whole, values, 0).astype(np.int64) * factor + offset
    return number // together, whole & (number % together == 0)


def _length(units: str) -> int:
    """Return the length of a unit in microseconds; 0 if it has no fixed length, or a shorter one."""
    return _LENGTHS.get(units.split()[0].lower(), 0)


def finest_units(units: list[str], calendar: str) -> str | None:
    """Return units with the origin of the first, in which whole numbers of all units are whole; None if none.

    >>> finest_units(["days since 2000-01-01", "hours since 2000-02-01", "days since 2000-01-03"], "standard")
    'hours since 2000-01-01'
    """
    try:
        origins = [_origin(each, calendar) for each in units]
    except (ValueError, KeyError):
        return None
    first = origins[0]
    lengths = {length for length, _ in origins}
    apart = [start - first[1] for _, start in origins]
    gaps = [(each.days * 86_400 + each.seconds) * 1_000_000 + each.microseconds for each in apart]
    length = next(
        (
            size
            for size in _NAMES
            if all(each % size == 0 for each in lengths) and all(gap % size == 0 for gap in gaps)
        ),
        1,
    )
    if length == first[0]:
        return units[0]
    return f"{_NAMES[length]} since {units[0].partition(' since ')[2]}"


def shorter_units(units: str) -> list[str]:
    """Return shorter units with the same origin, the longest first.

    >>> shorter_units("seconds since 2000-01-01")
    ['milliseconds since 2000-01-01', 'microseconds since 2000-01-01']
    """
    origin = units.partition(" since ")[2]
    return [f"{name} since {origin}" for length, name in _NAMES.items() if length < _length(units)]


def label_text(value: Any, units: str | None, calendar: str = "standard") -> str:
    """Return a label as text for people.

    >>> label_text(1, "days since 2000-01-01"), label_text(2.5, "m")
    ('2000-01-02 00:00:00', '2.5')
    """
    if units is None or not is_time(units) or value != value:
        return str(value)
    try:
        return str(cftime.num2date(value, units, calendar))
    except (ValueError, KeyError, OverflowError):
        return f"{value} {units}"


@functools.lru_cache(maxsize=1 << 16)
def _origin(units: str, calendar: str) -> tuple[int, Any]:
    """Return the length of the unit in microseconds, and the time of the number zero."""
    return _LENGTHS[units.split()[0].lower()], cftime.num2date(0, units, calendar)
