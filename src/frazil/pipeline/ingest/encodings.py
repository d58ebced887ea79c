"""One encoding for each coordinate of all files: units of times, dtype and missing values.

One file may have "days since 2000-01-01", the next file "days since 2000-02-01". The dataset has the encoding
of the repository, or else the encoding of the first file, or one that can hold the values of all files: finer
units, a wider dtype. All numbers are converted to it exactly. Two units of one calendar differ by a factor
and an offset:

>>> unit_conversion("hours since 2000-01-02", "days since 2000-01-01", "standard")
(Fraction(1, 24), Fraction(1, 1))

Months and years have no fixed length. They are accepted if the units of all files are the same text, and
refused otherwise. A conversion is exact if xarray decodes the same values before and after it.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from typing import Any, Final, Self

import cftime  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.cf_times import TimeUnits, is_time
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.layouts import MISSING, PACKING, native, with_own
from frazil.pipeline.ingest.problems import FileProblem
from frazil.pipeline.ingest.steps import rows_of
from frazil.readers.file_schema import VariableSchema

#: The names of units by their length in microseconds.
_NAMES: Final = {
    86_400_000_000: "days",
    3_600_000_000: "hours",
    60_000_000: "minutes",
    1_000_000: "seconds",
    1_000: "milliseconds",
    1: "microseconds",
}
#: Floats hold all whole numbers up to this one.
_WHOLE: Final = 1 << 53
_GREGORIAN: Final = {"standard", "gregorian", "proleptic_gregorian"}

#: A factor and an offset: numbers are multiplied by the factor, then the offset is added.
type Rule = tuple[Fraction, Fraction]
_SAME: Final[Rule] = (Fraction(1), Fraction(0))


def unit_conversion(units: str, target: str, calendar: str = "standard") -> Rule | None:
    """Return the factor and the offset from ``units`` to ``target``; None if there are none."""
    if units == target:
        return _SAME
    try:
        length, start = _origin(units, calendar)
        target_length, target_start = _origin(target, calendar)
    except ValueError:
        return None
    return Fraction(length, target_length), Fraction(_microseconds(start - target_start), target_length)


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
        """Return the converted numbers, and a mask of the values without an exact conversion."""
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
    return TimeUnits(units, None).unit or 0


def _microseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def finest_units(units: list[str], calendar: str) -> str | None:
    """Return units with the first origin, in which whole numbers of all units are whole; None if none."""
    try:
        origins = [_origin(each, calendar) for each in units]
    except ValueError:
        return None
    first = origins[0]
    lengths = {length for length, _ in origins}
    gaps = [_microseconds(start - first[1]) for _, start in origins]
    length = next(size for size in _NAMES if not any(each % size for each in (*lengths, *gaps)))
    if length == first[0]:
        return units[0]
    return f"{_NAMES[length]} since {units[0].partition(' since ')[2]}"


def shorter_units(units: str) -> list[str]:
    """Return shorter units with the same origin, the longest first."""
    origin = units.partition(" since ")[2]
    return [f"{name} since {origin}" for length, name in _NAMES.items() if length < _length(units)]


@functools.lru_cache(maxsize=1 << 16)
def _origin(units: str, calendar: str) -> tuple[int, Any]:
    """Return the length of the unit in microseconds, and the time of the number zero."""
    if not (length := _length(units)):
        raise ValueError(units)
    return length, cftime.num2date(0, units, calendar)


class Encodings:
    """The encodings of the coordinates of a dataset.

    ``variables`` are all variables with their encodings in the dataset. ``conversions``, by name and by code
    of `Inspection.encodings`, convert the numbers of a file to these encodings.
    """

    def __init__(self, inspection: Inspection) -> None:
        self.inspection = inspection
        self.variables: dict[str, VariableSchema] = {}
        self.conversions: dict[str, dict[int, Conversion]] = {}

    def choose(
        self, families: Sequence[Family], stored: Mapping[str, VariableSchema]
    ) -> Iterator[FileProblem]:
        """Choose the encodings, and yield the problems of files that cannot be converted to them.

        ``stored`` are the arrays of the repository.
        """
        self.variables = {name: each for one in reversed(families) for name, each in one.variables().items()}
        parents = {
            str(each.attrs["bounds"]): name
            for name, each in self.variables.items()
            if "bounds" in each.attrs and is_time(each.attrs.get("units"))
        }
        in_files: dict[str, dict[int, Encoding]] = {}
        for name in sorted(self.variables, key=parents.__contains__):  # bounds come after their parents
            variable = self.variables[name]
            mine = [family for family in families if _is_encoded(family, name)]
            if not mine:
                continue
            parent = None if is_time(variable.attrs.get("units")) else parents.get(name)
            in_files[name] = sources = self._sources(mine, name, in_files.get(parent or "", {}))
            kind = "units" if any(each.units for each in sources.values()) else "dtype"
            before = stored.get(name)
            before = before if before is not None and before.dtype.kind in "iuf" else None
            above = None if parent is None else self.variables[parent]
            for code, text in self._choose(variable, mine, sources, before, above).items():
                for family in families:
                    where = family.files[self.inspection.encodings[family.files] == code]
                    yield from (FileProblem(file, kind, text) for file in where.tolist())

    def _sources(
        self, families: Sequence[Family], name: str, times: Mapping[int, Encoding]
    ) -> dict[int, Encoding]:
        """Return the encodings of a coordinate in the files, by code; bounds get the ``times`` of parents."""
        inspection, sources = self.inspection, {}
        codes, first = np.unique(
            np.concatenate([inspection.encodings[family.files] for family in families]), return_index=True
        )
        for code in codes[np.argsort(first)].tolist():
            layout, own = divmod(code, len(inspection.owns))
            variable = inspection.layouts[layout].variables.get(name)
            if variable is not None:
                encoding = Encoding.of(variable.dtype, with_own(variable, inspection.owns[own]).attrs)
                sources[code] = encoding.with_times_of(times[code]) if code in times else encoding
        return sources

    def _choose(
        self,
        variable: VariableSchema,
        families: Sequence[Family],
        sources: Mapping[int, Encoding],
        stored: VariableSchema | None,
        above: VariableSchema | None,
    ) -> dict[int, str]:
        """Choose the first encoding that can hold all known values; return a text for each misfit code.

        ``above`` is the coordinate of which this one is the bounds.
        """
        units, stored_units = (each and each.attrs.get("units") for each in (variable, stored))
        fits = stored is None or units == stored_units or (is_time(units) and is_time(stored_units))
        # Packed numbers of another dtype decode to other values.
        is_packed = any(name in variable.attrs for name in PACKING)
        results = []
        for candidate in _candidates(variable, sources, stored, above):
            target = Encoding.of(candidate.dtype, candidate.attrs)
            if above is not None:
                target = target.with_times_of(Encoding.of(above.dtype, above.attrs))
            conversions: dict[int, Conversion] = {}
            refused: dict[int, str] = {}
            for code, source in sources.items():
                if source == target and fits:
                    continue
                conversion = Conversion.between(source, target) if fits and not is_packed else None
                if conversion is not None:
                    conversions[code] = conversion
                elif not fits:
                    text = (
                        f"{variable.name} is in {units!r} and not in {stored_units!r}, as in the repository"
                    )
                    refused[code] = text
                else:
                    refused[code] = _no_conversion(variable.name, source, target, is_packed=is_packed)
            results.append((candidate, conversions, refused))
            if not any(self._is_inexact(family, candidate, conversions) for family in families):
                results = results[-1:]
                break
        self.variables[variable.name], self.conversions[variable.name], refused = results[0]
        return refused

    def _is_inexact(
        self, family: Family, variable: VariableSchema, conversions: Mapping[int, Conversion]
    ) -> bool:
        """Return whether some labels, or values of a scalar, have no exact conversion."""
        inspection, files, name = self.inspection, family.files, variable.name
        if not conversions:
            return False
        if name in inspection.scalars:
            files = files[[each is not None for each in inspection.scalars[name][files]]]
            values, codes = np.array(inspection.scalars[name][files].tolist()), inspection.encodings[files]
        elif name != inspection.dim or family.layout.adds_axis:
            return False
        else:
            values = inspection.labels[rows_of(inspection.label_start, files)]
            codes = np.repeat(inspection.encodings[files], np.diff(inspection.label_start)[files])
        return bool(_converted(values, codes, variable, conversions)[1].any())

    def values(
        self, name: str, values: NDArray[Any], files: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return values in the encoding of the dataset, and a mask of the inexact ones.

        ``files`` are the numbers of the files of the values.
        """
        codes = self.inspection.encodings[files]
        return _converted(values, codes, self.variables[name], self.conversions.get(name, {}))

    def scalars(self, name: str, files: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the values of a scalar in files, as `values` does."""
        dtype = self.variables[name].dtype
        raw = dtype if dtype.kind in "TSUO" else None  # numbers keep the width of the files
        return self.values(name, np.array(self.inspection.scalars[name][files].tolist(), raw), files)

    def are_converted(self, name: str, files: NDArray[np.int64]) -> bool:
        """Return whether some of these files have another encoding of a variable."""
        codes = [*self.conversions.get(name, ())]
        return bool(np.isin(self.inspection.encodings[files], codes).any())

    def by_code(self) -> dict[int, dict[str, Conversion]]:
        """Return the conversions by code of `Inspection.encodings`."""
        result: dict[int, dict[str, Conversion]] = {}
        for name, conversions in self.conversions.items():
            for code, conversion in conversions.items():
                result.setdefault(code, {})[name] = conversion
        return result


def _is_encoded(family: Family, name: str) -> bool:
    """Return whether each file of a family may have its own encoding of a variable."""
    variable = family.layout.variables.get(name)
    if variable is None or variable.dtype.kind not in "iuf":
        return False
    return family.layout.is_converted(name) or is_time(family.variable(name).attrs.get("units"))


def _no_conversion(name: str, source: Encoding, target: Encoding, *, is_packed: bool) -> str:
    if is_packed:
        return (
            f"{name} is packed as {source.dtype} (missing: {source.missing or None}) and not as "
            f"{target.dtype} (missing: {target.missing or None}), and decodes to other values"
        )
    names = [f"{each.units!r} ({each.calendar})" for each in (source, target)]
    return f"{name} is in {names[0]}, which cannot be converted to {names[1]}"


def _candidates(
    variable: VariableSchema,
    sources: Mapping[int, Encoding],
    stored: VariableSchema | None,
    above: VariableSchema | None,
) -> Iterator[VariableSchema]:
    """Yield the encodings that may hold the values of all files, as variables; the best one first."""
    encodings = list(dict.fromkeys(sources.values()))
    if stored is not None or len(encodings) <= 1:
        yield variable if stored is None else with_encoding(variable, stored)
        return
    units = list(dict.fromkeys(each.units for each in encodings))
    dtype = np.result_type(*(each.dtype for each in encodings))
    attrs: dict[str, Any] = {"_FillValue": float("nan")}
    if len({each.missing for each in encodings}) == 1:
        attrs = {name: variable.attrs[name] for name in MISSING if name in variable.attrs}
    elif dtype.kind != "f":
        attrs = {"_FillValue": next(number for each in encodings for number in each.missing)}
    if above is not None:
        yield _encoded(variable, dtype if len(units) == 1 else np.result_type(dtype, above.dtype), attrs)
        return
    choices: list[tuple[str, np.dtype[Any]]] = [(units[0], dtype)]
    if len(units) > 1 and dtype.kind == "f":
        choices += [(each, np.dtype(np.float64)) for each in shorter_units(units[0])]
    elif len(units) > 1:
        finest = finest_units(units, encodings[0].calendar) or units[0]
        choices = [(finest, np.dtype(np.int64))]
        choices = [(finest, dtype), *choices] if finest == units[0] else choices
    for text, wide in choices:
        yield _encoded(variable, wide, {**attrs, **({"units": text} if text else {})})


def with_encoding(variable: VariableSchema, target: VariableSchema) -> VariableSchema:
    """Return the variable with the units, dtype and missing values of another one."""
    names = {*MISSING, "units", "calendar"} if is_time(target.attrs.get("units")) else {*MISSING}
    attrs = {name: each for name, each in target.attrs.items() if name in names}
    return _encoded(variable, target.dtype, attrs)


def _encoded(variable: VariableSchema, dtype: np.dtype[Any], attrs: Mapping[str, Any]) -> VariableSchema:
    """Return the variable with another encoding. ``attrs`` has its units and its missing values."""
    others = {name: value for name, value in variable.attrs.items() if name not in MISSING}
    variable = replace(variable, attrs={**others, **attrs})
    same = native(variable.dtype) == native(dtype)
    return variable if same else replace(variable, dtype=dtype, fill_value=None)


def _converted(
    values: NDArray[Any],
    codes: NDArray[np.int64],
    variable: VariableSchema,
    conversions: Mapping[int, Conversion],
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return values of many files in an encoding, and a mask of the inexact ones."""
    with np.errstate(invalid="ignore"):
        result = values.astype(variable.dtype)
    wrong = np.zeros(len(values), np.bool_)
    order = np.argsort(codes, kind="stable")
    distinct, first = np.unique(codes[order], return_index=True)
    for code, rows in zip(distinct.tolist(), np.split(order, first[1:]), strict=True) if conversions else ():
        if code in conversions:
            raw = values[rows].astype(conversions[code].source.dtype)
            result[rows], wrong[rows] = conversions[code].apply(raw)
    return result, wrong
