"""Times of the format. The clock comes from ``frazil.host``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil import host
from frazil.errors import FormatError
from frazil.remedies import call

_LAST_US: Final = 250_000_000_000_000_000  # in the year 9892: numpy represents later times than datetime
_MOST_US: Final = 1 << 62  # numpy represents times up to 1 << 63, and adds a time zone
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The unit of all times in a repository: ``duration // MICROSECOND`` is a number of microseconds.
MICROSECOND: Final = timedelta(microseconds=1)
DAY_US: Final = timedelta(days=1) // MICROSECOND


#: Returns the present time in microseconds since 1970, UTC.
now_us: Final = host.time_us
#: Returns microseconds since some moment of this process, by a monotonic clock.
elapsed_us: Final = host.monotonic_us


def to_datetime(us: int) -> datetime:
    """Return a time of the format as a datetime with a time zone.

    Raises ``FormatError`` for a time that ``datetime`` cannot represent: only damaged files have such times.

    >>> to_datetime(0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    seconds, rest = divmod(us, 1_000_000)
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
    except (ValueError, OverflowError, OSError):
        raise FormatError(
            f"a time must be before the year 10000, got {us} microseconds since 1970. Its file is damaged"
        ).with_remedy("`{}` names damaged files", call("verify")) from None


def utc_text(us: int) -> str:
    """Return a time of the format as text for messages, also of times that ``datetime`` cannot represent.

    A time that does not fit in 63 bits is a number of microseconds.

    >>> utc_text(1_577_836_800_000_000)
    '2020-01-01T00:00:00.000000Z'
    """
    if not -_MOST_US < us < _MOST_US:
        return f"{us} microseconds since 1970"
    return str(np.datetime_as_string(np.datetime64(us, "us"), timezone="UTC"))


def to_datetimes(us: Sequence[int] | NDArray[np.uint64]) -> list[datetime]:
    """Return the datetimes of many times, faster than ``to_datetime`` in a loop."""
    times = np.asarray(us, np.uint64)
    if not len(times) or int(times.max()) > _LAST_US:
        return list(map(to_datetime, times.tolist()))
    return list(map(_EPOCH.__add__, times.astype("timedelta64[us]").tolist()))


def from_datetime(when: datetime, name: str = "time") -> int:
    """Return a datetime as microseconds since 1970."""
    if when.tzinfo is None:
        raise TypeError(
            f"{name} must be a datetime with a time zone, got {when.isoformat()}. Add tzinfo=datetime.UTC"
        )
    delta = when - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
