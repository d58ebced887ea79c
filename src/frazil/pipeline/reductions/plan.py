"""What a reduction computes, which task reads what, and where partial results are combined.

    in task      a task owns some chunks of the result: it reads all cells of them, block by block, and writes
                 them; its memory is one block and the state of its part of the result
    on driver    the result is small: tasks return their partial results, the driver combines them
    in scratch   the result is large and has few chunks: tasks write their partial results to scratch arrays,
                 a second phase combines them, and the commit does not include the scratch arrays

Results have the chunks of the retained dimensions; tiny chunks are joined. A long group dimension (a
resampled time) is cut as well, so that a task reads only the cells of its groups.

    Exact      has all cells, sorts them, and interpolates linearly, as numpy does by default
    Sketch     one KLL sketch (Karnin, Lang, Liberty 2016) for each cell of the result

A sketch of size ``k`` holds about 3 k numbers, for any number of cells. The *rank* of its answer is off by
at most ``rank_error(k)`` with 99 % confidence: with k = 200 the answer for the median is between the
quantiles 0.487 and 0.513. It picks numbers at random: two runs may differ within that bound. The extremes (0
and 1) are exact. A sketch gets no NaN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np
from datasketches import kll_doubles_sketch  # type: ignore[import-not-found,import-untyped,unused-ignore]
from numpy.typing import NDArray

from frazil.jobs.blocks import Limits, block_shape, blocks, cells, slabs, split
from frazil.pipeline.reductions.fields import Field, Grouping
from frazil.pipeline.reductions.kernels import Cells, Fields, Index, Kernel, Partial, Values

#: Bytes that one number of a sketch of size ``k`` may take: 3 k numbers and some levels.
BYTES_PER_K: Final = 28


def rank_error(k: int) -> float:
    """Return how far the rank of an answer may be off, with 99 % confidence.

    >>> round(rank_error(200), 4)
    0.0133
    """
    return float(kll_doubles_sketch.get_normalized_rank_error(k, False))


class NanSketch:
    """A sketch that can be pickled, and whether a cell was NaN."""

    __slots__ = ("nan", "sketch")

    def __init__(self, sketch: Any, nan: bool = False) -> None:
        self.sketch, self.nan = sketch, nan

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (self.sketch.serialize(), self.nan))


def _unpickled(data: bytes, nan: bool) -> NanSketch:
    return NanSketch(kll_doubles_sketch.deserialize(data), nan)


@dataclass(frozen=True, slots=True)
class Sketch:
    """Quantiles ``q`` by sketches. Its one field is an array of `NanSketch`, or None for no cells."""

    q: tuple[float, ...]
    k: int = 200
    skipna: bool = True
    identities: tuple[tuple[Any, Any], ...] = ((object, None),)

    def partial_of(self, cells: Cells) -> Partial:
        """Return one sketch for each group and each cell of the result."""
        values = cells.values.astype(np.float64)
        retained = values.shape[1:]
        columns = values.reshape(len(values), -1).T.copy()  # a cell of the result, one row of cells
        stops = np.append(cells.starts[1:], len(values))
        out = np.empty((len(cells.groups), len(columns)), object)
        for row, (start, stop) in enumerate(zip(cells.starts, stops, strict=True)):
            out[row] = list(map(self._sketch_of, columns[:, start:stop]))
        return Partial(cells.groups, (out.reshape(len(out), *retained),))

    def _sketch_of(self, column: Values) -> NanSketch:
        sketch = kll_doubles_sketch(self.k)
        missing = np.isnan(column)
        sketch.update(np.ascontiguousarray(column[~missing]))
        return NanSketch(sketch, bool(missing.any()))

    def merge_fields(self, a: Fields, b: Fields) -> Fields:
        """Return the merged sketches."""
        return (_merge_sketches(a[0], b[0]),)

    def finish_fields(self, fields: Fields) -> Values:
        """Return the quantiles: (quantiles, groups, *retained)."""
        flat = fields[0].ravel()
        rows = np.array(list(map(self._answer, flat)), np.float64).reshape(len(flat), len(self.q))
        return rows.T.reshape(len(self.q), *fields[0].shape)

    def _answer(self, state: NanSketch | None) -> list[float]:
        if state is None or state.sketch.is_empty() or (state.nan and not self.skipna):
            return [np.nan] * len(self.q)
        inner = state.sketch.get_quantiles(list(self.q), True)
        # The sketch has the exact extremes, but does not return them for the ranks 0 and 1.
        ends = {0.0: state.sketch.get_min_value(), 1.0: state.sketch.get_max_value()}
        return list(map(ends.get, self.q, inner))


def _merge_two(a: NanSketch | None, b: NanSketch | None) -> NanSketch | None:
    if a is None or b is None:
        return a or b
    sketch = kll_doubles_sketch(a.sketch.k)
    sketch.merge(a.sketch)
    sketch.merge(b.sketch)
    return NanSketch(sketch, a.nan or b.nan)


_merge_sketches: Callable[..., Values] = np.frompyfunc(_merge_two, 2, 1)


@dataclass(frozen=True, slots=True)
class Exact:
    """Quantiles ``q`` of all cells of a column at once."""

    q: tuple[float, ...]
    skipna: bool = True

    def quantiles_of(self, values: Values, codes: Index | None, groups: int) -> Values:
        """Return the quantiles of cells: (quantiles, groups, *retained).

        ``values`` are (cells, *retained), ``codes`` are the groups (cells,) or None.
        """
        if codes is None:
            return exact_quantiles(values, self.q, skipna=self.skipna)[:, None]
        order = np.argsort(codes, kind="stable")
        borders = np.searchsorted(codes, np.arange(groups + 1), sorter=order)
        out = np.empty((len(self.q), groups, *values.shape[1:]))
        for group in range(groups):
            rows = order[borders[group] : borders[group + 1]]
            out[:, group] = exact_quantiles(values[rows], self.q, skipna=self.skipna)
        return out


def exact_quantiles(values: Values, q: tuple[float, ...], *, skipna: bool = True) -> Values:
    """Return quantiles along the first axis, with linear interpolation: (quantiles, *retained dimensions).

    A column without values is NaN. ``values`` are sorted in place.

    >>> exact_quantiles(np.array([4.0, 1.0, np.nan, 2.0]), (0.5, 1.0)).tolist()
    [2.0, 4.0]
    """
    retained = values.shape[1:]
    if not len(values):
        return np.full((len(q), *retained), np.nan)
    ordered = values if values.dtype.kind in "iuf" else values.astype(np.float64)
    ordered.sort(axis=0)  # in place: it may be large; NaN last
    count = np.full(retained, len(ordered))
    if ordered.dtype.kind == "f":
        for part in slabs(ordered.shape, ordered.itemsize):
            count[part[1:]] -= np.isnan(ordered[part]).sum(axis=0)
    out = np.empty((len(q), *retained))
    for row, each in enumerate(q):
        at = np.maximum(count - 1, 0) * each
        below = np.floor(at).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(count - 1, 0))
        low = np.take_along_axis(ordered, below[None], axis=0)[0].astype(np.float64)
        high = np.take_along_axis(ordered, above[None], axis=0)[0].astype(np.float64)
        out[row] = _interpolated(low, high, at - below)
    whole = count > 0 if skipna else count == len(ordered)
    return np.where(whole, out, np.nan)


def _interpolated(low: Values, high: Values, part: Values) -> Values:
    """Interpolate linearly. An infinite neighbour with the weight 0 does not make the result NaN.

    >>> low, high = np.array([20.0, -np.inf, 1.0]), np.array([np.inf, 20.0, 2.0])
    >>> _interpolated(low, high, np.array([0.0, 0.5, 0.5])).tolist()
    [20.0, -inf, 1.5]
    """
    with np.errstate(invalid="ignore", over="ignore"):
        step = high - low
        out = np.where(np.isfinite(step), low + step * part, low * (1 - part) + high * part)
    return np.where((low == high) | (part == 0), low, out)


@dataclass(frozen=True, slots=True)
class Measure:
    """One result: the statistic ``how``, its ``path`` and ``dtype``. ``q`` are several quantiles, or None."""

    path: str
    how: str
    kernel: Kernel | Exact
    dtype: np.dtype[Any]
    q: tuple[float, ...] | None = None

    @property
    def width(self) -> int:
        """Bytes of state for each cell of the result."""
        if isinstance(self.kernel, Exact):
            return 8 * len(self.kernel.q)
        if isinstance(self.kernel, Sketch):
            return BYTES_PER_K * self.kernel.k
        return sum(np.dtype(dtype).itemsize for dtype, _ in self.kernel.identities)


@dataclass(frozen=True, slots=True)
class Reduction:
    """An array, the axes ``over`` that it is reduced along, its groups, and the measures of one pass.

    ``weights`` have as many axes as the array, of length 1 along axes where they do not vary. ``empty`` is
    True for groups without a cell; None if all groups have cells.
    """

    field: Field
    over: tuple[int, ...]
    measures: tuple[Measure, ...]
    grouping: Grouping | None = None
    weights: Values | None = None
    skipna: bool = True
    empty: NDArray[np.bool_] | None = None

    @property
    def retained(self) -> tuple[int, ...]:
        """The axes that the result retains."""
        return tuple(axis for axis in range(len(self.field.shape)) if axis not in self.over)

    @property
    def groups(self) -> int:
        """The number of groups."""
        return 1 if self.grouping is None else len(self.grouping)

    @property
    def width(self) -> int:
        """Bytes of state for each cell of the result, of all measures."""
        return sum(measure.width for measure in self.measures)

    @property
    def label_axes(self) -> tuple[int, ...]:
        """The axis of the array for each dimension of the labels."""
        return () if self.grouping is None else tuple(map(self.field.dims.index, self.grouping.dims))

    @property
    def group_axis(self) -> int | None:
        """The position of the group dimension in the result: that of the first axis of the labels."""
        if self.grouping is None:
            return None
        return sum(axis < min(self.label_axes) for axis in self.retained)

    @property
    def retained_shape(self) -> tuple[int, ...]:
        """The lengths of the retained axes."""
        return tuple(self.field.shape[axis] for axis in self.retained)

    @property
    def retained_grid(self) -> tuple[int, ...]:
        """The chunks of the array along the retained axes."""
        return tuple(max(1, min(self.field.grid[axis], self.field.shape[axis])) for axis in self.retained)

    @property
    def over_shape(self) -> tuple[int, ...]:
        """The lengths of the reduced axes."""
        return tuple(self.field.shape[axis] for axis in self.over)

    @property
    def over_grid(self) -> tuple[int, ...]:
        """The chunks of the array along the reduced axes."""
        return tuple(max(1, min(self.field.grid[axis], self.field.shape[axis])) for axis in self.over)

    def arranged[T](self, group: T, retained: tuple[T, ...]) -> tuple[T, ...]:
        """Return one value for each dimension of the result: of the groups, and of the retained axes."""
        at = self.group_axis
        return retained if at is None else (*retained[:at], group, *retained[at:])

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the dimensions of the result."""
        name = "" if self.grouping is None else self.grouping.name
        return self.arranged(name, tuple(self.field.dims[axis] for axis in self.retained))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.arranged(self.groups, self.retained_shape)

    @property
    def has_ordered_groups(self) -> bool:
        """Whether each group is a run along the one reduced axis, as the bins of a resampling are.

        A task for some groups then reads only a part of the axis.
        """
        grouping = self.grouping
        if grouping is None or grouping.codes.ndim != 1 or self.over != self.label_axes:
            return False
        codes = grouping.codes[grouping.codes >= 0]
        return bool((np.diff(codes) >= 0).all())


#: The start or the stop of a box along some axes.
type Corner = tuple[int, ...]


class Combination(Enum):
    """Where the partial results of a reduction are combined."""

    IN_TASK = "in task"
    ON_DRIVER = "on driver"
    IN_SCRATCH = "in scratch"


@dataclass(frozen=True, slots=True)
class Item:
    """The item of one task: a part of the result of the reduction ``number``, and the cells to read for it.

    The part of the result are the groups ``groups`` (start, stop) and a box of the retained axes; the cells
    are a box of the reduced axes. ``slot`` is the row of scratch arrays.
    """

    number: int
    retained_start: Corner
    retained_stop: Corner
    groups: tuple[int, int]
    over_start: Corner
    over_stop: Corner
    slot: int = 0


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """How one reduction is computed.

    ``chunks`` are those of the result, ``retained_box`` and ``group_chunk`` their parts. ``slots`` is the
    number of partial results of each cell in scratch arrays.
    """

    combination: Combination
    chunks: tuple[int, ...]
    items: tuple[Item, ...]
    retained_box: tuple[int, ...]
    group_chunk: int
    slots: int = 1


@dataclass(frozen=True, slots=True)
class _Costs:
    """A reduction, its number in the job, and its costs. Sizes are in bytes."""

    number: int
    reduction: Reduction
    limits: Limits

    @property
    def is_exact(self) -> bool:
        """Whether a task needs all cells of its part of the result at once."""
        return any(isinstance(measure.kernel, Exact) for measure in self.reduction.measures)

    @property
    def has_sketches(self) -> bool:
        """Whether quantiles come from sketches."""
        return any(isinstance(measure.kernel, Sketch) for measure in self.reduction.measures)

    @property
    def reduced_cells(self) -> int:
        """Cells that are read for a cell of the result, without groups."""
        return max(1, math.prod(self.reduction.over_shape))

    @property
    def read_per_cell(self) -> int:
        """Bytes that are read for a cell of the result, without groups."""
        return self.reduction.field.raw.itemsize * self.reduced_cells

    @property
    def state(self) -> int:
        """The state of the whole result."""
        return math.prod(self.reduction.retained_shape) * self.reduction.groups * self.reduction.width

    def coalesced(self, room: int) -> tuple[int, ...]:
        """Return chunks of the retained axes, put together to at most ``room`` cells."""
        reduction = self.reduction
        return block_shape(reduction.retained_shape, reduction.retained_grid, 1, max(1, room))


def plan_reduction(number: int, reduction: Reduction, limits: Limits) -> ReductionPlan:
    """Return the plan of the reduction ``number`` of a job."""
    costs = _Costs(number, reduction, limits)
    plan = _plan_on_driver(costs)
    if plan is not None:
        return plan
    box = _retained_box(costs)
    group_chunk, groups_per_task = _group_lengths(costs, box)
    chunks = reduction.arranged(group_chunk, box)
    plan = ReductionPlan(Combination.IN_TASK, chunks, (), box, group_chunk)
    parts = list(_parts(reduction, box, groups_per_task))
    cuts = _cuts(costs, box, len(range(0, reduction.groups, groups_per_task)), len(parts))
    if cuts is None:
        zero = (0,) * len(reduction.over)
        return replace(plan, items=tuple(Item(number, *part, zero, reduction.over_shape) for part in parts))
    items = tuple(Item(number, *part, *cut, slot) for part in parts for slot, cut in enumerate(cuts))
    return replace(plan, combination=Combination.IN_SCRATCH, items=items, slots=len(cuts))


def _plan_on_driver(costs: _Costs) -> ReductionPlan | None:
    """Return a plan whose partial results go to the driver, if they are small enough."""
    reduction, limits, field = costs.reduction, costs.limits, costs.reduction.field
    if costs.is_exact or costs.state > limits.small:
        return None
    order = [*reduction.over[::-1], *reduction.retained[::-1]]
    block = block_shape(field.shape, field.grid, field.raw.itemsize, limits.task, order)
    pieces = math.prod(cells(reduction.over_shape, [block[axis] for axis in reduction.over]))
    if costs.state * pieces > limits.returned:
        return None
    starts, stops = blocks(field.shape, field.grid, field.raw.itemsize, limits.task, order)
    items = _block_items(costs.number, reduction, starts, stops)
    box = costs.coalesced(limits.chunk // (8 * reduction.groups))
    chunks = reduction.arranged(reduction.groups, box)
    return ReductionPlan(Combination.ON_DRIVER, chunks, items, box, reduction.groups)


def _block_items(
    number: int, reduction: Reduction, starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[Item, ...]:
    """Return an item for each block of the array, for all groups."""
    over, retained, groups = list(reduction.over), list(reduction.retained), (0, reduction.groups)
    columns = (
        map(tuple, corners[:, axes].tolist()) for axes in (retained, over) for corners in (starts, stops)
    )
    retained_start, retained_stop, over_start, over_stop = columns
    rows = zip(retained_start, retained_stop, over_start, over_stop, strict=True)
    return tuple(Item(number, low, high, groups, first, end) for low, high, first, end in rows)


def _retained_box(costs: _Costs) -> tuple[int, ...]:
    """Return the box of the retained axes that one task computes: joined chunks, or a part of a chunk."""
    reduction, limits = costs.reduction, costs.limits
    if costs.is_exact:
        room = min(
            limits.chunk // (reduction.width * reduction.groups), limits.task // (8 * costs.reduced_cells)
        )
    else:
        room = min(limits.chunk // (8 * reduction.groups), limits.task // costs.read_per_cell)
    box = costs.coalesced(room)
    most = max(1, limits.state // reduction.width)
    if not costs.is_exact and math.prod(box) > most:
        # A part of a chunk: the chunk is read more than once, but the state of the part fits.
        box = block_shape(box, (1,) * len(box), 1, most)
    return box


def _group_lengths(costs: _Costs, box: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of groups in a chunk of the result, and in the part of one task: whole chunks."""
    reduction, limits, groups = costs.reduction, costs.limits, costs.reduction.groups
    box_cells = max(1, math.prod(box))
    chunk = max(1, min(groups, 4 * limits.chunk // (8 * box_cells)))
    per_task = max(chunk, min(groups, limits.state // (box_cells * reduction.width)))
    if costs.is_exact:
        per_task = groups
    elif reduction.has_ordered_groups:
        read_per_group = max(1, costs.read_per_cell * box_cells // groups)
        groups_per_input_chunk = -(-groups * reduction.over_grid[0] // max(1, reduction.over_shape[0]))
        enough = max(1, limits.task // read_per_group, 4 * groups_per_input_chunk)
        chunk = min(chunk, enough)
        per_task = min(per_task, enough)
    return chunk, -(-min(per_task, groups) // chunk) * chunk


def _parts(
    reduction: Reduction, box: tuple[int, ...], groups_per_task: int
) -> Iterator[tuple[Corner, Corner, tuple[int, int]]]:
    """Yield the parts of the result: a box of the retained axes, and a range of groups."""
    starts, stops = split(reduction.retained_shape, box)
    ranges = [
        (start, min(start + groups_per_task, reduction.groups))
        for start in range(0, reduction.groups, groups_per_task)
    ]
    for low, high in zip(starts.tolist(), stops.tolist(), strict=True):
        for groups in ranges:
            yield tuple(low), tuple(high), groups


def _cuts(
    costs: _Costs, box: tuple[int, ...], group_ranges: int, parts: int
) -> list[tuple[Corner, Corner]] | None:
    """Return cuts of the reduced axes, one for each slot of scratch arrays; None for no scratch arrays.

    They help if tasks have much to read for few parts of the result: a task for each part would leave
    most of a cluster idle.
    """
    reduction, limits = costs.reduction, costs.limits
    box_cells = max(1, math.prod(box))
    is_deep = costs.read_per_cell * box_cells / group_ranges > 4 * limits.task
    if not is_deep or not 0 < parts < limits.columns or costs.is_exact or costs.has_sketches:
        return None
    shape, grid = reduction.over_shape, reduction.over_grid
    starts, _ = blocks(shape, grid, reduction.field.raw.itemsize * box_cells, limits.task)
    slots = min(len(starts), max(2, limits.columns // parts))
    borders = np.append(np.arange(0, shape[0], grid[0]), shape[0])  # of chunks along the first reduced axis
    rows = borders[np.linspace(0, len(borders) - 1, slots + 1).astype(int)]
    return [
        ((int(low), *(0,) * (len(shape) - 1)), (int(high), *shape[1:]))
        for low, high in itertools.pairwise(rows)
        if low < high
    ]
