"""Requests to a web server that stay with it.

The client of the object stores follows redirects to any server, and takes the user's headers along. A server
that was authorised could so send its readers to machines that only they can reach. Here a redirect is
followed to the same server (host and port), or from http to https there. Others are refused, unless the user
set the option ``follow_redirects``: then they are followed without the user's headers, and never from https
to http.

Connections are kept for the next request. ``request_async`` uses threads, which wait for the network alone.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from frazil.errors import ErrorKind, StorageError
from frazil.storage.option_names import check_headers, shown_url
from frazil.storage.web_options import WebOptions

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 10
_PORTS: Final = {"http": 80, "https": 443}
#: Reads that wait for servers at the same time.
_THREADS: Final = 64
#: Connections to one server that wait for the next request.
_IDLE: Final = 64
#: Answers after which the same request may succeed.
_TRY_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
#: What another try does not change.
_FINAL: Final = (ssl.SSLCertVerificationError, http.client.InvalidURL)
#: Characters of a path that stay as they are; codes that are there already stay, too.
_UNQUOTED: Final = "/%!$&'()*+,;=:@~"
_STRAY_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered, redirects followed."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def etag(self) -> str | None:
        return self.headers.get("etag")

    @property
    def modified(self) -> float:
        """When the object was changed, as Unix time; 0 if the server does not say."""
        with suppress(TypeError, ValueError):
            return parsedate_to_datetime(self.headers["last-modified"]).timestamp()
        return 0.0

    @property
    def start(self) -> int:
        """Where the body begins in the object."""
        unit, _, rest = self.headers.get("content-range", "").partition(" ")
        first = rest.partition("-")[0]
        return int(first) if self.status == 206 and unit == "bytes" and first.isdigit() else 0


class Unreachable(OSError):
    """No answer came, or none that is of use."""


type Origin = tuple[str, str, int]


class WebClient:
    """Requests to any address, with the same options and headers. May be pickled."""

    def __init__(self, options: WebOptions, headers: Mapping[str, str]) -> None:
        check_headers(headers)
        self._options = options
        self._headers = dict(headers)
        self._lock = threading.Lock()
        self._idle: dict[Origin, list[http.client.HTTPConnection]] = {}
        self._process = os.getpid()
        self._tls: ssl.SSLContext | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (WebClient, (self._options, self._headers))

    def __del__(self) -> None:
        for idle in self.__dict__.get("_idle", {}).values():
            for connection in idle:
                connection.close()

    def request(self, method: str, url: str, headers: Mapping[str, str], most: int | None = None) -> Answer:
        """The answer to one request; ``most`` bounds the bytes of its body.

        Raises ``Unreachable`` where no answer comes after all tries, and ``StorageError``
        (``redirect-refused``) for a redirect to another server.
        """
        now, sent = url, {**self._headers, **headers}
        for _ in range(_MAX_REDIRECTS + 1):
            answer = self._tried(method, now, sent, most)
            target = answer.headers.get("location")
            if answer.status not in _REDIRECTS or target is None:
                return answer
            after = _joined(now, target)
            if not _is_same_server(now, after):
                self._require_leave(now, after)
                sent = dict(headers)
            now = after
        raise Unreachable(f"{shown_url(url)} redirects more than {_MAX_REDIRECTS} times")

    def in_thread(self) -> ThreadPoolExecutor:
        """Threads for requests of an event loop."""
        return _threads(os.getpid())

    def _require_leave(self, url: str, target: str) -> None:
        before, after = _scheme(url), _scheme(target)
        is_possible = after == "https" or before == after == "http"
        if not self._options.follow_redirects or not is_possible:
            raise StorageError(
                f"{shown_url(url)} redirects to {shown_url(target)}: expected an address on the same server. "
                "If you trust the other server, use its address, or set the option follow_redirects to true "
                "(then it is asked without your headers)",
                ErrorKind.REDIRECT_REFUSED,
            )

    def _tried(self, method: str, url: str, headers: Mapping[str, str], most: int | None) -> Answer:
        pause, end = self._options.first_pause, time.monotonic() + self._options.all_tries
        for last in [*[False] * self._options.retries, True]:
            is_over = last or time.monotonic() + pause > end
            try:
                answer = self._once(method, url, headers, most)
                if is_over or answer.status not in _TRY_AGAIN:
                    return answer
            except (OSError, http.client.HTTPException) as error:
                if is_over or isinstance(error, _FINAL):
                    text = str(error) or type(error).__name__
                    raise Unreachable(f"request to {shown_url(url)} failed: {text}") from error
            time.sleep(pause)
            pause = min(2 * pause, self._options.longest_pause)
        raise AssertionError("the last try ends the loop")

    def _once(self, method: str, url: str, headers: Mapping[str, str], most: int | None) -> Answer:
        parts = urlsplit(url)
        origin = _origin(parts)
        while True:
            connection, is_new = self._connection(origin)
            try:
                answer = self._ask(connection, method, parts, headers, most)
            except (ConnectionError, http.client.BadStatusLine):
                connection.close()
                if is_new:
                    raise
                continue  # the server closed a connection that waited too long
            except BaseException:
                connection.close()
                raise
            if connection.sock is not None:
                with self._lock:
                    idle = self._idle.setdefault(origin, [])
                    if len(idle) < _IDLE:
                        idle.append(connection)
                        return answer
                connection.close()
            return answer

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        parts: SplitResult,
        headers: Mapping[str, str],
        most: int | None,
    ) -> Answer:
        path = quote(_STRAY_PERCENT.sub("%25", parts.path or "/"), safe=_UNQUOTED)
        target = f"{path}?{parts.query}" if parts.query else path
        defaults = {"accept": "*/*", "user-agent": self._options.user_agent}
        if parts.username is not None:
            defaults["authorization"] = _basic(parts)
        sent = defaults | {name.lower(): value for name, value in headers.items()}
        proxy = self._proxy(_origin(parts))
        if proxy is not None and parts.scheme == "http":
            target = f"http://{parts.netloc.rpartition('@')[2]}{target}"
            if proxy.username is not None:
                sent["proxy-authorization"] = _basic(proxy)
        connection.request(method, target, headers=sent)
        response = connection.getresponse()
        body = response.read() if most is None else response.read(most)
        if not response.isclosed() and response.read(1):
            connection.close()  # it has more than was asked for
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, body)

    def _connection(self, origin: Origin) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._process != os.getpid():  # a fork must not share the parent's connections
                self._idle, self._process = {}, os.getpid()
            idle = self._idle.get(origin)
            if idle:
                return idle.pop(), False
        scheme, host, port = origin
        options, proxy = self._options, self._proxy(origin)
        at = (host, port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
        if scheme == "http":
            return http.client.HTTPConnection(*at, timeout=options.timeout), True
        if self._tls is None:
            self._tls = options.tls()  # reads some hundred certificates
        connection = http.client.HTTPSConnection(*at, timeout=options.timeout, context=self._tls)
        if proxy is not None:
            login = {} if proxy.username is None else {"Proxy-Authorization": _basic(proxy)}
            connection.set_tunnel(host, port, headers=login)
        return connection, True

    def _proxy(self, origin: Origin) -> SplitResult | None:
        scheme, host, _ = origin
        given = self._options.proxy_url
        if given is None:
            given = None if proxy_bypass(host) else getproxies().get(scheme)
        elif host in self._options.proxy_excludes:
            given = None
        return None if given is None else urlsplit(given if "://" in given else f"http://{given}")


def _origin(parts: SplitResult) -> Origin:
    if parts.scheme not in _PORTS or not parts.hostname:
        raise Unreachable(f"expected an address of http or https, found {shown_url(parts.geturl())}")
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]


def _joined(url: str, target: str) -> str:
    try:
        return urljoin(url, target)
    except ValueError:
        return target


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def _is_same_server(url: str, target: str) -> bool:
    try:
        before, after = _origin(urlsplit(url)), _origin(urlsplit(target))
    except (ValueError, Unreachable):
        return False
    is_upgrade = (before[0], before[2], after[0], after[2]) == ("http", 80, "https", 443)
    return before[1] == after[1] and (before == after or is_upgrade)


def _basic(parts: SplitResult) -> str:
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(login.encode()).decode()}"


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Of one process: the threads of a parent do not exist in its fork."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="frazil-web")
