"""A client of web servers that does not follow redirects to other servers.

The client of the object stores follows redirects to any server and sends the user's headers to it. So a
server that the user authorised could send its readers to machines that only the readers can reach. The client
in this module follows redirects to the same server (host and port), and from http to https on it. It refuses
other redirects, unless the user sets the option ``follow_redirects``. Then it follows them without the user's
headers, but never from https to http.

An event loop sends the requests from threads (``thread_pool``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, Final

from frazil.errors import ErrorKind, StorageError, UnreachableError
from frazil.storage.option_names import check_headers, shown_url
from frazil.storage.web.address import basic_authorization, join_url, origin_of
from frazil.storage.web.answer import Answer
from frazil.storage.web.options import WebOptions
from frazil.storage.web.pools import Pools
from frazil.threads import Purpose, shared_pool

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 10


class WebClient:
    """A client for web servers, with the same options and headers for all requests.

    Threads may share a client. A pickle contains no connections, and a forked process opens its own.
    """

    def __init__(self, options: WebOptions, headers: Mapping[str, str]) -> None:
        check_headers(headers)
        self._options = options
        self._headers = _lower_names(headers)
        self._pools: dict[int, Pools] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (WebClient, (self._options, self._headers))

    def request(
        self, method: str, url: str, headers: Mapping[str, str], max_bytes: int | None = None
    ) -> Answer:
        """Return the answer to one request. The body ends after ``max_bytes`` bytes."""
        origin_of(url)  # raises an error for an invalid URL
        current_url, sent = url, _authorization(url) | self._headers | _lower_names(headers)
        for _ in range(_MAX_REDIRECTS + 1):
            answer = self._current_pools().send(method, current_url, sent, max_bytes)
            target = answer.headers.get("location")
            if answer.status not in _REDIRECTS or target is None:
                return answer
            after = join_url(current_url, target)
            if not _is_same_server(current_url, after):
                self._require_same_server(current_url, after)
                origin_of(after)
                sent = _authorization(after) | _lower_names(headers)
            current_url = after
        raise UnreachableError(f"{shown_url(url)} redirects more than {_MAX_REDIRECTS} times")

    def request_once(
        self, method: str, url: str, headers: Mapping[str, str], max_bytes: int | None = None
    ) -> Answer:
        """Do the same as ``request``, without following redirects."""
        origin_of(url)
        return self._current_pools().send(
            method, url, _authorization(url) | self._headers | _lower_names(headers), max_bytes
        )

    def thread_pool(self) -> Executor:
        """Return the threads that send requests for an event loop."""
        return shared_pool(Purpose.WEB_REQUESTS).executor

    def _current_pools(self) -> Pools:
        process = os.getpid()
        pools = self._pools.get(process)
        if pools is None:
            # Threads may race here: `setdefault` returns the same pools to all. A parent's pools are dropped.
            pools = self._pools.setdefault(process, Pools(self._options))
            self._pools = {process: pools}
        return pools

    def _require_same_server(self, url: str, target: str) -> None:
        before, after = _scheme(url), _scheme(target)
        is_possible = after == "https" or before == after == "http"
        if not self._options.follow_redirects or not is_possible:
            raise StorageError(
                f"a redirect from {shown_url(url)} must lead to the same server, got {shown_url(target)}. "
                "If you trust the other server, use its URL, or set the option follow_redirects to true "
                "(then requests to the other server do not carry your headers)",
                ErrorKind.REDIRECT_REFUSED,
            )


def _authorization(url: str) -> dict[str, str]:
    value = basic_authorization(url)
    return {} if value is None else {"authorization": value}


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def _is_same_server(url: str, target: str) -> bool:
    try:
        before, after = origin_of(url), origin_of(target)
    except UnreachableError:
        return False
    is_upgrade = (before[0], before[2], after[0], after[2]) == ("http", 80, "https", 443)
    return before[1] == after[1] and (before == after or is_upgrade)
