"""Reads of many chunks by their references as columns, without a Python object for each chunk.

ChunkTable ──requests_of──> ColumnRequest: one range of one object, with the rows that are in it
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from frazil.chunks.cached_reads import CacheAdditions, WantedRanges, cached_chunks
from frazil.chunks.coalesce import plan_reads
from frazil.chunks.ranges import ByteRange, MergeLimits, Readable, too_short
from frazil.format.manifest import ChunkKind, ChunkTable

if TYPE_CHECKING:
    from frazil.chunks.byte_cache import ByteCache
    from frazil.chunks.reader import ChunkReader
    from frazil.format.columns import I64, U8


#: The largest request whose memory is used again, in bytes. A merged request has at most half of it.
_LARGEST_REUSED: Final = 8 << 20


class _ThreadMemory(threading.local):
    """Memory of a thread for the bytes of one request. New memory costs as much time as reading into it."""

    memory: U8 = np.empty(0, np.uint8)

    def memory_of(self, size: int) -> U8:
        """Return ``size`` bytes."""
        if len(self.memory) < size:
            self.memory = np.empty(size, np.uint8)
        return self.memory[:size]


_thread: Final = _ThreadMemory()


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRequest:
    """A range of an object, or bytes in memory, with the wanted ranges in it.

    Attributes:
        where: The range of an object, or the bytes.
        rows: The rows of the wanted ranges, int64 of shape (n,), by their position.
        offset: The first byte of each wanted range in the bytes of the request, int64 of shape (n,).
        additions: The chunks to add to the cache, or None without a cache.
    """

    where: ByteRange | U8
    rows: I64
    offset: I64
    additions: CacheAdditions | None = None

    @property
    def is_local(self) -> bool:
        """Whether the bytes are in memory or in local files."""
        return not isinstance(self.where, ByteRange) or self.where.where.is_local

    def read(self) -> U8:
        """Return the bytes. They may be fewer than the request asks for. Raises the errors of the storage.

        The bytes of a local file are in memory that the next call in this thread uses again. To decode and
        copy them first is the task of the caller.
        """
        if not isinstance(self.where, ByteRange):
            return self.where
        size = self.where.stop - self.where.start
        if self.where.where.is_local and size <= _LARGEST_REUSED:
            memory = _thread.memory_of(size)
            return memory[: self.where.where.get_into(self.where.start, memory.data)]
        data = np.frombuffer(self.where.where.get(self.where.start, self.where.stop), np.uint8)
        if self.additions is not None:
            self.additions.add(data, self.offset)
        return data

    def read_into(self, begin: int, out: memoryview) -> None:
        """Read the bytes of the request from byte ``begin`` into memory, and fill all of it.

        Raises the errors of the storage; ``StorageError`` (``invalid-object-size``) for an object that is too
        short.
        """
        if not isinstance(self.where, ByteRange):
            np.frombuffer(out, np.uint8)[:] = self.where[begin : begin + len(out)]
            return
        first = self.where.start + begin
        length = self.where.where.get_into(first, out)
        if length < len(out):
            raise too_short(self.where, first + length)


def requests_of(reader: ChunkReader, refs: ChunkTable, start: I64, length: I64) -> list[ColumnRequest]:
    """Return the requests for ``length`` bytes from byte ``start`` of each chunk."""
    requests: list[ColumnRequest] = []
    is_inline = refs.kind == ChunkKind.INLINE
    if is_inline.any():
        rows = np.flatnonzero(is_inline)
        first = refs.inline.starts[refs.source[rows]] + refs.offset[rows].astype(np.int64) + start[rows]
        requests.append(ColumnRequest(refs.inline.values, rows, first))
    rows = np.flatnonzero((refs.kind == ChunkKind.NATIVE) | (refs.kind == ChunkKind.VIRTUAL))
    if not len(rows):
        return requests
    wanted = WantedRanges(
        *_objects(reader, refs, rows),
        rows,
        *(each[rows].astype(np.int64) for each in (refs.offset, refs.length, start, length)),
    )
    cache = reader.cache if wanted.has_remote else None
    if cache is not None:
        cached = cached_chunks(cache, wanted)
        if len(cached.rows):
            requests.append(ColumnRequest(cached.data, rows[cached.rows], cached.offset))
            wanted = wanted.select(np.delete(np.arange(len(rows)), cached.rows))
    return requests + _planned(wanted, reader.limits, cache)


def _planned(wanted: WantedRanges, limits: MergeLimits, cache: ByteCache | None) -> list[ColumnRequest]:
    """Return the requests for ranges of objects, with merged neighbours."""
    first = wanted.offset + wanted.start
    last = first + wanted.length
    plan = plan_reads(wanted.key, first, last, limits.max_gap, limits.max_waste, limits.max_size)
    order = np.lexsort((plan.offset, plan.part))
    ends = np.cumsum(np.bincount(plan.part, minlength=len(plan))).tolist()
    requests: list[ColumnRequest] = []
    begin = 0
    columns = zip(plan.key.tolist(), plan.start.tolist(), plan.stop.tolist(), ends, strict=True)
    for key, low, high, end in columns:
        part = order[begin:end]
        where = ByteRange(wanted.objects[key], low, high)
        additions = None if cache is None else CacheAdditions(cache, wanted.select(part))
        requests.append(ColumnRequest(where, wanted.row[part], plan.offset[part], additions))
        begin = end
    return requests


def _objects(reader: ChunkReader, refs: ChunkTable, rows: I64) -> tuple[list[Readable], I64]:
    """Return the distinct objects of some rows, and the number of the object of each row."""
    code = refs.source[rows].astype(np.int64) * 4 + refs.kind[rows]
    if (code == code[0]).all():
        distinct, keys = rows[:1], np.zeros(len(rows), np.int64)
    else:
        _, first, keys = np.unique(code, return_index=True, return_inverse=True)
        distinct = rows[first]
    return [reader.object_of(refs.ref(row)) for row in distinct.tolist()], keys
