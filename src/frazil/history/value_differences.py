"""The differences in the values of an array between two versions, each decoded with its own attributes.

Chunks with the same reference are not read, unless grids, encodings or attributes that decode values differ.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.cf import Coding, coding_of
from frazil.cf_times import Mask
from frazil.changes.diff import differing
from frazil.changes.zarr_metadata import chunk_lengths, same_encoding
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import I64, U32
from frazil.format.snapshot import Node
from frazil.history.reports import ValueDifference
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.threads import Purpose, map_bounded
from frazil.zarr_store.arrays import array_at


@dataclass(frozen=True, slots=True)
class _Sums:
    """The changed cells of one chunk: their number, the numbers among them, and sums of their differences."""

    changed: int
    numbers: int = 0
    total: float = 0.0
    squares: float = 0.0
    largest: float = float("nan")


def value_differences(before: Session, after: Session, path: str, *, decode: bool = True) -> ValueDifference:
    """Compare the values of an array. See ``Repository.diff_values``."""
    new = after.workspace.require_array(absolute(path))
    old = before.workspace.same_node(new)
    if old is None or old.array is None:
        old = before.workspace.require_array(new.path)
    if len(old.array_data.shape) != len(new.array_data.shape):
        raise InvalidInputError(
            f"the array `{new.path}` must have the same number of dimensions in both versions, got "
            f"{len(old.array_data.shape)} and {len(new.array_data.shape)}",
            ErrorKind.UNSUPPORTED_ARRAY,
        )
    shape = tuple(map(min, old.array_data.shape, new.array_data.shape))
    edges = _edges(new)
    arrays = array_at(before, old.path), array_at(after, new.path)
    codings = [
        coding_of(_document(node).get("attributes", {}), array.dtype) if decode else Coding(array.dtype)
        for node, array in zip((old, new), arrays, strict=True)
    ]
    # Equal elements have equal values, also with other units of numbers. NaN is equal to itself in a `repr`.
    same = {repr(each if each.is_time else replace(each, units=None)) for each in codings}
    fills = [_document(node).get("fill_value") for node in (old, new)]
    if len(same) == 1 and fills[0] == fills[1] and same_encoding(old.user_data, new.user_data):
        tables = [session.workspace.ref_table(node.path) for session, node in ((before, old), (after, new))]
        index = differing(*tables)
        index = index[(index < np.array(new.array_data.num_chunks, np.uint32)).all(axis=1)]
    else:
        index = np.indices(new.array_data.num_chunks, np.uint32).reshape(len(new.array_data.num_chunks), -1).T
    is_common = np.ones(len(index), np.bool_)
    for axis, (edge, end) in enumerate(zip(edges, shape, strict=True)):
        is_common &= edge[index[:, axis]] < end
    index = index[is_common]

    def compare(chunk: NDArray[np.uint32]) -> _Sums:
        where = tuple(
            slice(int(edge[at]), int(min(edge[at + 1], end)))
            for at, edge, end in zip(chunk.tolist(), edges, shape, strict=True)
        )
        elements = [np.asarray(array[where]) for array in arrays]
        values = [coding.decode(each) for coding, each in zip(codings, elements, strict=True)]
        return _compared(*values[0], *values[1], *codings)

    sums = map_bounded(Purpose.CHUNK_COPIES, compare, list(index))
    units = codings[1].units if codings[0].units == codings[1].units else None
    if codings[1].is_time or codings[1].dtype.kind in "mM":
        units = codings[1].step[0]
    return _report(new, prod(old.array_data.shape), prod(shape), index, sums, units)


def _edges(node: Node) -> list[I64]:
    """Return the first cell of each chunk along each dimension, and the end of the last chunk."""
    counts = node.array_data.num_chunks
    return [
        np.arange(count + 1) * edge if isinstance(edge, int) else np.array([0, *accumulate(edge)], np.int64)
        for edge, count in zip(chunk_lengths(node.user_data), counts, strict=True)
    ]


def _document(node: Node) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(node.user_data)
    return document


#: Kinds of data types whose values can be compared with each other.
_COMPARABLE: Final = ("biufc", "M", "m", "UT", "S", "O", "V")


def _compared(
    old: NDArray[Any],
    old_missing: Mask | None,
    new: NDArray[Any],
    new_missing: Mask | None,
    old_coding: Coding,
    coding: Coding,
) -> _Sums:
    """Compare the values of one chunk. A missing value equals a missing value."""
    kinds = {old.dtype.kind, new.dtype.kind}
    is_comparable = any(kinds <= set(each) for each in _COMPARABLE) and _calendar(old) == _calendar(new)
    differs = np.asarray(old != new) if is_comparable else np.ones(new.shape, np.bool_)
    if kinds <= set("iuf") and old_coding != coding:
        # Two packings of one value unpack to floats that differ in their last digits.
        allowed = sum(each.noise(new) for each in (old_coding, coding) if each.floating is not None)
        differs &= ~(np.abs(new.astype(np.float64) - old.astype(np.float64)) <= allowed)
    masks = _missing(old, old_missing), _missing(new, new_missing)
    is_number = ~(masks[0] | masks[1])
    differs = np.where(is_number, differs, masks[0] ^ masks[1])
    changed = int(np.count_nonzero(differs))
    both = differs & is_number
    if not is_comparable or not both.any() or not (kinds <= set("biufmM") or coding.calendar is not None):
        return _Sums(changed)
    ends = np.asarray(old)[both], np.asarray(new)[both]
    if kinds in ({"i"}, {"u"}):  # floats do not tell large integers apart
        low, high = (order(*ends).astype(np.uint64) for order in (np.minimum, np.maximum))
        steps = (high - low).astype(np.float64) * np.where(ends[1] < ends[0], -1.0, 1.0)
    elif kinds <= set("biuf"):
        steps = ends[1].astype(np.float64) - ends[0].astype(np.float64)
    else:
        steps = (ends[1] - ends[0]).astype("m8[us]") / coding.step[1]
    steps = steps[~np.isnan(steps)]  # of infinite values
    if not len(steps):
        return _Sums(changed)
    with np.errstate(over="ignore"):  # the sum is infinite then
        squares = float((steps * steps).sum())
    return _Sums(changed, len(steps), float(steps.sum()), squares, float(np.abs(steps).max()))


def _missing(values: NDArray[Any], missing: Mask | None) -> Mask:
    """Return which values are missing. NaN is a missing value, also where another attribute names one."""
    nothing = np.isnan(values) if values.dtype.kind in "fc" else np.zeros(values.shape, np.bool_)
    return np.asarray(nothing if missing is None else nothing | missing)


def _calendar(values: NDArray[Any]) -> str | None:
    """Return the calendar of objects of cftime, or None for other values."""
    dates = values.reshape(-1).tolist() if values.dtype.kind == "O" else []
    return next((each.calendar for each in dates if hasattr(each, "calendar")), None)


def _report(
    node: Node, old_cells: int, cells: int, index: U32, sums: list[_Sums], units: str | None
) -> ValueDifference:
    changed = np.array([each.changed for each in sums], np.int64)
    largest = np.array([each.largest for each in sums], np.float64)
    numbers = sum(each.numbers for each in sums)
    has = changed > 0
    nothing = float("nan")
    return ValueDifference(
        node.path,
        cells,
        int(changed.sum()),
        sum(each.total for each in sums) / numbers if numbers else nothing,
        float(np.nanmax(largest)) if numbers else nothing,
        sqrt(sum(each.squares for each in sums) / numbers) if numbers else nothing,
        node.array_data.num_chunks,
        index[has],
        changed[has],
        largest[has],
        len(index),
        units,
        prod(node.array_data.shape) - cells,
        old_cells - cells,
    )
