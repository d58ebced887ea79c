"""Reads of the bytes of chunks by their references: one by one, or as columns.

Neighbouring ranges of the same object become one request, if they come in one call (``read_many``,
``requests_of``) or in one turn of an event loop (``LoopReads``). The cache gets the bytes of remote requests.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.chunks.ranges import (
    FOREIGN_LIMITS,
    ByteBudget,
    ByteRange,
    MergeLimits,
    Outcome,
    RangeRead,
    Readable,
    StoredObject,
    copy_into,
    cut_all,
    plan_objects,
    raised,
)
from frazil.chunks.virtual import ForeignObject
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.ids import chunk_key
from frazil.format.manifest import ChunkKind, ChunkRef, ChunkTable, InlineRef, NativeRef, VirtualRef
from frazil.lazy_names import asyncio
from frazil.threads import SIZES, Purpose, ThreadPool

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Sequence

    from frazil.chunks.ranges import RangeCache
    from frazil.chunks.virtual import VirtualSources
    from frazil.chunks.writer import ChunkWriter
    from frazil.format.columns import I64, U8
    from frazil.storage.base import Storage


Request = tuple[ChunkRef, int, int | None]
type _Waiting = list[tuple[ByteRange, asyncio.Future[Buffer]]]

_LIMITS: Final = MergeLimits()
#: The most bytes of remote requests that one reader has in memory, besides the cache.
_IN_FLIGHT: Final = 128 << 20
#: Cached, because many reads are from the same pack.
_name_of = lru_cache(4096)(chunk_key)

_LARGEST_OBJECT: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class _OwnChunks(StoredObject):
    """A chunk file that the session may have written, and that may not be durable yet."""

    chunk_id: bytes
    writer: ChunkWriter = field(compare=False)

    def get(self, start: int, stop: int) -> Buffer:
        """Return the bytes from ``start`` up to ``stop``."""
        data = self.writer.pending(self.chunk_id, start, stop)
        return StoredObject.get(self, start, stop) if data is None else data

    async def get_async(self, start: int, stop: int) -> Buffer:
        """Return the result of ``get``."""
        data = self.writer.pending(self.chunk_id, start, stop)
        return await StoredObject.get_async(self, start, stop) if data is None else data

    def get_into(self, start: int, out: memoryview) -> int:
        """Read the bytes from ``start`` into memory. Return their number."""
        data = self.writer.pending(self.chunk_id, start, start + len(out))
        return StoredObject.get_into(self, start, out) if data is None else copy_into(data, out)


class ChunkReader:
    """A reader of chunks. Threads and event loops may share it.

    ``start`` and ``stop`` are positions in the bytes of the chunk, clamped to its end, which is None as
    ``stop``. ``writer`` has the session's own chunks that are not durable yet. ``limits`` limits the merge of
    requests, and ``max_requests`` their number at the same time. ``cache`` has ranges of remote objects.
    """

    def __init__(
        self,
        storage: Storage,
        virtual: VirtualSources,
        writer: ChunkWriter | None = None,
        *,
        limits: MergeLimits | None = None,
        max_requests: int = SIZES[Purpose.CHUNK_READS],
        cache: RangeCache | None = None,
    ) -> None:
        self._storage = storage
        self._virtual = virtual
        self._writer = writer
        self._limits = limits
        self._max_requests = max_requests
        self.cache = cache
        self.memory: Final = ByteBudget(_IN_FLIGHT)
        self._lock = threading.Lock()
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopReads] = (
            weakref.WeakKeyDictionary()
        )
        #: The threads of remote requests, which keep the limit of this reader.
        self.pool: Final = ThreadPool(Purpose.CHUNK_READS, max_requests)

    def __reduce__(self) -> tuple[Any, ...]:
        remade = partial(ChunkReader, limits=self._limits, max_requests=self._max_requests, cache=self.cache)
        return remade, (self._storage, self._virtual, self._writer)

    def read(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the bytes of one chunk from ``start`` up to ``stop``."""
        place = self._locate(ref, start, stop)
        if not isinstance(place, ByteRange):
            return place
        cache = self.cache_of(place.where)
        if cache is None:
            return place.read()
        data = cache.get(place)
        if data is None:
            data = memoryview(place.read())
            cache.add(place, data)
        return data

    async def read_async(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the result of ``read``. Reads of one turn of the event loop are fetched together."""
        place = self._locate(ref, start, stop)
        if not isinstance(place, ByteRange):
            return place
        if place.where.is_local:
            return place.read()
        cache = self.cache_of(place.where)
        data = None if cache is None else cache.get(place)
        return await self._of_this_loop().read(place) if data is None else data

    def cache_of(self, where: Readable) -> RangeCache | None:
        """Return the cache for the bytes of an object, or None if they are not cached."""
        if self.cache is None or where.is_local:
            return None
        if isinstance(where, ForeignObject):
            return self.cache if where.is_checked else None
        # Other objects, which are not durable yet, are in memory.
        return self.cache if type(where) is StoredObject and not self.cache.only_virtual else None

    def limits_of(self, where: Readable) -> MergeLimits:
        """Return the limits for merged ranges of an object."""
        is_foreign = isinstance(where, ForeignObject) and not where.is_local
        return self._limits or (FOREIGN_LIMITS if is_foreign else _LIMITS)

    def read_many(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return the bytes of each (reference, start, stop). Raises the first error in this order."""
        located = [self._locate(*request) for request in requests]
        job = RangeRead([place for place in located if isinstance(place, ByteRange)], self.limits_of)
        # A local read is a copy from the page cache. Threads would cost more than they save.
        is_fast = len(job.requests) < 2 or all(request.where.is_local for request in job.requests)
        outcomes = job.outcomes(list((map if is_fast else self.pool.map)(ByteRange.fetch, job.requests)))
        require_one_state(job.requests)
        return [raised(next(outcomes)) if isinstance(place, ByteRange) else place for place in located]

    def object_of(self, ref: ChunkRef | None) -> Readable:
        """Return the object of a reference: a chunk file, a pack in memory, or a foreign object."""
        if isinstance(ref, VirtualRef):
            return self._virtual.locate(ref)
        assert isinstance(ref, NativeRef)
        stored = StoredObject(_name_of(ref.chunk_id), self._storage)
        if self._writer is None or self._writer.pending(ref.chunk_id, 0, 1) is None:
            return stored
        return _OwnChunks(stored.name, self._storage, ref.chunk_id, self._writer)

    # Internal

    def _locate(self, ref: ChunkRef, start: int, stop: int | None) -> Buffer | ByteRange:
        """Return the bytes if they are in memory, or else their range in an object."""
        length = len(ref.data) if isinstance(ref, InlineRef) else ref.length
        stop = length if stop is None else min(stop, length)
        if start < 0 or stop < 0:
            raise InvalidInputError(
                f"the byte range of a chunk must have 0 <= start <= stop, got [{start}, {stop})",
                ErrorKind.INVALID_BYTE_RANGE,
            )
        if start >= stop:
            return b""
        if isinstance(ref, InlineRef):
            return memoryview(ref.data)[start:stop]
        first, last = ref.offset + start, ref.offset + stop
        where: Readable
        if isinstance(ref, VirtualRef):
            where = self._virtual.locate(ref)
        else:
            data = None if self._writer is None else self._writer.pending(ref.chunk_id, first, last)
            if data is not None:
                return data
            where = StoredObject(_name_of(ref.chunk_id), self._storage)
        if last > _LARGEST_OBJECT:
            raise StorageError(
                f"a reference to object {where.name!r} must end at or before byte {_LARGEST_OBJECT}, "
                f"got {last}",
                ErrorKind.INVALID_OBJECT_SIZE,
            )
        return ByteRange(where, first, last)

    def _of_this_loop(self) -> LoopReads:
        loop = asyncio.get_running_loop()
        with self._lock:
            reads = self._loops.get(loop)
            if reads is None:
                # A used semaphore has a reference to its loop, so weak keys do not drop closed loops.
                for closed in [other for other in self._loops if other.is_closed()]:
                    del self._loops[closed]
                reads = self._loops[loop] = LoopReads(self, self._max_requests)
            return reads


class LoopReads:
    """The reads of one event loop, with at most ``max_requests`` requests at a time.

    zarr reads chunks one by one, from many tasks of one turn of the loop. So the first read of a turn
    schedules a dispatch for the next turn, and all reads until then are planned as one job.

    Only its event loop uses it, so it needs no locks. A merged request is a separate task, because the tasks
    that wait for it may be cancelled one by one. If all of them are cancelled, the request is cancelled too.
    """

    def __init__(self, reader: ChunkReader, max_requests: int) -> None:
        self._limits_of = reader.limits_of
        self._cache_of = reader.cache_of
        self._free = asyncio.Semaphore(max_requests)
        self._waiting: _Waiting = []
        self._running: set[asyncio.Task[None]] = set()  # the loop itself only has weak references to tasks

    async def read(self, range_: ByteRange) -> Buffer:
        """Return the bytes of one range, which are fetched together with other reads of this turn."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Buffer] = loop.create_future()
        self._waiting.append((range_, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._dispatch)
        return await answer

    async def _fetch(self, request: ByteRange) -> Outcome:
        async with self._free:
            outcome = await request.fetch_async()
        cache = self._cache_of(request.where)
        if cache is not None and not isinstance(outcome, Exception):
            cache.add(request, outcome)
        return outcome

    def _dispatch(self) -> None:
        waiting = [(range_, answer) for range_, answer in self._waiting if not answer.done()]
        self._waiting = []
        if not waiting:
            return
        try:
            job = RangeRead([range_ for range_, _ in waiting], self._limits_of)
            served = [[waiting[row] for row in rows] for rows in job.parts()]
        except Exception as error:
            _fail(waiting, error)
            return
        for request, group in zip(job.requests, served, strict=True):
            task = asyncio.get_running_loop().create_task(self._serve(request, group))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            _cancel_when_deserted(task, group)

    async def _serve(self, request: ByteRange, group: _Waiting) -> None:
        try:
            ranges = [range_ for range_, _ in group]
            outcomes = list(cut_all(ranges, request, await self._fetch(request)))
            require_one_state([request])
            # A store of foreign objects refuses a whole range that goes beyond the end of the object: then
            # one chunk may be the cause of the error.
            if len(group) > 1 and all(
                isinstance(each, StorageError) and each.kind == ErrorKind.VIRTUAL_CHUNK_FETCH
                for each in outcomes
            ):
                single = zip(ranges, await asyncio.gather(*map(self._fetch, ranges)), strict=True)
                outcomes = [outcome for one, data in single for outcome in cut_all([one], one, data)]
            for (_, answer), outcome in zip(group, outcomes, strict=True):
                if answer.done():
                    continue
                if isinstance(outcome, Exception):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(outcome)
        except asyncio.CancelledError:
            for _, answer in group:
                answer.cancel()
            raise
        except Exception as error:
            _fail(group, error)


def _fail(group: _Waiting, error: Exception) -> None:
    for _, answer in group:
        if not answer.done():
            answer.set_exception(error)


def _cancel_when_deserted(task: asyncio.Task[None], group: _Waiting) -> None:
    """Cancel the request if all tasks that wait for it are cancelled."""
    left = len(group)

    def one_less(answer: asyncio.Future[Buffer]) -> None:
        nonlocal left
        left -= answer.cancelled()
        if left == 0:
            task.cancel()

    for _, answer in group:
        answer.add_done_callback(one_less)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectRanges:
    """The wanted ranges of chunks in objects, n rows.

    ``key`` has the number of the object, and ``row`` the row among the references. ``first`` and ``last`` are
    the first byte in the object, and the end.
    """

    objects: list[Readable]
    key: I64
    row: I64
    first: I64
    last: I64

    def select(self, rows: I64) -> ObjectRanges:
        """Return some of the ranges."""
        return ObjectRanges(
            self.objects, *(each[rows] for each in (self.key, self.row, self.first, self.last))
        )


#: The largest request whose memory is used again, in bytes. A merged request has at most half of it.
_LARGEST_REUSED: Final = 8 << 20


class _ThreadMemory(threading.local):
    """Memory of a thread for the bytes of one request. New memory costs as much time as reading into it."""

    memory: U8 = np.empty(0, np.uint8)


_thread: Final = _ThreadMemory()


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRequest:
    """A range of an object, or bytes in memory, with the rows of the wanted ranges in it, by position.

    ``offset`` has the first byte of each wanted range in the bytes of the request. ``cache`` gets the bytes.
    """

    where: ByteRange | U8
    rows: I64
    offset: I64
    cache: RangeCache | None = None

    @property
    def is_local(self) -> bool:
        """Whether the bytes are in memory or in local files."""
        return not isinstance(self.where, ByteRange) or self.where.where.is_local

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.where.stop - self.where.start if isinstance(self.where, ByteRange) else len(self.where)

    def read(self) -> U8:
        """Return the bytes, which may be fewer than asked for. Raises the errors of the storage."""
        if not isinstance(self.where, ByteRange):
            return self.where
        size = self.size
        if self.where.where.is_local and size <= _LARGEST_REUSED:
            if len(_thread.memory) < size:
                _thread.memory = np.empty(size, np.uint8)
            return _thread.memory[: self.where.where.get_into(self.where.start, _thread.memory[:size].data)]
        data = np.frombuffer(self.where.where.get(self.where.start, self.where.stop), np.uint8)
        if self.cache is not None:
            self.cache.add(self.where, data.data)
        return data

    def read_into(self, begin: int, out: memoryview) -> None:
        """Read the bytes of the request from byte ``begin``, and fill all of ``out``."""
        if not isinstance(self.where, ByteRange):
            np.frombuffer(out, np.uint8)[:] = self.where[begin : begin + len(out)]
            return
        first = self.where.start + begin
        length = self.where.where.get_into(first, out)
        if length < len(out):
            raise self.where.too_short(first + length)


def require_one_state(requests: Iterable[ByteRange]) -> None:
    """Raise ``StorageError`` if the answers to the requests of one read are of two states of an object."""
    for where in {id(each.where): each.where for each in requests}.values():
        if isinstance(where, ForeignObject):
            where.require_one_state()


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
    first = refs.offset[rows].astype(np.int64) + start[rows]
    ranges = ObjectRanges(*_objects(reader, refs, rows), rows, first, first + length[rows])
    if reader.cache is not None:
        cached, ranges = _cached(reader, ranges)
        requests += cached
    return requests + _planned(reader, ranges)


def _cached(reader: ChunkReader, ranges: ObjectRanges) -> tuple[list[ColumnRequest], ObjectRanges]:
    """Return the requests for the ranges in the cache, and the other ranges."""
    requests: list[ColumnRequest] = []
    is_missing = np.ones(len(ranges.key), np.bool_)
    order = np.argsort(ranges.key, kind="stable")
    bounds = np.searchsorted(ranges.key[order], np.arange(len(ranges.objects) + 1)).tolist()
    for where, begin, end in zip(ranges.objects, bounds, bounds[1:], strict=False):
        cache, rows = reader.cache_of(where), order[begin:end]
        if cache is None:
            continue
        for range_, data, some in cache.find(where, ranges.first[rows], ranges.last[rows]):
            offset = ranges.first[rows[some]] - range_.start
            requests.append(ColumnRequest(np.frombuffer(data, np.uint8), ranges.row[rows[some]], offset))
            is_missing[rows[some]] = False
    return requests, ranges.select(np.flatnonzero(is_missing)) if requests else ranges


def _planned(reader: ChunkReader, ranges: ObjectRanges) -> list[ColumnRequest]:
    """Return the requests for ranges of objects, with merged neighbours."""
    plan = plan_objects(ranges.objects, ranges.key, ranges.first, ranges.last, reader.limits_of)
    order = np.lexsort((plan.offset, plan.part))
    ends = np.cumsum(np.bincount(plan.part, minlength=len(plan))).tolist()
    requests: list[ColumnRequest] = []
    columns = (plan.key.tolist(), plan.start.tolist(), plan.stop.tolist(), pairwise([0, *ends]))
    for key, low, high, rows in zip(*columns, strict=True):
        part, where = order[slice(*rows)], ranges.objects[key]
        requests.append(
            ColumnRequest(
                ByteRange(where, low, high), ranges.row[part], plan.offset[part], reader.cache_of(where)
            )
        )
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
