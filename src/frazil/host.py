"""The time, the pauses and the random numbers of this host. A test can replace all of them at once.

The transactional core asks only this module, so a test can run several clients with clocks that differ,
without real pauses, and with the same random numbers each time.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class Host:
    """The real host. A subclass for tests overrides the methods."""

    def time_us(self) -> int:
        """Return the clock of the host, in microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Return microseconds since some moment. Nobody can set this clock."""
        return time.monotonic_ns() // 1000

    #: Stops the calling thread for a number of seconds.
    pause: Final = staticmethod(time.sleep)
    #: Returns a number of random bytes, which no other host draws.
    random_bytes: Final = staticmethod(os.urandom)
    #: Returns a random number in ``low <= x <= high``.
    random_between: Final = staticmethod(random.uniform)


_host = Host()


@contextmanager
def replace_host(host: Host) -> Iterator[None]:
    """Let all threads of this process use another host during a block. For tests."""
    global _host
    before = _host
    _host = host
    try:
        yield
    finally:
        _host = before


def time_us() -> int:
    """Return the clock of the host, in microseconds since 1970, UTC."""
    return _host.time_us()


def monotonic_us() -> int:
    """Return microseconds since some moment, by a clock that nobody can set."""
    return _host.monotonic_us()


def monotonic_seconds() -> float:
    """Return seconds since some moment, by the clock of ``monotonic_us``."""
    return _host.monotonic_us() / 1_000_000


def pause(seconds: float) -> None:
    """Stop the calling thread for this many seconds."""
    _host.pause(seconds)


def random_bytes(count: int) -> bytes:
    """Return this many random bytes."""
    return _host.random_bytes(count)


def random_between(low: float, high: float) -> float:
    """Return a random number in ``low <= x <= high``."""
    return _host.random_between(low, high)
