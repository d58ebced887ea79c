"""Drivers that die in the middle of a job: run as a program, with a folder and the points at which to die.

One process for each, forked before anything was used.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zarr
from tests.jobs.tasks import counts

import frazil
from frazil.jobs.staging import StagedRound, Staging
from frazil.repository.catalog.collection_guard import Lease
from frazil.spark import Job, Target, Tasks, Threads, run_job

CONFIG = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
ROWS = 24
TASKS = ROWS // 4


def created(path: Path, spec_version: int = 2) -> frazil.Repository:
    storage = frazil.local_filesystem_storage(str(path))
    repo = frazil.Repository.create(storage, CONFIG, spec_version=spec_version)
    with repo.transaction("main", message="root") as store:
        zarr.create_group(store)
    return repo


def opened(path: Path) -> frazil.Repository:
    return frazil.Repository.open(frazil.local_filesystem_storage(str(path)), CONFIG)


def counting(repo: frazil.Repository, rows: int = ROWS, **more: Any) -> Job:
    """A job that writes 0, 1, 2, ... into an array, four rows a task, and their sum."""

    def prepare(session: frazil.Session) -> Tasks:
        zarr.create_array(session.store, name="x", shape=(rows,), chunks=(4,), dtype="i4", overwrite=True)
        y = zarr.create_array(session.store, name="y", shape=(3,), chunks=(3,), dtype="i4", overwrite=True)
        y[:] = 5  # by the driver
        return Tasks(range(0, rows, 4), shared="x")

    def finish(session: frazil.Session, values: list[Any]) -> None:
        zarr.open_array(session.store, path="x", mode="r+").attrs["sum"] = sum(values)

    return Job("count", Target(repo), prepare, counts, finish, {"rows": rows}, writes=("/x", "/y"), **more)


def left(repo: frazil.Repository) -> list[str]:
    """What jobs have left in the storage."""
    return [info.key for folder in ("staging", "leases") for info in repo.storage.list(folder)]


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_after(owner: Any, name: str, times: int = 1) -> Callable[[], None]:
    """Makes a call the last one of the process."""

    def patch() -> None:
        call, done = getattr(owner, name), []

        def last(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            done.append(1)
            if len(done) == times:
                die()
            return result

        setattr(owner, name, last)

    return patch


def dies_before(owner: Any, name: str) -> Callable[[], None]:
    return lambda: setattr(owner, name, die)


#: Where a driver dies -> how that is done, and how many tasks it has staged by then, at least.
POINTS: dict[str, tuple[Callable[[], None], int]] = {
    "plan staged": (dies_after(Staging, "_begin"), 0),
    "prepared": (dies_after(Staging, "stage_round"), 0),
    "some tasks": (dies_after(StagedRound, "put_result", 3), 3),
    "all tasks": (dies_after(StagedRound, "put_result", TASKS), TASKS),
    "merged": (dies_after(frazil.Session, "merge"), TASKS),
    "before the commit": (dies_before(frazil.Session, "commit"), TASKS),
    "committed, and not told": (dies_before(Lease, "give_back"), TASKS),
    "before cleaning": (dies_before(Staging, "clean_up"), TASKS),
}


def main(place: str, *points: str) -> None:
    for point in points:
        if os.fork() == 0:
            repo = created(Path(place) / point)
            POINTS[point][0]()
            run_job(counting(repo), Threads(2))
            os._exit(0)
        _, status = os.wait()
        print(point, os.WTERMSIG(status), sep="\t", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
