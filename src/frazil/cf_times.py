"""Times and durations of the CF conventions: numbers in units such as ``days since 2000-01-01``.

Numpy holds the times of the Gregorian calendar, as datetime64. The times of other calendars, and those before
the Gregorian calendar, are objects of cftime. Times have microseconds, or nanoseconds if this is their unit.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.errors import InvalidInputError
from frazil.extras import needs
from frazil.remedies import argument

type Values = NDArray[Any]
type Mask = NDArray[np.bool_]

_SINCE: Final = re.compile(r"\s*(?P<unit>[A-Za-z_]+)\s+since\s+(?P<reference>\S.*?)\s*", re.IGNORECASE)
_DATE: Final = re.compile(
    r"([+-]?\d{1,6})-(\d{1,2})(?:-(\d{1,2}))?"
    r"(?:[T\s]+(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?)?"
    r"\s*(?:Z|UTC|GMT|([+-])(\d{1,2}):?(\d{2})?)?",
    re.IGNORECASE,
)
#: Microseconds of the units of times that numpy has too.
_UNITS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("microsecond", "microsec"), 1),
    **dict.fromkeys(("millisecond", "millisec", "msec", "ms"), 1_000),
    **dict.fromkeys(("second", "sec", "s"), 1_000_000),
    **dict.fromkeys(("minute", "min"), 60_000_000),
    **dict.fromkeys(("hour", "hr", "h"), 3_600_000_000),
    **dict.fromkeys(("day", "d"), 86_400_000_000),
}
_STANDARD: Final = frozenset({"standard", "gregorian"})
_PROLEPTIC: Final = "proleptic_gregorian"
#: The first day of the Gregorian calendar. Earlier dates of the calendar ``standard`` are Julian.
_FIRST: Final = (1582, 10, 15)
_LAST_JULIAN: Final = (1582, 10, 4)
_REFORM: Final = np.datetime64("1582-10-15", "us")
#: The seconds that 64 bits of nanoseconds hold.
_NS_SECONDS: Final = 2**63 // 10**9 - 1
#: The remedy of numbers that are no times, for Python and for the command line.
STORED_NUMBERS: Final = ("{} reads the stored numbers", argument(decode=False))
STORED_NUMBERS_SHELL: Final = "--raw reads the stored numbers"
_TIMES: Final = "times, such as 2024-03-01 or 2024-03-01T06:00:00"


@dataclass(frozen=True, slots=True)
class TimeUnits:
    """Numbers that are times or durations.

    Attributes:
        units: The attribute ``units``, such as ``days since 2000-01-01``, or ``days`` for durations.
        calendar: The calendar of times; None for durations.
    """

    units: str
    calendar: str | None

    @property
    def unit(self) -> int | None:
        """The microseconds of the unit; None if it has no constant number of them."""
        return _UNITS.get(_unit(self.units))

    def decode(self, numbers: Values, missing: Mask | None) -> Values:
        """Return times, with NaT, or None among objects of cftime, for missing numbers."""
        if missing is not None:
            numbers = np.where(missing, numbers[~missing][0] if not missing.all() else 0, numbers)
        clock = _clock(self.units, self.calendar)
        if clock is not None:
            times = clock.times(numbers)
            is_early = self.calendar in _STANDARD and _is_early(times)
            if not is_early or (missing is not None and missing.all()):
                if missing is not None:
                    times[missing] = "NaT"
                return times
        dates = self._dates("num2date", numbers if numbers.dtype.kind == "f" else numbers.astype(np.int64))
        if missing is not None:
            dates[missing] = None
        return dates

    def encode(self, times: Values, missing: Mask | None, name: str) -> Values:
        """Return times as numbers: integers if all are whole. Missing times become any number."""
        if missing is not None and missing.all():
            return np.zeros(times.shape, np.int64)
        if times.dtype.kind not in ("m" if self.calendar is None else "MO"):
            raise refused(name, "durations" if self.calendar is None else _TIMES, times)
        if times.dtype.kind == "M" and not self._is_numpy(_is_early(times[~np.isnat(times)])):
            times = self.parse(np.datetime_as_string(times.astype("M8[us]")), name)
        clock = _clock(self.units, self.calendar)
        if times.dtype.kind != "O":
            if clock is None:
                raise self._undefined("")
            return clock.numbers(times, missing)
        if missing is not None:
            times = np.where(missing, times[~missing][0], times)
        return self._dates("date2num", times)

    def parse(self, texts: Values, name: str) -> Values:
        """Return the times of ISO texts, or the durations of texts such as ``90 s``. None is missing."""
        flat = [None if each is None or each in ("NaT", "NaN") else str(each) for each in texts.reshape(-1)]
        if self.calendar is None:
            spans = [np.timedelta64("NaT") if each is None else _duration(each, name) for each in flat]
            return np.array(spans, "m8[us]").reshape(texts.shape)
        dates = [None if each is None else _date(each) for each in flat]
        is_numpy = self._is_numpy(any(date is not None and date[0][:3] < _FIRST for date in dates))
        out = np.empty(len(flat), object)
        for number, (text, date) in enumerate(zip(flat, dates, strict=True)):
            if text is None:
                continue
            if date is None:
                raise refused(name, _TIMES, text)
            fields, zone = date
            try:
                if is_numpy:
                    out[number] = _moment(fields) - np.timedelta64(zone, "us")
                else:
                    moment = self._cftime().datetime(*fields, calendar=self.calendar)
                    out[number] = moment - timedelta(microseconds=zone)
            except ValueError as error:
                raise refused(name, f"times of the calendar {self.calendar}", text) from error
        return (out.astype("M8[us]") if is_numpy else out).reshape(texts.shape)

    def _is_numpy(self, is_early: bool) -> bool:
        """Return whether datetime64 has times of this calendar, which may be before the Gregorian one."""
        return self.calendar == _PROLEPTIC or (self.calendar in _STANDARD and not is_early)

    def _dates(self, function: str, values: Values) -> Values:
        """Call a function of cftime with values in any shape."""
        cftime = self._cftime()
        if not values.size:
            return np.empty(values.shape, object if function == "num2date" else np.int64)
        keywords = {"only_use_cftime_datetimes": True} if function == "num2date" else {}
        try:
            convert = getattr(cftime, function)
            flat = convert(values.reshape(-1), self.units, calendar=self.calendar, **keywords)
        except (ValueError, OverflowError, TypeError) as error:
            raise self._undefined(f": {error}") from error
        return np.asarray(flat).reshape(values.shape)

    def _cftime(self) -> Any:
        feature = f"the calendar {self.calendar}"
        with needs(feature, extra="pipeline"):
            return importlib.import_module("cftime")

    def _undefined(self, reason: str) -> InvalidInputError:
        return misfit(
            f"the units of times must follow the CF conventions, got {self.units!r} ({self.calendar}){reason}"
        ).with_remedy(*STORED_NUMBERS, shell=STORED_NUMBERS_SHELL)


def units_of(attributes: Mapping[str, Any]) -> TimeUnits | None:
    """Return the units of an array of times or durations, or None for other numbers."""
    units = attributes.get("units")
    if not isinstance(units, str):
        return None
    if _SINCE.fullmatch(units):
        return TimeUnits(units, str(attributes.get("calendar", "standard")).lower())
    is_duration = str(attributes.get("dtype")).startswith("timedelta64")
    return TimeUnits(units, None) if is_duration and _unit(units) in {*_UNITS, "nanosecond"} else None


def is_time(units: object) -> bool:
    """Return whether these are units of times."""
    return isinstance(units, str) and _SINCE.fullmatch(units) is not None


def is_time_or_duration(units: object) -> bool:
    """Return whether these are units of times, or of durations such as ``hours``."""
    return is_time(units) or (isinstance(units, str) and _unit(units) in _UNITS)


def value_text(value: Any) -> str:
    """Return one value as a text: times in ISO form, durations in seconds."""
    item = value if hasattr(value, "calendar") else np.asarray(value)[()]
    if isinstance(item, np.timedelta64 | np.datetime64) and np.isnat(item):
        return "NaT"
    if isinstance(item, np.timedelta64):
        seconds = item / np.timedelta64(1, "s")
        return f"{seconds:.15g} s"
    if isinstance(item, np.datetime64):
        text = str(item.astype("M8[s]") if item.astype("M8[s]") == item else item)
        return text.rstrip("0") if "." in text else text
    if isinstance(item, bytes):
        return item.decode("utf-8", "backslashreplace")
    return str(item.isoformat() if hasattr(item, "isoformat") else item)


def refused(name: str, demand: str, values: Any, more: str = "") -> InvalidInputError:
    """Return the error for values that an array cannot have: it names the first of them."""
    first = values.reshape(-1)[0] if isinstance(values, np.ndarray) else values
    text = first if isinstance(first, str) else value_text(first)
    return misfit(f"{name} must have {demand}, got {text}{more}")


def _is_early(moments: Values) -> bool:
    """Return whether times of numpy are before the Gregorian calendar."""
    # nanoseconds cannot hold the date of the reform
    return moments.size > 0 and bool(moments.min().astype("M8[us]") < _REFORM)


def _duration(text: str, name: str) -> np.timedelta64:
    number, _, unit = text.strip().partition(" ")
    try:
        return np.timedelta64(round(float(number) * _UNITS[_unit(unit)]), "us")
    except (KeyError, ValueError) as error:
        raise refused(name, "durations, such as 90 s or 1.5 days", text) from error


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
                    raise misfit(
                        f"times must be within the range of datetime64[{self.ticks}], got the number {end}"
                    ).with_remedy(*STORED_NUMBERS, shell=STORED_NUMBERS_SHELL)
        if numbers.dtype.kind == "f":
            whole = np.floor(numbers.astype(np.float64))
            rest = np.rint((numbers - whole) * self.factor).astype(np.int64)
            counts = whole.astype(np.int64) * self.factor + rest
        else:
            counts = numbers.astype(np.int64) * self.factor
        return np.asarray(counts + start).view(f"{'m' if self.reference is None else 'M'}8[{self.ticks}]")

    def numbers(self, times: Values, missing: Mask | None) -> Values:
        """Return datetime64 or timedelta64 as numbers: integers if all are whole."""
        if missing is not None:
            times = np.where(missing, times[~missing][0], times)
        kind = "m" if self.reference is None else "M"
        start = 0 if self.reference is None else int(self.reference.astype(np.int64))
        whole = times.astype(f"{kind}8[s]").astype(np.int64)
        if self.ticks == "ns" and whole.size and np.abs(whole).max() > _NS_SECONDS:
            raise refused("the array", "times within the range of datetime64[ns]", times)
        counts = times.astype(f"{kind}8[{self.ticks}]").astype(np.int64) - start
        number, rest = np.divmod(counts, self.factor)
        return np.asarray(number + rest / self.factor if rest.any() else number)


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
            _moment(
                (2000 + fields[0] % 4, *fields[1:])
            )  # a year of the same length, for days that never were
            if fields[0] < 1 or fields[:3] > _LAST_JULIAN:
                return None
            reference = _julian(fields)
        return _Clock(factor, ticks, (reference - np.timedelta64(zone, "us")).astype(f"M8[{ticks}]"))
    except (ValueError, OverflowError):
        return None


def _unit(units: str) -> str:
    """Return the unit of ``days since ...`` or ``days`` in the singular and in lower case."""
    unit = units.split()[0].lower() if units.split() else ""
    return unit if unit in _UNITS else unit.removesuffix("s")


def _date(text: str) -> tuple[tuple[int, ...], int] | None:
    """Return year to microsecond, and the microseconds of the time zone; None for another text."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    *parts, fraction, sign, zone_hours, zone_minutes = match.groups()
    fields = (int(part or default) for part, default in zip(parts, (1, 1, 1, 0, 0, 0), strict=True))
    microsecond = int((fraction or "").ljust(6, "0")[:6])
    zone = (int(zone_hours or 0) * 60 + int(zone_minutes or 0)) * 60_000_000
    return (*fields, microsecond), -zone if sign == "-" else zone


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
