"""A storage that fails on demand, for tests of code that uses a storage."""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterable, Iterator
from enum import Enum
from typing import override

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import ALWAYS, Condition, ObjectInfo, Refused, Storage, Stored, Version
from frazil.storage.settings import StorageSettings


class Fault(Enum):
    """The fate of one ``put``."""

    #: The write does not reach the storage. The caller gets an error.
    LOST = "lost"
    #: The write takes effect. The caller gets an error.
    ANSWER_LOST = "answer-lost"
    #: The write takes effect. The client retries and finds its own write, so the caller gets ``Refused``.
    MET_ITSELF = "met-itself"
    #: The write does not take effect. The caller gets ``Refused``.
    REFUSED = "refused"


class FaultyStorage(Storage):
    """A storage over another storage, with faults.

    Args:
        inner: Storage that gets all requests.
        choose: Function of key and condition that returns the fault of a ``put``, or None for no fault.

    Examples:
        >>> from frazil.storage.memory import MemoryStorage
        >>> storage = FaultyStorage(MemoryStorage(), lambda key, condition: Fault.ANSWER_LOST)
        >>> storage.put("repo", b"x")
        Traceback (most recent call last):
            ...
        frazil.errors.StorageError: injected: the answer to put `repo` was lost
        >>> bytes(storage.get("repo"))
        b'x'
    """

    def __init__(self, inner: Storage, choose: Callable[[str, Condition], Fault | None]) -> None:
        self.inner = inner
        self.choose = choose
        self.is_local = inner.is_local
        self.is_whole_bucket = inner.is_whole_bucket
        self.puts: list[str] = []
        self.gets: list[str] = []

    def __repr__(self) -> str:
        return f"<frazil.testing.FaultyStorage over {self.inner!r}>"

    @override
    def encodes_names(self) -> bool:
        return self.inner.encodes_names()

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        self.gets.append(key)
        return self.inner.get(key, start, stop)

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        self.gets.append(key)
        return self.inner.get_versioned(key)

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        self.puts.append(key)
        fault = self.choose(key, condition)
        if fault is Fault.REFUSED:
            return Refused()
        if fault is Fault.LOST:
            raise StorageError(f"injected: put `{key}` was lost", ErrorKind.OBJECT_STORE)
        answer = self.inner.put(key, data, condition)
        if fault is Fault.ANSWER_LOST:
            raise StorageError(f"injected: the answer to put `{key}` was lost", ErrorKind.OBJECT_STORE)
        return Refused() if fault is Fault.MET_ITSELF else answer

    @override
    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        self.inner.backup(key, version, data, to)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        return self.inner.head(key)

    @override
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix)

    @override
    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self.get(key, start, stop)

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        answer = self.put(key, data)
        return answer if isinstance(answer, Stored) else Stored(Version())

    @override
    def default_settings(self) -> StorageSettings:
        return self.inner.default_settings()

    @override
    def with_settings(self, settings: StorageSettings) -> Storage:
        return self
