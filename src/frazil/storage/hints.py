"""The options that a repository may set in a container of virtual chunks.

Readers may not trust the author of a repository. The user authorises a URL prefix, and the repository names
the store for it. If the repository could also choose the server, it could send the user's credentials to any
server. If it could name files with credentials, it could send the content of these files. Therefore a saved
container is only a hint. It may set time-outs, and the region or account in the public service that belongs
to the scheme of the prefix.

This module lists the options that are allowed. It does not list the forbidden ones, so that an option of a
later version of a client is refused until a developer reviews it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.access import require_scheme, scheme_of
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig, S3Options
from frazil.storage.option_names import CLIENT_OPTIONS, PLAIN_HEADERS, plain_name, shown_url

#: Options that become a part of the server's name. Their values are checked.
_HOST_PARTS: Final = frozenset({"account", "account_name", "region"})
_HOST_PART: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")

_GCS: Final = CLIENT_OPTIONS | {"skip_signature"}
_AZURE: Final = CLIENT_OPTIONS | {"account", "account_name", "skip_signature", "disable_tagging"}


def require_hint(store: AnyObjectStoreConfig, url_prefix: str) -> None:
    """Raise ``InvalidInputError`` unless a repository may set this store for the URLs below the prefix."""
    require_scheme(store, url_prefix)
    offences = list(dict.fromkeys(_offences(store, url_prefix)))
    if offences:
        raise InvalidInputError(
            f"the repository's container {shown_url(url_prefix)!r} sets {', '.join(offences)}. A repository "
            "may not choose the server, file or secret that its readers use",
            ErrorKind.UNTRUSTED_VIRTUAL_CHUNK_CONTAINER,
        ).with_remedy(
            "If you trust these options, open the repository with config= and your own VirtualChunkContainer "
            "for this prefix: create a new container, or call as_own() on the saved one",
            shell="If you trust these options, read the array in Python, with your own container",
        )


def _offences(store: AnyObjectStoreConfig, url_prefix: str) -> Iterator[str]:
    match store:
        case ObjectStoreConfig.S3(options) | ObjectStoreConfig.S3Compatible(options):
            yield from _offences_of_s3(options)
        case ObjectStoreConfig.Tigris(options):
            if scheme_of(url_prefix) != "tigris":
                yield "the endpoint of Tigris for an s3:// prefix"
            yield from _offences_of_s3(options)
        case ObjectStoreConfig.Gcs(opts):
            yield from _offences_of(opts or {}, _GCS)
        case ObjectStoreConfig.Azure(opts):
            yield from _offences_of(opts or {}, _AZURE)
        case ObjectStoreConfig.Http(opts, headers):
            yield from _offences_of(opts or {}, CLIENT_OPTIONS)
            yield from (f"the header `{name}`" for name in headers or {} if name.lower() not in PLAIN_HEADERS)
        case _:
            pass


def _offences_of_s3(options: S3Options) -> Iterator[str]:
    if options.endpoint_url is not None:
        yield "`endpoint_url`"
    if options.allow_http:
        yield "`allow_http`"
    if options.region is not None:
        yield from _offences_of({"region": options.region}, _HOST_PARTS)


def _offences_of(options: Mapping[str, str], allowed: frozenset[str]) -> Iterator[str]:
    for option, value in options.items():
        name = plain_name(option)
        if name not in allowed:
            yield f"`{option}`"
        elif name in _HOST_PARTS and _HOST_PART.fullmatch(value) is None:
            yield f"`{option}` to a value with other characters than letters, digits and hyphens"
