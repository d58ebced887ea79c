"""The labels of steps: a coordinate of each file, a scalar of each file, or the keys of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.pattern import SourceFiles
from frazil.pipeline.ingest.step_order import Objection, Steps, labelled_steps, rows_of
from frazil.pipeline.ingest.time_conversion import Encoding, inexact_text
from frazil.pipeline.ingest.time_units import TimeUnits, in_units, scalar_values
from frazil.readers.reader import VariableSchema


def labels_of(
    inspection: Inspection, families: Sequence[Family], dim: str, units: TimeUnits
) -> tuple[Steps | None, TimeUnits, list[Objection]]:
    """Return the steps of these families with labels and without positions; None if steps have no labels.

    Also returns the units with the variable of the labels, and objections to files that do not have one label
    for each step.
    """
    files = inspection.files
    variable = units.variables.get(dim)
    if variable is not None and any(_has_labels(inspection, family, dim) for family in families):
        steps, objections = _from_files(inspection, families, variable, units)
        return steps, units, objections
    if not families or not files.keys or files.position is None:
        return None, units, []
    if (inspection.length[np.concatenate([family.files for family in families])] != 1).any():
        return None, units, []
    labels, variable = _from_keys(files, dim)
    steps = _steps(np.arange(len(inspection.urls) + 1), labels, variable, families)
    return steps, replace(units, variables={**units.variables, dim: variable}), []


def _has_labels(inspection: Inspection, family: Family, dim: str) -> bool:
    if family.layout.adds_axis:
        return dim in family.layout.variables
    return bool((np.diff(inspection.label_start)[family.files] > 0).any())


def _steps(
    start: NDArray[np.int64], labels: NDArray[Any], variable: VariableSchema, families: Sequence[Family]
) -> Steps:
    counted = np.zeros(len(start) - 1, np.bool_)
    for family in families:
        counted[family.files] = True
    calendar = str(variable.attrs.get("calendar", "standard"))
    return labelled_steps(start, labels, variable.attrs.get("units"), calendar, counted)


def _from_files(
    inspection: Inspection, families: Sequence[Family], variable: VariableSchema, units: TimeUnits
) -> tuple[Steps, list[Objection]]:
    raw_counts = np.diff(inspection.label_start)
    counts = np.zeros(len(inspection.urls), np.int64)
    for family in families:
        counts[family.files] = 1 if family.layout.adds_axis else raw_counts[family.files]
    start = np.concatenate([[0], np.cumsum(counts)])
    labels = np.zeros(int(start[-1]), variable.dtype)
    objections: list[Objection] = []
    for family in families:
        mine, rows = family.files, rows_of(start, family.files)
        if not family.layout.adds_axis:
            raw = inspection.labels[rows_of(inspection.label_start, mine)]
            own = np.repeat(inspection.encodings[mine], counts[mine])
            labels[rows], wrong = in_units(raw, own, variable, units)
            objections += _inexact(variable, np.repeat(mine, counts[mine])[wrong], raw[wrong])
        elif _has_labels(inspection, family, variable.name):
            labels[rows], wrong = scalar_values(inspection, variable.name, mine, units)
            objections += _inexact(variable, mine[wrong], inspection.scalars[variable.name][mine][wrong])
        else:
            text = f"has no {variable.name}, and another file without it has the same variables"
            objections += [Objection(file, "dims", text) for file in mine.tolist()]
            continue
        objections += [
            Objection(
                file, "dims", f"{variable.name} has {counts[file]} labels for {inspection.length[file]} steps"
            )
            for file in mine[counts[mine] != inspection.length[mine]].tolist()
        ]
    return _steps(start, labels, variable, families), objections


def _inexact(variable: VariableSchema, files: NDArray[np.int64], values: NDArray[Any]) -> list[Objection]:
    """Return objections to files (in order, a row for each value) with values that cannot be converted."""
    encoding = Encoding.of(variable.dtype, variable.attrs)
    files, first = np.unique(files, return_index=True)
    kind = "units" if encoding.units else "dtype"
    rows = zip(files.tolist(), values[first].tolist(), strict=True)
    return [Objection(file, kind, inexact_text(variable.name, value, encoding)) for file, value in rows]


def _from_keys(files: SourceFiles, dim: str) -> tuple[NDArray[Any], VariableSchema]:
    """Return a label for each file, and the variable of these labels."""
    keys, attrs = list(files.keys), {}
    if all(isinstance(key, date) for key in keys):
        moments = [
            key if isinstance(key, datetime) else datetime(key.year, key.month, key.day) for key in keys
        ]
        attrs = {"units": f"seconds since {moments[0]}", "calendar": "proleptic_gregorian"}
        keys = [round((moment - moments[0]).total_seconds()) for moment in moments]
    values = np.asarray(keys)
    if values.dtype.kind in "UO":
        values = np.array([str(key) for key in keys], np.dtypes.StringDType())
    labels = values[files.position] if files.position is not None else values
    return labels, VariableSchema(dim, (dim,), (-1,), values.dtype, attrs, coordinate=True)
