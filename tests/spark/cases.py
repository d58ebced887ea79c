"""What is done at every place where Spark runs: see ``driver``. A line in ``CASES`` for each operation.

The functions run in the driver, and the checks in the test: all of them are functions of a module.
"""

from __future__ import annotations

import numpy as np
import zarr
from tests.spark import tasks
from tests.spark.driver import Case, Site

import frazil
from frazil.spark import Block, Job, Target, Tasks, run_job, write_blocks

ROWS = 32


def _prepare(session: frazil.Session) -> Tasks:
    zarr.create_array(session.store, name="x", shape=(ROWS,), chunks=(4,), dtype="i4", overwrite=True)
    return Tasks(range(0, ROWS, 4), shared="x")


def a_job(repo: frazil.Repository, site: Site) -> tuple[str, bool]:
    job = Job("count", Target(repo), _prepare, tasks.counts, writes=("/x",))
    first = run_job(job, site.engine)
    again = run_job(job, site.engine)
    return first.snapshot_id, again.done_before


def is_done_once(repo: frazil.Repository, result: tuple[str, bool]) -> None:
    assert result == (repo.lookup_branch("main"), True)
    found = zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")[:]
    assert found.tolist() == list(range(ROWS))


SHAPE, CHUNKS = (24, 600), (4, 600)  # chunks that are not inline


def blocks(repo: frazil.Repository, site: Site) -> int:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="y", shape=SHAPE, chunks=CHUNKS, dtype="f4")
    work = [Block("y", (row, 0), (row + 4, SHAPE[1])) for row in range(0, SHAPE[0], 4)]
    written = write_blocks(session, tasks.values, work, site.engine)
    session.commit("In parallel")
    return written.chunks


def are_written(repo: frazil.Repository, chunks: int) -> None:
    assert chunks == 6
    found = zarr.open_array(repo.readonly_session("main").store, path="y", mode="r")[...]
    np.testing.assert_array_equal(found, tasks.values(Block("", (0, 0), SHAPE)))


CASES = (
    Case("job", a_job, is_done_once),
    Case("write_blocks", blocks, are_written),
)
