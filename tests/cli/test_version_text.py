"""The texts of versions and times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from frazil.cli.target import VersionText, parse_time, parse_version
from frazil.errors import InvalidInputError

DAY = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dev", VersionText("dev")),
        ("feature/x", VersionText("feature/x")),
        ("dev~3", VersionText("dev", back=3)),
        ("dev~", VersionText("dev", back=1)),
        ("~2", VersionText(back=2)),
        ("a~2~1", VersionText("a~2", back=1)),
        ("a~b", VersionText("a~b")),
        ("a~", VersionText("a", back=1)),
        ("2026-11-01", VersionText(time=DAY)),
        ("2026-11-01~2", VersionText(time=DAY, back=2)),
        ("dev@2026-11-01T06:00Z", VersionText("dev", DAY.replace(hour=6))),
        ("me@home", VersionText("me@home")),
        ("2026-11-01b", VersionText("2026-11-01b")),
    ],
)
def test_versions(text: str, expected: VersionText) -> None:
    assert parse_version(text) == expected


@pytest.mark.parametrize("text", ["2026-11-01T06:00+02:00", "2026-11-01 04:00", "2026-11-01T04Z"])
def test_times_are_utc_unless_they_say_otherwise(text: str) -> None:
    assert parse_time(text) == DAY.replace(hour=4)


@pytest.mark.parametrize("text", ["2026-13-01", "yesterday", "2026-11-01T25:00", ""])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(InvalidInputError, match="a time must be a day such as 2026-11-01"):
        parse_time(text)
