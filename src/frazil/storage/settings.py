"""Settings of a storage: how often to try, how long to wait, how much at once.

Every field may be None: "as this kind of storage does by default". The values here are the user's or
the persisted ones; ``merged`` lays one over the other, field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from frazil.display import Check, Default, Settings, instance, unsigned


def merged[T](over: T | None, under: T | None) -> T | None:
    """``over`` where it says something, ``under`` where it does not; nested settings likewise.

    >>> merged(StorageRetriesSettings(max_tries=3), StorageRetriesSettings(7, 50)).initial_backoff_ms
    50
    """
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
    """Tries of one request to the storage: how many, and the bounds of the waits between, in ms."""

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
    """Limits in ms on connecting, on each read, on one attempt, and on an operation with its retries."""

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
    """Requests at once for one large object, and the size in bytes that each should have."""

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
    """How a repository uses its storage. All fields optional, all may be assigned later.

    The ``unsafe_use_*`` switches turn off conditional writes and object metadata for servers that do
    not know them: without conditions, concurrent commits can be lost. Storage classes are the server's
    names; ``minimum_size_for_multipart_upload`` is in bytes.

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
