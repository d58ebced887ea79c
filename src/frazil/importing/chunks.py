"""Chunk files of an imported repository: left in place, copied, or read there as virtual chunks."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import ids_to_text
from frazil.format.keys import CHUNKS
from frazil.importing.source import Source, in_parallel
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.addresses import address_of
from frazil.storage.base import Storage


@dataclass(frozen=True, slots=True, eq=False)
class ChunkFiles:
    """The chunk files that a repository needs: new ids, uint8 (n, 12), and names of the old files."""

    ids: U8
    old: list[str]

    def __len__(self) -> int:
        return len(self.old)


def container_of(source: Source) -> VirtualChunkContainer:
    """Return a container for the chunk files of the source."""
    address = address_of(source.storage, source.layout.chunks)
    if address is None:
        raise InvalidInputError(
            "the source of referenced chunks must be a local folder or a bucket, got "
            f"{source.storage.label()}. Copy the chunks instead",
            ErrorKind.STORAGE_CONFIG,
        )
    return VirtualChunkContainer(*address)


def copy_chunks(source: Source, target: Storage, chunks: ChunkFiles) -> tuple[list[int], tuple[str, ...]]:
    """Copy chunk files, several at a time. Existing files are not copied again.

    Returns the sizes of the files that were copied now, and the old names of missing files.
    """
    existing_sizes = {info.key: info.size for info in target.list(CHUNKS)}
    folder = source.layout.chunks

    def copy(pair: tuple[str, str]) -> int | None:
        new, old = (f"{CHUNKS}/{pair[0]}", f"{folder}/{pair[1]}")
        try:
            if new in existing_sizes:
                old_info = source.storage.head(old)
                if old_info is not None and old_info.size == existing_sizes[new]:
                    return 0
            data = source.storage.get(old)
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                return None
            raise
        target.put(new, data)
        return len(memoryview(data))

    sizes = in_parallel(copy, zip(ids_to_text(chunks.ids), chunks.old, strict=True))
    missing = tuple(old for old, size in zip(chunks.old, sizes, strict=True) if size is None)
    return list(filter(None, sizes)), missing


def missing_chunks(source: Source, chunks: ChunkFiles) -> tuple[str, ...]:
    """Return the old names of missing chunk files."""
    folder = source.layout.chunks
    existing = {info.key.removeprefix(f"{folder}/") for info in source.storage.list(folder)}
    return tuple(sorted(set(chunks.old) - existing))
