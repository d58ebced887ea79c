"""Regions of an array that a task reads, and the codes, weights and positions of their cells.

A region is a box of the retained axes and a box of the reduced axes. A task reads it in *blocks* of whole
chunks, and decodes and reduces a block in *slabs* of a few megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from frazil.jobs.blocks import block_shape, split
from frazil.jobs.memory import SLAB
from frazil.pipeline.reductions.kernels import FirstLast
from frazil.pipeline.reductions.partials import Cells, Index, Values, cells
from frazil.pipeline.reductions.plan import Corner, Item
from frazil.pipeline.reductions.reduction import Reduction

type Region = tuple[slice, ...]


def box_shape(low: Sequence[int], high: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a box.

    >>> box_shape((1, 2), (3, 5))
    (2, 3)
    """
    return tuple(np.subtract(high, low).tolist())


def region_of(reduction: Reduction, low: Corner, high: Corner, start: Index, stop: Index) -> Region:
    """Return a region of the array.

    It goes from ``low`` to ``high`` along the retained axes, and from ``start`` to ``stop`` along the reduced
    axes.
    """
    out: dict[int, slice] = dict(zip(reduction.over, map(slice, start.tolist(), stop.tolist()), strict=True))
    out |= zip(reduction.retained, map(slice, low, high), strict=True)
    return tuple(out[axis] for axis in range(len(out)))


def read_blocks(reduction: Reduction, item: Item, size: int) -> Iterator[tuple[Index, Index]]:
    """Yield the start and stop of each block of the reduced axes that an item reads.

    A block has about ``size`` bytes. Along the axis of the labels, only chunks with cells of the item's
    groups are read.
    """
    start = np.array(item.over_start, np.int64)
    lows, highs = split(box_shape(item.over_start, item.over_stop), _block_shape(reduction, item, size))
    lows, highs = lows + start, highs + start
    if len(reduction.label_axes) != 1 or item.groups == (0, reduction.groups):
        yield from zip(lows, highs, strict=True)
        return
    assert reduction.grouping is not None
    column = reduction.over.index(reduction.label_axes[0])
    codes = reduction.grouping.codes
    is_needed = (codes >= item.groups[0]) & (codes < item.groups[1])
    step = max(1, reduction.field.grid[reduction.label_axes[0]])
    for low, high in zip(lows, highs, strict=True):
        first, end = int(low[column]), int(high[column])
        chunks = np.unique(np.flatnonzero(is_needed[first:end]) // step)
        for run in np.split(chunks, np.flatnonzero(np.diff(chunks) != 1) + 1):
            if len(run):
                run_low, run_high = low.copy(), high.copy()
                run_low[column] = first + run[0] * step
                run_high[column] = min(end, first + (run[-1] + 1) * step)
                yield run_low, run_high


def _block_shape(reduction: Reduction, item: Item, size: int) -> tuple[int, ...]:
    """Return the shape of a block of the reduced axes: whole chunks."""
    grid = tuple(max(1, reduction.field.grid[axis]) for axis in reduction.over)
    each = reduction.field.raw.itemsize * math.prod(box_shape(item.retained_start, item.retained_stop))
    return block_shape(box_shape(item.over_start, item.over_stop), grid, max(1, each), size)


def retained_boxes(reduction: Reduction, item: Item, size: int) -> list[tuple[Corner, Corner]]:
    """Return boxes of the retained axes, for which the slabs of a block are reduced one after the other.

    There is one box, unless its state is larger than a slab: then each slab would go through all of the
    state.
    """
    lengths = box_shape(item.retained_start, item.retained_stop)
    if reduction.width * math.prod(lengths) <= SLAB or not lengths:
        return [(item.retained_start, item.retained_stop)]
    block = math.prod(_block_shape(reduction, item, size))
    pieces = -(-reduction.field.raw.itemsize * math.prod(lengths) * block // SLAB)
    axis = int(np.argmax(lengths))
    box = list(lengths)
    box[axis] = max(1, -(-lengths[axis] // pieces))
    lows, highs = split(lengths, box)
    corners = ((column + np.array(item.retained_start, np.int64)).tolist() for column in (lows, highs))
    return [(tuple(low), tuple(high)) for low, high in zip(*corners, strict=True)]


def slab_spans(
    reduction: Reduction, low: Corner, high: Corner, start: Index, stop: Index
) -> Iterator[tuple[Index, Index]]:
    """Yield the start and stop of each slab of the reduced axes of a block, in the order of the array.

    A slab has about as many bytes as the state of its box, and at least ``SLAB``.
    """
    retained_cells = math.prod(box_shape(low, high))
    shape = box_shape(start.tolist(), stop.tolist())
    itemsize = max(1, reduction.field.raw.itemsize * retained_cells)
    size = max(SLAB, retained_cells * reduction.width)
    lows, highs = split(shape, block_shape(shape, (1,) * len(shape), itemsize, size))
    yield from zip(lows + start, highs + start, strict=True)


def slab_values(reduction: Reduction, item: Item, raw: Values, start: Index, region: Region) -> Values:
    """Return the decoded values of a region of a block: (cells, *retained dimensions).

    ``raw`` are the stored values of the block, ``start`` is its start along the reduced axes.
    """
    corner = dict(zip(reduction.over, start.tolist(), strict=True))
    corner |= zip(reduction.retained, item.retained_start, strict=True)
    inside = tuple(
        slice(part.start - corner[axis], part.stop - corner[axis]) for axis, part in enumerate(region)
    )
    return _cells_first(reduction, reduction.field.decoded(raw[inside]))


def _cells_first(reduction: Reduction, values: Values) -> Values:
    """Return the reduced axes as one axis, in the order of the array: (cells, *retained dimensions)."""
    turned = values.transpose(*reduction.over, *reduction.retained)
    retained = turned.shape[len(reduction.over) :]
    return turned.reshape(int(np.prod(turned.shape[: len(reduction.over)], dtype=np.int64)), *retained)


def region_cells(reduction: Reduction, item: Item, values: Values, region: Region) -> Cells:
    """Return the cells of a region, with their groups and weights. ``values`` are those of `slab_values`."""
    start, stop = (
        np.array([getattr(region[axis], end) for axis in reduction.over], np.int64)
        for end in ("start", "stop")
    )
    needs_positions = any(isinstance(measure.kernel, FirstLast) for measure in reduction.measures)
    return cells(
        values,
        group_codes(reduction, item, start, stop),
        weights=_weights(reduction, region, values.shape),
        skipna=reduction.skipna,
        positions=_positions(reduction, start, stop) if needs_positions else None,
    )


def group_codes(reduction: Reduction, item: Item, start: Index, stop: Index) -> Index | None:
    """Return the groups of the cells of a block, or None without groups.

    Groups that are not the item's are -1.
    """
    grouping = reduction.grouping
    if grouping is None:
        return None
    spans = {axis: (int(a), int(b)) for axis, a, b in zip(reduction.over, start, stop, strict=True)}
    codes = grouping.codes[tuple(slice(*spans[axis]) for axis in reduction.label_axes)]
    codes = np.where((codes >= item.groups[0]) & (codes < item.groups[1]), codes, -1)
    codes = codes.transpose(sorted(range(len(reduction.label_axes)), key=reduction.label_axes.__getitem__))
    shape = [spans[axis][1] - spans[axis][0] for axis in reduction.over]
    label_shape = [
        n if axis in reduction.label_axes else 1 for axis, n in zip(reduction.over, shape, strict=True)
    ]
    return np.broadcast_to(codes.reshape(label_shape), shape).ravel()


def _weights(reduction: Reduction, region: Region, shape: tuple[int, ...]) -> Values | None:
    weights = reduction.weights
    if weights is None:
        return None
    part = weights[tuple(s if n > 1 else slice(None) for s, n in zip(region, weights.shape, strict=True))]
    over = [region[axis].stop - region[axis].start for axis in reduction.over]
    turned = part.transpose(*reduction.over, *reduction.retained)
    retained = turned.shape[len(over) :]
    return np.broadcast_to(turned, (*over, *retained)).reshape(shape[0], *retained)


def _positions(reduction: Reduction, start: Index, stop: Index) -> Index:
    """Return the position of each cell of a block among all reduced cells."""
    axes = np.ix_(*map(np.arange, start.tolist(), stop.tolist()))
    return np.asarray(np.ravel_multi_index(np.broadcast_arrays(*axes), reduction.over_shape)).ravel()
