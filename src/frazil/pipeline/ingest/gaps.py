"""Finds gaps: labels that only some variables have, and holes in regular times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import is_time
from frazil.pipeline.ingest.axis import label_text, positions
from frazil.pipeline.ingest.problems import Problem
from frazil.pipeline.ingest.step_order import Steps

#: Labels are regular if at least this share of their distances is within a fifth of the median...
REGULAR: Final = 0.8


#: ... and a distance of more than this many medians is a hole.
HOLE: Final = 1.5


@dataclass(frozen=True, slots=True)
class RefusedSteps:
    """The steps of files that are left out because of problems: they are not missing in the archive.

    ``labels`` has a row for each step with a known label, ``file`` is the number of its file. ``unknown`` is
    the number of steps that files without known labels may have.
    """

    labels: NDArray[Any]
    file: NDArray[np.int64]
    unknown: int = 0


NO_REFUSED_STEPS: Final = RefusedSteps(np.empty(0), np.empty(0, np.int64))


def missing_labels(
    steps: Steps,
    families: Sequence[NDArray[np.int64]],
    names: Sequence[Collection[str]],
    refused: Sequence[NDArray[Any]],
) -> list[Problem]:
    """Return the problems of labels that only some families have.

    ``refused`` are the labels of refused files of each family.
    """
    if steps.axis is None:
        if any(map(len, refused)):
            return []
        lengths = sorted({int(steps.counts[files].sum()) for files in families})
        text = f"variables have {lengths} steps, and without labels it is unknown which steps are missing"
        return [Problem("hole", text)] if len(lengths) > 1 else []
    problems = []
    for files, variables, labels in zip(families, names, refused, strict=True):
        places = np.concatenate([steps.at[steps.rows(files)], positions(steps.axis, labels)])
        absent = np.ones(steps.length, np.bool_)
        absent[places[places >= 0]] = False
        if absent.any():
            first = steps.label_text(steps.axis[np.argmax(absent)])
            text = f"{absent.sum()} labels, from {first} on, are missing for {', '.join(sorted(variables))}"
            problems.append(Problem("hole", text))
    return problems


def holes(
    axis: NDArray[Any] | None,
    units: str | None,
    calendar: str,
    old: NDArray[Any] | None = None,
    *,
    one_file: bool = False,
    refused: RefusedSteps = NO_REFUSED_STEPS,
) -> list[Problem]:
    """Return the holes of a time axis, except holes between two ``old`` labels or within a single file.

    A hole that refused files would fill is no hole: their own problems are reported.
    """
    if axis is None or not is_time(units):
        return []
    if len(refused.labels):
        axis = np.union1d(axis, refused.labels)
    is_old = np.zeros(len(axis), np.bool_) if old is None else np.isin(axis, old)
    problems = []
    missing = 0
    for i, j in gaps(axis):
        stored = is_old[i] and is_old[j]
        inside_file = one_file and not is_old[i] and not is_old[j]
        if not (stored or inside_file):
            before, after = (label_text(axis[at], units, calendar) for at in (i, j))
            problems.append(Problem("hole", f"no step between {before} and {after}"))
            distances = np.abs(np.diff(axis.astype(np.float64)))
            missing += round(distances[i] / np.median(distances)) - 1
    return problems if missing > refused.unknown else []


def gaps(axis: NDArray[Any]) -> list[tuple[int, int]]:
    """Return the indices before and after each gap of an axis that is otherwise regular."""
    if len(axis) < 4 or axis.dtype.kind not in "iuf":
        return []
    distances = np.abs(np.diff(axis.astype(np.float64)))
    median = np.median(distances)
    regular = np.abs(distances - median) <= 0.2 * median
    if regular.mean() < min(REGULAR, 1 - 1.5 / len(distances)):
        return []
    return [(i, i + 1) for i in np.flatnonzero(distances > HOLE * median).tolist()]
