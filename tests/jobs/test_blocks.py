"""Blocks: every element once, whole chunks, bounded."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.arguments import parse_bytes
from frazil.errors import InvalidInputError
from frazil.jobs.blocks import block_shape, blocks, cells, groups, sizes

axis = st.tuples(st.integers(0, 12), st.integers(1, 7))
orders = st.sampled_from(["C", "F"])


@given(st.lists(axis, max_size=4), st.sampled_from([1, 4, 8]), st.integers(1, 3000), orders)
def test_blocks_are_whole_chunks_of_bounded_size(
    axes: list[tuple[int, int]], itemsize: int, most: int, order: Any
) -> None:
    shape, grid = [length for length, _ in axes], [step for _, step in axes]
    starts, stops = blocks(shape, grid, itemsize, most, order)
    assert starts.shape == stops.shape == (len(starts), len(shape))
    assert starts.dtype == np.int64
    seen = np.zeros(shape, int)
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        seen[tuple(map(slice, start, stop))] += 1
    assert (seen == 1).all()
    assert (starts % np.array(grid, int) == 0).all()
    bound = max(most, itemsize * math.prod(map(min, shape, grid)))
    assert (sizes(starts, stops) * itemsize <= bound).all()


@pytest.mark.deep
@given(st.lists(axis, min_size=1, max_size=3), st.integers(1, 3000))
def test_no_axis_could_be_longer(axes: list[tuple[int, int]], most: int) -> None:
    """What grows first is as long as it can be."""
    shape, grid = [length + 1 for length, _ in axes], [step for _, step in axes]
    block = block_shape(shape, grid, 1, most)
    for axis in range(len(shape))[::-1]:
        if block[axis] < shape[axis]:
            longer = list(block)
            fewer = cells(shape, block)[axis] - 1  # blocks along this axis
            longer[axis] = -(-cells(shape, grid)[axis] // fewer) * grid[axis]  # whole cells
            assert math.prod(longer) > most
            break


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 80))
def test_groups_are_neighbours_that_fit(values: list[int], most: int) -> None:
    offsets = groups(values, most).tolist()
    assert offsets[0] == 0
    assert offsets[-1] == len(values)
    parts = [values[start:stop] for start, stop in itertools.pairwise(offsets)]
    assert all(len(part) == 1 or sum(part) <= most for part in parts)
    assert all(sum(part) + after[0] > most for part, after in itertools.pairwise(parts))


@pytest.mark.parametrize("size", ["", "MB", "-3", 0, "12 parsecs", True, None, "1e9", 0.5])
def test_what_is_no_size_is_refused(size: Any) -> None:
    with pytest.raises(InvalidInputError, match="256MB"):
        parse_bytes(size)


def test_a_million_blocks_are_columns() -> None:
    starts, stops = blocks((1000, 1000, 10), (1, 1, 10), 4, 40)
    assert len(starts) == 1_000_000
    assert int(sizes(starts, stops).sum()) == 10_000_000
