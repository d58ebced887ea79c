"""What files are of one dataset, in which order, and what is wrong with the others.

    families   files with the same data variables, which are like most of them
    units      one unit for the times of all files
    along      the variables that get the dimension: where files do not have it all data, and the scalars that
               differ from file to file
    steps      which step of which file goes where

Each part says what it objects to; `_Judged` leaves these files out, unless the kind is allowed. Nothing here
opens a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.dimension import scalar_dimension
from frazil.pipeline.ingest.families import (
    Family,
    different_grids,
    family_of,
    members_of,
    notes,
    other_coordinates,
    other_packing,
    strangers,
)
from frazil.pipeline.ingest.file_schemas import values_digest
from frazil.pipeline.ingest.inspection import Looked
from frazil.pipeline.ingest.labels import labels_of
from frazil.pipeline.ingest.pattern import Expanded
from frazil.pipeline.ingest.problems import TABLE, Problem
from frazil.pipeline.ingest.shared_coordinates import other_constants, other_steps
from frazil.pipeline.ingest.step_order import (
    NO_STEPS,
    Objection,
    Steps,
    disorder,
    missing,
    overlaps,
    sorted_steps,
    unsorted_steps,
    without_labels,
)
from frazil.pipeline.ingest.time_conversion import Linear
from frazil.pipeline.ingest.time_units import TimeUnits, common_units, scalar_values
from frazil.readers.reader import VariableSchema


@dataclass(frozen=True, slots=True)
class Stored:
    """What the group has of the files' variables: units of times, dimensions, and values of small arrays
    (None for others).
    """

    units: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Callable[[str], NDArray[Any] | None] = lambda name: None


NOTHING_STORED: Final = Stored()


@dataclass(frozen=True, slots=True)
class Combined:
    """Files that are one dataset.

    ``steps`` are those along ``dim``, in the units of the dataset. ``targets`` are the variables with the
    units that they will have; ``moves`` tells by code of `Looked.owns` how times of a file become times in
    these units.
    """

    dim: str | None
    families: tuple[Family, ...]
    steps: Steps
    targets: Mapping[str, VariableSchema]
    moves: Mapping[int, Mapping[str, Linear]]
    problems: tuple[Problem, ...]

    @property
    def labels(self) -> NDArray[Any] | None:
        return self.steps.labels

    @property
    def axis(self) -> NDArray[Any] | None:
        return self.steps.axis

    @property
    def length(self) -> int:
        return self.steps.length

    @property
    def units(self) -> str | None:
        return self.steps.units

    @property
    def calendar(self) -> str:
        return self.steps.calendar


@dataclass(frozen=True, slots=True)
class _Judged:
    """Which files are good so far, and what is wrong with the others."""

    looked: Looked
    allow: frozenset[str]
    good: NDArray[np.bool_]
    problems: tuple[Problem, ...] = ()

    def without(self, objections: Iterable[Objection]) -> _Judged:
        """Without the files that are objected to; with those whose problem is allowed, and a note of it."""
        good = self.good.copy()
        problems = list(self.problems)
        for each in objections:
            url = self.looked.urls[each.file]
            if each.kind in self.allow:
                text = f"{each.text}: allow={{{each.kind!r}}} {TABLE[each.kind].allowed}"
                problems.append(Problem(each.kind, text, url, fatal=False))
            else:
                good[each.file] = False
                problems.append(Problem(each.kind, each.text, url))
        return replace(self, good=good, problems=tuple(problems))

    def noting(self, problems: Iterable[Problem]) -> _Judged:
        return replace(self, problems=(*self.problems, *problems))

    def of(self, files: NDArray[np.int64]) -> NDArray[np.int64]:
        return files[self.good[files]]

    def families(self, families: Sequence[Family]) -> list[Family]:
        left = [replace(family, files=self.of(family.files)) for family in families]
        return [family for family in left if len(family.files)]


def combine(
    looked: Looked,
    files: Expanded,
    dim: str | None,
    *,
    unpack: bool = False,
    only: NDArray[np.bool_] | None = None,
    allow: frozenset[str] = frozenset(),
    stored: Stored = NOTHING_STORED,
) -> Combined:
    """Put the files together; those with a fatal problem are left out.

    ``dim`` is the dimension in which files follow each other; if None, a scalar coordinate that differs from
    file to file becomes one. ``only`` says which files count. ``allow`` are kinds that are tolerated.

    Raises ``InvalidInputError`` (``invalid-key``) for a dimension that there cannot be.
    """
    good = looked.layout >= 0 if only is None else (looked.layout >= 0) & only
    judged = _Judged(looked, allow, good)
    families: list[Family] = []
    for members in members_of(looked, good):
        judged = judged.without(strangers(looked, members))
        judged = judged.without(other_coordinates(looked, judged.of(members)))
        if not unpack:
            judged = judged.without(other_packing(looked, judged.of(members)))
        if len(left := judged.of(members)):
            families.append(family_of(looked, left, individual=dim is None))
    units, objections = common_units(looked, families, stored.units)
    judged = judged.without(objections)
    families = judged.families(families)
    if dim is None and (dim := scalar_dimension(looked, families, units)) is not None:
        families = [family_of(looked, family.files, individual=False) for family in families]
    if dim is None:
        judged = judged.without(_more_than_one(families))
        judged, families = _agreeing(judged, judged.families(families), units)
        steps = NO_STEPS
    else:
        _require_dimension(families, dim)
        families = _along(looked, families, dim, units, stored, bool(files.keys))
        judged, families = _agreeing(judged, families, units)
        growing = [family for family in families if _grows(family, dim)]
        labels, units, objections = labels_of(looked, growing, files, dim, units)
        judged = judged.without(objections)
        growing = judged.families(growing)
        if labels is None:
            length = np.where(judged.good, looked.length, 0)
            steps = without_labels(length, [family.files for family in growing], files.position)
            judged = judged.without(other_steps(looked, growing, units, steps.start, steps.at))
            growing = judged.families(growing)
            steps = without_labels(length, [family.files for family in growing], files.position)
        else:
            if labels.labels is not None:
                judged = judged.without(other_steps(looked, growing, units, labels.start, labels.labels))
            growing = judged.families(growing)
            steps, judged = _placed(judged, labels, growing)
        families = judged.families(families)
        growing = judged.families(growing)
        gaps = missing(steps, [each.files for each in growing], [each.layout.data for each in growing])
        judged = judged.noting(_allowed(gaps, allow))
    for family in families:
        judged = judged.noting(notes(looked, family))
    return Combined(dim, tuple(families), steps, units.targets, units.moves, judged.problems)


def _agreeing(judged: _Judged, families: Sequence[Family], units: TimeUnits) -> tuple[_Judged, list[Family]]:
    """The families without those that have other values of what they share with earlier ones."""
    judged = judged.without(different_grids(families, judged.looked))
    left = judged.families(families)
    judged = judged.without(other_constants(judged.looked, left, units))
    return judged, judged.families(left)


def _allowed(problems: Iterable[Problem], allow: frozenset[str]) -> list[Problem]:
    return [replace(each, fatal=each.fatal and each.kind not in allow) for each in problems]


def _more_than_one(families: Sequence[Family]) -> list[Objection]:
    """Without a dimension a family is one file."""
    text = (
        "has the variables of an earlier file, and no dimension or scalar coordinate tells where it follows: "
        "concat_dim='file' (--concat-dim file), or any new name, stacks files in the order given"
    )
    return [Objection(file, "dims", text) for family in families for file in family.files[1:].tolist()]


def _require_dimension(families: Sequence[Family], dim: str) -> None:
    for family in families:
        variable = family.layout.variables.get(dim)
        if variable is not None and variable.dims not in ((), (dim,)):
            raise InvalidInputError(
                f"concat_dim: expected a dimension, a scalar or a new name, found the variable {dim!r} with "
                f"dimensions {', '.join(variable.dims)}",
                ErrorKind.INVALID_KEY,
            )


# Along


def _along(
    looked: Looked, families: Sequence[Family], dim: str, units: TimeUnits, stored: Stored, keys: bool
) -> list[Family]:
    """The families with what gets the dimension. A file with other variables and without any label of the
    dimension is merged as it is.
    """
    names = {name for family in families for name in family.layout.individual} - {dim}
    different = {name for name in names if _differs(looked, families, name, dim, units, stored)}
    has_labels = keys or any(dim in family.layout.variables for family in families)
    result = []
    for family in families:
        layout = family.layout
        stacks = layout.adds_axis and (
            dim in layout.variables or keys or not has_labels or len(family.files) > 1
        )
        data = {name for name, each in layout.variables.items() if not each.coordinate or name == dim}
        goes_on = stacks or not layout.adds_axis
        result.append(family.with_along(dim, (different if goes_on else set()) | (data if stacks else set())))
    return result


def _differs(
    looked: Looked, families: Sequence[Family], name: str, dim: str, units: TimeUnits, stored: Stored
) -> bool:
    """Whether an individual variable has several values, or is along the dimension in the group already."""
    if dim in stored.dims.get(name, ()):
        return True
    present = stored.values(name)
    for family in families:
        variable = family.layout.variables.get(name)
        if variable is None or name not in family.layout.individual:
            continue
        if not variable.dims:
            values, wrong = scalar_values(looked, name, family.files, units)
            first = values[0] if present is None else present.reshape(-1)[0]
            if wrong.any() or not _same(values, first).all():
                return True
            continue
        codes, rows = np.unique(looked.individual[family.files], return_inverse=True)
        digests = np.array([dict(looked.individuals[code])[name] for code in codes.tolist()])[rows]
        line = any(name in units.moves.get(code, {}) for code in np.unique(looked.own[family.files]).tolist())
        if line or (digests != (digests[0] if present is None else values_digest(present))).any():
            return True
    return False


def _same(values: NDArray[Any], first: Any) -> NDArray[np.bool_]:
    if values.dtype.kind == "f":
        close: NDArray[np.bool_] = np.isclose(values, first, rtol=0, atol=0, equal_nan=True)
        return close
    same: NDArray[np.bool_] = np.asarray(values == first, np.bool_)
    return same


# Steps


def _grows(family: Family, dim: str) -> bool:
    """Whether the dimension goes on in a family: its files have it, or their data get it."""
    return not family.layout.adds_axis or any(dim in each.dims for each in family.layout.variables.values())


def _placed(judged: _Judged, steps: Steps, growing: Sequence[Family]) -> tuple[Steps, _Judged]:
    """The steps in their places, without the files that have none."""
    mixed = disorder(steps, judged.good)
    alone = all(len(family.files) == 1 for family in growing)
    if (
        mixed
        and alone
        and (placed := unsorted_steps(steps, [family.files for family in growing])) is not None
    ):
        return placed, judged
    before, judged = judged, judged.without(mixed)
    growing = judged.families(growing)
    for family in growing:
        judged = judged.without(overlaps(steps, family.files, judged.looked.urls, judged.looked.contents))
    growing = judged.families(growing)
    if not growing:
        return NO_STEPS, judged
    files = [family.files for family in growing]
    if not mixed or "unordered" not in judged.allow:
        return sorted_steps(steps, files), judged
    placed = unsorted_steps(steps, files)
    if placed is None:  # nothing tells which steps of several families belong together
        return _placed(replace(before, allow=before.allow - {"unordered"}), steps, growing)
    return placed, judged
