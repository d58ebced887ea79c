"""Files on web servers that virtual chunks refer to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, override
from urllib.parse import unquote, urlsplit

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.foreign.base import (
    ForeignObjects,
    ForeignRange,
    check_segments,
    fetch_errors,
    outside_prefix,
)
from frazil.storage.option_names import shown_url
from frazil.storage.traffic import TRAFFIC
from frazil.storage.web.client import WebClient
from frazil.storage.web.failures import reason_of_status

if TYPE_CHECKING:
    from collections.abc import Buffer

    from frazil.storage.web.answer import Answer


#: The statuses of a server that does not have an object, or not this range of it.
_ABSENT: Final = frozenset({404, 410, 416})


@dataclass(slots=True)
class ForeignWeb(ForeignObjects):
    """Files on web servers. Redirects to other servers are refused: see ``frazil.storage.web.client``."""

    url_prefix: str
    client: WebClient

    @override
    def _read(self, byte_range: ForeignRange) -> Buffer:
        url, start, stop = byte_range.url, byte_range.start, byte_range.stop
        self._check(url)
        if byte_range.is_empty:
            return b""
        with fetch_errors(url):
            headers = {"Range": f"bytes={start}-{stop - 1}"}
            answer = self.client.request("GET", url, headers, stop - start)
            if answer.status == 200:
                raise OSError("the server does not support range requests: its status must be 206, got 200")
            _require_status(answer, 206, url)
            byte_range.check_object(answer.etag, int(answer.modified))
            if answer.start != start or len(answer.body) != stop - start:
                raise byte_range.too_short(answer.start + len(answer.body))
            return TRAFFIC.count_read(answer.body)

    @override
    async def _read_async(self, byte_range: ForeignRange) -> Buffer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.client.thread_pool(), self._read, byte_range)

    @override
    def size(self, url: str) -> int:
        self._check(url)
        with fetch_errors(url):
            answer = self.client.request("HEAD", url, {})
            _require_status(answer, 200, url)
            if answer.length is None:
                raise OSError("the server must send the size in the header content-length")
            return answer.length

    def _check(self, url: str) -> None:
        if not url.startswith(self.url_prefix):
            raise outside_prefix(url, self.url_prefix)
        parts = urlsplit(url)
        if parts.query:
            raise InvalidInputError(
                f"the URL of a virtual chunk must not have a query ('?...'), got {shown_url(url)!r}",
                ErrorKind.INVALID_VIRTUAL_REF,
            )
        check_segments(url, unquote(parts.path.removeprefix("/")))


def _require_status(answer: Answer, expected: int, url: str) -> None:
    if answer.status != expected:
        reason = reason_of_status(answer.status, url)[1]
        failure = FileNotFoundError if answer.status in _ABSENT else OSError
        raise failure(f"the status must be {expected}, got {answer.status}: {reason}")
