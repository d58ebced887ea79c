"""A storage that shows the result of a repair before the repair: writes stay in memory.

The plan of a repair makes every step on an overlay, and then verifies the overlay. So the plan is a rehearsal
with the code of the repair itself. Files that a step copies from another storage are not read: the overlay
has a link to them.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import TYPE_CHECKING, Any, override

from frazil.errors import ErrorKind, StorageError
from frazil.host import random_bytes
from frazil.storage.base import ALWAYS, IfAbsent, IfVersion, ObjectInfo, Refused, Stored, Version
from frazil.storage.memory import MemoryStorage
from frazil.storage.synchronous import SynchronousStorage

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Iterator

    from frazil.storage.base import Condition, Storage
    from frazil.storage.settings import StorageSettings


@dataclass(slots=True, weakref_slot=True)
class _Layer:
    """The changes that all copies of an overlay share. A key is in at most one of the three places."""

    upper: MemoryStorage = field(default_factory=MemoryStorage)
    links: dict[str, tuple[Storage, str]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    lock: RLock = field(default_factory=RLock)
    name: str = field(default_factory=lambda: random_bytes(12).hex())


#: The layers that exist, by name. A pickle of an overlay contains only the name.
_alive: weakref.WeakValueDictionary[str, _Layer] = weakref.WeakValueDictionary()


class Overlay(SynchronousStorage):
    """A storage over another storage, which never changes. Threads may share it.

    A pickle can be loaded only in the same process, and while the overlay exists.
    """

    def __init__(self, base: Storage, layer: _Layer | None = None) -> None:
        self._base = base
        self._layer = layer or _Layer()
        _alive[self._layer.name] = self._layer

    def __repr__(self) -> str:
        return repr(self._base)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self._base, self._layer.name))

    @override
    def encodes_names(self) -> bool:
        return self._base.encodes_names()

    def link(self, key: str, storage: Storage, source: str) -> None:
        """Make ``key`` show an object of another storage, without a read of the object."""
        with self._layer.lock:
            self._drop(key)
            self._layer.links[key] = storage, source

    def _drop(self, key: str) -> None:
        layer = self._layer
        layer.upper.delete([key])
        layer.links.pop(key, None)
        layer.deleted.discard(key)

    def _at(self, key: str) -> tuple[Storage, str]:
        """Return the storage and the key with the bytes of an object."""
        layer = self._layer
        with layer.lock:
            if key in layer.deleted:
                raise StorageError(f"there is no object `{key}`", ErrorKind.OBJECT_NOT_FOUND)
            if layer.upper.head(key) is not None:
                return layer.upper, key
            return layer.links.get(key, (self._base, key))

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        storage, source = self._at(key)
        return storage.get(source, start, stop)

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        storage, source = self._at(key)
        data, version = storage.get_versioned(source)
        return data, version if storage is self._base else _own(version)

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        with self._layer.lock:
            if not self._holds(key, condition):
                return Refused()
            self._drop(key)
            stored = self._layer.upper.put(key, data)
            return Stored(_own(stored.version)) if isinstance(stored, Stored) else stored

    def _holds(self, key: str, condition: Condition) -> bool:
        if isinstance(condition, IfAbsent):
            return self.head(key) is None
        if isinstance(condition, IfVersion):
            return self.head(key) is not None and self.get_versioned(key)[1] == condition.version
        return True

    @override
    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        self.put(to, data)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        try:
            storage, source = self._at(key)
        except StorageError:
            return None
        info = storage.head(source)
        return None if info is None else replace(info, key=key)

    @override
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        layer = self._layer
        inside = f"{prefix.rstrip('/')}/" if prefix else ""
        with layer.lock:
            changed = {info.key for info in layer.upper.list(prefix)} | layer.links.keys()
            changed = {key for key in changed if key.startswith(inside)}
            hidden = changed | layer.deleted
        for info in self._base.list(prefix):
            if info.key not in hidden:
                yield info
        yield from filter(None, map(self.head, changed))

    @override
    def delete(self, keys: Iterable[str]) -> None:
        with self._layer.lock:
            for key in keys:
                self._drop(key)
                self._layer.deleted.add(key)

    @override
    def default_settings(self) -> StorageSettings:
        return self._base.default_settings()

    @override
    def with_settings(self, settings: StorageSettings) -> Overlay:
        return Overlay(self._base.with_settings(settings), self._layer)


def _own(version: Version) -> Version:
    """Return a version that differs from all versions of the storage below."""
    return Version(f"overlay-{version.etag}", version.generation)


def _unpickle(base: Storage, name: str) -> Overlay:
    layer = _alive.get(name)
    if layer is None:
        raise StorageError(
            "an overlay can be loaded only in the process of its plan. Use an engine of this process",
            ErrorKind.STORAGE_CONFIG,
        )
    return Overlay(base, layer)
