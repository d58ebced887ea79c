"""The URL schemes of each kind of store, and the credentials that fit a scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.credentials import (
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
#: Kind of store -> access without credentials, and access with those of the environment.
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
    """The scheme of a prefix. Early versions of the format have prefixes that are only a scheme: ``s3``."""
    return url_prefix.partition(":")[0].lower()


def require_scheme(store: AnyObjectStoreConfig, url_prefix: str) -> None:
    """Raise ``InvalidInputError`` (``invalid-virtual-ref``) if the store cannot hold such URLs."""
    schemes = SCHEMES[type(store)]
    if scheme_of(url_prefix) not in schemes:
        expected = " or ".join(f"{scheme}://" for scheme in schemes) or "no container"
        raise InvalidInputError(
            f"virtual chunk container: expected {expected} for {type(store).__name__}, "
            f"found {shown_url(url_prefix)}",
            ErrorKind.INVALID_VIRTUAL_REF,
        )


def anonymous_access(url_prefix: str) -> AnyCredential:
    """Permission to read below a prefix without credentials.

    Raises ``InvalidInputError`` (``invalid-credentials``) for a scheme that no store has.

    >>> anonymous_access("file:///data/")
    <frazil.credentials.Credentials.LocalFileSystemAccess>
    <BLANKLINE>
    """
    return _access(url_prefix)[0]()


def environment_access(url_prefix: str) -> AnyCredential:
    """Permission to read below a prefix with the credentials in the environment of the process.

    Files and web addresses need no credentials. Raises as ``anonymous_access`` does.
    """
    return _access(url_prefix)[1]()


def _access(url_prefix: str) -> tuple[_Access, _Access]:
    scheme = scheme_of(url_prefix)
    for kind, access in _ACCESS.items():
        if scheme in SCHEMES[kind]:
            return access
    raise InvalidInputError(
        "authorize_virtual_chunk_access: expected a prefix of file, s3, gs, az, http or https URLs, "
        f"found {shown_url(url_prefix)!r}",
        ErrorKind.INVALID_CREDENTIALS,
    )
