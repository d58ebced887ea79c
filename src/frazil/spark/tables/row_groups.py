"""The units of a layout in groups: one group for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.spark.tables.write_layout import Layout


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which task writes which unit.

    ``ranks``    for each dimension, the number of each unit among those with rows; -1 for a unit without
    ``counts``   for each dimension, the number of units with rows
    ``groups``   the number of tasks
    """

    layout: Layout
    ranks: tuple[NDArray[np.int64], ...]
    counts: tuple[int, ...]
    groups: int

    @staticmethod
    def of(layout: Layout, touched: Sequence[NDArray[np.int64]], groups: int) -> Grouping:
        """Return a grouping of the units at ``touched``, positions along each dimension, and of the edges."""
        ranks = []
        for axis, (positions, step, count) in enumerate(zip(touched, layout.unit, layout.units, strict=True)):
            rank = np.full(count, -1, np.int64)
            units = np.union1d(positions // step, layout.edges[:, axis])
            rank[units] = np.arange(len(units))
            ranks.append(rank)
        counts = tuple(int(rank.max(initial=-1)) + 1 for rank in ranks)
        return Grouping(
            layout, tuple(ranks), counts, max(1, min(groups, int(np.prod(counts, dtype=np.int64))))
        )

    @property
    def total(self) -> int:
        """Number of units."""
        return int(np.prod(self.counts, dtype=np.int64))

    def group(self, rows: pa.Table) -> NDArray[np.int32]:
        """Return the task of each row."""
        positions = self.layout.require_positions(rows)
        units = [at // step for at, step in zip(positions, self.layout.unit, strict=True)]
        return self._groups_of(units, len(rows))

    def edges(self, group: int) -> NDArray[np.int64]:
        """Return those edges (k, ndim) of the layout that a task writes."""
        every = self.layout.edges
        return np.asarray(every[self._groups_of(list(every.T), len(every)) == group])

    def _groups_of(self, units: Sequence[NDArray[np.int64]], count: int) -> NDArray[np.int32]:
        """Return the task of each of ``count`` units, which have a coordinate along each dimension."""
        number = np.zeros(count, np.int64)
        for at, rank, size in zip(units, self.ranks, self.counts, strict=True):
            number = number * size + rank[at]
        return (number * self.groups // max(self.total, 1)).astype(np.int32)
