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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from itertools import chain
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import is_time
from frazil.errors import InvalidInputError
from frazil.pipeline.ingest.families import (
    CoordinateEncoding,
    Encodings,
    FileFamily,
    different_files,
    different_grids,
    family_notes,
    family_of,
    inexact_text,
    members_of,
    parts_of,
    problems_of,
)
from frazil.pipeline.ingest.inspection import Inspection, values_digest
from frazil.pipeline.ingest.labels import NO_GROWN_DIMS, GrownDims, join_labels, stored_labels
from frazil.pipeline.ingest.options import TABLE, FileProblem, Problem, SourceFiles
from frazil.pipeline.ingest.steps import NO_STEPS, Steps, directions, positions, rows_of, same
from frazil.readers.base_reader import VariableSchema
from frazil.remedies import argument

#: Scalars in which files usually follow each other, with their rank: by name, then by CF's standard name.
_NAMES: Final = {"time": 0, "forecast_reference_time": 2, "step": 3, "forecast_period": 3, "valid_time": 4}
_STANDARD_NAMES: Final = {"time": 1, "forecast_reference_time": 2, "forecast_period": 3}
_OTHER: Final = 5
#: Labels are regular if at least this share of their distances is within a fifth of the median...
_REGULAR: Final = 0.8
#: ... and a distance of more than this many medians is a hole.
_HOLE: Final = 1.5


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
    the steps along it, in the units of the dataset.
    """

    def __init__(
        self,
        inspection: Inspection,
        files: NDArray[np.bool_] | None = None,
        allow: Collection[str] = (),
        *,
        unpack: bool = False,
    ) -> None:
        opened = inspection.layout >= 0
        self.inspection = inspection
        self.allow: frozenset[str] = frozenset(allow)
        self.good: NDArray[np.bool_] = opened if files is None else opened & files
        self.problems: list[Problem] = []
        self.encodings: Final = Encodings(inspection, unpack=unpack)
        self.dim: str | None = inspection.dim
        self.steps: Steps = NO_STEPS
        self.grown: GrownDims = NO_GROWN_DIMS
        self._families: list[FileFamily] = []
        #: The known labels of files that are left out, the number of the file of each label, and the number
        #: of steps that the other files may have: these are not missing in the archive.
        self._refused_labels: NDArray[Any] = np.empty(0)
        self._refused_files = np.empty(0, np.int64)
        self._unknown_steps = 0

    @classmethod
    def reconcile(
        cls,
        inspection: Inspection,
        *,
        unpack: bool = False,
        only: NDArray[np.bool_] | None = None,
        allow: Collection[str] = (),
        stored: StoredVariables = NO_STORED_VARIABLES,
    ) -> Self:
        """Return the dataset of the inspected files.

        If the files were inspected without a dimension, a scalar coordinate that differs from file to file
        becomes the dimension. ``only`` is a mask of the files to use. ``allow`` are the tolerated kinds.
        """
        dataset = cls(inspection, only, allow, unpack=unpack)
        kinds: tuple[Literal["layout", "values", "packing"], ...] = ("layout", "values", "packing")
        candidates = dataset.good
        for members in members_of(inspection, candidates):
            parts = parts_of(inspection, members) if "variables" in dataset.allow else [(members, None)]
            for files, names in parts:
                for kind in kinds[: 2 if unpack else 3]:
                    mine = files[dataset.good[files]]
                    dataset._leave_out(different_files(inspection, mine, names, kind))
            for files, names in parts:
                if len(mine := files[dataset.good[files]]):
                    individual = inspection.dim is None
                    dataset._families.append(family_of(inspection, mine, names, individual=individual))
        dataset._join_labels(stored)
        dataset._leave_out(dataset.encodings.choose(dataset.families, stored.variables))
        dataset.dim = dim = inspection.dim or dataset._scalar_dimension()
        if dim is None:
            text = (
                "has the variables of an earlier file, and no dimension or scalar coordinate decides their "
                "order. A new name as the dimension stacks files in the order of the call"
            )
            for family in dataset.families:
                dataset._leave_out(problems_of(family.files[1:], "dims", text))
            dataset._require_agreement()
        else:
            if inspection.dim is None:
                dataset._families = [
                    family_of(inspection, each.files, each.layout.variables, individual=False)
                    for each in dataset.families
                ]
            for family in dataset.families:
                variable = family.layout.variables.get(dim)
                if variable is not None and variable.dims not in ((), (dim,)):
                    raise InvalidInputError(
                        f"concat_dim must be a dimension, a scalar or a new name, got {dim!r}, a "
                        f"variable with the dimensions {', '.join(variable.dims)}"
                    )
            dataset._stack(dim, stored)
            dataset._require_agreement()
            dataset._order_steps(dim)
            dataset._find_refused_steps(candidates & ~dataset.good, dim)
            dataset._find_missing_labels()
        dataset._join_labels(stored)  # of the files that are in the dataset
        dataset._families = [each.with_lengths(dataset.grown.length) for each in dataset.families]
        dataset._add_notes(stored.variables)
        return dataset

    @classmethod
    def labelled(cls, inspection: Inspection, files: NDArray[np.bool_], stored: StoredVariables) -> Self:
        """Return some files (a mask) with labels along a dimension, in the units of the group, unordered."""
        dataset = cls(inspection, files)
        assert dataset.dim is not None
        dataset._find_members()
        dataset._leave_out(dataset.encodings.choose(dataset.families, stored.variables))
        dataset._stack(dataset.dim, stored)
        dataset.steps = dataset._find_labels(dataset.dim) or NO_STEPS
        return dataset

    @property
    def families(self) -> list[FileFamily]:
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
    def members(self) -> NDArray[np.bool_]:
        """A mask of the files that are in a family."""
        mask = np.zeros(len(self.inspection.urls), np.bool_)
        for family in self.families:
            mask[family.files] = True
        return mask

    def values_by_file(self, files: NDArray[np.int64], name: str) -> NDArray[Any] | None:
        """Return a value, or a digest of values, for each file; None if digests of times have other units."""
        scalars = self.inspection.scalars
        if name in scalars and all(each is not None for each in scalars[name][files]):
            values, inexact = self.encodings.scalars(name, files)
            return np.array(scalars[name][files].tolist()) if inexact.any() else values
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

    def _add_notes(self, stored: Mapping[str, VariableSchema]) -> None:
        """Note other attributes, and variables that only some files have."""
        inspection, names = self.inspection, set[str]()
        count_of = np.zeros(len(self.good), np.int64)
        for files in members_of(inspection, self.members):
            count_of[files] = len(files)
        for family in self.families:
            new = family.layout.variables.keys() - names
            names |= new
            self.problems += family_notes(inspection, family, new, stored)
            first, count = int(family.files[0]), len(family.files)
            if count < count_of[first] and new:
                text = f"{', '.join(sorted(new))} in only {count:,} of {count_of[first]:,} files, and missing"
                url = inspection.urls[first]
                self.problems.append(Problem("variables", f"{text} elsewhere", url, fatal=False))
        for dim, labels in self.grown.labels.items():
            before, sets = self.grown.before[dim], len(self.grown.places)
            if len(labels) > before and (before or sets > 1):
                text = f"{dim} grows from {before:,} to {len(labels):,} labels, by {sets:,} sets of labels"
                self.problems.append(Problem("grown", text, fatal=False))
        for name in self.encodings.conversions:
            if (variable := self.variables[name]).coordinate:
                continue
            layouts = [
                inspection.layouts[code] for code in np.unique(inspection.layout[self.members]).tolist()
            ]
            dtypes = {str(each.variables[name].dtype) for each in layouts if name in each.variables}
            text = f"{name} is stored as {variable.dtype}, and is {', '.join(sorted(dtypes))} in the files"
            if dtypes == {str(variable.dtype)}:
                text = f"{name} gets one missing value, and files have several"
            self.problems.append(Problem("dtype", text, fatal=False))

    def _join_labels(self, stored: StoredVariables) -> None:
        """Join the labels of dimensions that grow, without the files that contradict earlier files."""
        dims = {dim for each in self.inspection.labelled_values for dim in each.labels}
        if not dims:
            return
        variables = {name: each for one in reversed(self.families) for name, each in one.variables().items()}
        fixed = {
            name: each for name, each in stored.variables.items() if self.inspection.dim not in each.dims
        }
        before = stored_labels(sorted(dims), fixed, stored.values)
        for _ in range(2):
            self.grown, problems = join_labels(
                self.inspection,
                np.flatnonzero(self.members),
                variables,
                before,
                is_lenient="values" in self.allow,
            )
            self._leave_out(problems)
            if not problems:
                break

    def _find_members(self) -> None:
        """Find the files with the same data variables, with all their differences."""
        members = members_of(self.inspection, self.good)
        self._families = [family_of(self.inspection, files, individual=False) for files in members]

    def _require_agreement(self) -> None:
        """Leave out families whose shared variables have other values than in earlier families."""
        self._leave_out(different_grids(self.families))
        expected: dict[str, tuple[Any, bool]] = {}
        problems: list[FileProblem] = []
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
                problems += problems_of(family.files, "values", _OTHER_VALUES.format(", ".join(wrong)))
            else:
                expected = {**mine, **expected}
        self._leave_out(problems)

    # The dimension

    def _scalar_dimension(self) -> str | None:
        """Return the scalar coordinate in which files of one family follow each other; None if none differs.

        It is the first scalar in the order of `_rank` that determines all others: files with the same value
        of this scalar have the same values of the others.
        """
        inspection, families = self.inspection, self.families
        if all(len(family.files) == 1 for family in families):
            unopened = int((inspection.layout < 0).sum()) > len(inspection.problems)  # the group has them
            is_single = len(inspection.urls) > 1 and len(families) == 1  # the other files have problems
            return scalar_time(families[0].variables()) if is_single and not unopened else None
        differing = self._differing_scalars()
        if not differing:
            return None
        together = [np.stack(columns) for columns in zip(*differing.values(), strict=True)]
        distinct = [np.unique(columns, axis=1).shape[1] for columns in together]
        counts = {name: [len(np.unique(each)) for each in columns] for name, columns in differing.items()}
        sufficient = [name for name, mine in counts.items() if mine == distinct]
        usual = [name for name in sufficient if _rank(self.variables[name]) < _OTHER]
        if usual or len(sufficient) == 1:
            return min(usual or sufficient, key=lambda name: (_rank(self.variables[name]), name))
        helps = "Choose one with {}: the others become its coordinates"
        if not sufficient:
            helps = (
                "{}, or any new name, makes each file one step with these coordinates. Or ingest files that "
                "differ in only one of them into a group for each"
            )
        listed = ", ".join(f"{name} ({max(mine)} values)" for name, mine in counts.items())
        raise InvalidInputError(
            f"files must follow each other in one scalar coordinate, but several differ: {listed}"
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
        """Give variables the dimension: data of files without it, and individual variables that differ."""
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
    def _following(self) -> list[FileFamily]:
        """The families whose files follow each other: they have the dimension, or their data get it."""
        return [
            family
            for family in self.families
            if not family.layout.adds_axis
            or any(self.dim in each.dims for each in family.layout.variables.values())
        ]

    @property
    def _sequences(self) -> list[NDArray[np.int64]]:
        """The files that follow each other: those of families with a common file."""
        following = np.zeros_like(self.good)
        for family in self._following:
            following[family.files] = True
        return members_of(self.inspection, following)

    def _order_steps(self, dim: str) -> None:
        """Find the positions of steps, and leave out files whose steps have no position."""
        steps = self._find_labels(dim)
        if steps is not None:
            self._leave_out(self._different_steps(steps.start, steps.known_labels))
            self.steps = self._in_label_order(steps)
            return
        # Without labels, one file follows the other, in the order of the pattern or of the list of files.
        position = self.inspection.files.position
        for is_complete in (False, True):
            start = np.concatenate([[0], np.cumsum(np.where(self.good, self.inspection.length, 0))])
            steps = Steps(start, None, np.full(int(start[-1]), -1, np.int64), None, 0)
            longest = 0
            for files in self._sequences:
                order = files if position is None else files[np.argsort(position[files], kind="stable")]
                rows = steps.rows(order)
                steps.at[rows] = np.arange(len(rows))
                longest = max(longest, len(rows))
            self.steps = replace(steps, length=longest)
            if not is_complete:
                self._leave_out(self._different_steps(steps.start, steps.at))

    def _in_label_order(self, steps: Steps) -> Steps:
        """Return steps in the order of their labels, or of the files for a single file or with ``allow``."""
        before = self._families, self.good, self.problems.copy()
        mixed = steps.order_problems(self.good)
        if mixed and all(len(files) == 1 for files in self._sequences):
            in_place = steps.in_file_order(self._sequences)
            if in_place is not None:
                urls = self.inspection.urls
                self.problems += [
                    Problem(each.kind, each.text, urls[each.file], fatal=False) for each in mixed
                ]
                return in_place
        self._leave_out(mixed)
        inspection, parts_of_files = self.inspection, partial(self.grown.parts, self.inspection)
        for part in chain.from_iterable(map(parts_of_files, self._sequences)):
            self._leave_out(steps.overlap_problems(part, inspection.urls, inspection.contents))
        if not self._following:
            return NO_STEPS
        if not mixed or "unordered" not in self.allow:
            following = (family.files for family in self._following)
            return steps.in_label_order([*chain.from_iterable(map(parts_of_files, following))])
        in_place = steps.in_file_order(self._sequences)
        if in_place is None:  # it is unknown which steps of several families belong together
            self._families, self.good, self.problems = before
            self.allow -= {"unordered"}
            return self._in_label_order(steps)
        return in_place

    def _find_labels(self, dim: str) -> Steps | None:
        """Return the steps with labels and without positions; None if steps have no labels."""
        files, families, variable = self.inspection.files, self._following, self.variables.get(dim)
        if variable is not None and any(self._has_labels(family, dim) for family in families):
            return self._labels_in_files(variable)
        lengths = self.inspection.length[[file for family in families for file in family.files.tolist()]]
        if not families or not files.keys or files.position is None or (lengths != 1).any():
            return None
        labels, variable = _labels_of_keys(files, dim)
        self.encodings.variables[dim] = variable
        return self._labelled_steps(np.arange(len(files.urls) + 1), labels, variable)

    def _has_labels(self, family: FileFamily, dim: str) -> bool:
        if family.layout.adds_axis:
            return dim in family.layout.variables
        return bool((np.diff(self.inspection.label_start)[family.files] > 0).any())

    def _labelled_steps(
        self, start: NDArray[np.int64], labels: NDArray[Any], variable: VariableSchema
    ) -> Steps:
        """Return steps with labels and without positions. They are descending if most labels decrease."""
        counted = np.zeros(len(start) - 1, np.bool_)
        for family in self._following:
            counted[family.files] = True
        _, up, down = directions(start, labels, counted)
        units, calendar = variable.attrs.get("units"), str(variable.attrs.get("calendar", "standard"))
        nowhere = np.full(len(labels), -1, np.int64)
        return Steps(start, labels, nowhere, labels[:0], 0, units, calendar, bool(down.sum() > up.sum()))

    def _labels_in_files(self, variable: VariableSchema) -> Steps:
        inspection, name, families = self.inspection, variable.name, self._following
        counts = np.zeros(len(inspection.urls), np.int64)
        for family in families:
            raw_counts = np.diff(inspection.label_start)[family.files]
            counts[family.files] = 1 if family.layout.adds_axis else raw_counts
        start = np.concatenate([[0], np.cumsum(counts)])
        labels = np.zeros(int(start[-1]), variable.dtype)
        encoding = CoordinateEncoding.of(variable.dtype, variable.attrs)
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
            inexact, first = np.unique(owner[wrong], return_index=True)
            for file, value in zip(inexact.tolist(), raw[wrong][first].tolist(), strict=True):
                self._leave_out([FileProblem(file, "units", inexact_text(name, value, encoding))])
            for file in mine[counts[mine] != inspection.length[mine]].tolist():
                text = f"{name} has {counts[file]} labels for {inspection.length[file]} steps"
                self._leave_out([FileProblem(file, "dims", text)])
        return self._labelled_steps(start, labels, variable)

    def _different_steps(self, start: NDArray[np.int64], key: NDArray[Any]) -> Iterator[FileProblem]:
        """Yield the files whose scalars differ from an earlier family at steps with the same ``key``."""
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
            usable = np.flatnonzero(others.good if others.steps.labels is not None else ())
            if others.steps.labels is not None:
                labels.append(others.steps.labels[others.steps.rows(usable)])
                numbers.append(np.repeat(usable, others.steps.counts[usable]))
            unknown += int(mine.sum()) - len(usable)
        self._unknown_steps = unknown
        if all(each.dtype.kind in "iuf" for each in labels):
            self._unknown_steps = unknown * int(inspection.length.max(initial=0))
            self._refused_labels, self._refused_files = np.concatenate(labels), np.concatenate(numbers)

    def _find_missing_labels(self) -> None:
        """Find the labels that only some sequences of files have. Those of refused files are not missing."""
        steps, sequences, layouts = self.steps, self._sequences, self.inspection.layouts
        refused, names = [], []
        for files in sequences:
            data = {
                name for code in set(self.inspection.layout[files].tolist()) for name in layouts[code].data
            }
            codes = [code for code, each in enumerate(layouts) if each.data & data]
            refused.append(self._refused_labels[np.isin(self.inspection.layout[self._refused_files], codes)])
            names.append(", ".join(sorted(data)))
        texts = []
        if steps.axis is None:
            lengths = sorted({int(steps.counts[files].sum()) for files in sequences})
            if len(lengths) > 1 and not any(map(len, refused)):
                reason = "without labels it is unknown which steps are missing"
                texts.append(f"variables have {lengths} steps, and {reason}")
        else:
            for files, labels, listed in zip(sequences, refused, names, strict=True):
                places = np.append(steps.at[steps.rows(files)], positions(steps.axis, labels))
                absent = np.ones(steps.length, np.bool_)
                absent[places[places >= 0]] = False
                if absent.any():
                    first = steps.label_text(steps.axis[np.argmax(absent)])
                    texts.append(f"{absent.sum()} labels, from {first} on, are missing for {listed}")
        self.problems += [Problem("hole", text, fatal="hole" not in self.allow) for text in texts]

    def holes(self, axis: NDArray[Any] | None, old: NDArray[Any] | None = None) -> list[Problem]:
        """Return the holes of a time axis, except holes between two ``old`` labels or within a single file.

        A hole that refused files would fill is no hole: their own problems are reported.
        """
        if axis is None or not is_time(self.steps.units):
            return []
        if len(self._refused_labels):
            axis = np.union1d(axis, self._refused_labels)
        if len(axis) < 4 or axis.dtype.kind not in "iuf":
            return []
        one_file = all(len(family.files) == 1 for family in self.families)
        is_old = np.zeros(len(axis), np.bool_) if old is None else np.isin(axis, old)
        distances = np.abs(np.diff(axis.astype(np.float64)))
        median = np.median(distances)
        regular = np.abs(distances - median) <= 0.2 * median
        if regular.mean() < min(_REGULAR, 1 - 1.5 / len(distances)):
            return []
        problems, missing = [], 0
        for i in np.flatnonzero(distances > _HOLE * median).tolist():
            stored = is_old[i] and is_old[i + 1]
            inside_file = one_file and not is_old[i] and not is_old[i + 1]
            if not (stored or inside_file):
                before, after = (self.steps.label_text(axis[at]) for at in (i, i + 1))
                text = f"no step between {before} and {after}"
                problems.append(Problem("hole", text, fatal="hole" not in self.allow))
                missing += round(distances[i] / median) - 1
        return problems if missing > self._unknown_steps else []


_OTHER_VALUES: Final = "{} has other values, unlike files with other variables"


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


def scalar_instead(inspection: Inspection, dim: str) -> str | None:
    """Return the scalar that differs in each file, if all files have the same labels of ``dim``; or None."""
    dataset = Dataset(inspection)
    dataset._find_members()
    families = [family for family in dataset.families if len(family.files) > 1]
    for family in families:
        counts = np.diff(inspection.label_start)[family.files]
        has_labels = dim in family.layout.variables and not family.layout.adds_axis
        if not has_labels or not counts[0] or (counts != counts[0]).any():
            return None
        units = {
            tuple(each for each in inspection.owns[code] if each[0] == dim)
            for code in np.unique(inspection.own[family.files]).tolist()
        }
        labels = inspection.labels[inspection.label_start[family.files][:, None] + np.arange(counts[0])]
        if len(units) > 1 or not (labels == labels[0]).all():
            return None
    if not families:
        return None
    list(dataset.encodings.choose(families, {}))  # files that cannot be converted differ
    distinct = [
        name
        for name, columns in dataset._differing_scalars().items()
        if all(len(np.unique(column)) == len(column) for column in columns)
    ]
    return min(distinct, key=lambda name: (_rank(dataset.variables[name]), name), default=None)


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
