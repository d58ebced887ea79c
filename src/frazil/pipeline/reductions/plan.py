"""Which task reads what, and where its partial results meet.

    whole      a task owns some chunks of the result: it reads all that they need, block by block, and writes
               them; its memory is one block and the state of its part of the result
    values     the result is small: tasks return their partial results, the driver combines them
    stored     the result is large and few chunks wide: tasks write their partial results to arrays beside it,
               a second phase combines them and a commit never has them

Results keep the chunks of the dimensions that stay, several of them in one where they would be tiny. A long
group dimension (a resampled time) is cut as well, so that a task reads only what its groups need.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.jobs.blocks import block_shape, blocks, cells, split
from frazil.jobs.memory import Limits
from frazil.pipeline.reductions.fields import Field
from frazil.pipeline.reductions.groups import Grouping
from frazil.pipeline.reductions.partials import Kernel, Values
from frazil.pipeline.reductions.quantiles import BYTES_PER_K, Exact, Sketch


class Meeting(Enum):
    WHOLE = "whole"
    VALUES = "values"
    STORED = "stored"


@dataclass(frozen=True, slots=True)
class Measure:
    """One result: how it is computed, and where it goes. ``dims`` and ``shape`` are those of the result."""

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
    """An array, the axes that go, the groups that come, and what is measured on the way."""

    field: Field
    over: tuple[int, ...]
    measures: tuple[Measure, ...]
    grouping: Grouping | None = None
    weights: Values | None = None  # as many axes as the array, of length 1 where they do not vary
    skipna: bool = True
    empty: NDArray[np.bool_] | None = None  # for each group whether it has no cell; None if all have some

    @property
    def retained(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.field.shape)) if axis not in self.over)

    @property
    def groups(self) -> int:
        return 1 if self.grouping is None else len(self.grouping)

    @property
    def label_axes(self) -> tuple[int, ...]:
        """The axis of the array for each dimension of the labels."""
        return () if self.grouping is None else tuple(map(self.field.dims.index, self.grouping.dims))

    @property
    def group_axis(self) -> int | None:
        """Where the group dimension is among those of the result: in the place of the first that it is of."""
        if self.grouping is None:
            return None
        return sum(axis < min(self.label_axes) for axis in self.retained)

    @property
    def retained_shape(self) -> tuple[int, ...]:
        return tuple(self.field.shape[axis] for axis in self.retained)

    @property
    def retained_grid(self) -> tuple[int, ...]:
        return tuple(max(1, min(self.field.grid[axis], self.field.shape[axis])) for axis in self.retained)

    def arranged[T](self, group: T, retained: tuple[T, ...]) -> tuple[T, ...]:
        """One thing for each dimension of the result."""
        at = self.group_axis
        return retained if at is None else (*retained[:at], group, *retained[at:])

    @property
    def dims(self) -> tuple[str, ...]:
        name = "" if self.grouping is None else self.grouping.name
        return self.arranged(name, tuple(self.field.dims[axis] for axis in self.retained))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.arranged(self.groups, self.retained_shape)


@dataclass(frozen=True, slots=True)
class Item:
    """One task: the part of the result (``kept``, ``groups``) and the part of what is reduced (``over``)."""

    number: int
    retained_start: tuple[int, ...]
    retained_stop: tuple[int, ...]
    groups: tuple[int, int]
    over_start: tuple[int, ...]
    over_stop: tuple[int, ...]
    slot: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """How one reduction is done. ``chunks``: of the result. ``slots``: partial results of each cell."""

    meeting: Meeting
    chunks: tuple[int, ...]
    items: tuple[Item, ...]
    retained_box: tuple[int, ...]
    group_chunk: int
    slots: int = 1


def planned(number: int, reduction: Reduction, limits: Limits) -> Planned:
    """The items of a reduction. See the module."""
    field, over, retained = reduction.field, reduction.over, reduction.retained
    over_shape = tuple(field.shape[axis] for axis in over)
    over_grid = tuple(max(1, min(field.grid[axis], field.shape[axis])) for axis in over)
    reduced = max(1, math.prod(over_shape))
    each = field.raw.itemsize * reduced  # bytes read for a cell of the result, without groups
    width = sum(measure.width for measure in reduction.measures)
    whole = any(isinstance(measure.kernel, Exact) for measure in reduction.measures)
    sketch = any(isinstance(measure.kernel, Sketch) for measure in reduction.measures)
    result = math.prod(reduction.retained_shape) * reduction.groups * width
    if not whole and result <= limits.small:
        order = [*over[::-1], *retained[::-1]]
        shape = block_shape(field.shape, field.grid, field.raw.itemsize, limits.task, order)
        pieces = math.prod(cells(over_shape, [shape[axis] for axis in over]))
        if result * pieces <= limits.returned:
            starts, stops = blocks(field.shape, field.grid, field.raw.itemsize, limits.task, order)
            items = _items(number, reduction, starts, stops)
            box = _coalesced(reduction, limits.chunk // (8 * reduction.groups))
            chunks = reduction.arranged(reduction.groups, box)
            return Planned(Meeting.VALUES, chunks, items, box, reduction.groups)
    if whole:
        room = min(limits.chunk // (width * reduction.groups), limits.task // (8 * reduced))
    else:
        room = min(limits.chunk // (8 * reduction.groups), limits.task // each)
    box = _coalesced(reduction, room)
    most = max(1, limits.state // width)
    if not whole and math.prod(box) > most:  # a part of a chunk: it is read more than once, its state fits
        box = block_shape(box, (1,) * len(box), 1, most)
    box_cells = max(1, math.prod(box))
    group_chunk = max(1, min(reduction.groups, 4 * limits.chunk // (8 * box_cells)))
    per_item = max(group_chunk, min(reduction.groups, limits.state // (box_cells * width)))
    if whole:
        per_item = reduction.groups
    elif in_order(reduction):
        per_group = max(1, each * box_cells // reduction.groups)
        chunk_groups = -(-reduction.groups * over_grid[0] // max(1, over_shape[0]))
        wanted = max(1, limits.task // per_group, 4 * chunk_groups)
        group_chunk = min(group_chunk, wanted)
        per_item = min(per_item, wanted)
    per_item = -(-min(per_item, reduction.groups) // group_chunk) * group_chunk
    group_starts = range(0, reduction.groups, per_item)
    retained_starts, retained_stops = split(reduction.retained_shape, box)
    columns = len(retained_starts) * len(group_starts)
    chunks = reduction.arranged(group_chunk, box)
    made = Planned(Meeting.WHOLE, chunks, (), box, group_chunk)
    corners = list(zip(map(tuple, retained_starts.tolist()), map(tuple, retained_stops.tolist()), strict=True))
    ranges = [(start, min(start + per_item, reduction.groups)) for start in group_starts]
    # Much to read for few chunks of the result: a task for each would leave a cluster idle.
    deep = each * box_cells / len(group_starts) > 4 * limits.task
    if deep and columns < limits.columns and not whole and not sketch:
        starts, stops = blocks(over_shape, over_grid, field.raw.itemsize * box_cells, limits.task)
        slots = min(len(starts), max(2, limits.columns // columns))
        borders = chunk_borders(over_shape, over_grid)
        rows = borders[np.linspace(0, len(borders) - 1, slots + 1).astype(int)]
        cuts = [
            ((int(low), *(0,) * (len(over) - 1)), (int(high), *over_shape[1:]))
            for low, high in itertools.pairwise(rows)
            if low < high
        ]
        items = tuple(
            Item(number, *corner, groups, *cut, slot)
            for corner in corners
            for groups in ranges
            for slot, cut in enumerate(cuts)
        )
        return replace(made, meeting=Meeting.STORED, items=items, slots=len(cuts))
    zero = (0,) * len(over)
    items = tuple(Item(number, *corner, groups, zero, over_shape) for corner in corners for groups in ranges)
    return replace(made, items=items)


def chunk_borders(over_shape: tuple[int, ...], over_grid: tuple[int, ...]) -> NDArray[np.int64]:
    """Borders of the chunks along the first axis that goes, its end included."""
    return np.append(np.arange(0, over_shape[0], over_grid[0]), over_shape[0])


def in_order(reduction: Reduction) -> bool:
    """Whether groups are runs along one axis, as those of a resampling: each needs only a part of it."""
    grouping = reduction.grouping
    if grouping is None or grouping.codes.ndim != 1 or reduction.over != reduction.label_axes:
        return False
    there = grouping.codes[grouping.codes >= 0]
    return bool((np.diff(there) >= 0).all())


def _coalesced(reduction: Reduction, room: int) -> tuple[int, ...]:
    """Chunks of the dimensions that stay, put together to at most ``room`` cells."""
    return block_shape(reduction.retained_shape, reduction.retained_grid, 1, max(1, room))


def _items(number: int, reduction: Reduction, starts: NDArray[Any], stops: NDArray[Any]) -> tuple[Item, ...]:
    """An item for each block of the array, for all groups."""
    over, retained, groups = list(reduction.over), list(reduction.retained), (0, reduction.groups)
    columns = (map(tuple, some[:, axes].tolist()) for axes in (retained, over) for some in (starts, stops))
    retained_start, retained_stop, over_start, over_stop = columns
    rows = zip(retained_start, retained_stop, over_start, over_stop, strict=True)
    return tuple(Item(number, low, high, groups, first, end) for low, high, first, end in rows)
