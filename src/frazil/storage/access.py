"""The URL schemes of each kind of store, and the credentials that fit a scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.credential_families import (
    AnyCredential,
    AzureCredentials,
    Credentials,
    GcsCredentials,
    S3Credentials,
)
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.option_names import shown_url

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

type _Access = Callable[[], AnyCredential]

_S3: Final[tuple[_Access, _Access]] = (
    lambda: Credentials.S3(S3Credentials.Anonymous()),
    lambda: Credentials.S3(S3Credentials.FromEnv()),
)
#: Kind of store -> access without credentials, access with the credentials of the environment.
_ACCESS: Final[dict[type, tuple[_Access, _Access]]] = {
    ObjectStoreConfig.LocalFileSystem: (
        Credentials.LocalFileSystemAccess,
        Credentials.LocalFileSystemAccess,
    ),
    ObjectStoreConfig.S3: _S3,
    ObjectStoreConfig.Tigris: _S3,
    ObjectStoreConfig.Gcs: (
        lambda: Credentials.Gcs(GcsCredentials.Anonymous()),
        lambda: Credentials.Gcs(GcsCredentials.FromEnv()),
    ),
    ObjectStoreConfig.Azure: (
        lambda: Credentials.Azure(AzureCredentials.Anonymous()),
        lambda: Credentials.Azure(AzureCredentials.FromEnv()),
    ),
    ObjectStoreConfig.Http: (Credentials.HttpAccess, Credentials.HttpAccess),
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
    return _access(url_prefix)[0]()


def environment_access(url_prefix: str) -> AnyCredential:
    """Return the permission to read below a URL prefix with the credentials of the environment.

    Files and web servers need no credentials.
    """
    return _access(url_prefix)[1]()


def _access(url_prefix: str) -> tuple[_Access, _Access]:
    scheme = scheme_of(url_prefix)
    for kind, access in _ACCESS.items():
        if scheme in SCHEMES[kind]:
            return access
    raise InvalidInputError(
        "the prefixes in authorize_virtual_chunk_access must be file, s3, gs, az, http or https URLs, "
        f"got {shown_url(url_prefix)!r}",
        ErrorKind.INVALID_CREDENTIALS,
    )
