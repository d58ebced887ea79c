"""The cells of a grid that a filter may choose: intervals of elements along each dimension.

A filter is an expression of pyarrow, which no public function takes apart. But pyarrow leaves out fragments
whose guarantee contradicts a filter. So a fragment that is never opened stands for a piece of a dimension,
and guarantees the smallest and the largest coordinate of the piece. The order of coordinates does not matter.

A dimension is cut into a few pieces. Those at the end of a run of pieces that are left are cut again, until
the ends of all runs are exact. A filter that pyarrow cannot simplify leaves all pieces.

For columns of data, a box of cells guarantees what the statistics of its chunks say about its rows.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, product
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from frazil.answers.conditions import ValueRanges
from frazil.answers.ranges import Intervals
from frazil.arrow.grid import Values, to_arrow
from frazil.format.columns import I64

#: The most pieces of the first cut. A piece takes about 50 microseconds.
FIRST_PIECES: Final = 256
#: The pieces that a piece is cut into.
_FAN: Final = 16
#: With more pieces that are left, none is cut again.
_MOST_PIECES: Final = 1 << 12


def columns_of(expression: pc.Expression, schema: pa.Schema) -> set[str]:
    """Return the names of the columns that an expression needs."""

    def columns_among(names: list[str]) -> set[str]:
        rest = pa.schema([each for each in schema if each.name not in names])
        try:
            ds.Scanner.from_batches([], schema=rest, columns={"": expression})
        except (pa.ArrowInvalid, pa.ArrowKeyError):  # it cannot do without one of them
            half = len(names) // 2
            return columns_among(names[:half]) | columns_among(names[half:]) if half else set(names)
        return set()

    return columns_among(schema.names)


def matching_intervals(
    expression: pc.Expression, schema: pa.Schema, coordinates: Mapping[str, pa.Array], size: int, block: int
) -> Intervals:
    """Return the elements of a dimension with cells that an expression may choose.

    ``coordinates`` have the dimension alone, ``size`` elements. No piece of the first cut is larger than
    ``block``, or than the dimension by ``FIRST_PIECES``.
    """
    ranged = {name: each for name, each in coordinates.items() if _has_ranges(each.type)}
    step = min(block * -(-size // (block * FIRST_PIECES)), -(-size // _FAN)) if ranged else size
    starts = np.arange(0, size, max(step, 1))
    stops = np.minimum(starts + step, size)
    if not ranged:
        return starts, stops
    unknown = {name: _without_order(each) for name, each in ranged.items()}
    has_set = _has_set(expression)

    def matches(starts: I64, stops: I64) -> NDArray[np.bool_]:
        guarantees = [
            _guarantee(ranged, unknown, slice(start, stop), has_set)
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        return _compatible(expression, schema, guarantees)

    is_left = matches(starts, stops)
    starts, stops = starts[is_left], stops[is_left]
    while 0 < len(starts) <= _MOST_PIECES and (stops - starts).sum() < size:
        has_next = starts[1:] == stops[:-1]
        is_end = ~(np.append(False, has_next) & np.append(has_next, False)) & (stops - starts > 1)
        if not is_end.any():
            break
        lengths = -(-(stops - starts)[is_end, np.newaxis] // _FAN)
        low = starts[is_end, np.newaxis] + np.arange(_FAN) * lengths
        high = np.minimum(low + lengths, stops[is_end, np.newaxis])
        low, high = low[low < high], high[low < high]
        is_left = matches(low, high)
        starts = np.append(starts[~is_end], low[is_left])
        stops = np.append(stops[~is_end], high[is_left])
        order = np.argsort(starts)
        starts, stops = starts[order], stops[order]
    return starts, stops


def regions_of(intervals: Intervals, block: int, chunk: int) -> Intervals:
    """Return the intervals cut at multiples of ``block``. Those with less than a chunk between are one."""
    starts, stops = intervals
    is_first = np.append(True, starts[1:] - stops[:-1] >= chunk)[: len(starts)]
    starts, stops = starts[is_first], stops[np.append(is_first[1:], True)[: len(stops)]]
    first = starts // block
    counts = (stops - 1) // block - first + 1
    owner = np.repeat(np.arange(len(starts)), counts)
    number = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.maximum(starts[owner], number * block), np.minimum(stops[owner], (number + 1) * block)


def _has_ranges(column: pa.DataType) -> bool:
    """Return whether values of a type are pruned by their smallest and largest value."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_string)
    return any(is_kind(column) for is_kind in kinds)


def _without_order(array: pa.Array) -> NDArray[np.bool_]:
    """Return which values are null or NaN. A piece with one of them guarantees nothing."""
    flags: NDArray[np.bool_] = array.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return flags


def _guarantee(
    coordinates: Mapping[str, pa.Array], unknown: Mapping[str, NDArray[np.bool_]], piece: slice, has_set: bool
) -> pc.Expression:
    """Return the expression that is true for all cells of a piece."""
    guarantee = pc.scalar(True)
    for name, array in coordinates.items():
        if not unknown[name][piece].any():
            bounds = pc.min_max(array[piece])
            guarantee &= _between(name, bounds["min"], bounds["max"], has_set)
    return guarantee


def _has_set(expression: pc.Expression) -> bool:
    return "is_in(" in str(expression)


def _between(name: str, low: pa.Scalar, high: pa.Scalar, has_set: bool) -> pc.Expression:
    """Return the expression that a column is between two bounds.

    pyarrow compares the numbers of a set with the bounds as they are, but with values of 32 bits after it has
    rounded them.
    """
    if has_set and pa.types.is_float32(low.type):
        ends = (
            np.nextafter(np.float32(each.as_py()), end)
            for each, end in ((low, np.float32(-np.inf)), (high, np.float32(np.inf)))
        )
        low, high = (pa.scalar(end, low.type) for end in ends)
    return (pc.field(name) >= low) & (pc.field(name) <= high)


def _compatible(
    expression: pc.Expression, schema: pa.Schema, guarantees: list[pc.Expression]
) -> NDArray[np.bool_]:
    """Return which guarantees do not contradict an expression."""
    system, ipc = LocalFileSystem(), ds.IpcFileFormat()
    fragments = [ipc.make_fragment(str(at), system, each) for at, each in enumerate(guarantees)]
    pieces = ds.FileSystemDataset(fragments, schema, ipc, system)
    matching = np.zeros(len(guarantees), np.bool_)
    try:
        matching[[int(each.path) for each in pieces.get_fragments(expression)]] = True
    except pa.ArrowInvalid:  # a number of a guarantee is none in the type of the expression
        matching[:] = True
    return matching


def matching_boxes(
    expression: pc.Expression, schema: pa.Schema, ranges: Mapping[str, ValueRanges], is_box: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which boxes have rows that an expression may choose, among those of ``is_box``.

    ``ranges`` are the values of columns in the boxes, in shapes that can be broadcast. The rows of a box are
    of up to three sorts for each column: numbers in a range, NaN and null. A guarantee stands for each sort.
    """
    if not ranges:
        return is_box
    places = np.flatnonzero(is_box)
    has_set = _has_set(expression)
    sorts = [
        _sorts_of_rows(name, schema.field(name).type, ranges[name], is_box.shape, places, has_set)
        for name in ranges
    ]
    guarantees = [
        [reduce(operator.and_, each) for each in product(*columns)] for columns in zip(*sorts, strict=True)
    ]
    owner = np.repeat(places, list(map(len, guarantees)))
    matching = np.zeros(is_box.size, np.bool_)
    matching[owner[_compatible(expression, schema, list(chain.from_iterable(guarantees)))]] = True
    return matching.reshape(is_box.shape)


def _sorts_of_rows(
    name: str, column: pa.DataType, ranges: ValueRanges, shape: tuple[int, ...], places: I64, has_set: bool
) -> Iterator[list[pc.Expression]]:
    """Yield the guarantees of the sorts of rows of each box."""

    def of_boxes(array: NDArray[Any]) -> NDArray[Any]:
        return np.broadcast_to(array, shape).reshape(-1)[places]

    null = of_boxes(~(ranges.has_values & ranges.is_known))
    low, high = (to_arrow(Values(of_boxes(each), null), column) for each in (ranges.low, ranges.high))
    field, nothing = pc.field(name), pc.field(name).is_null()
    nan = field == pa.scalar(math.nan, column) if pa.types.is_floating(column) else None
    flags = (ranges.is_known, ranges.has_values, ranges.has_nan, ranges.has_null)
    # pyarrow folds more of what is equal to a value, but one zero is not the other one.
    is_one = pc.fill_null(pc.equal(low, high), False).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column):
        is_one = is_one & (of_boxes(ranges.low) != 0)
    for at, (is_known, has_values, has_nan, has_null) in enumerate(zip(*map(of_boxes, flags), strict=True)):
        sorts = [] if is_known else [pc.scalar(True)]
        if is_known and has_values:
            sorts.append(field == low[at] if is_one[at] else _between(name, low[at], high[at], has_set))
        if is_known and has_nan:
            sorts.append(nan)
        if is_known and has_null:
            sorts.append(nothing)
        yield sorts


def matching_parts(
    expression: pc.Expression,
    schema: pa.Schema,
    blocks: Sequence[Intervals],
    steps: Sequence[int],
    ranges_of: Callable[[Sequence[Intervals]], Mapping[str, ValueRanges]],
) -> Iterator[list[tuple[slice, ...]]]:
    """Yield the parts of each block with rows that an expression may choose; one part if it is whole.

    ``blocks`` are a product of intervals, and ``steps`` the shape of the parts that they are cut into.
    """
    parts = [regions_of(each, step, 0) for each, step in zip(blocks, steps, strict=True)]
    owners = [
        np.searchsorted(starts, inner, "right") - 1
        for (starts, _), (inner, _) in zip(blocks, parts, strict=True)
    ]
    is_left = np.ones([len(starts) for starts, _ in blocks], np.bool_)
    is_left = matching_boxes(expression, schema, ranges_of(blocks), is_left)[np.ix_(*owners)]
    is_left = matching_boxes(expression, schema, ranges_of(parts), is_left)
    firsts = [np.flatnonzero(np.diff(owner, prepend=-1)) for owner in owners]
    counts = is_left.astype(np.int64)
    for axis, first in enumerate(firsts):
        counts = np.add.reduceat(counts, first, axis=axis)
    for block in np.argwhere(counts).tolist():
        spot = tuple(
            slice(int(first[at]), int(np.append(first, len(owner))[at + 1]))
            for first, owner, at in zip(firsts, owners, block, strict=True)
        )
        if is_left[spot].all():
            yield [
                tuple(
                    slice(int(starts[at]), int(stops[at]))
                    for (starts, stops), at in zip(blocks, block, strict=True)
                )
            ]
            continue
        # Neighbours along the last axis are one part.
        edges = np.diff(np.pad(is_left[spot].astype(np.int8), [(0, 0)] * (len(spot) - 1) + [(1, 1)]), axis=-1)
        low = np.argwhere(edges == 1) + [each.start for each in spot]
        high = np.argwhere(edges == -1) + [each.start for each in spot]
        high[:, :-1] += 1
        yield [
            tuple(
                slice(int(starts[first]), int(stops[last - 1]))
                for (starts, stops), first, last in zip(parts, begin, end, strict=True)
            )
            for begin, end in zip(low.tolist(), high.tolist(), strict=True)
        ]
