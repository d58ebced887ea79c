"""The cells of a grid that a filter may choose: intervals of elements along each dimension.

A filter is an expression of pyarrow, which no public function takes apart. But pyarrow leaves out fragments
whose guarantee contradicts a filter. So a fragment that is never opened stands for a piece of a dimension,
and guarantees the smallest and the largest coordinate of the piece. The order of coordinates does not matter.

A dimension is cut into a few pieces. Those at the end of a run of pieces that are left are cut again, until
the ends of all runs are exact. A filter that pyarrow cannot simplify leaves all pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

type I64 = NDArray[np.int64]
#: Elements ``starts`` up to but not including ``stops``, in order.
type Intervals = tuple[I64, I64]

#: The most pieces of the first cut. A piece takes about 50 microseconds.
FIRST_PIECES: Final = 256
#: The pieces that a piece is cut into.
_FAN: Final = 16
#: With more pieces that are left, none is cut again.
_MOST_PIECES: Final = 1 << 12


def columns_of(expression: pc.Expression, schema: pa.Schema) -> set[str]:
    """Return the names of the columns that an expression needs."""

    def among(names: list[str]) -> set[str]:
        rest = pa.schema([each for each in schema if each.name not in names])
        try:
            ds.Scanner.from_batches([], schema=rest, columns={"": expression})
        except (pa.ArrowInvalid, pa.ArrowKeyError):  # it cannot do without one of them
            half = len(names) // 2
            return among(names[:half]) | among(names[half:]) if half else set(names)
        return set()

    return among(schema.names)


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

    def matches(starts: I64, stops: I64) -> NDArray[np.bool_]:
        guarantees = [
            _guarantee(ranged, unknown, slice(start, stop))
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
    coordinates: Mapping[str, pa.Array], unknown: Mapping[str, NDArray[np.bool_]], piece: slice
) -> pc.Expression:
    """Return the expression that is true for all cells of a piece."""
    guarantee = pc.scalar(True)
    for name, array in coordinates.items():
        if not unknown[name][piece].any():
            bounds = pc.min_max(array[piece])
            column = pc.field(name)
            guarantee &= (column >= bounds["min"]) & (column <= bounds["max"])
    return guarantee


def _compatible(
    expression: pc.Expression, schema: pa.Schema, guarantees: list[pc.Expression]
) -> NDArray[np.bool_]:
    """Return which guarantees do not contradict an expression."""
    system, ipc = LocalFileSystem(), ds.IpcFileFormat()
    fragments = [ipc.make_fragment(str(at), system, each) for at, each in enumerate(guarantees)]
    pieces = ds.FileSystemDataset(fragments, schema, ipc, system)
    matching = np.zeros(len(guarantees), np.bool_)
    matching[[int(each.path) for each in pieces.get_fragments(expression)]] = True
    return matching
