"""What the tasks of a reduction do: read blocks, update, combine, and write or return what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.jobs.blocks import block_shape, split
from frazil.jobs.memory import SLAB
from frazil.jobs.task_results import Outcome
from frazil.pipeline.reductions.fields import open_array
from frazil.pipeline.reductions.partials import (
    Cells,
    End,
    Index,
    Partial,
    Values,
    absorb_partial,
    cells,
    combine_partials,
    combine_tree,
    empty_partial,
)
from frazil.pipeline.reductions.plan import Item, Measure, Meeting, Planned, Reduction
from frazil.pipeline.reductions.quantiles import Exact, Sketch
from frazil.repository.session.session import ForkSession, Session

#: Where a box of the dimensions that stay starts or stops.
type Corner = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shared:
    """What all tasks know."""

    session: Session
    reductions: tuple[Reduction, ...]
    meetings: tuple[Meeting, ...]
    scratch: str
    block: int


def reduce_item(fork: ForkSession, shared: Shared, item: Item) -> Outcome:
    """One task."""
    reduction, meeting = shared.reductions[item.number], shared.meetings[item.number]
    states, size = _states(shared, reduction, item)
    read = size
    if meeting is Meeting.VALUES:
        return Outcome((item, states), bytes_read=read)
    if meeting is Meeting.STORED:
        written = _store(fork, shared.scratch, reduction, item, states)
    else:
        written = sum(
            write(fork, reduction, number, item, finished(reduction, number, state))
            for number, state in enumerate(states)
        )
    return Outcome(
        None, rows=item.groups[1] - item.groups[0], chunks=1, bytes_read=read, bytes_written=written
    )


def _states(shared: Shared, reduction: Reduction, item: Item) -> tuple[list[Any], int]:
    """For each measure its state: a ``Partial``, or the values of an exact quantile."""
    if any(isinstance(measure.kernel, Exact) for measure in reduction.measures):
        return _exact_states(shared, reduction, item)
    array = open_array(shared.session, reduction.field.path)
    kernels = [measure.kernel for measure in reduction.measures if not isinstance(measure.kernel, Exact)]
    groups = np.arange(*item.groups, dtype=np.int64)
    states = [empty_partial(kernel, groups, _lengths(item.retained_start, item.retained_stop)) for kernel in kernels]
    boxes = _retained_boxes(reduction, item, shared.block)
    seen, size = np.zeros(len(groups), np.bool_), 0
    for start, stop in _blocks(reduction, item, shared.block):
        codes = _codes(reduction, item, start, stop)
        if codes is not None and not (codes >= 0).any():
            continue
        raw = np.asarray(array[_region(reduction, item.retained_start, item.retained_stop, start, stop)])
        size += raw.nbytes
        for low, high in boxes:
            mine = [_part_of(state, item, low, high) for state in states]
            for first, end in _slabs(reduction, low, high, start, stop):
                region = _region(reduction, low, high, first, end)
                some = _cells(reduction, item, _slab_of(reduction, item, raw, start, region), region)
                seen[some.groups - item.groups[0]] = True
                for kernel, state in zip(kernels, mine, strict=True):
                    absorb_partial(kernel, state, kernel.update(some))
    if reduction.grouping is None or item.over_start == (0,) * len(item.over_start):
        return list(states), size
    return [Partial(groups[seen], tuple(each[seen] for each in state.fields)) for state in states], size


def _exact_states(shared: Shared, reduction: Reduction, item: Item) -> tuple[list[Any], int]:
    """All values of the item, decoded, and their groups: the same for each measure."""
    field, array = reduction.field, open_array(shared.session, reduction.field.path)
    low, high = item.retained_start, item.retained_stop
    blocks: list[tuple[Index, Index]] = []
    grouped: list[Index] = []
    for start, stop in _blocks(reduction, item, shared.block):
        codes = _codes(reduction, item, start, stop)
        if codes is None or (codes >= 0).any():
            blocks.append((start, stop))
            grouped += [] if codes is None else [codes]
    rows = sum(int(np.prod(stop - start, dtype=np.int64)) for start, stop in blocks)
    values: Values | None = None
    size = row = 0
    for start, stop in blocks:
        raw = np.asarray(array[_region(reduction, low, high, start, stop)])
        size += raw.nbytes
        if values is None:  # after the first read, which for a while takes as much again
            values = np.empty((rows, *_lengths(low, high)), field.dtype)
        for first, end in _slabs(reduction, low, high, start, stop):
            some = _slab_of(reduction, item, raw, start, _region(reduction, low, high, first, end))
            values[row : row + len(some)] = some
            row += len(some)
        del raw
    if values is None:
        values = np.zeros((0, *_lengths(low, high)), field.dtype)
    codes = None if reduction.grouping is None else np.concatenate([np.zeros(0, np.int64), *grouped])
    return [(values, codes)] * len(reduction.measures), size


def _slab_of(
    reduction: Reduction, item: Item, raw: Values, start: Index, region: tuple[slice, ...]
) -> Values:
    """The values of a region of a block, decoded: (cells, *retained). ``raw`` is the block, ``start`` where it is
    among what is reduced.
    """
    corner = dict(zip(reduction.over, start.tolist(), strict=True))
    corner |= zip(reduction.retained, item.retained_start, strict=True)
    inside = tuple(
        slice(part.start - corner[axis], part.stop - corner[axis]) for axis, part in enumerate(region)
    )
    return _flat(reduction, reduction.field.decoded(raw[inside]))


def _cells(reduction: Reduction, item: Item, values: Values, region: tuple[slice, ...]) -> Cells:
    """The cells of a region, with their groups and weights."""
    start, stop = (
        np.array([getattr(region[axis], end) for axis in reduction.over], np.int64)
        for end in ("start", "stop")
    )
    positions = any(isinstance(measure.kernel, End) for measure in reduction.measures)
    return cells(
        values,
        _codes(reduction, item, start, stop),
        weights=_weights(reduction, region, values.shape),
        skipna=reduction.skipna,
        positions=_positions(reduction, start, stop) if positions else None,
    )


def _lengths(low: Sequence[int], high: Sequence[int]) -> tuple[int, ...]:
    return tuple(np.subtract(high, low).tolist())


def _part_of(state: Partial, item: Item, low: Corner, high: Corner) -> Partial:
    """A view of a state: a box of the dimensions that stay."""
    box = tuple(
        slice(first - at, end - at) for first, end, at in zip(low, high, item.retained_start, strict=True)
    )
    return Partial(state.groups, tuple(each[(slice(None), *box)] for each in state.fields))


def _retained_boxes(reduction: Reduction, item: Item, size: int) -> list[tuple[Corner, Corner]]:
    """Boxes of the dimensions that stay, for which the slabs of a block are taken one after the other.

    One box, unless its state is larger than a slab: then each slab would go through all of the state.
    """
    lengths = _lengths(item.retained_start, item.retained_stop)
    width = sum(measure.width for measure in reduction.measures)
    if width * math.prod(lengths) <= SLAB or not lengths:
        return [(item.retained_start, item.retained_stop)]
    block = math.prod(_block(reduction, item, size))
    pieces = -(-reduction.field.raw.itemsize * math.prod(lengths) * block // SLAB)
    axis = int(np.argmax(lengths))
    cut = list(lengths)
    cut[axis] = max(1, -(-lengths[axis] // pieces))
    lows, highs = split(lengths, cut)
    corners = ((column + np.array(item.retained_start, np.int64)).tolist() for column in (lows, highs))
    return [(tuple(low), tuple(high)) for low, high in zip(*corners, strict=True)]


def _slabs(
    reduction: Reduction, low: Corner, high: Corner, start: Index, stop: Index
) -> Iterator[tuple[Index, Index]]:
    """Parts of what is reduced of a block, in the order of the array: of so many bytes that neither their
    values nor the state are gone through for nothing.
    """
    retained = math.prod(_lengths(low, high))
    width = sum(measure.width for measure in reduction.measures)
    shape = _lengths(start.tolist(), stop.tolist())
    itemsize = max(1, reduction.field.raw.itemsize * retained)
    lows, highs = split(shape, block_shape(shape, (1,) * len(shape), itemsize, max(SLAB, retained * width)))
    yield from zip(lows + start, highs + start, strict=True)


def _blocks(reduction: Reduction, item: Item, size: int) -> Iterator[tuple[Index, Index]]:
    """Rectangles of what is reduced, each of whole chunks: first and last, in elements.

    Along the axis of the labels only chunks with cells of the item's groups.
    """
    start = np.array(item.over_start, np.int64)
    lows, highs = split(_lengths(item.over_start, item.over_stop), _block(reduction, item, size))
    lows, highs = lows + start, highs + start
    if len(reduction.label_axes) != 1 or item.groups == (0, reduction.groups):
        yield from zip(lows, highs, strict=True)
        return
    assert reduction.grouping is not None
    column = reduction.over.index(reduction.label_axes[0])
    codes = reduction.grouping.codes
    wanted = (codes >= item.groups[0]) & (codes < item.groups[1])
    step = max(1, reduction.field.grid[reduction.label_axes[0]])
    for low, high in zip(lows, highs, strict=True):
        first, end = int(low[column]), int(high[column])
        there = np.unique(np.flatnonzero(wanted[first:end]) // step)
        for run in np.split(there, np.flatnonzero(np.diff(there) != 1) + 1):
            if len(run):
                some, past = low.copy(), high.copy()
                some[column], past[column] = first + run[0] * step, min(end, first + (run[-1] + 1) * step)
                yield some, past


def _block(reduction: Reduction, item: Item, size: int) -> tuple[int, ...]:
    """The shape of what is read at once, of what is reduced: whole chunks."""
    grid = tuple(max(1, reduction.field.grid[axis]) for axis in reduction.over)
    each = reduction.field.raw.itemsize * math.prod(_lengths(item.retained_start, item.retained_stop))
    return block_shape(_lengths(item.over_start, item.over_stop), grid, max(1, each), size)


def _region(reduction: Reduction, low: Corner, high: Corner, start: Index, stop: Index) -> tuple[slice, ...]:
    """A part of the array: of the dimensions that stay, and of those that go."""
    out: dict[int, slice] = dict(zip(reduction.over, map(slice, start.tolist(), stop.tolist()), strict=True))
    out |= zip(reduction.retained, map(slice, low, high), strict=True)
    return tuple(out[axis] for axis in range(len(out)))


def _flat(reduction: Reduction, values: Values) -> Values:
    """(cells, *retained): what is reduced as one axis, in the order of the array."""
    turned = values.transpose(*reduction.over, *reduction.retained)
    retained = turned.shape[len(reduction.over) :]
    return turned.reshape(int(np.prod(turned.shape[: len(reduction.over)], dtype=np.int64)), *retained)


def _codes(reduction: Reduction, item: Item, start: Index, stop: Index) -> Index | None:
    """The groups of the cells of a block, -1 for those that are not the item's."""
    grouping = reduction.grouping
    if grouping is None:
        return None
    place = {axis: (int(a), int(b)) for axis, a, b in zip(reduction.over, start, stop, strict=True)}
    some = grouping.codes[tuple(slice(*place[axis]) for axis in reduction.label_axes)]
    some = np.where((some >= item.groups[0]) & (some < item.groups[1]), some, -1)
    in_order = sorted(range(len(reduction.label_axes)), key=reduction.label_axes.__getitem__)
    some = some.transpose(in_order)
    shape = [place[axis][1] - place[axis][0] for axis in reduction.over]
    shown = [n if axis in reduction.label_axes else 1 for axis, n in zip(reduction.over, shape, strict=True)]
    return np.broadcast_to(some.reshape(shown), shape).ravel()


def _weights(reduction: Reduction, region: tuple[slice, ...], shape: tuple[int, ...]) -> Values | None:
    weights = reduction.weights
    if weights is None:
        return None
    part = weights[tuple(s if n > 1 else slice(None) for s, n in zip(region, weights.shape, strict=True))]
    over = [region[axis].stop - region[axis].start for axis in reduction.over]
    turned = part.transpose(*reduction.over, *reduction.retained)
    retained = turned.shape[len(over) :]
    return np.broadcast_to(turned, (*over, *retained)).reshape(shape[0], *retained)


def _positions(reduction: Reduction, start: Index, stop: Index) -> Index:
    """Where the cells of a block are among all that are reduced."""
    axes = np.ix_(*map(np.arange, start.tolist(), stop.tolist()))
    shape = [reduction.field.shape[axis] for axis in reduction.over]
    return np.asarray(np.ravel_multi_index(np.broadcast_arrays(*axes), shape)).ravel()


def finished(reduction: Reduction, number: int, state: Any) -> Values:
    """The values of a measure, arranged as the result is: (quantiles,) then its dimensions."""
    measure = reduction.measures[number]
    if isinstance(measure.kernel, Exact):
        cells_and_codes: tuple[Values, Index | None] = state
        values = measure.kernel.finish(*cells_and_codes, reduction.groups)
    else:
        values = measure.kernel.finish(state.fields)
        if reduction.empty is not None and reduction.empty[state.groups].any():
            values = _without_empty(values, reduction.empty[state.groups], measure)
    quantiles = isinstance(measure.kernel, Exact | Sketch)
    if quantiles and measure.q is None:
        values, quantiles = values[0], False
    axis = int(quantiles)
    at = reduction.group_axis
    values = np.take(values, 0, axis=axis) if at is None else np.moveaxis(values, axis, axis + at)
    if values.dtype.kind == "f" and measure.dtype.kind != "f":
        values = np.nan_to_num(values)  # cannot be: see `result_dtype`
    with np.errstate(over="ignore"):  # infinite, as xarray has it
        return values.astype(measure.dtype, copy=False)


def _without_empty(values: Values, empty: NDArray[np.bool_], measure: Measure) -> Values:
    """NaN for groups without a cell, whatever the sum or the count of nothing is: as xarray has it."""
    if isinstance(measure.kernel, Sketch):
        return values  # NaN already
    values = values.astype(measure.dtype, copy=True)
    values[empty] = np.nan
    return values


def write(session: Session, reduction: Reduction, number: int, item: Item, values: Values) -> int:
    """Write a part of a result; the number of bytes."""
    retained = _slices(item.retained_start, item.retained_stop)
    region = reduction.arranged(_slice(*item.groups), retained)
    at: tuple[Any, ...] = (..., *region)
    open_array(session, reduction.measures[number].path, "r+")[at] = values
    return values.nbytes


def _slice(low: int | None, high: int | None) -> slice:
    return slice(low, high)


def _slices(low: Sequence[int], high: Sequence[int]) -> tuple[slice, ...]:
    return tuple(map(slice, low, high))


# Partial results in arrays


def scratch_path(scratch: str, item_number: int, measure: int, place: int) -> str:
    return f"{scratch.strip('/')}/p{item_number}_{measure}_{place}"


def _store(fork: ForkSession, scratch: str, reduction: Reduction, item: Item, states: list[Any]) -> int:
    """Write fields of a partial result, (slots, groups, *retained)."""
    written = 0
    for number, state in enumerate(states):
        kernel = reduction.measures[number].kernel
        assert not isinstance(kernel, Exact)
        groups = np.arange(*item.groups, dtype=np.int64)
        if len(state.groups) < len(groups):
            whole = empty_partial(kernel, groups, tuple(np.subtract(item.retained_stop, item.retained_start).tolist()))
            absorb_partial(kernel, whole, state)
            state = whole
        retained = _slices(item.retained_start, item.retained_stop)
        for place, values in enumerate(state.fields):
            array = open_array(fork, scratch_path(scratch, item.number, number, place), "r+")
            array[(_slice(item.slot, item.slot + 1), _slice(*item.groups), *retained)] = values[None]
            written += values.nbytes
    return written


def combine_item(fork: ForkSession, shared: Shared, item: Item) -> Outcome:
    """A task of the second phase: one part of the result, from all partial results of it. ``slot`` is their
    number.
    """
    reduction = shared.reductions[item.number]
    retained = _slices(item.retained_start, item.retained_stop)
    groups = np.arange(*item.groups, dtype=np.int64)
    read = written = 0
    for number, measure in enumerate(reduction.measures):
        kernel = measure.kernel
        assert not isinstance(kernel, Exact)
        arrays = [
            open_array(fork, scratch_path(shared.scratch, item.number, number, place))
            for place in range(len(kernel.identities))
        ]
        state: Partial | None = None
        for slot in range(item.slot):
            at: tuple[Any, ...] = (slot, _slice(*item.groups), *retained)
            fields = tuple(np.asarray(array[at]) for array in arrays)
            part = Partial(groups, fields)
            read += part.nbytes
            state = part if state is None else combine_partials(kernel, state, part)
        written += write(fork, reduction, number, item, finished(reduction, number, state))
    return Outcome(None, rows=len(groups), chunks=1, bytes_read=read, bytes_written=written)


def written_by_driver(session: Session, reduction: Reduction, planned: Planned, values: list[Any]) -> None:
    """Combine what the tasks returned, and write the result."""
    boxes: dict[tuple[Any, ...], list[tuple[Item, list[Partial]]]] = {}
    for item, states in values:
        boxes.setdefault((item.retained_start, item.retained_stop), []).append((item, states))
    if not boxes:  # there are no cells
        boxes[(0,) * len(reduction.retained), reduction.retained_shape] = []
    everything = np.arange(reduction.groups, dtype=np.int64)
    for number, measure in enumerate(reduction.measures):
        kernel = measure.kernel
        assert not isinstance(kernel, Exact)
        lead = () if measure.q is None else (len(measure.q),)
        out = np.zeros((*lead, *reduction.shape), measure.dtype)
        for (low, high), parts in boxes.items():
            total = empty_partial(kernel, everything, tuple(np.subtract(high, low).tolist()))
            if parts:
                absorb_partial(kernel, total, combine_tree(kernel, [states[number] for _, states in parts]))
            region = reduction.arranged(_slice(None, None), _slices(low, high))
            at: tuple[Any, ...] = (..., *region)
            out[at] = finished(reduction, number, total)
        open_array(session, measure.path, "r+")[...] = out
