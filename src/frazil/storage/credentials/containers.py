"""Permissions to read virtual chunk containers, by URL prefix, with the credentials for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from frazil.arguments import checked
from frazil.display import Family
from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.credentials.azure import AnyAzureCredential, AzureCredentials
from frazil.storage.credentials.base import Credential
from frazil.storage.credentials.gcs import AnyGcsCredential, GcsCredentials
from frazil.storage.credentials.s3 import AnyS3Credential, S3Credentials


class Credentials(metaclass=Family):
    """The permission to read virtual chunks in a container, with credentials. One of the nested classes."""

    @dataclass(frozen=True, slots=True, repr=False)
    class S3(Credential):
        """The permission to read objects in S3."""

        credentials: AnyS3Credential

    @dataclass(frozen=True, slots=True, repr=False)
    class Gcs(Credential):
        """The permission to read objects in Google Cloud Storage."""

        credentials: AnyGcsCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class Azure(Credential):
        """The permission to read objects in Azure blob storage."""

        credentials: AnyAzureCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class LocalFileSystemAccess(Credential):
        """The permission to read local files."""

    @dataclass(frozen=True, slots=True, repr=False)
    class HttpAccess(Credential):
        """The permission to read from web servers."""


AnyCredential = (
    Credentials.S3
    | Credentials.Gcs
    | Credentials.Azure
    | Credentials.LocalFileSystemAccess
    | Credentials.HttpAccess
)

LocalFileSystemAccess = Credentials.LocalFileSystemAccess()
HttpAccess = Credentials.HttpAccess()

_ACCESS = (Credentials.LocalFileSystemAccess, Credentials.HttpAccess)
_WRAPPERS: tuple[tuple[type, Callable[[Any], AnyCredential]], ...] = (
    (S3Credentials, Credentials.S3),
    (GcsCredentials, Credentials.Gcs),
    (AzureCredentials, Credentials.Azure),
)


@checked
def containers_credentials(
    m: Mapping[
        str,
        AnyS3Credential
        | AnyGcsCredential
        | AnyAzureCredential
        | Credentials.LocalFileSystemAccess
        | Credentials.HttpAccess
        | None,
    ],
) -> dict[str, AnyCredential | None]:
    """Return permissions for ``authorize_virtual_chunk_access``, by URL prefix of the container.

    Args:
        m: URL prefix -> credentials of S3, GCS or Azure, ``LocalFileSystemAccess``, ``HttpAccess``, or None
            for access without credentials.

    Returns:
        URL prefix -> permission.

    Raises:
        InvalidInputError: ``invalid-credentials`` for a value that is not a credential.

    Examples:
        >>> from frazil.storage.credentials import s3_anonymous_credentials
        >>> containers_credentials({"s3://bucket/": s3_anonymous_credentials()})["s3://bucket/"]
        <frazil.credentials.Credentials.S3>
        credentials:
            <frazil.credentials.S3Credentials.Anonymous>
        <BLANKLINE>
    """
    return {prefix: _wrap(prefix, credential) for prefix, credential in m.items()}


def _wrap(prefix: str, credential: Any) -> AnyCredential | None:
    if credential is None or isinstance(credential, _ACCESS):
        return credential
    for family, wrap in _WRAPPERS:
        if isinstance(credential, family):
            return wrap(credential)
    raise InvalidInputError(
        f"the value for container {prefix} must be credentials for S3, GCS or Azure, LocalFileSystemAccess, "
        f"HttpAccess or None, got {type(credential).__name__}",
        ErrorKind.INVALID_CREDENTIALS,
    )
