"""Plans of rechunks: every element once, within the memory, and never much more read than there is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import InvalidInputError
from frazil.jobs.blocks import split
from frazil.pipeline.transform.rechunking import covered, rechunk_plan

axis = st.tuples(st.integers(0, 60), st.integers(1, 25), st.integers(1, 25))


@given(st.lists(axis, max_size=4), st.integers(1, 20), st.sampled_from([1, 4, 8]))
def test_plans_keep_their_promises(axes: list[Any], times: int, itemsize: int) -> None:
    shape, read, write = (tuple(each[n] for each in axes) for n in range(3))
    cells = [tuple(max(min(c, n), 1) for c, n in zip(grid, shape, strict=True)) for grid in (read, write)]
    least = itemsize * (math.prod(cells[0]) + 2 * math.prod(cells[1]))
    plan = rechunk_plan(shape, read, write, itemsize, least * times)
    assert plan.stages[-1].write == cells[1]
    assert plan.stages[0].read == cells[0]
    total = itemsize * math.prod(shape)
    if times >= 2:  # with the very least there is one way only
        assert plan.bytes_read <= 6 * total
    for stage in plan.stages:  # a task holds a block, a cell that it decodes, and one that it encodes
        assert itemsize * sum(map(math.prod, (stage.block, stage.read, stage.write))) <= least * times
        assert all(b % w == 0 or b == n for b, w, n in zip(stage.block, stage.write, shape, strict=True))
        starts, stops = split(stage.shape, stage.block)
        assert int(np.prod(stops - starts, axis=1).sum()) == math.prod(shape)


def test_two_stages_where_a_block_does_not_fit() -> None:
    plan = rechunk_plan((1000, 600, 600), (1, 600, 600), (1000, 6, 6), 4, 64_000_000)
    assert plan.intermediate is not None
    assert plan.bytes_read == 2 * 4 * 1000 * 600 * 600


def test_a_long_axis_is_sampled() -> None:
    """An axis of many cells is looked at in samples."""
    plan = rechunk_plan((10**9,), (999,), (1000,), 4, 64_000_000)
    assert plan.bytes_read <= 4.01e9
    assert covered(10**9, np.array([1]), 1).tolist() == [10**9]


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least 1200 bytes"):
        rechunk_plan((100, 100), (10, 10), (10, 10), 4, 1199)
