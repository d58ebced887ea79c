"""The base of storages that never wait for a network: ``*_async`` methods call the synchronous ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, override

from frazil.storage.base import Storage, Stored

if TYPE_CHECKING:
    from collections.abc import Buffer


class SynchronousStorage(Storage):
    """A storage whose reads and writes take microseconds and never wait for a network."""

    is_local = True

    @override
    def encodes_names(self) -> bool:
        return True

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self.get(key, start, stop)

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        stored = self.put(key, data)
        assert isinstance(stored, Stored)  # an unconditional write is never refused
        return stored
