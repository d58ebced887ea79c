"""The steps of files: the label of each step of each file, and its position on the axis of the dataset.

    create, append    new labels follow the old labels
    insert            the group has all labels: their values are replaced
    upsert            values of stored labels are replaced, new labels follow
    backfill          values of stored labels are replaced, new labels go to their place in the order

If an old label moves, its values move too. The axis has the old and the new position of each step, so all
modes have one rule: old values move with their label, then new values overwrite them.

Labels of files must all increase or all decrease, and the axis has each label once, sorted. If they do not
(a single file, or ``allow={"unordered"}``), the files follow each other with their steps in file order, and a
label may occur several times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import cftime  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.cf_times import TimeUnits, is_time
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.options import FileProblem, Mode
from frazil.remedies import Call, argument


@dataclass(frozen=True, slots=True)
class StepAxis:
    """The steps of the dataset.

    ``old`` (int64) is the position of each step of the group, ``new`` (int64) the position of each step of
    the files. ``labels`` is None if steps have no labels.
    """

    length: int
    labels: NDArray[Any] | None
    old: NDArray[np.int64]
    new: NDArray[np.int64]

    @property
    def first_moved(self) -> int:
        """The first step of the group that moves; the old length if no step moves."""
        moved = self.old != np.arange(len(self.old))
        return int(np.argmax(moved)) if moved.any() else len(self.old)


def date_of(number: Any, units: str | None, calendar: str) -> Any:
    """Return a time as an object of cftime: as xarray decodes it, also with a time zone such as ``+2:00``."""
    try:
        date = TimeUnits(str(units), calendar).decode(np.array([number]), None)[0]
    except InvalidInputError as error:
        raise ValueError(units) from error
    if isinstance(date, np.datetime64):
        fields = [*map(int, re.split(r"\D", str(date.astype("M8[us]"))))]
        return cftime.datetime(*fields, calendar=calendar)
    return date


def positions(axis: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the positions of labels on an axis, -1 for labels that the axis does not have."""
    if not len(axis):
        return np.full(len(labels), -1, np.int64)
    order = np.argsort(axis, kind="stable")
    place = np.minimum(np.searchsorted(axis[order], labels), len(axis) - 1)
    candidate = order[place]
    return np.where(axis[candidate] == labels, candidate, -1).astype(np.int64)


def same(values: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the values that are equal, or are both NaN."""
    equal: NDArray[np.bool_] = np.asarray(values == others, np.bool_)
    if values.dtype.kind == others.dtype.kind == "f":
        equal |= np.isnan(values) & np.isnan(others)
    return equal


def place_labels(mode: Mode, old: NDArray[Any], new: NDArray[Any], steps: Steps) -> StepAxis:
    """Return the axis with old and new labels. New labels that are not in order follow the old ones."""
    numbers = old.dtype.kind in "iuf" and new.dtype.kind in "iuf"
    if numbers and len(old):
        with np.errstate(invalid="ignore"):
            cast = new.astype(old.dtype)
        if old.dtype.kind in "iu" and (cast != new).any():
            raise misfit(
                f"new labels must fit the dtype {old.dtype} of the labels in the repository, got "
                f"{new[cast != new][0]}. Ingest the files into another group"
            )
        new = cast
    stay = np.arange(len(old))
    again = np.array_equal(old, new, equal_nan=old.dtype.kind == new.dtype.kind == "f")
    if mode not in ("create", "append") and len(old) and again:
        return StepAxis(len(old), old, stay, stay)  # the same steps again, in any order
    if numbers and len(old) and (new != new).any():
        text = f"mode {mode!r} needs a label for each step, but some labels of the files are NaN"
        raise _refusal(text, "Leave out these steps with {}", argument(preprocess=...))
    is_stored = positions(old, new) >= 0
    stored, fresh = new[is_stored], new[~is_stored]
    if mode == "append" and len(stored):
        raise _refusal(
            f"mode 'append' needs new labels, but the group already has {steps.label_text(stored[0])}",
            "Use {} to replace the values of this step. For files of another level or member, give {} with "
            "the name of that coordinate, from the first file on",
            argument(mode="upsert"),
            argument(concat_dim=...),
        )
    if mode == "insert" and len(fresh):
        text = f"mode 'insert' needs labels that the group has, got {steps.label_text(fresh[0])}"
        raise _refusal(text, "Use {}", argument(mode="upsert"))
    if len(stored) and any(len(np.unique(each)) < len(each) for each in (old, new)):
        text = f"mode {mode!r} needs each label once, but some labels are there several times"
        raise _refusal(text, "Use {} to write new labels after them", argument(mode="append"))
    down = bool(old[-1] < old[0]) if len(old) > 1 and numbers else steps.descending
    if steps.in_order and numbers:
        fresh = np.sort(fresh)[:: -1 if down else 1]
    labels = np.concatenate([old.astype(new.dtype), fresh])
    both = numbers and len(old) and len(fresh)
    last, first = ((old.min(), fresh.max()) if down else (old.max(), fresh.min())) if both else (0, 0)
    if not both or (first < last if down else first > last):
        sorted_in = steps.in_order or len(stored)
        places = positions(labels, new) if sorted_in else len(old) + np.arange(len(new))
        return StepAxis(len(labels), labels, stay, places)
    if mode != "backfill":
        text = f"mode {mode!r} needs new labels after {steps.label_text(last)}, got {steps.label_text(first)}"
        raise _refusal(text, "Use {}", argument(mode="backfill"))
    distances = np.diff(old)
    if not (steps.in_order and ((distances > 0).all() or (distances < 0).all())):
        text = "mode 'backfill' needs sorted labels in the repository and in the files, but they are not"
        raise _refusal(text, "Use {} in another group", argument(mode="create"))
    labels = np.sort(labels)[:: -1 if down else 1]
    return StepAxis(len(labels), labels, positions(labels, old), positions(labels, new))


def _refusal(text: str, remedy: str, *arguments: Call) -> InvalidInputError:
    return InvalidInputError(text, ErrorKind.INVALID_CHUNK_INDEX).with_remedy(remedy, *arguments)


@dataclass(frozen=True, slots=True)
class StepRuns:
    """Runs of steps, as columns in the order of ``at``.

    ``source`` is the number of a file (-1: steps of the group), ``start`` the first step in the source,
    ``at`` the first step on the axis, and ``count`` the number of steps.
    """

    source: NDArray[np.int64]
    start: NDArray[np.int64]
    at: NDArray[np.int64]
    count: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        columns = (self.source, self.start, self.at, self.count)
        return zip(*(each.tolist() for each in columns), strict=True)

    def within(self, start: int, stop: int) -> StepRuns:
        """Return the parts of the pieces in a span of the axis."""
        low = np.maximum(self.at, start)
        high = np.minimum(self.at + self.count, stop)
        some = low < high
        return StepRuns(self.source[some], (self.start + low - self.at)[some], low[some], (high - low)[some])


def runs(source: NDArray[np.int64], start: NDArray[np.int64], at: NDArray[np.int64]) -> StepRuns:
    """Join single steps to runs."""
    order = np.argsort(at, kind="stable")
    source, start, at = source[order], start[order], at[order]
    breaks = np.ones(len(at), np.bool_)
    breaks[1:] = (np.diff(at) != 1) | (np.diff(start) != 1) | (np.diff(source) != 0)
    first = np.flatnonzero(breaks)
    count = np.diff(np.append(first, len(at)))
    return StepRuns(source[first], start[first], at[first], count.astype(np.int64))


def joined_runs(parts: Sequence[StepRuns]) -> StepRuns:
    """Join runs of several parts of the files, which may have the same positions."""
    if len(parts) == 1:
        return parts[0]
    columns = [np.concatenate([getattr(each, field.name) for each in parts]) for field in fields(StepRuns)]
    order = np.argsort(columns[2], kind="stable")
    return StepRuns(*(column[order] for column in columns))


def old_pieces(axis: StepAxis, start: int, stop: int) -> StepRuns:
    """Return the runs of old steps whose new positions are in a span."""
    steps = np.flatnonzero((axis.old >= start) & (axis.old < stop))
    return runs(np.full(len(steps), -1, np.int64), steps.astype(np.int64), axis.old[steps])


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of all files along the concat dimension, as columns with a row for each step.

    File ``i`` has the rows ``start[i]:start[i + 1]``. ``labels`` (in ``units``) is None if steps have no
    labels. ``at`` is the position of each row on the axis, -1 for rows that are not in the dataset. ``axis``
    are the labels of the dataset, None without labels. ``in_order``: the axis has each label once, and
    numbers are sorted.
    """

    start: NDArray[np.int64]
    labels: NDArray[Any] | None
    at: NDArray[np.int64]
    axis: NDArray[Any] | None
    length: int
    units: str | None = None
    calendar: str = "standard"
    descending: bool = False
    in_order: bool = True

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of steps of each file."""
        return np.diff(self.start)

    def rows(self, files: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of files, file by file."""
        return rows_of(self.start, files)

    def placed(
        self, files: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return columns of the steps of files that are on the axis: file, step in the file, position.

        Of several files with a position, the last one has it.
        """
        rows = self.rows(files)
        rows = np.sort(rows[self.at[rows] >= 0])[::-1]
        _, last = np.unique(self.at[rows], return_index=True)
        rows = np.sort(rows[last])
        source = np.searchsorted(self.start, rows, side="right") - 1
        return source, rows - self.start[source], self.at[rows]

    def label_text(self, label: Any) -> str:
        """Return a label as text for people."""
        if not is_time(self.units) or label != label:
            return str(label)
        try:
            return str(date_of(label, self.units, self.calendar))
        except (ValueError, KeyError, OverflowError):
            return f"{label} {self.units}"

    @property
    def known_labels(self) -> NDArray[Any]:
        """The labels of steps that have labels."""
        assert self.labels is not None
        return self.labels

    def order_problems(self, good: NDArray[np.bool_]) -> list[FileProblem]:
        """Return problems to files with labels that are not in the order of most files, repeated, or NaN."""
        labels = self.known_labels
        file = np.repeat(np.arange(len(good)), self.counts)
        if labels.dtype.kind not in "iuf":
            rows = np.flatnonzero(good[file])
            _, codes = np.unique(labels[rows], return_inverse=True)
            pairs, counts = np.unique(np.stack([file[rows], codes]), axis=1, return_counts=True)
            twice = np.unique(pairs[0][counts > 1]).tolist()
            return [FileProblem(each, "unordered", "has a label twice") for each in twice]
        behind, up, down = directions(self.start, labels, good)
        inside = (behind == file[:-1]) & good[behind]
        unknown = np.unique(file[~(labels == labels) & good[file]])
        wrong = np.setdiff1d(behind[inside & ~(down if self.descending else up)], unknown)
        text = f"labels do not all {'decrease' if self.descending else 'increase'}"
        problems = [FileProblem(each, "unordered", text) for each in wrong.tolist()]
        nan = "has labels that are NaN"
        return [*problems, *(FileProblem(each, "unordered", nan) for each in unknown.tolist())]

    def overlap_problems(
        self, files: NDArray[np.int64], urls: Sequence[str], contents: NDArray[np.uint8]
    ) -> list[FileProblem]:
        """Return problems to files with a label that an earlier file without a problem has."""
        labels, counts = self.known_labels, self.counts
        distinct, codes = np.unique(labels[self.rows(files)], return_inverse=True)
        # A repeated label in one file is not an overlap.
        codes, owners = np.unique(np.stack([codes, np.repeat(files, counts[files])]), axis=1)
        shared = np.bincount(codes)[codes] > 1
        codes, owners = codes[shared], owners[shared]
        if not len(codes):
            return []
        by_file = np.lexsort((codes, owners))
        numbers, first = np.unique(owners[by_file], return_index=True)
        owner: dict[int, int] = {}
        problems = []
        for each, mine in zip(numbers.tolist(), np.split(codes[by_file], first[1:]), strict=True):
            codes_of = mine.tolist()
            taken = [code for code in codes_of if code in owner]
            if not taken:
                owner.update(dict.fromkeys(codes_of, each))
                continue
            earlier = owner[taken[0]]
            label = self.label_text(distinct[taken[0]])
            text = f"shares {len(taken)} of its {counts[each]} labels ({label}) with {urls[earlier]}"
            kind = "overlap"
            if (contents[each] == contents[earlier]).all():
                kind, text = "duplicate", f"{text}, and has the same contents"
            problems.append(FileProblem(each, kind, text))
        return problems

    def in_label_order(self, families: Sequence[NDArray[np.int64]]) -> Steps:
        """Return the steps of families on one axis of sorted labels, each from the last file that has it."""
        labels = self.known_labels
        rows = np.sort(np.concatenate([self.rows(files) for files in families]))
        axis, first, codes = np.unique(labels[rows], return_index=True, return_inverse=True)
        if axis.dtype.kind in "iuf":
            place = np.arange(len(axis))[::-1] if self.descending else np.arange(len(axis))
        else:
            place = np.empty(len(axis), np.int64)
            place[np.argsort(first, kind="stable")] = np.arange(len(axis))
        places = np.full(len(labels), -1, np.int64)
        places[rows] = place[codes]
        at = np.full_like(places, -1)
        for files in families:
            mine = np.sort(self.rows(files))[::-1]
            _, back = np.unique(places[mine], return_index=True)
            at[mine[back]] = places[mine[back]]
        placed = np.empty_like(axis)
        placed[place] = axis
        return replace(self, at=at, axis=placed, length=len(axis))

    def in_file_order(self, families: Sequence[NDArray[np.int64]]) -> Steps | None:
        """Return the steps of files one after the other, in the order of their file.

        The files are in the order of their first labels. If several files of a family have a label, the step
        of the last file is used. Returns None if the families then have different labels: it is unknown which
        steps belong together.
        """
        labels = self.known_labels
        at = np.full(len(labels), -1, np.int64)
        axes: list[NDArray[Any]] = []
        for files in families:
            some = files[self.counts[files] > 0]
            heads = labels[self.start[some]]
            order = np.arange(len(some))
            if heads.dtype.kind in "iuf":
                order = np.lexsort((order, -heads.astype(np.float64) if self.descending else heads))
            rows = self.rows(some[order])
            file = np.searchsorted(self.start, rows, side="right") - 1
            _, codes = np.unique(labels[rows], return_inverse=True)
            last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
            np.maximum.at(last, codes, file)
            rows = rows[file == last[codes]]  # no later file has the label
            at[rows] = np.arange(len(rows))
            axes.append(labels[rows])
        equal_nan = labels.dtype.kind == "f"
        if not all(np.array_equal(axes[0], axis, equal_nan=equal_nan) for axis in axes[1:]):
            return None
        return replace(self, at=at, axis=axes[0], length=len(axes[0]), in_order=False)


def rows_of(start: NDArray[np.int64], files: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows ``start[i]:start[i + 1]`` of files, file by file."""
    counts = np.diff(start)[files]
    ends = np.cumsum(counts)
    rows: NDArray[np.int64] = np.repeat(start[files] - ends + counts, counts) + np.arange(int(counts.sum()))
    return rows


NO_STEPS: Final = Steps(np.zeros(1, np.int64), None, np.zeros(0, np.int64), None, 0)


def directions(
    start: NDArray[np.int64], labels: NDArray[Any], good: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the file of each row but the first, and masks of labels above and below the row before in it."""
    file = np.repeat(np.arange(len(start) - 1), np.diff(start))
    inside = (file[1:] == file[:-1]) & good[file[1:]]
    if labels.dtype.kind not in "iuf":
        nothing = np.zeros(len(inside), np.bool_)
        return file[1:], nothing, nothing
    return file[1:], (labels[1:] > labels[:-1]) & inside, (labels[1:] < labels[:-1]) & inside
