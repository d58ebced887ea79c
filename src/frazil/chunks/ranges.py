"""Reads of ranges of objects with merged requests, and a cache of the bytes that requests brought.

An *outcome* is bytes or an error: ranges that are fetched together can fail one by one. In the 15 ms until
the first byte of a request arrives, a connection transfers about a megabyte, so one request for two near
ranges is faster. Each merged range keeps limits: of the gap between neighbours, of the sum of these gaps, and
of its size, so that large reads still run in parallel. ``FOREIGN_LIMITS`` are those of files of other
writers, where the chunks of a selection are a stride apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Buffer
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from frazil.errors import ErrorKind, StorageError
from frazil.lazy_names import asyncio
from frazil.threads import thread_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from frazil.storage.base import Storage


@dataclass(frozen=True, slots=True, eq=False)
class ReadPlan:
    """The m ranges to fetch, and the places of the n wanted ranges in them.

    ``key``, ``start`` and ``stop`` are ranges of objects. ``part`` has the range that contains each wanted
    range, and ``offset`` the first byte there.
    """

    key: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    part: NDArray[np.int64]
    offset: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """The limits of merged ranges, in bytes.

    A gap of more than 64 KiB is at most ``max_share`` times the mean length of the ranges before and after
    it. So the sum of such gaps is at most ``max_share`` times the wanted bytes.
    """

    max_gap: int = 64 << 10
    max_waste: int = 1 << 20
    max_size: int = 4 << 20
    max_share: int = 4


#: The largest gap that needs no long neighbours, in bytes.
_FREE_GAP: Final = 64 << 10
#: A request to a remote store takes as long as about 1 MiB: 20 ms, with 50 MB/s.
FOREIGN_LIMITS: Final = MergeLimits(max_gap=1 << 20, max_waste=3 << 20)


def plan_reads(keys: ArrayLike, starts: ArrayLike, stops: ArrayLike, limits: MergeLimits) -> ReadPlan:
    """Return the plan for reads of ``starts[i] <= byte < stops[i]`` of the object with number ``keys[i]``."""
    key, start, stop = (np.asarray(column, np.int64) for column in (keys, starts, stops))
    n = len(key)
    if n == 0:
        return ReadPlan(key, start, stop, key, key)
    order = np.lexsort((stop, start, key))
    key, first, last = key[order], start[order], stop[order]

    new_key = np.empty(n, bool)
    new_key[0] = True
    np.not_equal(key[1:], key[:-1], out=new_key[1:])
    reach = _running_maximum(last, new_key)
    gap = np.zeros(n, np.int64)
    np.subtract(first[1:], reach[:-1], out=gap[1:])
    gap[new_key] = 0
    np.maximum(gap, 0, out=gap)

    near = gap <= limits.max_gap
    if limits.max_gap > _FREE_GAP:
        length = last - first
        near[1:] &= gap[1:] <= np.maximum(_FREE_GAP, limits.max_share * ((length[1:] + length[:-1]) // 2))
    begins = np.flatnonzero(new_key | ~near)
    gap[begins] = 0
    begins = _split(begins, first, reach, np.cumsum(gap), limits)

    part = np.zeros(n, np.int64)
    part[begins[1:]] = 1
    part = np.cumsum(part)
    fetched_start = first[begins]
    back = np.empty(n, np.int64)
    back[order] = np.arange(n)
    return ReadPlan(
        key[begins],
        fetched_start,
        np.maximum.reduceat(last, begins),
        part[back],
        start - fetched_start[part[back]],
    )


def plan_objects(
    objects: Sequence[Readable],
    keys: ArrayLike,
    starts: ArrayLike,
    stops: ArrayLike,
    limits_of: Callable[[Readable], MergeLimits],
) -> ReadPlan:
    """Return the plan of ``plan_reads``, with the limits of each object."""
    key, start, stop = (np.asarray(column, np.int64) for column in (keys, starts, stops))
    limits = list(map(limits_of, objects))
    distinct = list(dict.fromkeys(limits)) or [MergeLimits()]
    if len(distinct) == 1:
        return plan_reads(key, start, stop, distinct[0])
    code = np.array(list(map(distinct.index, limits)))[key]
    rows = [np.flatnonzero(code == number) for number in range(len(distinct))]
    plans = [plan_reads(key[r], start[r], stop[r], each) for r, each in zip(rows, distinct, strict=True)]
    part, offset = np.empty_like(key), np.empty_like(key)
    parts_before = 0
    for r, plan in zip(rows, plans, strict=True):
        part[r], offset[r] = plan.part + parts_before, plan.offset
        parts_before += len(plan)
    places = ([each.key for each in plans], [each.start for each in plans], [each.stop for each in plans])
    return ReadPlan(*map(np.concatenate, places), part, offset)  # type: ignore[call-arg]  # three columns


def _running_maximum(values: NDArray[np.int64], restart: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the running maximum of non-negative values, which starts again where ``restart`` is True."""
    if np.all((values[1:] >= values[:-1]) | restart[1:]):  # the usual case, such as the chunks of a pack
        return values
    # Lift each group above all earlier groups, so that one running maximum is enough. The lift uses ranks
    # instead of values, so that it cannot overflow.
    distinct, rank = np.unique(values, return_inverse=True)
    lift = (np.cumsum(restart) - 1) * len(distinct)
    highest: NDArray[Any] = distinct[np.maximum.accumulate(rank + lift) - lift]
    return highest


def _split(
    begins: NDArray[np.int64],
    first: NDArray[np.int64],
    reach: NDArray[np.int64],
    waste: NDArray[np.int64],
    limits: MergeLimits,
) -> NDArray[np.int64]:
    """Return where merged ranges begin, after cuts of ranges that are too large or have too much waste."""
    ends = np.append(begins[1:], len(first))
    tail = ends - 1
    too_much = reach[tail] - first[begins] > limits.max_size
    too_much |= waste[tail] - waste[begins] > limits.max_waste
    too_much &= ends - begins > 1
    if not too_much.any():
        return begins
    cuts: list[int] = []
    for begin, end in zip(begins[too_much].tolist(), ends[too_much].tolist(), strict=True):
        at = begin
        while at < end:
            # A wanted range that is larger than the limit may still contain other wanted ranges.
            furthest = max(int(first[at]) + limits.max_size, int(reach[at]))
            fits = at + int(np.searchsorted(reach[at:end], furthest, "right"))
            cheap = at + int(np.searchsorted(waste[at:end], int(waste[at]) + limits.max_waste, "right"))
            at = max(at + 1, min(fits, cheap))
            cuts.append(at)
    return np.union1d(begins, np.array([cut for cut in cuts if cut < len(first)], np.int64))


Outcome = Buffer | Exception


class Readable(Protocol):
    """An object in any store. It is hashable. Ranges of equal objects can be fetched together."""

    @property
    def name(self) -> str:
        """The key or URL of the object, for messages."""

    @property
    def is_local(self) -> bool:
        """Whether the object is on a local disk or in memory."""

    def get(self, start: int, stop: int) -> Buffer:
        """Return the bytes from ``start`` up to ``stop``."""

    async def get_async(self, start: int, stop: int) -> Buffer:
        """Return the result of ``get``."""

    def get_into(self, start: int, out: memoryview) -> int:
        """Read the bytes from ``start`` into memory. Return their number, as ``Storage.get_into``."""

    def size(self) -> int | None:
        """Return the number of bytes, or None if it is not known. It is only called for an error."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in the storage of the repository."""

    name: str
    storage: Storage = field(compare=False)

    @property
    def is_local(self) -> bool:
        """Whether the storage is local."""
        return self.storage.is_local

    def get(self, start: int, stop: int) -> Buffer:
        """Return the bytes from ``start`` up to ``stop``."""
        return self.storage.get(self.name, start, stop)

    async def get_async(self, start: int, stop: int) -> Buffer:
        """Return the result of ``get``."""
        return await self.storage.get_async(self.name, start, stop)

    def get_into(self, start: int, out: memoryview) -> int:
        """Read the bytes from ``start`` into memory. Return their number."""
        return self.storage.get_into(self.name, start, out)

    def size(self) -> int | None:
        """Return the number of bytes, or None if there is no such object."""
        info = self.storage.head(self.name)
        return None if info is None else info.size


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes of an object from ``start`` up to ``stop``."""

    where: Readable
    start: int
    stop: int

    def read(self) -> Buffer:
        """Return the bytes. Raises ``StorageError`` (``invalid-object-size``) for a short object."""
        data = raised(self.fetch())
        size = memoryview(data).nbytes
        if size < self.stop - self.start:
            raise self.too_short(self.start + size)
        return data

    def fetch(self) -> Outcome:
        """Make one request. It may return fewer bytes than requested. Errors are returned, not raised."""
        try:
            return self.where.get(self.start, self.stop)
        except StorageError as error:
            # Storages refuse a range after the end of the object with this general kind.
            return self._explained(error) if error.kind == ErrorKind.OBJECT_STORE else error
        except Exception as error:
            return error

    async def fetch_async(self) -> Outcome:
        """Return the result of ``fetch``, for an event loop."""
        try:
            return await self.where.get_async(self.start, self.stop)
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_STORE:
                with thread_errors():
                    return await asyncio.to_thread(self._explained, error)
            return error
        except Exception as error:
            return error

    def _explained(self, error: StorageError) -> StorageError:
        try:
            size = self.where.size()
        except Exception:
            return error
        return self.too_short(size) if size is not None and size <= self.start else error

    def too_short(self, size: int) -> StorageError:
        """Return the error for an object that is shorter than a reference requires."""
        return StorageError(
            f"object {self.where.name!r} must have at least {self.stop} bytes, by its reference, got {size}",
            ErrorKind.INVALID_OBJECT_SIZE,
        )

    def cut(self, start: int, view: memoryview | Exception) -> Outcome:
        """Return the outcome of the range, from the outcome of a request that begins at ``start``."""
        if isinstance(view, Exception):
            return view
        if self.stop - start > view.nbytes:
            return self.too_short(start + view.nbytes)
        return view[self.start - start : self.stop - start]


def copy_into(data: Buffer, out: memoryview) -> int:
    """Copy bytes to the begin of memory. Return their number."""
    view = memoryview(data).cast("B")
    out[: len(view)] = view
    return len(view)


class RangeRead:
    """The requests for wanted ranges. ``outcomes`` returns the bytes of each wanted range."""

    __slots__ = ("_plan", "_ranges", "requests")

    def __init__(self, ranges: Sequence[ByteRange], limits_of: Callable[[Readable], MergeLimits]) -> None:
        numbers: dict[Readable, int] = {}
        keys = [numbers.setdefault(w.where, len(numbers)) for w in ranges]
        objects = list(numbers)
        starts, stops = [w.start for w in ranges], [w.stop for w in ranges]
        self._plan: Final = plan_objects(objects, keys, starts, stops, limits_of)
        self._ranges: Final = ranges
        columns = (self._plan.key.tolist(), self._plan.start.tolist(), self._plan.stop.tolist())
        self.requests: Final = [
            ByteRange(objects[key], start, stop) for key, start, stop in zip(*columns, strict=True)
        ]

    def parts(self) -> Iterator[list[int]]:
        """Yield the numbers of the wanted ranges of each request."""
        rows = np.argsort(self._plan.part, kind="stable").tolist()
        ends = np.cumsum(np.bincount(self._plan.part, minlength=len(self.requests))).tolist()
        for begin, end in pairwise([0, *ends]):
            yield rows[begin:end]

    def outcomes(self, fetched: Sequence[Outcome]) -> Iterator[Outcome]:
        """Return the outcome of each wanted range, from the outcomes of the requests."""
        parts = self._plan.part.tolist()
        starts = [request.start for request in self.requests]
        views = [f if isinstance(f, Exception) else memoryview(f) for f in fetched]
        return (w.cut(starts[part], views[part]) for w, part in zip(self._ranges, parts, strict=True))


def cut_all(ranges: Iterable[ByteRange], request: ByteRange, fetched: Outcome) -> Iterator[Outcome]:
    """Return the outcome of each wanted range, from the outcome of their common request."""
    view = fetched if isinstance(fetched, Exception) else memoryview(fetched)
    return (w.cut(request.start, view) for w in ranges)


def raised(outcome: Outcome) -> Buffer:
    """Return the bytes of an outcome, or raise its error."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class ByteBudget:
    """The bytes of requests that may be in memory at the same time. A larger request waits for all others."""

    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit
        self._change = Condition()

    @contextmanager
    def spend(self, size: int) -> Iterator[None]:
        """Wait until there is room for a request, and hold it for a block."""
        size = min(size, self._limit)
        with self._change:
            self._change.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            with self._change:
                self._left += size
                self._change.notify_all()


class RangeCache:
    """A cache of the ranges of objects that were read last, up to ``limit`` bytes in total.

    A range answers reads of all its parts, so the gaps of merged requests are useful later. The cache has
    virtual chunks with an etag or a time, and unless it is ``only_virtual``, the repository's own chunks.
    """

    def __init__(self, limit: int, *, only_virtual: bool = False) -> None:
        self.limit = limit
        self.only_virtual = only_virtual
        self._values: OrderedDict[ByteRange, memoryview] = OrderedDict()
        #: The ranges of each object, by their first byte. No range contains another one.
        self._ranges: dict[Readable, list[ByteRange]] = {}
        self._total = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(RangeCache, only_virtual=self.only_virtual), (self.limit,)

    def get(self, range_: ByteRange) -> memoryview | None:
        """Return the bytes of a range, or None if no cached range contains it."""
        with self._lock:
            ranges = self._ranges.get(range_.where, ())
            at = bisect_right(ranges, range_.start, key=_start) - 1
            if at < 0 or ranges[at].stop < range_.stop:
                return None
            self._values.move_to_end(ranges[at])
            begin = range_.start - ranges[at].start
            return self._values[ranges[at]][begin : begin + range_.stop - range_.start]

    def find(
        self, where: Readable, first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> Iterator[tuple[ByteRange, memoryview, NDArray[np.int64]]]:
        """Yield the cached ranges that contain ranges of an object, their bytes, and the rows in each."""
        with self._lock:
            ranges = list(self._ranges.get(where, ()))
            if not ranges:
                return
            bounds = np.array([(each.start, each.stop) for each in ranges])
            at = np.searchsorted(bounds[:, 0], first, "right") - 1
            at[(at >= 0) & (bounds[at, 1] < last)] = -1
            numbers = np.unique(at[at >= 0]).tolist()
            for number in numbers:
                self._values.move_to_end(ranges[number])
            values = [self._values[ranges[number]] for number in numbers]
        for number, value in zip(numbers, values, strict=True):
            yield ranges[number], value, np.flatnonzero(at == number)

    def add(self, range_: ByteRange, data: Buffer) -> None:
        """Cache all bytes of a range, without a copy, and drop the ranges that were not used for longest."""
        value = memoryview(data).cast("B")
        if len(value) > self.limit or len(value) != range_.stop - range_.start:
            return
        with self._lock:
            ranges = self._ranges.setdefault(range_.where, [])
            at = bisect_right(ranges, range_.start, key=_start)
            if at and ranges[at - 1].stop >= range_.stop:
                return
            at -= bool(at and ranges[at - 1].start == range_.start)
            end = at
            while end < len(ranges) and ranges[end].stop <= range_.stop:
                self._total -= len(self._values.pop(ranges[end]))
                end += 1
            ranges[at:end] = [range_]
            self._values[range_] = value
            self._total += len(value)
            while self._total > self.limit:
                oldest, dropped = self._values.popitem(last=False)
                self._total -= len(dropped)
                others = self._ranges[oldest.where]
                del others[bisect_right(others, oldest.start, key=_start) - 1]
                if not others:
                    del self._ranges[oldest.where]


def _start(range_: ByteRange) -> int:
    return range_.start
