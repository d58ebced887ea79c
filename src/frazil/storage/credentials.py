"""Who we are to an object store. Values only; no secret is ever in a ``repr``, a ``str`` or HTML.

Each cloud has a family of variants: anonymous, from the environment, static, or refreshable by a
callable. A refreshable credential holds its callable pickled, since it travels to other processes with
the session; ``refresh()`` calls it. ``Credentials`` wraps them for virtual chunk containers, where
access to local files and to the web is also something to be granted.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from frazil.arguments import check_fields, checked
from frazil.display import PACKAGE, Family, Numbered, Record, Shown, literal
from frazil.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime


class _Credential(Numbered, Record):
    """A frozen value whose secret fields print as stars."""

    __slots__ = ()
    _secret: ClassVar[frozenset[str]] = frozenset()

    def _title(self) -> str:
        return f"{PACKAGE}.credentials.{type(self).__qualname__}"

    def __post_init__(self) -> None:
        check_fields(self)
        expires = getattr(self, "expires_after", None)
        if expires is not None and expires.tzinfo is None:
            raise TypeError(
                f"expires_after: expected a datetime with a time zone, found {expires.isoformat()} without "
                "one"
            )

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for f in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            yield f.name, self._masked(f.name, getattr(self, f.name))

    def _masked(self, name: str, value: Any) -> str | Record:
        if isinstance(value, Record):
            return value
        if value is not None and name in self._secret:
            return "****"
        return literal(value)


def _refreshed(pickled_function: bytes, expected: type) -> Any:
    """Call a refreshing function; what it answers must be a credential of the right kind."""
    answer = pickle.loads(pickled_function)()
    if not isinstance(answer, expected):
        raise InvalidInputError(
            f"the function that refreshes credentials must return {expected.__name__}, "
            f"found {type(answer).__name__}",
            ErrorKind.INVALID_CREDENTIALS,
        )
    return answer


def _pickled(function: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidInputError(
            "get_credentials must be a function that can be pickled, for it is sent to other processes: "
            f"define it at the top of a module. Found {function!r} ({error})",
            ErrorKind.INVALID_CREDENTIALS,
        ) from error


def _one_of(function: str, **given: bool) -> str | None:
    """The name of the one way that was given; None if none was."""
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise InvalidInputError(
            f"{function}: expected one of {', '.join(given)}, found {' and '.join(chosen)}: give only one",
            ErrorKind.INVALID_CREDENTIALS,
        )
    return chosen[0] if chosen else None


def _incomplete(function: str, expected: str) -> InvalidInputError:
    return InvalidInputError(f"{function}: expected {expected}", ErrorKind.INVALID_CREDENTIALS)


# ---------------------------------------------------------------------------------------------- S3


@dataclass(frozen=True, slots=True, repr=False)
class S3StaticCredentials(_Credential):
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
    class FromEnv(_Credential):
        """Whatever the environment offers: variables, profile, instance role."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Anonymous(_Credential):
        """Unsigned requests."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Static(_Credential):
        """An access key."""

        credentials: S3StaticCredentials

    @dataclass(frozen=True, slots=True, repr=False)
    class Refreshable(_Credential):
        """Access keys from a pickled callable; ``current`` is used until it expires."""

        pickled_function: bytes
        current: S3StaticCredentials | None = None

        _secret: ClassVar[frozenset[str]] = frozenset({"pickled_function"})

        def refresh(self) -> S3StaticCredentials:
            """Call the function for new credentials."""
            answer: S3StaticCredentials = _refreshed(self.pickled_function, S3StaticCredentials)
            return answer


AnyS3Credential = (
    S3Credentials.Static | S3Credentials.Anonymous | S3Credentials.FromEnv | S3Credentials.Refreshable
)


@checked
def s3_refreshable_credentials(
    get_credentials: Callable[[], S3StaticCredentials], scatter_initial_credentials: bool = False
) -> S3Credentials.Refreshable:
    """Credentials that ``get_credentials`` (which must be picklable) gives, again when they expire.

    With ``scatter_initial_credentials`` it is called now, and the answer travels with every pickle, so
    that many workers do not all ask at once.
    """
    current = get_credentials() if scatter_initial_credentials else None
    return S3Credentials.Refreshable(_pickled(get_credentials), current)


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
    way = _one_of(
        "s3_credentials",
        access_key_id=any(part is not None for part in key),
        anonymous=bool(anonymous),
        from_env=bool(from_env),
        get_credentials=get_credentials is not None,
    )
    if way == "access_key_id":
        if access_key_id is None or secret_access_key is None:
            raise _incomplete(
                "s3_credentials", "both access_key_id and secret_access_key, found only a part of them"
            )
        return s3_static_credentials(
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=session_token,
            expires_after=expires_after,
        )
    if way == "anonymous":
        return S3Credentials.Anonymous()
    if get_credentials is not None:
        return s3_refreshable_credentials(get_credentials, scatter_initial_credentials)
    if way is None and (from_env is False or anonymous is False):
        raise _incomplete(
            "s3_credentials",
            "one way to get credentials, found only ways set to False: set one of them to True",
        )
    return S3Credentials.FromEnv()


# --------------------------------------------------------------------------------------------- GCS


@dataclass(frozen=True, slots=True, repr=False)
class GcsBearerCredential(_Credential):
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
    class ServiceAccount(_Credential):
        """A file with the key of a service account."""

        path: str

    @dataclass(frozen=True, slots=True, repr=False)
    class ServiceAccountKey(_Credential):
        """The key of a service account, as JSON text."""

        key: str
        _secret: ClassVar[frozenset[str]] = frozenset({"key"})

    @dataclass(frozen=True, slots=True, repr=False)
    class ApplicationCredentials(_Credential):
        """A file with application default credentials."""

        path: str

    @dataclass(frozen=True, slots=True, repr=False)
    class BearerToken(_Credential):
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
    class Anonymous(_Credential):
        """Requests without credentials."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FromEnv(_Credential):
        """Whatever the environment offers."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Static(_Credential):
        """Credentials that do not change."""

        credentials: AnyGcsStaticCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class Refreshable(_Credential):
        """Bearer tokens from a pickled callable; ``current`` is used until it expires."""

        pickled_function: bytes
        current: GcsBearerCredential | None = None

        _secret: ClassVar[frozenset[str]] = frozenset({"pickled_function"})

        def refresh(self) -> GcsBearerCredential:
            """Call the function for a new token."""
            answer: GcsBearerCredential = _refreshed(self.pickled_function, GcsBearerCredential)
            return answer


AnyGcsCredential = (
    GcsCredentials.Anonymous | GcsCredentials.FromEnv | GcsCredentials.Static | GcsCredentials.Refreshable
)


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
    return _static("gcs_static_credentials", ways)


def _static[T](function: str, ways: Mapping[str, tuple[str | None, Callable[[str], T]]]) -> T:
    """Build the variant of the one argument that was given."""
    way = _one_of(function, **{name: value is not None for name, (value, _) in ways.items()})
    value, build = ways[way] if way is not None else (None, None)
    if value is None or build is None:
        raise _incomplete(function, f"one of {', '.join(ways)}, found none")
    return build(value)


@checked
def gcs_refreshable_credentials(
    get_credentials: Callable[[], GcsBearerCredential], scatter_initial_credentials: bool = False
) -> GcsCredentials.Refreshable:
    """Tokens that ``get_credentials`` (which must be picklable) gives, again when they expire."""
    current = get_credentials() if scatter_initial_credentials else None
    return GcsCredentials.Refreshable(_pickled(get_credentials), current)


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
    way = _one_of(
        "gcs_credentials",
        **{name: value is not None for name, value in static.items()},
        anonymous=bool(anonymous),
        from_env=bool(from_env),
        get_credentials=get_credentials is not None,
    )
    if way in static:
        return GcsCredentials.Static(gcs_static_credentials(**static))
    if way == "anonymous":
        return GcsCredentials.Anonymous()
    if get_credentials is not None:
        return gcs_refreshable_credentials(get_credentials, scatter_initial_credentials)
    return GcsCredentials.FromEnv()


# ------------------------------------------------------------------------------------------- Azure


class AzureRefreshableCredential(metaclass=Family):
    """What a refreshing function for Azure may return."""

    @dataclass(frozen=True, slots=True, repr=False)
    class AccessKey(_Credential):
        """A storage account's key."""

        key: str
        expires_after: datetime | None = None
        _secret: ClassVar[frozenset[str]] = frozenset({"key"})

    @dataclass(frozen=True, slots=True, repr=False)
    class SasToken(_Credential):
        """A shared access signature."""

        token: str
        expires_after: datetime | None = None
        _secret: ClassVar[frozenset[str]] = frozenset({"token"})

    @dataclass(frozen=True, slots=True, repr=False)
    class BearerToken(_Credential):
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
    class AccessKey(_Credential):
        """A storage account's key."""

        key: str
        _secret: ClassVar[frozenset[str]] = frozenset({"key"})

    @dataclass(frozen=True, slots=True, repr=False)
    class SasToken(_Credential):
        """A shared access signature."""

        token: str
        _secret: ClassVar[frozenset[str]] = frozenset({"token"})

    @dataclass(frozen=True, slots=True, repr=False)
    class BearerToken(_Credential):
        """An OAuth bearer token."""

        token: str
        _secret: ClassVar[frozenset[str]] = frozenset({"token"})


AnyAzureStaticCredential = (
    AzureStaticCredentials.AccessKey | AzureStaticCredentials.SasToken | AzureStaticCredentials.BearerToken
)


class AzureCredentials(metaclass=Family):
    """How to authorise requests to Azure blob storage."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Anonymous(_Credential):
        """Requests without credentials."""

    @dataclass(frozen=True, slots=True, repr=False)
    class FromEnv(_Credential):
        """Whatever the environment offers."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Static(_Credential):
        """Credentials that do not change."""

        credentials: AnyAzureStaticCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class Refreshable(_Credential):
        """Credentials from a pickled callable; ``current`` is used until it expires."""

        pickled_function: bytes
        current: AnyAzureRefreshableCredential | None = None

        _secret: ClassVar[frozenset[str]] = frozenset({"pickled_function"})

        def refresh(self) -> AnyAzureRefreshableCredential:
            """Call the function for new credentials."""
            answer: AnyAzureRefreshableCredential = _refreshed(
                self.pickled_function, AzureRefreshableCredential
            )
            return answer


AnyAzureCredential = (
    AzureCredentials.FromEnv
    | AzureCredentials.Anonymous
    | AzureCredentials.Static
    | AzureCredentials.Refreshable
)


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
    return _static("azure_static_credentials", ways)


@checked
def azure_refreshable_credentials(
    get_credentials: Callable[[], AnyAzureRefreshableCredential], scatter_initial_credentials: bool = False
) -> AzureCredentials.Refreshable:
    """Credentials that ``get_credentials`` (which must be picklable) gives, again when they expire."""
    current = get_credentials() if scatter_initial_credentials else None
    return AzureCredentials.Refreshable(_pickled(get_credentials), current)


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
    way = _one_of(
        "azure_credentials",
        **{name: value is not None for name, value in static.items()},
        anonymous=bool(anonymous),
        from_env=bool(from_env),
        get_credentials=get_credentials is not None,
    )
    if way in static:
        return AzureCredentials.Static(azure_static_credentials(**static))
    if way == "anonymous":
        return AzureCredentials.Anonymous()
    if get_credentials is not None:
        return azure_refreshable_credentials(get_credentials, scatter_initial_credentials)
    return AzureCredentials.FromEnv()


# ------------------------------------------------------------------------------- virtual containers


class Credentials(metaclass=Family):
    """Leave to read virtual chunks in a container, and the credentials to do it with."""

    @dataclass(frozen=True, slots=True, repr=False)
    class S3(_Credential):
        """Leave to read S3."""

        credentials: AnyS3Credential

    @dataclass(frozen=True, slots=True, repr=False)
    class Gcs(_Credential):
        """Leave to read GCS."""

        credentials: AnyGcsCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class Azure(_Credential):
        """Leave to read Azure."""

        credentials: AnyAzureCredential

    @dataclass(frozen=True, slots=True, repr=False)
    class LocalFileSystemAccess(_Credential):
        """Leave to read files of this machine."""

    @dataclass(frozen=True, slots=True, repr=False)
    class HttpAccess(_Credential):
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

    >>> containers_credentials({"s3://bucket/": s3_anonymous_credentials()})["s3://bucket/"]
    <frazil.credentials.Credentials.S3>
    credentials:
        <frazil.credentials.S3Credentials.Anonymous>
    <BLANKLINE>
    """
    return {prefix: _wrapped(prefix, credential) for prefix, credential in m.items()}


def _wrapped(prefix: str, credential: Any) -> AnyCredential | None:
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
