"""Permission to read virtual chunk containers: by URL prefix, with the credentials for it."""

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
    """Leave to read virtual chunks in a container, and the credentials to do it with."""

    @dataclass(frozen=True, slots=True, repr=False)
    class S3(Credential):
        """Leave to read S3."""

        credentials: AnyS3Credential

    @dataclass(frozen=True, slots=True, repr=False)
    class Gcs(Credential):
        """Leave to read GCS."""

        credentials: AnyGcsCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class Azure(Credential):
        """Leave to read Azure."""

        credentials: AnyAzureCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class LocalFileSystemAccess(Credential):
        """Leave to read files of this machine."""

    @dataclass(frozen=True, slots=True, repr=False)
    class HttpAccess(Credential):
        """Leave to read from the web."""


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
    """Credentials by the URL prefix of their container, for ``authorize_virtual_chunk_access``.

    Raises ``InvalidInputError`` (a ``ValueError``) for anything that is not a credential.

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
        f"container {prefix}: expected credentials for S3, GCS or Azure, LocalFileSystemAccess, "
        f"HttpAccess or None, found {type(credential).__name__}",
        ErrorKind.INVALID_CREDENTIALS,
    )
