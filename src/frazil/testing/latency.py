"""A storage that takes its time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from frazil.storage.base import ALWAYS, Condition, ObjectInfo, Refused, Storage, Stored, Version

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Iterator

    from frazil.storage.settings import StorageSettings


class LatencyStorage(Storage):
    """``inner``, with a delay in ms before each request that reads or writes; both can be changed later.

    It is remote, whatever ``inner`` is: reads go through the paths that wait for a network.

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

    def encodes_names(self) -> bool:
        return self._inner.encodes_names()

    @property
    def write_latency_ms(self) -> int:
        return self._ms["write"]

    @write_latency_ms.setter
    def write_latency_ms(self, ms: int) -> None:
        self._ms["write"] = ms

    @property
    def read_latency_ms(self) -> int:
        return self._ms["read"]

    @read_latency_ms.setter
    def read_latency_ms(self, ms: int) -> None:
        self._ms["read"] = ms

    def _wait(self, what: str) -> None:
        time.sleep(self._ms[what] / 1000)

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        self._wait("read")
        return self._inner.get(key, start, stop)

    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        self._wait("read")
        return self._inner.get_versioned(key)

    def head(self, key: str) -> ObjectInfo | None:
        self._wait("read")
        return self._inner.head(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._wait("read")
        return self._inner.list(prefix)

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        self._wait("write")
        return self._inner.put(key, data, condition)

    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        self._wait("write")
        self._inner.backup(key, version, data, to)

    def delete(self, keys: Iterable[str]) -> None:
        self._wait("write")
        self._inner.delete(keys)

    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        await asyncio.sleep(self.read_latency_ms / 1000)
        return await self._inner.get_async(key, start, stop)

    async def put_async(self, key: str, data: Buffer) -> Stored:
        await asyncio.sleep(self.write_latency_ms / 1000)
        return await self._inner.put_async(key, data)

    def default_settings(self) -> StorageSettings:
        return self._inner.default_settings()

    def with_settings(self, settings: StorageSettings) -> LatencyStorage:
        return self._over(self._inner.with_settings(settings))

    def with_user_agent(self, user_agent: str) -> LatencyStorage:
        return self._over(self._inner.with_user_agent(user_agent))

    def _over(self, inner: Storage) -> LatencyStorage:
        other = LatencyStorage(inner)
        other._ms = self._ms  # one storage, with other settings: latencies are changed for all
        return other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)
