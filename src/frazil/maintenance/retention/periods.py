"""The periods of many times: the hour, day, week, month or year of each time in a time zone.

A period is an integer. Two times have the same integer if they are in the same period, and a later period has
a larger integer. Weeks begin on Monday, as in ISO 8601.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final

import numpy as np

from frazil.format.columns import I64

_SECOND_US: Final = 1_000_000
_HOUR_US: Final = 3600 * _SECOND_US
_QUARTER_US: Final = _HOUR_US // 4
_DAY_US: Final = 24 * _HOUR_US
#: 1970-01-01 was a Thursday, three days after a Monday.
_DAYS_AFTER_MONDAY: Final = 3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The range of ``datetime`` with a tolerance of two days for zones. Other times are clipped to it.
_LAST_US: Final = (datetime(9999, 12, 29, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


class Period(StrEnum):
    """The length of a period."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


def periods(times: I64, period: Period, zone: tzinfo) -> I64:
    """Return the period of each time.

    When clocks go back one hour, the repeated hour counts as two hours.
    """
    times = np.clip(times, 0, _LAST_US)
    offsets = utc_offsets(times, zone)
    if period is Period.HOUR:
        return (times + offsets % _HOUR_US) // _HOUR_US
    days = (times + offsets) // _DAY_US
    if period is Period.DAY:
        return days
    if period is Period.WEEK:
        return (days + _DAYS_AFTER_MONDAY) // 7
    dates = days.astype("datetime64[D]")
    return dates.astype("datetime64[M]" if period is Period.MONTH else "datetime64[Y]").astype(np.int64)


def utc_offsets(times: I64, zone: tzinfo) -> I64:
    """Return the difference between local time and UTC at each time. It changes at full quarters of hours."""
    if zone is UTC:
        return np.zeros(len(times), np.int64)
    quarters, place = np.unique(times // _QUARTER_US, return_inverse=True)
    return _offsets_one_by_one(quarters * _QUARTER_US, zone)[place]


def _offsets_one_by_one(times: I64, zone: tzinfo) -> I64:
    moments = [_EPOCH + timedelta(microseconds=time) for time in times.tolist()]
    offsets = [moment.astimezone(zone).utcoffset() or timedelta(0) for moment in moments]
    return np.array([offset // timedelta(microseconds=1) for offset in offsets], np.int64)
