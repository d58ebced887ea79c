"""Credentials for Azure blob storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from frazil.argument_docs import with_argument_docs
from frazil.arguments import checked
from frazil.display import Family
from frazil.storage.credentials.base import Credential, CredentialFactory, build_static_variant, call_refresh

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


class AzureRefreshableCredential(metaclass=Family):
    """The possible results of a function that refreshes credentials for Azure."""

    @dataclass(frozen=True, slots=True, repr=False)
    class AccessKey(Credential):
        """The key of a storage account."""

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
    """Credentials for Azure that do not change. One of the nested classes."""

    @dataclass(frozen=True, slots=True, repr=False)
    class AccessKey(Credential):
        """The key of a storage account."""

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
    """Credentials for Azure blob storage. One of the nested classes."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Anonymous(Credential):
        """Requests without credentials."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FromEnv(Credential):
        """Credentials of the environment: variables, workload identity or managed identity."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Static(Credential):
        """Credentials that do not change."""

        credentials: AnyAzureStaticCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class Refreshable(Credential):
        """Credentials from a pickled function. ``current`` is used until it expires."""

        pickled_function: bytes
        current: AnyAzureRefreshableCredential | None = None

        _secret: ClassVar[frozenset[str]] = frozenset({"pickled_function"})

        def refresh(self) -> AnyAzureRefreshableCredential:
            """Call the function and return the new credentials."""
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
    """Return credentials for Azure that do not change.

    Exactly one argument must be passed.

    Args:
        access_key: Key of the storage account.
        sas_token: Shared access signature.
        bearer_token: OAuth bearer token.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` unless exactly one argument is passed.

    Examples:
        >>> azure_static_credentials(access_key="secret")
        <frazil.credentials.AzureStaticCredentials.AccessKey>
        key: ****
        <BLANKLINE>
    """
    ways: dict[str, tuple[str | None, Callable[[str], AnyAzureStaticCredential]]] = {
        "access_key": (access_key, AzureStaticCredentials.AccessKey),
        "sas_token": (sas_token, AzureStaticCredentials.SasToken),
        "bearer_token": (bearer_token, AzureStaticCredentials.BearerToken),
    }
    return build_static_variant("azure_static_credentials", ways)


@checked
@with_argument_docs(CredentialFactory.build_refreshable)
def azure_refreshable_credentials(
    get_credentials: Callable[[], AnyAzureRefreshableCredential], scatter_initial_credentials: bool = False
) -> AzureCredentials.Refreshable:
    """Return credentials for Azure that a function provides.

    Args:
        get_credentials: Picklable function without arguments that returns one of the classes in
            ``AzureRefreshableCredential``. Frazil calls it before the first request, and again when its last
            result expires. Define it at the top level of a module.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for a function that cannot be pickled.

    Examples:
        >>> def fresh():
        ...     return AzureRefreshableCredential.AccessKey("secret")
        >>> azure_refreshable_credentials(fresh)  # doctest: +SKIP
        <frazil.credentials.AzureCredentials.Refreshable>
        pickled_function: ****
        current: None
    """
    credentials: AzureCredentials.Refreshable = _FACTORY.build_refreshable(
        get_credentials, scatter_initial_credentials
    )
    return credentials


@checked
def azure_from_env_credentials() -> AzureCredentials.FromEnv:
    """Return credentials for Azure that come from the environment.

    Returns:
        The credentials.

    Examples:
        >>> azure_from_env_credentials()
        <frazil.credentials.AzureCredentials.FromEnv>
        <BLANKLINE>
    """
    return AzureCredentials.FromEnv()


@checked
def azure_anonymous_credentials() -> AzureCredentials.Anonymous:
    """Return credentials that send requests to Azure without a signature.

    Returns:
        The credentials.

    Examples:
        >>> azure_anonymous_credentials()
        <frazil.credentials.AzureCredentials.Anonymous>
        <BLANKLINE>
    """
    return AzureCredentials.Anonymous()


@checked
@with_argument_docs(azure_static_credentials, azure_refreshable_credentials)
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
    """Return credentials for Azure. Without arguments, they come from the environment.

    At most one way may be passed.

    Args:
        from_env: True takes the credentials from the environment. This is the default.
        anonymous: True sends requests without credentials.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for more than one way, and for a function that
            cannot be pickled.

    Examples:
        >>> azure_credentials(anonymous=True)
        <frazil.credentials.AzureCredentials.Anonymous>
        <BLANKLINE>
    """
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
