"""The values that describe a reduction: an array, the reduced dimensions, the groups, and the statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.reductions.fields import Field
from frazil.pipeline.reductions.groups import Grouping
from frazil.pipeline.reductions.partials import Kernel, Values
from frazil.pipeline.reductions.quantiles import BYTES_PER_K, Exact, Sketch


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
