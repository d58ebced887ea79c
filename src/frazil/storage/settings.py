"""Settings of a storage: retries, time-outs, concurrency, storage classes and conditions.

A field that is None has the default of the kind of storage. The objects here hold the settings of the user or
of the saved configuration. ``frazil.options.merged`` combines both, field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from frazil.about import user_agent
from frazil.options import Settings, option, unsigned, with_defaults
from frazil.storage.option_names import CLIENT_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ClientConfig, RetryConfig


@dataclass(slots=True, repr=False)
class StorageRetriesSettings(Settings):
    """Retries of one request to a storage.

    Attributes:
        max_tries: Number of tries, with the first one. At least 1. Default: 10.
        initial_backoff_ms: Pause before the second try, in milliseconds. Default: 100.
        max_backoff_ms: Longest pause between two tries, in milliseconds. Default: 180000.

    Examples:
        >>> StorageRetriesSettings(max_tries=3).max_tries
        3
    """

    max_tries: int | None = option(10, unsigned(16, zero=False))
    initial_backoff_ms: int | None = option(100, unsigned(32))
    max_backoff_ms: int | None = option(180_000, unsigned(32))

    shown_as: ClassVar[str] = "storage.StorageRetriesSettings"


@dataclass(slots=True, repr=False)
class StorageTimeoutSettings(Settings):
    """Time-outs of one request to a storage, in milliseconds.

    Attributes:
        connect_timeout_ms: Limit for opening a connection. Default: the client's default.
        read_timeout_ms: Limit for one read from a connection. Default: 60000, and for S3
            ``network_stream_timeout_seconds``.
        operation_timeout_ms: Limit for a request with all its retries. Default: 300000.
        operation_attempt_timeout_ms: Limit for one try. Default: 600000.

    Examples:
        >>> StorageTimeoutSettings(connect_timeout_ms=2000).connect_timeout_ms
        2000
    """

    connect_timeout_ms: int | None = option(check=unsigned(32))
    read_timeout_ms: int | None = option(check=unsigned(32))
    operation_timeout_ms: int | None = option(check=unsigned(32))
    operation_attempt_timeout_ms: int | None = option(check=unsigned(32))

    shown_as: ClassVar[str] = "storage.StorageTimeoutSettings"


@dataclass(slots=True, repr=False)
class StorageConcurrencySettings(Settings):
    """Concurrent requests for one large object.

    Attributes:
        max_concurrent_requests_for_object: Number of requests at the same time. At least 1. Default: 18.
        ideal_concurrent_request_size: Size of each request in bytes. At least 1. Default: 12 MiB.
    """

    max_concurrent_requests_for_object: int | None = option(18, unsigned(16, zero=False))
    ideal_concurrent_request_size: int | None = option(12 << 20, unsigned(64, zero=False))

    shown_as: ClassVar[str] = "storage.StorageConcurrencySettings"


@dataclass(slots=True, repr=False)
class StorageSettings(Settings):
    """Settings of a storage. All fields are optional and can be assigned later.

    A field that is None has the default of its kind of storage. The defaults below are for object stores.

    The ``unsafe_use_*`` fields are for servers without conditional writes or object metadata. **Without
    conditional writes, concurrent commits can be lost.**

    Attributes:
        concurrency: Concurrent requests for one large object.
        retries: Retries of one request.
        unsafe_use_conditional_create: False replaces conditional creates by a check that is not atomic.
            Default: True.
        unsafe_use_conditional_update: False replaces conditional updates by a check that is not atomic.
            Default: True.
        unsafe_use_metadata: Saved for other implementations. Frazil writes no object metadata.
        storage_class: Storage class of all objects, as the server names it. Default: the server's default.
        metadata_storage_class: Storage class of all objects except chunks. Default: ``storage_class``.
        chunks_storage_class: Storage class of chunks. Default: ``storage_class``.
        minimum_size_for_multipart_upload: Size in bytes from which objects are uploaded in parts.
            Default: 100 MiB.
        timeouts: Time-outs of one request.

    Examples:
        >>> StorageSettings(storage_class="STANDARD_IA").storage_class
        'STANDARD_IA'
    """

    concurrency: StorageConcurrencySettings | None = option(StorageConcurrencySettings())
    retries: StorageRetriesSettings | None = option(StorageRetriesSettings())
    unsafe_use_conditional_create: bool | None = option(True)
    unsafe_use_conditional_update: bool | None = option(True)
    unsafe_use_metadata: bool | None = option(True)
    storage_class: str | None = None
    metadata_storage_class: str | None = None
    chunks_storage_class: str | None = None
    minimum_size_for_multipart_upload: int | None = option(100 << 20, unsigned(64))
    timeouts: StorageTimeoutSettings | None = None

    shown_as: ClassVar[str] = "storage.StorageSettings"
    order: ClassVar[tuple[str, ...]] = (
        *("unsafe_use_conditional_create", "unsafe_use_conditional_update", "unsafe_use_metadata"),
        *("storage_class", "metadata_storage_class", "chunks_storage_class"),
        "minimum_size_for_multipart_upload",
    )


#: A read without progress fails after this number of seconds. It is the reference's default.
DEFAULT_STREAM_TIMEOUT: Final = 60
#: Limit for one try, also for the upload of a large part over a slow network. The client's default is 30 s.
_ATTEMPT_TIMEOUT: Final = timedelta(minutes=10)
#: The client has an option for this header.
_USER_AGENT: Final = "user-agent"
#: Limit for one request with all its retries. The client signs every retry again.
_RETRY_TIMEOUT: Final = timedelta(minutes=5)

#: Options of the HTTP client. All other options belong to the store.
HTTP_OPTIONS: Final = CLIENT_OPTIONS | {
    *("allow_http", "allow_invalid_certificates", "default_content_type", "user_agent"),
    *("proxy_ca_certificate", "proxy_excludes", "proxy_url"),
}


def client_options(
    settings: StorageSettings, headers: Mapping[str, str], stream_timeout: int | None = None
) -> ClientConfig:
    """Return options of the HTTP client. Times are ``timedelta``."""
    timeouts = settings.timeouts or StorageTimeoutSettings()
    stream = DEFAULT_STREAM_TIMEOUT if stream_timeout is None else stream_timeout
    client: ClientConfig = {"user_agent": user_agent(), "timeout": _ATTEMPT_TIMEOUT}
    if stream:
        client["read_timeout"] = timedelta(seconds=stream)
    plain_headers = {name: value for name, value in headers.items() if name.lower() != _USER_AGENT}
    if len(plain_headers) < len(headers):
        client["user_agent"] = next(v for name, v in headers.items() if name.lower() == _USER_AGENT)
    if plain_headers:
        client["default_headers"] = plain_headers
    if timeouts.operation_attempt_timeout_ms is not None:
        client["timeout"] = timedelta(milliseconds=timeouts.operation_attempt_timeout_ms)
    if timeouts.connect_timeout_ms is not None:
        client["connect_timeout"] = timedelta(milliseconds=timeouts.connect_timeout_ms)
    if timeouts.read_timeout_ms is not None:
        client["read_timeout"] = timedelta(milliseconds=timeouts.read_timeout_ms)
    return client


def retry_config(settings: StorageSettings) -> RetryConfig:
    """Return how often a client repeats a request, and how long it waits before."""
    retries = with_defaults(settings).retries
    total = None if settings.timeouts is None else settings.timeouts.operation_timeout_ms
    return {
        "max_retries": retries.max_tries - 1,
        "retry_timeout": _RETRY_TIMEOUT if total is None else timedelta(milliseconds=total),
        "backoff": {
            "init_backoff": timedelta(milliseconds=retries.initial_backoff_ms),
            "max_backoff": timedelta(milliseconds=retries.max_backoff_ms),
        },
    }
