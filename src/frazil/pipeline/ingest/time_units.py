"""One encoding for each coordinate of all files: units of times, dtype and missing values.

Each file may count from its own first day, and may have its own dtype and fill value. The dataset has the
encoding of the repository, or else the encoding of the first file, or one that can hold the values of all
files: finer units, a wider dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.arrays import native
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.file_layout import PACKING, with_own
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.step_order import Objection, rows_of
from frazil.pipeline.ingest.time_conversion import (
    MISSING,
    Conversion,
    Encoding,
    finest_units,
    is_time,
    shorter_units,
)
from frazil.readers.reader import VariableSchema


@dataclass(frozen=True, slots=True)
class TimeUnits:
    """The units of the dataset, and the dtypes and missing values of its coordinates.

    ``variables`` are the variables with their encodings in the dataset. ``conversions``, by code of
    `Inspection.encodings`, convert the numbers of a file to these encodings.
    """

    variables: Mapping[str, VariableSchema]
    conversions: Mapping[int, Mapping[str, Conversion]]


def common_units(
    inspection: Inspection, families: Sequence[Family], stored: Mapping[str, VariableSchema]
) -> tuple[TimeUnits, list[Objection]]:
    """Return the encodings of all coordinates, and objections to files that cannot be converted to them.

    ``stored`` are the arrays of the repository.
    """
    variables = {name: each for family in reversed(families) for name, each in family.variables().items()}
    units = TimeUnits(variables, {})
    files = np.concatenate([np.zeros(0, np.int64), *(family.files for family in families)])
    objections: list[Objection] = []
    for each in _coordinates(inspection, families, variables):
        before = stored.get(each.name)
        before = before if before is not None and before.dtype.kind in "iuf" else None
        units, refused = _with_coordinate(inspection, units, each, before)
        for code, text in refused.items():
            where = files[inspection.encodings[files] == code]
            objections += [Objection(file, each.kind, text) for file in where.tolist()]
    return units, objections


@dataclass(frozen=True, slots=True)
class _Coordinate:
    """A coordinate of some families. ``encodings`` has its encodings by code of `Inspection.encodings`.

    ``parent`` is the coordinate of which it is the bounds; bounds without units have those of the parent.
    """

    families: Sequence[Family]
    variable: VariableSchema
    encodings: Mapping[int, Encoding]
    parent: str | None = None

    @property
    def name(self) -> str:
        """The name of the coordinate."""
        return self.variable.name

    @property
    def kind(self) -> str:
        """The kind of problem of a file that cannot be converted."""
        return "units" if any(each.units for each in self.encodings.values()) else "dtype"

    def has_units_of(self, stored: VariableSchema | None) -> bool:
        """Return whether the repository has the coordinate in the same units, or both are times."""
        if stored is None:
            return True
        units, others = self.variable.attrs.get("units"), stored.attrs.get("units")
        return units == others or (is_time(units) and is_time(others))

    @property
    def is_packed(self) -> bool:
        """Whether the numbers are packed: then another dtype decodes to other values."""
        return any(name in self.variable.attrs for name in PACKING)


def _coordinates(
    inspection: Inspection, families: Sequence[Family], variables: Mapping[str, VariableSchema]
) -> Iterator[_Coordinate]:
    """Yield the coordinates whose encoding may differ from file to file. Bounds come after their parents."""
    parents = {
        str(each.attrs["bounds"]): name
        for name, each in variables.items()
        if "bounds" in each.attrs and is_time(each.attrs.get("units"))
    }
    encodings: dict[str, dict[int, Encoding]] = {}
    for name in sorted(variables, key=parents.__contains__):
        mine = [family for family in families if _has_encodings(family, name)]
        if not mine:
            continue
        parent = None if is_time(variables[name].attrs.get("units")) else parents.get(name)
        codes = np.concatenate([inspection.encodings[family.files] for family in mine])
        codes, first = np.unique(codes, return_index=True)
        encodings[name] = {}
        for code in codes[np.argsort(first)].tolist():
            layout, own = divmod(code, len(inspection.owns))
            variable = inspection.layouts[layout].variables.get(name)
            if variable is None:
                continue
            encoding = Encoding.of(variable.dtype, with_own(variable, inspection.owns[own]).attrs)
            if parent is not None and code in encodings.get(parent, {}):
                encoding = encoding.with_times_of(encodings[parent][code])
            encodings[name][code] = encoding
        yield _Coordinate(mine, variables[name], encodings[name], parent)


def _has_encodings(family: Family, name: str) -> bool:
    """Return whether each file of a family may have its own encoding of a variable."""
    variable = family.layout.variables.get(name)
    if variable is None or variable.dtype.kind not in "iuf":
        return False
    return family.layout.is_converted(name) or is_time(family.variable(name).attrs.get("units"))


def _with_coordinate(
    inspection: Inspection, units: TimeUnits, coordinate: _Coordinate, stored: VariableSchema | None
) -> tuple[TimeUnits, dict[int, str]]:
    """Return the encodings with one more coordinate, and texts for codes without a conversion.

    The encoding is that of the repository, or else the first that can hold all values that are known.
    """
    above = units.variables.get(coordinate.parent or "")
    results = []
    for variable in _candidates(coordinate, stored, above):
        encoding = Encoding.of(variable.dtype, variable.attrs)
        if above is not None:
            encoding = encoding.with_times_of(Encoding.of(above.dtype, above.attrs))
        conversions = {code: dict(each) for code, each in units.conversions.items()}
        refused: dict[int, str] = {}
        for code, source in coordinate.encodings.items():
            if source == encoding and coordinate.has_units_of(stored):
                continue
            conversion = None
            if not coordinate.is_packed and coordinate.has_units_of(stored):
                conversion = Conversion.between(source, encoding)
            if conversion is None:
                refused[code] = _no_conversion(coordinate, source, encoding, stored)
            else:
                conversions.setdefault(code, {})[coordinate.name] = conversion
        result = TimeUnits({**units.variables, coordinate.name: variable}, conversions)
        if not any(_inexact(inspection, family, variable, result) for family in coordinate.families):
            return result, refused
        results.append((result, refused))
    return results[0]


def _no_conversion(
    coordinate: _Coordinate, source: Encoding, target: Encoding, stored: VariableSchema | None
) -> str:
    name, units = coordinate.name, coordinate.variable.attrs.get("units")
    if stored is not None and not coordinate.has_units_of(stored):
        return f"{name} is in {units!r} and not in {stored.attrs.get('units')!r}, as in the repository"
    if coordinate.is_packed:
        return (
            f"{name} is packed as {source.dtype} (missing: {source.missing or None}) and not as "
            f"{target.dtype} (missing: {target.missing or None}), and decodes to other values"
        )
    names = [f"{each.units!r} ({each.calendar})" for each in (source, target)]
    return f"{name} is in {names[0]}, which cannot be converted to {names[1]}"


def _candidates(
    coordinate: _Coordinate, stored: VariableSchema | None, above: VariableSchema | None
) -> Iterator[VariableSchema]:
    """Yield the encodings that may hold the values of all files, as variables; the best one first.

    ``above`` is the coordinate of which this one is the bounds.
    """
    variable, encodings = coordinate.variable, list(dict.fromkeys(coordinate.encodings.values()))
    if stored is not None:
        yield with_encoding(variable, stored)
        return
    if len(encodings) <= 1:
        yield variable
        return
    units = list(dict.fromkeys(each.units for each in encodings))
    dtype = np.result_type(*(each.dtype for each in encodings))
    attrs = _missing(variable, encodings, dtype)
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


def _missing(variable: VariableSchema, encodings: Sequence[Encoding], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the attributes with the missing values of a coordinate whose files have these encodings."""
    if len({each.missing for each in encodings}) == 1:
        return {name: variable.attrs[name] for name in MISSING if name in variable.attrs}
    if dtype.kind == "f":
        return {"_FillValue": float("nan")}
    return {"_FillValue": next(number for each in encodings for number in each.missing)}


def _inexact(inspection: Inspection, family: Family, variable: VariableSchema, units: TimeUnits) -> bool:
    """Return whether some labels, or values of a scalar, have no exact conversion."""
    files, name = family.files, variable.name
    if name in inspection.scalars:
        files = files[[each is not None for each in inspection.scalars[name][files]]]
        return bool(scalar_values(inspection, name, files, units)[1].any())
    if name != inspection.dim or family.layout.adds_axis:
        return False
    rows = rows_of(inspection.label_start, files)
    codes = np.repeat(inspection.encodings[files], np.diff(inspection.label_start)[files])
    return bool(in_units(inspection.labels[rows], codes, variable, units)[1].any())


def in_units(
    values: NDArray[Any], codes: NDArray[np.int64], variable: VariableSchema, units: TimeUnits
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return values of many files in the encoding of the dataset, and a mask of the inexact ones.

    ``codes`` are codes of `Inspection.encodings`.
    """
    with np.errstate(invalid="ignore"):
        result = values.astype(variable.dtype)
    wrong = np.zeros(len(values), np.bool_)
    if not len(values):
        return result, wrong
    order = np.argsort(codes, kind="stable")
    distinct, first = np.unique(codes[order], return_index=True)
    for code, rows in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
        conversion = units.conversions.get(code, {}).get(variable.name)
        if conversion is not None:
            raw = values[rows].astype(conversion.source.dtype)
            result[rows], wrong[rows] = conversion.apply(raw)
    return result, wrong


def scalar_values(
    inspection: Inspection, name: str, files: NDArray[np.int64], units: TimeUnits
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the values of a scalar in files, and a mask of wrong values, as `in_units` does."""
    variable = units.variables[name]
    raw = variable.dtype if variable.dtype.kind in "TSUO" else None  # numbers keep the width of the files
    column = np.array(inspection.scalars[name][files].tolist(), raw)
    return in_units(column, inspection.encodings[files], variable, units)
