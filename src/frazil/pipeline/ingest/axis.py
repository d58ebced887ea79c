"""The axis of the dataset: the positions of the labels of the group and of the files.

    create, append    new labels follow the old labels
    insert            the group has all labels: their values are replaced
    upsert            values of stored labels are replaced, new labels follow
    backfill          values of stored labels are replaced, new labels go to their place in the order

If an old label moves, its values move too. The axis has the old and the new position of each step, so all
modes have one rule: old values move with their label, then new values overwrite them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import cftime  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import is_time
from frazil.errors import ErrorKind, InvalidInputError
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
