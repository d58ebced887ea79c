"""Times on the command line: a moment such as ``2026-11-01``, or an age such as ``7d``."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final

import click

from frazil.cli.version_text import parse_time
from frazil.errors import InvalidInputError
from frazil.repository.clock import now_us, to_datetime

_AGE: Final = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class TimeAgo(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """The type of a moment: ``2026-11-01``, ``2026-11-01T06:00Z``, or ``7d`` for seven days ago."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the moment with a time zone; a wrong text is wrong usage."""
        if isinstance(value, datetime):
            return value
        age = _AGE.fullmatch(value)
        try:
            if age is not None:
                return to_datetime(now_us()) - timedelta(**{_UNITS[age[2]]: int(age[1])})
            return parse_time(value)
        except (InvalidInputError, OverflowError) as error:
            self.fail(f"{error}. An age such as 12h, 7d or 2w is a time too", param, ctx)


class State(TimeAgo):
    """The type of a state of the repository: a moment, or ``~N`` for the state before N operations."""

    name = "state"

    def convert(  # type: ignore[override]
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | int:
        """Return the moment, or the number of operations; a wrong text is wrong usage."""
        if isinstance(value, str) and value[:1] == "~" and (value[1:] or "1").isdecimal():
            return int(value[1:] or 1)
        return super().convert(value, param, ctx)


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """The type of a duration: ``30s``, ``5m``, ``12h``, ``7d``, ``2w``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the duration; a wrong text is wrong usage."""
        if isinstance(value, timedelta):
            return value
        match = _AGE.fullmatch(value)
        if match is None:
            self.fail(f"must be a number with a unit, such as 30s, 5m or 12h, got {value!r}", param, ctx)
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


DURATION: Final = Duration()
STATE: Final = State()
TIME_AGO: Final = TimeAgo()
