"""The inspected files as one dataset: which files are in it, in which order, and the problems of the others.

`Dataset.reconcile` takes these steps. Each step leaves out the files that do not fit, unless ``allow``
tolerates the kind of their problem. No file is opened here.

    families     files with the same data variables, without files that differ from most of them
    encodings    one encoding for each coordinate: units of times, dtype, missing values
    dimension    the dimension in which files follow each other, if the caller does not name it
    stacking     the variables that get this dimension
    agreement    families with different variables share their other coordinates
    steps        the position of each step of each file
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import is_time
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.encodings import Encoding, Encodings, inexact_text
from frazil.pipeline.ingest.families import (
    Family,
    different_coordinates,
    different_grids,
    different_layouts,
    different_packing,
    family_notes,
    family_of,
    members_of,
    problems_of,
)
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.layouts import values_digest
from frazil.pipeline.ingest.options import SourceFiles
from frazil.pipeline.ingest.problems import TABLE, FileProblem, Problem
from frazil.pipeline.ingest.steps import (
    NO_REFUSED_STEPS,
    NO_STEPS,
    RefusedSteps,
    Steps,
    labelled_steps,
    missing_labels,
    order_problems,
    overlap_problems,
    rows_of,
    sorted_steps,
    unlabelled_steps,
    unsorted_steps,
)
from frazil.readers.file_schema import VariableSchema
from frazil.remedies import argument

#: Scalars in which files usually follow each other, with their rank: by name, then by CF's standard name.
_NAMES: Final = {"time": 0, "forecast_reference_time": 2, "step": 3, "forecast_period": 3, "valid_time": 4}
_STANDARD_NAMES: Final = {"time": 1, "forecast_reference_time": 2, "forecast_period": 3}
_OTHER: Final = 5


@dataclass(frozen=True, slots=True)
class StoredVariables:
    """The arrays of the group, and the values of the small ones, None for others."""

    variables: Mapping[str, VariableSchema] = field(default_factory=dict)
    values: Callable[[str], NDArray[Any] | None] = lambda name: None


NO_STORED_VARIABLES: Final = StoredVariables()


class Dataset:
    """The inspected files as one dataset.

    ``good`` is a mask of the files that are in it, ``problems`` are the problems of files that are left out,
    and notes. ``dim`` is the dimension in which files follow each other, None if there is none. ``steps`` are
    the steps along it, in the units of the dataset, and ``refused`` those of files that are left out.
    """

    def __init__(
        self,
        inspection: Inspection,
        files: NDArray[np.bool_] | None = None,
        allow: frozenset[str] = frozenset(),
    ) -> None:
        opened = inspection.layout >= 0
        self.inspection = inspection
        self.allow = allow
        self.good = opened if files is None else opened & files
        self.problems: list[Problem] = []
        self.encodings = Encodings(inspection)
        self.dim = inspection.dim
        self.steps = NO_STEPS
        self.refused = NO_REFUSED_STEPS
        self._families: list[Family] = []

    @classmethod
    def reconcile(
        cls,
        inspection: Inspection,
        *,
        unpack: bool = False,
        only: NDArray[np.bool_] | None = None,
        allow: frozenset[str] = frozenset(),
        stored: StoredVariables = NO_STORED_VARIABLES,
    ) -> Self:
        """Return the dataset of the inspected files.

        If the files were inspected without a dimension, a scalar coordinate that differs from file to file
        becomes the dimension. ``only`` is a mask of the files to use. ``allow`` are the tolerated kinds.
        """
        dataset = cls(inspection, only, allow)
        candidates = dataset.good
        dataset._find_families(unpack=unpack)
        dataset._leave_out(dataset.encodings.choose(dataset.families, stored.variables))
        dataset.dim = inspection.dim or dataset._scalar_dimension()
        if dataset.dim is None:
            text = (
                "has the variables of an earlier file, and no dimension or scalar coordinate decides their "
                "order. A new name as the dimension stacks files in the order of the call"
            )
            for family in dataset.families:
                dataset._leave_out(problems_of(family.files[1:], "dims", text))
            dataset._require_agreement()
        else:
            if inspection.dim is None:
                families = [family_of(inspection, each.files, individual=False) for each in dataset.families]
                dataset._families = families
            for family in dataset.families:
                variable = family.layout.variables.get(dataset.dim)
                if variable is not None and variable.dims not in ((), (dataset.dim,)):
                    raise InvalidInputError(
                        f"concat_dim must be a dimension, a scalar or a new name, got {dataset.dim!r}, a "
                        f"variable with the dimensions {', '.join(variable.dims)}",
                        ErrorKind.INVALID_ARGUMENT,
                    )
            dataset._stack(dataset.dim, stored)
            dataset._require_agreement()
            dataset._order_steps(dataset.dim)
            dataset._find_refused_steps(candidates & ~dataset.good, dataset.dim)
            dataset._find_missing_labels()
        for family in dataset.families:
            dataset.problems += family_notes(inspection, family)
        return dataset

    @classmethod
    def labelled(cls, inspection: Inspection, files: NDArray[np.bool_], stored: StoredVariables) -> Self:
        """Return some files (a mask) with labels in the units of the group, and without an order.

        ``inspection`` must be along a dimension. Files whose labels cannot be used are left out.
        """
        dataset = cls(inspection, files)
        assert dataset.dim is not None
        dataset._find_members()
        dataset._leave_out(dataset.encodings.choose(dataset.families, stored.variables))
        dataset._stack(dataset.dim, stored)
        dataset.steps = dataset._find_labels(dataset.dim) or NO_STEPS
        return dataset

    @property
    def families(self) -> list[Family]:
        """The families with the files that are in the dataset."""
        if self._families and not all(self.good[each.files].all() for each in self._families):
            some = [replace(each, files=each.files[self.good[each.files]]) for each in self._families]
            self._families = [each for each in some if len(each.files)]
        return self._families

    @property
    def variables(self) -> Mapping[str, VariableSchema]:
        """The variables of the dataset, with their encodings in the dataset."""
        return self.encodings.variables

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

    def values_by_file(self, files: NDArray[np.int64], name: str) -> NDArray[Any] | None:
        """Return a value, or a digest of values, for each file; None if digests of times have other units."""
        inspection = self.inspection
        if name in inspection.scalars and all(each is not None for each in inspection.scalars[name][files]):
            values, inexact = self.encodings.scalars(name, files)
            return np.array(inspection.scalars[name][files].tolist()) if inexact.any() else values
        digests = self._digests(files, name)
        return None if self.encodings.are_converted(name, files) or None in digests else digests

    def _digests(self, files: NDArray[np.int64], name: str) -> NDArray[Any]:
        """Return the digest of an individual variable for each file; None for a file without it."""
        codes, rows = np.unique(self.inspection.individual[files], return_inverse=True)
        digests = [dict(self.inspection.individuals[code]).get(name) for code in codes.tolist()]
        return np.array(digests)[rows]

    # Families

    def _leave_out(self, problems: Iterable[FileProblem]) -> None:
        """Leave out files with a problem. If ``allow`` tolerates it, the file stays, with a note."""
        self.good = self.good.copy()
        for each in problems:
            url = self.inspection.urls[each.file]
            if each.kind in self.allow:
                text = f"{each.text}: `{each.kind}` is allowed, which {TABLE[each.kind].allowed}"
                self.problems.append(Problem(each.kind, text, url, fatal=False))
            else:
                self.good[each.file] = False
                self.problems.append(Problem(each.kind, each.text, url))

    def _find_members(self) -> None:
        """Find the files with the same data variables, with all their differences."""
        members = members_of(self.inspection, self.good)
        self._families = [family_of(self.inspection, files, individual=False) for files in members]

    def _find_families(self, *, unpack: bool) -> None:
        """Find the files with the same data variables, without the files that differ from most of them."""
        inspection = self.inspection
        for members in members_of(inspection, self.good):
            self._leave_out(different_layouts(inspection, members))
            self._leave_out(different_coordinates(inspection, members[self.good[members]]))
            if not unpack:
                self._leave_out(different_packing(inspection, members[self.good[members]]))
            files = members[self.good[members]]
            self._families.append(family_of(inspection, files, individual=inspection.dim is None))

    def _require_agreement(self) -> None:
        """Leave out families whose shared variables have other values than in earlier families."""
        self._leave_out(different_grids(self.families))
        self._leave_out(self._different_constants())

    def _different_constants(self) -> Iterator[FileProblem]:
        """Yield the files whose constant scalars and times differ from an earlier family.

        One array cannot hold the height of 2 m of a temperature and the height of 10 m of a wind.
        """
        expected: dict[str, tuple[Any, bool]] = {}
        for family in self.families:
            mine: dict[str, tuple[Any, bool]] = {}
            for name in sorted(family.layout.individual):
                values = self.values_by_file(family.files[:1], name)
                if values is not None:
                    mine[name] = (values, name in family.along)
            wrong = [
                name
                for name, (values, along) in mine.items()
                if name in expected and (not along or not expected[name][1])
                if along != expected[name][1] or not same(values, expected[name][0]).all()
            ]
            if wrong:
                yield from problems_of(family.files, "values", _OTHER_VALUES.format(", ".join(wrong)))
            else:
                expected = {**mine, **expected}

    # The dimension

    def _scalar_dimension(self) -> str | None:
        """Return the scalar coordinate in which files of one family follow each other; None if none differs.

        It is the first scalar in the order of `_rank` that determines all others: files with the same value
        of this scalar have the same values of the others.
        """
        inspection, families = self.inspection, self.families
        if all(len(family.files) == 1 for family in families):
            unopened = int((inspection.layout < 0).sum()) > len(inspection.problems)  # the group has them
            alone = len(inspection.urls) > 1 and len(families) == 1  # the other files have problems
            return scalar_time(families[0].variables()) if alone and not unopened else None
        differing = self._differing_scalars()
        if not differing:
            return None
        sufficient = [name for name in differing if _determines_others(differing, name)]
        usual = [name for name in sufficient if _rank(self.variables[name]) < _OTHER]
        if usual or len(sufficient) == 1:
            return min(usual or sufficient, key=lambda name: (_rank(self.variables[name]), name))
        counts = ", ".join(
            f"{name} ({max(len(np.unique(column)) for column in columns)} values)"
            for name, columns in differing.items()
        )
        helps = "Choose one with {}: the others become its coordinates"
        if not sufficient:
            helps = (
                "{}, or any new name, makes each file one step with these coordinates. Or ingest files that "
                "differ in only one of them into a group for each"
            )
        raise InvalidInputError(
            f"files must follow each other in one scalar coordinate, but several differ: {counts}",
            ErrorKind.INVALID_ARGUMENT,
        ).with_remedy(helps, argument(concat_dim=sufficient[0] if sufficient else "run"))

    def _differing_scalars(self) -> dict[str, list[NDArray[np.int64]]]:
        """Return the scalar coordinates that differ in a family, with a column of codes for each family."""
        families = [family for family in self.families if len(family.files) > 1]
        names = {
            name: None
            for family in families
            for name in sorted(family.layout.individual)
            if not (variable := family.variable(name)).dims
            if variable.coordinate or (_rank(variable) < _OTHER and is_time(variable.attrs.get("units")))
        }
        result = {}
        for name in names:
            columns = []
            for family in families:
                column = np.zeros(len(family.files), np.int64)
                if name in family.layout.variables and not family.layout.variables[name].dims:
                    values, _ = self.encodings.scalars(name, family.files)
                    column = np.unique(values, return_inverse=True)[1].astype(np.int64)
                columns.append(column)
            if any(column.any() for column in columns):
                result[name] = columns
        return result

    # Stacking

    def _stack(self, dim: str, stored: StoredVariables) -> None:
        """Give variables the dimension: data of files without it, and individual variables that differ.

        A file with other variables and without a label of the dimension is merged without changes.
        """
        families = self.families
        names = {name for family in families for name in family.layout.individual} - {dim}
        different = {name for name in names if self._differs(name, dim, stored)}
        has_keys = bool(self.inspection.files.keys)
        has_labels = has_keys or any(dim in family.layout.variables for family in families)
        self._families = []
        for family in families:
            layout = family.layout
            stacks = layout.adds_axis and (
                dim in layout.variables or has_keys or not has_labels or len(family.files) > 1
            )
            data = {name for name, each in layout.variables.items() if not each.coordinate or name == dim}
            follows = stacks or not layout.adds_axis
            along = (different if follows else set()) | (data if stacks else set())
            self._families.append(family.with_along(dim, along))

    def _differs(self, name: str, dim: str, stored: StoredVariables) -> bool:
        """Return whether an individual variable has several values, or has the dimension in the group."""
        if name in stored.variables and dim in stored.variables[name].dims:
            return True
        expected = stored.values(name)
        for family in self.families:
            if name not in family.layout.variables or name not in family.layout.individual:
                continue
            if not family.layout.variables[name].dims:
                values, inexact = self.encodings.scalars(name, family.files)
                first = values[:1] if expected is None else expected.reshape(-1)[:1]
                if inexact.any() or not same(values, first).all():
                    return True
            else:
                digests = self._digests(family.files, name)
                digest = digests[0] if expected is None else values_digest(expected)
                if self.encodings.are_converted(name, family.files) or (digests != digest).any():
                    return True
        return False

    # The steps

    @property
    def _following(self) -> list[Family]:
        """The families whose files follow each other: they have the dimension, or their data get it."""
        return [
            family
            for family in self.families
            if not family.layout.adds_axis
            or any(self.dim in each.dims for each in family.layout.variables.values())
        ]

    def _order_steps(self, dim: str) -> None:
        """Find the positions of steps, and leave out files whose steps have no position."""
        labels = self._find_labels(dim)
        if labels is None:
            self.steps = self._in_file_order()
            self._leave_out(self._different_steps(self.steps.start, self.steps.at))
            self.steps = self._in_file_order()
        else:
            assert labels.labels is not None
            self._leave_out(self._different_steps(labels.start, labels.labels))
            self.steps = self._in_label_order(labels)

    def _in_file_order(self) -> Steps:
        """Return steps without labels, one file after the other."""
        length = np.where(self.good, self.inspection.length, 0)
        files = [family.files for family in self._following]
        return unlabelled_steps(length, files, self.inspection.files.position)

    def _in_label_order(self, steps: Steps) -> Steps:
        """Return steps in the order of their labels, or of the files for a file alone or with ``allow``."""
        before = self._families, self.good, self.problems.copy()
        mixed = order_problems(steps, self.good)
        if mixed and all(len(family.files) == 1 for family in self._following):
            in_place = unsorted_steps(steps, [family.files for family in self._following])
            if in_place is not None:
                return in_place
        self._leave_out(mixed)
        for family in self._following:
            inspection = self.inspection
            self._leave_out(overlap_problems(steps, family.files, inspection.urls, inspection.contents))
        files = [family.files for family in self._following]
        if not files:
            return NO_STEPS
        if not mixed or "unordered" not in self.allow:
            return sorted_steps(steps, files)
        in_place = unsorted_steps(steps, files)
        if in_place is None:  # it is unknown which steps of several families belong together
            self._families, self.good, self.problems = before
            self.allow -= {"unordered"}
            return self._in_label_order(steps)
        return in_place

    def _find_labels(self, dim: str) -> Steps | None:
        """Return the steps with labels and without positions; None if steps have no labels.

        Leaves out files that do not have one label for each step.
        """
        files, families, variable = self.inspection.files, self._following, self.variables.get(dim)
        if variable is not None and any(self._has_labels(family, dim) for family in families):
            return self._labels_in_files(variable)
        lengths = self.inspection.length[[file for family in families for file in family.files.tolist()]]
        if not families or not files.keys or files.position is None or (lengths != 1).any():
            return None
        labels, variable = _labels_of_keys(files, dim)
        self.encodings.variables[dim] = variable
        return self._labelled_steps(np.arange(len(files.urls) + 1), labels, variable)

    def _has_labels(self, family: Family, dim: str) -> bool:
        if family.layout.adds_axis:
            return dim in family.layout.variables
        return bool((np.diff(self.inspection.label_start)[family.files] > 0).any())

    def _labelled_steps(
        self, start: NDArray[np.int64], labels: NDArray[Any], variable: VariableSchema
    ) -> Steps:
        counted = np.zeros(len(start) - 1, np.bool_)
        for family in self._following:
            counted[family.files] = True
        calendar = str(variable.attrs.get("calendar", "standard"))
        return labelled_steps(start, labels, variable.attrs.get("units"), calendar, counted)

    def _labels_in_files(self, variable: VariableSchema) -> Steps:
        inspection, name, families = self.inspection, variable.name, self._following
        counts = np.zeros(len(inspection.urls), np.int64)
        for family in families:
            raw_counts = np.diff(inspection.label_start)[family.files]
            counts[family.files] = 1 if family.layout.adds_axis else raw_counts
        start = np.concatenate([[0], np.cumsum(counts)])
        labels = np.zeros(int(start[-1]), variable.dtype)
        for family in families:
            mine, rows = family.files, rows_of(start, family.files)
            owner = np.repeat(mine, counts[mine])
            if not family.layout.adds_axis:
                raw = inspection.labels[rows_of(inspection.label_start, mine)]
                labels[rows], wrong = self.encodings.values(name, raw, owner)
            elif self._has_labels(family, name):
                raw = inspection.scalars[name][mine]
                labels[rows], wrong = self.encodings.scalars(name, mine)
            else:
                text = f"has no {name}, and another file without it has the same variables"
                self._leave_out(problems_of(mine, "dims", text))
                continue
            self._leave_out(_inexact_labels(variable, owner[wrong], raw[wrong]))
            for file in mine[counts[mine] != inspection.length[mine]].tolist():
                text = f"{name} has {counts[file]} labels for {inspection.length[file]} steps"
                self._leave_out([FileProblem(file, "dims", text)])
        return self._labelled_steps(start, labels, variable)

    def _different_steps(self, start: NDArray[np.int64], key: NDArray[Any]) -> Iterator[FileProblem]:
        """Yield the files whose scalars along the dimension differ from an earlier family.

        File ``i`` has the rows ``start[i]:start[i + 1]`` of ``key``. Steps with equal keys are compared.
        """
        families, counts = self._following, np.diff(start)
        shared = [name for family in families for name in family.along & family.layout.individual]
        for name in sorted({name for name in shared if shared.count(name) > 1}):
            values: list[NDArray[Any]] = []
            keys: list[NDArray[Any]] = []
            for family in families:
                column = self.values_by_file(family.files, name) if name in family.along else None
                if column is None:
                    continue
                mine, places = np.repeat(column, counts[family.files]), key[rows_of(start, family.files)]
                if values:
                    earlier, first = np.unique(np.concatenate(keys), return_index=True)
                    at = np.minimum(np.searchsorted(earlier, places), len(earlier) - 1)
                    differs = (earlier[at] == places) & ~same(np.concatenate(values)[first[at]], mine)
                    wrong = np.unique(np.repeat(family.files, counts[family.files])[differs])
                    yield from problems_of(wrong, "values", _OTHER_VALUES.format(name))
                values.append(mine)
                keys.append(places)

    # Gaps

    def _find_refused_steps(self, files: NDArray[np.bool_], dim: str) -> None:
        """Find the steps of files that are left out (a mask), and of the files that could not be opened."""
        inspection = self.inspection
        stored = StoredVariables({dim: self.variables[dim]} if dim in self.variables else {})
        unknown = len(inspection.problems)
        labels, numbers = [np.empty(0)], [np.empty(0, np.int64)]
        for code in np.unique(inspection.layout[files]).tolist() if inspection.dim is not None else ():
            mine = files & (inspection.layout == code)
            others = Dataset.labelled(inspection, mine, stored)
            usable = np.flatnonzero(others.good if others.labels is not None else ())
            if others.labels is not None:
                labels.append(others.labels[others.steps.rows(usable)])
                numbers.append(np.repeat(usable, others.steps.counts[usable]))
            unknown += int(mine.sum()) - len(usable)
        self.refused = RefusedSteps(NO_REFUSED_STEPS.labels, NO_REFUSED_STEPS.file, unknown)
        if all(each.dtype.kind in "iuf" for each in labels):
            unknown *= int(inspection.length.max(initial=0))
            self.refused = RefusedSteps(np.concatenate(labels), np.concatenate(numbers), unknown)

    def _find_missing_labels(self) -> None:
        """Find the labels that only some families have."""
        data = [family.layout.data for family in self._following]
        refused = [self._refused_labels(names) for names in data]
        files = [family.files for family in self._following]
        for each in missing_labels(self.steps, files, data, refused):
            self.problems.append(replace(each, fatal=each.fatal and each.kind not in self.allow))

    def _refused_labels(self, names: Collection[str]) -> NDArray[Any]:
        """Return the labels of refused files with one of these variables."""
        layouts = self.inspection.layouts
        codes = [code for code, each in enumerate(layouts) if not each.data.isdisjoint(names)]
        return self.refused.labels[np.isin(self.inspection.layout[self.refused.file], codes)]


_OTHER_VALUES: Final = "{} has other values, unlike files with other variables"


def same(values: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the values that are equal, or are both NaN."""
    equal: NDArray[np.bool_] = np.asarray(values == others, np.bool_)
    if values.dtype.kind == others.dtype.kind == "f":
        equal |= np.isnan(values) & np.isnan(others)
    return equal


def scalar_time(variables: Mapping[str, VariableSchema]) -> str | None:
    """Return the name of the scalar time that is first in the order of `_rank`; None if there is none."""
    times = [
        each
        for each in variables.values()
        if not each.dims and is_time(each.attrs.get("units")) and _rank(each) < _OTHER
    ]
    return min(times, key=_rank).name if times else None


def _rank(variable: VariableSchema) -> int:
    if variable.name in _NAMES:
        return _NAMES[variable.name]
    standard = _STANDARD_NAMES.get(str(variable.attrs.get("standard_name")), _OTHER)
    return min(standard, 1) if variable.attrs.get("axis") == "T" else standard


def _determines_others(differing: Mapping[str, Sequence[NDArray[np.int64]]], name: str) -> bool:
    """Return whether files with the same value of this scalar have the same values of all others."""
    for at, mine in enumerate(differing[name]):
        all_of_them = np.stack([columns[at] for columns in differing.values()])
        if np.unique(all_of_them, axis=1).shape[1] > len(np.unique(mine)):
            return False
    return True


def scalar_instead(inspection: Inspection, dim: str) -> str | None:
    """Return the scalar in which files follow each other, if all files have the same labels of ``dim``.

    Returns None if labels differ, or if no scalar has a different value in each file.
    """
    dataset = Dataset(inspection)
    dataset._find_members()
    families = [family for family in dataset.families if len(family.files) > 1]
    if not families or not all(_has_one_axis(inspection, family, dim) for family in families):
        return None
    list(dataset.encodings.choose(families, {}))  # files that cannot be converted differ
    distinct = [
        name
        for name, columns in dataset._differing_scalars().items()
        if all(len(np.unique(column)) == len(column) for column in columns)
    ]
    return min(distinct, key=lambda name: (_rank(dataset.variables[name]), name), default=None)


def _has_one_axis(inspection: Inspection, family: Family, dim: str) -> bool:
    """Return whether all files of a family have the same labels."""
    if dim not in family.layout.variables or family.layout.adds_axis:
        return False
    counts = np.diff(inspection.label_start)[family.files]
    if not counts[0] or (counts != counts[0]).any():
        return False
    units = {
        tuple(each for each in inspection.owns[code] if each[0] == dim)
        for code in np.unique(inspection.own[family.files]).tolist()
    }
    rows = inspection.label_start[family.files][:, None] + np.arange(counts[0])
    labels: NDArray[Any] = inspection.labels[rows]
    return len(units) == 1 and bool((labels == labels[0]).all())


def _inexact_labels(
    variable: VariableSchema, files: NDArray[np.int64], values: NDArray[Any]
) -> Iterator[FileProblem]:
    """Yield the files (in order, a row for each value) with labels that cannot be converted."""
    encoding = Encoding.of(variable.dtype, variable.attrs)
    files, first = np.unique(files, return_index=True)
    kind = "units" if encoding.units else "dtype"
    for file, value in zip(files.tolist(), values[first].tolist(), strict=True):
        yield FileProblem(file, kind, inexact_text(variable.name, value, encoding))


def _labels_of_keys(files: SourceFiles, dim: str) -> tuple[NDArray[Any], VariableSchema]:
    """Return a label for each file from the keys of a pattern, and the variable of these labels."""
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
