"""Converts times of files to common units.

One file may have "days since 2000-01-01", the next file "days since 2000-02-01". The numbers of all files are
converted to one unit exactly. Two units of one calendar differ by a factor and an offset:

>>> unit_conversion("hours since 2000-01-02", "days since 2000-01-01", "standard")
(Fraction(1, 24), Fraction(1, 1))

Months and years have no fixed length. They are accepted if the units of all files are the same text, and
refused otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import cftime  # type: ignore[import-untyped]  # it ships no types
import numpy as np
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

#: A factor and an offset: numbers are multiplied by the factor, then the offset is added.
type Conversion = tuple[Fraction, Fraction]
SAME: Final[Conversion] = (Fraction(1), Fraction(0))


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


def unit_conversion(units: str, target: str, calendar: str = "standard") -> Conversion | None:
    """Return the conversion of numbers in ``units`` to ``target``; None if there is no linear conversion."""
    if units == target:
        return SAME
    try:
        length, start = _origin(units, calendar)
        target_length, target_start = _origin(target, calendar)
    except (ValueError, KeyError):
        return None
    apart = start - target_start
    microseconds = (apart.days * 86_400 + apart.seconds) * 1_000_000 + apart.microseconds
    return Fraction(length, target_length), Fraction(microseconds, target_length)


def convert_times(values: NDArray[Any], conversion: Conversion, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return the converted numbers, or None if the integer ``dtype`` cannot hold them exactly.

    >>> days = unit_conversion("hours since 2000-01-02", "days since 2000-01-01")
    >>> convert_times(np.array([12, 36]), days, np.dtype("f8"))
    array([1.5, 2.5])
    >>> convert_times(np.array([12]), (Fraction(1, 24), Fraction(0)), np.dtype("i4")) is None
    True
    """
    factor, offset = conversion
    if conversion == SAME:
        return values.astype(dtype)
    if values.dtype.kind in "iu":
        together = factor.denominator * offset.denominator
        number = values.astype(np.int64) * int(factor * together) + int(offset * together)
        if dtype.kind in "iu":
            return None if (number % together).any() else (number // together).astype(dtype)
        return (number / together).astype(dtype)
    result = values * float(factor) + float(offset)
    if dtype.kind in "iu":
        return None if (result != np.rint(result)).any() else result.astype(dtype)
    return result.astype(dtype)


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
