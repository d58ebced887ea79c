"""Requests to a web server that stay with it.

The client of the object stores follows redirects to any server, and takes the user's headers along. A server
that the user authorised could so send its readers to machines that only they can reach. Here a redirect is
followed to the same server (host and port), or from http to https there. Others are refused, unless the user
sets the option ``follow_redirects``: then they are followed without the user's headers, and never from https
to http.

``frazil.storage.web.pools`` sends the requests. An event loop sends them from threads (``thread_pool``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import ErrorKind, StorageError
from frazil.storage.option_names import check_headers, shown_url
from frazil.storage.web.address import basic_authorization, join_url, origin_of
from frazil.storage.web.answer import Answer, Unreachable
from frazil.storage.web.options import WebOptions
from frazil.threads import Purpose, shared_pool

if TYPE_CHECKING:
    from frazil.storage.web.pools import Pools

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 10


class WebClient:
    """Requests to any address, with the same options and headers.

    Threads may share a client. A pickle holds no connections, and a forked process opens its own.
    Raises ``InvalidInputError`` (``storage-config``) for headers that HTTP does not allow.
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
        """The answer to one request; the body ends after ``max_bytes`` bytes.

        Raises ``Unreachable`` if no answer comes after all tries, and ``StorageError``
        (``redirect-refused``) for a redirect to another server.
        """
        origin_of(url)  # raises for what is not an address
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
        raise Unreachable(f"{shown_url(url)} redirects more than {_MAX_REDIRECTS} times")

    def request_once(
        self, method: str, url: str, headers: Mapping[str, str], max_bytes: int | None = None
    ) -> Answer:
        """``request`` for callers that follow redirects themselves."""
        origin_of(url)
        return self._current_pools().send(
            method, url, _authorization(url) | self._headers | _lower_names(headers), max_bytes
        )

    def thread_pool(self) -> Executor:
        """Threads that send requests for an event loop."""
        return shared_pool(Purpose.WEB_REQUESTS).executor

    def _current_pools(self) -> Pools:
        process = os.getpid()
        pools = self._pools.get(process)
        if pools is None:
            from frazil.storage.web.pools import Pools

            # Threads may race here: `setdefault` gives the same pools to all. Those of a parent are left.
            pools = self._pools.setdefault(process, Pools(self._options))
            self._pools = {process: pools}
        return pools

    def _require_same_server(self, url: str, target: str) -> None:
        before, after = _scheme(url), _scheme(target)
        is_possible = after == "https" or before == after == "http"
        if not self._options.follow_redirects or not is_possible:
            raise StorageError(
                f"{shown_url(url)} redirects to {shown_url(target)}: expected an address on the same server. "
                "If you trust the other server, use its address, or set the option follow_redirects to true "
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
    except Unreachable:
        return False
    is_upgrade = (before[0], before[2], after[0], after[2]) == ("http", 80, "https", 443)
    return before[1] == after[1] and (before == after or is_upgrade)
