"""A read-only zarr store on a storage of Frazil, for Zarr groups that are sources of an ingest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import override

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from frazil.errors import ErrorKind, ReadOnlyError, StorageError
from frazil.storage.base import Storage


class StorageStore(Store):
    """A store with the objects below ``prefix``. Methods that write raise ``ReadOnlyError``."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, storage: Storage, prefix: str = "") -> None:
        super().__init__(read_only=True)
        self._storage = storage
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageStore) and (self._storage, self._prefix) == (
            other._storage,
            other._prefix,
        )

    @override
    def with_read_only(self, read_only: bool = False) -> StorageStore:
        if not read_only:
            raise ReadOnlyError("the source of an ingest is read-only", ErrorKind.READ_ONLY_STORE)
        return self

    @override
    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        start: int = 0
        stop: int | None = None
        name = self._prefix + key
        try:
            match byte_range:
                case RangeByteRequest():
                    start, stop = byte_range.start, byte_range.end
                case OffsetByteRequest():
                    start = byte_range.offset
                case SuffixByteRequest():
                    info = self._storage.head(name)
                    start = max(0, info.size - byte_range.suffix) if info else 0
            return prototype.buffer.from_bytes(bytes(await self._storage.get_async(name, start, stop)))
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                return None
            raise

    @override
    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return list(await asyncio.gather(*(self.get(key, prototype, each) for key, each in key_ranges)))

    @override
    async def exists(self, key: str) -> bool:
        return self._storage.head(self._prefix + key) is not None

    @override
    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    @override
    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        inside = (self._prefix + prefix).rpartition("/")[0]
        for info in self._storage.list(inside):
            key = info.key.removeprefix(self._prefix)
            if key.startswith(prefix):
                yield key

    @override
    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        below = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        names = dict.fromkeys([key[len(below) :].split("/")[0] async for key in self.list_prefix(below)])
        for name in names:
            yield name

    @override
    async def set(self, key: str, value: Buffer) -> None:
        raise ReadOnlyError("the source of an ingest is read-only", ErrorKind.READ_ONLY_STORE)

    @override
    async def delete(self, key: str) -> None:
        raise ReadOnlyError("the source of an ingest is read-only", ErrorKind.READ_ONLY_STORE)
