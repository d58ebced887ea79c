"""Writes of many chunks, with their places as columns.

ChunkRows ──> inline bytes, packs, or a file for each large chunk ──> ChunkTable
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

import numpy as np

from frazil.chunks.pack import ChunkRows
from frazil.chunks.writer import ChunkWriter
from frazil.format.columns import Ragged
from frazil.format.ids import id_matrix
from frazil.format.manifest import ChunkKind, ChunkTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.format.columns import I64, U32, U64

#: The number of writes of large chunks that run at the same time.
_MOST_WRITES: Final = 6
#: The most bytes of files that are written together.
_TOGETHER: Final = 16 << 20


class RowWriter:
    """Stores the chunks of one array, and gathers their references."""

    def __init__(self, writer: ChunkWriter, ndim: int, inline_threshold: int) -> None:
        self._writer = writer
        self._threshold = inline_threshold
        self._index: list[U32] = [np.zeros((0, ndim), np.uint32)]
        self._kind: list[NDArray[np.uint8]] = []
        self._source: list[U32] = []
        self._offset: list[U64] = []
        self._length: list[U64] = []
        self._ids: list[bytes] = []
        self._inline: list[Ragged] = []
        self._num_inline = 0
        self._files: deque[tuple[int, Future[list[bytes]]]] = deque()

    def add(self, index: U32, rows: ChunkRows) -> None:
        """Store chunks."""
        if not len(rows):
            return
        pack_below = self._writer.pack_below
        is_inline = rows.length <= self._threshold
        is_file = ~is_inline & (rows.length >= pack_below)
        if is_inline.any():
            self._add_inline(index[is_inline], _chosen(rows, is_inline))
        if is_file.any():
            self._add_files(index[is_file], _chosen(rows, is_file))
        is_packed = ~(is_inline | is_file)
        if is_packed.any():
            self._add_packed(index[is_packed], _chosen(rows, is_packed))

    def delete(self, index: U32) -> None:
        """Record chunks that must not exist."""
        zeros = np.zeros(len(index), np.uint64)
        self._add_columns(index, ChunkKind.ABSENT, zeros.astype(np.uint32), zeros, zeros)

    def table(self) -> ChunkTable:
        """Return the references. Chunks that must not exist are rows of the kind ``ABSENT``."""
        self._wait(0)
        inline = Ragged.concat(self._inline) if self._inline else Ragged.empty()
        none = ChunkTable.empty(0)
        if len(self._index) == 1:
            return ChunkTable.empty(self._index[0].shape[1])
        return ChunkTable(
            np.concatenate(self._index),
            np.concatenate(self._kind),
            np.concatenate(self._source),
            np.concatenate(self._offset),
            np.concatenate(self._length),
            id_matrix(self._ids),
            none.foreign,
            inline,
        ).sorted()

    def _add_inline(self, index: U32, rows: ChunkRows) -> None:
        first = self._num_inline
        self._num_inline += len(rows)
        self._inline.append(Ragged.from_lengths(rows.data, rows.length))
        source = np.arange(first, self._num_inline, dtype=np.uint32)
        zeros = np.zeros(len(rows), np.uint64)
        self._add_columns(index, ChunkKind.INLINE, source, zeros, rows.length.astype(np.uint64))

    def _add_packed(self, index: U32, rows: ChunkRows) -> None:
        begins = np.cumsum(rows.length) - rows.length
        first = 0
        for id_, start, count in self._writer.pack_rows(rows):
            part = slice(first, first + count)
            source = np.full(count, len(self._ids), np.uint32)
            offset = (begins[part] - begins[first] + start).astype(np.uint64)
            self._ids.append(id_)
            self._add_columns(
                index[part], ChunkKind.NATIVE, source, offset, rows.length[part].astype(np.uint64)
            )
            first += count

    def _add_files(self, index: U32, rows: ChunkRows) -> None:
        """Store each chunk in a file. These chunks are large: a step for each costs little."""
        data, first = memoryview(rows.data).toreadonly(), len(self._ids)
        ends = np.cumsum(rows.length)
        for begin, end in _groups(ends, _TOGETHER if self._writer.stores_together else 0):
            self._wait(_MOST_WRITES - 1)
            stops = ends[begin:end].tolist()
            starts = (ends - rows.length)[begin:end].tolist()
            views = [data[start:stop] for start, stop in zip(starts, stops, strict=True)]
            self._files.append((len(self._ids), self._writer.submit_files(views)))
            self._ids += [b""] * len(views)
        source = np.arange(first, len(self._ids), dtype=np.uint32)
        zeros = np.zeros(len(rows), np.uint64)
        self._add_columns(index, ChunkKind.NATIVE, source, zeros, rows.length.astype(np.uint64))

    def _wait(self, most: int) -> None:
        """Wait until at most this number of writes of files is running."""
        while len(self._files) > most:
            number, stored = self._files.popleft()
            ids = stored.result()
            self._ids[number : number + len(ids)] = ids

    def _add_columns(self, index: U32, kind: ChunkKind, source: U32, offset: U64, length: U64) -> None:
        self._index.append(index)
        self._kind.append(np.full(len(index), kind, np.uint8))
        self._source.append(source)
        self._offset.append(offset)
        self._length.append(length)


def _groups(ends: I64, most: int) -> list[tuple[int, int]]:
    """Split rows into groups of at most ``most`` bytes, or of one row. Return the begin and end of each."""
    groups, begin = [], 0
    while begin < len(ends):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, "right")))
        groups.append((begin, end))
        begin = end
    return groups


def _chosen(rows: ChunkRows, is_chosen: NDArray[np.bool_]) -> ChunkRows:
    """Return some chunks, one after the other. All of them are not copied."""
    if is_chosen.all():
        return rows
    ends: I64 = np.cumsum(rows.length)
    chosen = Ragged(rows.data, (ends - rows.length)[is_chosen], rows.length[is_chosen]).compact()
    return ChunkRows(chosen.values, chosen.lengths, None if rows.crc is None else rows.crc[is_chosen])
