"""Credentials for Google Cloud Storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from frazil.arguments import checked
from frazil.display import Family
from frazil.storage.credentials.base import Credential, CredentialFactory, build_static_variant, call_refresh

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


@dataclass(frozen=True, slots=True, repr=False)
class GcsBearerCredential(Credential):
    """An OAuth bearer token, maybe with a time when it expires."""

    bearer: str
    expires_after: datetime | None = None

    _secret: ClassVar[frozenset[str]] = frozenset({"bearer"})

    def __init__(self, bearer: str, *, expires_after: datetime | None = None) -> None:
        object.__setattr__(self, "bearer", bearer)
        object.__setattr__(self, "expires_after", expires_after)
        self.__post_init__()


class GcsStaticCredentials(metaclass=Family):
    """Credentials for GCS that do not change."""

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
    """How to authorise requests to Google Cloud Storage."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Anonymous(Credential):
        """Requests without credentials."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FromEnv(Credential):
        """Whatever the environment offers."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Static(Credential):
        """Credentials that do not change."""

        credentials: AnyGcsStaticCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class Refreshable(Credential):
        """Bearer tokens from a pickled callable; ``current`` is used until it expires."""

        pickled_function: bytes
        current: GcsBearerCredential | None = None

        _secret: ClassVar[frozenset[str]] = frozenset({"pickled_function"})

        def refresh(self) -> GcsBearerCredential:
            """Call the function for a new token."""
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
    """Static credentials for GCS, by the one argument that was given."""
    ways: dict[str, tuple[str | None, Callable[[str], AnyGcsStaticCredential]]] = {
        "service_account_file": (service_account_file, GcsStaticCredentials.ServiceAccount),
        "service_account_key": (service_account_key, GcsStaticCredentials.ServiceAccountKey),
        "application_credentials": (application_credentials, GcsStaticCredentials.ApplicationCredentials),
        "bearer_token": (bearer_token, GcsStaticCredentials.BearerToken),
    }
    return build_static_variant("gcs_static_credentials", ways)


@checked
def gcs_refreshable_credentials(
    get_credentials: Callable[[], GcsBearerCredential], scatter_initial_credentials: bool = False
) -> GcsCredentials.Refreshable:
    """Tokens that ``get_credentials`` (which must be picklable) gives, again when they expire."""
    credentials: GcsCredentials.Refreshable = _FACTORY.build_refreshable(
        get_credentials, scatter_initial_credentials
    )
    return credentials


@checked
def gcs_anonymous_credentials() -> GcsCredentials.Anonymous:
    """Requests to GCS without credentials."""
    return GcsCredentials.Anonymous()


@checked
def gcs_from_env_credentials() -> GcsCredentials.FromEnv:
    """Credentials for GCS from the environment."""
    return GcsCredentials.FromEnv()


@checked
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
    """Credentials for GCS by the one way that was given; from the environment if none was."""
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
