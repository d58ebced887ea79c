"""Credentials for Azure blob storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from frazil.arguments import checked
from frazil.display import Family
from frazil.storage.credentials.base import Credential, CredentialFactory, build_static_variant, call_refresh

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


class AzureRefreshableCredential(metaclass=Family):
    """What a refreshing function for Azure may return."""

    @dataclass(frozen=True, slots=True, repr=False)
    class AccessKey(Credential):
        """A storage account's key."""

        key: str
        expires_after: datetime | None = None
        _secret: ClassVar[frozenset[str]] = frozenset({"key"})

    @dataclass(frozen=True, slots=True, repr=False)
    class SasToken(Credential):
        """A shared access signature."""

        token: str
        expires_after: datetime | None = None
        _secret: ClassVar[frozenset[str]] = frozenset({"token"})

    @dataclass(frozen=True, slots=True, repr=False)
    class BearerToken(Credential):
        """An OAuth bearer token."""

        bearer: str
        expires_after: datetime | None = None
        _secret: ClassVar[frozenset[str]] = frozenset({"bearer"})


AnyAzureRefreshableCredential = (
    AzureRefreshableCredential.AccessKey
    | AzureRefreshableCredential.SasToken
    | AzureRefreshableCredential.BearerToken
)


class AzureStaticCredentials(metaclass=Family):
    """Credentials for Azure that do not change."""

    @dataclass(frozen=True, slots=True, repr=False)
    class AccessKey(Credential):
        """A storage account's key."""

        key: str
        _secret: ClassVar[frozenset[str]] = frozenset({"key"})

    @dataclass(frozen=True, slots=True, repr=False)
    class SasToken(Credential):
        """A shared access signature."""

        token: str
        _secret: ClassVar[frozenset[str]] = frozenset({"token"})

    @dataclass(frozen=True, slots=True, repr=False)
    class BearerToken(Credential):
        """An OAuth bearer token."""

        token: str
        _secret: ClassVar[frozenset[str]] = frozenset({"token"})


AnyAzureStaticCredential = (
    AzureStaticCredentials.AccessKey | AzureStaticCredentials.SasToken | AzureStaticCredentials.BearerToken
)


class AzureCredentials(metaclass=Family):
    """How to authorise requests to Azure blob storage."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Anonymous(Credential):
        """Requests without credentials."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FromEnv(Credential):
        """Whatever the environment offers."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Static(Credential):
        """Credentials that do not change."""

        credentials: AnyAzureStaticCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class Refreshable(Credential):
        """Credentials from a pickled callable; ``current`` is used until it expires."""

        pickled_function: bytes
        current: AnyAzureRefreshableCredential | None = None

        _secret: ClassVar[frozenset[str]] = frozenset({"pickled_function"})

        def refresh(self) -> AnyAzureRefreshableCredential:
            """Call the function for new credentials."""
            answer: AnyAzureRefreshableCredential = call_refresh(
                self.pickled_function, AzureRefreshableCredential
            )
            return answer


AnyAzureCredential = (
    AzureCredentials.FromEnv
    | AzureCredentials.Anonymous
    | AzureCredentials.Static
    | AzureCredentials.Refreshable
)


_FACTORY: Final = CredentialFactory("azure_credentials", AzureCredentials)


@checked
def azure_static_credentials(
    *, access_key: str | None = None, sas_token: str | None = None, bearer_token: str | None = None
) -> AnyAzureStaticCredential:
    """Static credentials for Azure, by the one argument that was given."""
    ways: dict[str, tuple[str | None, Callable[[str], AnyAzureStaticCredential]]] = {
        "access_key": (access_key, AzureStaticCredentials.AccessKey),
        "sas_token": (sas_token, AzureStaticCredentials.SasToken),
        "bearer_token": (bearer_token, AzureStaticCredentials.BearerToken),
    }
    return build_static_variant("azure_static_credentials", ways)


@checked
def azure_refreshable_credentials(
    get_credentials: Callable[[], AnyAzureRefreshableCredential], scatter_initial_credentials: bool = False
) -> AzureCredentials.Refreshable:
    """Credentials that ``get_credentials`` (which must be picklable) gives, again when they expire."""
    credentials: AzureCredentials.Refreshable = _FACTORY.build_refreshable(
        get_credentials, scatter_initial_credentials
    )
    return credentials


@checked
def azure_from_env_credentials() -> AzureCredentials.FromEnv:
    """Credentials for Azure from the environment."""
    return AzureCredentials.FromEnv()


@checked
def azure_anonymous_credentials() -> AzureCredentials.Anonymous:
    """Requests to Azure without credentials."""
    return AzureCredentials.Anonymous()


@checked
def azure_credentials(
    *,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    get_credentials: Callable[[], AnyAzureRefreshableCredential] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyAzureCredential:
    """Credentials for Azure by the one way that was given; from the environment if none was."""
    static = {"access_key": access_key, "sas_token": sas_token, "bearer_token": bearer_token}
    credentials: AnyAzureCredential = _FACTORY.build(
        {name: value is not None for name, value in static.items()},
        lambda: azure_static_credentials(**static),
        anonymous,
        from_env,
        get_credentials,
        scatter_initial_credentials,
    )
    return credentials
