"""Credentials for object stores, as values. ``repr``, ``str`` and HTML never show a secret.

A refreshable credential contains a pickle of a function, because sessions are sent to other processes with
their credentials. ``Credentials`` wraps the credentials for virtual chunk containers.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, Final, dataclass_transform

from frazil.arguments import check_fields
from frazil.display import PACKAGE, Family, Numbered, Record, Shown, literal
from frazil.errors import ErrorKind, InvalidInputError


class _CredentialFamily(Family):
    """The metaclass of a family of credentials. It makes a frozen dataclass of each class inside."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _CredentialFamily:
        for variant, value in [*namespace.items()]:
            if isinstance(value, type):
                namespace[variant] = dataclass(frozen=True, slots=True, repr=False)(value)
        return super().__new__(cls, name, bases, namespace)


def wrong_credentials(text: str) -> InvalidInputError:
    """Return the error (``invalid-credentials``) for credentials, and functions that get them."""
    return InvalidInputError(text, ErrorKind.INVALID_CREDENTIALS)


#: The fields without a secret.
_PUBLIC_FIELDS: Final = frozenset({"path", "expires_after"})


@dataclass_transform(frozen_default=True)
class Credential(Numbered, Record):
    """A frozen value that prints its secret fields as stars."""

    __slots__ = ()

    def _title(self) -> str:
        return f"{PACKAGE}.credentials.{type(self).__qualname__}"

    def __post_init__(self) -> None:
        check_fields(self)
        expires = getattr(self, "expires_after", None)
        if expires is not None and expires.tzinfo is None:
            raise TypeError(f"expires_after must have a time zone, got {expires.isoformat()}")

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for f in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            yield f.name, self._masked(f.name, getattr(self, f.name))

    def _masked(self, name: str, value: Any) -> str | Record:
        if isinstance(value, Record):
            return value
        return literal(value) if value is None or name in _PUBLIC_FIELDS else "****"


@dataclass(frozen=True, slots=True, repr=False)
class RefreshableCredential[C: Credential](Credential):
    """Credentials from a pickled function. ``current`` is used until it expires."""

    pickled_function: bytes
    current: C | None = None

    answers: ClassVar[type]

    def refresh(self) -> C:
        """Call the function and return the new credentials."""
        answer: C = pickle.loads(self.pickled_function)()
        if not isinstance(answer, self.answers):
            raise wrong_credentials(
                f"get_credentials must return {self.answers.__name__}, got {type(answer).__name__}"
            )
        return answer


@dataclass(frozen=True, slots=True, repr=False)
class S3StaticCredentials(Credential):
    """An access key for S3, which may be temporary.

    ``session_token`` belongs to a temporary key. ``expires_after`` has a time zone; otherwise a ``TypeError``
    is raised. None means that the key does not expire.

    Examples:
        >>> print(S3StaticCredentials("AKIAEXAMPLE", "secret"), end="")
        <frazil.credentials.S3StaticCredentials>
        access_key_id: AKIA****
        secret_access_key: ****
        session_token: None
        expires_after: None
    """

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    expires_after: datetime | None = None

    def _masked(self, name: str, value: Any) -> str | Record:
        if name == "access_key_id":
            return f"{value[:4]}****"
        return super(S3StaticCredentials, self)._masked(name, value)


class S3Credentials(metaclass=_CredentialFamily):
    """Credentials for S3 and similar servers. One of the nested classes."""

    class FromEnv(Credential):
        """Credentials of the environment: variables, AWS profile, container or instance role."""

    class Anonymous(Credential):
        """Requests without a signature."""

    class Static(Credential):
        """An access key that does not change."""

        credentials: S3StaticCredentials

    class Refreshable(RefreshableCredential[S3StaticCredentials]):
        """Access keys from a pickled function. ``current`` is used until it expires."""

        answers = S3StaticCredentials


AnyS3Credential = (
    S3Credentials.Static | S3Credentials.Anonymous | S3Credentials.FromEnv | S3Credentials.Refreshable
)


@dataclass(frozen=True, slots=True, repr=False)
class GcsBearerCredential(Credential):
    """An OAuth bearer token for Google Cloud Storage.

    ``expires_after`` has a time zone; otherwise a ``TypeError`` is raised. None: the token does not expire.
    """

    bearer: str
    expires_after: datetime | None = field(default=None, kw_only=True)

    __match_args__: ClassVar[tuple[str, ...]] = ("bearer", "expires_after")


class GcsStaticCredentials(metaclass=_CredentialFamily):
    """Credentials for Google Cloud Storage that do not change. One of the nested classes."""

    class ServiceAccount(Credential):
        """A file with the key of a service account."""

        path: str

    class ServiceAccountKey(Credential):
        """The key of a service account, as JSON text."""

        key: str

    class ApplicationCredentials(Credential):
        """A file with application default credentials."""

        path: str

    class BearerToken(Credential):
        """An OAuth bearer token."""

        token: str


AnyGcsStaticCredential = (
    GcsStaticCredentials.ServiceAccount
    | GcsStaticCredentials.ServiceAccountKey
    | GcsStaticCredentials.ApplicationCredentials
    | GcsStaticCredentials.BearerToken
)


class GcsCredentials(metaclass=_CredentialFamily):
    """Credentials for Google Cloud Storage. One of the nested classes."""

    class Anonymous(Credential):
        """Requests without credentials."""

    class FromEnv(Credential):
        """Credentials of the environment: variables, files of the user, metadata of the machine."""

    class Static(Credential):
        """Credentials that do not change."""

        credentials: AnyGcsStaticCredential

    class Refreshable(RefreshableCredential[GcsBearerCredential]):
        """Bearer tokens from a pickled function. ``current`` is used until it expires."""

        answers = GcsBearerCredential


AnyGcsCredential = (
    GcsCredentials.Anonymous | GcsCredentials.FromEnv | GcsCredentials.Static | GcsCredentials.Refreshable
)


class AzureRefreshableCredential(metaclass=_CredentialFamily):
    """The possible results of a function that refreshes credentials for Azure."""

    class AccessKey(Credential):
        """The key of a storage account."""

        key: str
        expires_after: datetime | None = None

    class SasToken(Credential):
        """A shared access signature."""

        token: str
        expires_after: datetime | None = None

    class BearerToken(Credential):
        """An OAuth bearer token."""

        bearer: str
        expires_after: datetime | None = None


AnyAzureRefreshableCredential = (
    AzureRefreshableCredential.AccessKey
    | AzureRefreshableCredential.SasToken
    | AzureRefreshableCredential.BearerToken
)


class AzureStaticCredentials(metaclass=_CredentialFamily):
    """Credentials for Azure that do not change. One of the nested classes."""

    class AccessKey(Credential):
        """The key of a storage account."""

        key: str

    class SasToken(Credential):
        """A shared access signature."""

        token: str

    class BearerToken(Credential):
        """An OAuth bearer token."""

        token: str


AnyAzureStaticCredential = (
    AzureStaticCredentials.AccessKey | AzureStaticCredentials.SasToken | AzureStaticCredentials.BearerToken
)


class AzureCredentials(metaclass=_CredentialFamily):
    """Credentials for Azure blob storage. One of the nested classes."""

    class Anonymous(Credential):
        """Requests without credentials."""

    class FromEnv(Credential):
        """Credentials of the environment: variables, workload identity or managed identity."""

    class Static(Credential):
        """Credentials that do not change."""

        credentials: AnyAzureStaticCredential

    class Refreshable(RefreshableCredential[Any]):
        """Credentials from a pickled function. ``current`` is used until it expires."""

        answers = AzureRefreshableCredential


AnyAzureCredential = (
    AzureCredentials.FromEnv
    | AzureCredentials.Anonymous
    | AzureCredentials.Static
    | AzureCredentials.Refreshable
)


class Credentials(metaclass=_CredentialFamily):
    """The permission to read virtual chunks in a container, with credentials. One of the nested classes."""

    class S3(Credential):
        """The permission to read objects in S3."""

        credentials: AnyS3Credential

    class Gcs(Credential):
        """The permission to read objects in Google Cloud Storage."""

        credentials: AnyGcsCredential

    class Azure(Credential):
        """The permission to read objects in Azure blob storage."""

        credentials: AnyAzureCredential

    class LocalFileSystemAccess(Credential):
        """The permission to read local files."""

    class HttpAccess(Credential):
        """The permission to read from web servers."""


AnyCredential = (
    Credentials.S3
    | Credentials.Gcs
    | Credentials.Azure
    | Credentials.LocalFileSystemAccess
    | Credentials.HttpAccess
)


LocalFileSystemAccess: Final = Credentials.LocalFileSystemAccess()


HttpAccess: Final = Credentials.HttpAccess()
