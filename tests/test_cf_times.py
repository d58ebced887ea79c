"""`frazil.cf_times`: units, calendars, and texts of times. `test_cf.py` compares the times with xarray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frazil.cf_times import TimeUnits, units_of, value_text
from frazil.errors import InvalidInputError, MissingExtraError


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"units": "days since 2000-01-01"}, TimeUnits("days since 2000-01-01", "standard")),
        ({"units": "Hours Since 1-1-1", "calendar": "360_DAY"}, TimeUnits("Hours Since 1-1-1", "360_day")),
        ({"units": "seconds", "dtype": "timedelta64[ns]"}, TimeUnits("seconds", None)),
        ({"units": "seconds"}, None),
        ({"units": "K"}, None),
        ({"units": 1}, None),
        ({}, None),
    ],
)
def test_units(attributes: dict[str, Any], expected: TimeUnits | None) -> None:
    assert units_of(attributes) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-01", "2024-03-01T00:00:00"),
        ("2024-3-1 6", "2024-03-01T06:00:00"),
        ("2024-03-01T06:30:15.25Z", "2024-03-01T06:30:15.25"),
        ("2024-03-01T06:30+02:00", "2024-03-01T04:30:00"),
        ("2024-03", "2024-03-01T00:00:00"),
        ("-0004-03-01", "-004-03-01T00:00:00"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    times = TimeUnits("", "proleptic_gregorian").parse(np.array([text, None], object), "t")
    assert [value_text(times[0]), value_text(times[1])] == [expected, "NaT"]


def test_missing_times_do_not_decide_the_calendar() -> None:
    """The reference is before the Gregorian calendar, and no time is."""
    times = TimeUnits("days since 0001-01-01", "standard").decode(
        np.array([0, 730_000]), np.array([True, False])
    )
    assert times.dtype == np.dtype("M8[us]")
    assert np.isnat(times).tolist() == [True, False]


@pytest.mark.parametrize(
    ("units", "number"),
    [("fortnights since 2000-01-01", 1), ("days since the flood", 1), ("days since 2000-01-01", 2**60)],
)
def test_times_without_a_meaning_are_refused(units: str, number: int) -> None:
    pytest.importorskip("cftime")
    with pytest.raises(InvalidInputError, match="decode=False") as error:
        TimeUnits(units, "standard").decode(np.array([number]), None)
    assert error.value.kind == "invalid-array-metadata"
    assert "--raw" in error.value.for_shell()


def test_other_calendars_need_cftime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cftime", None)
    assert TimeUnits("days since 2000-01-01", "standard").decode(np.array([1]), None).dtype.kind == "M"
    with pytest.raises(MissingExtraError, match="calendar noleap needs cftime"):
        TimeUnits("days since 2000-01-01", "noleap").decode(np.array([1]), None)
