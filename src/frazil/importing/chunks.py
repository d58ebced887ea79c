"""Chunk files of an imported repository: left where they are, copied, or read there as virtual chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.keys import CHUNKS, chunk_key
from frazil.importing.source import Source, in_parallel
from frazil.repository.virtual_values import VirtualChunkContainer
from frazil.storage.addresses import address_of
from frazil.storage.base import Storage


@dataclass(frozen=True, slots=True)
class Copied:
    """How much was copied now, and the old ids of files that are not there."""

    files: int
    size: int
    missing: tuple[bytes, ...]


def container_of(source: Source) -> VirtualChunkContainer:
    """A container for the source's chunk files; ``InvalidInputError`` where its storage has no address."""
    address = address_of(source.storage, source.layout.chunks)
    if address is None:
        raise InvalidInputError(
            f"chunks of {source.storage!r} cannot be referred to from elsewhere: "
            "expected a local folder or a bucket; copy them instead",
            ErrorKind.STORAGE_CONFIG,
        )
    return VirtualChunkContainer(*address)


def copy_chunks(source: Source, target: Storage, chunks: Mapping[bytes, bytes]) -> Copied:
    """Copy chunk files, new ids to old ones, side by side; what is there already is not copied again."""
    there = {found.key: found.size for found in target.list(CHUNKS)}

    def copy(pair: tuple[bytes, bytes]) -> int | None:
        key = chunk_key(pair[0])
        try:
            if key in there:
                known = source.storage.head(source.chunk_key(pair[1]))
                if known is not None and known.size == there[key]:
                    return 0
            data = source.storage.get(source.chunk_key(pair[1]))
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                return None
            raise
        target.put(key, data)
        return len(memoryview(data))

    pairs = sorted(chunks.items())
    sizes = in_parallel(copy, pairs)
    missing = tuple(old for (_, old), size in zip(pairs, sizes, strict=True) if size is None)
    done = [size for size in sizes if size]
    return Copied(len(done), sum(done), missing)


def missing_chunks(source: Source, chunks: Mapping[bytes, bytes]) -> tuple[bytes, ...]:
    """The old ids of chunk files that are not there."""
    there = {found.key for found in source.storage.list(source.layout.chunks)}
    return tuple(old for old in sorted(chunks.values()) if source.chunk_key(old) not in there)
