"""Writes in parallel equal writes in one go; what must not run does not start."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray
from tests.jobs import tasks

import frazil
from frazil.errors import IcechunkError, InvalidInputError
from frazil.spark import Block, Engine, Inline, plan, write_blocks

SHAPE, CHUNKS = (22, 9), (4, 5)


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    session = repo.writable_session("main")
    root = zarr.create_group(session.store)
    root.create_array("committed", shape=SHAPE, chunks=CHUNKS, dtype="float32")
    session.commit("An array")
    return repo


def blocks_of(path: str, step: int = 4) -> list[Block]:
    """Rows of ``step``, cut in two columns."""
    return [
        Block(path, (first, left), (min(first + step, SHAPE[0]), right))
        for first, (left, right) in itertools.product(range(0, SHAPE[0], step), [(0, 5), (5, 9)])
    ]


def read(repo: frazil.Repository, path: str) -> np.ndarray:
    return np.asarray(zarr.open_array(repo.readonly_session("main").store, path=path, mode="r")[...])


@pytest.mark.sample(1, 5)
@pytest.mark.parametrize("step", [4, 8, 24])
def test_many_tasks_write_what_one_would(repo: frazil.Repository, engine: Engine, step: int) -> None:
    session = repo.writable_session("main")
    root = zarr.open_group(session.store, mode="r+")
    root.create_array("new", shape=SHAPE, chunks=CHUNKS, dtype="float32")  # forks see what is not committed
    work = blocks_of("committed", step) + blocks_of("new", step)
    result = write_blocks(session, tasks.values, work, engine)
    session.commit("In parallel")

    expected = tasks.values(Block("", (0, 0), SHAPE))
    for path in ("committed", "new"):
        assert read(repo, path).tobytes() == expected.tobytes()
    assert (result.tasks, result.chunks) == (len(work), 2 * 12)
    assert result.bytes == 2 * expected.nbytes

    serial = repo.writable_session("main")
    root = zarr.open_group(serial.store, mode="r+")
    root.create_array("serial", shape=SHAPE, chunks=CHUNKS, dtype="float32")[...] = expected
    stored = (serial.chunk_type("/serial", at) for at in np.ndindex(6, 2))
    assert [session.chunk_type("/new", at) for at in np.ndindex(6, 2)] == list(stored)


def test_a_shard_is_stored_as_one_object(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    root = zarr.open_group(session.store, mode="r+")
    root.create_array("sharded", shape=SHAPE, chunks=(2, 5), shards=(4, 10), dtype="float32")
    with pytest.raises(InvalidInputError, match=r"borders of chunks of \(4, 10\)"):
        plan(session, [Block("sharded", (2, 0), (4, 9))])
    assert plan(session, [Block("sharded", (4, 0), (22, 9))]).chunks == (5,)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            [((0, 0), (8, 5)), ((4, 0), (12, 5))],
            r"in common, got committed\[0:8, 0:5\] and committed\[4:12, 0:5\]",
        ),
        ([((0, 0), (6, 9))], r"borders of chunks of \(4, 5\), got committed\[0:6, 0:9\]"),
        ([((0, 5), (22, 8))], "borders"),
        ([((0, 0), (4, 10))], r"inside of the shape \(22, 9\)"),
        ([((4, 0), (4, 5))], "must not be empty"),
        ([((-4, 0), (4, 5))], "inside"),
        ([((0,), (4,))], "2 dimensions"),
    ],
)
def test_bad_plans_are_refused_before_the_start(
    repo: frazil.Repository, blocks: list[Any], message: str
) -> None:
    session = repo.writable_session("main")
    work = [Block("committed", *corners) for corners in blocks]

    def read(block: Block) -> NDArray[Any]:
        raise AssertionError(f"{block} was read")

    with pytest.raises(InvalidInputError, match=message):
        write_blocks(session, read, work, Inline())
    assert not session.has_uncommitted_changes


def test_overlap_is_detected_in_any_position(repo: frazil.Repository) -> None:
    """Against pairs compared one by one."""
    session = repo.writable_session("main")
    random = np.random.default_rng(1)
    outcomes = set()
    for _ in range(200):
        low = random.integers(0, [6, 2], (3, 2))
        high = np.minimum(low + random.integers(1, 4, (3, 2)), [6, 2])
        stop = np.minimum(high * CHUNKS, SHAPE)
        work = [
            Block("committed", tuple(a), tuple(b))
            for a, b in zip((low * CHUNKS).tolist(), stop.tolist(), strict=True)
        ]
        overlap = any(
            (np.maximum(low[i], low[j]) < np.minimum(high[i], high[j])).all()
            for i, j in itertools.combinations(range(3), 2)
        )
        outcomes.add(overlap)
        if overlap:
            with pytest.raises(InvalidInputError, match="in common"):
                plan(session, work)
        else:
            plan(session, work)
    assert outcomes == {True, False}


@pytest.mark.sample(1)
def test_a_task_that_fails_leaves_nothing(repo: frazil.Repository, engine: Engine) -> None:
    session = repo.writable_session("main")
    with pytest.raises(IcechunkError, match="task 3 of 6 failed with ValueError: damaged file"):
        write_blocks(session, tasks.fails_in_the_middle, blocks_of("committed", 8), engine)
    assert not session.has_uncommitted_changes
    assert [commit.message for commit in repo.ancestry(branch="main")] == [
        "An array",
        "Repository initialized",
    ]
    assert not read(repo, "committed").any()


def test_values_have_the_shape_of_their_block(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    message = r"values of committed\[0:4, 0:5\] must have the shape \(4, 5\), got \(3, 5\)"
    with pytest.raises(IcechunkError, match=message):
        write_blocks(session, tasks.too_small, blocks_of("committed"), Inline())


def test_an_array_is_one_in_every_spelling_of_its_path(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    blocks = [Block("committed", (0, 0), (8, 5)), Block("/committed/", (4, 0), (8, 5))]
    with pytest.raises(InvalidInputError, match="must not have a chunk in common"):
        plan(session, blocks)


def test_rectilinear_grids_are_refused(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        zarr.create_array(session.store, name="uneven", shape=(5,), chunks=[[2, 3]], dtype="i4")
        with pytest.raises(
            InvalidInputError, match="`uneven` must have chunks of one shape, got a rectilinear grid"
        ):
            plan(session, [Block("uneven", (0,), (2,))])
