"""The labels of the steps of files: those that files have, a scalar of each, or the keys of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.inspection import Looked
from frazil.pipeline.ingest.pattern import Expanded
from frazil.pipeline.ingest.step_order import Objection, Steps, labelled, rows_of
from frazil.pipeline.ingest.time_units import TimeUnits, in_units, scalar_values
from frazil.readers.reader import VariableSchema


def labels_of(
    looked: Looked, growing: Sequence[Family], files: Expanded, dim: str, units: TimeUnits
) -> tuple[Steps | None, TimeUnits, list[Objection]]:
    """The steps of these families with their labels, in no place yet; None if steps have no labels.

    The units are those given with the variable of the labels, and the objections are to files whose labels
    are not one for each step.
    """
    variable = units.targets.get(dim)
    if variable is not None and any(_has_labels(looked, family, dim) for family in growing):
        steps, objections = _from_files(looked, growing, variable, units)
        return steps, units, objections
    if not growing or not files.keys or files.position is None:
        return None, units, []
    if (looked.length[np.concatenate([family.files for family in growing])] != 1).any():
        return None, units, []
    labels, variable = _from_keys(files, dim)
    steps = _steps(np.arange(len(looked.urls) + 1), labels, variable, growing)
    return steps, replace(units, targets={**units.targets, dim: variable}), []


def _has_labels(looked: Looked, family: Family, dim: str) -> bool:
    if family.layout.adds_axis:
        return dim in family.layout.variables
    return bool((np.diff(looked.label_start)[family.files] > 0).any())


def _steps(
    start: NDArray[np.int64], labels: NDArray[Any], variable: VariableSchema, growing: Sequence[Family]
) -> Steps:
    counted = np.zeros(len(start) - 1, np.bool_)
    for family in growing:
        counted[family.files] = True
    calendar = str(variable.attrs.get("calendar", "standard"))
    return labelled(start, labels, variable.attrs.get("units"), calendar, counted)


def _from_files(
    looked: Looked, growing: Sequence[Family], variable: VariableSchema, units: TimeUnits
) -> tuple[Steps, list[Objection]]:
    raw_counts = np.diff(looked.label_start)
    counts = np.zeros(len(looked.urls), np.int64)
    for family in growing:
        counts[family.files] = 1 if family.layout.adds_axis else raw_counts[family.files]
    start = np.concatenate([[0], np.cumsum(counts)])
    labels = np.zeros(int(start[-1]), variable.dtype)
    objections: list[Objection] = []
    for family in growing:
        mine, rows = family.files, rows_of(start, family.files)
        if not family.layout.adds_axis:
            raw = looked.labels[rows_of(looked.label_start, mine)]
            own = np.repeat(looked.own[mine], counts[mine])
            labels[rows], wrong = in_units(raw, own, variable, units)
            wrong = np.isin(mine, np.repeat(mine, counts[mine])[wrong])
        elif _has_labels(looked, family, variable.name):
            labels[rows], wrong = scalar_values(looked, variable.name, mine, units)
        else:
            text = f"has no {variable.name}, and the variables of another file without it"
            objections += [Objection(file, "dims", text) for file in mine.tolist()]
            continue
        objections += _not_whole(variable, mine[wrong])
        objections += [
            Objection(
                file, "dims", f"{variable.name} has {counts[file]} labels for {looked.length[file]} steps"
            )
            for file in mine[counts[mine] != looked.length[mine]].tolist()
        ]
    return _steps(start, labels, variable, growing), objections


def _not_whole(variable: VariableSchema, files: NDArray[np.int64]) -> list[Objection]:
    text = f"its {variable.name} is not a whole number of {variable.attrs.get('units')!r}"
    return [Objection(file, "units", text) for file in files.tolist()]


def _from_keys(files: Expanded, dim: str) -> tuple[NDArray[Any], VariableSchema]:
    """A label for each file, and the variable that they make."""
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
