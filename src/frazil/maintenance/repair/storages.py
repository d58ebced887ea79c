"""Storages of a repair: an overlay whose writes stay in memory, and the quarantine of replaced files."""

from __future__ import annotations

import weakref
from collections.abc import Buffer, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import RLock
from typing import Any, Final, override

from frazil.errors import ConflictError, ErrorKind, StorageError
from frazil.host import random_bytes
from frazil.repository.clock import now_us, to_datetime
from frazil.storage.base import (
    ALWAYS,
    Condition,
    IfAbsent,
    IfVersion,
    ObjectInfo,
    Refused,
    Storage,
    Stored,
    Version,
)
from frazil.storage.checks import require_whole, skip_missing
from frazil.storage.memory import MemoryStorage, SynchronousStorage
from frazil.storage.settings import StorageSettings


@dataclass(slots=True, weakref_slot=True)
class _Layer:
    """The changes that all copies of an overlay share."""

    upper: MemoryStorage = field(default_factory=MemoryStorage)
    places: dict[str, tuple[Storage, str] | None] = field(default_factory=dict)
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
        self._layer.places[key] = storage, source

    def _at(self, key: str) -> tuple[Storage, str]:
        """Return the storage and the key with the bytes of an object."""
        place = self._layer.places.get(key, (self._base, key))
        if place is None:
            raise StorageError(f"there is no object `{key}`", ErrorKind.OBJECT_NOT_FOUND)
        return place

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
        layer = self._layer
        with layer.lock:
            is_present = condition is ALWAYS or self.head(key) is not None
            if isinstance(condition, IfAbsent) and is_present:
                return Refused()
            if isinstance(condition, IfVersion) and not (
                is_present and self.get_versioned(key)[1] == condition.version
            ):
                return Refused()
            stored = layer.upper.put(key, data)
            layer.places[key] = layer.upper, key
            return Stored(_own(stored.version)) if isinstance(stored, Stored) else stored

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
        inside = f"{prefix.rstrip('/')}/" if prefix else ""
        changed = [key for key in tuple(self._layer.places) if key.startswith(inside)]
        hidden = set(changed)
        yield from (info for info in self._base.list(prefix) if info.key not in hidden)
        yield from filter(None, map(self.head, changed))

    @override
    def delete(self, keys: Iterable[str]) -> None:
        every = list(keys)
        with self._layer.lock:
            self._layer.upper.delete(every)  # it refuses what is no key
            self._layer.places.update(dict.fromkeys(every))

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
    return Overlay(base, _alive[name])


QUARANTINE: Final = "quarantine"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The folder for the files of one repair."""

    prefix: str

    @classmethod
    def new(cls) -> Quarantine:
        """Return a folder with a name that no other repair has."""
        time: datetime = to_datetime(now_us())
        return cls(f"{QUARANTINE}/{time:%Y%m%dT%H%M%SZ}-{random_bytes(4).hex()}")

    def store(self, storage: Storage, key: str, data: Buffer) -> None:
        """Store a copy of a file."""
        storage.put(f"{self.prefix}/{key}", data)

    def replace_file(self, storage: Storage, key: str, data: Buffer) -> bool:
        """Put the present file aside, and write another content under its key."""
        present = read_present(storage, key)
        if present is None:
            condition: Condition = IfAbsent()
        else:
            if memoryview(present[0]) == memoryview(data):
                return False
            self.store(storage, key, present[0])
            condition = IfVersion(present[1])
        if not isinstance(storage.put(key, data, condition), Refused):
            return True
        # The storage may have refused a retry of its own client, after the first attempt took effect.
        present = read_present(storage, key)
        if present is not None and memoryview(present[0]) == memoryview(data):
            return True
        raise ConflictError(
            message=f"another process changed `{key}` during the repair. Make a new plan",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )


def read_present(storage: Storage, key: str) -> tuple[Buffer, Version] | None:
    """Return a whole file with its version, or None if there is no file."""
    with skip_missing():
        present = storage.get_versioned(key)
        require_whole(storage, key, *present)
        return present
    return None
