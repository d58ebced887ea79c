"""Credentials for S3 and services with its protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from frazil.arguments import checked
from frazil.display import Family, Record
from frazil.storage.credentials.base import Credential, CredentialFactory, call_refresh, incomplete

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


@dataclass(frozen=True, slots=True, repr=False)
class S3StaticCredentials(Credential):
    """An access key, maybe temporary (with a session token and a time when it expires).

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

    _secret: ClassVar[frozenset[str]] = frozenset({"secret_access_key", "session_token"})

    def _masked(self, name: str, value: Any) -> str | Record:
        if name == "access_key_id":
            return f"{value[:4]}****"
        return super(S3StaticCredentials, self)._masked(name, value)


class S3Credentials(metaclass=Family):
    """How to sign requests to S3 and servers like it."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FromEnv(Credential):
        """Whatever the environment offers: variables, profile, instance role."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Anonymous(Credential):
        """Unsigned requests."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Static(Credential):
        """An access key."""

        credentials: S3StaticCredentials

    @dataclass(frozen=True, slots=True, repr=False)
    class Refreshable(Credential):
        """Access keys from a pickled callable; ``current`` is used until it expires."""

        pickled_function: bytes
        current: S3StaticCredentials | None = None

        _secret: ClassVar[frozenset[str]] = frozenset({"pickled_function"})

        def refresh(self) -> S3StaticCredentials:
            """Call the function for new credentials."""
            answer: S3StaticCredentials = call_refresh(self.pickled_function, S3StaticCredentials)
            return answer


AnyS3Credential = (
    S3Credentials.Static | S3Credentials.Anonymous | S3Credentials.FromEnv | S3Credentials.Refreshable
)


_FACTORY: Final = CredentialFactory("s3_credentials", S3Credentials)


@checked
def s3_refreshable_credentials(
    get_credentials: Callable[[], S3StaticCredentials], scatter_initial_credentials: bool = False
) -> S3Credentials.Refreshable:
    """Credentials that ``get_credentials`` (which must be picklable) gives, again when they expire.

    With ``scatter_initial_credentials`` it is called now, and the answer travels with every pickle, so
    that many workers do not all ask at once.
    """
    credentials: S3Credentials.Refreshable = _FACTORY.build_refreshable(
        get_credentials, scatter_initial_credentials
    )
    return credentials


@checked
def s3_static_credentials(
    *,
    access_key_id: str,
    secret_access_key: str,
    session_token: str | None = None,
    expires_after: datetime | None = None,
) -> S3Credentials.Static:
    """An access key for S3."""
    return S3Credentials.Static(
        S3StaticCredentials(access_key_id, secret_access_key, session_token, expires_after)
    )


@checked
def s3_anonymous_credentials() -> S3Credentials.Anonymous:
    """Unsigned requests to S3."""
    return S3Credentials.Anonymous()


@checked
def s3_from_env_credentials() -> S3Credentials.FromEnv:
    """Credentials for S3 from the environment."""
    return S3Credentials.FromEnv()


@checked
def s3_credentials(
    *,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyS3Credential:
    """Credentials for S3 by the one way that was given; from the environment if none was.

    Raises ``InvalidInputError`` (a ``ValueError``) when the arguments contradict each other.

    >>> s3_credentials(anonymous=True) == s3_anonymous_credentials()
    True
    """
    key = (access_key_id, secret_access_key, session_token, expires_after)
    has_key = any(part is not None for part in key)
    has_way = has_key or anonymous or from_env or get_credentials is not None
    if not has_way and (from_env is False or anonymous is False):
        raise incomplete(
            "s3_credentials",
            "one way to get credentials, found only ways set to False: set one of them to True",
        )

    def build_static() -> S3StaticCredentials:
        if access_key_id is None or secret_access_key is None:
            raise incomplete(
                "s3_credentials", "both access_key_id and secret_access_key, found only a part of them"
            )
        return S3StaticCredentials(access_key_id, secret_access_key, session_token, expires_after)

    credentials: AnyS3Credential = _FACTORY.build(
        {"access_key_id": has_key},
        build_static,
        anonymous,
        from_env,
        get_credentials,
        scatter_initial_credentials,
    )
    return credentials
