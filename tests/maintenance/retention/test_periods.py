"""Periods of times: the same as a calendar computes them, in every zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.maintenance.retention import Period, periods

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [UTC, ZoneInfo("Europe/Rome"), ZoneInfo("Australia/Lord_Howe"), timezone(timedelta(hours=-9.5))]


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def calendar(moment: datetime, period: Period) -> tuple[object, ...]:
    """What a calendar on the wall says."""
    week = moment.isocalendar()
    return {
        Period.HOUR: (moment.date(), moment.hour, moment.fold),
        Period.DAY: (moment.date(),),
        Period.WEEK: (week.year, week.week),
        Period.MONTH: (moment.year, moment.month),
        Period.YEAR: (moment.year,),
    }[period]


@pytest.mark.sample(8, 8)
@pytest.mark.parametrize("zone", ZONES, ids=str)
@pytest.mark.parametrize("period", Period)
@given(
    start=st.sampled_from([datetime(2024, 3, 30, tzinfo=UTC), datetime(2024, 10, 26, tzinfo=UTC)]),
    minutes=st.lists(st.integers(0, 4 * 24 * 60), min_size=2, max_size=30),
    years=st.integers(0, 3),
)
def test_periods_are_those_of_the_calendar(
    zone: tzinfo, period: Period, start: datetime, minutes: list[int], years: int
) -> None:
    moments = sorted(start + timedelta(days=365 * years, minutes=each) for each in minutes)
    numbers = periods(np.array(list(map(microseconds, moments))), period, zone).tolist()
    labels = [calendar(moment.astimezone(zone), period) for moment in moments]
    for (one, label), (other, later) in zip(
        zip(numbers, labels, strict=True), zip(numbers[1:], labels[1:], strict=True), strict=False
    ):
        assert (one == other) == (label == later)
        assert one <= other


def test_times_outside_of_the_calendar_have_a_period() -> None:
    """Other writers may store any 64 bits."""
    times = np.array([-5, 2**62])
    for zone in ZONES:
        early, late = periods(times, Period.YEAR, zone).tolist()
        assert early < late
