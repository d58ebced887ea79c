"""Buckets and containers of object stores, with their credentials.

A bucket is a value: callers can compare it, pickle it, and print it without secrets. ``connect`` creates the
client. Static credentials of S3 also reach the client through a callable. A client that gets a key directly
would add a session token from the environment to it.

**The user's AWS profile.** AWS's own tools search several places. The client reads environment variables, web
identity tokens, container credentials and the metadata of the instance. Two files come after the environment
variables and before the other places. The client does not read them, so this module does::

    ~/.aws/credentials    [name]           aws_access_key_id, aws_secret_access_key, aws_session_token
    ~/.aws/config         [profile name]   the same, and region

``AWS_PROFILE`` is the name of the profile (default: ``default``). ``AWS_SHARED_CREDENTIALS_FILE`` and
``AWS_CONFIG_FILE`` are paths of other files. Single sign-on, assumed roles and credential processes are not
supported: the user passes their result through ``get_credentials`` or the environment.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from configparser import Error, RawConfigParser
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, override
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.remedies import Remedy
from frazil.storage.credential_families import (
    AnyAzureCredential,
    AnyGcsCredential,
    AnyS3Credential,
    AzureCredentials,
    AzureStaticCredentials,
    GcsCredentials,
    GcsStaticCredentials,
    RefreshableCredential,
    S3Credentials,
    S3StaticCredentials,
)
from frazil.storage.failures import MessageTerms, first_line
from frazil.storage.object_store_config import ChecksumAlgorithm, S3Options
from frazil.storage.option_names import shown_url
from frazil.storage.settings import client_options, retry_config, split_options

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore

    from frazil.storage.settings import StorageSettings

#: The name of the client in ``repr``. The reference has two clients for S3. This one is its default.
NATIVE: Final = "S3 (native)"
#: A credential that expires within this time is not used any more.
_EXPIRY_MARGIN: Final = timedelta(seconds=15)
_PUBLIC_DATA: Final = "For public data, make a profile of Frazil with the option `anonymous`"


class Bucket(ABC):
    """A bucket or container of an object store: a dataclass with ``name`` and ``credentials``."""

    name: str
    credentials: Any
    #: The class of the client, and its option for the endpoint.
    client: ClassVar[Callable[..., ObjectStore]]
    endpoint_option: ClassVar[str]
    #: Whether names of objects contain percent codes: see ``Storage.encodes_names``.
    encodes_names: bool

    @property
    @abstractmethod
    def terms(self) -> MessageTerms:
        """The words of messages for this bucket."""

    @abstractmethod
    def address(self, prefix: str) -> str:
        """Return the URL of a prefix, for messages."""

    @abstractmethod
    def rows(self, prefix: str) -> dict[str, str | bool | None]:
        """Return the rows of ``repr(storage)`` after the first line. A row with None is not shown."""

    @property
    @abstractmethod
    def endpoint(self) -> str | None:
        """The URL of the server that the user has set."""

    @abstractmethod
    def configuration(
        self, settings: StorageSettings, headers: Mapping[str, str]
    ) -> tuple[ClientConfig, dict[str, Any]]:
        """Return the options of the HTTP client, and the options of the store."""

    def provider(self) -> Callable[[], Any] | None:
        """Return what the client calls for credentials; None lets the client search for them itself."""
        is_refreshable = isinstance(self.credentials, RefreshableCredential)
        return RefreshProvider(self.credentials) if is_refreshable else None

    def describe(self, prefix: str) -> str:
        """Return the lines of ``repr(storage)`` after the first line."""
        rows = self.rows(prefix)
        return "".join(f"{name}: {value}\n" for name, value in rows.items() if value is not None)

    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        """Return a client for the keys below ``prefix``. No request is sent."""
        _check_bucket(self.name)
        _check_endpoint(self.endpoint_option, self.endpoint)
        client, config = self.configuration(settings, headers)
        try:
            return self.client(
                self.name,
                prefix=prefix or None,
                config=config,
                client_options=client,
                retry_config=retry_config(settings),
                credential_provider=self.provider(),
            )
        except (BaseError, ValueError, TypeError) as error:
            terms = self.terms
            raise StorageError(
                f"the options or credentials of {terms.name} ({terms.service}) are not valid: "
                f"{first_line(error)}",
                ErrorKind.STORAGE_CONFIG,
            ) from None


def _check_bucket(name: str) -> None:
    """Raise ``StorageError`` (``storage-config``) for an invalid name of a bucket or container."""
    # The client inserts the name into a URL without a check, and its errors do not explain the problem.
    if re.fullmatch(r"[^\s/?#]+", name) is None or name in (".", ".."):
        raise StorageError(
            "the name of a bucket or container must not be empty and must not contain '/', '?', '#' and "
            f"spaces, got {name!r}. Pass a path inside the bucket as `prefix`",
            ErrorKind.STORAGE_CONFIG,
        )


def _check_endpoint(option: str, url: str | None) -> None:
    """Raise ``StorageError`` (``storage-config``) if an endpoint is not an http or https URL with a host."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise StorageError(
            f"{option} must be a URL such as https://host or http://host:9000, got {shown_url(url)!r}",
            ErrorKind.STORAGE_CONFIG,
        )


@dataclass(frozen=True, slots=True)
class S3Bucket(Bucket):
    """A bucket of S3 or of a server with its protocol, with its options and credentials."""

    name: str
    options: S3Options = field(default_factory=S3Options)
    credentials: AnyS3Credential = field(default_factory=S3Credentials.FromEnv)
    shown_as: str = NATIVE

    client = S3Store
    endpoint_option = "endpoint_url"

    @property
    @override
    def terms(self) -> MessageTerms:
        return MessageTerms(
            f"bucket {self.name!r}",
            "S3",
            Remedy(
                "Pass access_key_id and secret_access_key, `from_env=True` with credentials in the "
                "environment, `get_credentials`, or `anonymous=True` for public data",
                shell=f"Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE. {_PUBLIC_DATA}",
            ),
            self.options.anonymous or isinstance(self.credentials, S3Credentials.Anonymous),
        )

    @property
    def encodes_names(self) -> bool:  # type: ignore[override]  # read only
        """Whether names of objects contain percent codes."""
        return self.shown_as != NATIVE

    @property
    @override
    def endpoint(self) -> str | None:
        return self.options.endpoint_url

    @override
    def configuration(
        self, settings: StorageSettings, headers: Mapping[str, str]
    ) -> tuple[ClientConfig, dict[str, Any]]:
        options = self.options
        endpoint, virtual_hosted = s3_addressing(self.name, options)
        algorithm = options.checksum_algorithm
        config = {
            "request_payer": options.requester_pays or None,
            "skip_signature": self.terms.is_anonymous,
            "region": _profile_region() if options.region is None else options.region,
            "virtual_hosted_style_request": virtual_hosted,
            "endpoint": endpoint,
            "checksum_algorithm": None if algorithm is None else _s3_checksum(algorithm),
        }
        client = client_options(settings, headers, stream_timeout=options.network_stream_timeout_seconds)
        client["allow_http"] = options.allow_http
        return client, {name: value for name, value in config.items() if value is not None}

    @override
    def provider(self) -> Callable[[], Any] | None:
        if self.terms.is_anonymous:
            return None
        match self.credentials:
            case S3Credentials.Static(keys):
                return ConstantProvider(_answer(keys))
            case S3Credentials.Refreshable():
                return RefreshProvider(self.credentials)
            case _:
                profile = _profile_keys()
                return None if profile is None else ConstantProvider(_answer(profile))

    @override
    def address(self, prefix: str) -> str:
        endpoint = self.options.endpoint_url
        where = "" if endpoint is None else f" at {shown_url(endpoint)}"
        return f"s3://{self.name}/{prefix}{where}"

    @override
    def rows(self, prefix: str) -> dict[str, str | bool | None]:
        options = self.options
        return {
            "type": self.shown_as,
            "bucket": self.name,
            "prefix": prefix or None,
            "region": options.region,
            "endpoint_url": None if options.endpoint_url is None else shown_url(options.endpoint_url),
            "anonymous": isinstance(self.credentials, S3Credentials.Anonymous) or None,
            "allow_http": options.allow_http or None,
            "force_path_style": options.force_path_style or None,
            "requester_pays": options.requester_pays or None,
        }


def s3_addressing(bucket: str, options: S3Options) -> tuple[str | None, bool]:
    """Return the endpoint for the client, and whether the bucket is part of its host name."""
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
    """Return whether the bucket cannot be put before the name of this host."""
    if "." not in host:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _s3_checksum(algorithm: ChecksumAlgorithm) -> str:
    names = {ChecksumAlgorithm.Sha256: "SHA256", ChecksumAlgorithm.Crc64Nvme: "CRC64NVME"}
    if algorithm not in names:
        raise InvalidInputError(
            f"checksum_algorithm must be Sha256 or Crc64Nvme, got {algorithm.name}",
            ErrorKind.STORAGE_CONFIG,
        )
    return names[algorithm]


@dataclass(frozen=True, slots=True)
class GcsBucket(Bucket):
    """A bucket of Google Cloud Storage, with its options and credentials."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: AnyGcsCredential = field(default_factory=GcsCredentials.FromEnv)

    client = GCSStore
    endpoint_option = "base_url"
    encodes_names = True

    @property
    @override
    def terms(self) -> MessageTerms:
        return MessageTerms(
            f"bucket {self.name!r}",
            "Google Cloud Storage",
            Remedy(
                "Pass service_account_file, service_account_key, application_credentials, bearer_token, "
                "`from_env=True` with credentials in the environment, `get_credentials`, or `anonymous=True` "
                "for public data",
                shell=f"Set GOOGLE_APPLICATION_CREDENTIALS. {_PUBLIC_DATA}",
            ),
            isinstance(self.credentials, GcsCredentials.Anonymous),
        )

    @property
    @override
    def endpoint(self) -> str | None:
        return self.config.get(self.endpoint_option)

    @override
    def configuration(
        self, settings: StorageSettings, headers: Mapping[str, str]
    ) -> tuple[ClientConfig, dict[str, Any]]:
        client, config = split_options(self.config, settings, headers)
        return client, config | _gcs_config(self.credentials)

    @override
    def address(self, prefix: str) -> str:
        return f"gs://{self.name}/{prefix}"

    @override
    def rows(self, prefix: str) -> dict[str, str | bool | None]:
        return {"type": "GCS", "bucket": self.name, "prefix": prefix or None}


def _gcs_config(credentials: AnyGcsCredential) -> dict[str, Any]:
    match credentials:
        case GcsCredentials.Anonymous():
            # Without a token the client asks the machine's metadata server, also for anonymous requests.
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


@dataclass(frozen=True, slots=True)
class AzureContainer(Bucket):
    """A container of Azure blob storage, with its account, options and credentials."""

    account: str
    name: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: AnyAzureCredential = field(default_factory=AzureCredentials.FromEnv)

    client = AzureStore
    endpoint_option = "endpoint"
    encodes_names = True

    @property
    @override
    def terms(self) -> MessageTerms:
        return MessageTerms(
            f"container {self.name!r} of account {self.account!r}",
            "Azure",
            Remedy(
                "Pass access_key, sas_token, bearer_token, `from_env=True` with credentials in the "
                "environment, or `anonymous=True` for public data",
                shell=f"Set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN. {_PUBLIC_DATA}",
            ),
            isinstance(self.credentials, AzureCredentials.Anonymous),
        )

    @property
    @override
    def endpoint(self) -> str | None:
        return self.config.get(self.endpoint_option)

    @override
    def configuration(
        self, settings: StorageSettings, headers: Mapping[str, str]
    ) -> tuple[ClientConfig, dict[str, Any]]:
        client, config = split_options(self.config, settings, headers)
        return client, config | _azure_config(self.credentials) | {"account_name": self.account}

    @override
    def address(self, prefix: str) -> str:
        return f"az://{self.account}/{self.name}/{prefix}"

    @override
    def rows(self, prefix: str) -> dict[str, str | bool | None]:
        rows = {"type": "Azure", "account": self.account, "container": self.name}
        return {**rows, "prefix": prefix or None}


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


#: Field of a credential -> its name for the client.
_ANSWERS: Final = {
    "access_key_id": "access_key_id",
    "secret_access_key": "secret_access_key",
    "session_token": "token",
    "bearer": "token",
    "key": "access_key",
    "token": "sas_token",
    "expires_after": "expires_at",
}


def _answer(credential: Any) -> dict[str, Any]:
    """Return a credential as the client expects it from a provider."""
    fields = {name: getattr(credential, name, ...) for name in _ANSWERS}
    return {_ANSWERS[name]: value for name, value in fields.items() if value is not ...}


@dataclass(frozen=True, slots=True)
class ConstantProvider:
    """A provider that always returns the same credentials."""

    answer: dict[str, Any] = field(repr=False)

    def __call__(self) -> Any:
        """Return the credentials."""
        return self.answer


class RefreshProvider:
    """A provider that calls the user's function, and again when its last result is about to expire.

    From five minutes before the end, the client asks before every request. Therefore the last
    result is cached.
    """

    def __init__(self, credentials: RefreshableCredential[Any]) -> None:
        self._credentials = credentials
        self._current: Any = credentials.current

    def __call__(self) -> Any:
        """Return the last credentials, or new ones if they expire soon."""
        now = datetime.now(UTC)
        current = self._current
        if current is None or _is_over(current.expires_after, now):
            current = self._current = self._credentials.refresh()
        return _answer(current)


def _is_over(expires: datetime | None, now: datetime) -> bool:
    return expires is not None and expires - _EXPIRY_MARGIN <= now


def _profile_keys() -> S3StaticCredentials | None:
    """Return the keys of the profile, or None if it has no keys.

    The result is also None if the environment has keys, which take precedence.
    """
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return None
    profile = _profile()
    key, secret = profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")
    if not key or not secret:
        return None
    return S3StaticCredentials(key, secret, profile.get("aws_session_token"))


def _profile_region() -> str | None:
    """Return the region of the profile, or None if it has no region.

    The result is also None if the environment has a region, which takes precedence.
    """
    if "AWS_REGION" in os.environ or "AWS_DEFAULT_REGION" in os.environ:
        return None
    return _profile().get("region")


def _profile() -> dict[str, str]:
    name = os.environ.get("AWS_PROFILE") or "default"
    section = name if name == "default" else f"profile {name}"
    config = _section("AWS_CONFIG_FILE", "config", section)
    return config | _section("AWS_SHARED_CREDENTIALS_FILE", "credentials", name)


def _section(variable: str, file: str, section: str) -> dict[str, str]:
    path = Path(os.environ.get(variable) or Path.home() / ".aws" / file)
    parser = RawConfigParser(strict=False)
    try:
        parser.read(path, encoding="utf-8")
    except (Error, UnicodeDecodeError) as error:
        raise StorageError(
            f"cannot read the AWS profile in {path}: {' '.join(str(error).split())}", ErrorKind.STORAGE_CONFIG
        ).with_remedy(
            "Correct the file, or pass access_key_id and secret_access_key",
            shell="Correct the file, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from error
    return dict(parser[section]) if parser.has_section(section) else {}
