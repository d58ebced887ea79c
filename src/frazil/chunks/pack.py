"""A pack: a chunk file of many small chunks, before it is durable."""

from __future__ import annotations

from array import array
from collections.abc import Buffer
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from frazil.format.chunk_trailer import encode_trailer

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST_BUFFER: Final = 256 << 10
#: The buffer of a pack has room for a trailer of 1/2^5 of its size: enough for chunks of 384 bytes.
_TRAILER_SHARE: Final = 5


@dataclass(frozen=True, slots=True)
class PackSettings:
    """The options of packs. Sizes are in bytes.

    Attributes:
        enabled: Whether chunks are packed.
        threshold: Chunks that are smaller than this size are packed.
        pack_size: The largest size of a pack, without its trailer.
        checksums: Whether packs and files with one chunk get a trailer with checksums.
    """

    enabled: bool = True
    threshold: int = 1 << 20
    pack_size: int = 16 << 20
    checksums: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRows:
    """The bytes of n chunks, one after the other. Nobody changes them after a write.

    Attributes:
        data: The bytes, without gaps, uint8 of one dimension.
        length: The length of each chunk, at least 1, int64 of shape (n,).
        crc: The checksum of each chunk, uint32 of shape (n,). None if the writer has no checksums.
    """

    data: NDArray[np.uint8]
    length: NDArray[np.int64]
    crc: NDArray[np.uint32] | None

    def __len__(self) -> int:
        return len(self.length)

    def rows(self, begin: int, end: int) -> ChunkRows:
        """Return the chunks from row ``begin`` up to row ``end``."""
        first = int(self.length[:begin].sum())
        last = first + int(self.length[begin:end].sum())
        crc = None if self.crc is None else self.crc[begin:end]
        return ChunkRows(self.data[first:last], self.length[begin:end], crc)


@dataclass(slots=True, eq=False)
class Pack:
    """A pack. ``append`` is for an open pack. A sealed pack has ``put``, its upload.

    The bytes of chunks in the buffer never change, and a larger buffer is a new one, so views stay valid. The
    buffer is an array of numpy, because numpy uses huge pages: a page fault for every 4 KiB of a pack takes
    longer than the copy of the bytes.
    """

    id: bytes
    limit: int
    size: int = 0
    buffer: NDArray[np.uint8] = field(default_factory=lambda: np.empty(_FIRST_BUFFER, np.uint8))
    put: Future[None] | None = None
    #: Lengths and checksums of the chunks.
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    crcs: array[int] = field(default_factory=lambda: array("I"))

    def append(self, data: memoryview, crc: int | None) -> int:
        """Add a chunk and its checksum. Return the position of the chunk in the pack."""
        start, end = self.size, self.size + data.nbytes
        if end > len(self.buffer):
            # A part of the buffer is for the trailer.
            most = self.limit + (self.limit >> _TRAILER_SHARE)
            larger = np.empty(max(end, min(most, 8 * len(self.buffer))), np.uint8)
            larger[:start] = self.buffer[:start]
            self.buffer = larger
        self.buffer[start:end] = np.frombuffer(data, np.uint8)
        self.size = end
        if crc is not None:
            self.lengths.append(data.nbytes)
            self.crcs.append(crc)
        return start

    def append_rows(self, rows: ChunkRows) -> int:
        """Add many chunks and their checksums. Return the position of the first chunk in the pack."""
        start = self.append(memoryview(rows.data), None)
        self.record(rows)
        return start

    def record(self, rows: ChunkRows) -> None:
        """Add checksums of chunks that are in the buffer."""
        if rows.crc is not None:
            self.lengths.frombytes(rows.length.astype(np.uint64).tobytes())
            self.crcs.frombytes(rows.crc.tobytes())

    def file_parts(self) -> list[Buffer]:
        """Return the bytes of the file. The trailer is in the same buffer as the chunks if there is room."""
        if not self.crcs:
            return [self.view(0, self.size)]
        trailer = encode_trailer(self.id, self.lengths, self.crcs)
        end = self.size + len(trailer)
        if end > len(self.buffer):
            return [self.view(0, self.size), trailer]
        self.buffer[self.size : end] = np.frombuffer(trailer, np.uint8)
        return [memoryview(self.buffer)[:end].toreadonly()]

    def view(self, start: int, stop: int) -> memoryview:
        """Return the bytes from ``start`` up to ``stop``, read-only."""
        return memoryview(self.buffer)[start : min(stop, self.size)].toreadonly()
