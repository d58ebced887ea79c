"""How to talk to web servers: options of ``http_storage`` and ``http_store``, and settings of storages."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.request import getproxies, proxy_bypass

from frazil.errors import ErrorKind, StorageError
from frazil.storage.buckets import client_options, retry_config
from frazil.storage.settings import StorageSettings

_TIME: Final = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")
#: Connections to one server, and threads that send requests for event loops.
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
    """Times in seconds; ``retries`` come after the first try.

    ``connect_timeout`` limits connecting, ``timeout`` each read, ``all_tries`` a request with its retries.
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
        """The address of the proxy for a server: ``proxy_url``, or else the one in the environment.

        An entry of ``proxy_excludes`` is a host, a domain with all hosts in it, or ``*``.
        """
        if self.proxy_url is None:
            proxy = None if proxy_bypass(host) else getproxies().get(scheme)
        else:
            domains = (name.lower().lstrip(".") for name in self.proxy_excludes if name)
            is_excluded = any(name == "*" or f".{host}".endswith(f".{name}") for name in domains)
            proxy = None if is_excluded else self.proxy_url
        return proxy if proxy is None or "://" in proxy else f"http://{proxy}"

    def tls(self) -> ssl.SSLContext:
        """Trust in the certificate authorities of this machine, and those of ``root_certificate``.

        Raises ``StorageError`` (``storage-config``) for a certificate that cannot be read.
        """
        context = ssl.create_default_context()
        if self.root_certificate is not None:
            certificate = self.root_certificate
            try:
                text = certificate if isinstance(certificate, str) else certificate.decode("ascii")
                context.load_verify_locations(cadata=text)
            except (ssl.SSLError, ValueError) as error:
                raise StorageError(
                    f"option `root_certificate`: expected certificates in PEM form, found none: {error}",
                    ErrorKind.STORAGE_CONFIG,
                ) from error
        if self.allow_invalid_certificates:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def web_options(
    options: Mapping[str, str], settings: StorageSettings, user_agent: str | None = None
) -> WebOptions:
    """The values of ``options``; those of ``settings`` for all others.

    Raises ``StorageError`` (``storage-config``) for a value that is not a time, or not true or false.

    >>> web_options({"timeout": "3s", "follow_redirects": "true"}, StorageSettings()).timeout
    3.0
    """
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
            f"option `{name}`: expected a time such as 30s, found {value!r}", ErrorKind.STORAGE_CONFIG
        )
    return float(match[1]) * unit


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = str(options.get(name, "false")).lower()
    if value not in ("true", "false"):
        raise StorageError(
            f"option `{name}`: expected true or false, found {value!r}", ErrorKind.STORAGE_CONFIG
        )
    return value == "true"
