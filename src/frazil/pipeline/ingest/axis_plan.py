"""Plans the axis of the dataset: the labels of the group and of the files, in order."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError
from frazil.pipeline.ingest.arrays import read_labels
from frazil.pipeline.ingest.axis import Axis, place_labels
from frazil.pipeline.ingest.existing import GroupChange, axis_of
from frazil.pipeline.ingest.existing_checks import require_dimension
from frazil.pipeline.ingest.gaps import holes
from frazil.pipeline.ingest.problems import Problem
from frazil.remedies import argument


def plan_axis(change: GroupChange, changed: NDArray[np.bool_]) -> tuple[Axis | None, list[Problem]]:
    """Return the axis and its gaps. The axis is None if files do not follow each other.

    ``changed`` is a mask of the files that were ingested with other contents.
    """
    request, dataset, existing = change.request, change.dataset, change.existing
    dim, mode, steps = dataset.dim, request.mode, dataset.steps
    _require_no_arrays(change)
    require_dimension(change)
    if dim is None or not dataset.families:
        return None, []
    arrays = [existing.arrays[name] for name in existing.arrays_along(dim)]
    length = max((array.shape[axis_of(array, dim)] for array in arrays), default=0)
    if dataset.labels is None or dataset.axis is None:
        if steps.length and length and (mode not in ("create", "append") or dim in existing.arrays):
            raise InvalidInputError(
                f"mode {mode!r} needs labels of {dim} in the files, as `/{existing.path}` has them, but the "
                "files have none",
                ErrorKind.INVALID_ARGUMENT,
            )
        return Axis.after(length, steps.length), []
    if dim in existing.arrays:
        old = read_labels(existing.arrays[dim])
    elif length:
        raise InvalidInputError(
            f"`/{existing.path}` must have labels of {dim}, as the files have them, but it has none. Ingest "
            "the files into another group",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    else:
        old = dataset.axis[:0]
        mode = "create" if mode != "insert" else mode
    place_on_axis = partial(
        place_labels,
        descending=steps.descending,
        in_order=steps.in_order,
        units=steps.units,
        calendar=steps.calendar,
    )
    if changed.any() and request.on_change == "rewrite":
        # The group has the labels of changed files. The mode applies to all other labels.
        places = steps.at[np.repeat(changed, steps.counts)]
        fresh = np.ones(steps.length, np.bool_)
        fresh[places[places >= 0]] = False
        if fresh.any():
            place_on_axis(mode, old, dataset.axis[fresh])
        mode = "backfill" if mode == "backfill" else "upsert"
    axis = place_on_axis(mode, old, dataset.axis)
    one_file, refused = dataset.one_file_each, dataset.refused
    return axis, holes(axis.labels, steps.units, steps.calendar, old, one_file=one_file, refused=refused)


def _require_no_arrays(change: GroupChange) -> None:
    """Raise an error if the mode is "create" and the group has an array of the files."""
    request, dataset, existing = change.request, change.dataset, change.existing
    names = {name for family in dataset.families for name in family.layout.variables}
    clash = sorted(names & existing.arrays.keys())
    if request.mode == "create" and clash:
        raise AlreadyExistsError(
            f"mode 'create' needs a group without the arrays of the files, but `/{existing.path}` has "
            f"`{clash[0]}`"
        ).with_remedy(
            "Add new files with {}. Modes 'insert', 'upsert' and 'backfill' also replace values",
            argument(mode="append"),
        )
