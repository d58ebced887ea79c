"""Tools for tests of projects that use Frazil. Not for production.

==========================  =================================================================================
``LatencyStorage``          a storage that delays requests
``storage_suite``           the contract of storages as tests
``strategies``, ``trees``   configurations, hierarchies and moves of nodes for Hypothesis
``models``                  a model of a store, in memory
``invariants``, ``utils``   comparisons of a store with the model
``spark_cluster``           a Spark cluster on this machine
``processes``               programs that run during a ``with`` block
==========================  =================================================================================
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Buffer
from typing import Any, override

from frazil.storage.base import Storage, Stored
from frazil.storage.settings import StorageSettings


def _forwarding(method: str, request: str) -> Any:
    """Return a method that passes a request on to the inner storage, after a call of ``_before``."""

    def forward(self: StorageOver, *args: Any, **options: Any) -> Any:
        self._before(request, args[0])
        return getattr(self.inner, method)(*args, **options)

    return override(forward)  # the method that it overrides has the docstring


class StorageOver(Storage):
    """A storage that passes all requests on to ``inner``, after a call of ``_before``."""

    inner: Storage

    get = _forwarding("get", "get")
    get_versioned = _forwarding("get_versioned", "get")
    head = _forwarding("head", "read")
    list = _forwarding("list", "read")
    put = _forwarding("put", "write")
    backup = _forwarding("backup", "write")
    delete = _forwarding("delete", "write")

    def _before(self, request: str, key: Any) -> None:
        raise NotImplementedError

    @override
    def encodes_names(self) -> bool:
        return self.inner.encodes_names()

    @override
    def default_settings(self) -> StorageSettings:
        return self.inner.default_settings()


class LatencyStorage(StorageOver):
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
        self.inner = inner
        self._ms = {"write": write_latency_ms, "read": read_latency_ms}
        self.is_read_only: bool = inner.is_read_only
        self.is_whole_bucket: bool = inner.is_whole_bucket

    def __repr__(self) -> str:
        return repr(self.inner)

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

    @override
    def _before(self, request: str, key: Any) -> None:
        time.sleep(self._ms["write" if request == "write" else "read"] / 1000)

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        await asyncio.sleep(self.read_latency_ms / 1000)
        return await self.inner.get_async(key, start, stop)

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        await asyncio.sleep(self.write_latency_ms / 1000)
        return await self.inner.put_async(key, data)

    @override
    def with_settings(self, settings: StorageSettings) -> LatencyStorage:
        return self._over(self.inner.with_settings(settings))

    @override
    def with_user_agent(self, user_agent: str) -> LatencyStorage:
        return self._over(self.inner.with_user_agent(user_agent))

    def _over(self, inner: Storage) -> LatencyStorage:
        other = LatencyStorage(inner)
        other._ms = self._ms  # both share the delays, because they are the same storage
        return other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.inner, name)


__all__ = ["LatencyStorage"]
