"""Ranges of objects, fetched together: the one place that turns a plan into requests and back.

An *outcome* is bytes or the error in their place: ranges that are fetched together still fail one by one.
Sync and async differ only in who runs the requests; what to fetch and what to hand out is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Buffer
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from frazil.chunks.coalesce import plan_reads
from frazil.errors import ErrorKind, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from frazil.storage.base import Storage

Outcome = Buffer | Exception


class Readable(Protocol):
    """One object, wherever it is. Equal and hashable: equal ones may be fetched together."""

    @property
    def name(self) -> str: ...
    @property
    def is_local(self) -> bool: ...
    def get(self, start: int, stop: int) -> Buffer: ...
    async def get_async(self, start: int, stop: int) -> Buffer: ...
    def size(self) -> int | None:
        """Number of bytes; None if that is not known. Asked only to explain an error."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of the repository's own storage."""

    name: str
    storage: Storage = field(compare=False)

    @property
    def is_local(self) -> bool:
        return self.storage.is_local

    def get(self, start: int, stop: int) -> Buffer:
        return self.storage.get(self.name, start, stop)

    async def get_async(self, start: int, stop: int) -> Buffer:
        return await self.storage.get_async(self.name, start, stop)

    def size(self) -> int | None:
        info = self.storage.head(self.name)
        return None if info is None else info.size


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes ``start <= i < stop`` of an object."""

    where: Readable
    start: int
    stop: int

    def read(self) -> Buffer:
        """Return the bytes; ``StorageError`` of kind ``invalid-object-size`` if the object is too short."""
        return _whole(self, _raised(fetch(self)))

    async def read_async(self) -> Buffer:
        return _whole(self, _raised(await fetch_async(self)))


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """The bounds of ``plan_reads``, in bytes.

    4 MiB keeps a connection busy for several times the latency of a request, still lets a large read use many
    connections, and is the size up to which a local read reuses memory that is warm.
    """

    max_gap: int = 64 << 10
    max_waste: int = 1 << 20
    max_size: int = 4 << 20


class Job:
    """Ranges to read: ``requests`` are what to fetch, ``outcomes()`` is what each wanted range gets."""

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
        """For each request, the wanted ranges that it serves."""
        order = np.argsort(self._plan.part, kind="stable")
        ends = np.searchsorted(self._plan.part[order], np.arange(len(self.requests)), "right").tolist()
        rows = order.tolist()
        begin = 0
        for end in ends:
            yield rows[begin:end]
            begin = end

    def outcomes(self, fetched: Sequence[Outcome]) -> Iterator[Outcome]:
        """What each wanted range gets, given what came of each request."""
        parts = self._plan.part.tolist()
        starts = [request.start for request in self.requests]
        views = [f if isinstance(f, Exception) else memoryview(f) for f in fetched]
        return (_cut(w, starts[part], views[part]) for w, part in zip(self._wanted, parts, strict=True))


def cut_all(wanted: Iterable[ByteRange], request: ByteRange, fetched: Outcome) -> Iterator[Outcome]:
    """What each wanted range gets of the one request that was made for all of them."""
    view = fetched if isinstance(fetched, Exception) else memoryview(fetched)
    return (_cut(w, request.start, view) for w in wanted)


def _cut(wanted: ByteRange, start: int, view: memoryview | Exception) -> Outcome:
    if isinstance(view, Exception):
        return view
    if wanted.stop - start > view.nbytes:
        return too_short(wanted, start + view.nbytes)
    return view[wanted.start - start : wanted.stop - start]


def fetch(range_: ByteRange) -> Outcome:
    """Return one request. The bytes may be fewer than asked for; an error is returned, not raised."""
    try:
        return range_.where.get(range_.start, range_.stop)
    except StorageError as error:
        return _explained(range_, error) if _may_be_short(error) else error
    except Exception as error:
        return error


async def fetch_async(range_: ByteRange) -> Outcome:
    """``fetch`` for an event loop."""
    try:
        return await range_.where.get_async(range_.start, range_.stop)
    except StorageError as error:
        if _may_be_short(error):
            return await asyncio.to_thread(_explained, range_, error)
        return error
    except Exception as error:
        return error


def too_short(range_: ByteRange, size: int) -> StorageError:
    """Return the error for an object that ends before the bytes that a reference names."""
    return StorageError(
        f"object {range_.where.name!r} is shorter than its reference says: "
        f"expected at least {range_.stop} bytes, found {size}",
        ErrorKind.INVALID_OBJECT_SIZE,
    )


def _may_be_short(error: StorageError) -> bool:
    # A range that starts past the end is refused by storages with a kind that says no more than that.
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
    """Return all bytes; raises the first error."""
    return [_raised(outcome) for outcome in outcomes]
