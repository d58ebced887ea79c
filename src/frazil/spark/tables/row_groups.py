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
        """Return a grouping of the units at ``touched``: positions along each dimension."""
        ranks = []
        for positions, step, count in zip(touched, layout.unit, layout.units, strict=True):
            rank = np.full(count, -1, np.int64)
            units = np.unique(positions // step)
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
        number = np.zeros(len(rows), np.int64)
        for at, rank, step, count in zip(positions, self.ranks, self.layout.unit, self.counts, strict=True):
            number = number * count + rank[at // step]
        return (number * self.groups // max(self.total, 1)).astype(np.int32)

    def units(self, group: int) -> NDArray[np.int64]:
        """Return the units (k, ndim) of a task."""
        if not self.counts:
            return np.zeros((1, 0), np.int64)
        first, last = (-(-self.total * each // self.groups) for each in (group, group + 1))
        ranks = np.unravel_index(np.arange(first, last), self.counts)
        chosen = [np.flatnonzero(rank >= 0)[at] for rank, at in zip(self.ranks, ranks, strict=True)]
        return np.stack(chosen, axis=1)
