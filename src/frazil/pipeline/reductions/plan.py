"""What a reduction computes, which task reads what, and where partial results are combined.

A task owns some chunks of the result, or returns partial results of a small one, or writes partial results of
a large one with few chunks to scratch arrays. Quantiles sort all cells, or use KLL sketches (Karnin, Lang,
Liberty 2016) with a bound of the error of the rank.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np
from datasketches import kll_doubles_sketch  # type: ignore[import-not-found,import-untyped,unused-ignore]
from numpy.typing import NDArray

from frazil.answers.kernels import Cells, Fields, Index, Kernel, Partial, Values
from frazil.jobs.blocks import Limits, block_shape, blocks, cells, slabs, split
from frazil.jobs.engine import Engine, EngineName, task_bytes
from frazil.pipeline.reductions.fields import Field, Grouping

#: Bytes that one number of a sketch of size ``k`` may take: 3 k numbers and some levels.
BYTES_PER_K: Final = 28


def rank_error(k: int) -> float:
    """Return how far the rank of an answer may be off, with 99 % confidence."""
    return float(kll_doubles_sketch.get_normalized_rank_error(k, False))


class NanSketch:
    """A sketch that can be pickled, and whether a cell was NaN."""

    __slots__ = ("nan", "sketch")

    def __init__(self, sketch: Any, nan: bool = False) -> None:
        self.sketch: Any = sketch
        self.nan: bool = nan

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (self.sketch.serialize(), self.nan))


def _unpickled(data: bytes, nan: bool) -> NanSketch:
    return NanSketch(kll_doubles_sketch.deserialize(data), nan)


@dataclass(frozen=True, slots=True)
class Sketch(Kernel):
    """Quantiles ``q`` by sketches. Its one field is an array of `NanSketch`, or None for no cells."""

    q: tuple[float, ...]
    k: int = 200
    skipna: bool = True

    @property
    def identities(self) -> tuple[tuple[Any, Any], ...]:
        """The field of sketches."""
        return ((object, None),)

    def partial_of(self, cells: Cells) -> Partial:
        """Return one sketch for each group and each cell of the result."""
        values = cells.values.astype(np.float64)
        retained = values.shape[1:]
        columns = values.reshape(len(values), -1).T.copy()  # a cell of the result, one row of cells
        stops = np.append(cells.starts[1:], len(values))
        out = np.empty((len(cells.groups), len(columns)), object)
        for row, (start, stop) in enumerate(zip(cells.starts, stops, strict=True)):
            for number, column in enumerate(columns[:, start:stop]):
                sketch, missing = kll_doubles_sketch(self.k), np.isnan(column)
                sketch.update(np.ascontiguousarray(column[~missing]))
                out[row, number] = NanSketch(sketch, bool(missing.any()))
        return Partial(cells.groups, (out.reshape(len(out), *retained),))

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
class Exact(Kernel):
    """Quantiles ``q`` of all cells of a column at once. It has no partial results."""

    q: tuple[float, ...]
    skipna: bool = True

    @property
    def identities(self) -> tuple[tuple[Any, Any], ...]:
        """A number for each quantile."""
        return ((np.float64, 0),) * len(self.q)

    def quantiles_of(self, values: Values, codes: Index | None, groups: int) -> Values:
        """Return the quantiles of cells: (quantiles, groups, *retained)."""
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
    """Return quantiles along the first axis, with linear interpolation: (quantiles, *retained dimensions)."""
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
        part = at - below
        with np.errstate(invalid="ignore", over="ignore"):
            step = high - low
            between = np.where(np.isfinite(step), low + step * part, low * (1 - part) + high * part)
        # An infinite neighbour with the weight 0 does not make the result NaN.
        out[row] = np.where((low == high) | (part == 0), low, between)
    whole = count > 0 if skipna else count == len(ordered)
    return np.where(whole, out, np.nan)


@dataclass(frozen=True, slots=True)
class Measure:
    """One result: the statistic ``how``, its ``path`` and ``dtype``. ``q`` are several quantiles, or None."""

    path: str
    how: str
    kernel: Kernel
    dtype: np.dtype[Any]
    q: tuple[float, ...] | None = None

    @property
    def width(self) -> int:
        """Bytes of state for each cell of the result."""
        if isinstance(self.kernel, Sketch):
            return BYTES_PER_K * self.kernel.k
        return sum(np.dtype(dtype).itemsize for dtype, _ in self.kernel.identities)


@dataclass(frozen=True, slots=True)
class FieldReduction:
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
        """Whether each group is a run along the one reduced axis, as the bins of a resampling are."""
        grouping = self.grouping
        if grouping is None or grouping.codes.ndim != 1 or self.over != self.label_axes:
            return False
        codes = grouping.codes[grouping.codes >= 0]
        return bool((np.diff(codes) >= 0).all())

    @property
    def is_exact(self) -> bool:
        """Whether a task needs all cells of its part of the result at once."""
        return any(isinstance(measure.kernel, Exact) for measure in self.measures)

    @property
    def read_per_cell(self) -> int:
        """Bytes that are read for a cell of the result, without groups."""
        return self.field.raw.itemsize * max(1, math.prod(self.over_shape))

    def joined_chunks(self, room: int) -> tuple[int, ...]:
        """Return chunks of the retained axes, put together to at most ``room`` cells."""
        return block_shape(self.retained_shape, self.retained_grid, 1, max(1, room))


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


def plan_reduction(
    number: int, reduction: FieldReduction, limits: Limits, engine: Engine | EngineName | None = None
) -> ReductionPlan:
    """Return the plan of the reduction ``number`` of a job. The engine does not change chunks of results."""
    field = reduction.field
    task = task_bytes(math.prod(field.shape) * field.raw.itemsize, limits.task, engine)
    for size in (task, limits.task):  # few tasks may return partial results where many return too much
        plan = _plan_on_driver(number, reduction, limits, size)
        if plan is not None:
            return plan
    # The box of the retained axes that one task computes: joined chunks, or a part of a chunk.
    if reduction.is_exact:
        cells_read = max(1, math.prod(reduction.over_shape))
        room = min(limits.chunk // (reduction.width * reduction.groups), limits.task // (8 * cells_read))
    else:
        room = min(limits.chunk // (8 * reduction.groups), limits.task // reduction.read_per_cell)
    box = reduction.joined_chunks(room)
    most = max(1, limits.state // reduction.width)
    if not reduction.is_exact and math.prod(box) > most:
        # A part of a chunk: the chunk is read more than once, but the state of the part fits.
        box = block_shape(box, (1,) * len(box), 1, most)
    group_chunk, per_task = _group_lengths(reduction, limits, box, task)
    plan = ReductionPlan(Combination.IN_TASK, reduction.arranged(group_chunk, box), (), box, group_chunk)
    ranges = [
        (start, min(start + per_task, reduction.groups)) for start in range(0, reduction.groups, per_task)
    ]
    starts, stops = split(reduction.retained_shape, box)
    corners = zip(map(tuple, starts.tolist()), map(tuple, stops.tolist()), strict=True)
    parts = [(low, high, groups) for low, high in corners for groups in ranges]
    cuts = _cuts(reduction, limits, box, len(ranges), len(parts))
    if cuts is None:
        zero = (0,) * len(reduction.over)
        return replace(plan, items=tuple(Item(number, *part, zero, reduction.over_shape) for part in parts))
    items = tuple(Item(number, *part, *cut, slot) for part in parts for slot, cut in enumerate(cuts))
    return replace(plan, combination=Combination.IN_SCRATCH, items=items, slots=len(cuts))


def _plan_on_driver(
    number: int, reduction: FieldReduction, limits: Limits, task: int
) -> ReductionPlan | None:
    """Return a plan whose partial results go to the driver, if they are small enough.

    A task reads about ``task`` bytes.
    """
    field, state = reduction.field, math.prod(reduction.retained_shape) * reduction.groups * reduction.width
    if reduction.is_exact or state > limits.small:
        return None
    order = [*reduction.over[::-1], *reduction.retained[::-1]]
    block = block_shape(field.shape, field.grid, field.raw.itemsize, task, order)
    pieces = math.prod(cells(reduction.over_shape, [block[axis] for axis in reduction.over]))
    if state * pieces > limits.returned:
        return None
    corners = blocks(field.shape, field.grid, field.raw.itemsize, task, order)
    columns = (
        map(tuple, corner[:, list(axes)].tolist())
        for axes in (reduction.retained, reduction.over)
        for corner in corners
    )
    groups = (0, reduction.groups)
    items = tuple(
        Item(number, low, high, groups, first, end) for low, high, first, end in zip(*columns, strict=True)
    )
    box = reduction.joined_chunks(limits.chunk // (8 * reduction.groups))
    chunks = reduction.arranged(reduction.groups, box)
    return ReductionPlan(Combination.ON_DRIVER, chunks, items, box, reduction.groups)


def _group_lengths(
    reduction: FieldReduction, limits: Limits, box: tuple[int, ...], task: int
) -> tuple[int, int]:
    """Return the number of groups in a chunk of the result, and in the part of one task: whole chunks."""
    groups, box_cells = reduction.groups, max(1, math.prod(box))
    chunk = max(1, min(groups, 4 * limits.chunk // (8 * box_cells)))
    per_task = max(chunk, min(groups, limits.state // (box_cells * reduction.width)))
    if reduction.is_exact:
        per_task = groups
    elif reduction.has_ordered_groups:
        read_per_group = max(1, reduction.read_per_cell * box_cells // groups)
        groups_per_input_chunk = -(-groups * reduction.over_grid[0] // max(1, reduction.over_shape[0]))
        chunk, per_task = (
            min(most, max(1, size // read_per_group, 4 * groups_per_input_chunk))
            for most, size in ((chunk, limits.task), (per_task, task))
        )
    return chunk, -(-min(per_task, groups) // chunk) * chunk


def _cuts(
    reduction: FieldReduction, limits: Limits, box: tuple[int, ...], group_ranges: int, parts: int
) -> list[tuple[Corner, Corner]] | None:
    """Return cuts of the reduced axes, one for each slot of scratch arrays; None for no scratch arrays.

    They help if tasks have much to read for few parts of the result: a task for each part would leave
    most of a cluster idle.
    """
    box_cells = max(1, math.prod(box))
    is_deep = reduction.read_per_cell * box_cells / group_ranges > 4 * limits.task
    has_quantiles = any(isinstance(measure.kernel, Exact | Sketch) for measure in reduction.measures)
    if not is_deep or not 0 < parts < limits.columns or has_quantiles:
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
