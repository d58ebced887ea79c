"""The start of a program: processor time of new processes that import a library."""

from __future__ import annotations

import resource
import subprocess
import sys

from measure import Measured

REPEATS = 7
#: What the libraries import of others, so that only their own part is measured.
BASE = "import numpy, zarr"


def start(implementation: str) -> Measured:
    """Measure the import of a library, with and without the packages of others, and of its main class."""
    out = Measured()
    alone, base = _seconds("pass"), _seconds(BASE)
    used = f"import {implementation} as library; library.Repository"
    out["import, processor s"] = _seconds(f"import {implementation}") - alone
    out["import and Repository, processor s"] = _seconds(used) - alone
    out["own part of the import, processor s"] = _seconds(f"{BASE}; import {implementation}") - base
    out["own part of Repository and store, processor s"] = (
        _seconds(f"{BASE}; {used}; library.IcechunkStore") - base
    )
    if implementation == "frazil":
        out["import frazil.spark, processor s"] = _seconds("import frazil.spark") - alone
    return out


def _seconds(program: str) -> float:
    """Return the processor time of a new process, the smallest of several."""
    times = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)
