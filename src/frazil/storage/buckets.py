"""Buckets and containers of object stores, with their credentials, as values. ``connect`` creates the client.

Static credentials of S3 also reach the client through a callable. A client that gets a key directly would add
a session token from the environment to it.

**The user's AWS profile.** The client reads environment variables, web identity tokens, container credentials
and the metadata of the instance. AWS's own tools also read two files after the environment variables, so this
module does: ``~/.aws/credentials`` (or ``AWS_SHARED_CREDENTIALS_FILE``) and ``~/.aws/config`` (or
``AWS_CONFIG_FILE``), the profile ``AWS_PROFILE`` or ``default``. Single sign-on, assumed roles and credential
processes are not supported: the user passes their result.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from configparser import Error, RawConfigParser
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, override
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from frazil.errors import ErrorKind, InvalidInputError
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
from frazil.storage.failures import MessageTerms, first_line, wrong_setup
from frazil.storage.object_store_config import ChecksumAlgorithm, S3Options
from frazil.storage.option_names import address_parts, shown_url
from frazil.storage.settings import HTTP_OPTIONS, client_options, retry_config

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore

    from frazil.storage.settings import StorageSettings

    type Configuration = tuple[ClientConfig, dict[str, Any]]

#: The name of the client in ``repr``. The reference has two clients for S3. This one is its default.
NATIVE: Final = "S3 (native)"
#: A credential that expires within this time is not used any more.
_EXPIRY_MARGIN: Final = timedelta(seconds=15)
_PUBLIC_DATA: Final = "For public data, make a profile of Frazil with the option `anonymous`"


#: The option of the client for a secret, by the class of the secret.
_SECRETS: Final[Mapping[type, str]] = {
    GcsStaticCredentials.ServiceAccount: "service_account",
    GcsStaticCredentials.ServiceAccountKey: "service_account_key",
    GcsStaticCredentials.ApplicationCredentials: "application_credentials",
    GcsStaticCredentials.BearerToken: "bearer_token",
    AzureStaticCredentials.AccessKey: "account_key",
    AzureStaticCredentials.SasToken: "sas_key",
    AzureStaticCredentials.BearerToken: "token",
}


class Bucket(ABC):
    """A bucket or container of an object store: a dataclass with ``name`` and ``credentials``."""

    name: str
    credentials: Any
    #: Options of the client by name. S3 has an ``S3Options`` instead.
    config: Mapping[str, str]
    #: The class of the client, its option for the endpoint, and its options for anonymous requests.
    client: ClassVar[Callable[..., ObjectStore]]
    endpoint_option: ClassVar[str]
    anonymous_options: ClassVar[Mapping[str, Any]]
    #: The words of messages: the name of the service, and how to pass credentials.
    service: ClassVar[str]
    advice: ClassVar[Remedy]
    #: Whether names of objects contain percent codes: see ``Storage.encodes_names``.
    encodes_names: bool

    @property
    def is_anonymous(self) -> bool:
        """Whether requests are sent without credentials."""
        return isinstance(self.credentials, GcsCredentials.Anonymous | AzureCredentials.Anonymous)

    @property
    def terms(self) -> MessageTerms:
        """The words of messages for this bucket."""
        return MessageTerms(f"bucket {self.name!r}", self.service, self.advice, self.is_anonymous)

    @abstractmethod
    def address(self, prefix: str) -> str:
        """Return the URL of a prefix, for messages."""

    @abstractmethod
    def rows(self, prefix: str) -> dict[str, str | bool | None]:
        """Return the rows of ``repr(storage)`` after the first line. A row with None is not shown."""

    @property
    def endpoint(self) -> str | None:
        """The URL of the server that the user has set."""
        return self.config.get(self.endpoint_option)

    def configuration(self, settings: StorageSettings, headers: Mapping[str, str]) -> Configuration:
        """Return the options of the HTTP client, and the options of the store."""
        client: Any = client_options(settings, headers)
        client |= {name: value for name, value in self.config.items() if name in HTTP_OPTIONS}
        config: dict[str, Any] = {n: value for n, value in self.config.items() if n not in HTTP_OPTIONS}
        if isinstance(self.credentials, GcsCredentials.Static | AzureCredentials.Static):
            secret = self.credentials.credentials
            config[_SECRETS[type(secret)]] = getattr(secret, secret.__match_args__[0])
        return client, {**config, **(self.anonymous_options if self.is_anonymous else {})}

    def provider(self) -> Callable[[], Any] | None:
        """Return what the client calls for credentials; None lets the client search for them itself."""
        is_refreshable = isinstance(self.credentials, RefreshableCredential)
        return RefreshProvider(self.credentials) if is_refreshable else None

    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        """Return a client for the keys below ``prefix``. No request is sent."""
        # The client inserts the name into a URL without a check, and its errors do not explain the problem.
        if re.fullmatch(r"[^\s/?#]+", self.name) is None or self.name in (".", ".."):
            raise wrong_setup(
                "the name of a bucket or container must not be empty and must not contain '/', '?', '#' and "
                f"spaces, got {self.name!r}. Pass a path inside the bucket as `prefix`"
            )
        url = self.endpoint
        parts = None if url is None else address_parts(url)
        if url is not None and (parts is None or parts.scheme not in ("http", "https")):
            raise wrong_setup(
                f"{self.endpoint_option} must be a URL such as https://host:9000, got {shown_url(url)!r}"
            )
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
            raise wrong_setup(
                f"the options or credentials of {terms.name} ({terms.service}) are not valid: "
                f"{first_line(error)}"
            ) from None


#: The checksums that the client can send.
_CHECKSUMS: Final = {ChecksumAlgorithm.Sha256: "SHA256", ChecksumAlgorithm.Crc64Nvme: "CRC64NVME"}
#: Hosts before whose names a bucket cannot be put: those without a dot, and addresses.
_PLAIN_HOST: Final = re.compile(r"[^.]*|[0-9.]+|.*:.*")


@dataclass(frozen=True, slots=True)
class S3Bucket(Bucket):
    """A bucket of S3 or of a server with its protocol, with its options and credentials."""

    name: str
    options: S3Options = field(default_factory=S3Options)
    credentials: AnyS3Credential = field(default_factory=S3Credentials.FromEnv)
    shown_as: str = NATIVE

    client: ClassVar[Callable[..., ObjectStore]] = S3Store
    service = "S3"
    advice: ClassVar[Remedy] = Remedy(
        "Pass access_key_id and secret_access_key, `from_env=True` with credentials in the "
        "environment, `get_credentials`, or `anonymous=True` for public data",
        shell=f"Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE. {_PUBLIC_DATA}",
    )
    endpoint_option = "endpoint_url"

    @property
    @override
    def is_anonymous(self) -> bool:
        return self.options.anonymous or isinstance(self.credentials, S3Credentials.Anonymous)

    @property
    def encodes_names(self) -> bool:  # type: ignore[override]  # read only
        """Whether names of objects contain percent codes."""
        return self.shown_as != NATIVE

    @property
    @override
    def endpoint(self) -> str | None:
        return self.options.endpoint_url

    @override
    def configuration(self, settings: StorageSettings, headers: Mapping[str, str]) -> Configuration:
        options = self.options
        endpoint, virtual_hosted = s3_addressing(self.name, options)
        algorithm = options.checksum_algorithm
        if algorithm is not None and algorithm not in _CHECKSUMS:
            raise InvalidInputError(
                f"checksum_algorithm must be Sha256 or Crc64Nvme, got {algorithm.name}",
                ErrorKind.STORAGE_CONFIG,
            )
        profile = _profile("AWS_REGION", "AWS_DEFAULT_REGION") if options.region is None else {}
        config = {
            "request_payer": options.requester_pays or None,
            "skip_signature": self.is_anonymous,
            "region": options.region or profile.get("region"),
            "virtual_hosted_style_request": virtual_hosted,
            "endpoint": endpoint,
            "checksum_algorithm": None if algorithm is None else _CHECKSUMS[algorithm],
        }
        client = client_options(settings, headers, stream_timeout=options.network_stream_timeout_seconds)
        client["allow_http"] = options.allow_http
        return client, {name: value for name, value in config.items() if value is not None}

    @override
    def provider(self) -> Callable[[], Any] | None:
        match self.credentials:
            case _ if self.is_anonymous:
                return None
            case S3Credentials.Static(keys):
                return partial(_answer, keys)
            case S3Credentials.Refreshable():
                return RefreshProvider(self.credentials)
        profile = _profile("AWS_ACCESS_KEY_ID")
        key, secret = profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")
        if not key or not secret:
            return None
        return partial(_answer, S3StaticCredentials(key, secret, profile.get("aws_session_token")))

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
    if _PLAIN_HOST.fullmatch(url.hostname or ""):
        return endpoint, False
    return url._replace(netloc=f"{bucket}.{url.netloc}").geturl(), True


@dataclass(frozen=True, slots=True)
class GcsBucket(Bucket):
    """A bucket of Google Cloud Storage, with its options and credentials."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: AnyGcsCredential = field(default_factory=GcsCredentials.FromEnv)

    client: ClassVar[Callable[..., ObjectStore]] = GCSStore
    service = "Google Cloud Storage"
    advice: ClassVar[Remedy] = Remedy(
        "Pass service_account_file, service_account_key, application_credentials, bearer_token, "
        "`from_env=True` with credentials in the environment, `get_credentials`, or `anonymous=True` "
        "for public data",
        shell=f"Set GOOGLE_APPLICATION_CREDENTIALS. {_PUBLIC_DATA}",
    )
    endpoint_option = "base_url"
    # Without a token the client asks the machine's metadata server, also for anonymous requests.
    anonymous_options: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"skip_signature": True, "bearer_token": "anonymous"}
    )
    encodes_names = True

    @override
    def address(self, prefix: str) -> str:
        return f"gs://{self.name}/{prefix}"

    @override
    def rows(self, prefix: str) -> dict[str, str | bool | None]:
        return {"type": "GCS", "bucket": self.name, "prefix": prefix or None}


@dataclass(frozen=True, slots=True)
class AzureContainer(Bucket):
    """A container of Azure blob storage, with its account, options and credentials."""

    account: str
    name: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: AnyAzureCredential = field(default_factory=AzureCredentials.FromEnv)

    client: ClassVar[Callable[..., ObjectStore]] = AzureStore
    service = "Azure"
    advice: ClassVar[Remedy] = Remedy(
        "Pass access_key, sas_token, bearer_token, `from_env=True` with credentials in the "
        "environment, or `anonymous=True` for public data",
        shell=f"Set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN. {_PUBLIC_DATA}",
    )
    endpoint_option = "endpoint"
    anonymous_options: ClassVar[Mapping[str, Any]] = MappingProxyType({"skip_signature": True})
    encodes_names = True

    @property
    @override
    def terms(self) -> MessageTerms:
        name = f"container {self.name!r} of account {self.account!r}"
        return MessageTerms(name, self.service, self.advice, self.is_anonymous)

    @override
    def configuration(self, settings: StorageSettings, headers: Mapping[str, str]) -> Configuration:
        client, config = Bucket.configuration(self, settings, headers)
        return client, config | {"account_name": self.account}

    @override
    def address(self, prefix: str) -> str:
        return f"az://{self.account}/{self.name}/{prefix}"

    @override
    def rows(self, prefix: str) -> dict[str, str | bool | None]:
        rows = {"type": "Azure", "account": self.account, "container": self.name}
        return {**rows, "prefix": prefix or None}


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
    return {name: getattr(credential, of) for of, name in _ANSWERS.items() if hasattr(credential, of)}


class RefreshProvider:
    """A provider that calls the user's function, and again when its last result is about to expire.

    From five minutes before the end, the client asks before every request, so the last result is cached.
    """

    def __init__(self, credentials: RefreshableCredential[Any]) -> None:
        self._credentials = credentials
        self._current: Any = credentials.current

    def __call__(self) -> Any:
        """Return the last credentials, or new ones if they expire soon."""
        current = self._current
        expires = None if current is None else current.expires_after
        if current is None or (expires is not None and expires - _EXPIRY_MARGIN <= datetime.now(UTC)):
            current = self._current = self._credentials.refresh()
        return _answer(current)


def _profile(*overriding: str) -> dict[str, str]:
    """Return the user's AWS profile. It is empty if one of these environment variables is set."""
    if any(name in os.environ for name in overriding):
        return {}
    name = os.environ.get("AWS_PROFILE") or "default"
    profile: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        path = Path(os.environ.get(variable) or Path.home() / ".aws" / file)
        parser = RawConfigParser(strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (Error, UnicodeDecodeError) as error:
            raise wrong_setup(
                f"cannot read the AWS profile in {path}: {' '.join(str(error).split())}"
            ).with_remedy(
                "Correct the file, or pass access_key_id and secret_access_key",
                shell="Correct the file, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ) from error
        if parser.has_section(section):
            profile |= dict(parser[section])
    return profile
