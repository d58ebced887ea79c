"""The answer of a web server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final

#: Numbers of at most 64 bits. Python refuses to convert very long numbers.
_NUMBER: Final = re.compile("[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server after all redirects. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def etag(self) -> str | None:
        """The header ``etag``, or None if the server does not send it."""
        return self.headers.get("etag")

    @property
    def modified(self) -> float:
        """Time of the last change of the object, in Unix seconds. 0 if the server does not send it."""
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            return parsedate_to_datetime(self.headers["last-modified"]).timestamp()
        return 0.0

    @property
    def length(self) -> int | None:
        """Size of the body in bytes, also in the answer to HEAD. None if the server does not send it."""
        return _number(self.headers.get("content-length", ""))

    @property
    def start(self) -> int:
        """Position of the first byte of the body in the object."""
        unit, _, span = self.headers.get("content-range", "").partition(" ")
        is_part = self.status == 206 and unit == "bytes"
        return (_number(span.partition("-")[0]) or 0) if is_part else 0

    @property
    def size(self) -> int:
        """Size of the whole object in bytes. 0 if the server does not send it."""
        return _number(self.headers.get("content-range", "").rpartition("/")[2]) or 0


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
