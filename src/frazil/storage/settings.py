"""Settings of a storage: retries, time-outs, concurrency, storage classes and conditions.

A field that is None has the default of the kind of storage. The objects here hold the settings of the user or
of the saved configuration. ``merged`` combines both, field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from frazil.display import Check, Default, Settings, instance, unsigned


def merged[T](over: T | None, under: T | None) -> T | None:
    """Return ``over``, with its None fields taken from ``under``. Nested settings are merged, too."""
    if over is None:
        return under
    return over if under is None else _overlaid(over, under)


def _overlaid(over: Any, under: Any) -> Any:
    if not isinstance(over, Settings) or over._whole or type(over) is not type(under):
        return over
    values = {name: merged(getattr(over, name), getattr(under, name)) for name in over._fields}
    return type(over)(**values)


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

    max_tries: int | None = None
    initial_backoff_ms: int | None = None
    max_backoff_ms: int | None = None

    shown_as: ClassVar[str] = "storage.StorageRetriesSettings"
    _fields: ClassVar[dict[str, Default | None]] = {
        "max_tries": Default(10),
        "initial_backoff_ms": Default(100),
        "max_backoff_ms": Default(180_000),
    }
    _checks: ClassVar[dict[str, Check]] = {
        "max_tries": unsigned(16, zero=False),
        "initial_backoff_ms": unsigned(32),
        "max_backoff_ms": unsigned(32),
    }


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

    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    operation_timeout_ms: int | None = None
    operation_attempt_timeout_ms: int | None = None

    shown_as: ClassVar[str] = "storage.StorageTimeoutSettings"
    _fields: ClassVar[dict[str, Default | None]] = {
        "connect_timeout_ms": None,
        "read_timeout_ms": None,
        "operation_timeout_ms": None,
        "operation_attempt_timeout_ms": None,
    }
    _checks: ClassVar[dict[str, Check]] = dict.fromkeys(_fields, unsigned(32))


@dataclass(slots=True, repr=False)
class StorageConcurrencySettings(Settings):
    """Concurrent requests for one large object.

    Attributes:
        max_concurrent_requests_for_object: Number of requests at the same time. At least 1. Default: 18.
        ideal_concurrent_request_size: Size of each request in bytes. At least 1. Default: 12 MiB.
    """

    max_concurrent_requests_for_object: int | None = None
    ideal_concurrent_request_size: int | None = None

    shown_as: ClassVar[str] = "storage.StorageConcurrencySettings"
    _fields: ClassVar[dict[str, Default | None]] = {
        "max_concurrent_requests_for_object": Default(18),
        "ideal_concurrent_request_size": Default(12 * 1024 * 1024),
    }
    _checks: ClassVar[dict[str, Check]] = {
        "max_concurrent_requests_for_object": unsigned(16, zero=False),
        "ideal_concurrent_request_size": unsigned(64, zero=False),
    }


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

    concurrency: StorageConcurrencySettings | None = None
    retries: StorageRetriesSettings | None = None
    unsafe_use_conditional_create: bool | None = None
    unsafe_use_conditional_update: bool | None = None
    unsafe_use_metadata: bool | None = None
    storage_class: str | None = None
    metadata_storage_class: str | None = None
    chunks_storage_class: str | None = None
    minimum_size_for_multipart_upload: int | None = None
    timeouts: StorageTimeoutSettings | None = None

    shown_as: ClassVar[str] = "storage.StorageSettings"
    _fields: ClassVar[dict[str, Default | None]] = {
        "unsafe_use_conditional_create": Default(True),
        "unsafe_use_conditional_update": Default(True),
        "unsafe_use_metadata": Default(True),
        "storage_class": None,
        "metadata_storage_class": None,
        "chunks_storage_class": None,
        "minimum_size_for_multipart_upload": Default(100 * 1024 * 1024),
        "concurrency": Default(StorageConcurrencySettings()),
        "retries": Default(StorageRetriesSettings()),
        "timeouts": None,
    }
    _checks: ClassVar[dict[str, Check]] = {
        "unsafe_use_conditional_create": instance(bool),
        "unsafe_use_conditional_update": instance(bool),
        "unsafe_use_metadata": instance(bool),
        "storage_class": instance(str),
        "metadata_storage_class": instance(str),
        "chunks_storage_class": instance(str),
        "minimum_size_for_multipart_upload": unsigned(64),
        "concurrency": instance(StorageConcurrencySettings),
        "retries": instance(StorageRetriesSettings),
        "timeouts": instance(StorageTimeoutSettings),
    }
