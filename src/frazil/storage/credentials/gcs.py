"""Credentials for Google Cloud Storage."""

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


@dataclass(frozen=True, slots=True, repr=False)
class GcsBearerCredential(Credential):
    """An OAuth bearer token for Google Cloud Storage.

    Args:
        bearer: The token.
        expires_after: Time when the token expires, with a time zone. Default: it does not expire.

    Raises:
        TypeError: ``expires_after`` has no time zone.

    Examples:
        >>> print(GcsBearerCredential("secret"), end="")
        <frazil.credentials.GcsBearerCredential>
        bearer: ****
        expires_after: None
    """

    bearer: str
    expires_after: datetime | None = None

    _secret: ClassVar[frozenset[str]] = frozenset({"bearer"})

    def __init__(self, bearer: str, *, expires_after: datetime | None = None) -> None:
        object.__setattr__(self, "bearer", bearer)
        object.__setattr__(self, "expires_after", expires_after)
        self.__post_init__()


class GcsStaticCredentials(metaclass=Family):
    """Credentials for Google Cloud Storage that do not change. One of the nested classes."""

    @dataclass(frozen=True, slots=True, repr=False)
    class ServiceAccount(Credential):
        """A file with the key of a service account."""

        path: str

    @dataclass(frozen=True, slots=True, repr=False)
    class ServiceAccountKey(Credential):
        """The key of a service account, as JSON text."""

        key: str
        _secret: ClassVar[frozenset[str]] = frozenset({"key"})

    @dataclass(frozen=True, slots=True, repr=False)
    class ApplicationCredentials(Credential):
        """A file with application default credentials."""

        path: str

    @dataclass(frozen=True, slots=True, repr=False)
    class BearerToken(Credential):
        """An OAuth bearer token."""

        token: str
        _secret: ClassVar[frozenset[str]] = frozenset({"token"})


AnyGcsStaticCredential = (
    GcsStaticCredentials.ServiceAccount
    | GcsStaticCredentials.ServiceAccountKey
    | GcsStaticCredentials.ApplicationCredentials
    | GcsStaticCredentials.BearerToken
)


class GcsCredentials(metaclass=Family):
    """Credentials for Google Cloud Storage. One of the nested classes."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Anonymous(Credential):
        """Requests without credentials."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FromEnv(Credential):
        """Credentials of the environment: variables, files of the user, metadata of the machine."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Static(Credential):
        """Credentials that do not change."""

        credentials: AnyGcsStaticCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class Refreshable(Credential):
        """Bearer tokens from a pickled function. ``current`` is used until it expires."""

        pickled_function: bytes
        current: GcsBearerCredential | None = None

        _secret: ClassVar[frozenset[str]] = frozenset({"pickled_function"})

        def refresh(self) -> GcsBearerCredential:
            """Call the function and return the new token."""
            answer: GcsBearerCredential = call_refresh(self.pickled_function, GcsBearerCredential)
            return answer


AnyGcsCredential = (
    GcsCredentials.Anonymous | GcsCredentials.FromEnv | GcsCredentials.Static | GcsCredentials.Refreshable
)


_FACTORY: Final = CredentialFactory("gcs_credentials", GcsCredentials)


@checked
def gcs_static_credentials(
    *,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
) -> AnyGcsStaticCredential:
    """Return credentials for Google Cloud Storage that do not change.

    Exactly one argument must be passed.

    Args:
        service_account_file: Path of a file with the key of a service account.
        service_account_key: Key of a service account, as JSON text.
        application_credentials: Path of a file with application default credentials.
        bearer_token: OAuth bearer token.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` unless exactly one argument is passed.

    Examples:
        >>> gcs_static_credentials(bearer_token="secret")
        <frazil.credentials.GcsStaticCredentials.BearerToken>
        token: ****
        <BLANKLINE>
    """
    ways: dict[str, tuple[str | None, Callable[[str], AnyGcsStaticCredential]]] = {
        "service_account_file": (service_account_file, GcsStaticCredentials.ServiceAccount),
        "service_account_key": (service_account_key, GcsStaticCredentials.ServiceAccountKey),
        "application_credentials": (application_credentials, GcsStaticCredentials.ApplicationCredentials),
        "bearer_token": (bearer_token, GcsStaticCredentials.BearerToken),
    }
    return build_static_variant("gcs_static_credentials", ways)


@checked
@with_argument_docs(CredentialFactory.build_refreshable)
def gcs_refreshable_credentials(
    get_credentials: Callable[[], GcsBearerCredential], scatter_initial_credentials: bool = False
) -> GcsCredentials.Refreshable:
    """Return credentials for Google Cloud Storage that a function provides.

    Args:
        get_credentials: Picklable function without arguments that returns ``GcsBearerCredential``. Frazil
            calls it before the first request, and again when its last result expires. Define it at the top
            level of a module.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for a function that cannot be pickled.

    Examples:
        >>> def fresh():
        ...     return GcsBearerCredential("secret")
        >>> gcs_refreshable_credentials(fresh)  # doctest: +SKIP
        <frazil.credentials.GcsCredentials.Refreshable>
        pickled_function: ****
        current: None
    """
    credentials: GcsCredentials.Refreshable = _FACTORY.build_refreshable(
        get_credentials, scatter_initial_credentials
    )
    return credentials


@checked
def gcs_anonymous_credentials() -> GcsCredentials.Anonymous:
    """Return credentials that send requests to Google Cloud Storage without a token.

    Returns:
        The credentials.

    Examples:
        >>> gcs_anonymous_credentials()
        <frazil.credentials.GcsCredentials.Anonymous>
        <BLANKLINE>
    """
    return GcsCredentials.Anonymous()


@checked
def gcs_from_env_credentials() -> GcsCredentials.FromEnv:
    """Return credentials for Google Cloud Storage that come from the environment.

    Returns:
        The credentials.

    Examples:
        >>> gcs_from_env_credentials()
        <frazil.credentials.GcsCredentials.FromEnv>
        <BLANKLINE>
    """
    return GcsCredentials.FromEnv()


@checked
@with_argument_docs(gcs_static_credentials, gcs_refreshable_credentials)
def gcs_credentials(
    *,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    get_credentials: Callable[[], GcsBearerCredential] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyGcsCredential:
    """Return credentials for Google Cloud Storage. Without arguments, they come from the environment.

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
        >>> gcs_credentials(anonymous=True)
        <frazil.credentials.GcsCredentials.Anonymous>
        <BLANKLINE>
    """
    static = {
        "service_account_file": service_account_file,
        "service_account_key": service_account_key,
        "application_credentials": application_credentials,
        "bearer_token": bearer_token,
    }
    credentials: AnyGcsCredential = _FACTORY.build(
        {name: value is not None for name, value in static.items()},
        lambda: gcs_static_credentials(**static),
        anonymous,
        from_env,
        get_credentials,
        scatter_initial_credentials,
    )
    return credentials
