"""Many writers, one commit: threads, processes, Dask, Spark.

Run it:  python examples/how_to/parallel_writes.py          (add `spark` to use Spark, which needs Java)

Workers that write parts of the same chunk would overwrite each other, so divide the work along chunk
boundaries. Frazil checks this: if two workers wrote the same chunk, the merge raises an error.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import xarray as xr
import zarr

import frazil
from frazil.xarray import to_icechunk

STEPS, CHUNK = 64, 8
PARTS = [slice(start, start + CHUNK) for start in range(0, STEPS, CHUNK)]


def compute(part: slice) -> np.ndarray:
    """Stand for an expensive computation."""
    return np.arange(part.start, part.stop)[:, None] * np.ones(100)


def write(session: frazil.Session, part: slice) -> None:
    zarr.open_array(session.store, path="a", mode="r+")[part] = compute(part)


def in_a_process(fork: bytes, part: slice) -> bytes:
    """The worker: receive a fork as bytes, write one part, return the fork."""
    session = pickle.loads(fork)
    write(session, part)
    return pickle.dumps(session)


def check(repo: frazil.Repository, who: str) -> None:
    values = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:]
    tip = next(iter(repo.ancestry(branch="main")))
    print(f"{who:10} {np.array_equal(values, compute(slice(0, STEPS)))}  {tip.message}")


def main(folder: Path, with_spark: bool) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(folder / "repo")))
    with repo.transaction("main", message="An empty array") as store:
        zarr.create_array(store, name="a", shape=(STEPS, 100), chunks=(CHUNK, 100), dtype="f8")

    if with_spark:
        by_spark(repo)
        return

    # Threads share a session.
    session = repo.writable_session("main")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda part: write(session, part), PARTS))
    session.commit("By threads")
    check(repo, "threads")

    # Processes, on this machine or others, get forks of a session. The session merges the returned forks.
    session = repo.writable_session("main")
    fork = pickle.dumps(session.fork())
    # With fork(), a child process would inherit the threads of the parent in a broken state. So use spawn.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(in_a_process, [fork] * len(PARTS), PARTS))
    session.merge(*map(pickle.loads, done))
    session.commit("By processes")
    check(repo, "processes")

    # If two workers wrote the same chunk, merge raises an error and merges nothing.
    session = repo.writable_session("main")
    one, two = session.fork(), session.fork()
    zarr.open_array(one.store, path="a")[:4] = -1  # half of the first chunk
    zarr.open_array(two.store, path="a")[4:8] = -2  # the other half
    try:
        session.merge(one, two)
    except frazil.SessionStateError as error:
        print("refused:", error.kind)

    # With Dask, to_icechunk makes the forks: one task for each chunk of Dask, and one fork for each task.
    session = repo.writable_session("main")
    parts = [dask.array.from_array(compute(part)) for part in PARTS]  # type: ignore[no-untyped-call]
    lazy = dask.array.concatenate(parts)  # type: ignore[no-untyped-call]
    to_icechunk(xr.Dataset({"a": (("t", "x"), lazy)}), session, mode="w")
    session.commit("By Dask, through xarray")
    check(repo, "dask")


def read_block(block: Any) -> np.ndarray:
    return compute(block.region[0])


def by_spark(repo: frazil.Repository) -> None:
    """Send a fork with the tasks of Spark. Each task returns only its change set, which is small."""
    from frazil.spark import Block, OnSpark, get_spark, write_blocks

    session = repo.writable_session("main")
    blocks = [Block("a", (part.start, 0), (part.stop, 100)) for part in PARTS]
    spark = get_spark()
    try:
        written = write_blocks(session, read_block, blocks, OnSpark(spark))
    finally:
        spark.stop()
    session.commit(f"By {written.tasks} Spark tasks")
    check(repo, "spark")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory), "spark" in sys.argv)
