"""Buckets of S3 and of servers with its protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, override
from urllib.parse import urlsplit

from obstore.store import S3Store

from frazil.errors import ErrorKind, InvalidInputError
from frazil.remedies import Remedy
from frazil.storage.aws_profile import profile_region
from frazil.storage.buckets.base import Bucket, check_bucket, check_endpoint, connect_client, description
from frazil.storage.buckets.client import client_options, retry_config
from frazil.storage.buckets.providers import s3_provider
from frazil.storage.credential_families import AnyS3Credential, S3Credentials
from frazil.storage.failures import MessageTerms
from frazil.storage.object_store_config import ChecksumAlgorithm, S3Options
from frazil.storage.option_names import shown_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from frazil.storage.settings import StorageSettings

#: The name of the client in ``repr``. The reference has two clients for S3. This one is its default.
NATIVE: Final = "S3 (native)"


@dataclass(frozen=True, slots=True)
class S3Bucket(Bucket):
    """A bucket of S3 or of a server with its protocol, with its options and credentials."""

    name: str
    options: S3Options = field(default_factory=S3Options)
    credentials: AnyS3Credential = field(default_factory=S3Credentials.FromEnv)
    shown_as: str = NATIVE

    @property
    @override
    def terms(self) -> MessageTerms:
        return MessageTerms(
            f"bucket {self.name!r}",
            "S3",
            Remedy(
                "Pass access_key_id and secret_access_key, `from_env=True` with credentials in the "
                "environment, `get_credentials`, or `anonymous=True` for public data",
                shell="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE. For public data, "
                "make a profile of Frazil with the option `anonymous`",
            ),
            self.options.anonymous or isinstance(self.credentials, S3Credentials.Anonymous),
        )

    @property
    @override
    def encodes_names(self) -> bool:
        return self.shown_as != NATIVE

    @override
    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        options = self.options
        check_bucket(self.name)
        check_endpoint("endpoint_url", options.endpoint_url)
        config: dict[str, Any] = {"request_payer": True} if options.requester_pays else {}
        anonymous = self.terms.is_anonymous
        config["skip_signature"] = anonymous
        region = profile_region() if options.region is None else options.region
        if region is not None:
            config["region"] = region
        endpoint, virtual_hosted = s3_addressing(self.name, options)
        config["virtual_hosted_style_request"] = virtual_hosted
        if endpoint is not None:
            config["endpoint"] = endpoint
        if options.checksum_algorithm is not None:
            config["checksum_algorithm"] = _s3_checksum(options.checksum_algorithm)
        client = client_options(settings, headers, stream_timeout=options.network_stream_timeout_seconds)
        client["allow_http"] = options.allow_http
        return connect_client(
            self.terms,
            lambda: S3Store(
                self.name,
                prefix=prefix or None,
                config=config,  # type: ignore[arg-type]  # a TypedDict, built by key
                client_options=client,
                retry_config=retry_config(settings),
                credential_provider=None if anonymous else s3_provider(self.credentials),
            ),
        )

    @override
    def address(self, prefix: str) -> str:
        endpoint = self.options.endpoint_url
        where = "" if endpoint is None else f" at {shown_url(endpoint)}"
        return f"s3://{self.name}/{prefix}{where}"

    @override
    def describe(self, prefix: str) -> str:
        options = self.options
        rows = {
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
        return description(rows)


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
