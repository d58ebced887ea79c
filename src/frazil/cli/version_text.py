"""The text of a version, and the snapshot that it means: ``[NAME][@TIME][~N]``.

==========================  =========================================================================
``dev``, ``v1``, ``1CECH``  a branch, a tag, or the first characters of a snapshot id
``2026-11-01``              the newest version of ``main`` that is not younger; times are UTC
``dev@2026-11-01T06:00``    the same, of another branch or tag
``dev~3``                   the third ancestor; ``~3`` is ``main~3``
==========================  =========================================================================

A branch or tag with exactly this name comes first. So a branch ``2026-11-01`` is not a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from frazil.cli.target import TIME
from frazil.errors import ErrorKind, InvalidInputError

MAIN: Final = "main"
_VERSION: Final = re.compile(
    rf"(?P<name>.*?)(?:(?:^|@)(?P<time>{TIME}))?(?:~(?P<back>\d{{1,9}})?)?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class VersionText:
    """The parts of the text of a version.

    Attributes:
        name: The name of a branch or tag, or the first characters of an id.
        time: A time with a time zone. None without one.
        back: The number of steps from the version to its ancestor.
    """

    name: str = MAIN
    time: datetime | None = None
    back: int = 0


def parse_version(text: str) -> VersionText:
    """Return the parts of the text of a version."""
    match = _VERSION.fullmatch(text)
    assert match is not None  # the name may be any text
    back = match["back"]
    steps = 0 if "~" not in text[match.end("name") :] else int(back or 1)
    time = None if match["time"] is None else parse_time(match["time"])
    return VersionText(match["name"] or MAIN, time, steps)


def parse_time(text: str) -> datetime:
    """Return the time of a text: a day, or a day and a clock, in UTC unless the text has a time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"a time must be a day such as 2026-11-01, or a day and a clock such as 2026-11-01T06:00Z, "
            f"got {text!r}",
            ErrorKind.INVALID_ARGUMENT,
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
