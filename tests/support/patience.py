"""Time limits that grow with the slowness of the machine.

A limit in a test is written for a quiet machine. ``patience`` multiplies it by the slowness of this machine,
and at least by four. The slowness is measured once for a run and passed to all child processes as
``FRAZIL_TEST_SLOWNESS``. Set that variable to a larger number, such as 100, where a machine becomes much
slower after the start of the tests.

    subprocess.run(command, timeout=patience(60))
"""

from __future__ import annotations

import hashlib
import os
import time
from functools import cache

VARIABLE = "FRAZIL_TEST_SLOWNESS"

#: Seconds of `_work` on the machine for which the limits are written: two cores, Python 3.13.
_REFERENCE = 0.0037
_ROUNDS = 30
#: A machine that is quiet at the start of a run may be busy later.
_LEAST = 4.0


def patience(seconds: float) -> float:
    """Return a limit in seconds for this machine: several times the argument."""
    return seconds * max(_LEAST, slowness())


@cache
def slowness() -> float:
    """Return how many times slower than the reference this machine is under its present load; at least 1."""
    if (given := os.environ.get(VARIABLE)) is not None:
        return max(1.0, float(given))
    measured = max(1.0, _seconds_of_work() / _REFERENCE) * max(1.0, _load())
    os.environ[VARIABLE] = f"{measured:.2f}"
    return measured


def _seconds_of_work() -> float:
    """Return the mean wall time of a round: other processes that use the processor make it longer."""
    start = time.perf_counter()
    for _ in range(_ROUNDS):
        _work()
    return (time.perf_counter() - start) / _ROUNDS


def _work() -> None:
    """Objects and a loop of Python, and some bytes for C code."""
    table = {str(number): number for number in range(20_000)}
    sum(table.values())
    hashlib.sha256(bytes(1_000_000)).digest()


def _load() -> float:
    """Return the processes that wait for a core or use one, for each core, over the last minute."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 1.0
