"""The location of objects: a bucket or a container, and the credentials for it.

A location is a value: compare it, pickle it, print it (no secret shows). ``connect`` makes the client.
Credentials reach the client through a callable, static ones as well, because a client that is given a key
would complete it with a session token that happens to be in the environment.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from frazil.about import user_agent
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage.aws_profile import profile_keys, profile_region
from frazil.storage.credentials import (
    AnyAzureCredential,
    AnyAzureRefreshableCredential,
    AnyGcsCredential,
    AnyS3Credential,
    AzureCredentials,
    AzureRefreshableCredential,
    AzureStaticCredentials,
    GcsBearerCredential,
    GcsCredentials,
    GcsStaticCredentials,
    S3Credentials,
    S3StaticCredentials,
)
from frazil.storage.failures import Place, first_line
from frazil.storage.object_store_config import ChecksumAlgorithm, S3Options
from frazil.storage.option_names import CLIENT_OPTIONS, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from obstore.store import ClientConfig, ObjectStore, RetryConfig

    from frazil.storage.settings import StorageSettings

#: A read that makes no progress for so long has failed. (The reference's default, in seconds.)
DEFAULT_STREAM_TIMEOUT: Final = 60
#: A bound on one attempt, upload of a large part over a slow line included. The client's own is 30 s.
_ATTEMPT_TIMEOUT: Final = timedelta(minutes=10)
#: How ``repr`` names the reference's own client for S3; it has another one, from its library for all others.
NATIVE: Final = "S3 (native)"
#: Not a header like others: the client has an option for it.
_USER_AGENT: Final = "user-agent"
#: The client signs every retry anew, but gives up after this long.
_RETRY_TIMEOUT: Final = timedelta(minutes=5)
#: A credential this close to its end is not used any more.
_EXPIRY_MARGIN: Final = timedelta(seconds=15)

#: Options of the HTTP client; all other options are the store's own.
_CLIENT_OPTIONS: Final = CLIENT_OPTIONS | {
    "allow_http",
    "allow_invalid_certificates",
    "default_content_type",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "user_agent",
}


class Location(ABC):
    """One place in one object store."""

    @property
    @abstractmethod
    def place(self) -> Place:
        """How messages speak of it."""

    @property
    def encodes_names(self) -> bool:
        """See ``Storage.encodes_names``."""
        return True

    @abstractmethod
    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        """A client for the keys below ``prefix``. Makes no request."""

    @abstractmethod
    def describe(self, prefix: str) -> str:
        """The lines of ``repr(storage)`` after the first."""


@dataclass(frozen=True, slots=True)
class S3Location(Location):
    """A bucket of S3, or of a server that speaks its protocol."""

    bucket: str
    options: S3Options = field(default_factory=S3Options)
    credentials: AnyS3Credential = field(default_factory=S3Credentials.FromEnv)
    shown_as: str = NATIVE

    @property
    def place(self) -> Place:
        return Place(
            f"bucket {self.bucket!r}",
            "S3",
            "give access_key_id and secret_access_key, `from_env=True` with credentials in the environment, "
            "`get_credentials`, or `anonymous=True` for public data",
            "`allow_http=True`",
            self.options.anonymous or isinstance(self.credentials, S3Credentials.Anonymous),
        )

    @property
    def encodes_names(self) -> bool:
        return self.shown_as != NATIVE

    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        options = self.options
        _check_bucket(self.bucket)
        _check_endpoint("endpoint_url", options.endpoint_url)
        config: dict[str, Any] = {"request_payer": True} if options.requester_pays else {}
        anonymous = self.place.is_anonymous
        config["skip_signature"] = anonymous
        region = profile_region() if options.region is None else options.region
        if region is not None:
            config["region"] = region
        endpoint, virtual_hosted = s3_addressing(self.bucket, options)
        config["virtual_hosted_style_request"] = virtual_hosted
        if endpoint is not None:
            config["endpoint"] = endpoint
        if options.checksum_algorithm is not None:
            config["checksum_algorithm"] = _s3_checksum(options.checksum_algorithm)
        client = client_options(settings, headers, stream_timeout=options.network_stream_timeout_seconds)
        client["allow_http"] = options.allow_http
        return _checked(
            self.place,
            lambda: S3Store(
                self.bucket,
                prefix=prefix or None,
                config=config,  # type: ignore[arg-type]  # a TypedDict, built by key
                client_options=client,
                retry_config=retry_config(settings),
                credential_provider=None if anonymous else _s3_provider(self.credentials),
            ),
        )

    def describe(self, prefix: str) -> str:
        options = self.options
        rows = {
            "type": self.shown_as,
            "bucket": self.bucket,
            "prefix": prefix or None,
            "region": options.region,
            "endpoint_url": None if options.endpoint_url is None else shown_url(options.endpoint_url),
            "anonymous": isinstance(self.credentials, S3Credentials.Anonymous) or None,
            "allow_http": options.allow_http or None,
            "force_path_style": options.force_path_style or None,
            "requester_pays": options.requester_pays or None,
        }
        return _lines(rows)


@dataclass(frozen=True, slots=True)
class GcsLocation(Location):
    """A bucket of Google Cloud Storage."""

    bucket: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: AnyGcsCredential = field(default_factory=GcsCredentials.FromEnv)

    @property
    def place(self) -> Place:
        return Place(
            f"bucket {self.bucket!r}",
            "Google Cloud Storage",
            "give service_account_file, service_account_key, application_credentials, bearer_token, "
            "`from_env=True` with credentials in the environment, `get_credentials`, or `anonymous=True` "
            "for public data",
            "`config={'allow_http': 'true'}`",
            isinstance(self.credentials, GcsCredentials.Anonymous),
        )

    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        _check_bucket(self.bucket)
        _check_endpoint("base_url", self.config.get("base_url"))
        client, config = _split_options(self.config, settings, headers)
        config |= _gcs_config(self.credentials)
        return _checked(
            self.place,
            lambda: GCSStore(
                self.bucket,
                prefix=prefix or None,
                config=config,  # type: ignore[arg-type]  # a TypedDict, built by key
                client_options=client,
                retry_config=retry_config(settings),
                credential_provider=_Refreshing(self.credentials)
                if isinstance(self.credentials, GcsCredentials.Refreshable)
                else None,
            ),
        )

    def describe(self, prefix: str) -> str:
        return _lines({"type": "GCS", "bucket": self.bucket, "prefix": prefix or None})


@dataclass(frozen=True, slots=True)
class AzureLocation(Location):
    """A container of Azure blob storage."""

    account: str
    container: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: AnyAzureCredential = field(default_factory=AzureCredentials.FromEnv)

    @property
    def place(self) -> Place:
        return Place(
            f"container {self.container!r} of account {self.account!r}",
            "Azure",
            "give access_key, sas_token, bearer_token, `from_env=True` with credentials in the environment, "
            "or `anonymous=True` for public data",
            "`config={'allow_http': 'true'}`",
            isinstance(self.credentials, AzureCredentials.Anonymous),
        )

    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        _check_bucket(self.container)
        _check_endpoint("endpoint", self.config.get("endpoint"))
        client, config = _split_options(self.config, settings, headers)
        config |= _azure_config(self.credentials)
        config["account_name"] = self.account
        return _checked(
            self.place,
            lambda: AzureStore(
                self.container,
                prefix=prefix or None,
                config=config,  # type: ignore[arg-type]  # a TypedDict, built by key
                client_options=client,
                retry_config=retry_config(settings),
                credential_provider=_Refreshing(self.credentials)
                if isinstance(self.credentials, AzureCredentials.Refreshable)
                else None,
            ),
        )

    def describe(self, prefix: str) -> str:
        rows = {"type": "Azure", "account": self.account, "container": self.container}
        return _lines({**rows, "prefix": prefix or None})


def _lines(rows: Mapping[str, str | bool | None]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in rows.items() if value is not None)


def _checked[T](place: Place, connect: Callable[[], T]) -> T:
    """Make a client; what the client says about its options is the caller's mistake."""
    try:
        return connect()
    except (BaseError, ValueError, TypeError) as error:
        raise StorageError(
            f"the options or credentials of {place.name} ({place.service}) are not valid: "
            f"{first_line(error)}",
            ErrorKind.STORAGE_CONFIG,
        ) from None


def _check_bucket(name: str) -> None:
    # The client puts it into an address as it is, and fails in ways of its own.
    if re.fullmatch(r"[^\s/?#]+", name) is None or name in (".", ".."):
        raise StorageError(
            f"expected the name of a bucket or container, without '/', '?', '#' and spaces, found {name!r}; "
            "a path inside of it is `prefix`",
            ErrorKind.STORAGE_CONFIG,
        )


def _check_endpoint(option: str, url: str | None) -> None:
    if url is None:
        return
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise StorageError(
            f"{option}: expected an address such as https://host or http://host:9000, found "
            f"{shown_url(url)!r}",
            ErrorKind.STORAGE_CONFIG,
        )


# settings


def _milliseconds(value: int | None, default: timedelta) -> timedelta:
    return default if value is None else timedelta(milliseconds=value)


def client_options(
    settings: StorageSettings, headers: Mapping[str, str], stream_timeout: int | None = None
) -> ClientConfig:
    """Options of the HTTP client; times as ``timedelta``."""
    timeouts = settings.timeouts
    stream = DEFAULT_STREAM_TIMEOUT if stream_timeout is None else stream_timeout
    client: ClientConfig = {"user_agent": user_agent(), "timeout": _ATTEMPT_TIMEOUT}
    if stream:
        client["read_timeout"] = timedelta(seconds=stream)
    others = {name: value for name, value in headers.items() if name.lower() != _USER_AGENT}
    if len(others) < len(headers):
        client["user_agent"] = next(v for name, v in headers.items() if name.lower() == _USER_AGENT)
    if others:
        client["default_headers"] = others
    if timeouts is not None:
        client["timeout"] = _milliseconds(timeouts.operation_attempt_timeout_ms, _ATTEMPT_TIMEOUT)
        if timeouts.connect_timeout_ms is not None:
            client["connect_timeout"] = timedelta(milliseconds=timeouts.connect_timeout_ms)
        if timeouts.read_timeout_ms is not None:
            client["read_timeout"] = timedelta(milliseconds=timeouts.read_timeout_ms)
    return client


def retry_config(settings: StorageSettings) -> RetryConfig:
    """How often a client repeats a request, and how long it waits before."""
    retries, timeouts = settings.retries, settings.timeouts
    total = None if timeouts is None else timeouts.operation_timeout_ms
    tries = 10 if retries is None or retries.max_tries is None else retries.max_tries
    first = 100 if retries is None else retries.initial_backoff_ms
    longest = 180_000 if retries is None else retries.max_backoff_ms
    return {
        "max_retries": tries - 1,
        "retry_timeout": _milliseconds(total, _RETRY_TIMEOUT),
        "backoff": {
            "init_backoff": _milliseconds(first, timedelta(milliseconds=100)),
            "max_backoff": _milliseconds(longest, timedelta(minutes=3)),
        },
    }


def _split_options(
    given: Mapping[str, str], settings: StorageSettings, headers: Mapping[str, str]
) -> tuple[ClientConfig, dict[str, Any]]:
    """The options of the HTTP client, and those of the store."""
    client: dict[str, Any] = dict(client_options(settings, headers))
    client |= {name: value for name, value in given.items() if name in _CLIENT_OPTIONS}
    store = {name: value for name, value in given.items() if name not in _CLIENT_OPTIONS}
    return client, store  # type: ignore[return-value]  # a TypedDict, built by key


# S3


def s3_addressing(bucket: str, options: S3Options) -> tuple[str | None, bool]:
    """The endpoint the client needs, and whether the bucket is part of its host name."""
    endpoint = options.endpoint_url
    # A certificate for *.s3.amazonaws.com does not cover names with a dot.
    if options.force_path_style or "." in bucket:
        return endpoint, False
    if endpoint is None:
        return None, True
    url = urlsplit(endpoint)
    if not url.hostname or _is_plain_host(url.hostname):
        return endpoint, False
    return url._replace(netloc=f"{bucket}.{url.netloc}").geturl(), True


def _is_plain_host(host: str) -> bool:
    """Whether a bucket cannot be put before this host's name."""
    if "." not in host:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _s3_checksum(algorithm: ChecksumAlgorithm) -> str:
    known = {ChecksumAlgorithm.Sha256: "SHA256", ChecksumAlgorithm.Crc64Nvme: "CRC64NVME"}
    if algorithm not in known:
        raise InvalidInputError(
            f"checksum algorithm {algorithm.name} is not supported: expected Sha256 or Crc64Nvme",
            ErrorKind.STORAGE_CONFIG,
        )
    return known[algorithm]


def _s3_provider(credentials: AnyS3Credential) -> Any:
    match credentials:
        case S3Credentials.Static(keys):
            return _Constant(_s3_answer(keys))
        case S3Credentials.Refreshable():
            return _Refreshing(credentials)
        case _:
            found = profile_keys()
            return None if found is None else _Constant(_s3_answer(found))


def _s3_answer(keys: S3StaticCredentials) -> dict[str, Any]:
    return {
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
        "token": keys.session_token,
        "expires_at": keys.expires_after,
    }


# GCS and Azure


def _gcs_config(credentials: AnyGcsCredential) -> dict[str, Any]:
    match credentials:
        case GcsCredentials.Anonymous():
            # Without a token the client asks the machine's metadata address for one, anonymous or not.
            return {"skip_signature": True, "bearer_token": "anonymous"}
        case GcsCredentials.Static(GcsStaticCredentials.ServiceAccount(path)):
            return {"service_account": path}
        case GcsCredentials.Static(GcsStaticCredentials.ServiceAccountKey(key)):
            return {"service_account_key": key}
        case GcsCredentials.Static(GcsStaticCredentials.ApplicationCredentials(path)):
            return {"application_credentials": path}
        case GcsCredentials.Static(GcsStaticCredentials.BearerToken(token)):
            return {"bearer_token": token}
        case _:
            return {}


def _azure_config(credentials: AnyAzureCredential) -> dict[str, Any]:
    match credentials:
        case AzureCredentials.Anonymous():
            return {"skip_signature": True}
        case AzureCredentials.Static(AzureStaticCredentials.AccessKey(key)):
            return {"account_key": key}
        case AzureCredentials.Static(AzureStaticCredentials.SasToken(token)):
            return {"sas_key": token}
        case AzureCredentials.Static(AzureStaticCredentials.BearerToken(token)):
            return {"token": token}
        case _:
            return {}


def _gcs_answer(token: GcsBearerCredential) -> dict[str, Any]:
    return {"token": token.bearer, "expires_at": token.expires_after}


def _azure_answer(credential: AnyAzureRefreshableCredential) -> dict[str, Any]:
    match credential:
        case AzureRefreshableCredential.AccessKey(key):
            answer = {"access_key": key}
        case AzureRefreshableCredential.SasToken(token):
            answer = {"sas_token": token}
        case AzureRefreshableCredential.BearerToken(bearer):
            answer = {"token": bearer}
    return {**answer, "expires_at": credential.expires_after}


def _answer(credential: Any) -> dict[str, Any]:
    match credential:
        case S3StaticCredentials():
            return _s3_answer(credential)
        case GcsBearerCredential():
            return _gcs_answer(credential)
        case _:
            return _azure_answer(credential)


# credential providers, as the client calls them


@dataclass(frozen=True, slots=True)
class _Constant:
    answer: dict[str, Any] = field(repr=False)

    def __call__(self) -> Any:
        return self.answer


class _Refreshing:
    """Calls the user's function, and again when what it gave is about to expire.

    The client asks before every request from five minutes before the end on, so the last answer is kept.
    """

    def __init__(
        self,
        credentials: S3Credentials.Refreshable | GcsCredentials.Refreshable | AzureCredentials.Refreshable,
    ) -> None:
        self._credentials = credentials
        self._current: Any = credentials.current

    def __call__(self) -> Any:
        now = datetime.now(UTC)
        current = self._current
        if current is None or _is_over(current.expires_after, now):
            current = self._current = self._credentials.refresh()
        return _answer(current)


def _is_over(expires: datetime | None, now: datetime) -> bool:
    return expires is not None and expires - _EXPIRY_MARGIN <= now
