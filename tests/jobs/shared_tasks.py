"""Programs of the tests of shared jobs: one task, or one commit, of the job that is pickled in a file."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from pathlib import Path

import zarr
from tests.support.patience import patience

from frazil.jobs import SharedJob


def task(folder: Path, number: int, *marks: str) -> None:
    """Write two elements. With marks, wait for them, or die, before the end of the task."""
    job: SharedJob = pickle.loads((folder / "job").read_bytes())
    if marks[:1] == ("unless done",) and job.has_result(number):
        return
    with job.task(number) as session:
        zarr.open_array(session.store, path="t", mode="r+")[2 * number : 2 * number + 2] = number + 1
        zarr.open_array(session.store, path="host", mode="r+")[number] = os.getpid()
        if "dies" in marks:
            session.workspace.writer.flush()  # its chunks are durable, and garbage
            os.kill(os.getpid(), signal.SIGKILL)
        meet(folder, [mark for mark in marks if mark.startswith("meets ")])


def commit(folder: Path, number: int, *marks: str) -> None:
    """Commit, at the same time as others, and print the snapshot."""
    job: SharedJob = pickle.loads((folder / "job").read_bytes())
    meet(folder, list(marks))
    print(job.commit("all tasks").snapshot_id)


def meet(folder: Path, marks: list[str]) -> None:
    """Wait until another process is here, too."""
    for mark in marks:
        (folder / f"{mark} {os.getpid()}").touch()
        end = time.monotonic() + patience(60)
        while len(list(folder.glob(f"{mark} *"))) < 2:
            assert time.monotonic() < end, "the other process did not come"
            time.sleep(0.01)


if __name__ == "__main__":
    name, place, index, *more = sys.argv[1:]
    {"task": task, "commit": commit}[name](Path(place), int(index), *more)
