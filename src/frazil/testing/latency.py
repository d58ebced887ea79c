"""A storage that delays requests."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, override

from frazil.storage.base import ALWAYS, Condition, ObjectInfo, Refused, Storage, Stored, Version

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Iterator

    from frazil.storage.settings import StorageSettings


class LatencyStorage(Storage):
    """A storage over another storage that waits before each request.

    It is a remote storage (``is_local`` is False) whatever the inner storage is. Therefore reads use the code
    that waits for a network. The delays can be changed at any time.

    Args:
        inner: Storage that gets all requests.
        write_latency_ms: Delay before each write, in milliseconds. Default: 0.
        read_latency_ms: Delay before each read, in milliseconds. Default: 0.

    Examples:
        >>> import frazil
        >>> storage = LatencyStorage(frazil.in_memory_storage(), write_latency_ms=1)
        >>> storage.read_latency_ms = 2
        >>> frazil.Repository.create(storage).list_branches()
        {'main'}
    """

    def __init__(self, inner: Storage, *, write_latency_ms: int = 0, read_latency_ms: int = 0) -> None:
        self._inner = inner
        self._ms = {"write": write_latency_ms, "read": read_latency_ms}
        self.is_read_only = inner.is_read_only
        self.is_whole_bucket = inner.is_whole_bucket

    def __repr__(self) -> str:
        return repr(self._inner)

    @override
    def encodes_names(self) -> bool:
        return self._inner.encodes_names()

    @property
    def write_latency_ms(self) -> int:
        """Delay before each write, in milliseconds."""
        return self._ms["write"]

    @write_latency_ms.setter
    def write_latency_ms(self, ms: int) -> None:
        self._ms["write"] = ms

    @property
    def read_latency_ms(self) -> int:
        """Delay before each read, in milliseconds."""
        return self._ms["read"]

    @read_latency_ms.setter
    def read_latency_ms(self, ms: int) -> None:
        self._ms["read"] = ms

    def _wait(self, what: str) -> None:
        time.sleep(self._ms[what] / 1000)

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        self._wait("read")
        return self._inner.get(key, start, stop)

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        self._wait("read")
        return self._inner.get_versioned(key)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        self._wait("read")
        return self._inner.head(key)

    @override
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._wait("read")
        return self._inner.list(prefix)

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        self._wait("write")
        return self._inner.put(key, data, condition)

    @override
    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        self._wait("write")
        self._inner.backup(key, version, data, to)

    @override
    def delete(self, keys: Iterable[str]) -> None:
        self._wait("write")
        self._inner.delete(keys)

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        await asyncio.sleep(self.read_latency_ms / 1000)
        return await self._inner.get_async(key, start, stop)

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        await asyncio.sleep(self.write_latency_ms / 1000)
        return await self._inner.put_async(key, data)

    @override
    def default_settings(self) -> StorageSettings:
        return self._inner.default_settings()

    @override
    def with_settings(self, settings: StorageSettings) -> LatencyStorage:
        return self._over(self._inner.with_settings(settings))

    @override
    def with_user_agent(self, user_agent: str) -> LatencyStorage:
        return self._over(self._inner.with_user_agent(user_agent))

    def _over(self, inner: Storage) -> LatencyStorage:
        other = LatencyStorage(inner)
        other._ms = self._ms  # both share the delays, because they are the same storage
        return other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)
