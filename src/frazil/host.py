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

from frazil.errors import ErrorKind, IcechunkError


class Host:
    """The real host. A subclass for tests overrides the methods."""

    def time_us(self) -> int:
        """Return the clock of the host, in microseconds since 1970, UTC."""
        try:
            return time.time_ns() // 1000
        except OverflowError:  # Python has 63 bits for nanoseconds
            return _LATEST_US

    def monotonic_us(self) -> int:
        """Return microseconds since some moment. Nobody can set this clock."""
        return time.monotonic_ns() // 1000

    def pause(self, seconds: float) -> None:
        """Stop the calling thread for a number of seconds."""
        time.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        """Return a number of random bytes, which no other host draws."""
        return os.urandom(count)

    def random_between(self, low: float, high: float) -> float:
        """Return a random number in ``low <= x <= high``."""
        return random.uniform(low, high)


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


#: A time after those that Python and the format can represent.
_LATEST_US: Final = 250_000_000_000_000_000


def time_us() -> int:
    """Return the clock of the host, in microseconds since 1970, UTC.

    Raises ``IcechunkError`` (``not-allowed``) if the clock is at a time that nothing can store.
    """
    now = _host.time_us()
    if now >= _LATEST_US:
        raise IcechunkError(
            "the clock of this host is after the latest time that Python or the format can represent: Python "
            "reads clocks up to the year 2262. Set the clock to the present time, and repeat the operation",
            ErrorKind.NOT_ALLOWED,
        )
    return now


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
