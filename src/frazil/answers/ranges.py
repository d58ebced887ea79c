"""The smallest and the largest value of an array in boxes of tiles, from the statistics of chunks.

`frazil.where`, tables and filters of pyarrow ask this module what a box has: numbers between two ends, NaN
and null. Extremes are decoded as the elements are, which keeps their order. A box with a chunk without
statistics is not known, and is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.answers.conditions import ValueRanges
from frazil.answers.tiles import Box, Mask, TileGrid, TileStatistics, tiles_of
from frazil.arrays.element_statistics import limits, statistics_of
from frazil.arrays.selection import chunk_numbers
from frazil.cf import Coding
from frazil.format.columns import I64
from frazil.repository.session.workspace import Workspace

#: Elements ``starts`` up to but not including ``stops``, in order.
type Intervals = tuple[I64, I64]
#: What decodes elements: values, and which of them are null.
type Decode = Callable[[NDArray[Any]], tuple[NDArray[Any], Mask | None]]


def tile_ranges(
    grid: TileGrid, tiles: TileStatistics, part: Box, coding: Coding, *, has_fill: bool = True
) -> ValueRanges:
    """Return the ranges of the tiles of a part of a grid, before they are decoded.

    A tile without a chunk has the fill value; without ``has_fill`` it has null.
    """
    place = tiles.within(part)
    rows, is_absent = tiles.rows[place], ~tiles.is_present[place]
    low, high = (each[place] for each in tiles.extremes)
    has_values, has_nan, has_null = tiles.count[place] > 0, rows["nan"] > 0, rows["missing"] > 0
    is_known = ~tiles.is_unknown[place]
    if coding is not grid.meaning.coding:
        is_known &= ~grid.meaning.hidden(coding, rows)
    if has_fill and is_absent.any():
        fill = np.full((1, 1), grid.encoding.fill, coding.dtype)
        one = statistics_of(replace(grid.meaning, coding=coding), fill)
        has_nan, has_null = (
            has_nan | (is_absent & one["nan"][0] > 0),
            has_null | (is_absent & one["missing"][0] > 0),
        )
        if not (one["nan"][0] or one["missing"][0]):
            low, high = (
                np.where(is_absent, one[name][0], each)
                for name, each in (("minimum", low), ("maximum", high))
            )
            has_values = has_values | is_absent
    elif not has_fill:
        has_null = has_null | is_absent
    if coding.dtype.kind in "fmM":
        nan = np.full(1, np.nan if coding.dtype.kind == "f" else "NaT", coding.dtype)
        if coding.missing(nan) is not None:
            has_null, has_nan = has_null | has_nan, np.zeros_like(has_nan)
    return ValueRanges(low, high, has_values, has_nan, has_null, is_known)


def box_ranges(
    workspace: Workspace, grid: TileGrid, coding: Coding, boxes: Sequence[Intervals], *, has_fill: bool = True
) -> ValueRanges:
    """Return the ranges of boxes of elements, before they are decoded, in the shape of their product.

    ``boxes`` are intervals of elements along each dimension of the array, at least one.
    """
    # The number of the first tile of each interval, and the number after its last one.
    spans = [
        (chunk_numbers(starts, length), chunk_numbers(stops - 1, length) + 1)
        for (starts, stops), length in zip(boxes, grid.encoding.lengths, strict=True)
    ]
    parts = tiles_of(workspace, grid, tuple((int(first.min()), int(last.max())) for first, last in spans))
    ends, flags = None, np.zeros((4, *(len(first) for first, _ in spans)), np.bool_)
    for tiles, part in parts:
        of = tile_ranges(grid, tiles, part, coding, has_fill=has_fill)
        if ends is None:
            ends = [np.full(flags.shape[1:], each, of.low.dtype) for each in limits(of.low.dtype)]
        columns = [of.low, of.high, np.stack([of.has_values, of.has_nan, of.has_null, ~of.is_known])]
        target = list[slice]()
        for axis, ((first, last), (begin, end)) in enumerate(zip(spans, part, strict=True)):
            members = np.flatnonzero((first < end) & (last > begin))
            if not len(members):
                break
            target.append(slice(int(members[0]), int(members[-1]) + 1))
            inside = np.clip(np.stack([first[target[-1]], last[target[-1]]], axis=1), begin, end) - begin
            for at, function in enumerate((np.minimum, np.maximum, np.logical_or)):
                columns[at] = _reduced(function, columns[at], inside, axis + (at == 2))
        else:
            spot = tuple(target)
            for function, out, column in zip((np.minimum, np.maximum), ends, columns[:2], strict=True):
                out[spot] = function(out[spot], column)
            flags[(slice(None), *spot)] |= columns[2]
    assert ends is not None
    return ValueRanges(ends[0], ends[1], flags[0], flags[1], flags[2], ~flags[3])


def decoded_ranges(raw: ValueRanges, coding: Coding, decode: Decode) -> ValueRanges:
    """Return the ranges of decoded values. ``decode`` keeps the order of elements, or reverses it."""
    chosen = raw.has_values & raw.is_known
    ends = []
    for each in (raw.low[chosen], raw.high[chosen]):
        if coding.unsigned is not None:
            elements = each.astype(coding.unsigned).view(coding.dtype)
        else:
            elements = each.view(coding.dtype) if coding.dtype.kind in "mM" else each.astype(coding.dtype)
        ends.append(decode(elements))
    if coding.scale is not None and coding.scale < 0:
        ends.reverse()
    is_known = np.array(raw.is_known)
    is_known[chosen] = ~(_is_nothing(*ends[0]) | _is_nothing(*ends[1]))  # values without an order
    values = np.zeros((2, *chosen.shape), ends[0][0].dtype)
    values[:, chosen] = np.stack([data for data, _ in ends])
    return replace(raw, low=values[0], high=values[1], is_known=is_known)


def _is_nothing(data: NDArray[Any], null: Mask | None) -> Mask:
    """Return which values are null, NaN or NaT."""
    nothing = np.isnat(data) if data.dtype.kind in "mM" else np.asarray(data != data)
    return nothing if null is None else nothing | null


def _reduced(function: np.ufunc, columns: NDArray[Any], ends: I64, axis: int) -> NDArray[Any]:
    """Return columns reduced along an axis over intervals, which can overlap: ``ends`` of shape (n, 2)."""
    width = [(0, int(at == axis)) for at in range(columns.ndim)]  # the end of the last interval has a place
    out: NDArray[Any] = function.reduceat(np.pad(columns, width), ends.reshape(-1), axis=axis)
    return out.take(np.arange(0, out.shape[axis], 2), axis=axis)
