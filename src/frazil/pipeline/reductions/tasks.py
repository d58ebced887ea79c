"""The work of tasks: they read blocks of whole chunks, and fold the cells of slabs to states and results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.answers.kernels import (
    Cells,
    Fields,
    FirstLast,
    Index,
    Kernel,
    Partial,
    Sum,
    Tiles,
    Values,
    absorb_partial,
    cells,
    empty_partial,
)
from frazil.arrays.array import Array
from frazil.jobs.blocks import SLAB, block_shape, split
from frazil.pipeline.reductions.fields import region_plan
from frazil.pipeline.reductions.plan import (
    Exact,
    FieldReduction,
    Measure,
    Sketch,
    children,
    fold_children,
    parents,
    state_fields,
    state_words,
)
from frazil.repository.session.session import Session

#: The start or the stop of a box along some axes.
type Corner = tuple[int, ...]
type Region = tuple[slice, ...]


def _between(low: Sequence[int], high: Sequence[int]) -> Region:
    return tuple(map(slice, low, high))


def _boxes(low: Sequence[int], high: Sequence[int], box: Sequence[int]) -> Iterator[tuple[Corner, Corner]]:
    """Yield the corners of the parts of a box, in C order."""
    starts, stops = split(np.subtract(high, low).tolist(), box)
    corner = np.array(low, np.int64)
    yield from zip(map(tuple, (starts + corner).tolist()), map(tuple, (stops + corner).tolist()), strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class CellsRead:
    """Values that were read together: at positions ``at`` of the sequence axis, in a box of other axes.

    ``low`` and ``high`` are the corners along all axes; those of the sequence axis have no meaning.
    """

    raw: Values
    at: Index
    low: Corner
    high: Corner


@dataclass(frozen=True, slots=True, eq=False)
class RowReader:
    """Reads the cells of the rows ``rows`` (start, stop) of leaves, for a box of the retained axes.

    It reads about ``block`` bytes at once.
    """

    reduction: FieldReduction
    session: Session
    rows: tuple[int, int]
    low: Corner
    high: Corner
    block: int

    @property
    def count(self) -> int:
        """The number of states."""
        return (self.rows[1] - self.rows[0]) * self.reduction.inner

    def reads(self, array: Array) -> Iterator[CellsRead]:
        """Yield the values of whole units, or of whole pieces of one unit, in their order."""
        reduction = self.reduction
        positions = reduction.leaves.positions_of(*self.rows)
        step = reduction.step
        chunks = np.unique(positions // step)
        per_unit = reduction.unit // step
        units = np.unique(chunks // per_unit)
        box = math.prod(np.subtract(self.high, self.low).tolist())
        size = reduction.field.raw.itemsize * min(reduction.unit, reduction.length) * max(1, box)
        others = list(reduction.piece)
        for axis, length in reversed(list(enumerate(reduction.others_shape))):  # pieces in their order
            others[axis] *= max(1, self.block // max(1, size * math.prod(others)))
            if others[axis] < length:
                break
            others[axis] = length
        together = 1
        if others == list(reduction.others_shape):
            together = max(1, self.block // max(1, size * math.prod(others)))
        zero = (0,) * len(reduction.others)
        for first in range(0, len(units), together):
            ends = units[first], units[min(first + together, len(units)) - 1]
            some = chunks[(chunks // per_unit >= ends[0]) & (chunks // per_unit <= ends[1])]
            runs = np.split(some, np.flatnonzero(np.diff(some) != 1) + 1)
            spans = [(int(run[0]) * step, min(int(run[-1] + 1) * step, reduction.length)) for run in runs]
            at = np.concatenate([np.arange(*span) for span in spans])
            for start, stop in _boxes(zero, reduction.others_shape, others):
                corners = [self._corner(0, low, box) for low, box in ((start, self.low), (stop, self.high))]
                parts = []
                for span in spans:
                    region = list(_between(*corners))
                    if reduction.sequence is not None:
                        region[reduction.sequence] = slice(*span)
                    parts.append(np.asarray(array[tuple(region)]))
                raw = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=reduction.sequence or 0)
                del parts
                yield CellsRead(raw, at, *corners)

    def _corner(self, at: int, others: Corner, box: Corner) -> Corner:
        """Return one number for each axis of the array."""
        reduction = self.reduction
        numbers = dict(zip(reduction.others, others, strict=True)) | dict(
            zip(reduction.retained, box, strict=True)
        )
        return tuple(numbers.get(axis, at) for axis in range(len(reduction.field.shape)))

    def slabs(self, read: CellsRead) -> Iterator[tuple[Region, Index, Region]]:
        """Yield the slabs of what was read: regions of it, and where they are.

        That is the positions along the sequence axis, and the region of the reduced axes.
        """
        reduction = self.reduction
        borders = np.flatnonzero(np.diff(read.at // reduction.unit)) + 1
        low, high = ([corner[axis] for axis in reduction.others] for corner in (read.low, read.high))
        for first, last in zip([0, *borders.tolist()], [*borders.tolist(), len(read.at)], strict=True):
            for start, stop in _boxes([0] * len(low), np.subtract(high, low).tolist(), reduction.piece):
                corners = (
                    [dict(zip(reduction.others, part, strict=True)).get(axis, end) for axis in reduction.over]
                    for part, end in ((start, int(first)), (stop, int(last)))
                )
                for begin, end in _boxes(next(corners), next(corners), reduction.slab):
                    over = dict(zip(reduction.over, map(slice, begin, end), strict=True))
                    region = tuple(over.get(axis, slice(None)) for axis in range(len(read.low)))
                    at = read.at[over[reduction.sequence]] if reduction.sequence is not None else read.at
                    sides = (
                        slice(read.low[axis] + side.start, read.low[axis] + side.stop)
                        for axis, side in over.items()
                    )
                    yield region, at, tuple(sides)

    def states(self) -> list[Fields]:
        """Return the states of the rows, of each measure: fields (rows, groups of a section, *box)."""
        reduction = self.reduction
        kernels = [measure.kernel for measure in reduction.measures]
        count, shape = self.rows[1] - self.rows[0], tuple(np.subtract(self.high, self.low).tolist())
        targets = np.arange(self.count)
        states = [empty_partial(kernel, targets, shape) for kernel in kernels]
        if not self._absorb_tiles(states):
            array = Array(self.session, reduction.field.path)
            for low, high in self._read_boxes():
                has_cells = np.zeros(len(targets), np.bool_)
                for read in replace(self, low=low, high=high).reads(array):
                    self._fold(read, states, has_cells)
        return [
            tuple(field.reshape(count, reduction.inner, *shape) for field in state.fields) for state in states
        ]

    def _read_boxes(self) -> Iterator[tuple[Corner, Corner]]:
        """Yield boxes of the retained axes whose unit has about ``block`` bytes."""
        reduction = self.reduction
        shape = np.subtract(self.high, self.low).tolist()
        grid = [max(1, min(step, n)) for step, n in zip(reduction.retained_grid, shape, strict=True)]
        size = reduction.column // reduction.step * min(reduction.unit, reduction.length)
        yield from _boxes(self.low, self.high, block_shape(shape, grid, size, self.block))

    def _fold(self, read: CellsRead, states: list[Partial], has_cells: NDArray[np.bool_]) -> None:
        """Add the cells of values to the states, slab by slab."""
        reduction = self.reduction
        corner = [read.low[axis] for axis in reduction.retained]
        shape = [read.high[axis] - read.low[axis] for axis in reduction.retained]
        for region, at, over in self.slabs(read):
            count = math.prod(side.stop - side.start for side in over)
            order = _order(self.targets(at, over), tuple(side.stop - side.start for side in over))
            if not len(order.groups):
                continue
            columns = block_shape(shape, (1,) * len(shape), reduction.field.raw.itemsize * count, SLAB)
            first = None
            for low, high in _boxes([0] * len(shape), shape, columns):
                part = dict(zip(reduction.retained, _between(low, high), strict=True))
                inside = tuple(part.get(axis, side) for axis, side in enumerate(region))
                begin, end = (np.add(corner, edge).tolist() for edge in (low, high))
                slab = self._cells(np.asarray(read.raw[inside]), at, over, _between(begin, end), order)
                if first is None:
                    first = ~has_cells[slab.groups]
                    has_cells[slab.groups] = True
                box = tuple(slice(a - b, c - b) for a, c, b in zip(begin, end, self.low, strict=True))
                _fold_slab(reduction, slab, states, first, box)

    def targets(self, at: Index, over: Region) -> Index:
        """Return the numbers of the states of cells in a region of the reduced axes; -1 for other cells.

        An axis along which they do not vary has the length 1.
        """
        reduction, leaves = self.reduction, self.reduction.leaves
        axes = reduction.label_axes
        lengths = {axis: side.stop - side.start for axis, side in zip(reduction.over, over, strict=True)}
        if reduction.sequence is not None:
            lengths[reduction.sequence] = len(at)

        def spread(values: Values, on: Sequence[int]) -> Values:
            """Return values with an axis for each reduced axis."""
            turned = values.transpose(np.argsort(on).tolist())
            return turned.reshape([lengths[axis] if axis in on else 1 for axis in reduction.over])

        place = () if reduction.sequence is None else (reduction.sequence,)
        where = spread(at if place else at[0], place)
        if reduction.grouping is None:
            codes: Values = np.zeros((1,) * len(reduction.over), np.int64)
        else:
            sides = dict(zip(reduction.over, over, strict=True))
            index: Any = tuple(at if axis == reduction.sequence else sides[axis] for axis in axes)
            codes = spread(reduction.grouping.codes[index], axes)
        sections = np.maximum(codes, 0) if reduction.varies else 0
        rows = leaves.rows_of(sections, where) - self.rows[0]
        out = rows if reduction.varies else rows * reduction.inner + codes
        return np.asarray(np.where((codes >= 0) & (rows >= 0) & (out < self.count), out, -1))

    def _cells(self, raw: Values, at: Index, over: Region, retained: Region, order: _Order) -> Cells:
        """Return the cells of a slab, ordered by their states.

        Their memory has the order of the array: the cells of each cell of the result follow each other, or
        the cells of the result do.
        """
        reduction = self.reduction
        inside = reduction.has_cells_inside
        axes = (*reduction.retained, *reduction.over) if inside else (*reduction.over, *reduction.retained)
        shape = [side.stop - side.start for side in retained]
        count = math.prod(raw.shape[axis] for axis in reduction.over)

        def turned(values: Values) -> Values:
            whole = values.transpose(axes).reshape((*shape, count) if inside else (count, *shape))
            if rows is not None:
                whole = np.take(whole, rows, axis=-1 if inside else 0)
            # One column would be added in another order than several.
            if not inside and shape and math.prod(shape) == 1:
                whole = np.repeat(whole, 2, axis=-1)
            return np.moveaxis(np.ascontiguousarray(whole), -1, 0) if inside else np.ascontiguousarray(whole)

        rows = order.rows
        values = turned(reduction.field.decoded(raw))
        weights, positions = reduction.weights, None
        if weights is not None:
            sides = dict(zip((*reduction.over, *reduction.retained), (*over, *retained), strict=True))
            index: list[Any] = [sides[axis] if n > 1 else slice(None) for axis, n in enumerate(weights.shape)]
            if reduction.sequence is not None and weights.shape[reduction.sequence] > 1:
                index[reduction.sequence] = at
            weights = turned(np.broadcast_to(weights[tuple(index)], raw.shape))
        if any(isinstance(measure.kernel, FirstLast) for measure in reduction.measures):
            numbers = [
                at if axis == reduction.sequence else np.arange(side.start, side.stop)
                for axis, side in zip(reduction.over, over, strict=True)
            ]
            # The positions of cells must not depend on the length of the sequence axis.
            lengths = [
                max(n, 1 << 31) if axis == reduction.sequence and number else n
                for number, (axis, n) in enumerate(zip(reduction.over, reduction.over_shape, strict=True))
            ]
            positions = np.zeros(1, np.int64)
            if numbers:
                positions = np.ravel_multi_index(np.broadcast_arrays(*np.ix_(*numbers)), lengths).ravel()
            positions = positions if rows is None else positions[rows]
        valid = ~np.isnan(values) if reduction.skipna and values.dtype.kind == "f" else None
        return Cells(values, order.groups, order.starts, weights, valid, positions)

    def _absorb_tiles(self, states: list[Partial]) -> bool:
        """Add the statistics of tiles, and the cells of other tiles, if the bits are those of the cells.

        A tile counts if the result retains no axis along which it has several elements, and if all its
        elements belong to one state, or to none.
        """
        reduction = self.reduction
        positions = (
            reduction.leaves.positions_of(*self.rows) if reduction.takes_tiles else np.zeros(0, np.int64)
        )
        if not len(positions):
            return False
        step = reduction.step
        ends = (
            int(positions.min() // step * step),
            min(int(positions.max() // step + 1) * step, reduction.length),
        )
        low, high = (
            self._corner(end, other, box)
            for end, other, box in zip(
                ends,
                ((0,) * len(reduction.others), reduction.others_shape),
                (self.low, self.high),
                strict=True,
            )
        )
        plan = region_plan(
            self.session, reduction.field, list(zip(low, high, strict=True)), skipna=reduction.skipna
        )
        if plan is None or any(
            (np.subtract(*reversed(plan.bounds[axis])) != 1).any() for axis in reduction.retained
        ):
            return False
        order = (*reduction.over, *reduction.retained)
        bounds = [plan.bounds[axis] for axis in reduction.over]
        over = tuple(slice(int(starts[0]), int(stops[-1])) for starts, stops in bounds)
        least = most = self.targets(np.arange(*ends), over)
        for axis, (starts, _) in enumerate(bounds):
            if least.shape[axis] > 1:
                least = np.minimum.reduceat(least, starts - starts[0], axis=axis)
                most = np.maximum.reduceat(most, starts - starts[0], axis=axis)
        least, most = (each.reshape(*each.shape, *[1] * len(reduction.retained)) for each in (least, most))
        is_known = plan.is_known.copy()
        for measure in reduction.measures:
            is_known &= ~measure.kernel.is_open(plan.columns)
        is_unread = ~is_known
        turned = is_unread.transpose(order)  # a view
        turned |= least != most
        turned &= most >= 0
        if is_unread.all():
            return False
        grid = [
            max(1, min(n, end - start)) for n, start, end in zip(reduction.field.grid, low, high, strict=True)
        ]
        shape = np.subtract(high, low).tolist()
        block = block_shape(shape, grid, reduction.field.raw.itemsize, self.block)
        array = Array(self.session, reduction.field.path)
        boxes = [
            box
            for start, stop in _boxes(low, high, block)
            for box in plan.boxes_to_read(is_unread, list(zip(start, stop, strict=True)))
        ]
        is_used = is_known & ~is_unread
        rows = math.prod(is_used.shape[axis] for axis in reduction.over)
        flat = np.broadcast_to(least, turned.shape).reshape(rows, -1)[:, 0] if rows else np.zeros(0, np.int64)
        tiles = Tiles.of(plan.columns, is_used, plan.packing, codes=flat, over=reduction.over)
        for measure, state in zip(reduction.measures, states, strict=True):
            absorb_partial(measure.kernel, state, measure.kernel.partial_of_tiles(tiles))
        for box in boxes:
            self._absorb_box(np.asarray(array[tuple(slice(*side) for side in box)]), box, states)
        return True

    def _absorb_box(self, raw: Values, box: Sequence[tuple[int, int]], states: list[Partial]) -> None:
        """Add the cells of a box to the states, of statistics whose bits do not depend on an order."""
        reduction = self.reduction
        inside = block_shape(raw.shape, (1,) * raw.ndim, raw.itemsize, SLAB)
        corner = [low for low, _ in box]
        for start, stop in _boxes([0] * raw.ndim, raw.shape, inside):
            sides = _between(np.add(corner, start).tolist(), np.add(corner, stop).tolist())
            over = tuple(sides[axis] for axis in reduction.over)
            at = np.zeros(1, np.int64)
            if reduction.sequence is not None:
                side = sides[reduction.sequence]
                at = np.arange(side.start, side.stop)
            values = reduction.field.decoded(np.asarray(raw[_between(start, stop)]))
            values = values.transpose(*reduction.over, *reduction.retained)
            lengths = values.shape[: len(over)]
            values = values.reshape(math.prod(lengths), *values.shape[len(over) :])
            codes = np.broadcast_to(self.targets(at, over), lengths).reshape(-1)
            part = cells(values, codes, skipna=reduction.skipna)
            place = tuple(
                slice(sides[axis].start - low, sides[axis].stop - low)
                for axis, low in zip(reduction.retained, self.low, strict=True)
            )
            for measure, state in zip(reduction.measures, states, strict=True):
                view = Partial(state.groups, tuple(field[(slice(None), *place)] for field in state.fields))
                absorb_partial(measure.kernel, view, measure.kernel.partial_of(part))

    def all_cells(self) -> tuple[Values, Index | None]:
        """Return all cells of the rows, decoded, and with groups the numbers of their states or -1."""
        reduction, shape = self.reduction, tuple(np.subtract(self.high, self.low).tolist())
        per_position = math.prod(reduction.others_shape)
        step = reduction.step
        chunks = np.unique(reduction.leaves.positions_of(*self.rows) // step)
        count = int(np.minimum(step, reduction.length - chunks * step).sum()) * per_position
        values: Values | None = None
        codes = [np.zeros(0, np.int64)]
        row = 0
        for read in self.reads(Array(self.session, reduction.field.path)):
            if values is None:  # after the first read, which needs the same memory again for a while
                values = np.empty((count, *shape), reduction.field.dtype)
            for region, at, over in self.slabs(read):
                slab = reduction.field.decoded(np.asarray(read.raw[region]))
                slab = slab.transpose(*reduction.over, *reduction.retained)
                slab = slab.reshape(math.prod(slab.shape[: len(reduction.over)]), *shape)
                values[row : row + len(slab)] = slab
                row += len(slab)
                if reduction.grouping is not None:
                    lengths = [side.stop - side.start for side in over]
                    codes.append(np.broadcast_to(self.targets(at, over), lengths).reshape(-1))
            del read
        if values is None:
            values = np.zeros((0, *shape), reduction.field.dtype)
        return values, None if reduction.grouping is None else np.concatenate(codes)


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """The order of the cells of a slab by their states ``groups``: ``rows``; None if they are in order."""

    rows: Index | None
    groups: Index
    starts: Index


def _order(codes: Index, lengths: Corner) -> _Order:
    """Return the order of cells whose states are ``codes``, in a region of these lengths."""
    if codes.size and codes.min() == codes.max():
        groups = codes.reshape(-1)[: int(codes.max() >= 0)]
        return _Order(None, groups, np.zeros(len(groups), np.int64))
    flat = np.broadcast_to(codes, lengths).reshape(-1)
    rows = np.argsort(flat, kind="stable")
    rows = rows[np.searchsorted(flat, 0, sorter=rows) :]
    groups, starts = np.unique(flat[rows], return_index=True)
    return _Order(rows, groups, starts)


def _fold_slab(
    reduction: FieldReduction, slab: Cells, states: list[Partial], first: NDArray[np.bool_], box: Region
) -> None:
    """Add the cells of each group of a slab to its state. The ``first`` cells of a state replace it."""
    # Sums in another type go through a buffer, whose borders would have an influence on the bits.
    wide = None
    shape = [side.stop - side.start for side in box]
    ends = np.append(slab.starts[1:], len(slab.values)).tolist()
    for row, (group, start, end) in enumerate(
        zip(slab.groups.tolist(), slab.starts.tolist(), ends, strict=True)
    ):
        own = slice(start, end)
        for measure, state in zip(reduction.measures, states, strict=True):
            kernel, values = measure.kernel, slab.values
            if isinstance(kernel, Sum) and np.dtype(kernel.dtype) == np.float64:
                wide = values.astype(np.float64) if wide is None else wide
                values = wide
            part = kernel.partial_of(
                Cells(
                    values[own],
                    slab.groups[:1],
                    slab.starts[:1],
                    None if slab.weights is None else slab.weights[own],
                    None if slab.valid is None else slab.valid[own],
                    None if slab.positions is None else slab.positions[own],
                )
            )
            fields = tuple(field[(slice(1), *map(slice, shape))] for field in part.fields)
            into = tuple(field[(slice(group, group + 1), *box)] for field in state.fields)
            merged = fields if first[row] else kernel.merge_fields(into, fields)
            for field, added in zip(into, merged, strict=True):
                field[...] = added


# The functions of blocks: see `frazil.pipeline.transform.block_job.Compute`


@dataclass(frozen=True, slots=True, eq=False)
class StateBlocks:
    """The states of leaves, or with ``below`` the nodes above the states at this path, with these offsets.

    The axes of states are rows, words, the groups of a section, and the retained axes.
    """

    reduction: FieldReduction
    block: int
    below: tuple[str, Index] | None = None

    def __call__(self, session: Session, start: Corner, stop: Corner) -> Sequence[Values]:
        """Return the states of a block."""
        reduction = self.reduction
        kernels = [measure.kernel for measure in reduction.measures]
        if self.below is None:
            rows = start[0], stop[0]
            states = RowReader(reduction, session, rows, start[3:], stop[3:], self.block).states()
        else:
            path, offsets = self.below
            first, last = (each[start[0] : stop[0]] for each in children(offsets))
            ends = np.append(first, last[-1:])
            states = [
                fold_children(kernel, fields, ends - ends[0])
                for kernel, fields in _stored(reduction, session, path, ends, start[3:], stop[3:])
            ]
        return [np.concatenate(list(map(state_words, kernels, states)), axis=1)]


def _stored(
    reduction: FieldReduction, session: Session, path: str, rows: Index, low: Corner, high: Corner
) -> Iterator[tuple[Kernel, Fields]]:
    """Yield the kernel and the states of each measure, of stored rows."""
    region = (slice(int(rows[0]), int(rows[-1])), slice(None), slice(None), *_between(low, high))
    words, at = np.asarray(Array(session, path)[region]), 0
    for measure in reduction.measures:
        yield measure.kernel, state_fields(measure.kernel, words[:, at : at + measure.words])
        at += measure.words


@dataclass(frozen=True, slots=True, eq=False)
class ResultBlocks:
    """The results of all measures: from cells, or with ``top`` from the states at this path."""

    reduction: FieldReduction
    block: int
    top: tuple[str, Index] | None = None

    def __call__(self, session: Session, start: Corner, stop: Corner) -> Sequence[Values]:
        """Return the results of a block."""
        reduction, lead = self.reduction, int(self.reduction.measures[0].q is not None)
        low, high = start[lead:], stop[lead:]
        groups, at = (0, 1), reduction.group_axis
        if at is not None:
            groups = low[at], high[at]
            low, high = (*low[:at], *low[at + 1 :]), (*high[:at], *high[at + 1 :])
        first, last = groups if reduction.varies else (0, 1)
        offsets = (reduction.leaves.offsets if self.top is None else self.top[1])[first : last + 1]
        reader = RowReader(reduction, session, (int(offsets[0]), int(offsets[-1])), low, high, self.block)
        kernels = [measure.kernel for measure in reduction.measures]
        if isinstance(kernels[0], Exact):
            quantiles = kernels[0].quantiles_of(*reader.all_cells(), reader.count)
            states = [tuple(each.reshape(-1, reduction.inner, *each.shape[1:]) for each in quantiles)]
        elif self.top is None:
            states = reader.states()
        else:
            states = [each for _, each in _stored(reduction, session, self.top[0], offsets, low, high)]
        shape = (reduction.inner, *np.subtract(high, low).tolist())
        own = slice(None) if reduction.varies else slice(*groups)
        out = []
        for measure, fields in zip(reduction.measures, states, strict=True):
            ends = offsets - offsets[0]
            while np.diff(ends).max() > 1:
                fields, ends = fold_children(measure.kernel, fields, ends), parents(ends)
            total = empty_partial(measure.kernel, np.arange(last - first), shape)
            for into, values in zip(total.fields, fields, strict=True):
                into[np.diff(ends) > 0] = values
            fields = tuple(each[:, 0] if reduction.varies else each[0] for each in total.fields)
            out.append(self._values(measure, tuple(each[own] for each in fields), groups))
        return out

    def _values(self, measure: Measure, fields: Fields, groups: tuple[int, int]) -> Values:
        """Return the values of a measure: (quantiles,) then the dimensions of the result."""
        reduction, kernel = self.reduction, measure.kernel
        has_quantiles = isinstance(kernel, Exact | Sketch)
        values = np.stack(fields) if isinstance(kernel, Exact) else kernel.finish_fields(fields)
        empty = None if has_quantiles or reduction.empty is None else reduction.empty[slice(*groups)]
        if empty is not None and empty.any():
            # As in xarray, groups without a cell are NaN, also for sums and counts.
            values = values.astype(measure.dtype, copy=True)
            values[empty] = np.nan
        if has_quantiles and measure.q is None:
            values, has_quantiles = values[0], False
        axis, at = int(has_quantiles), reduction.group_axis
        values = np.take(values, 0, axis=axis) if at is None else np.moveaxis(values, axis, axis + at)
        if values.dtype.kind == "f" and measure.dtype.kind != "f":
            values = np.nan_to_num(values)  # NaN is impossible here: see `STATISTICS`
        with np.errstate(over="ignore"):  # the result is infinite, as in xarray
            return np.asarray(values.astype(measure.dtype, copy=False))
