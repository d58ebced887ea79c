"""The tasks of a reduction: they read blocks of whole chunks, and reduce them in slabs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.answers.kernels import (
    Cells,
    FirstLast,
    Index,
    Partial,
    Tiles,
    Values,
    absorb_partial,
    cells,
    combine_partials,
    combine_tree,
    empty_partial,
)
from frazil.answers.plan import RegionPlan
from frazil.answers.tiles import Box
from frazil.jobs.blocks import SLAB, block_shape, split
from frazil.jobs.task_results import Outcome
from frazil.pipeline.reductions.fields import open_array, region_plan
from frazil.pipeline.reductions.plan import Combination, Corner, Exact, FieldReduction, Item, Sketch
from frazil.repository.session.session import ForkSession, Session

type Region = tuple[slice, ...]
#: The start and the stop of a block of the reduced axes.
type Block = tuple[Index, Index]


def box_shape(low: Sequence[int], high: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a box."""
    return tuple(np.subtract(high, low).tolist())


def region_of(reduction: FieldReduction, low: Corner, high: Corner, start: Index, stop: Index) -> Region:
    """Return a region of the array."""
    out: dict[int, slice] = dict(zip(reduction.over, map(slice, start.tolist(), stop.tolist()), strict=True))
    out |= zip(reduction.retained, map(slice, low, high), strict=True)
    return tuple(out[axis] for axis in range(len(out)))


def read_blocks(reduction: FieldReduction, item: Item, size: int) -> Iterator[tuple[Index, Index]]:
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


def _block_shape(reduction: FieldReduction, item: Item, size: int) -> tuple[int, ...]:
    """Return the shape of a block of the reduced axes: whole chunks."""
    grid = tuple(max(1, reduction.field.grid[axis]) for axis in reduction.over)
    each = reduction.field.raw.itemsize * math.prod(box_shape(item.retained_start, item.retained_stop))
    return block_shape(box_shape(item.over_start, item.over_stop), grid, max(1, each), size)


def retained_boxes(reduction: FieldReduction, item: Item, size: int) -> list[tuple[Corner, Corner]]:
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
    reduction: FieldReduction, low: Corner, high: Corner, start: Index, stop: Index
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


def slab_values(reduction: FieldReduction, item: Item, raw: Values, start: Index, region: Region) -> Values:
    """Return the decoded values of a region of a block: (cells, *retained dimensions)."""
    corner = dict(zip(reduction.over, start.tolist(), strict=True))
    corner |= zip(reduction.retained, item.retained_start, strict=True)
    inside = tuple(
        slice(part.start - corner[axis], part.stop - corner[axis]) for axis, part in enumerate(region)
    )
    turned = reduction.field.decoded(raw[inside]).transpose(*reduction.over, *reduction.retained)
    retained = turned.shape[len(reduction.over) :]
    return turned.reshape(int(np.prod(turned.shape[: len(reduction.over)], dtype=np.int64)), *retained)


def region_cells(reduction: FieldReduction, item: Item, values: Values, region: Region) -> Cells:
    """Return the cells of a region, with their groups and weights. ``values`` are those of `slab_values`."""
    start, stop = (
        np.array([getattr(region[axis], end) for axis in reduction.over], np.int64)
        for end in ("start", "stop")
    )
    weights, positions = reduction.weights, None
    if weights is not None:
        spans = zip(region, weights.shape, strict=True)
        part = weights[tuple(span if n > 1 else slice(None) for span, n in spans)]
        turned = part.transpose(*reduction.over, *reduction.retained)
        retained = turned.shape[len(reduction.over) :]
        weights = np.broadcast_to(turned, (*(stop - start).tolist(), *retained))
        weights = weights.reshape(len(values), *retained)
    if any(isinstance(measure.kernel, FirstLast) for measure in reduction.measures):
        axes = np.ix_(*map(np.arange, start.tolist(), stop.tolist()))
        positions = np.ravel_multi_index(np.broadcast_arrays(*axes), reduction.over_shape).ravel()
    codes = group_codes(reduction, item, start, stop)
    return cells(values, codes, weights=weights, skipna=reduction.skipna, positions=positions)


def group_codes(reduction: FieldReduction, item: Item, start: Index, stop: Index) -> Index | None:
    """Return the groups of the cells of a block, or None without groups."""
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


@dataclass(frozen=True, slots=True)
class ReductionInputs:
    """The values that all tasks of a job share: the ``session`` of the source, and the reductions.

    ``scratch`` is the path of the group of scratch arrays. A task reads blocks of about ``block`` bytes.
    """

    session: Session
    reductions: tuple[FieldReduction, ...]
    combinations: tuple[Combination, ...]
    scratch: str
    block: int


def reduce_item(fork: ForkSession, shared: ReductionInputs, item: Item) -> Outcome:
    """Compute a part of the results, or partial results of them: the task of the first phase."""
    reduction, combination = shared.reductions[item.number], shared.combinations[item.number]
    states = _states(shared, reduction, item)
    if combination is Combination.ON_DRIVER:
        return Outcome((item, states))
    groups = np.arange(*item.groups, dtype=np.int64)
    box = _box_region(item.retained_start, item.retained_stop)
    for number, state in enumerate(states):
        if combination is not Combination.IN_SCRATCH:
            _write_part(fork, reduction, number, item, result_values(reduction, number, state))
            continue
        kernel = reduction.measures[number].kernel
        if len(state.groups) < len(groups):
            total = empty_partial(kernel, groups, box_shape(item.retained_start, item.retained_stop))
            absorb_partial(kernel, total, state)
            state = total
        for field, values in enumerate(state.fields):
            array = open_array(fork, scratch_path(shared.scratch, item.number, number, field), "r+")
            array[(slice(item.slot, item.slot + 1), slice(*item.groups), *box)] = values[None]
    return Outcome(rows=len(groups), chunks=1)


def _states(shared: ReductionInputs, reduction: FieldReduction, item: Item) -> list[Any]:
    """Return the state of each measure: a `Partial`, or the cells of a quantile."""
    if reduction.is_exact:
        return _exact_states(shared, reduction, item)
    array = open_array(shared.session, reduction.field.path)
    kernels = [measure.kernel for measure in reduction.measures]
    groups = np.arange(*item.groups, dtype=np.int64)
    shape = box_shape(item.retained_start, item.retained_stop)
    states = [empty_partial(kernel, groups, shape) for kernel in kernels]
    has_cells = np.zeros(len(groups), np.bool_)
    blocks = list(read_blocks(reduction, item, shared.block))
    known = tile_part(shared.session, reduction, item, blocks)
    if known is not None:
        for kernel, state, partial in zip(kernels, states, known.partials, strict=True):
            absorb_partial(kernel, state, partial)
            has_cells[partial.groups - item.groups[0]] = True
    unread = [(item, block) for block in blocks] if known is None else known.unread
    for part, (start, stop) in unread:
        codes = group_codes(reduction, item, start, stop)
        if codes is not None and not (codes >= 0).any():
            continue
        raw = np.asarray(array[region_of(reduction, part.retained_start, part.retained_stop, start, stop)])
        for low, high in retained_boxes(reduction, part, shared.block):
            box_states = [_box_of(state, item, low, high) for state in states]
            for first, end in slab_spans(reduction, low, high, start, stop):
                region = region_of(reduction, low, high, first, end)
                values = slab_values(reduction, part, raw, start, region)
                cells = region_cells(reduction, item, values, region)
                has_cells[cells.groups - item.groups[0]] = True
                for kernel, state in zip(kernels, box_states, strict=True):
                    absorb_partial(kernel, state, kernel.partial_of(cells))
    if reduction.grouping is None or item.over_start == (0,) * len(item.over_start):
        return list(states)
    return [Partial(groups[has_cells], tuple(each[has_cells] for each in state.fields)) for state in states]


@dataclass(frozen=True, slots=True, eq=False)
class TilePart:
    """What statistics say about an item: a partial result for each measure, and the blocks left to read.

    A chunk counts if the result retains no axis along which it has several elements, and if all its elements
    belong to one group, or to none. So a mean of everything, of each step of chunks of one step, or of months
    at whose ends chunks end, reads no chunk with statistics.
    """

    partials: tuple[Partial, ...]
    unread: tuple[tuple[Item, Block], ...]


def tile_part(
    session: Session, reduction: FieldReduction, item: Item, blocks: Sequence[Block]
) -> TilePart | None:
    """Return what statistics say about an item that is read in ``blocks``, or None if they say nothing."""
    kernels = [measure.kernel for measure in reduction.measures]
    if reduction.weights is not None or not all(kernel.takes_tiles for kernel in kernels):
        return None

    def region(start: Index, stop: Index) -> list[tuple[int, int]]:
        sides = region_of(reduction, item.retained_start, item.retained_stop, start, stop)
        return [(side.start, side.stop) for side in sides]

    whole = region(np.array(item.over_start), np.array(item.over_stop))
    plan = region_plan(session, reduction.field, whole, skipna=reduction.skipna)
    if plan is None:
        return None
    if any((np.subtract(*reversed(plan.bounds[axis])) != 1).any() for axis in reduction.retained):
        return None
    order = (*reduction.over, *reduction.retained)
    low, high = (codes.transpose(order) for codes in _codes(reduction, item, plan))
    is_known = plan.is_known.copy()
    for kernel in kernels:
        is_known &= ~kernel.is_open(plan.columns)
    is_unread = ~is_known
    turned = is_unread.transpose(order)  # a view
    turned |= low != high
    turned &= high >= 0
    if is_unread.all():
        return None
    unread = [
        _unread(reduction, item, box)
        for start, stop in blocks
        for box in plan.boxes_to_read(is_unread, region(start, stop))
    ]
    is_used = is_known & ~is_unread
    rows = math.prod(is_used.shape[axis] for axis in reduction.over)
    codes = np.broadcast_to(low, turned.shape).reshape(rows, -1)[:, 0] if rows else np.zeros(0, np.int64)
    tiles = Tiles.of(plan.columns, is_used, plan.packing, codes=codes, over=reduction.over)
    return TilePart(tuple(kernel.partial_of_tiles(tiles) for kernel in kernels), tuple(unread))


def _codes(reduction: FieldReduction, item: Item, plan: RegionPlan) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the smallest and the largest group in each chunk, with all axes. Other items' groups are -1."""
    ndim, grouping = len(plan.bounds), reduction.grouping
    if grouping is None:
        zero = np.zeros((1,) * ndim, np.int64)
        return zero, zero
    axes = reduction.label_axes
    bounds = [plan.bounds[axis] for axis in axes]
    codes = grouping.codes[tuple(slice(int(starts[0]), int(ends[-1])) for starts, ends in bounds)]
    low = high = np.where((codes >= item.groups[0]) & (codes < item.groups[1]), codes, -1)
    for axis, (starts, _) in enumerate(bounds):
        low = np.minimum.reduceat(low, starts - starts[0], axis=axis)
        high = np.maximum.reduceat(high, starts - starts[0], axis=axis)
    turn = sorted(range(len(axes)), key=axes.__getitem__)
    shape = [len(plan.bounds[axis][0]) if axis in axes else 1 for axis in range(ndim)]
    return low.transpose(turn).reshape(shape), high.transpose(turn).reshape(shape)


def _unread(reduction: FieldReduction, item: Item, box: Box) -> tuple[Item, Block]:
    """Return an item with the part of its retained axes that a box has, and the reduced axes of the box."""
    (low, high), corners = (
        [tuple(box[axis][end] for axis in axes) for end in (0, 1)]
        for axes in (reduction.retained, reduction.over)
    )
    first, end = (np.array(corner, np.int64) for corner in corners)
    return replace(item, retained_start=low, retained_stop=high), (first, end)


def _box_of(state: Partial, item: Item, low: Corner, high: Corner) -> Partial:
    """Return a view of a state: a box of the retained axes."""
    box = tuple(
        slice(first - at, end - at) for first, end, at in zip(low, high, item.retained_start, strict=True)
    )
    return Partial(state.groups, tuple(each[(slice(None), *box)] for each in state.fields))


def _exact_states(shared: ReductionInputs, reduction: FieldReduction, item: Item) -> list[Any]:
    """Return all cells of the item, decoded, with their groups, once for each measure."""
    field, array = reduction.field, open_array(shared.session, reduction.field.path)
    low, high = item.retained_start, item.retained_stop
    shape = box_shape(low, high)
    blocks: list[tuple[Index, Index]] = []
    codes: list[Index] = [np.zeros(0, np.int64)]
    for start, stop in read_blocks(reduction, item, shared.block):  # those with cells of the item's groups
        block_codes = group_codes(reduction, item, start, stop)
        if block_codes is None or (block_codes >= 0).any():
            blocks.append((start, stop))
            codes += [] if block_codes is None else [block_codes]
    rows = sum(int(np.prod(stop - start, dtype=np.int64)) for start, stop in blocks)
    values: Values | None = None
    row = 0
    for start, stop in blocks:
        raw = np.asarray(array[region_of(reduction, low, high, start, stop)])
        if values is None:  # after the first read, which needs the same memory again for a while
            values = np.empty((rows, *shape), field.dtype)
        for first, end in slab_spans(reduction, low, high, start, stop):
            slab = slab_values(reduction, item, raw, start, region_of(reduction, low, high, first, end))
            values[row : row + len(slab)] = slab
            row += len(slab)
        del raw
    if values is None:
        values = np.zeros((0, *shape), field.dtype)
    state = values, None if reduction.grouping is None else np.concatenate(codes)
    return [state] * len(reduction.measures)


# Results


def result_values(reduction: FieldReduction, number: int, state: Any) -> Values:
    """Return the values of the measure ``number``: (quantiles,) then the dimensions of the result."""
    measure = reduction.measures[number]
    if isinstance(measure.kernel, Exact):
        cells_and_codes: tuple[Values, Index | None] = state
        values = measure.kernel.quantiles_of(*cells_and_codes, reduction.groups)
    else:
        values = measure.kernel.finish_fields(state.fields)
        empty = None if isinstance(measure.kernel, Sketch) else reduction.empty  # sketches are NaN already
        if empty is not None and empty[state.groups].any():
            # As in xarray, groups without a cell are NaN, also for sums and counts.
            values = values.astype(measure.dtype, copy=True)
            values[empty[state.groups]] = np.nan
    has_quantiles = isinstance(measure.kernel, Exact | Sketch)
    if has_quantiles and measure.q is None:
        values, has_quantiles = values[0], False
    axis = int(has_quantiles)
    at = reduction.group_axis
    values = np.take(values, 0, axis=axis) if at is None else np.moveaxis(values, axis, axis + at)
    if values.dtype.kind == "f" and measure.dtype.kind != "f":
        values = np.nan_to_num(values)  # NaN is impossible here: see `STATISTICS`
    with np.errstate(over="ignore"):  # the result is infinite, as in xarray
        return values.astype(measure.dtype, copy=False)


def _write_part(session: Session, reduction: FieldReduction, number: int, item: Item, values: Values) -> None:
    """Write the part of a result that is the item's."""
    region = reduction.arranged(slice(*item.groups), _box_region(item.retained_start, item.retained_stop))
    index: tuple[Any, ...] = (..., *region)
    open_array(session, reduction.measures[number].path, "r+")[index] = values


def _box_region(low: Sequence[int], high: Sequence[int]) -> tuple[slice, ...]:
    return tuple(map(slice, low, high))


def write_driver_results(
    session: Session, reduction: FieldReduction, values: Sequence[tuple[Item, list[Partial]]]
) -> None:
    """Combine the partial results that the tasks returned, and write the results."""
    boxes: dict[tuple[Corner, Corner], list[list[Partial]]] = {}
    for item, states in values:
        boxes.setdefault((item.retained_start, item.retained_stop), []).append(states)
    if not boxes:  # the array has no cells
        boxes[(0,) * len(reduction.retained), reduction.retained_shape] = []
    groups = np.arange(reduction.groups, dtype=np.int64)
    for number, measure in enumerate(reduction.measures):
        kernel = measure.kernel
        lead = () if measure.q is None else (len(measure.q),)
        out = np.zeros((*lead, *reduction.shape), measure.dtype)
        for (low, high), parts in boxes.items():
            total = empty_partial(kernel, groups, box_shape(low, high))
            if parts:
                absorb_partial(kernel, total, combine_tree(kernel, [states[number] for states in parts]))
            region = reduction.arranged(slice(None, None), _box_region(low, high))
            index: tuple[Any, ...] = (..., *region)
            out[index] = result_values(reduction, number, total)
        open_array(session, measure.path, "r+")[...] = out


# Scratch arrays


def scratch_path(scratch: str, reduction: int, measure: int, field: int) -> str:
    """Return the path of the scratch array of one field of a partial result."""
    return f"{scratch.strip('/')}/p{reduction}_{measure}_{field}"


def combine_item(fork: ForkSession, shared: ReductionInputs, item: Item) -> Outcome:
    """Compute a part of the results from scratch arrays: the task of the second phase."""
    reduction = shared.reductions[item.number]
    box = _box_region(item.retained_start, item.retained_stop)
    groups = np.arange(*item.groups, dtype=np.int64)
    for number, measure in enumerate(reduction.measures):
        kernel = measure.kernel
        arrays = [
            open_array(fork, scratch_path(shared.scratch, item.number, number, field))
            for field in range(len(kernel.identities))
        ]
        state: Partial | None = None
        for slot in range(item.slot):
            index: tuple[Any, ...] = (slot, slice(*item.groups), *box)
            part = Partial(groups, tuple(np.asarray(array[index]) for array in arrays))
            state = part if state is None else combine_partials(kernel, state, part)
        _write_part(fork, reduction, number, item, result_values(reduction, number, state))
    return Outcome(rows=len(groups), chunks=1)
