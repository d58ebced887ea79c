"""Options, headers and URLs of stores: the ones that Frazil may print and save unchanged.

All options that are not listed count as secrets, because a new version of a client may add options with a
credential. Clients accept several spellings of an option, so names are compared in their plain form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from frazil.errors import ErrorKind, InvalidInputError

#: Options of HTTP clients that change neither the server nor the content of a request.
CLIENT_OPTIONS: Final = frozenset(
    {
        *("connect_timeout", "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout"),
        *("http2_keep_alive_while_idle", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host"),
        *("randomize_addresses", "read_timeout", "timeout"),
    }
)

#: Headers that request a form of the answer and do not identify a user.
PLAIN_HEADERS: Final = frozenset({"accept", "accept-language", "cache-control", "pragma", "user-agent"})

#: Options without a secret. Some of them change the server of a request.
_PUBLIC: Final = CLIENT_OPTIONS | {
    *("account", "account_name", "bucket", "bucket_name", "container_name"),
    *(
        "authority_host",
        "base_url",
        "endpoint",
        "endpoint_url",
        "msi_endpoint",
        "proxy_excludes",
        "proxy_url",
    ),
    *("allow_http", "allow_invalid_certificates", "anonymous", "default_content_type", "disable_tagging"),
    *("default_region", "region", "request_payer", "skip_signature", "use_emulator", "use_fabric_endpoint"),
    *("proxy_url", "user_agent", "virtual_hosted_style_request"),
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
#: Parsers of URLs remove these characters at any position.
_REMOVED: Final = re.compile(r"[\t\r\n]")
_WEB: Final = re.compile(r"(?i)\s*https?:")

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NOT_IN_A_HEADER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

MASK: Final = "****"


def plain_name(option: str) -> str:
    """Return the plain form of the name of an option."""
    return _VENDOR.sub("", option.strip().lower().replace("-", "_"), count=1)


def shown_url(url: str) -> str:
    """Return a URL without user name and password, and without the values of a web URL's query."""
    shown = _USER.sub(rf"\1{MASK}@", _REMOVED.sub("", url))
    return _QUERY.sub(rf"\1{MASK}", shown) if _WEB.match(shown) else shown


def address_parts(url: str) -> SplitResult | None:
    """Return the parts of a URL with a scheme, a host and no invalid port. None for another text."""
    try:
        parts = urlsplit(url)
        return parts if parts.scheme and parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with their secret values masked, for messages."""
    shown = {}
    for option, value in options.items():
        name = plain_name(option)
        is_address = name in _ADDRESSES or "://" in value
        shown[option] = MASK if name not in _PUBLIC else shown_url(value) if is_address else value
    return shown


def secret_options(options: Mapping[str, str]) -> Iterator[str]:
    """Return the names of the options that may contain a secret."""
    shown = shown_options(options)
    return (name for name, value in options.items() if shown[name] != value)


def check_headers(headers: Mapping[str, str] | None) -> None:
    """Raise an error for headers that HTTP does not allow.

    The message never contains a value, because values of headers are often secret.
    """
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"the name and value of header {name!r} must be text")
        if _HEADER_NAME.fullmatch(name) is None:
            raise InvalidInputError(
                f"a header's name must have letters, digits and -, got {name!r}", ErrorKind.STORAGE_CONFIG
            )
        if _NOT_IN_A_HEADER.search(value):
            raise InvalidInputError(
                f"the value of header {name!r} must not have control characters", ErrorKind.STORAGE_CONFIG
            )
