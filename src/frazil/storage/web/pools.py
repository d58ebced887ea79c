"""One request to one web server, with retries where they may help. urllib3 holds the connections.

``Retry`` of urllib3 counts the tries and computes the pauses. The loop is in this module for three
reasons. urllib3 does not retry when a body that is read in parts breaks off. It has no limit for all
tries together. It logs URLs with their queries, which may contain signatures.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import ErrorKind, StorageError, UnreachableError
from frazil.lazy_names import ModuleOnDemand
from frazil.storage.option_names import shown_url
from frazil.storage.web.address import basic_authorization, origin_of, request_url
from frazil.storage.web.answer import Answer
from frazil.storage.web.options import CONNECTIONS, WebOptions

if TYPE_CHECKING:
    import urllib3
else:
    urllib3 = ModuleOnDemand("urllib3")

#: Statuses after which the same request may succeed.
_TRY_AGAIN: Final = frozenset({429, 500, 502, 503, 504})


class Pools:
    """The connections of one process, by server and proxy. Threads may share them.

    At most ``CONNECTIONS`` requests are sent to one server at the same time. Other requests wait.
    """

    def __init__(self, options: WebOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._managers: dict[tuple[str, str | None], urllib3.PoolManager] = {}

    def send(self, method: str, url: str, headers: Mapping[str, str], max_bytes: int | None) -> Answer:
        """Return the answer to one request, without redirects. The body ends after ``max_bytes`` bytes.

        Names of ``headers`` are in lower case. After the last try, an answer with a status such as 503
        is returned.
        """
        options = self._options
        scheme, host, _ = origin_of(url)
        proxy = options.proxy_for(scheme, host)
        manager = self._manager(scheme, proxy)
        sent = {"accept": "*/*", "user-agent": options.user_agent} | dict(headers)
        # Names in the spelling of urllib3, so that no header is sent twice. Values are UTF-8.
        sent = {name.title(): value.encode().decode("latin-1") for name, value in sent.items()}
        end = time.monotonic() + options.all_tries
        tries = urllib3.Retry(
            options.retries,
            status_forcelist=_TRY_AGAIN,
            backoff_factor=options.first_pause / 2,  # urllib3 tries at once, then waits twice the factor
            backoff_max=options.longest_pause,
        )
        target = request_url(url)
        while True:
            answer, failure = None, None
            try:
                answer = _send_once(manager, method, target, sent, max_bytes)
                is_over = not tries.is_retry(method, answer.status, "retry-after" in answer.headers)
            except urllib3.exceptions.LocationValueError:
                raise UnreachableError(
                    f"a web URL must be an http or https URL, got {shown_url(url)}"
                ) from None
            except (urllib3.exceptions.HTTPError, OSError) as error:
                failure = error
                is_over = isinstance(_cause(error), ssl.SSLCertVerificationError)
            if not is_over and tries.total:
                tries = tries.increment(method, shown_url(url), error=failure)
                pause = self._pause(tries, answer)
                if time.monotonic() + pause <= end:
                    time.sleep(pause)
                    continue
            if answer is not None:
                return answer
            raise _unreachable(url, proxy, failure)

    def _pause(self, tries: urllib3.Retry, answer: Answer | None) -> float:
        """Return seconds before the next try. The server may ask for them, up to the longest pause."""
        server_pause = 0.0
        with suppress(urllib3.exceptions.HTTPError, KeyError, ValueError, OverflowError):
            if answer is not None:
                server_pause = tries.parse_retry_after(answer.headers["retry-after"])
        return max(tries.get_backoff_time(), min(server_pause, self._options.longest_pause))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._options.tls()  # slow: it reads hundreds of certificates

    def _manager(self, scheme: str, proxy: str | None) -> urllib3.PoolManager:
        with self._lock:
            manager = self._managers.get((scheme, proxy))
            if manager is None:
                manager = self._managers[scheme, proxy] = self._connect(scheme, proxy)
        return manager

    def _connect(self, scheme: str, proxy: str | None) -> urllib3.PoolManager:
        options = self._options
        timeout = urllib3.Timeout(connect=options.connect_timeout, read=options.timeout)
        pool_options: dict[str, Any] = {"maxsize": CONNECTIONS, "block": True, "timeout": timeout}
        if scheme == "https":
            pool_options["ssl_context"] = self._tls
        if proxy is None:
            manager = urllib3.PoolManager(**pool_options)
        else:
            if proxy.startswith("https:"):
                pool_options["proxy_ssl_context"] = self._tls
            try:
                login = basic_authorization(proxy)
                pool_options["proxy_headers"] = {} if login is None else {"Proxy-Authorization": login}
                manager = urllib3.ProxyManager(proxy, **pool_options)
            except ValueError:
                raise StorageError(
                    "the proxy in the option proxy_url or the environment must be an http or https URL, "
                    f"got {shown_url(proxy)}",
                    ErrorKind.STORAGE_CONFIG,
                ) from None
        if options.allow_invalid_certificates:
            manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "https": _unchecked_pool()}
        return manager


def _unchecked_pool() -> type[urllib3.HTTPSConnectionPool]:
    """Return pools for users who allow invalid certificates. urllib3 warns for each other connection."""

    class UncheckedConnection(urllib3.connection.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            self.is_verified = True

    class UncheckedPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = UncheckedConnection

    return UncheckedPool


def _send_once(
    manager: urllib3.PoolManager, method: str, target: str, headers: Mapping[str, str], max_bytes: int | None
) -> Answer:
    response = manager.urlopen(
        method, target, headers=headers, retries=False, redirect=False, preload_content=False
    )
    try:
        # One more byte shows whether the body has ended. Only then the connection is used again.
        body = response.read(None if max_bytes is None else max_bytes + 1, decode_content=False)
    finally:
        response.close()
        response.release_conn()
    headers_by_name = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status, headers_by_name, body if max_bytes is None else body[:max_bytes])


def _cause(error: BaseException) -> BaseException:
    """Return the innermost error inside an error of urllib3, which puts some errors into ``args``."""
    while True:
        inner = [each for each in error.args if isinstance(each, BaseException)]
        below = error.__cause__ or (inner[-1] if inner else None)
        if below is None:
            return error
        error = below


def _unreachable(url: str, proxy: str | None, error: BaseException | None) -> UnreachableError:
    through = (
        f" through the proxy {shown_url(proxy or '')}"
        if isinstance(error, urllib3.exceptions.ProxyError)
        else ""
    )
    cause = None if error is None else _cause(error)
    unreachable = UnreachableError(
        f"request to {shown_url(url)}{through} failed: {str(cause) or type(cause).__name__}"
    )
    # The errors of urllib3 in between contain the URL with its query. They must not be in tracebacks.
    unreachable.__cause__ = cause
    return unreachable
