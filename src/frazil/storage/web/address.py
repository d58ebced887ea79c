"""Addresses of web servers: the server, the login, and the form in which an address is sent."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from frazil.storage.option_names import shown_url
from frazil.storage.web.answer import Unreachable

_PORTS: Final = {"http": 80, "https": 443}
#: Characters of a path that stay as they are; percent codes stay, too.
_UNQUOTED: Final = "/%!$&'()*+,;=:@~"
_STRAY_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})")

type Origin = tuple[str, str, int]


def origin_of(url: str) -> Origin:
    """Scheme, host and port. Raises ``Unreachable`` for an address that is not of http or https.

    >>> origin_of("https://Example.org/data")
    ('https', 'example.org', 443)
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in _PORTS and parts.hostname:
            return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]
    except ValueError:
        pass  # brackets or a port that cannot be
    raise Unreachable(f"expected an address of http or https, found {shown_url(url)}")


def basic_authorization(url: str) -> str | None:
    """The header value that sends the user's name and password of ``url``, if it has them.

    >>> basic_authorization("http://me:pw@example.org/")
    'Basic bWU6cHc='
    """
    parts = urlsplit(url)
    if parts.username is None:
        return None
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(login.encode()).decode()}"


def join_url(url: str, target: str) -> str:
    """Where a redirect from ``url`` leads. A ``target`` that is no address is returned as it is."""
    try:
        return urljoin(url, target)
    except ValueError:
        return target


def request_url(url: str) -> str:
    """``url`` as it is sent: no login, no fragment, and codes for characters that are not allowed.

    Raises ``Unreachable`` for a host that cannot be a name.

    >>> request_url("http://me:pw@b\u00fccher.example/50% of it#top")
    'http://xn--bcher-kva.example/50%25%20of%20it'
    """
    parts = urlsplit(url)
    server = parts.netloc.rpartition("@")[2]
    try:
        server = server if server.isascii() else server.encode("idna").decode("ascii")
    except UnicodeError:
        raise Unreachable(f"expected the name of a host, found {shown_url(url)}") from None
    path = quote(_STRAY_PERCENT.sub("%25", parts.path or "/"), safe=_UNQUOTED)
    return parts._replace(netloc=server, path=path, fragment="").geturl()
