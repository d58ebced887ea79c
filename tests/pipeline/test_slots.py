"""The tasks of operations fill the slots of an engine: simulations of the plans of real jobs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.pipeline.operations import CALLS, GRID
from tests.pipeline.slots import empty_array, simulated

import frazil.pipeline as ops
from frazil.jobs.blocks import even_groups, halved, split_boxes

#: 181 MB, and about 10 GB, of float32.
SMALL, LARGE = (730, 180, 344), (2408, 721, 1440)
COORDINATES: dict[str, Any] = {"time": -1, "lat": 10, "lon": 10}
OPERATIONS: dict[str, Any] = {
    "coarsen": partial(ops.coarsen, factors={"lat": 2, "lon": 2}),
    "rechunk": partial(ops.rechunk, chunks=COORDINATES),
    "pyramid": partial(ops.pyramid, factors={"lat": 2, "lon": 2}, levels=2),
    "regrid": partial(ops.regrid, target_grid=GRID),
    "map_blocks": lambda repo, paths, **options: ops.map_blocks(np.negative, repo, paths, **options),
    "mean of planes": partial(ops.mean, dims=["lat", "lon"]),
}


@pytest.mark.parametrize("slots", [2, 16])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_small_array_has_a_task_for_each_slot(name: str, slots: int) -> None:
    found = simulated(OPERATIONS[name], empty_array(SMALL, (1, 180, 344)), slots)
    assert min(found.tasks) >= slots, found
    assert sum(found.tasks) <= 2 * max(32, 2 * slots) + 8, found


@pytest.mark.parametrize("name", ["coarsen", "rechunk", "pyramid", "regrid", "map_blocks"])
def test_a_small_array_fills_many_slots(name: str) -> None:
    """181 MB are 2.8 MB for each slot: less than other tasks have."""
    assert min(simulated(OPERATIONS[name], empty_array(SMALL, (1, 180, 344)), 64).tasks) >= 64


@pytest.mark.parametrize(("name", "most"), [("resample", 31), ("climatology", 12), ("mean", 12)])
def test_the_chunks_of_states_and_results_bound_the_tasks(name: str, most: int) -> None:
    """A day is a chunk of the result of `resample`. The states of `mean` are of 64 steps."""
    function, arguments, options = CALLS[name]
    call = lambda repo, paths, **more: function(repo, paths, *arguments, **options, **more)  # noqa: E731
    assert simulated(call, empty_array(SMALL, (1, 180, 344)), 64).tasks[0] == most


#: Shapes, chunks before and after, and the least share of the time in which the slots work.
RECHUNKS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], float]] = {
    "steps to series": (LARGE, (1, 721, 1440), (2408, 10, 10), 0.95),
    "series to steps": (LARGE, (2408, 10, 10), (1, 721, 1440), 0.95),
    "steps to wide series": (LARGE, (1, 721, 1440), (2408, 37, 36), 0.95),
    "days to series": ((8760, 410, 700), (24, 410, 700), (8760, 10, 10), 0.92),
    "global days to a year": ((8760, 721, 1440), (24, 721, 1440), (8760, 10, 10), 0.9),
    "tiles to series": ((8760, 410, 700), (24, 100, 100), (8760, 10, 10), 0.95),
    "steps to blocks of a year": (LARGE, (1, 721, 1440), (365, 91, 180), 0.9),
    "tiles to large series": (LARGE, (24, 103, 144), (2408, 10, 10), 0.94),
    "tiles to blocks": (LARGE, (24, 103, 144), (100, 50, 50), 0.89),
    # No block is a multiple of both chunks.
    "cubes": ((1360, 1360, 1360), (100, 100, 100), (64, 64, 64), 0.83),
    # A day is one chunk of the result, or read at once. There are 101 days.
    "series to days": (LARGE, (2408, 10, 10), (24, 721, 1440), 0.82),
    "days to large series": (LARGE, (24, 721, 1440), (2408, 10, 10), 0.82),
    "steps to tiles": (LARGE, (1, 721, 1440), (24, 103, 144), 0.7),
}


@pytest.mark.parametrize("name", RECHUNKS)
def test_a_rechunk_keeps_a_cluster_busy(name: str) -> None:
    shape, before, after, busy = RECHUNKS[name]
    found = simulated(partial(ops.rechunk, chunks=after), empty_array(shape, before), 100)
    assert found.busy >= busy, found
    assert found.moved <= 4.2 * 4 * np.prod(shape), found  # two stages, and nothing is read twice


@pytest.mark.parametrize("name", ["coarsen", "pyramid"])
@pytest.mark.parametrize("chunks", [(1, 721, 1440), (24, 103, 144)])
def test_results_on_coarser_grids_keep_a_cluster_busy(name: str, chunks: tuple[int, ...]) -> None:
    options: dict[str, Any] = {"boundary": "trim"} if name == "coarsen" else {}
    assert simulated(partial(OPERATIONS[name], **options), empty_array(LARGE, chunks), 100).busy > 0.88


def test_a_mean_of_planes_is_divided_along_the_other_axis() -> None:
    """Without that, a task reads all steps of a row of chunks: 1.4 GB."""
    found = simulated(OPERATIONS["mean of planes"], empty_array(LARGE, (24, 103, 144)), 100)
    assert (found.tasks[0], found.largest < 1e8) == (200, True), found


def test_the_longest_tasks_are_first() -> None:
    found = simulated(OPERATIONS["coarsen"], empty_array((100, 180, 344), (7, 100, 200)), 16)
    assert found.phases[0][0] == max(found.phases[0])
    assert found.phases[0][-1] == min(found.phases[0]) < max(found.phases[0])


def test_blocks_along_an_axis_have_about_one_length() -> None:
    low, high = np.array([[0, 0], [64, 0]]), np.array([[22 * 64 - 8, 10], [128, 10]])
    starts, stops = split_boxes(low, high, (6 * 64, 10), (64, 1))
    lengths = (stops - starts)[:, 0].tolist()
    assert lengths == [5 * 64, 6 * 64, 5 * 64, 6 * 64 - 8, 64]
    assert starts[1:4, 0].tolist() == stops[:3, 0].tolist()
    assert (starts[:, 0] % 64 == 0).all()


@pytest.mark.parametrize("count", [1, 3, 7, 20, 100])
def test_groups_have_about_one_size(count: int) -> None:
    sizes = np.random.default_rng(count).integers(1, 10, 20)
    offsets = even_groups(sizes, count)
    assert (offsets[0], offsets[-1]) == (0, 20)
    assert len(offsets) - 1 <= count
    assert np.add.reduceat(sizes, offsets[:-1]).max() <= sizes.sum() / count + sizes.max()


def test_a_block_is_halved_until_there_are_enough() -> None:
    assert halved((8, 12), (2, 3), (8, 12), 1) == (8, 12)
    assert halved((8, 12), (2, 3), (8, 12), 3) == (4, 6)
    assert halved((8, 12), (2, 3), (8, 12), 99) == (2, 3)
    assert halved((), (), (), 9) == ()
