"""Options, headers and addresses of stores: which of them Frazil may print and save unchanged.

The lists name the harmless ones. Everything else counts as a secret, because clients get new options with
every version, and each of them may hold a credential. Clients accept several spellings of one option
(``endpoint``, ``AWS_ENDPOINT_URL``, ``azure_storage_endpoint``), so names are compared in their plain form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError

#: Options of HTTP clients that decide neither which server is asked nor what is sent.
CLIENT_OPTIONS: Final = frozenset(
    {
        "connect_timeout",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "randomize_addresses",
        "read_timeout",
        "timeout",
    }
)

#: Headers that request a form of the answer and do not identify a user.
PLAIN_HEADERS: Final = frozenset({"accept", "accept-language", "cache-control", "pragma", "user-agent"})

#: Options that hold no secret, though some of them decide which server is asked.
_PUBLIC: Final = CLIENT_OPTIONS | {
    "account",
    "account_name",
    "allow_http",
    "allow_invalid_certificates",
    "anonymous",
    "authority_host",
    "base_url",
    "bucket",
    "bucket_name",
    "container_name",
    "default_content_type",
    "default_region",
    "disable_tagging",
    "endpoint",
    "endpoint_url",
    "msi_endpoint",
    "proxy_excludes",
    "proxy_url",
    "region",
    "request_payer",
    "skip_signature",
    "use_emulator",
    "use_fabric_endpoint",
    "user_agent",
    "virtual_hosted_style_request",
}

#: Prefixes of option names that some clients use.
_VENDOR: Final = re.compile(r"(aws|google|azure_storage|azure)_")
#: Options whose values are addresses.
_ADDRESSES: Final = frozenset(
    {"authority_host", "base_url", "endpoint", "endpoint_url", "msi_endpoint", "proxy_url"}
)
#: Clients also read an address without a scheme, ``user:password@proxy:3128``, and repair wrong slashes.
_USER: Final = re.compile(r"(?i)^(\s*(?:https?:[/\\]*|[a-z][a-z0-9+.-]*://|//)?)[^/\\?#]*@")
_QUERY: Final = re.compile(r"([?&](?![&#]|$)(?:[^=&#]*=)?)[^&#]*")
#: Parsers of URLs remove these, wherever they are.
_REMOVED: Final = re.compile(r"[\t\r\n]")
_WEB: Final = re.compile(r"(?i)\s*https?:")

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NOT_IN_A_HEADER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

MASK: Final = "****"


def plain_name(option: str) -> str:
    """The plain form of an option's name.

    >>> plain_name("AZURE_STORAGE_Endpoint"), plain_name("proxy-url")
    ('endpoint', 'proxy_url')
    """
    return _VENDOR.sub("", option.strip().lower().replace("-", "_"), count=1)


def shown_url(url: str) -> str:
    """A URL without the user's name and password, and without the values of a web address's query.

    >>> shown_url("https://me:secret@example.org/data?sig=abc")
    'https://****@example.org/data?sig=****'
    """
    shown = _USER.sub(rf"\1{MASK}@", _REMOVED.sub("", url))
    return _QUERY.sub(rf"\1{MASK}", shown) if _WEB.match(shown) else shown


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options as they may be printed."""
    return {name: _shown_option(plain_name(name), value) for name, value in options.items()}


def _shown_option(name: str, value: str) -> str:
    if name not in _PUBLIC:
        return MASK
    return shown_url(value) if name in _ADDRESSES or "://" in value else value


def shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as they may be printed."""
    return {name: value if name.lower() in PLAIN_HEADERS else MASK for name, value in headers.items()}


def secret_options(options: Mapping[str, str]) -> Iterator[str]:
    """The names of options that may hold a secret."""
    shown = shown_options(options)
    return (name for name, value in options.items() if shown[name] != value)


def secret_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """The names of headers that may hold a secret."""
    return (name for name in headers if name.lower() not in PLAIN_HEADERS)


def check_headers(headers: Mapping[str, str] | None) -> None:
    """Raise ``InvalidInputError`` (``storage-config``) for headers that HTTP does not allow.

    The message quotes no value, because values of headers are often secret.

    >>> check_headers({"bad name": "x"})
    Traceback (most recent call last):
    frazil.errors.InvalidInputError: header 'bad name': expected a name of letters, digits and -, found others
    """
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"header {name!r}: expected text for its name and value")
        if _HEADER_NAME.fullmatch(name) is None:
            raise InvalidInputError(
                f"header {name!r}: expected a name of letters, digits and -, found others",
                ErrorKind.STORAGE_CONFIG,
            )
        if _NOT_IN_A_HEADER.search(value):
            raise InvalidInputError(
                f"header {name!r}: expected a value without line breaks and control characters, found some",
                ErrorKind.STORAGE_CONFIG,
            )
