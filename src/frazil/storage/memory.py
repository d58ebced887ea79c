"""A storage in the memory of this process, for tests and short programs, and the base of local storages.

A pickle contains only the name of the storage. In the same process, while the original exists, it is
unpickled as the same storage; forks of a session need this. In another process it raises ``StorageError``.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, override

from frazil import host
from frazil.arguments import checked
from frazil.errors import ErrorKind, StorageError
from frazil.storage import base, checks
from frazil.storage.settings import StorageConcurrencySettings, StorageRetriesSettings, StorageSettings

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Iterator


class SynchronousStorage(base.Storage):
    """A storage whose reads and writes take microseconds and never wait for a network."""

    is_local = True
    #: The ideal size of a request in bytes, in the default settings.
    _request_size = 1

    @override
    def encodes_names(self) -> bool:
        return True

    @override
    def default_settings(self) -> StorageSettings:
        return StorageSettings(
            concurrency=StorageConcurrencySettings(5, self._request_size),
            retries=StorageRetriesSettings(max_tries=1, initial_backoff_ms=0, max_backoff_ms=0),
        )

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self.get(key, start, stop)

    @override
    async def put_async(self, key: str, data: Buffer) -> base.Stored:
        stored = self.put(key, data)
        assert isinstance(stored, base.Stored)  # an unconditional write is never refused
        return stored


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    version: base.Version
    modified: datetime

    def info(self, key: str) -> base.ObjectInfo:
        """Return the entry for a listing."""
        return base.ObjectInfo(key, len(self.data), self.modified)


@dataclass(slots=True, weakref_slot=True)
class _Contents:
    """The objects that all copies of one storage share."""

    objects: dict[str, _Object] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    writes: int = 0
    name: str = field(default_factory=lambda: host.random_bytes(16).hex())
    process: int = field(default_factory=os.getpid)


_alive: weakref.WeakValueDictionary[str, _Contents] = weakref.WeakValueDictionary()


class MemoryStorage(SynchronousStorage):
    """A storage in a dictionary. A new instance is empty and shares nothing with other instances.

    Args:
        settings: Settings of the storage. They have no effect. Default: None.

    Examples:
        >>> from frazil.storage.base import IfAbsent
        >>> storage = MemoryStorage()
        >>> storage.put("repo", b"first", IfAbsent())
        Stored(version=Version(etag='1', generation=None))
        >>> storage.put("repo", b"second", IfAbsent())
        Refused()
        >>> bytes(storage.get("repo"))
        b'first'
    """

    def __init__(self, settings: StorageSettings | None = None) -> None:
        self._settings = settings
        self._contents = _Contents()
        _alive[self._contents.name] = self._contents

    def __repr__(self) -> str:
        return "<frazil.Storage>\ntype: in-memory\n"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self._contents.name, self._settings))

    def _objects(self) -> dict[str, _Object]:
        # A forked child has a copy of the dictionary: its writes would be lost without an error.
        if self._contents.process != os.getpid():
            raise checks.forked_process(self._contents.process)
        return self._contents.objects

    def _object(self, key: str) -> _Object:
        checks.TRAFFIC.count()
        stored_object = self._objects().get(checks.check_key(key))
        if stored_object is None:
            raise checks.object_not_found(key)
        return stored_object

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        checks.check_range(start, stop)
        data = self._object(key).data
        if start == 0 and stop is None:
            return checks.TRAFFIC.count_read(data)
        if start >= len(data):
            raise checks.range_past_end(key, start, len(data))
        return checks.TRAFFIC.count_read(memoryview(data)[start:stop])

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, base.Version]:
        stored_object = self._object(key)
        return checks.TRAFFIC.count_read(stored_object.data), stored_object.version

    @override
    def put(
        self, key: str, data: Buffer, condition: base.Condition = base.ALWAYS
    ) -> base.Stored | base.Refused:
        checks.check_key(key)
        content = bytes(data)
        checks.TRAFFIC.count(written=len(content))
        objects = self._objects()
        with self._contents.lock:
            current = objects.get(key)
            match condition:
                case base.IfAbsent() if current is not None:
                    return base.Refused()
                case base.IfVersion(version) if current is None or current.version != version:
                    return base.Refused()
            self._contents.writes += 1
            now = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=host.time_us())
            new = objects[key] = _Object(content, base.Version(etag=str(self._contents.writes)), now)
        return base.Stored(new.version)

    @override
    def head(self, key: str) -> base.ObjectInfo | None:
        checks.TRAFFIC.count()
        stored_object = self._objects().get(checks.check_key(key))
        return None if stored_object is None else stored_object.info(key)

    @override
    def list(self, prefix: str) -> Iterator[base.ObjectInfo]:
        path = checks.check_prefix(prefix)
        inside = f"{path}/" if path else ""
        checks.TRAFFIC.count()
        # A copy, because objects may be written and deleted during the listing.
        items = list(self._objects().items())
        return (stored_object.info(key) for key, stored_object in items if key.startswith(inside))

    @override
    def delete(self, keys: Iterable[str]) -> None:
        objects = self._objects()
        for key in keys:
            checks.check_key(key)
            checks.TRAFFIC.count()
            with self._contents.lock:
                objects.pop(key, None)

    @override
    def with_settings(self, settings: StorageSettings) -> MemoryStorage:
        return _storage_of_contents(self._contents, settings)


def _storage_of_contents(contents: _Contents, settings: StorageSettings | None) -> MemoryStorage:
    storage = MemoryStorage.__new__(MemoryStorage)
    storage._contents = contents
    storage._settings = settings
    return storage


def _unpickle(name: str, settings: StorageSettings | None) -> MemoryStorage:
    contents = _alive.get(name)
    if contents is None:
        raise StorageError(
            "an in-memory storage can be unpickled only in the process that created it, and while it exists. "
            "Use a storage that other processes can reach",
            ErrorKind.STORAGE_CONFIG,
        )
    return _storage_of_contents(contents, settings)


@checked
def in_memory_storage() -> base.Storage:
    """Return a new, empty storage in the memory of this process.

    For tests and examples. Threads of this process may share it. It cannot be unpickled in another process.

    Returns:
        The storage.

    Examples:
        >>> in_memory_storage().label()
        'in-memory'
    """
    return MemoryStorage()
