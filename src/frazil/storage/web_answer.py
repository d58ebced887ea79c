"""What a web server answered, and the error for no answer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime


class Unreachable(OSError):
    """No answer came, or none that is of use."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered, redirects followed. Names of headers are in small letters.

    >>> Answer(206, {"content-range": "bytes 8-15/99"}, bytes(8)).start
    8
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def etag(self) -> str | None:
        return self.headers.get("etag")

    @property
    def modified(self) -> float:
        """When the object was changed, as Unix time in seconds; 0 if the server does not send a time."""
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            return parsedate_to_datetime(self.headers["last-modified"]).timestamp()
        return 0.0

    @property
    def start(self) -> int:
        """Where the body begins in the object."""
        unit, _, rest = self.headers.get("content-range", "").partition(" ")
        first = rest.partition("-")[0]
        return int(first) if self.status == 206 and unit == "bytes" and first.isdigit() else 0
