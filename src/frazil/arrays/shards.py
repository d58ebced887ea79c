"""Shards: chunks that contain chunks, with an index of their places.

The index of a shard becomes rows of references, one for each inner chunk. So inner chunks are read as chunks
are: each by its own range of bytes.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from frazil.arrays.batches import process_all
from frazil.arrays.shard_layout import CRC_BYTES, ShardLayout
from frazil.chunks.column_reads import requests_of
from frazil.format.chunk_trailer import crc32c
from frazil.format.columns import windows
from frazil.format.manifest import ChunkKind, ChunkTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.arrays.array_chunks import ArrayChunks
    from frazil.chunks.column_reads import ColumnRequest
    from frazil.chunks.reader import ChunkReader
    from frazil.format.columns import I64, U8, U32, U64

#: The offset and the length of a missing inner chunk.
_MISSING: Final = np.uint64(2**64 - 1)


class ShardedChunks:
    """The inner chunks of an array with shards. It has the methods of ``ArrayChunks``."""

    def __init__(self, shards: ArrayChunks, layout: ShardLayout) -> None:
        self._shards = shards
        self._layout = layout
        self.reader: ChunkReader = shards.reader

    def refs(self, index: U32) -> tuple[ChunkTable, I64]:
        """Return the references of inner chunks, and the rows whose shard has no readable index."""
        counts = np.array(self._layout.counts, np.uint32)
        number, local = np.divmod(index, counts)
        distinct, shard = np.unique(number, axis=0, return_inverse=True)
        shard = shard.reshape(-1)
        refs, failures = self._shards.refs(distinct)
        entries, is_failed = self._indexes(refs)
        is_failed[failures] = True
        place = (
            np.ravel_multi_index(tuple(local.T), self._layout.counts) if local.shape[1] else np.zeros(1, int)
        )
        offset, length = entries[shard, place].T
        kind = refs.kind[shard]
        is_missing = ((offset == _MISSING) & (length == _MISSING)) | is_failed[shard]
        end = offset + length
        is_outside = ~is_missing & (kind != ChunkKind.ABSENT) & ((end < offset) | (end > refs.length[shard]))
        kind = np.where(is_missing | is_outside, np.uint8(ChunkKind.ABSENT), kind)
        is_absent = kind == ChunkKind.ABSENT
        inner = replace(
            refs,
            index=index,
            kind=kind,
            source=refs.source[shard],
            offset=np.where(is_absent, np.uint64(0), refs.offset[shard] + offset),
            length=np.where(is_absent, np.uint64(0), length),
        )
        return inner, np.flatnonzero(is_failed[shard] | is_outside)

    def _indexes(self, refs: ChunkTable) -> tuple[U64, NDArray[np.bool_]]:
        """Return the entries of the index of each shard, and whether the index could not be read."""
        size = self._layout.index_bytes
        entries = np.full((len(refs), prod(self._layout.counts), 2), _MISSING, np.uint64)
        is_absent = refs.kind == ChunkKind.ABSENT
        length = refs.length.astype(np.int64)
        is_failed = ~is_absent & (length < size)
        rows = np.flatnonzero(~is_absent & ~is_failed)
        start = np.zeros(len(rows), np.int64) if self._layout.is_index_first else length[rows] - size

        def process(request: ColumnRequest) -> list[I64]:
            try:
                data = request.read()
                indexes = windows(data, size)[request.offset].view(np.uint8).reshape(len(request.rows), size)
            except Exception:  # zarr reads these shards again, and raises the error
                return [request.rows]
            is_right = _checksums(indexes[:, :-CRC_BYTES]) == indexes[:, -CRC_BYTES:].copy().view("<u4")[:, 0]
            shape = (-1, entries.shape[1], 2)
            entries[rows[request.rows]] = indexes[:, :-CRC_BYTES].copy().view("<u8").reshape(shape)
            return [request.rows[~is_right]]

        if len(rows):
            sizes = np.full(len(rows), size, np.int64)
            requests = requests_of(self.reader, refs.select_chunks(rows), start, sizes)
            is_failed[rows[process_all(self.reader, process, requests, size * len(rows))]] = True
        return entries, is_failed


def _checksums(indexes: U8) -> I64:
    """Return the checksum of each index. The loop runs once for each shard."""
    return np.fromiter(
        (crc32c(memoryview(np.ascontiguousarray(each))) for each in indexes), np.int64, len(indexes)
    )
