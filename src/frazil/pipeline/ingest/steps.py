"""The steps of files: the position of each step on the axis of the dataset, and gaps between steps.

    create, append    new labels follow the old labels
    insert            the group has all labels: their values are replaced
    upsert            values of stored labels are replaced, new labels follow
    backfill          values of stored labels are replaced, new labels go to their place in the order

If an old label moves, its values move too. The axis has the old and the new position of each step, so all
modes have one rule: old values move with their label, then new values overwrite them.

    steps    columns with an entry for each step of each file: its label, and its position on the axis
    axis     the labels of the dataset

Labels of files must all increase or all decrease, and the axis has each label once, sorted. If they do not
(a single file, or ``allow={"unordered"}``), the files follow each other with their steps in file order, and a
label may occur several times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import cftime  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import is_time
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.problems import FileProblem, Problem
from frazil.remedies import argument

type Mode = Literal["create", "append", "insert", "upsert", "backfill"]
MODES: Final = ("create", "append", "insert", "upsert", "backfill")


def label_text(value: Any, units: str | None, calendar: str = "standard") -> str:
    """Return a label as text for people."""
    if not is_time(units) or value != value:
        return str(value)
    try:
        return str(cftime.num2date(value, units, calendar))
    except (ValueError, KeyError, OverflowError):
        return f"{value} {units}"


@dataclass(frozen=True, slots=True)
class Axis:
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

    @classmethod
    def after(cls, length: int, more: int) -> Axis:
        """Return an axis of steps without labels, where new steps follow the old steps."""
        return cls(length + more, None, np.arange(length), np.arange(length, length + more))


def positions(axis: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the positions of labels on an axis, -1 for labels that the axis does not have."""
    if not len(axis):
        return np.full(len(labels), -1, np.int64)
    order = np.argsort(axis, kind="stable")
    place = np.minimum(np.searchsorted(axis[order], labels), len(axis) - 1)
    candidate = order[place]
    return np.where(axis[candidate] == labels, candidate, -1).astype(np.int64)


def place_labels(
    mode: Mode,
    old: NDArray[Any],
    new: NDArray[Any],
    *,
    descending: bool = False,
    in_order: bool = True,
    units: str | None = None,
    calendar: str = "standard",
) -> Axis:
    """Return the axis with old and new labels. ``in_order``: the new labels are sorted, each one once.

    New labels that are not in order stay as they are, after the old labels.
    """
    numbers = old.dtype.kind in "iuf" and new.dtype.kind in "iuf"
    new = _as_stored(new, old) if numbers and len(old) else new
    stay = np.arange(len(old))
    again = np.array_equal(old, new, equal_nan=old.dtype.kind == new.dtype.kind == "f")
    if mode not in ("create", "append") and len(old) and again:
        return Axis(len(old), old, stay, stay)  # the same steps again, in any order
    stored = positions(old, new) >= 0
    fresh = new[~stored]
    show = partial(label_text, units=units, calendar=calendar)
    _require_mode(mode, new[stored], fresh, show)
    if stored.any() and not (_is_unique(old) and _is_unique(new)):
        raise InvalidInputError(
            f"mode {mode!r} needs each label once, but some labels are there several times",
            ErrorKind.INVALID_CHUNK_INDEX,
        ).with_remedy("Use {} to write new labels after them", argument(mode="append"))
    down = bool(old[-1] < old[0]) if len(old) > 1 and numbers else descending
    if in_order and numbers:
        fresh = np.sort(fresh)[:: -1 if down else 1]
    labels = np.concatenate([old.astype(new.dtype), fresh])
    if not (numbers and len(old) and len(fresh)) or _is_behind(old, fresh, down):
        sorted_in = in_order or stored.any()
        places = positions(labels, new) if sorted_in else len(old) + np.arange(len(new))
        return Axis(len(labels), labels, stay, places)
    _require_backfill(mode, old, fresh, down, show)
    if not (in_order and _is_monotonic(old)):
        raise InvalidInputError(
            "mode 'backfill' needs sorted labels in the repository and in the files, but they are not sorted",
            ErrorKind.INVALID_CHUNK_INDEX,
        ).with_remedy("Use {} in another group", argument(mode="create"))
    labels = np.sort(labels)[:: -1 if down else 1]
    return Axis(len(labels), labels, positions(labels, old), positions(labels, new))


def _require_mode(mode: Mode, stored: NDArray[Any], fresh: NDArray[Any], show: Callable[[Any], str]) -> None:
    """Raise an error if mode "append" gets a stored label, or mode "insert" a new label."""
    if mode == "append" and len(stored):
        raise InvalidInputError(
            f"mode 'append' needs new labels, but the group already has {show(stored[0])}",
            ErrorKind.INVALID_CHUNK_INDEX,
        ).with_remedy(
            "Use {} to replace the values of this step. For files of another level or member, give {} with "
            "the name of that coordinate, from the first file on",
            argument(mode="upsert"),
            argument(concat_dim=...),
        )
    if mode == "insert" and len(fresh):
        raise _mode_refusal(f"mode 'insert' needs labels that the group has, got {show(fresh[0])}", "upsert")


def _require_backfill(
    mode: Mode, old: NDArray[Any], fresh: NDArray[Any], down: bool, show: Callable[[Any], str]
) -> None:
    """Raise an error for new labels that do not follow the old labels, except in mode "backfill"."""
    if mode != "backfill":
        last, first = (old.min(), fresh.max()) if down else (old.max(), fresh.min())
        raise _mode_refusal(
            f"mode {mode!r} needs new labels after {show(last)}, got {show(first)}", "backfill"
        )


def _as_stored(new: NDArray[Any], old: NDArray[Any]) -> NDArray[Any]:
    """Return new labels in the dtype of the stored labels."""
    with np.errstate(invalid="ignore"):
        stored = new.astype(old.dtype)
    if old.dtype.kind in "iu" and (stored != new).any():
        raise InvalidInputError(
            f"new labels must fit the dtype {old.dtype} of the labels in the repository, got "
            f"{new[stored != new][0]}. Ingest the files into another group",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return stored


def _is_behind(old: NDArray[Any], fresh: NDArray[Any], down: bool) -> bool:
    return bool(fresh.max() < old.min() if down else fresh.min() > old.max())


def _is_unique(labels: NDArray[Any]) -> bool:
    return len(np.unique(labels)) == len(labels)


def _is_monotonic(labels: NDArray[Any]) -> bool:
    steps = np.diff(labels)
    return bool((steps > 0).all() or (steps < 0).all())


def _mode_refusal(text: str, other: str) -> InvalidInputError:
    error = InvalidInputError(text, ErrorKind.INVALID_CHUNK_INDEX)
    return error.with_remedy("Use {}", argument(mode=other))


@dataclass(frozen=True, slots=True)
class Pieces:
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

    def within(self, start: int, stop: int) -> Pieces:
        """Return the parts of the pieces in a span of the axis."""
        low = np.maximum(self.at, start)
        high = np.minimum(self.at + self.count, stop)
        some = low < high
        return Pieces(self.source[some], (self.start + low - self.at)[some], low[some], (high - low)[some])


def runs(source: NDArray[np.int64], start: NDArray[np.int64], at: NDArray[np.int64]) -> Pieces:
    """Join single steps to runs."""
    order = np.argsort(at, kind="stable")
    source, start, at = source[order], start[order], at[order]
    breaks = np.ones(len(at), np.bool_)
    breaks[1:] = (np.diff(at) != 1) | (np.diff(start) != 1) | (np.diff(source) != 0)
    first = np.flatnonzero(breaks)
    count = np.diff(np.append(first, len(at)))
    return Pieces(source[first], start[first], at[first], count.astype(np.int64))


def old_pieces(axis: Axis, start: int, stop: int) -> Pieces:
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
        """Return columns of the steps of files that are on the axis: file, step in the file, position."""
        rows, counts = self.rows(files), self.counts[files]
        source, inside = np.repeat(files, counts), rows - np.repeat(self.start[files], counts)
        on_axis = self.at[rows] >= 0
        return source[on_axis], inside[on_axis], self.at[rows[on_axis]]

    def label_text(self, label: Any) -> str:
        """Return a label as text for people."""
        return label_text(label, self.units, self.calendar)


def rows_of(start: NDArray[np.int64], files: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows ``start[i]:start[i + 1]`` of files, file by file."""
    counts = np.diff(start)[files]
    ends = np.cumsum(counts)
    rows: NDArray[np.int64] = np.repeat(start[files] - ends + counts, counts) + np.arange(int(counts.sum()))
    return rows


NO_STEPS: Final = Steps(np.zeros(1, np.int64), None, np.zeros(0, np.int64), None, 0)


def labelled_steps(
    start: NDArray[np.int64], labels: NDArray[Any], units: str | None, calendar: str, good: NDArray[np.bool_]
) -> Steps:
    """Return steps with labels and without positions. They are descending if most labels decrease."""
    _, up, down = _directions(start, labels, good)
    descending = bool(down.sum() > up.sum())
    nowhere = np.full(len(labels), -1, np.int64)
    return Steps(start, labels, nowhere, labels[:0], 0, units, calendar, descending)


def _directions(
    start: NDArray[np.int64], labels: NDArray[Any], good: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the file of each row except the first, and two masks of increasing and decreasing labels.

    A label is compared with the label of the row before in the same file.
    """
    file = np.repeat(np.arange(len(start) - 1), np.diff(start))
    inside = (file[1:] == file[:-1]) & good[file[1:]]
    if labels.dtype.kind not in "iuf":
        nothing = np.zeros(len(inside), np.bool_)
        return file[1:], nothing, nothing
    return file[1:], (labels[1:] > labels[:-1]) & inside, (labels[1:] < labels[:-1]) & inside


def order_problems(steps: Steps, good: NDArray[np.bool_]) -> list[FileProblem]:
    """Return problems to files with labels that are not in the order of most files, repeated, or NaN."""
    labels = _labels(steps)
    file = np.repeat(np.arange(len(good)), steps.counts)
    if labels.dtype.kind not in "iuf":
        return [FileProblem(each, "unordered", "has a label twice") for each in _twice(file, labels, good)]
    behind, up, down = _directions(steps.start, labels, good)
    inside = (behind == file[:-1]) & good[behind]
    wrong = np.unique(behind[inside & ~(down if steps.descending else up)])
    unknown = np.unique(file[~(labels == labels) & good[file]])
    way = "decrease" if steps.descending else "increase"
    return [
        *(FileProblem(each, "unordered", f"labels do not all {way}") for each in wrong.tolist()),
        *(
            FileProblem(each, "unordered", "has labels that are NaN")
            for each in np.setdiff1d(unknown, wrong).tolist()
        ),
    ]


def _twice(file: NDArray[np.int64], labels: NDArray[Any], good: NDArray[np.bool_]) -> list[int]:
    """Return the numbers of files with a repeated label."""
    rows = np.flatnonzero(good[file])
    _, codes = np.unique(labels[rows], return_inverse=True)
    pairs, counts = np.unique(np.stack([file[rows], codes]), axis=1, return_counts=True)
    twice: list[int] = np.unique(pairs[0][counts > 1]).tolist()
    return twice


def overlap_problems(
    steps: Steps, files: NDArray[np.int64], urls: Sequence[str], contents: NDArray[np.uint8]
) -> list[FileProblem]:
    """Return problems to files with a label that an earlier file has.

    Labels of files with a problem do not count as labels of an earlier file.
    """
    labels, counts = _labels(steps), steps.counts
    rows = steps.rows(files)
    file = np.repeat(files, counts[files])
    distinct, codes = np.unique(labels[rows], return_inverse=True)
    pairs = np.unique(np.stack([codes, file]), axis=1)  # a repeated label in one file is not an overlap
    codes, owners = pairs
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
        same = bool((contents[each] == contents[earlier]).all())
        label = steps.label_text(distinct[taken[0]])
        text = f"shares {len(taken)} of its {counts[each]} labels ({label}) with {urls[earlier]}"
        problems.append(
            FileProblem(
                each,
                "duplicate" if same else "overlap",
                f"{text}{', and has the same contents' if same else ''}",
            )
        )
    return problems


def sorted_steps(steps: Steps, families: Sequence[NDArray[np.int64]]) -> Steps:
    """Return the steps of families of files on one axis of sorted labels.

    Labels that are text stay in the order of the files. If several files of a family have a label, the step
    of the last file is used.
    """
    labels = _labels(steps)
    rows = np.sort(np.concatenate([steps.rows(files) for files in families]))
    axis, first, codes = np.unique(labels[rows], return_index=True, return_inverse=True)
    if axis.dtype.kind in "iuf":
        place = np.arange(len(axis))[::-1] if steps.descending else np.arange(len(axis))
    else:
        place = np.empty(len(axis), np.int64)
        place[np.argsort(first, kind="stable")] = np.arange(len(axis))
    at = np.full(len(labels), -1, np.int64)
    at[rows] = place[codes]
    placed = np.empty_like(axis)
    placed[place] = axis
    return replace(steps, at=_last_of_each(steps, at, families), axis=placed, length=len(axis))


def _last_of_each(
    steps: Steps, at: NDArray[np.int64], families: Sequence[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the positions, with -1 for steps whose label a later file of the family has."""
    left = np.full_like(at, -1)
    for files in families:
        rows = np.sort(steps.rows(files))
        _, back = np.unique(at[rows][::-1], return_index=True)
        last = rows[::-1][back]
        left[last] = at[last]
    return left


def unsorted_steps(steps: Steps, families: Sequence[NDArray[np.int64]]) -> Steps | None:
    """Return the steps of files one after the other, in the order of their file.

    The files are in the order of their first labels. If several files of a family have a label, the step of
    the last file is used. Returns None if the families then have different labels: it is unknown which steps
    belong together.
    """
    labels = _labels(steps)
    at = np.full(len(labels), -1, np.int64)
    axes: list[NDArray[Any]] = []
    for files in families:
        some = files[steps.counts[files] > 0]
        heads = labels[steps.start[some]]
        order = np.arange(len(some))
        if heads.dtype.kind in "iuf":
            order = np.lexsort((order, -heads.astype(np.float64) if steps.descending else heads))
        rows = steps.rows(some[order])
        rows = rows[_is_last_file(steps, rows, labels)]
        at[rows] = np.arange(len(rows))
        axes.append(labels[rows])
    equal_nan = labels.dtype.kind == "f"
    if not all(np.array_equal(axes[0], axis, equal_nan=equal_nan) for axis in axes[1:]):
        return None
    return replace(steps, at=at, axis=axes[0], length=len(axes[0]), in_order=False)


def _is_last_file(steps: Steps, rows: NDArray[np.int64], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the rows whose label no later file has."""
    file = np.searchsorted(steps.start, rows, side="right") - 1
    _, codes = np.unique(labels[rows], return_inverse=True)
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last, codes, file)
    later: NDArray[np.bool_] = file == last[codes]
    return later


def unlabelled_steps(
    length: NDArray[np.int64], families: Sequence[NDArray[np.int64]], position: NDArray[np.int64] | None
) -> Steps:
    """Return the steps of files without labels, in the order of the pattern or of the list of files."""
    start = np.concatenate([[0], np.cumsum(length)])
    at = np.full(int(start[-1]), -1, np.int64)
    steps = Steps(start, None, at, None, 0)
    longest = 0
    for files in families:
        order = files if position is None else files[np.argsort(position[files], kind="stable")]
        rows = steps.rows(order)
        at[rows] = np.arange(len(rows))
        longest = max(longest, len(rows))
    return replace(steps, length=longest)


def _labels(steps: Steps) -> NDArray[Any]:
    assert steps.labels is not None
    return steps.labels


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
