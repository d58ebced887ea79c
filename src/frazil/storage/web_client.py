"""A client of web servers that does not follow redirects to other servers.

The client of the object stores follows redirects to any server and sends the user's headers to it. So a
server that the user authorised could send its readers to machines that only the readers can reach. This
client follows redirects to the same server (host and port), and from http to https on it. It refuses others,
unless the user sets the option ``follow_redirects``: then it follows them without the user's headers, but
never from https to http.

``Retry`` of urllib3 counts the tries and computes the pauses. The loop is in this module, because urllib3
does not retry when a body that is read in parts breaks off, has no limit for all tries together, and logs
URLs with their queries, which may contain signatures.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass, proxy_bypass_environment  # type: ignore[attr-defined]  # the stub lacks the last one

from frazil.errors import ErrorKind, StorageError, UnreachableError
from frazil.lazy_names import ModuleOnDemand
from frazil.storage.failures import ErrorParts, MessageTerms, reason_of_answer, wrong_setup
from frazil.storage.option_names import address_parts, check_headers, shown_url
from frazil.storage.settings import StorageSettings, client_options, retry_config
from frazil.threads import Purpose, shared_pool

_PORTS: Final = {"http": 80, "https": 443}
#: Characters of a path that are not encoded. Percent codes are not encoded again.
_UNQUOTED: Final = "/%!$&'()*+,;=:@~"
_STRAY_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})")

type Origin = tuple[str, str, int]


def origin_of(url: str) -> Origin:
    """Return scheme, host and port of a URL."""
    parts = address_parts(url)
    if parts is None or parts.scheme not in _PORTS or parts.hostname is None:
        raise UnreachableError(f"a web URL must be http or https, got {shown_url(url)}")
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]


def _authorization(url: str, header: str = "authorization") -> dict[str, str]:
    """Return the header with the user name and password of a URL, if it has them."""
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {header: f"Basic {b64encode(login.encode()).decode()}"}


def join_url(url: str, target: str) -> str:
    """Return the URL that a redirect from ``url`` leads to. An invalid ``target`` is returned unchanged."""
    try:
        return urljoin(url, target)
    except ValueError:
        return target


def request_url(url: str) -> str:
    """Return a URL as it is sent: without login and fragment, with percent codes where HTTP needs them."""
    parts = urlsplit(url)
    server = parts.netloc.rpartition("@")[2]
    try:
        server = server if server.isascii() else server.encode("idna").decode("ascii")
    except UnicodeError:
        raise UnreachableError(f"a web URL must have a valid host name, got {shown_url(url)}") from None
    path = quote(_STRAY_PERCENT.sub("%25", parts.path or "/"), safe=_UNQUOTED)
    return parts._replace(netloc=server, path=path, fragment="").geturl()


#: Numbers of at most 64 bits. Python refuses to convert very long numbers.
_NUMBER: Final = re.compile("[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Response:
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

    def range(self) -> tuple[int, int]:
        """Return the range of the object that the body is. Raises ``UnreachableError`` if it is not."""
        require_plain(self.headers.get("content-encoding"))
        if self.status != 206:
            return 0, len(self.body)
        match = _CONTENT_RANGE.fullmatch(self.headers.get("content-range", ""))
        if match is None:
            raise UnreachableError("the answer to a range must have the header content-range")
        return int(match[1]), int(match[2]) + 1

    def require_length(self, start: int, stop: int) -> None:
        """Raise ``UnreachableError`` for a body with more or fewer bytes than its range."""
        if len(self.body) != stop - start:
            raise UnreachableError(
                f"the answer must have the {stop - start} bytes of its range, got "
                f"{'more' if len(self.body) > stop - start else len(self.body)}"
            )

    @property
    def size(self) -> int:
        """Size of the whole object in bytes. 0 if the server does not send it."""
        return _number(self.headers.get("content-range", "").rpartition("/")[2]) or 0


_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/.*")
#: Encodings of a body that has the bytes of the object. Some services return that of an upload.
_PLAIN: Final = frozenset({"identity", "aws-chunked"})


def require_plain(encoding: str | None) -> None:
    """Raise ``UnreachableError`` if a body has an encoding, such as gzip. Requests ask for none."""
    names = {name.strip().lower() for name in (encoding or "").split(",")} - {""}
    if names - _PLAIN:
        raise UnreachableError(
            f"the answer must have the bytes of the object, got the content-encoding {encoding!r}. Store and "
            "serve the object without an encoding"
        )


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


#: Errors of the network, and their words in the table for clients of object stores.
_NETWORK: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (ssl.SSLCertVerificationError, "InvalidCertificate"),
    (socket.gaierror, '"dns error"'),
    (ConnectionRefusedError, "ConnectionRefused"),
    (TimeoutError, "TimedOut"),
    (ConnectionError, "ConnectionReset"),
)


def reason_of_status(status: int, url: str) -> tuple[ErrorKind, str]:
    """Return the kind of error for an unexpected status, and a text with the cause and the remedy."""
    reason = reason_of_answer(ErrorParts(url, str(status)), _terms(url))
    return reason or (ErrorKind.OBJECT_STORE, f"the server answered with status {status}")


def reason_of(error: BaseException, url: str) -> tuple[ErrorKind, str]:
    """Return the kind of an error of the client, or of one of its causes, and a text with the remedy."""
    cause: BaseException | None = error
    while cause is not None:
        words = next((words for of, words in _NETWORK if isinstance(cause, of)), "")
        if words and (reason := reason_of_answer(ErrorParts(url, network=words), _terms(url))):
            return reason
        cause = cause.__cause__ or cause.__context__
    return ErrorKind.OBJECT_STORE, str(error)


def _terms(url: str) -> MessageTerms:
    return MessageTerms(repr(shown_url(url)), "HTTP")


_TIME: Final = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")
#: Number of connections to one server, and of threads that send requests for event loops.
CONNECTIONS: Final = 64
#: Unit of a time -> seconds.
_UNITS: Final = {
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 0.001),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
}


@dataclass(frozen=True, slots=True)
class WebOptions:
    """Options of requests to web servers. Times are in seconds.

    ``timeout`` is for each read. Without ``proxy_url``, the environment names the proxy.
    """

    connect_timeout: float
    timeout: float
    user_agent: str
    retry: RetryConfig
    follow_redirects: bool = False
    proxy_url: str | None = field(default=None, repr=False)
    proxy_excludes: str = ""
    root_certificate: str | bytes | None = field(default=None, repr=False)
    allow_invalid_certificates: bool = False

    def proxy_for(self, scheme: str, host: str) -> str | None:
        """Return the URL of the proxy for a server, or None: ``proxy_url``, or the proxy of the environment.

        ``proxy_excludes`` are hosts and domains, with commas between them, or ``*``.
        """
        if self.proxy_url is None:
            proxy = None if proxy_bypass(host) else getproxies().get(scheme)
        else:
            is_excluded = proxy_bypass_environment(host, {"no": self.proxy_excludes})
            proxy = None if is_excluded else self.proxy_url
        return proxy if proxy is None or "://" in proxy else f"http://{proxy}"

    def tls(self) -> ssl.SSLContext:
        """Return a TLS context with the certificate authorities of this machine and ``root_certificate``."""
        context = ssl.create_default_context()
        if self.root_certificate is not None:
            certificate = self.root_certificate
            try:
                text = certificate if isinstance(certificate, str) else certificate.decode("ascii")
                context.load_verify_locations(cadata=text)
            except (ssl.SSLError, ValueError) as error:
                raise wrong_setup(f"option `root_certificate` must be in PEM form: {error}") from error
        if self.allow_invalid_certificates:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def web_options(
    options: Mapping[str, str], settings: StorageSettings, user_agent: str | None = None
) -> WebOptions:
    """Return the values of ``options``, and the values of ``settings`` for all other options."""
    client: dict[str, Any] = {**client_options(settings, {}), **options}
    connect, read, whole = (_seconds(client, name) for name in ("connect_timeout", "read_timeout", "timeout"))
    return WebOptions(
        connect_timeout=min(connect or whole, whole),
        timeout=min(read or whole, whole),
        user_agent=user_agent or str(client["user_agent"]),
        retry=retry_config(settings),
        follow_redirects=_flag(client, "follow_redirects"),
        proxy_url=client.get("proxy_url"),
        proxy_excludes=client.get("proxy_excludes", ""),
        root_certificate=client.get("root_certificate") or client.get("proxy_ca_certificate"),
        allow_invalid_certificates=_flag(client, "allow_invalid_certificates"),
    )


def _seconds(options: Mapping[str, Any], name: str) -> float:
    value = options.get(name, 0)
    if isinstance(value, timedelta):
        return value.total_seconds()
    match = _TIME.fullmatch(str(value).lower())
    unit = None if match is None else _UNITS.get(match[2])
    if match is None or unit is None:
        raise wrong_setup(f"option `{name}` must be a time such as 30s, got {value!r}")
    return float(match[1]) * unit


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = str(options.get(name, "false")).lower()
    if value not in ("true", "false"):
        raise wrong_setup(f"option `{name}` must be true or false, got {value!r}")
    return value == "true"


if TYPE_CHECKING:
    import urllib3
    from obstore.store import RetryConfig
else:
    urllib3 = ModuleOnDemand("urllib3")

#: Statuses after which the same request may succeed.
_TRY_AGAIN: Final = frozenset({429, 500, 502, 503, 504})

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 10


class WebClient:
    """A client for web servers, with the same options and headers for all requests.

    Threads may share a client. A pickle contains no connections, and a forked process opens its own. At most
    ``CONNECTIONS`` requests are sent to one server at the same time. Other requests wait.
    """

    def __init__(self, options: WebOptions, headers: Mapping[str, str]) -> None:
        check_headers(headers)
        self._options = options
        self._headers = _lower_names(headers)
        # By process, because a forked process opens its own connections. Without a lock, which another thread
        # could hold during the fork: of two managers that are created at the same time, one is dropped.
        self._managers: dict[tuple[int, str, str | None], urllib3.PoolManager] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (WebClient, (self._options, self._headers))

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        max_bytes: int | None = None,
        *,
        redirects: int = _MAX_REDIRECTS,
    ) -> Response:
        """Return the answer to one request. The body ends one byte after ``max_bytes``.

        With ``redirects=0``, the answer may be a redirect.
        """
        origin_of(url)  # raises an error for an invalid URL
        current_url, sent = url, _authorization(url) | self._headers | _lower_names(headers)
        for _ in range(redirects + 1):
            answer = self._send(method, current_url, sent, max_bytes)
            target = answer.headers.get("location")
            if answer.status not in _REDIRECTS or target is None or not redirects:
                return answer
            after = join_url(current_url, target)
            if not _is_same_server(current_url, after):
                schemes = [each.partition(":")[0].lower() for each in (current_url, after)]
                is_possible = schemes[1] == "https" or schemes == ["http", "http"]
                if not self._options.follow_redirects or not is_possible:
                    raise StorageError(
                        f"a redirect from {shown_url(current_url)} must lead to the same server, got "
                        f"{shown_url(after)}. If you trust the other server, use its URL, or set the option "
                        "follow_redirects to true (then requests to the other server do not carry your "
                        "headers)",
                        ErrorKind.REDIRECT_REFUSED,
                    )
                origin_of(after)
                sent = _authorization(after) | _lower_names(headers)
            current_url = after
        raise UnreachableError(f"{shown_url(url)} redirects more than {redirects} times")

    def _send(self, method: str, url: str, headers: Mapping[str, str], max_bytes: int | None) -> Response:
        """Return the answer to one request, without redirects, after all tries. It may be 503.

        The body ends one byte after ``max_bytes``. Names of ``headers`` are in lower case.
        """
        options = self._options
        scheme, host, _ = origin_of(url)
        proxy = options.proxy_for(scheme, host)
        manager = self._manager(scheme, proxy)
        sent = {"accept": "*/*", "user-agent": options.user_agent} | dict(headers)
        # Names in the spelling of urllib3, so that no header is sent twice. Values are UTF-8.
        sent = {name.title(): value.encode().decode("latin-1") for name, value in sent.items()}
        retry: Any = options.retry
        end = time.monotonic() + retry["retry_timeout"].total_seconds()
        first, longest = (retry["backoff"][name].total_seconds() for name in ("init_backoff", "max_backoff"))
        tries = urllib3.Retry(
            retry["max_retries"],
            status_forcelist=_TRY_AGAIN,
            backoff_factor=first / 2,  # urllib3 tries at once, then waits twice the factor
            backoff_max=longest,
        )
        target = request_url(url)
        while True:
            answer, failure = None, None
            try:
                answer = _send_once(manager, method, target, sent, max_bytes)
                is_over = not tries.is_retry(method, answer.status, "retry-after" in answer.headers)
            except urllib3.exceptions.LocationValueError:
                raise UnreachableError(f"a web URL must be http or https, got {shown_url(url)}") from None
            except (urllib3.exceptions.HTTPError, OSError) as error:
                failure = error
                is_over = isinstance(_cause(error), ssl.SSLCertVerificationError)
            if not is_over and tries.total:
                tries = tries.increment(method, shown_url(url), error=failure)
                pause = tries.get_backoff_time()
                with suppress(urllib3.exceptions.HTTPError, KeyError, ValueError, OverflowError):
                    if answer is not None:  # the server may ask for a pause
                        asked = tries.parse_retry_after(answer.headers["retry-after"])
                        pause = max(pause, min(asked, longest))
                if time.monotonic() + pause <= end:
                    time.sleep(pause)
                    continue
            if answer is not None:
                return answer
            is_proxy = isinstance(failure, urllib3.exceptions.ProxyError)
            through = f" through the proxy {shown_url(proxy or '')}" if is_proxy else ""
            cause = None if failure is None else _cause(failure)
            # The errors of urllib3 in between contain the URL with its query. They must not be in tracebacks.
            raise UnreachableError(
                f"request to {shown_url(url)}{through} failed: {str(cause) or type(cause).__name__}"
            ) from cause

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._options.tls()  # slow: it reads hundreds of certificates

    def _manager(self, scheme: str, proxy: str | None) -> urllib3.PoolManager:
        key = (os.getpid(), scheme, proxy)
        manager = self._managers.get(key)
        if manager is None:
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
                    login = _authorization(proxy, "Proxy-Authorization")
                    manager = urllib3.ProxyManager(proxy, proxy_headers=login, **pool_options)
                except ValueError:
                    raise wrong_setup(f"the proxy must be http or https, got {shown_url(proxy)}") from None
            manager = self._managers.setdefault(key, manager)
        return manager


def _send_once(
    manager: urllib3.PoolManager, method: str, target: str, headers: Mapping[str, str], max_bytes: int | None
) -> Response:
    response = manager.urlopen(
        method, target, headers=headers, retries=False, redirect=False, preload_content=False
    )
    try:
        # One more byte shows whether the body has ended. Only then the connection is used again, and the
        # caller knows that it is no longer than it should be.
        body = response.read(None if max_bytes is None else max_bytes + 1, decode_content=False)
    finally:
        response.close()
        response.release_conn()
    headers_by_name = {name.lower(): value for name, value in response.headers.items()}
    if cookies := response.headers.getlist("set-cookie"):  # the only header with several lines
        headers_by_name["set-cookie"] = "\n".join(cookies)
    return Response(response.status, headers_by_name, body)


def _cause(error: BaseException) -> BaseException:
    """Return the innermost error inside an error of urllib3, which puts some errors into ``args``."""
    while True:
        inner = [each for each in error.args if isinstance(each, BaseException)]
        below = error.__cause__ or (inner[-1] if inner else None)
        if below is None:
            return error
        error = below


async def in_thread[R](call: Callable[[], R]) -> R:
    """Call a function that sends requests, on a thread, for an event loop."""
    threads = shared_pool(Purpose.WEB_REQUESTS).executor
    return await asyncio.get_running_loop().run_in_executor(threads, call)


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _is_same_server(url: str, target: str) -> bool:
    try:
        before, after = origin_of(url), origin_of(target)
    except UnreachableError:
        return False
    is_upgrade = (before[0], before[2], after[0], after[2]) == ("http", 80, "https", 443)
    return before[1] == after[1] and (before == after or is_upgrade)
