"""The order of steps: the position of each step of each file along the concat dimension.

    steps    columns with an entry for each step of each file: its label, and its position on the axis
    axis     the labels of the dataset

Labels of files must all increase or all decrease, and the axis has each label once, sorted. If they do not
(a single file, or ``allow={"unordered"}``), the files follow each other with their steps in file order, and a
label may occur several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.axis import label_text
from frazil.pipeline.ingest.problems import FileProblem


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
