"""What a container of virtual chunks may be: its kind of store and URL scheme, and what a repository may set.

Readers may not trust the author of a repository. If a repository could choose the server or name files, it
could send the user's credentials to any server, or the content of files. Therefore a saved container is only
a hint: it may set time-outs, and the region or account in the public service that belongs to the scheme of
the prefix. An option of a later version of a client is refused until a developer adds it to this list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.credential_families import (
    AnyCredential,
    AzureCredentials,
    Credentials,
    GcsCredentials,
    S3Credentials,
    wrong_credentials,
)
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.option_names import CLIENT_OPTIONS, PLAIN_HEADERS, plain_name, shown_url

SCHEMES: Final[dict[type, tuple[str, ...]]] = {
    ObjectStoreConfig.InMemory: (),
    ObjectStoreConfig.LocalFileSystem: ("file",),
    ObjectStoreConfig.S3: ("s3",),
    ObjectStoreConfig.S3Compatible: ("s3",),
    ObjectStoreConfig.Tigris: ("s3", "tigris"),
    ObjectStoreConfig.Gcs: ("gs", "gcs"),
    ObjectStoreConfig.Azure: ("az", "azure", "abfs"),
    ObjectStoreConfig.Http: ("http", "https"),
}

#: Kind of store -> the class of its access, and the credentials that it contains.
_ACCESS: Final[dict[type, tuple[Callable[..., AnyCredential], Any]]] = {
    ObjectStoreConfig.LocalFileSystem: (Credentials.LocalFileSystemAccess, None),
    ObjectStoreConfig.S3: (Credentials.S3, S3Credentials),
    ObjectStoreConfig.Tigris: (Credentials.S3, S3Credentials),
    ObjectStoreConfig.Gcs: (Credentials.Gcs, GcsCredentials),
    ObjectStoreConfig.Azure: (Credentials.Azure, AzureCredentials),
    ObjectStoreConfig.Http: (Credentials.HttpAccess, None),
}


def scheme_of(url_prefix: str) -> str:
    """Return the scheme of a URL prefix, in lower case.

    Early versions of the format have prefixes that are only a scheme, for example ``s3``.
    """
    return url_prefix.partition(":")[0].lower()


def require_scheme(store: AnyObjectStoreConfig, url_prefix: str) -> None:
    """Raise ``InvalidInputError`` (``invalid-virtual-ref``) if the store cannot hold URLs of this prefix."""
    schemes = SCHEMES[type(store)]
    if scheme_of(url_prefix) not in schemes:
        expected = (
            " or ".join(f"{scheme}://" for scheme in schemes)
            or "nothing: this store cannot hold virtual chunks"
        )
        raise InvalidInputError(
            f"the URL prefix of a virtual chunk container in {type(store).__name__} must begin with "
            f"{expected}, got {shown_url(url_prefix)}. Change the prefix or the store",
            ErrorKind.INVALID_VIRTUAL_REF,
        )


def anonymous_access(url_prefix: str) -> AnyCredential:
    """Return the permission to read below a URL prefix without credentials."""
    return _access(url_prefix, "Anonymous")


def environment_access(url_prefix: str) -> AnyCredential:
    """Return the permission to read below a URL prefix with the environment's credentials, where needed."""
    return _access(url_prefix, "FromEnv")


def _access(url_prefix: str, variant: str) -> AnyCredential:
    scheme = scheme_of(url_prefix)
    for kind, (access, family) in _ACCESS.items():
        if scheme in SCHEMES[kind]:
            return access() if family is None else access(getattr(family, variant)())
    raise wrong_credentials(
        "the prefixes in authorize_virtual_chunk_access must be file, s3, gs, az, http or https URLs, "
        f"got {shown_url(url_prefix)!r}"
    )


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
        case (
            ObjectStoreConfig.S3(options)
            | ObjectStoreConfig.S3Compatible(options)
            | ObjectStoreConfig.Tigris(options)
        ):
            if isinstance(store, ObjectStoreConfig.Tigris) and scheme_of(url_prefix) != "tigris":
                yield "the endpoint of Tigris for an s3:// prefix"
            if options.endpoint_url is not None:
                yield "`endpoint_url`"
            if options.allow_http:
                yield "`allow_http`"
            if options.region is not None:
                yield from _offences_of({"region": options.region}, _HOST_PARTS)
        case ObjectStoreConfig.Gcs(opts):
            yield from _offences_of(opts or {}, _GCS)
        case ObjectStoreConfig.Azure(opts):
            yield from _offences_of(opts or {}, _AZURE)
        case ObjectStoreConfig.Http(opts, headers):
            yield from _offences_of(opts or {}, CLIENT_OPTIONS)
            yield from (f"the header `{name}`" for name in headers or {} if name.lower() not in PLAIN_HEADERS)


def _offences_of(options: Mapping[str, str], allowed: frozenset[str]) -> Iterator[str]:
    for option, value in options.items():
        name = plain_name(option)
        if name not in allowed:
            yield f"`{option}`"
        elif name in _HOST_PARTS and _HOST_PART.fullmatch(value) is None:
            yield f"`{option}` to a value with other characters than letters, digits and hyphens"
