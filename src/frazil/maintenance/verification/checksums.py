"""Comparison of native chunks with the checksums that their writer stored at the end of the chunk file."""

from __future__ import annotations

from collections.abc import Buffer
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError
from frazil.format.chunk_check import damaged_rows
from frazil.format.chunk_trailer import (
    SINGLE_TRAILER_BYTES,
    ChunkTrailer,
    decode_trailer,
    find_remains,
    is_marked,
    trailer_size,
)
from frazil.format.columns import U32, U64
from frazil.format.ids import id_to_text
from frazil.format.keys import CHUNKS, chunk_key
from frazil.maintenance.verification.findings import Finding
from frazil.storage.base import Storage

#: The number of bytes of the first request for a trailer. Trailers of up to 5,000 chunks fit.
_FIRST: Final = 1 << 16


def stored_trailer(
    storage: Storage, id_: bytes, used: int, *, is_single: bool = False
) -> ChunkTrailer | None:
    """Read the trailer of a chunk file."""
    key = chunk_key(id_)
    # A range that begins at the end of the file is an error, so the range has the last used byte.
    start = max(used - 1, 0)
    end = memoryview(storage.get(key, start, start + _FIRST)).cast("B")
    if len(end) == _FIRST:
        info = storage.head(key)
        start = start if info is None else max(start, info.size - _FIRST)
        end = memoryview(storage.get(key, start)).cast("B")
    size = start + len(end)
    length = trailer_size(id_, end, size)
    if length > len(end):
        end = memoryview(storage.get(key, size - length)).cast("B")
    if not length and find_remains(id_, end):
        raise FormatError(f"{key}: the end of the trailer is damaged or cut off")
    trailer = decode_trailer(id_, end, size)
    more = size - used
    was_single = is_single and more == SINGLE_TRAILER_BYTES and not any(end[max(0, used - start) :])
    if not length and more > 0 and (is_marked(id_) or was_single):
        raise FormatError(f"{key}: the file must end with the checksums of its chunks, got other bytes")
    # A chunk may contain a copy of a chunk file.
    is_chunk = trailer is not None and trailer.id != id_ and trailer.size < used
    return None if is_chunk else trailer


@dataclass(slots=True, eq=False)
class FileSums:
    """The checksums of one chunk file, which several threads may use. They are read at the first use.

    storage  the storage of the repository
    id       id of the file
    used     the end of the last known chunk in the file
    is_single  whether the file has one chunk
    """

    storage: Storage
    id: bytes
    used: int
    is_single: bool = False
    _lock: Lock = field(default_factory=Lock)
    _trailer: list[ChunkTrailer | FormatError | None] = field(default_factory=list)

    def trailer(self) -> ChunkTrailer | FormatError | None:
        """Return the trailer, or the error that describes its damage. Raises errors of the storage."""
        with self._lock:
            if not self._trailer:
                try:
                    self._trailer.append(
                        stored_trailer(self.storage, self.id, self.used, is_single=self.is_single)
                    )
                except FormatError as error:
                    self._trailer.append(error)
            return self._trailer[0]

    def compare(self, chunks: Chunks, start: int, data: Buffer) -> Compared:
        """Compare chunks with their checksums. ``data`` are the bytes of the file from ``start``, with them.

        Raises ``StorageError`` if the trailer cannot be read.
        """
        trailer = self.trailer()
        key = chunk_key(self.id)
        if trailer is None:
            return Compared()
        if isinstance(trailer, FormatError):
            damage = [Finding("checksum", key, detail=trailer.message)]
            blank = _blank(chunks, start, data)
            if blank.any() and not np.frombuffer(self.storage.get(key, self.used - 1), np.uint8)[1:].any():
                detail = "the chunks and the place of their checksums have only zeros"
                damage.append(chunks.finding("checksum", key, detail, blank))
            return Compared(tuple(damage))
        count = len(chunks.index)
        if trailer.id != self.id:
            detail = f"it has the bytes of {CHUNKS}/{id_to_text(trailer.id)}"
            return Compared((chunks.finding("exchanged", key, detail),), count)
        rows = trailer.find_ranges(chunks.offset, chunks.length)
        findings: list[Finding] = []
        if (rows < 0).any():
            detail = "the references must point at whole chunks of the file, got other ranges"
            findings.append(chunks.finding("checksum", key, detail, rows < 0))
        damaged = np.isin(rows, damaged_rows(trailer, np.unique(rows[rows >= 0]), data, start))
        if damaged.any():
            detail = "the bytes differ from the checksum that the writer recorded"
            findings.append(chunks.finding("checksum", key, detail, damaged))
        return Compared(tuple(findings), count)


def _blank(chunks: Chunks, start: int, data: Buffer) -> NDArray[np.bool_]:
    """Return which chunks have only zeros. ``data`` are the bytes of the file from ``start``."""
    stored = np.frombuffer(data, np.uint8)
    low = (chunks.offset - np.uint64(start)).astype(np.int64)
    spans = zip(low.tolist(), (low + chunks.length.astype(np.int64)).tolist(), strict=True)
    return np.fromiter((not stored[first:stop].any() for first, stop in spans), bool, len(low))


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Chunks of one array in one chunk file: node id, coordinates (k, ndim), positions and lengths (k,)."""

    node: bytes
    index: U32
    offset: U64
    length: U64

    def finding(self, check: str, key: str, detail: str, rows: NDArray[np.bool_] | None = None) -> Finding:
        """Return a finding about some of the chunks, or about all of them."""
        index, offset = (self.index, self.offset) if rows is None else (self.index[rows], self.offset[rows])
        return Finding(check, key, self.node, index, detail, offsets=offset)


@dataclass(frozen=True, slots=True)
class Compared:
    """The findings of a comparison, and the number of chunks with a recorded checksum."""

    findings: tuple[Finding, ...] = ()
    count: int = 0
