"""Finds the inspected files that are one dataset, their order, and the problems of the other files.

    families            files with the same data variables; files that differ from most of them are left out
    time_units          one unit for the times of all files
    stacked_variables   the variables that get the dimension in which files follow each other
    labels, step_order  the position of each step of each file

Each part returns objections to files. `Verdicts` leaves these files out, unless ``allow`` tolerates the kind.
No file is opened here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.dimension import scalar_dimension
from frazil.pipeline.ingest.families import (
    Family,
    different_coordinates,
    different_grids,
    different_layouts,
    different_packing,
    family_notes,
    family_of,
    members_of,
)
from frazil.pipeline.ingest.gaps import NO_REFUSED_STEPS, RefusedSteps, missing_labels
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.labels import labels_of
from frazil.pipeline.ingest.problems import Problem
from frazil.pipeline.ingest.shared_coordinates import different_constants, different_steps
from frazil.pipeline.ingest.stacked_variables import (
    NO_STORED_VARIABLES,
    StoredVariables,
    has_dimension,
    stacked_families,
)
from frazil.pipeline.ingest.step_order import (
    NO_STEPS,
    Objection,
    Steps,
    order_objections,
    overlap_objections,
    sorted_steps,
    unlabelled_steps,
    unsorted_steps,
)
from frazil.pipeline.ingest.time_conversion import Conversion
from frazil.pipeline.ingest.time_units import TimeUnits, common_units
from frazil.pipeline.ingest.verdicts import Verdicts
from frazil.readers.reader import VariableSchema


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The families of files that are one dataset.

    ``dim`` is the dimension in which files follow each other, None if there is none. ``steps`` are the steps
    along it, in the units of the dataset. ``problems`` are the problems of files that are left out, and
    notes. ``refused`` are the steps of these files.
    """

    inspection: Inspection
    dim: str | None
    families: tuple[Family, ...]
    steps: Steps
    units: TimeUnits
    problems: tuple[Problem, ...]
    refused: RefusedSteps = NO_REFUSED_STEPS

    @property
    def variables(self) -> Mapping[str, VariableSchema]:
        """The variables of the dataset, with their units in the dataset."""
        return self.units.variables

    @property
    def conversions(self) -> Mapping[int, Mapping[str, Conversion]]:
        """The conversions of coordinates, see `TimeUnits`."""
        return self.units.conversions

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels of all steps of all files; None if steps have no labels."""
        return self.steps.labels

    @property
    def axis(self) -> NDArray[Any] | None:
        """The labels of the dataset; None if steps have no labels."""
        return self.steps.axis

    @property
    def members(self) -> NDArray[np.bool_]:
        """A mask of the files that are in a family."""
        mask = np.zeros(len(self.inspection.urls), np.bool_)
        for family in self.families:
            mask[family.files] = True
        return mask

    @property
    def one_file_each(self) -> bool:
        """Whether each family is a single file."""
        return all(len(family.files) == 1 for family in self.families)


def reconcile(
    inspection: Inspection,
    *,
    unpack: bool = False,
    only: NDArray[np.bool_] | None = None,
    allow: frozenset[str] = frozenset(),
    stored: StoredVariables = NO_STORED_VARIABLES,
) -> Reconciliation:
    """Find the families of the inspected files. Files with a fatal problem are left out.

    If the files were inspected without a dimension, a scalar coordinate that differs from file to file
    becomes the dimension. ``only`` is a mask of the files to use. ``allow`` are the tolerated kinds.
    """
    opened = inspection.layout >= 0
    candidates = opened if only is None else opened & only
    verdicts = Verdicts(inspection, allow, candidates)
    refused = NO_REFUSED_STEPS
    families, verdicts = _families(verdicts, unpack=unpack)
    units, objections = common_units(inspection, families, stored.variables)
    verdicts = verdicts.after(objections)
    families = verdicts.good_families(families)
    dim = inspection.dim or scalar_dimension(inspection, families, units)
    if dim is None:
        verdicts = verdicts.after(_more_than_one(families))
        families, verdicts = _agreeing(verdicts, verdicts.good_families(families), units)
        steps = NO_STEPS
    else:
        if inspection.dim is None:
            families = [family_of(inspection, family.files, individual=False) for family in families]
        _require_dimension(families, dim)
        families = stacked_families(inspection, families, dim, units, stored)
        families, verdicts = _agreeing(verdicts, families, units)
        steps, units, verdicts = _ordered(verdicts, families, dim, units)
        families = verdicts.good_families(families)
        following = [family for family in families if has_dimension(family, dim)]
        refused = _refused_steps(inspection, candidates & ~verdicts.good, dim, units)
        data = [family.layout.data for family in following]
        gaps = missing_labels(
            steps,
            [each.files for each in following],
            data,
            [_labels_with(inspection, refused, names) for names in data],
        )
        verdicts = verdicts.with_problems(
            replace(each, fatal=each.fatal and each.kind not in allow) for each in gaps
        )
    for family in families:
        verdicts = verdicts.with_problems(family_notes(inspection, family))
    return Reconciliation(inspection, dim, tuple(families), steps, units, verdicts.problems, refused)


def _refused_steps(
    inspection: Inspection, files: NDArray[np.bool_], dim: str, units: TimeUnits
) -> RefusedSteps:
    """Return the steps of refused files (a mask), and of the files that could not be opened."""
    stored = StoredVariables({dim: units.variables[dim]} if dim in units.variables else {})
    unknown = len(inspection.problems)
    labels, numbers = [np.empty(0)], [np.empty(0, np.int64)]
    for code in np.unique(inspection.layout[files]).tolist() if inspection.dim is not None else ():
        mine = files & (inspection.layout == code)
        steps, unusable = labels_of_files(inspection, mine, stored)
        if steps is None or steps.labels is None:
            unusable = mine
        else:
            usable = np.flatnonzero(mine & ~unusable)
            labels.append(steps.labels[steps.rows(usable)])
            numbers.append(np.repeat(usable, steps.counts[usable]))
        unknown += int((mine & unusable).sum())
    if all(each.dtype.kind in "iuf" for each in labels):
        return RefusedSteps(
            np.concatenate(labels), np.concatenate(numbers), unknown * int(inspection.length.max(initial=0))
        )
    return RefusedSteps(NO_REFUSED_STEPS.labels, NO_REFUSED_STEPS.file, unknown)


def _labels_with(inspection: Inspection, refused: RefusedSteps, names: Collection[str]) -> NDArray[Any]:
    """Return the labels of refused files with one of these variables."""
    codes = [code for code, each in enumerate(inspection.layouts) if not each.data.isdisjoint(names)]
    return refused.labels[np.isin(inspection.layout[refused.file], codes)]


def labels_of_files(
    inspection: Inspection, files: NDArray[np.bool_], stored: StoredVariables
) -> tuple[Steps | None, NDArray[np.bool_]]:
    """Return the labels of some files (a mask) in the units of the group, and a mask of unusable files.

    The labels are None if these files have none. ``inspection`` must be along a dimension.
    """
    dim = inspection.dim
    assert dim is not None
    families = [family_of(inspection, members, individual=False) for members in members_of(inspection, files)]
    units, objections = common_units(inspection, families, stored.variables)
    families = stacked_families(inspection, families, dim, units, stored)
    following = [family for family in families if has_dimension(family, dim)]
    steps, _, more = labels_of(inspection, following, dim, units)
    unusable = np.zeros(len(inspection.urls), np.bool_)
    unusable[[each.file for each in (*objections, *more)]] = True
    return steps, unusable


# The families


def _families(verdicts: Verdicts, *, unpack: bool) -> tuple[list[Family], Verdicts]:
    """Find the files with the same data variables, without the files that differ from most of them."""
    inspection = verdicts.inspection
    families: list[Family] = []
    for members in members_of(inspection, verdicts.good):
        verdicts = verdicts.after(different_layouts(inspection, members))
        verdicts = verdicts.after(different_coordinates(inspection, verdicts.good_of(members)))
        if not unpack:
            verdicts = verdicts.after(different_packing(inspection, verdicts.good_of(members)))
        if len(remaining := verdicts.good_of(members)):
            families.append(family_of(inspection, remaining, individual=inspection.dim is None))
    return families, verdicts


def _agreeing(
    verdicts: Verdicts, families: Sequence[Family], units: TimeUnits
) -> tuple[list[Family], Verdicts]:
    """Leave out families whose shared variables have other values than in earlier families."""
    verdicts = verdicts.after(different_grids(families, verdicts.inspection))
    remaining = verdicts.good_families(families)
    verdicts = verdicts.after(different_constants(verdicts.inspection, remaining, units))
    return verdicts.good_families(remaining), verdicts


def _more_than_one(families: Sequence[Family]) -> list[Objection]:
    """Return objections to all files of a family except the first, if there is no dimension."""
    text = (
        "has the variables of an earlier file, and no dimension or scalar coordinate decides their order. A "
        "new name as the dimension stacks files in the order of the call"
    )
    return [Objection(file, "dims", text) for family in families for file in family.files[1:].tolist()]


def _require_dimension(families: Sequence[Family], dim: str) -> None:
    for family in families:
        variable = family.layout.variables.get(dim)
        if variable is not None and variable.dims not in ((), (dim,)):
            raise InvalidInputError(
                f"concat_dim must be a dimension, a scalar or a new name, got {dim!r}, a variable with the "
                f"dimensions {', '.join(variable.dims)}",
                ErrorKind.INVALID_ARGUMENT,
            )


# The steps


def _ordered(
    verdicts: Verdicts, families: Sequence[Family], dim: str, units: TimeUnits
) -> tuple[Steps, TimeUnits, Verdicts]:
    """Return the steps of families with their positions, without files whose steps have no position."""
    inspection = verdicts.inspection
    following = [family for family in families if has_dimension(family, dim)]
    labels, units, objections = labels_of(inspection, following, dim, units)
    verdicts = verdicts.after(objections)
    following = verdicts.good_families(following)
    if labels is None:
        steps, verdicts = _in_file_order(verdicts, following, units)
        return steps, units, verdicts
    if labels.labels is not None:
        verdicts = verdicts.after(different_steps(inspection, following, units, labels.start, labels.labels))
    steps, verdicts = _in_label_order(verdicts, labels, verdicts.good_families(following))
    return steps, units, verdicts


def _in_file_order(
    verdicts: Verdicts, following: Sequence[Family], units: TimeUnits
) -> tuple[Steps, Verdicts]:
    """Return steps without labels, one file after the other."""
    inspection = verdicts.inspection
    length = np.where(verdicts.good, inspection.length, 0)
    position = inspection.files.position
    steps = unlabelled_steps(length, [family.files for family in following], position)
    verdicts = verdicts.after(different_steps(inspection, following, units, steps.start, steps.at))
    remaining = verdicts.good_families(following)
    return unlabelled_steps(length, [family.files for family in remaining], position), verdicts


def _in_label_order(verdicts: Verdicts, steps: Steps, following: Sequence[Family]) -> tuple[Steps, Verdicts]:
    """Return steps in the order of their labels, or of the files if a file is alone or ``allow`` permits."""
    mixed = order_objections(steps, verdicts.good)
    if mixed and all(len(family.files) == 1 for family in following):
        in_place = unsorted_steps(steps, [family.files for family in following])
        if in_place is not None:
            return in_place, verdicts
    before, verdicts = verdicts, verdicts.after(mixed)
    remaining = verdicts.good_families(following)
    inspection = verdicts.inspection
    for family in remaining:
        verdicts = verdicts.after(
            overlap_objections(steps, family.files, inspection.urls, inspection.contents)
        )
    remaining = verdicts.good_families(remaining)
    files = [family.files for family in remaining]
    if not files:
        return NO_STEPS, verdicts
    if not mixed or "unordered" not in verdicts.allow:
        return sorted_steps(steps, files), verdicts
    in_place = unsorted_steps(steps, files)
    if in_place is None:  # it is unknown which steps of several families belong together
        return _in_label_order(replace(before, allow=before.allow - {"unordered"}), steps, remaining)
    return in_place, verdicts
