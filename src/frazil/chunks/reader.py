"""Reads of the bytes of chunks by their references: inline, in chunk files, or virtual.

    ChunkRef ──locate──> bytes in memory                     (inline, or written and not durable yet)
                         range of an object ──plan──> few requests ──> slices

Neighbouring ranges of the same object become one request (``coalesce``), if they come in one call
(``read_many``) or in one turn of an event loop (``LoopReads``).
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from frazil.chunks.ranges import (
    ByteRange,
    Job,
    MergeLimits,
    Outcome,
    Readable,
    StoredObject,
    copy_into,
    cut_all,
    fetch,
    fetch_async,
    raised_all,
)
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.keys import chunk_key
from frazil.format.manifest import ChunkRef, InlineRef, NativeRef, VirtualRef
from frazil.lazy_names import ModuleOnDemand
from frazil.threads import SIZES, Purpose, ThreadPool

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence

    from frazil.chunks.byte_cache import ByteCache
    from frazil.chunks.virtual import VirtualSources
    from frazil.chunks.writer import ChunkWriter
    from frazil.storage.base import Storage

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = ModuleOnDemand("asyncio")

Request = tuple[ChunkRef, int, int | None]
type _Waiting = list[tuple[ByteRange, asyncio.Future[Buffer]]]

_LIMITS: Final = MergeLimits()
#: Cached, because many reads are from the same pack.
_name_of = lru_cache(4096)(chunk_key)

_LARGEST_OBJECT: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class _OwnChunks:
    """A chunk file that the session may have written, and that may not be durable yet."""

    chunk_id: bytes
    stored: StoredObject
    writer: ChunkWriter = field(compare=False)

    @property
    def name(self) -> str:
        """The key of the file."""
        return self.stored.name

    @property
    def is_local(self) -> bool:
        """Whether the storage is local."""
        return self.stored.is_local

    def get(self, start: int, stop: int) -> Buffer:
        """Return the bytes from ``start`` up to ``stop``."""
        data = self.writer.pending(self.chunk_id, start, stop)
        return self.stored.get(start, stop) if data is None else data

    async def get_async(self, start: int, stop: int) -> Buffer:
        """Return the result of ``get``."""
        data = self.writer.pending(self.chunk_id, start, stop)
        return await self.stored.get_async(start, stop) if data is None else data

    def get_into(self, start: int, out: memoryview) -> int:
        """Read the bytes from ``start`` into memory. Return their number."""
        data = self.writer.pending(self.chunk_id, start, start + len(out))
        return self.stored.get_into(start, out) if data is None else copy_into(data, out)

    def size(self) -> int | None:
        """Return the number of bytes of the stored file."""
        return self.stored.size()


class ChunkReader:
    """A reader of chunks. Threads and event loops may share it.

    ``start`` and ``stop`` are positions in the bytes of the chunk. Values beyond its end are clamped to it.
    None as ``stop`` is the end of the chunk. ``writer`` has the session's own chunks that are not durable
    yet. ``limits`` limits the merge of requests. ``max_requests`` is the largest number of requests at the
    same time. ``cache`` has chunks of remote objects.
    """

    def __init__(
        self,
        storage: Storage,
        virtual: VirtualSources,
        writer: ChunkWriter | None = None,
        *,
        limits: MergeLimits = _LIMITS,
        max_requests: int = SIZES[Purpose.CHUNK_READS],
        cache: ByteCache | None = None,
    ) -> None:
        self._storage = storage
        self._virtual = virtual
        self._writer = writer
        self._limits = limits
        self._max_requests = max_requests
        self._cache = cache
        self._lock = threading.Lock()
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopReads] = (
            weakref.WeakKeyDictionary()
        )
        self._pool = ThreadPool(Purpose.CHUNK_READS, max_requests)

    def __getstate__(self) -> tuple[Any, ...]:
        limits = (self._limits, self._max_requests, self._cache)
        return (self._storage, self._virtual, self._writer, *limits)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        storage, virtual, writer, limits, max_requests, cache = state
        ChunkReader.__init__(
            self, storage, virtual, writer, limits=limits, max_requests=max_requests, cache=cache
        )

    def read(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the bytes of one chunk from ``start`` up to ``stop``.

        Raises ``StorageError`` (``object-not-found``; ``invalid-object-size`` for an object that is shorter
        than its reference requires; ``virtual-chunk-modified``), and ``InvalidInputError`` for a virtual
        chunk without a container, or whose container is not authorised.
        """
        place = self._locate(ref, start, stop)
        if not isinstance(place, ByteRange):
            return place
        cached = self._cached_bytes(place)
        return self._add_to_cache(place, place.read()) if cached is None else cached

    async def read_async(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the result of ``read``. Reads of one turn of the event loop are fetched together."""
        place = self._locate(ref, start, stop)
        if not isinstance(place, ByteRange):
            return place
        if place.where.is_local:
            return place.read()
        cached = self._cached_bytes(place)
        return self._add_to_cache(place, await self._of_this_loop().read(place)) if cached is None else cached

    def _cached_bytes(self, place: ByteRange) -> Buffer | None:
        return None if self._cache is None or place.where.is_local else self._cache.get_chunk(place)

    def _add_to_cache(self, place: ByteRange, data: Buffer) -> Buffer:
        if self._cache is not None and not place.where.is_local:
            self._cache.add_chunk(place, data)
        return data

    def read_many(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return the bytes of each (reference, start, stop). Raises the first error in this order."""
        answers, wanted, job = self._prepare(requests)
        return _filled(answers, wanted, job, self._fetch_all(job.requests))

    @property
    def cache(self) -> ByteCache | None:
        """The cache of remote chunks, or None."""
        return self._cache

    @property
    def limits(self) -> MergeLimits:
        """The limits of merged requests."""
        return self._limits

    def map_requests[T, R](self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Call a function that makes one remote request for each item, with the limit of this reader."""
        return self._pool.map(function, items)

    def object_of(self, ref: ChunkRef | None) -> Readable:
        """Return the object of a reference: a chunk file, a pack in memory, or a foreign object.

        Raises ``InvalidInputError`` for a virtual chunk without an authorised container.
        """
        if isinstance(ref, VirtualRef):
            return self._virtual.locate(ref)
        assert isinstance(ref, NativeRef)
        stored = StoredObject(_name_of(ref.chunk_id), self._storage)
        if self._writer is None or self._writer.pending(ref.chunk_id, 0, 1) is None:
            return stored
        return _OwnChunks(ref.chunk_id, stored, self._writer)

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
        if isinstance(ref, NativeRef):
            if self._writer is not None:
                data = self._writer.pending(ref.chunk_id, first, last)
                if data is not None:
                    return data
            range_ = ByteRange(StoredObject(_name_of(ref.chunk_id), self._storage), first, last)
        else:
            range_ = ByteRange(self._virtual.locate(ref), first, last)
        if last > _LARGEST_OBJECT:
            raise StorageError(
                f"a reference to object {range_.where.name!r} must end at or before byte {_LARGEST_OBJECT}, "
                f"got {last}",
                ErrorKind.INVALID_OBJECT_SIZE,
            )
        return range_

    def _prepare(self, requests: Sequence[Request]) -> tuple[list[Buffer], list[int], Job]:
        """Return the answers that are in memory, the numbers of the others, and the job that reads them."""
        located = [self._locate(ref, start, stop) for ref, start, stop in requests]
        wanted = [i for i, place in enumerate(located) if isinstance(place, ByteRange)]
        answers = [b"" if isinstance(place, ByteRange) else place for place in located]
        job = Job([place for place in located if isinstance(place, ByteRange)], self._limits)
        return answers, wanted, job

    def _fetch_all(self, requests: list[ByteRange]) -> list[Outcome]:
        # A local read is a copy from the page cache. Threads would cost more than they save.
        if len(requests) < 2 or all(request.where.is_local for request in requests):
            return list(map(fetch, requests))
        return list(self._pool.map(fetch, requests))

    def _of_this_loop(self) -> LoopReads:
        loop = asyncio.get_running_loop()
        with self._lock:
            reads = self._loops.get(loop)
            if reads is None:
                # A used semaphore has a reference to its loop, so weak keys alone do not drop closed loops.
                for closed in [other for other in self._loops if other.is_closed()]:
                    del self._loops[closed]
                reads = self._loops[loop] = LoopReads(self._limits, self._max_requests)
            return reads


def _filled(answers: list[Buffer], wanted: list[int], job: Job, fetched: list[Outcome]) -> list[Buffer]:
    """Return the answers, completed with the fetched bytes."""
    for i, data in zip(wanted, raised_all(job.outcomes(fetched)), strict=True):
        answers[i] = data
    return answers


class LoopReads:
    """The reads of one event loop, with at most ``max_requests`` requests at a time.

    zarr reads chunks one by one, from many tasks. The tasks run in one turn of the loop. So the first read of
    a turn schedules a dispatch for the next turn, and all reads until then are planned as one job. This costs
    one turn of the loop: microseconds, before a request of milliseconds.

    Only its event loop uses it, so it needs no locks. A merged request is a separate task, because the tasks
    that wait for it may be cancelled one by one. If all of them are cancelled, the request is cancelled too.
    """

    def __init__(self, limits: MergeLimits, max_requests: int) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(max_requests)
        self._waiting: _Waiting = []
        self._running: set[asyncio.Task[None]] = set()  # the loop itself only has weak references to tasks

    async def read(self, wanted: ByteRange) -> Buffer:
        """Return the bytes of one range, which are fetched together with other reads of this turn."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Buffer] = loop.create_future()
        self._waiting.append((wanted, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._dispatch)
        return await answer

    async def fetch_all(self, requests: Sequence[ByteRange]) -> list[Outcome]:
        """Make several requests. Return the outcome of each."""
        return await asyncio.gather(*map(self._fetch, requests))

    async def _fetch(self, request: ByteRange) -> Outcome:
        async with self._free:
            return await fetch_async(request)

    def _dispatch(self) -> None:
        waiting = [(wanted, answer) for wanted, answer in self._waiting if not answer.done()]
        self._waiting = []
        if not waiting:
            return
        try:
            job = Job([wanted for wanted, _ in waiting], self._limits)
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
            wanted = [wanted for wanted, _ in group]
            outcomes = list(cut_all(wanted, request, await self._fetch(request)))
            if len(group) > 1 and all(map(_may_be_of_one, outcomes)):
                alone = zip(wanted, await self.fetch_all(wanted), strict=True)
                outcomes = [outcome for one, data in alone for outcome in cut_all([one], one, data)]
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


def _may_be_of_one(outcome: Outcome) -> bool:
    """Return whether one chunk may be the cause of the error of a merged request.

    A store of foreign objects refuses a whole range that goes beyond the end of the object.
    """
    return isinstance(outcome, StorageError) and outcome.kind == ErrorKind.VIRTUAL_CHUNK_FETCH


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
