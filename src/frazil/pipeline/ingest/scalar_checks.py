"""Checks the scalars along the dimension, such as a level or a member, against the values of the group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import is_time_or_duration
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.axis import Axis
from frazil.pipeline.ingest.dataset import Dataset, same
from frazil.pipeline.ingest.existing import ExistingGroup
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.options import IngestRequest
from frazil.remedies import argument


def retained_scalars(
    request: IngestRequest, dataset: Dataset, existing: ExistingGroup, axis: Axis | None
) -> frozenset[str]:
    """Return the scalars along the dimension whose stored values stay because of ``allow={"values"}``.

    Files with new variables must not change the scalars of variables that the group has, and that no file of
    this call has.
    """
    dim, retained = dataset.dim, set()
    if dim is None or axis is None or len(dataset.steps.start) <= 1:
        return frozenset()
    in_files = {name for family in dataset.families for name in family.layout.variables}
    if not set(existing.arrays_along(dim)) - in_files - {dim}:
        return frozenset()
    for family in dataset.families:
        if family.layout.data & existing.arrays.keys():
            continue
        for name in sorted(family.along & family.layout.individual & existing.arrays.keys() - {dim}):
            stored = np.asarray(existing.arrays[name][...])
            if not _differs(dataset, family, name, axis, stored):
                continue
            if "values" not in request.allow:
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


def require_same_scalars(
    request: IngestRequest, dataset: Dataset, existing: ExistingGroup, axis: Axis | None
) -> None:
    """Check that steps that are written again have the level, member, ... that the group has for them.

    Times and durations may differ: a later forecast for a step replaces an earlier forecast.
    """
    if axis is None or len(dataset.steps.start) <= 1 or "values" in request.allow:
        return
    for family in dataset.families:
        if not family.layout.data & existing.arrays.keys():
            continue
        for name in sorted(family.layout.individual & existing.arrays.keys() - {dataset.dim}):
            variable = family.variable(name)
            if not variable.coordinate or is_time_or_duration(variable.attrs.get("units")):
                continue
            stored = np.asarray(existing.arrays[name][...])
            if _differs(dataset, family, name, axis, stored):
                raise InvalidInputError(
                    f"mode {request.mode!r} writes steps again that have another {name} in the repository",
                    ErrorKind.INVALID_ARRAY_METADATA,
                ).with_remedy(
                    "To store both, ingest with {} from the first file on, or into another group. {} "
                    "replaces the values",
                    argument(concat_dim=name),
                    argument(allow={"values"}),
                )


def _differs(dataset: Dataset, family: Family, name: str, axis: Axis, stored: NDArray[Any]) -> bool:
    """Return whether a scalar of a family differs from the values of the group at the same steps.

    ``stored``: the values of the group, one for all steps or one for each step.
    """
    inspection, steps = dataset.inspection, dataset.steps
    column = dataset.values_by_file(family.files, name)
    if column is None or stored.ndim > 1 or name not in inspection.scalars:
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
