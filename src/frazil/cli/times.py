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


TIME_AGO: Final = TimeAgo()
