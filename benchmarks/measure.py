"""Measurements in a process of their own: ``measure.py '[["frazil", "module.function", {"size": 9}]]'``.

Prints a line of JSON for each: what was measured, by name. Every name ends in its unit, and less is better.
A process that measures one thing shares neither caches nor memory with another, so it may be compared with
one of another implementation that ran just before it.
"""

from __future__ import annotations

import gc
import importlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Measured(dict[str, float]):
    """Values by name."""

    @contextmanager
    def seconds(self, name: str) -> Iterator[None]:
        with self._time(f"{name}, s", 1):
            yield

    @contextmanager
    def seconds_of_all(self, name: str) -> Iterator[None]:
        """By the clock, and of processors: all threads together. The latter says more on a busy machine."""
        with self.seconds(name):
            start = time.process_time()
            yield
            used = time.process_time() - start
        self[f"{name}, processor s"] = used

    @contextmanager
    def milliseconds_each(self, name: str, count: int) -> Iterator[None]:
        with self._time(f"{name}, ms", 1000 / count):
            yield

    @contextmanager
    def microseconds_each(self, name: str, count: int) -> Iterator[None]:
        with self._time(f"{name}, us", 1e6 / count):
            yield

    @contextmanager
    def _time(self, name: str, scale: float) -> Iterator[None]:
        gc.collect()
        start = time.perf_counter()
        yield
        self[name] = (time.perf_counter() - start) * scale


def peak_mib() -> float:
    """The most memory that this process has had so far."""
    # Not getrusage: what it tells a new process includes the one that started it.
    fields = Path("/proc/self/status").read_text().splitlines()
    kib = next(line.split()[1] for line in fields if line.startswith("VmHWM"))
    return int(kib) / 1024


@contextmanager
def scratch() -> Iterator[str]:
    """A directory that is gone afterwards. TMPDIR says on which file system."""
    root = tempfile.mkdtemp(prefix="bench-")
    try:
        yield root
    finally:
        shutil.rmtree(root)


def main(jobs: list[tuple[str, str, dict[str, Any]]]) -> None:
    for implementation, run, sizes in jobs:
        module, _, function = run.rpartition(".")
        found = getattr(importlib.import_module(module), function)(implementation, **sizes)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
