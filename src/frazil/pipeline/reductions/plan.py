"""Which task reads what, and where partial results are combined.

    in task      a task owns some chunks of the result: it reads all cells of them, block by block, and writes
                 them; its memory is one block and the state of its part of the result
    on driver    the result is small: tasks return their partial results, the driver combines them
    in scratch   the result is large and has few chunks: tasks write their partial results to scratch arrays,
                 a second phase combines them, and the commit does not include the scratch arrays

Results have the chunks of the retained dimensions; tiny chunks are joined. A long group dimension (a
resampled time) is cut as well, so that a task reads only the cells of its groups.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from frazil.jobs.blocks import block_shape, blocks, cells, split
from frazil.jobs.memory import Limits
from frazil.pipeline.reductions.quantiles import Exact, Sketch
from frazil.pipeline.reductions.reduction import Reduction

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
