"""Comparison of the bytes of chunk files with the checksums in their trailers."""

from __future__ import annotations

from collections.abc import Buffer
from dataclasses import dataclass

import numpy as np

from frazil.errors import FormatError
from frazil.format.chunk_trailer import ChunkTrailer, crc32c, decode_trailer, find_remains
from frazil.format.columns import I64
from frazil.format.keys import chunk_key


@dataclass(frozen=True, slots=True, eq=False)
class ChunkFileCheck:
    """The comparison of a chunk file with its trailer.

    trailer  the trailer. None if the file has no trailer
    rows     int64 (k,)  rows of the trailer whose chunks are damaged. If the file was exchanged, all rows
    """

    trailer: ChunkTrailer | None
    rows: I64

    @property
    def ok(self) -> bool:
        """Whether no chunk differs from its checksum. A file without a trailer has nothing that differs."""
        return not len(self.rows)


def check_file(id_: bytes, data: Buffer) -> ChunkFileCheck:
    """Compare a whole chunk file with its trailer."""
    view = memoryview(data).cast("B")
    trailer = decode_trailer(id_, view, len(view))
    if trailer is None and find_remains(id_, view):
        raise FormatError(f"{chunk_key(id_)}: the end of the trailer is damaged or cut off")
    if trailer is None:
        return ChunkFileCheck(None, np.zeros(0, np.int64))
    rows = np.arange(len(trailer.lengths))
    return ChunkFileCheck(trailer, rows if trailer.id != id_ else damaged_rows(trailer, rows, view))


def damaged_rows(trailer: ChunkTrailer, rows: I64, data: Buffer, start: int = 0) -> I64:
    """Return which chunks differ from their checksums."""
    view = memoryview(data).cast("B")
    low = (trailer.offsets[rows] - start).tolist()
    high = (trailer.offsets[rows] - start + trailer.lengths[rows].astype(np.int64)).tolist()
    crcs = np.fromiter((crc32c(view[a:b]) for a, b in zip(low, high, strict=True)), np.uint32, len(low))
    damaged: I64 = rows[crcs != trailer.crcs[rows]]
    return damaged
