"""Credentials for S3 and services with its protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from frazil.argument_docs import with_argument_docs
from frazil.arguments import checked
from frazil.display import Family, Record
from frazil.storage.credentials.base import Credential, CredentialFactory, call_refresh, incomplete

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


@dataclass(frozen=True, slots=True, repr=False)
class S3StaticCredentials(Credential):
    """An access key for S3, which may be temporary.

    Attributes:
        access_key_id: Id of the access key.
        secret_access_key: Secret of the access key.
        session_token: Session token of a temporary access key.
        expires_after: Time when the key expires, with a time zone. None means that it does not expire.

    Raises:
        TypeError: ``expires_after`` has no time zone.

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

    _secret: ClassVar[frozenset[str]] = frozenset({"secret_access_key", "session_token"})

    def _masked(self, name: str, value: Any) -> str | Record:
        if name == "access_key_id":
            return f"{value[:4]}****"
        return super(S3StaticCredentials, self)._masked(name, value)


class S3Credentials(metaclass=Family):
    """Credentials for S3 and similar servers. One of the nested classes."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FromEnv(Credential):
        """Credentials of the environment: variables, AWS profile, container or instance role."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Anonymous(Credential):
        """Requests without a signature."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Static(Credential):
        """An access key that does not change."""

        credentials: S3StaticCredentials

    @dataclass(frozen=True, slots=True, repr=False)
    class Refreshable(Credential):
        """Access keys from a pickled function. ``current`` is used until it expires."""

        pickled_function: bytes
        current: S3StaticCredentials | None = None

        _secret: ClassVar[frozenset[str]] = frozenset({"pickled_function"})

        def refresh(self) -> S3StaticCredentials:
            """Call the function and return the new access key."""
            answer: S3StaticCredentials = call_refresh(self.pickled_function, S3StaticCredentials)
            return answer


AnyS3Credential = (
    S3Credentials.Static | S3Credentials.Anonymous | S3Credentials.FromEnv | S3Credentials.Refreshable
)


_FACTORY: Final = CredentialFactory("s3_credentials", S3Credentials)


@checked
@with_argument_docs(CredentialFactory.build_refreshable)
def s3_refreshable_credentials(
    get_credentials: Callable[[], S3StaticCredentials], scatter_initial_credentials: bool = False
) -> S3Credentials.Refreshable:
    """Return credentials for S3 that a function provides.

    Args:
        get_credentials: Picklable function without arguments that returns ``S3StaticCredentials``. Frazil
            calls it before the first request, and again when its last result expires. Define it at the top
            level of a module.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for a function that cannot be pickled.

    Examples:
        >>> def fresh():
        ...     return S3StaticCredentials("AKIAEXAMPLE", "secret")
        >>> s3_refreshable_credentials(fresh)  # doctest: +SKIP
        <frazil.credentials.S3Credentials.Refreshable>
        pickled_function: ****
        current: None
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
    """Return credentials for S3 from an access key.

    Args:
        access_key_id: Id of the access key.
        secret_access_key: Secret of the access key.
        session_token: Session token of a temporary access key.
        expires_after: Time when the key expires, with a time zone. Default: it does not expire.

    Returns:
        The credentials.

    Examples:
        >>> s3_static_credentials(access_key_id="AKIAEX", secret_access_key="x").credentials.access_key_id
        'AKIAEX'
    """
    return S3Credentials.Static(
        S3StaticCredentials(access_key_id, secret_access_key, session_token, expires_after)
    )


@checked
def s3_anonymous_credentials() -> S3Credentials.Anonymous:
    """Return credentials that send requests to S3 without a signature.

    Returns:
        The credentials.

    Examples:
        >>> s3_anonymous_credentials()
        <frazil.credentials.S3Credentials.Anonymous>
        <BLANKLINE>
    """
    return S3Credentials.Anonymous()


@checked
def s3_from_env_credentials() -> S3Credentials.FromEnv:
    """Return credentials that take an access key for S3 from the environment.

    Returns:
        The credentials.

    Examples:
        >>> s3_from_env_credentials()
        <frazil.credentials.S3Credentials.FromEnv>
        <BLANKLINE>
    """
    return S3Credentials.FromEnv()


@checked
@with_argument_docs(s3_static_credentials, s3_refreshable_credentials)
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
    """Return credentials for S3. Without arguments, they come from the environment.

    At most one way may be passed: an access key, ``anonymous``, ``from_env`` or ``get_credentials``.

    Args:
        anonymous: True sends requests without credentials.
        from_env: True takes the credentials from the environment. This is the default.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for more than one way, for a part of an access key, for
            ways that are only set to False, and for a function that cannot be pickled.
        TypeError: ``expires_after`` has no time zone.

    Examples:
        >>> s3_credentials(anonymous=True) == s3_anonymous_credentials()
        True
    """
    key = (access_key_id, secret_access_key, session_token, expires_after)
    has_key = any(part is not None for part in key)
    has_way = has_key or anonymous or from_env or get_credentials is not None
    if not has_way and (from_env is False or anonymous is False):
        raise incomplete(
            "s3_credentials",
            "one way to get credentials, got only ways that are False. Set one of them to True",
        )

    def build_static() -> S3StaticCredentials:
        if access_key_id is None or secret_access_key is None:
            raise incomplete(
                "s3_credentials", "both access_key_id and secret_access_key, got only a part of the key"
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
