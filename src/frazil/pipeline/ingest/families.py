"""Families of files with the same data variables, and one encoding for each coordinate of all files.

The files of a family follow each other along the concat dimension. Families with different variables are
merged. The layout of most files of a family is the expected one, and other files have problems.

One file may have "days since 2000-01-01", the next file "days since 2000-02-01". The dataset has the encoding
of the repository, or else the encoding of the first file, or one that can hold the values of all files: finer
units, a wider dtype. All numbers are converted to it exactly: xarray decodes the same values before and after
the conversion. Months and years have no fixed length, so their units must be the same text in all files.
"""

from __future__ import annotations

import functools
import json
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from typing import Any, Final, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.cf_times import TimeUnits, is_time
from frazil.display import counted, some_of
from frazil.jobs.progress import brief
from frazil.pipeline.ingest.inspection import (
    ANY,
    GREGORIAN,
    MISSING,
    PACKING,
    FileLayout,
    Inspection,
    OwnAttributes,
    VirtualChunks,
    calendar_of,
    differences,
    meaning,
    meaningful,
    native,
    value_differences,
    with_attributes,
)
from frazil.pipeline.ingest.options import TABLE, FileProblem, Problem
from frazil.pipeline.ingest.steps import date_of, rows_of
from frazil.readers.base_reader import NotVirtual, VariableSchema, codecs_with_axis


@dataclass(frozen=True, slots=True)
class FileFamily:
    """Files with the same data variables.

    ``layout``, ``own`` and ``values`` (digests of shared variables) are those of its first file. ``files``
    are the numbers of its good files. ``along`` are the variables that get the concat dimension, and do not
    have it in the files.
    """

    layout: FileLayout
    own: OwnAttributes
    files: NDArray[np.int64]
    values: Mapping[str, str]
    along: frozenset[str] = frozenset()

    def variable(self, name: str) -> VariableSchema:
        """Return a variable with the attributes of the first file."""
        return with_attributes(self.layout.variables[name], self.own)

    def variables(self) -> dict[str, VariableSchema]:
        """Return all variables by name, with the attributes of the first file."""
        return {name: self.variable(name) for name in self.layout.variables}

    def with_along(self, dim: str, names: Collection[str]) -> FileFamily:
        """Return the family with these variables along the dimension, unless they have it in the files."""
        layout = self.layout
        variables, virtual = dict(layout.variables), dict(layout.virtual or {})
        along = frozenset(name for name in names if name in variables and dim not in variables[name].dims)
        for name in along:
            each, stored = variables[name], virtual.get(name)
            chunks = None if each.chunks is None else (1, *each.chunks)
            shape = (ANY, *each.shape)
            variables[name] = replace(each, dims=(dim, *each.dims), shape=shape, chunks=chunks)
            if name in layout.individual:
                virtual.pop(name, None)
            elif isinstance(stored, VirtualChunks):
                codecs = codecs_with_axis(map(json.loads, stored.codecs))
                texts = tuple(json.dumps(codec, sort_keys=True) for codec in codecs)
                virtual[name] = replace(stored, chunks=(1, *stored.chunks), codecs=texts)
        layout = replace(
            layout,
            variables=variables,
            values={name: digest for name, digest in layout.values.items() if name not in along},
            virtual=None if layout.virtual is None else virtual,
        )
        values = {name: digest for name, digest in self.values.items() if name not in along}
        return replace(self, layout=layout, values=values, along=along)

    def with_lengths(self, length: Callable[[str, int], int]) -> FileFamily:
        """Return the family with the lengths of its dimensions in the dataset."""
        variables = {
            name: replace(each, shape=tuple(map(length, each.dims, each.shape)))
            for name, each in self.layout.variables.items()
        }
        return replace(self, layout=replace(self.layout, variables=variables))


def members_of(inspection: Inspection, good: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Return the numbers of the files of each family. Files with a common data variable are one family."""
    groups: list[tuple[set[str], list[int]]] = []
    for code in np.unique(inspection.layout[good]).tolist():
        names, codes = set(inspection.layouts[code].data), [code]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, codes = names | group[0], codes + group[1]
        groups.append((names, codes))
    members = [np.flatnonzero(good & np.isin(inspection.layout, codes)) for _, codes in groups]
    return sorted(members, key=lambda files: int(files[0]))


def parts_of(
    inspection: Inspection, files: NDArray[np.int64]
) -> list[tuple[NDArray[np.int64], frozenset[str] | None]]:
    """Return the variables that the same of these files have, with these files; the most files first.

    Each part also has the coordinates that all of its files have. None: all variables are in all files.
    """
    codes_of: dict[str, set[int]] = {}
    for code in np.unique(inspection.layout[files]).tolist():
        for name in inspection.layouts[code].variables:
            codes_of.setdefault(name, set()).add(code)
    names_of: dict[frozenset[int], set[str]] = {}
    for name, each in codes_of.items():
        names_of.setdefault(frozenset(each), set()).add(name)
    if len(names_of) == 1:
        return [(files, None)]
    parts = []
    for codes, names in names_of.items():
        shared = inspection.layouts[min(codes)].variables.values()
        names |= {each.name for each in shared if each.coordinate and codes <= codes_of[each.name]}
        parts.append((files[np.isin(inspection.layout[files], [*codes])], frozenset(names)))
    return sorted(parts, key=lambda part: (-len(part[0]), int(part[0][0])))


def family_of(
    inspection: Inspection,
    files: NDArray[np.int64],
    names: Collection[str] | None = None,
    *,
    individual: bool,
) -> FileFamily:
    """Return the family of these files, with all variables or those with ``names``.

    ``individual``: individual variables are shared too.
    """
    first = int(files[0])
    layout = inspection.layouts[inspection.layout[first]]
    layout = layout if names is None else layout.part(names)
    values = dict(layout.values)
    if individual:
        mine = inspection.individuals[inspection.individual[first]]
        values |= {name: digest for name, digest in mine if name in layout.variables}
    return FileFamily(layout, inspection.owns[inspection.own[first]], files, values)


def different_files(
    inspection: Inspection,
    members: NDArray[np.int64],
    names: Collection[str] | None,
    kind: Literal["layout", "values", "packing"],
) -> Iterator[FileProblem]:
    """Yield the files with another layout, other values of shared variables, or another packing than most.

    ``names`` are the compared variables, None for all.
    """
    if not len(members):
        return
    whole = inspection.layouts
    layouts = whole if names is None else tuple(layout.part(names) for layout in whole)
    codes = (inspection.own if kind == "packing" else inspection.layout)[members]
    distinct, first, counts = np.unique(codes, return_index=True, return_counts=True)
    packing = [
        tuple(each for each in own if each[1] in PACKING and (names is None or each[0] in names))
        for own in inspection.owns
    ]
    rows: dict[Any, list[int]] = {}
    for row, code in enumerate(distinct.tolist()):
        if kind == "packing":
            key: Any = packing[code]
        else:
            key = meaning(layouts[code]) if kind == "layout" else tuple(sorted(layouts[code].values.items()))
        rows.setdefault(key, []).append(row)
    most = max(rows.values(), key=lambda mine: (counts[mine].sum(), -first[mine].min()))
    usual = int(distinct[min(most, key=first.__getitem__)])
    for code in np.delete(distinct, most).tolist():
        name: str = kind
        if kind == "layout":
            lines = differences(layouts[code], layouts[usual]) or [("variables", "differs from the others")]
            # A kind that `allow` can tolerate must not hide another one.
            name = min((kind for kind, _ in lines), key=lambda kind: bool(TABLE[kind].allowed))
            text = "; ".join(each for _, each in lines)
        elif kind == "values":
            text = value_differences(layouts[code].values, layouts[usual].values)
        else:
            mine, others = (
                ", ".join(f"{variable}.{attribute} {value!r}" for variable, attribute, value in packing[each])
                or "no packing"
                for each in (code, usual)
            )
            text = f"values must have {others}, as in most files, got {mine}"
        yield from problems_of(members[codes == code], name, text)


def variables_of(inspection: Inspection, files: NDArray[np.int64], name: str) -> Iterator[VariableSchema]:
    """Yield a variable of these files, once for each layout and the types of its own attributes.

    Each file may have its own numbers there, so there may be as many of them as files.
    """
    forms: set[tuple[int, tuple[tuple[str, type], ...]]] = set()
    for code in np.unique(inspection.encodings[files]).tolist():
        layout, own = divmod(code, len(inspection.owns))
        types = tuple((key, type(value)) for each, key, value in inspection.owns[own] if each == name)
        if (layout, types) in forms or name not in inspection.layouts[layout].variables:
            continue
        forms.add((layout, types))
        yield with_attributes(inspection.layouts[layout].variables[name], inspection.owns[own])


def problems_of(files: NDArray[np.int64], kind: str, text: str) -> list[FileProblem]:
    """Return the same problem of several files."""
    return [FileProblem(file, kind, text) for file in files.tolist()]


#: Attributes that change what values are, or which of them readers mask. Their changes are named one by one.
SENSE: Final = (
    *("standard_name", "positive", "cell_methods", "valid_min", "valid_max", "valid_range"),
    *("units_metadata", "flag_meanings", "grid_mapping", "formula_terms"),
)


def family_notes(
    inspection: Inspection, family: FileFamily, names: Collection[str], stored: Mapping[str, VariableSchema]
) -> list[Problem]:
    """Return the notes on files with other attributes, and the problems of variables without references.

    ``names`` are the variables that no other family has the notes of. The attributes are compared with those
    of the ``stored`` variables of the group, or of the first file.
    """
    problems = []
    codes, first, counts = np.unique(inspection.layout[family.files], return_index=True, return_counts=True)
    descriptions: dict[str, int] = {}
    changes: dict[tuple[str, str], dict[str, int]] = {}
    urls: dict[tuple[str, str], str] = {}
    for code in np.argsort(first).tolist():
        for name, variable in sorted(inspection.layouts[codes[code]].variables.items()):
            if name not in names or name not in family.layout.variables:
                continue
            attrs, others = variable.attrs, stored.get(name, family.layout.variables[name]).attrs
            # Attributes that change the meaning of the numbers are problems.
            for at in sorted((attrs.keys() | ({*others} & {*SENSE})) - {*meaningful(attrs), *PACKING}):
                if repr(attrs.get(at)) == repr(others.get(at)):
                    continue
                if at in SENSE:
                    files = changes.setdefault((name, at), {})
                    urls.setdefault((name, at), inspection.urls[int(family.files[first[code]])])
                    text = repr(attrs[at]) if at in attrs else "no value"
                    files[text] = files.get(text, 0) + int(counts[code])
                else:
                    descriptions[f"{name}.{at}"] = descriptions.get(f"{name}.{at}", 0) + int(counts[code])
    for (name, at), files in changes.items():
        value = stored.get(name, family.layout.variables[name]).attrs.get(at)
        first_text = "no value" if value is None else repr(value)
        where = "the repository" if name in stored else "the first file"
        texts = ", ".join(f"{text} in {counted(count, 'file')}" for text, count in files.items())
        text = f"{at} of {name} stays {first_text}, as in {where}, but is {brief(texts)}"
        problems.append(Problem("attributes", text, urls[name, at], fatal=False))
    if descriptions:
        text = f"{some_of(list(descriptions))} differ in up to {counted(max(descriptions.values()), 'file')}"
        problems.append(Problem("descriptions", f"{text}; earlier values stay", fatal=False))
    virtual = family.layout.virtual
    if virtual is None:
        return problems
    for name, chunks in virtual.items():
        if isinstance(chunks, NotVirtual) and name in names:
            text = f"{name} cannot have references: {chunks.reason}; copy it, or leave it out"
            problems.append(Problem("virtual", text, inspection.urls[int(family.files[0])]))
    variables = family.layout.variables
    copies = [
        name
        for name in sorted({*names} & {*variables} - {*virtual})
        if variables[name].dtype.kind == "T" and not variables[name].coordinate
    ]
    if copies:
        text = f"{some_of(copies)}: copied, and not referred to"
        problems.append(Problem("virtual", text, fatal=False))
    return problems


def different_grids(families: Sequence[FileFamily]) -> Iterator[FileProblem]:
    """Yield the families that share dimensions or variables with an earlier family, but differ."""
    values: dict[str, str] = {}
    dims: dict[str, int] = {}
    for family in families:
        texts = [
            ("dims", f"{name} has {size} steps and not {dims[name]}, as in files with other variables")
            for name, size in family.layout.dims.items()
            if dims.get(name, size) != size
        ]
        shared = {
            name: digest for name, digest in family.values.items() if name not in family.layout.individual
        }
        if other := value_differences(shared, values):
            texts.append(("values", f"{other}, unlike files with other variables"))
        if texts:
            yield from problems_of(family.files, *texts[0])
        else:
            values |= shared
            dims |= family.layout.dims


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

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class CoordinateEncoding:
    """The meaning of the stored numbers of a coordinate.

    ``units`` and ``calendar`` are those of a time; ``units`` is "" for other coordinates. ``missing`` are the
    numbers that mean a missing value, besides NaN.
    """

    dtype: np.dtype[Any]
    units: str = ""
    calendar: str = "standard"
    missing: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, dtype: np.dtype[Any], attrs: Mapping[str, Any], times: CoordinateEncoding | None = None
    ) -> Self:
        """Return the encoding of a variable with these attributes, with the units of ``times``."""
        units = attrs.get("units")
        numbers = [each for name in MISSING for each in np.ravel(attrs.get(name, ())).tolist()]
        numbers = [each for each in numbers if isinstance(each, int | float) and each == each]
        typed = [(each, np.array(each).astype(dtype).item()) for each in numbers]
        # A float is rounded to the dtype. An integer that the dtype cannot hold is in no array.
        missing = dict.fromkeys(own for each, own in typed if dtype.kind == "f" or own == each)
        calendar = calendar_of(attrs)
        if times is not None:
            return cls(dtype, times.units, times.calendar, tuple(missing))
        return cls(dtype, str(units) if is_time(units) else "", calendar, tuple(missing))

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
    """An exact conversion of numbers between two encodings: first times ``factor``, then plus ``offset``."""

    source: CoordinateEncoding
    target: CoordinateEncoding
    factor: Fraction
    offset: Fraction

    @classmethod
    def between(cls, source: CoordinateEncoding, target: CoordinateEncoding) -> Self | None:
        """Return the conversion; None if the units have no linear conversion, or the calendars differ.

        >>> units = "days since 2000-01-02", "hours since 2000-01-02"
        >>> day, hour = (CoordinateEncoding(np.dtype("i8"), each) for each in units)
        >>> Conversion.between(hour, day).factor
        Fraction(1, 24)
        """
        factor, offset = Fraction(1), Fraction(0)
        calendars = {source.calendar, target.calendar}
        try:
            if source.units != target.units:
                length, start = _origin(source.units, target.calendar)
                target_length, target_start = _origin(target.units, target.calendar)
                factor = Fraction(length, target_length)
                offset = Fraction((start - target_start) // _MICROSECOND, target_length)
            if source.units and len(calendars) > 1:
                years = [_origin(each.units, each.calendar)[1].year for each in (source, target)]
                if calendars - GREGORIAN or ("proleptic_gregorian" in calendars and min(years) <= 1582):
                    return None
        except ValueError:
            return None
        return cls(source, target, factor, offset)

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
            if self.factor == 1 and not self.offset and kinds == "ff":
                result = values.astype(dtype)
                return result, result.astype(values.dtype) != values
            # Whole results, in whole numbers of the common denominator.
            whole = np.ones(values.shape, np.bool_)
            if values.dtype.kind == "f":
                whole = (values == np.rint(values)) & (np.abs(values) < _WHOLE)
            together = math.lcm(self.factor.denominator, self.offset.denominator)
            times, plus = int(self.factor * together), int(self.offset * together)
            whole &= np.abs(values.astype(np.float64)) * abs(times) + abs(plus) < 2.0**62
            product = np.where(whole, values, 0).astype(np.int64) * times + plus
            quotient = product // together
            result = quotient.astype(dtype)
            exact = whole & (product % together == 0)
            exact &= (result == quotient) & (result.astype(np.int64) == quotient)
            if not self.target.units:
                return result, ~exact
            # xarray decodes parts of a unit, and floats of units below a second, with rounding errors.
            shortest = min(_unit_length(each.units) for each in (self.source, self.target))
            rows = np.flatnonzero(~exact | ("f" in kinds and shortest < 1_000_000))
            exact[rows] = False
            number = values[rows] * float(self.factor) + float(self.offset)
            for candidate in (number.astype(dtype), np.rint(number).astype(dtype)) if len(rows) else ():
                try:
                    equal = self.source.decoded(values[rows]) == self.target.decoded(candidate)
                except (ValueError, OverflowError):  # times that xarray cannot decode
                    continue
                same = np.broadcast_to(equal, rows.shape)
                result[rows[same]], exact[rows[same]] = candidate[same], True
        return result, ~exact


def inexact_text(name: str, value: Any, target: CoordinateEncoding) -> str:
    """Return the text of the problem of a value without an exact conversion."""
    units = f" in {target.units!r}" if target.units else ""
    missing = f", where {', '.join(map(str, target.missing))} means missing" if target.missing else ""
    return f"{name} has the value {value}, which has no exact form as {target.dtype}{units}{missing}"


@functools.lru_cache(maxsize=1 << 16)
def _origin(units: str, calendar: str) -> tuple[int, Any]:
    """Return the length of the unit in microseconds, and the time of the number zero."""
    if not (length := _unit_length(units)):
        raise ValueError(units)
    return length, date_of(0, units, calendar)


def _unit_length(units: str) -> int:
    """Return the length of a unit in microseconds; 0 if it has no fixed length, or a shorter one."""
    return TimeUnits(units, None).unit or 0


class Encodings:
    """The encodings of the coordinates of a dataset.

    ``variables`` are all variables with their encodings in the dataset. ``conversions``, by name and by code
    of `Inspection.encodings`, convert the numbers of a file to these encodings.
    """

    def __init__(self, inspection: Inspection, *, unpack: bool = False) -> None:
        self.inspection = inspection
        self._unpack = unpack
        #: The names of variables that a file has as packed values.
        self.packed: frozenset[str] = frozenset()
        self.variables: dict[str, VariableSchema] = {}
        self.conversions: dict[str, dict[int, Conversion]] = {}

    def choose(
        self, families: Sequence[FileFamily], stored: Mapping[str, VariableSchema]
    ) -> Iterator[FileProblem]:
        """Choose the encodings, and yield the problems of files that cannot be converted to them."""
        inspection = self.inspection
        owns = np.concatenate([np.empty(0, np.int64), *(inspection.own[each.files] for each in families)])
        used = (inspection.owns[code] for code in np.unique(owns).astype(int).tolist())
        self.packed = frozenset(name for own in used for name, attribute, _ in own if attribute in PACKING)
        self.variables = {name: each for one in reversed(families) for name, each in one.variables().items()}
        parents = {
            str(each.attrs["bounds"]): name
            for name, each in self.variables.items()
            if "bounds" in each.attrs and is_time(each.attrs.get("units"))
        }
        in_files: dict[str, dict[int, CoordinateEncoding]] = {}
        for name in sorted(self.variables, key=parents.__contains__):  # bounds come after their parents
            variable = self.variables[name]
            # The families of which each file may have its own encoding of the variable.
            mine = [
                family
                for family in families
                if name in family.layout.variables and family.layout.variables[name].dtype.kind in "iuf"
                if family.layout.is_converted(name) or is_time(family.variable(name).attrs.get("units"))
            ]
            if not mine or (self._unpack and name in self.packed):
                continue
            parent = None if is_time(variable.attrs.get("units")) else parents.get(name)
            times = in_files.get(parent or "", {})
            sources = in_files[name] = {}
            codes = np.concatenate([inspection.encodings[family.files] for family in mine])
            for code in dict.fromkeys(codes.tolist()):
                layout, own = divmod(code, len(inspection.owns))
                each = inspection.layouts[layout].variables.get(name)
                if each is not None:
                    attrs = with_attributes(each, inspection.owns[own]).attrs
                    sources[code] = CoordinateEncoding.of(each.dtype, attrs, times.get(code))
            before = stored.get(name)
            before = before if before is not None and before.dtype.kind in "iuf" else None
            above = None if parent is None else self.variables[parent]
            for code, (kind, text) in self._choose(variable, mine, sources, before, above).items():
                for family in families:
                    where = family.files[inspection.encodings[family.files] == code]
                    yield from problems_of(where, kind, text)

    def _choose(
        self,
        variable: VariableSchema,
        families: Sequence[FileFamily],
        sources: Mapping[int, CoordinateEncoding],
        stored: VariableSchema | None,
        above: VariableSchema | None,
    ) -> dict[int, tuple[str, str]]:
        """Choose the first encoding that can hold all known values; return a problem for each misfit code."""
        inspection, name = self.inspection, variable.name
        units, stored_units = (each and each.attrs.get("units") for each in (variable, stored))
        fits = stored is None or units == stored_units or (is_time(units) and is_time(stored_units))
        # Packed numbers of another dtype decode to other values.
        is_packed = name in self.packed

        def is_inexact(family: FileFamily) -> bool:
            """Return whether some labels, or values of a scalar, have no exact conversion."""
            files = family.files
            if name in inspection.scalars:
                files = files[[each is not None for each in inspection.scalars[name][files]]]
                values = np.array(inspection.scalars[name][files].tolist())
                codes = inspection.encodings[files]
            elif name != inspection.dim or family.layout.adds_axis:
                return False
            else:
                values = inspection.labels[rows_of(inspection.label_start, files)]
                codes = np.repeat(inspection.encodings[files], np.diff(inspection.label_start)[files])
            return bool(_converted(values, codes, candidate, conversions)[1].any())

        results: list[tuple[VariableSchema, dict[int, Conversion], dict[int, tuple[str, str]]]] = []
        for candidate in _candidates(variable, sources, stored, above):
            times = None if above is None else CoordinateEncoding.of(above.dtype, above.attrs)
            target = CoordinateEncoding.of(candidate.dtype, candidate.attrs, times)
            conversions: dict[int, Conversion] = {}
            refused: dict[int, tuple[str, str]] = {}
            for code, source in sources.items():
                if source == target and fits:
                    continue
                conversion = Conversion.between(source, target) if fits and not is_packed else None
                if conversion is not None:
                    conversions[code] = conversion
                elif not fits:
                    mine, other = (repr(each or "no units") for each in (units, stored_units))
                    refused[code] = "units", f"{name} must have {other}, as in the repository, got {mine}"
                elif is_packed:
                    encodings = (source, target)
                    mine, other = (f"{each.dtype} (missing: {list(each.missing)})" for each in encodings)
                    text = f"packed numbers of {name} must be {other}, as in other files, got {mine}"
                    refused[code] = "packing", f"{text}, which decode to other values"
                else:
                    mine, other = (f"{each.units!r} ({each.calendar})" for each in (source, target))
                    refused[code] = "units", f"{name} is in {mine}, which cannot be converted to {other}"
            results.append((candidate, conversions, refused))
            if not conversions or not any(map(is_inexact, families)):
                results = results[-1:]
                break
        self.variables[name], self.conversions[name], refused = results[0]
        return refused

    def values(
        self, name: str, values: NDArray[Any], files: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return values of these files in the encoding of the dataset, and a mask of the inexact ones."""
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


def _candidates(
    variable: VariableSchema,
    sources: Mapping[int, CoordinateEncoding],
    stored: VariableSchema | None,
    above: VariableSchema | None,
) -> Iterator[VariableSchema]:
    """Yield the encodings that may hold the values of all files, as variables; the best one first."""
    encodings = list(dict.fromkeys(sources.values()))
    if stored is not None:
        if not variable.coordinate:  # the array of data gets a wider dtype
            stored = replace(stored, dtype=np.result_type(stored.dtype, *(each.dtype for each in encodings)))
        yield with_encoding(variable, stored)
        return
    if len(encodings) <= 1:
        yield variable
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
    since = f" since {units[0].partition(' since ')[2]}"
    if len(units) > 1 and dtype.kind == "f":
        shorter = [name for length, name in _NAMES.items() if length < _unit_length(units[0])]
        choices += [(name + since, np.dtype(np.float64)) for name in shorter]
    elif len(units) > 1:
        finest = units[0]
        with suppress(ValueError):  # a unit without a fixed length
            # The units with the first origin, in which whole numbers of all units are whole.
            origins = [_origin(each, encodings[0].calendar) for each in units]
            gaps = [(start - origins[0][1]) // _MICROSECOND for _, start in origins]
            spans = [*gaps, *(length for length, _ in origins)]
            length = next(size for size in _NAMES if not any(each % size for each in spans))
            finest = units[0] if length == origins[0][0] else _NAMES[length] + since
        choices = [(finest, np.dtype(np.int64))]
        choices = [(finest, dtype), *choices] if finest == units[0] else choices
    for text, wide in choices:
        yield _encoded(variable, wide, {**attrs, **({"units": text} if text else {})})


def with_encoding(variable: VariableSchema, target: VariableSchema) -> VariableSchema:
    """Return the variable with the units, dtype and missing values of another one."""
    names = {*MISSING, "units", "calendar"} if is_time(target.attrs.get("units")) else {*MISSING}
    attrs = {name: each for name, each in target.attrs.items() if name in names}
    others = {name: each for name, each in variable.attrs.items() if name not in names}
    return _encoded(replace(variable, attrs=others), target.dtype, attrs)


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
    if not len(values) or not conversions:
        return result, wrong
    order = np.argsort(codes, kind="stable")
    distinct, first = np.unique(codes[order], return_index=True)
    for code, rows in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
        if code in conversions:
            raw = values[rows].astype(conversions[code].source.dtype)
            result[rows], wrong[rows] = conversions[code].apply(raw)
    return result, wrong
