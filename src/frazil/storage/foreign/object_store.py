"""Objects in S3, GCS and Azure that virtual chunks refer to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, override

import obstore

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.buckets import AzureContainer, Bucket, GcsBucket, S3Bucket
from frazil.storage.credential_families import AnyCredential, Credentials
from frazil.storage.foreign.base import (
    ForeignObjects,
    ForeignRange,
    check_segments,
    credentials_mismatch,
    fetch_errors,
    outside_prefix,
)
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.option_names import shown_url
from frazil.storage.process_guard import enter_runtime
from frazil.storage.services import TIGRIS_ENDPOINT
from frazil.storage.settings import StorageSettings
from frazil.storage.traffic import TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Buffer

    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore


@dataclass(slots=True)
class ForeignStore(ForeignObjects):
    """Objects in S3, GCS or Azure, with one client for each bucket or container."""

    url_prefix: str
    config: AnyObjectStoreConfig
    credentials: AnyCredential
    settings: StorageSettings
    user_agent: str | None = None
    _clients: dict[str, ObjectStore] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.url_prefix, self.config, self.credentials, self.settings, self.user_agent)
        return (ForeignStore, values)

    @override
    def _read(self, byte_range: ForeignRange) -> Buffer:
        client, key = self._client_and_key(byte_range.url)
        if byte_range.is_empty:
            return b""
        with fetch_errors(byte_range.url):
            options: GetOptions = {"range": (byte_range.start, byte_range.stop)}
            answer = obstore.get(client, key, options=options)
            _check_answer(byte_range, answer)
            return TRAFFIC.count_read(answer.bytes())

    @override
    async def _read_async(self, byte_range: ForeignRange) -> Buffer:
        client, key = self._client_and_key(byte_range.url)
        if byte_range.is_empty:
            return b""
        with fetch_errors(byte_range.url):
            answer = await obstore.get_async(
                client, key, options={"range": (byte_range.start, byte_range.stop)}
            )
            _check_answer(byte_range, answer)
            return TRAFFIC.count_read(await answer.bytes_async())

    @override
    def size(self, url: str) -> int:
        client, key = self._client_and_key(url)
        with fetch_errors(url):
            return obstore.head(client, key)["size"]

    def _client_and_key(self, url: str) -> tuple[ObjectStore, str]:
        if not url.startswith(self.url_prefix):
            raise outside_prefix(url, self.url_prefix)
        name, key = _split_bucket(url)
        check_segments(url, key)
        enter_runtime()
        client = self._clients.get(name)
        if client is None:
            bucket = _bucket_of(self.config, self.credentials, name)
            headers = {} if self.user_agent is None else {"User-Agent": self.user_agent}
            client = self._clients[name] = bucket.connect("", self.settings, headers)
        return client, key


#: Names of buckets become parts of host names. They must not contain characters that end a host name.
_BUCKET: Final = re.compile(r"[A-Za-z0-9$._-]+")


def _split_bucket(url: str) -> tuple[str, str]:
    name, _, key = url.partition("://")[2].partition("/")
    if _BUCKET.fullmatch(name) is None:
        raise InvalidInputError(
            f"the bucket in {shown_url(url)!r} must consist of letters, digits, '.', '-', '_' and '$'",
            ErrorKind.INVALID_VIRTUAL_REF,
        )
    return name, key


def _bucket_of(config: AnyObjectStoreConfig, credentials: AnyCredential, name: str) -> Bucket:
    """Return the bucket or container of this name, with the credentials that the user granted."""
    match config, credentials:
        case (ObjectStoreConfig.S3(options) | ObjectStoreConfig.S3Compatible(options), Credentials.S3(keys)):
            return S3Bucket(name, options, keys)
        case ObjectStoreConfig.Tigris(options), Credentials.S3(keys):
            region, endpoint = options.region or "auto", options.endpoint_url or TIGRIS_ENDPOINT
            return S3Bucket(name, replace(options, region=region, endpoint_url=endpoint), keys)
        case ObjectStoreConfig.Gcs(opts), Credentials.Gcs(token):
            return GcsBucket(name, dict(opts or {}), token)
        case ObjectStoreConfig.Azure(opts), Credentials.Azure(secret):
            return _azure(name, dict(opts or {}), secret)
        case _:
            raise credentials_mismatch(credentials, config)


def _azure(container: str, opts: dict[str, str], credentials: Any) -> AzureContainer:
    if "account" not in opts:
        raise InvalidInputError(
            "an Azure store must have the name of its account. Use azure_store(account=...)",
            ErrorKind.STORAGE_CONFIG,
        )
    return AzureContainer(opts.pop("account"), container, opts, credentials)


def _check_answer(byte_range: ForeignRange, answer: GetResult) -> None:
    meta = answer.meta
    # Object stores send whole seconds. Some send fractions in listings.
    byte_range.check_object(meta["e_tag"], int(meta["last_modified"].timestamp()))
    if answer.range != (byte_range.start, byte_range.stop):
        raise byte_range.too_short(answer.range[1])
