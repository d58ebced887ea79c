"""Options of requests to web servers, from ``http_storage``, ``http_store`` and settings of storages."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.request import getproxies, proxy_bypass

from frazil.errors import ErrorKind, StorageError
from frazil.storage.client_options import client_options, retry_config
from frazil.storage.settings import StorageSettings

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

    Attributes:
        connect_timeout: Limit for opening a connection.
        timeout: Limit for each read.
        user_agent: Value of the header ``User-Agent``.
        retries: Number of tries after the first one.
        first_pause: Pause before the second try.
        longest_pause: Longest pause between two tries.
        all_tries: Limit for one request with all its tries.
        follow_redirects: Whether redirects to other servers are followed.
        proxy_url: URL of the proxy. Default: the environment.
        proxy_excludes: Servers that are reached without ``proxy_url``.
        root_certificate: Additional certificates in PEM form.
        allow_invalid_certificates: Whether certificates are not checked.
    """

    connect_timeout: float
    timeout: float
    user_agent: str
    retries: int
    first_pause: float
    longest_pause: float
    all_tries: float
    follow_redirects: bool = False
    proxy_url: str | None = field(default=None, repr=False)
    proxy_excludes: tuple[str, ...] = ()
    root_certificate: str | bytes | None = field(default=None, repr=False)
    allow_invalid_certificates: bool = False

    def proxy_for(self, scheme: str, host: str) -> str | None:
        """Return the URL of the proxy for a server, or None: ``proxy_url``, or the proxy of the environment.

        An entry of ``proxy_excludes`` is a host, a domain with all its hosts, or ``*``.
        """
        if self.proxy_url is None:
            proxy = None if proxy_bypass(host) else getproxies().get(scheme)
        else:
            domains = (name.lower().lstrip(".") for name in self.proxy_excludes if name)
            is_excluded = any(name == "*" or f".{host}".endswith(f".{name}") for name in domains)
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
                raise StorageError(
                    f"option `root_certificate` must contain certificates in PEM form: {error}",
                    ErrorKind.STORAGE_CONFIG,
                ) from error
        if self.allow_invalid_certificates:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def web_options(
    options: Mapping[str, str], settings: StorageSettings, user_agent: str | None = None
) -> WebOptions:
    """Return the values of ``options``, and the values of ``settings`` for all other options."""
    client: dict[str, Any] = {**client_options(settings, {}), **options}
    retry: Any = retry_config(settings)
    connect, read, whole = (_seconds(client, name) for name in ("connect_timeout", "read_timeout", "timeout"))
    return WebOptions(
        connect_timeout=min(connect or whole, whole),
        timeout=min(read or whole, whole),
        user_agent=user_agent or str(client["user_agent"]),
        retries=retry["max_retries"],
        first_pause=retry["backoff"]["init_backoff"].total_seconds(),
        longest_pause=retry["backoff"]["max_backoff"].total_seconds(),
        all_tries=retry["retry_timeout"].total_seconds(),
        follow_redirects=_flag(client, "follow_redirects"),
        proxy_url=client.get("proxy_url"),
        proxy_excludes=tuple(each.strip() for each in client.get("proxy_excludes", "").split(",")),
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
        raise StorageError(
            f"option `{name}` must be a time such as 30s, got {value!r}", ErrorKind.STORAGE_CONFIG
        )
    return float(match[1]) * unit


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = str(options.get(name, "false")).lower()
    if value not in ("true", "false"):
        raise StorageError(f"option `{name}` must be true or false, got {value!r}", ErrorKind.STORAGE_CONFIG)
    return value == "true"
