"""Checks the scalars along the dimension, such as a level or a member, against the values of the group."""

from __future__ import annotations

import numpy as np

from frazil.cf_times import is_time_or_duration
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.axis import Axis
from frazil.pipeline.ingest.dataset import same
from frazil.pipeline.ingest.existing import GroupChange
from frazil.pipeline.ingest.families import Family
from frazil.remedies import argument


def retained_scalars(change: GroupChange) -> frozenset[str]:
    """Return the scalars along the dimension whose stored values stay because of ``allow={"values"}``.

    Files with new variables must not change the scalars of variables that the group has, and that no file of
    this call has.
    """
    dataset, existing = change.dataset, change.existing
    dim, retained = dataset.dim, set()
    if dim is None or change.axis is None or len(dataset.steps.start) <= 1:
        return frozenset()
    in_files = {name for family in dataset.families for name in family.layout.variables}
    if not set(existing.arrays_along(dim)) - in_files - {dim}:
        return frozenset()
    for family in dataset.families:
        if family.layout.data & existing.arrays.keys():
            continue
        for name in sorted(family.along & family.layout.individual & existing.arrays.keys() - {dim}):
            if not _differs(change, family, name, change.axis):
                continue
            if "values" not in change.request.allow:
                raise InvalidInputError(
                    f"values of `{existing.path_of(name)}` must be those of the repository, but files with "
                    "new variables have other values",
                    ErrorKind.INVALID_ARRAY_METADATA,
                ).with_remedy(
                    "Ingest these files into another group, or keep the values of the repository with {}",
                    argument(allow={"values"}),
                )
            retained.add(name)
    return frozenset(retained)


def require_same_scalars(change: GroupChange) -> None:
    """Check that steps that are written again have the level, member, ... that the group has for them.

    Times and durations may differ: a later forecast for a step replaces an earlier forecast.
    """
    dataset, existing, axis = change.dataset, change.existing, change.axis
    if axis is None or len(dataset.steps.start) <= 1 or "values" in change.request.allow:
        return
    for family in dataset.families:
        if not family.layout.data & existing.arrays.keys():
            continue
        for name in sorted(family.layout.individual & existing.arrays.keys() - {dataset.dim}):
            variable = family.variable(name)
            if not variable.coordinate or is_time_or_duration(variable.attrs.get("units")):
                continue
            if _differs(change, family, name, axis):
                raise InvalidInputError(
                    f"mode {change.request.mode!r} writes steps again that have another {name} in the "
                    "repository",
                    ErrorKind.INVALID_ARRAY_METADATA,
                ).with_remedy(
                    "To store both, ingest with {} from the first file on, or into another group. {} "
                    "replaces the values",
                    argument(concat_dim=name),
                    argument(allow={"values"}),
                )


def _differs(change: GroupChange, family: Family, name: str, axis: Axis) -> bool:
    """Return whether a scalar of a family differs from the values of the group at the same steps."""
    dataset, steps = change.dataset, change.dataset.steps
    stored = np.asarray(change.existing.arrays[name][...])
    column = dataset.values_by_file(family.files, name)
    if column is None or stored.ndim > 1 or name not in change.inspection.scalars:
        return False
    rows = steps.rows(family.files)
    values = np.repeat(column, steps.counts[family.files])
    placed = steps.at[rows] >= 0
    places, values = axis.new[steps.at[rows[placed]]], values[placed]
    row_of_place = np.full(axis.length, -1, np.int64)
    row_of_place[axis.old] = np.arange(len(axis.old))
    is_stored = row_of_place[places] >= 0
    expected = np.broadcast_to(stored, len(axis.old)) if not stored.ndim else stored
    return not same(expected[row_of_place[places[is_stored]]], values[is_stored]).all()
