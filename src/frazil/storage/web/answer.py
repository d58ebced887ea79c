"""What a web server answered, and the error for no answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final

#: Numbers of 64 bits: Python refuses to read very long ones.
_NUMBER: Final = re.compile("[0-9]{1,19}")


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
    def length(self) -> int | None:
        """Bytes of the body, also of the one that HEAD leaves out; None if the server does not say."""
        return _number(self.headers.get("content-length", ""))

    @property
    def start(self) -> int:
        """Where the body begins in the object."""
        unit, _, span = self.headers.get("content-range", "").partition(" ")
        is_part = self.status == 206 and unit == "bytes"
        return (_number(span.partition("-")[0]) or 0) if is_part else 0

    @property
    def size(self) -> int:
        """Bytes of the object, of which the answer may hold a part; 0 if the server does not say."""
        return _number(self.headers.get("content-range", "").rpartition("/")[2]) or 0


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
