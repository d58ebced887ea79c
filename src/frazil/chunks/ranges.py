"""Reads of ranges of objects with merged requests.

An *outcome* is bytes or an error: ranges that are fetched together can fail one by one. Synchronous and
asynchronous callers only differ in how they make the requests. This module decides which requests are made,
and which bytes each wanted range gets.
"""

from __future__ import annotations

from collections.abc import Buffer
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from frazil.chunks.coalesce import plan_reads
from frazil.errors import ErrorKind, StorageError
from frazil.lazy_names import ModuleOnDemand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from frazil.storage.base import Storage

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = ModuleOnDemand("asyncio")

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
        return _whole(self, _raised(fetch(self)))

    async def read_async(self) -> Buffer:
        """Return the result of ``read``."""
        return _whole(self, _raised(await fetch_async(self)))


def copy_into(data: Buffer, out: memoryview) -> int:
    """Copy bytes to the begin of memory. Return their number."""
    view = memoryview(data).cast("B")
    out[: len(view)] = view
    return len(view)


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """The limits of ``plan_reads``, in bytes.

    A request of 4 MiB takes several times the latency of a request. A large read still uses many connections.
    Up to this size, a local read reuses memory that is in the cache of the processor.
    """

    max_gap: int = 64 << 10
    max_waste: int = 1 << 20
    max_size: int = 4 << 20


class Job:
    """The requests for wanted ranges. ``outcomes`` returns the bytes of each wanted range."""

    __slots__ = ("_plan", "_wanted", "requests")

    def __init__(self, wanted: Sequence[ByteRange], limits: MergeLimits) -> None:
        numbers: dict[Readable, int] = {}
        keys = [numbers.setdefault(w.where, len(numbers)) for w in wanted]
        objects = list(numbers)
        starts, stops = [w.start for w in wanted], [w.stop for w in wanted]
        self._plan: Final = plan_reads(keys, starts, stops, limits.max_gap, limits.max_waste, limits.max_size)
        self._wanted: Final = wanted
        self.requests: Final = [
            ByteRange(objects[key], start, stop)
            for key, start, stop in zip(
                self._plan.key.tolist(), self._plan.start.tolist(), self._plan.stop.tolist(), strict=True
            )
        ]

    def parts(self) -> Iterator[list[int]]:
        """Yield the numbers of the wanted ranges of each request."""
        order = np.argsort(self._plan.part, kind="stable")
        ends = np.searchsorted(self._plan.part[order], np.arange(len(self.requests)), "right").tolist()
        rows = order.tolist()
        begin = 0
        for end in ends:
            yield rows[begin:end]
            begin = end

    def outcomes(self, fetched: Sequence[Outcome]) -> Iterator[Outcome]:
        """Return the outcome of each wanted range, from the outcomes of the requests."""
        parts = self._plan.part.tolist()
        starts = [request.start for request in self.requests]
        views = [f if isinstance(f, Exception) else memoryview(f) for f in fetched]
        return (_cut(w, starts[part], views[part]) for w, part in zip(self._wanted, parts, strict=True))


def cut_all(wanted: Iterable[ByteRange], request: ByteRange, fetched: Outcome) -> Iterator[Outcome]:
    """Return the outcome of each wanted range, from the outcome of their common request."""
    view = fetched if isinstance(fetched, Exception) else memoryview(fetched)
    return (_cut(w, request.start, view) for w in wanted)


def _cut(wanted: ByteRange, start: int, view: memoryview | Exception) -> Outcome:
    if isinstance(view, Exception):
        return view
    if wanted.stop - start > view.nbytes:
        return too_short(wanted, start + view.nbytes)
    return view[wanted.start - start : wanted.stop - start]


def fetch(range_: ByteRange) -> Outcome:
    """Make one request. It may return fewer bytes than requested. Errors are returned, not raised."""
    try:
        return range_.where.get(range_.start, range_.stop)
    except StorageError as error:
        return _explained(range_, error) if _may_be_short(error) else error
    except Exception as error:
        return error


async def fetch_async(range_: ByteRange) -> Outcome:
    """Return the result of ``fetch``, for an event loop."""
    try:
        return await range_.where.get_async(range_.start, range_.stop)
    except StorageError as error:
        if _may_be_short(error):
            return await asyncio.to_thread(_explained, range_, error)
        return error
    except Exception as error:
        return error


def too_short(range_: ByteRange, size: int) -> StorageError:
    """Return the error for an object that is shorter than a reference requires."""
    return StorageError(
        f"object {range_.where.name!r} must have at least {range_.stop} bytes, by its reference, got {size}",
        ErrorKind.INVALID_OBJECT_SIZE,
    )


def _may_be_short(error: StorageError) -> bool:
    # Storages refuse a range after the end of the object with this general kind.
    return error.kind == ErrorKind.OBJECT_STORE


def _explained(range_: ByteRange, error: StorageError) -> StorageError:
    try:
        size = range_.where.size()
    except Exception:
        return error
    return too_short(range_, size) if size is not None and size <= range_.start else error


def _raised(outcome: Outcome) -> Buffer:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _whole(range_: ByteRange, data: Buffer) -> Buffer:
    size = memoryview(data).nbytes
    if size < range_.stop - range_.start:
        raise too_short(range_, range_.start + size)
    return data


def raised_all(outcomes: Iterator[Outcome]) -> list[Buffer]:
    """Return the bytes of all outcomes. Raises the first error."""
    return [_raised(outcome) for outcome in outcomes]
