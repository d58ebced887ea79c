"""Where labels go: the axis of the repository, and what is new on it.

    create, append    new labels follow the old ones
    insert            all of them are there: values are replaced
    upsert            those that are there are replaced, new ones follow
    backfill          those that are there are replaced, new ones go where they belong

Where an old label moves, its values move: the axis says from where to where. One rule then serves all modes:
what was there goes where its label goes, and what comes is written over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.ingest.units import shown

type Mode = Literal["create", "append", "insert", "upsert", "backfill"]
MODES: Final = ("create", "append", "insert", "upsert", "backfill")


@dataclass(frozen=True, slots=True)
class Axis:
    """``old`` is where each old step goes. ``labels`` are None where steps have none."""

    length: int
    labels: NDArray[Any] | None
    old: NDArray[np.int64]
    descending: bool = False

    @property
    def first_moved(self) -> int:
        """The first step that is not what it was, up to the old end; the old end if nothing moved."""
        moved = self.old != np.arange(len(self.old))
        return int(np.argmax(moved)) if moved.any() else len(self.old)

    def find(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The steps of labels that are there."""
        if self.labels is None:
            raise InvalidInputError("expected an axis with labels, found none", ErrorKind.INVALID_KEY)
        return positions(self.labels, labels)


def positions(axis: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Where labels are on an axis, -1 for those that are not.

    >>> positions(np.array([30, 20, 10]), np.array([10, 15, 30])).tolist()
    [2, -1, 0]
    """
    if not len(axis):
        return np.full(len(labels), -1, np.int64)
    order = np.argsort(axis, kind="stable")
    place = np.minimum(np.searchsorted(axis[order], labels), len(axis) - 1)
    found = order[place]
    return np.where(axis[found] == labels, found, -1).astype(np.int64)


def place(
    mode: Mode,
    old: NDArray[Any],
    new: NDArray[Any],
    *,
    descending: bool = False,
    units: str | None = None,
    calendar: str = "standard",
) -> Axis:
    """The axis with new labels (each once, in order) on it.

    >>> axis = place("backfill", np.array([0, 1, 4]), np.array([2, 3]))
    >>> axis.labels.tolist(), axis.old.tolist(), axis.first_moved
    ([0, 1, 2, 3, 4], [0, 1, 4], 2)

    Raises ``InvalidInputError`` (``invalid-chunk-index``) for labels that the mode does not allow.
    """
    found = positions(old, new)
    fresh = new[found < 0]
    stay = np.arange(len(old))

    def tell(label: Any) -> str:
        return shown(label, units, calendar)

    if mode == "append" and len(fresh) < len(new):
        raise _refused(
            f"mode 'append': expected new labels, found {tell(new[found >= 0][0])}, which is there", "upsert"
        )
    if mode == "insert" and len(fresh):
        raise _refused(f"mode 'insert': expected labels that are there, found {tell(fresh[0])}", "upsert")
    if not len(fresh):
        return Axis(len(old), old, stay, descending)
    numbers = old.dtype.kind in "iuf" and new.dtype.kind in "iuf"
    if not len(old) or not numbers:
        return Axis(len(old) + len(fresh), np.concatenate([old.astype(new.dtype), fresh]), stay, descending)
    down = old[-1] < old[0] if len(old) > 1 else descending
    if down:
        fresh = np.sort(fresh)[::-1]
    behind = fresh[0] < old[-1] if down else fresh[0] > old[-1]
    if behind:
        return Axis(len(old) + len(fresh), np.concatenate([old, fresh.astype(old.dtype)]), stay, bool(down))
    if mode != "backfill":
        raise _refused(
            f"mode {mode!r}: expected new labels after {tell(old[-1])}, found {tell(fresh[0])}", "backfill"
        )
    steps = np.diff(old)
    if (steps == 0).any() or ((steps < 0).any() and (steps > 0).any()):
        raise _refused(
            "mode 'backfill': expected labels in order in the repository, found them mixed", "create"
        )
    labels = np.sort(np.concatenate([old, fresh.astype(old.dtype)]))
    labels = labels[::-1] if down else labels
    return Axis(len(labels), labels, positions(labels, old), bool(down))


def _refused(text: str, other: str) -> InvalidInputError:
    return InvalidInputError(f"{text}; mode {other!r} allows it", ErrorKind.INVALID_CHUNK_INDEX)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Runs of steps, from where to where: ``source`` (a number of a file, -1 for what was there), its first
    step, the first step on the axis, and how many; in order of the latter."""

    source: NDArray[np.int64]
    start: NDArray[np.int64]
    at: NDArray[np.int64]
    count: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)

    def within(self, start: int, stop: int) -> Pieces:
        """The parts of the pieces in a span of the axis."""
        low = np.maximum(self.at, start)
        high = np.minimum(self.at + self.count, stop)
        some = low < high
        return Pieces(self.source[some], (self.start + low - self.at)[some], low[some], (high - low)[some])


def runs(source: NDArray[np.int64], start: NDArray[np.int64], at: NDArray[np.int64]) -> Pieces:
    """Single steps joined to runs.

    >>> pieces = runs(np.array([7, 7, 7, 8]), np.array([0, 1, 2, 0]), np.array([4, 5, 9, 6]))
    >>> list(zip(pieces.source.tolist(), pieces.start.tolist(), pieces.at.tolist(), pieces.count.tolist()))
    [(7, 0, 4, 2), (8, 0, 6, 1), (7, 2, 9, 1)]
    """
    order = np.argsort(at, kind="stable")
    source, start, at = source[order], start[order], at[order]
    breaks = np.ones(len(at), np.bool_)
    breaks[1:] = (np.diff(at) != 1) | (np.diff(start) != 1) | (np.diff(source) != 0)
    first = np.flatnonzero(breaks)
    count = np.diff(np.append(first, len(at)))
    return Pieces(source[first], start[first], at[first], count.astype(np.int64))


def old_pieces(axis: Axis, start: int, stop: int) -> Pieces:
    """What was there and belongs into a span."""
    steps = np.flatnonzero((axis.old >= start) & (axis.old < stop))
    return runs(np.full(len(steps), -1, np.int64), steps.astype(np.int64), axis.old[steps])
