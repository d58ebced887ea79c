"""A driver that may die in the middle of a plan, as a program with a folder and the chunk at which to die.

It prints how many chunks each operation has computed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import xarray as xr

import cubed
import frazil
import frazil.xarray
from frazil.cubed import Executor


class Counting(cubed.Callback):
    """Counts the chunks of operations, and kills this process after some of them."""

    def __init__(self, last: int) -> None:
        self.chunks = Counter[str]()
        self.last = last

    def on_compute_start(self, event: Any) -> None:
        """Nothing to do."""

    def on_compute_end(self, event: Any) -> None:
        """Nothing to do."""

    def on_task_end(self, event: Any) -> None:
        """Count a chunk, and die with the last one."""
        self.chunks[event.name] += event.num_tasks
        if self.chunks.total() == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def main(place: str, last: str, factor: str = "1") -> None:
    folder = Path(place)
    # A store with another program's arrays under the same names must not matter: see `factor`.
    spec = cubed.Spec(
        intermediate_store=str(folder / "work"),
        allowed_mem="100MB",
        executor=Executor("threads", resume=True),
    )
    data = xr.open_dataset(
        folder / "repo",
        engine="frazil",
        chunks={},
        chunked_array_type="cubed",
        from_array_kwargs={"spec": spec},
    )
    rows = data.chunk(time=-1, lat=1, chunked_array_type="cubed") * float(factor)
    counting = Counting(int(last))
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(folder / "repo")))
    rows.mean("lat").frazil.to(
        repo, group="rows", chunkmanager_store_kwargs={"callbacks": [counting]}, message="rows"
    )
    print(json.dumps(list(counting.chunks.values())))


if __name__ == "__main__":
    main(*sys.argv[1:])
