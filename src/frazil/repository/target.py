r"""The argument that names what a command works on: ``LOCATION[@VERSION][:PATH]``.

=======================================  ==============  ======================  ===========
text                                     location        version                 path
=======================================  ==============  ======================  ===========
``ice``                                  ``ice``
``ice@v1``                               ``ice``         ``v1``
``ice:era5/t``                           ``ice``                                 ``/era5/t``
``s3://bucket/ice@dev~3:/t``             ...             ``dev~3``               ``/t``
``ice@2026-11-01T12:00:/t``              ``ice``         ``2026-11-01T12:00``    ``/t``
``@main~1``                              ``.``           ``main~1``
=======================================  ==============  ======================  ===========

The first ``@`` ends the location, and the first ``:`` begins the path. ``@@`` and ``::`` are the characters
themselves, in a location or a version: ``run-12::00`` is the folder ``run-12:00``. These characters never
separate: ``://`` after a scheme, the server of an ``http`` or ``abfs`` URL, the drive in ``C:\ice`` or
``C:/ice``, and the clock of a time. The parser reads no files, so a text means the same everywhere.

The text of a version is ``[NAME][@TIME][~N]``:

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
from typing import Any, Final

from frazil.errors import ErrorKind, InvalidInputError

#: The text of a time: a day, and the time of the day with its time zone.
TIME: Final = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}(?::\d{2}(?::\d{2}(?:\.\d+)?)?)?(?:Z|[+-]\d{2}(?::?\d{2})?)?)?"

#: The beginning of a location in which ``@`` and ``:`` do not separate.
_BEGINNING: Final = re.compile(
    r"(?:https?|abfss?)://[^/]*|[A-Za-z][A-Za-z0-9+.-]+://|file:(?=/)|[A-Za-z]:(?=[\\/])", re.IGNORECASE
)
_TIME: Final = re.compile(rf"(?:(?<=@)|^){TIME}")
_LOCATION_END: Final = re.compile(r"@@|::|[@:]")
_VERSION_END: Final = re.compile(rf"::|:|(?<=@){TIME}")
#: The location without one: the current folder.
CURRENT_FOLDER: Final = "."


#: What the URLs of the file system of fsspec begin with.
PROTOCOL: Final = "frazil://"


@dataclass(frozen=True, slots=True)
class Target:
    """A repository, a version of it, and a node: what the first argument of most commands names.

    Attributes:
        location: A folder, a URL, or the name of a profile.
        version: The text of a version. None if the text has no ``@``.
        path: The path of a group or an array, with a leading slash. None if the text has no ``:``.
    """

    location: str
    version: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        beginning = _BEGINNING.match(self.location)
        end = beginning.end() if beginning else 0
        text = self.location[:end] + self.location[end:].replace("@", "@@").replace(":", "::")
        if self.version is not None:
            text += f"@{_escaped_version(self.version)}"
        if self.path is None:
            return text
        # `C:/t` would be a folder of a drive.
        return f"{text}:{self.path.removeprefix('/') if len(text) == 1 else self.path}"


def parse_target(text: str) -> Target:
    """Return the parts of a text ``LOCATION[@VERSION][:PATH]``."""
    if not text:
        raise InvalidInputError(
            "a location must not be empty. Write `.` for the current folder", ErrorKind.CANNOT_PARSE_URL
        )
    if "\0" in text:
        raise InvalidInputError(f"a target must not contain the character NUL, got {text!r}")
    beginning = _BEGINNING.match(text)
    start = beginning.end() if beginning else 0
    rest, end = _until(_LOCATION_END, text, start)
    location = (text[:start] + rest) or CURRENT_FOLDER
    version = None
    if text[end : end + 1] == "@":
        version, end = _until(_VERSION_END, text, end + 1)
        if not version:
            raise InvalidInputError(
                f"a version must follow `@`, got {text!r}. Write `@@` for the character `@` of a location"
            )
    return Target(location, version, None if end == len(text) else joined_path(text[end + 1 :]))


def _until(separators: re.Pattern[str], text: str, start: int) -> tuple[str, int]:
    """Return the text up to a separator, with doubled characters as one, and its position."""
    parts: list[str] = []
    for match in separators.finditer(text, start):
        if len(match[0]) == 1:
            return "".join((*parts, text[start : match.start()])), match.start()
        shown = match[0][0] if match[0] in ("@@", "::") else match[0]
        parts += [text[start : match.start()], shown]
        start = match.end()
    return "".join((*parts, text[start:])), len(text)


def joined_path(*paths: str | None) -> str:
    """Return the path of a node from its parts, such as the path of an address and a group below it."""
    return "/" + "/".join(part for path in paths for part in (path or "").split("/") if part)


def _escaped_version(version: str) -> str:
    """Return a version with ``::`` for each colon outside of a time."""
    time = _TIME.search(version)
    if time is None:
        return version.replace(":", "::")
    before, after = version[: time.start()], version[time.end() :]
    return before.replace(":", "::") + time[0] + _escaped_version(after)


#: The branch of a target without a version.
MAIN: Final = "main"
_VERSION: Final = re.compile(
    rf"(?P<name>.*?)(?:(?:^|@)(?P<time>{TIME}))?(?:~(?P<back>\d{{1,9}})?)?", re.DOTALL
)


def parse_version(text: str) -> tuple[str, datetime | None, int]:
    """Return the parts of the text of a version: a name (or a part of an id), a time, the steps back."""
    match = _VERSION.fullmatch(text)
    assert match is not None  # the name may be any text
    steps = int(match["back"] or 1) if "~" in text[match.end("name") :] else 0
    return match["name"] or MAIN, None if match["time"] is None else parse_time(match["time"]), steps


def parse_time(text: str) -> datetime:
    """Return the time of a text: a day, or a day and a clock, in UTC unless the text has a time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"a time must be a day such as 2026-11-01, or a day and a clock such as 2026-11-01T06:00Z, "
            f"got {text!r}"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


_PART: Final = re.compile(r"\s*(?:(-?\d+)|(-?\d*)\s*:\s*(-?\d*)(?:\s*:\s*(\d*))?|(\.\.\.))\s*")


def parse_index(text: str) -> tuple[Any, ...]:
    """Return the indices and slices of a text such as ``0,:4,::2``."""
    matches = [_PART.fullmatch(each) for each in text.split(",")]
    if any(match is None or match[4] == "0" for match in matches):
        raise InvalidInputError(f"must be indices and slices such as 0,:4,::2, got {text!r}")
    return tuple(_selector(match) for match in matches if match is not None)


def _selector(match: re.Match[str]) -> Any:
    if match[1] is not None:
        return int(match[1])
    if match[5] is not None:
        return Ellipsis
    return slice(*(int(each) if each else None for each in match.group(2, 3, 4)))
