"""The start of a program: processor time of new processes that import a library."""

from __future__ import annotations

import resource
import subprocess
import sys

from measure import Measured

REPEATS = 7
#: What the library needs in any case, which each program imports first.
BASE = "import numpy, zarr"


def start(implementation: str) -> Measured:
    """Measure the import of a library, with its packages and alone, and of its most used class."""
    out = Measured()
    alone = _seconds("pass")
    out["import, processor s"] = _seconds(f"import {implementation}") - alone
    used = f"import {implementation} as library; library.Repository"
    out["import and Repository, processor s"] = _seconds(used) - alone
    out["own part, processor s"] = _seconds(f"{BASE}; {used}; library.IcechunkStore") - _seconds(BASE)
    return out


def _seconds(program: str) -> float:
    """Return the processor time of a new process, the median of several."""
    times = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return sorted(times)[REPEATS // 2]
