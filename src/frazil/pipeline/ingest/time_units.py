"""One unit for the times of all files, and the scalars of files in the units of the dataset.

Each file may count from its own first day. The dataset has the units of the repository, or else the units of
the first file, or finer units if whole numbers need them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.step_order import Objection
from frazil.pipeline.ingest.time_conversion import (
    SAME,
    Conversion,
    convert_times,
    finest_units,
    is_time,
    unit_conversion,
)
from frazil.readers.reader import VariableSchema


@dataclass(frozen=True, slots=True)
class TimeUnits:
    """The units of the dataset.

    ``variables`` are the variables with their units in the dataset. ``conversions``, by code of
    `Inspection.owns`, convert the times of a file to these units.
    """

    variables: Mapping[str, VariableSchema]
    conversions: Mapping[int, Mapping[str, Conversion]]


def common_units(
    inspection: Inspection, families: Sequence[Family], stored: Mapping[str, str]
) -> tuple[TimeUnits, list[Objection]]:
    """Return the units of all times, and objections to files whose times cannot be converted to them.

    ``stored`` are the units in the repository, by variable.
    """
    variables: dict[str, VariableSchema] = {}
    conversions: dict[int, dict[str, Conversion]] = {}
    objections: list[Objection] = []
    for family in families:
        codes, first = np.unique(inspection.own[family.files], return_index=True)
        codes = codes[np.argsort(first)]
        units = {
            code: {
                name: str(value) for name, attribute, value in inspection.owns[code] if attribute == "units"
            }
            for code in codes.tolist()
        }
        for name in family.layout.variables:
            variable = family.variable(name)
            if is_time(variable.attrs.get("units")):
                mine = list(dict.fromkeys(units[code].get(name, "") for code in codes.tolist()))
                variable = _with_units(variable, mine, stored.get(name))
            variables.setdefault(name, variable)
        for code in codes.tolist():
            file_conversions, texts = _file_conversions(family, units[code], variables)
            if texts:
                where = family.files[inspection.own[family.files] == code]
                objections += [Objection(file, "units", "; ".join(texts)) for file in where.tolist()]
            if file_conversions:
                conversions[code] = file_conversions
    return TimeUnits(variables, conversions), objections


def _file_conversions(
    family: Family, units: Mapping[str, str], variables: Mapping[str, VariableSchema]
) -> tuple[dict[str, Conversion], list[str]]:
    """Return the conversions of files with these units, and texts for times without a conversion."""
    file_conversions: dict[str, Conversion] = {}
    texts = []
    for name, text in units.items():
        if not is_time(text):
            continue
        target = variables[name]
        conversion = unit_conversion(
            text, str(target.attrs["units"]), str(target.attrs.get("calendar", "standard"))
        )
        if conversion is None:
            texts.append(f"{name} is in {text!r}, which cannot be converted to {target.attrs['units']!r}")
        elif conversion != SAME:
            file_conversions[name] = conversion
            bounds = str(target.attrs.get("bounds"))
            if bounds in family.layout.variables and bounds not in units:
                file_conversions[bounds] = conversion
    return file_conversions, texts


def _with_units(variable: VariableSchema, units: list[str], stored: str | None) -> VariableSchema:
    if stored is not None:
        return replace(variable, attrs={**variable.attrs, "units": stored})
    if len(units) == 1 or variable.dtype.kind not in "iu":
        return replace(variable, attrs={**variable.attrs, "units": units[0]})
    calendar = str(variable.attrs.get("calendar", "standard"))
    chosen = finest_units(units, calendar) or units[0]
    dtype = variable.dtype if chosen == units[0] else np.dtype(np.int64)
    return replace(variable, attrs={**variable.attrs, "units": chosen}, dtype=dtype)


def in_units(
    values: NDArray[Any], own: NDArray[np.int32], variable: VariableSchema, units: TimeUnits
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the values of a variable of many files in the units of the dataset, and a mask of wrong values.

    ``own`` are the codes of the files. A value is wrong if the dtype is integer and the value is not whole.
    """
    result = values.astype(variable.dtype)
    wrong = np.zeros(len(values), np.bool_)
    for code in np.unique(own).tolist():
        conversion = units.conversions.get(code, {}).get(variable.name)
        where = own == code
        if conversion is None:
            if variable.dtype.kind in "iu" and values.dtype.kind in "iuf":
                wrong |= where & (result != values)
            continue
        numbers = convert_times(values[where], conversion, variable.dtype)
        if numbers is None:
            wrong |= where
        else:
            result[where] = numbers
    return result, wrong


def scalar_values(
    inspection: Inspection, name: str, files: NDArray[np.int64], units: TimeUnits
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the values of a scalar in files, and a mask of wrong values, as `in_units` does."""
    variable = units.variables[name]
    raw = variable.dtype if variable.dtype.kind in "TSUO" else None  # numbers keep the width of the files
    column = np.array(inspection.scalars[name][files].tolist(), raw)
    return in_units(column, inspection.own[files], variable, units)
