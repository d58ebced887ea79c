"""The smallest and the largest value of a column in boxes of tiles, from the statistics of chunks.

All tables ask this module which boxes can have rows that meet a condition on data. Extremes are decoded as
the elements are, which keeps their order. A box with a chunk without statistics is not known, and is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.answers.tiles import Mask, TileGrid, TileStatistics, has_statistics, tiles_of
from frazil.arrays.element_statistics import limits
from frazil.arrays.encoding import encoding_of
from frazil.arrays.selection import chunk_numbers
from frazil.arrow.grid import Column, Grid, Values
from frazil.cf import Coding
from frazil.errors import InvalidInputError
from frazil.format.chunk_statistics import row_dtype
from frazil.format.columns import I64
from frazil.repository.session.session import Session

#: Elements ``starts`` up to but not including ``stops``, in order.
type Intervals = tuple[I64, I64]

#: The types whose values have the order of their elements.
_ORDERED: Final = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean),
    *(pa.types.is_timestamp, pa.types.is_duration),
)


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """What is known about the values of boxes. All arrays have the shape of the boxes.

    Attributes:
        low: The smallest value that is neither null nor NaN, as `Decoder.decode` returns it.
        high: The largest such value.
        has_values: Whether a box has such values. Other boxes have any number in ``low`` and ``high``.
        has_nan: Whether a box can have NaN.
        has_null: Whether a box can have null.
        is_known: Whether the other arrays are true for a box.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    has_values: Mask
    has_nan: Mask
    has_null: Mask
    is_known: Mask


def finest_block(session: Session, grid: Grid, columns: Sequence[Column]) -> tuple[int, ...]:
    """Return the shape of the smallest blocks to read columns in: chunks, or inner chunks of shards."""
    block = [0] * len(grid.shape)
    for each in columns:
        assert each.path is not None
        encoding = encoding_of(session.workspace.require_array(each.path).user_data)
        lengths = each.chunks if encoding is None or each.instances else encoding.lengths
        for axis, length in zip(each.axes, lengths, strict=False):
            block[axis] = max(block[axis], length if isinstance(length, int) else int(np.diff(length).max()))
    return tuple(min(each or most, most) for each, most in zip(block, grid.block, strict=True))


def has_ranges(session: Session, column: Column) -> bool:
    """Return whether the statistics of chunks can have ranges of a column."""
    if column.path is None or column.instances is not None or not column.axes:
        return False
    is_ordered = any(is_type(column.type) for is_type in _ORDERED)
    return (
        is_ordered and _cells(session, column) is not None and has_statistics(session.workspace, column.path)
    )


def _cells(session: Session, column: Column) -> TileGrid | None:
    """Return the grid of the tiles of a column, if their statistics say something about its values."""
    assert column.path is not None
    document = session.workspace.require_array(column.path).user_data
    return TileGrid.of(column.path, document, column.decoder.coding)


def column_ranges(
    session: Session, column: Column, boxes: Sequence[Intervals], *, missing: str = "fill"
) -> Ranges | None:
    """Return the ranges of a column that ``has_ranges`` in boxes, or None if nothing is known.

    ``boxes`` are intervals along each dimension of the grid. The result has the shape of their product, with
    1 for dimensions that the column does not have. ``missing`` says what tiles without a chunk have: their
    fill value, or else null.
    """
    grid = _cells(session, column)
    assert grid is not None
    shape = tuple(len(boxes[axis][0]) for axis in column.axes)
    raw = _Extremes(grid, shape, column.decoder.coding)
    if not raw.is_unknown.size:
        return None
    assert column.path is not None
    session.workspace.note_tree(column.path)  # chunks that are left out decide about the rows, too
    # The number of the first tile of each interval, and the number after its last one.
    spans = [
        (chunk_numbers(boxes[axis][0], length), chunk_numbers(boxes[axis][1] - 1, length) + 1)
        for axis, length in zip(column.axes, grid.encoding.lengths, strict=True)
    ]
    met = tuple((int(first.min()), int(last.max())) for first, last in spans)
    for tiles, part in tiles_of(session.workspace, grid, met):
        raw.add(tiles, part, spans)
    if raw.is_unknown.all():
        return None
    try:
        ranges = raw.decoded(column, missing)
    except InvalidInputError:  # a time that is none, which a scan reports if it reads it
        return None
    wide = [len(starts) if axis in column.axes else 1 for axis, (starts, _) in enumerate(boxes)]
    order = np.argsort(column.axes)
    return Ranges(*(getattr(ranges, each.name).transpose(order).reshape(wide) for each in fields(ranges)))


class _Extremes:
    """The extremes of the elements of boxes, part by part."""

    def __init__(self, grid: TileGrid, shape: tuple[int, ...], coding: Coding) -> None:
        self._grid, self._coding = grid, coding
        dtype = row_dtype(grid.meaning.kind, len(shape))["minimum"]
        self._low, self._high = (np.full(shape, each, dtype) for each in limits(dtype))
        self._flags = np.zeros((5, *shape), np.bool_)

    @property
    def is_unknown(self) -> Mask:
        """The boxes with tiles without statistics."""
        unknown: Mask = self._flags[0]
        return unknown

    def add(
        self, tiles: TileStatistics, part: tuple[tuple[int, int], ...], spans: list[tuple[I64, I64]]
    ) -> None:
        """Add the tiles of a part of the grid. ``spans`` are the tiles of each box along each axis."""
        place = tiles.within(part)
        low, high = (each[place] for each in tiles.extremes)
        rows = tiles.rows[place]
        unknown = tiles.is_unknown[place] | self._grid.meaning.hidden(self._coding, rows)
        counts = (rows["nan"] > 0, rows["missing"] > 0)
        flags = np.stack([unknown, ~tiles.is_present[place], tiles.count[place] > 0, *counts])
        target = []
        for axis, ((first, last), (begin, end)) in enumerate(zip(spans, part, strict=True)):
            members = np.flatnonzero((first < end) & (last > begin))
            if not len(members):
                return
            target.append(slice(int(members[0]), int(members[-1]) + 1))
            ends = np.clip(np.stack([first[target[-1]], last[target[-1]]], axis=1), begin, end) - begin
            low, high = (_reduced(f, each, ends, axis) for f, each in ((np.minimum, low), (np.maximum, high)))
            flags = _reduced(np.logical_or, flags, ends, axis + 1)
        spot = tuple(target)
        self._low[spot] = np.minimum(self._low[spot], low)
        self._high[spot] = np.maximum(self._high[spot], high)
        self._flags[(slice(None), *spot)] |= flags

    def decoded(self, column: Column, missing: str) -> Ranges:
        """Return the ranges of values."""
        unknown, absent, has_values, has_nan, has_null = self._flags
        decoder, coding = column.decoder, column.decoder.coding
        chosen = has_values & ~unknown
        ends = []
        for each in (self._low[chosen], self._high[chosen]):
            if coding.unsigned is not None:
                elements = each.astype(coding.unsigned).view(coding.dtype)
            else:
                elements = each.view(coding.dtype) if coding.dtype.kind in "mM" else each.astype(coding.dtype)
            ends.append(decoder.decode(elements))
        if coding.scale is not None and coding.scale < 0:
            ends.reverse()
        is_known = ~unknown
        is_known[chosen] = ~(_is_nothing(ends[0]) | _is_nothing(ends[1]))  # values without an order
        low, high = np.zeros((2, *has_values.shape), ends[0].data.dtype)
        low[chosen], high[chosen] = (each.data for each in ends)
        if coding.dtype.kind in "fmM":
            nan = np.full(1, np.nan if coding.dtype.kind == "f" else "NaT", coding.dtype)
            if coding.missing(nan) is not None:
                has_null, has_nan = has_null | has_nan, np.zeros_like(has_nan)
        fill = decoder.decode(np.full(1, self._grid.encoding.fill, coding.dtype))
        if missing != "fill" or fill.null is not None:
            return Ranges(low, high, has_values, has_nan, has_null | absent, is_known)
        if _is_nothing(fill)[0]:
            return Ranges(low, high, has_values, has_nan | absent, has_null, is_known)
        value = fill.data[0]
        low = np.where(absent & ~(has_values & (low < value)), value, low)
        high = np.where(absent & ~(has_values & (high > value)), value, high)
        return Ranges(low, high, has_values | absent, has_nan, has_null, is_known)


def _is_nothing(values: Values) -> Mask:
    """Return which values are null, NaN or NaT."""
    kind = values.data.dtype.kind
    nothing = np.isnat(values.data) if kind in "mM" else np.asarray(values.data != values.data)
    return nothing if values.null is None else nothing | values.null


def _reduced(function: np.ufunc, columns: NDArray[Any], ends: I64, axis: int) -> NDArray[Any]:
    """Return columns reduced along an axis over intervals, which can overlap: ``ends`` of shape (n, 2)."""
    width = [(0, int(at == axis)) for at in range(columns.ndim)]  # the end of the last interval has a place
    out: NDArray[Any] = function.reduceat(np.pad(columns, width), ends.reshape(-1), axis=axis)
    return out.take(np.arange(0, out.shape[axis], 2), axis=axis)
