"""URLs of web servers: the server, the login, and the form in which a URL is sent."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from frazil.errors import UnreachableError
from frazil.storage.option_names import shown_url

_PORTS: Final = {"http": 80, "https": 443}
#: Characters of a path that are not encoded. Percent codes are not encoded again.
_UNQUOTED: Final = "/%!$&'()*+,;=:@~"
_STRAY_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})")

type Origin = tuple[str, str, int]


def origin_of(url: str) -> Origin:
    """Return scheme, host and port of a URL."""
    try:
        parts = urlsplit(url)
        if parts.scheme in _PORTS and parts.hostname:
            return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]
    except ValueError:
        pass  # invalid brackets or an invalid port
    raise UnreachableError(f"a web URL must be an http or https URL, got {shown_url(url)}")


def basic_authorization(url: str) -> str | None:
    """Return the header value with the user name and password of a URL, or None if it has none."""
    parts = urlsplit(url)
    if parts.username is None:
        return None
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(login.encode()).decode()}"


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
