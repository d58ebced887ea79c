"""The base of storages that answer at once: an event loop calls their plain methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.storage.base import Storage, Stored

if TYPE_CHECKING:
    from collections.abc import Buffer


class SynchronousStorage(Storage):
    """Reads and writes cost microseconds and never wait for a network."""

    is_local = True

    def encodes_names(self) -> bool:
        return True

    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self.get(key, start, stop)

    async def put_async(self, key: str, data: Buffer) -> Stored:
        stored = self.put(key, data)
        assert isinstance(stored, Stored)  # nothing refuses an unconditional write
        return stored
