"""Storages and foreign stores whose behaviour a test decides."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Buffer, Callable
from datetime import datetime
from typing import Any

from tests.support.patience import patience

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import ALWAYS, Condition, Refused, Stored
from frazil.storage.memory import MemoryStorage


def numbered_ids() -> Callable[[], bytes]:
    """Ids 1, 2, 3, ..."""
    count = itertools.count(1)
    lock = threading.Lock()

    def new_id() -> bytes:
        with lock:
            return next(count).to_bytes(12, "big")

    return new_id


class Storage(MemoryStorage):
    """Memory that can look remote, refuse the next puts, hold puts up, and that writes down its requests."""

    def __init__(self, *, is_local: bool = True) -> None:
        super().__init__()
        self.is_local = is_local
        self.failing_puts = 0
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.puts: list[tuple[str, int]] = []
        self.gets: list[tuple[str, int, int | None]] = []
        self.async_gets = 0
        self.latency = 0.002
        self.running = 0
        self.most_running = 0

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        assert self.open_gate.wait(patience(30))
        if self.failing_puts:
            self.failing_puts -= 1
            raise StorageError("the disk is full", ErrorKind.IO)
        self.puts.append((key, memoryview(data).nbytes))
        return super().put(key, data, condition)

    async def put_async(self, key: str, data: Buffer) -> Stored:
        await asyncio.sleep(0)
        return await super().put_async(key, data)

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        self.gets.append((key, start, stop))
        return super().get(key, start, stop)

    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        self.async_gets += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.latency)
            return self.get(key, start, stop)
        finally:
            self.running -= 1


class Foreign:
    """Objects of others: url -> (bytes, etag, modified)."""

    def __init__(self, objects: dict[str, tuple[bytes, str, int]]) -> None:
        self.objects = objects
        self.is_strict = False
        self.opened: list[tuple[object, object, str]] = []
        self.gets: list[tuple[str, int, int]] = []

    def __call__(self, config: object, credentials: object, url_prefix: str, /) -> Foreign:
        self.opened.append((config, credentials, url_prefix))
        return self

    def get(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
        states: set[str] | None = None,
    ) -> Buffer:
        self.gets.append((url, start, stop))
        if url not in self.objects:
            raise StorageError(f"{url} not found", ErrorKind.VIRTUAL_CHUNK_FETCH)
        data, current, modified = self.objects[url]
        is_newer = not_modified_since is not None and not_modified_since.timestamp() < modified
        if (etag or current) != current or is_newer:
            raise StorageError(f"{url} was modified", ErrorKind.VIRTUAL_CHUNK_MODIFIED)
        if self.is_strict and stop > len(data):
            raise StorageError(f"{url} ends at {len(data)}", ErrorKind.VIRTUAL_CHUNK_FETCH)
        return data[start:stop]

    async def get_async(self, url: str, start: int, stop: int, **conditions: Any) -> Buffer:
        await asyncio.sleep(0)
        return self.get(url, start, stop, **conditions)
