"""Runs measurements in a new process: ``measure.py '[["frazil", "module.function", {"size": 9}]]'``.

Prints one line of JSON for each measurement, with the values by name. Every name ends in its unit, and less
is better. A process shares neither caches nor memory with another process. So its values can be compared with
the values of another implementation that ran just before it.
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
        """Measure wall time, and processor time of all threads, which is more reliable on a busy machine."""
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


def peak_mib(process: str = "self") -> float:
    """Return the largest memory of a process so far, of this one by default; 0 if it has ended."""
    # Not getrusage: in a new process, its value includes the parent process.
    try:
        fields = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    kib = next((line.split()[1] for line in fields if line.startswith("VmHWM")), "0")
    return int(kib) / 1024


@contextmanager
def scratch() -> Iterator[str]:
    """Return a temporary directory. TMPDIR chooses the file system."""
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
