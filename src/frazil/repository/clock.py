"""Time and randomness, in one place: everything below asks here, so tests can replace both."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import methodcaller
from typing import Final

import numpy as np

from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES

_LAST_US: Final = 250_000_000_000_000_000  # of the year 9892: numpy knows later times than datetime
_in_utc: Callable[[datetime], datetime] = methodcaller("replace", tzinfo=UTC)


def now_us() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def elapsed_us() -> int:
    """Microseconds since some moment of this process, by a clock that nobody sets."""
    return time.monotonic_ns() // 1000


def new_object_id() -> bytes:
    return os.urandom(OBJECT_ID_BYTES)


def new_node_id() -> bytes:
    return os.urandom(NODE_ID_BYTES)


def to_datetime(us: int) -> datetime:
    """A point in time of the format, with its time zone.

    >>> to_datetime(0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    seconds, rest = divmod(us, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


def utc_text(us: int) -> str:
    """A point in time of the format, for messages. Also of times that ``datetime`` does not know.

    >>> utc_text(1_577_836_800_000_000)
    '2020-01-01T00:00:00.000000Z'
    """
    return str(np.datetime_as_string(np.datetime64(us, "us"), timezone="UTC"))


def to_datetimes(us: Sequence[int]) -> list[datetime]:
    """``to_datetime`` for many: histories are long."""
    if not us or max(us) > _LAST_US:
        return list(map(to_datetime, us))
    return list(map(_in_utc, np.array(us, "datetime64[us]").tolist()))


def from_datetime(when: datetime, name: str = "time") -> int:
    """Microseconds since 1970; ``TypeError`` for a datetime without a time zone."""
    if when.tzinfo is None:
        raise TypeError(
            f"{name}: expected a datetime with a time zone, found {when.isoformat()} without one: add "
            "tzinfo=datetime.UTC"
        )
    delta = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
