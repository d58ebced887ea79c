"""The cache of remote chunks for reads of many chunks.

Chunks that are cached need no request. Chunks that are read whole are added. The loops run once for each
chunk of a remote object, and only if the user has set the size of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from frazil.chunks.ranges import ByteRange, StoredObject
from frazil.chunks.virtual import ForeignObject

if TYPE_CHECKING:
    from frazil.chunks.byte_cache import ByteCache
    from frazil.chunks.ranges import Readable
    from frazil.format.columns import I64, U8

#: Objects whose bytes never change, or that have their etag or time.
_CACHED: Final = (StoredObject, ForeignObject)


@dataclass(frozen=True, slots=True, eq=False)
class WantedRanges:
    """The wanted ranges of chunks in objects, n rows.

    Attributes:
        objects: The distinct objects.
        key: The number of the object of each range, int64 of shape (n,).
        row: The row of the chunk of each range among the references, int64 of shape (n,).
        offset: The first byte of each chunk in its object, int64 of shape (n,).
        size: The number of bytes of each chunk, int64 of shape (n,).
        start: The first wanted byte in each chunk, int64 of shape (n,).
        length: The number of wanted bytes, int64 of shape (n,).
    """

    objects: list[Readable]
    key: I64
    row: I64
    offset: I64
    size: I64
    start: I64
    length: I64

    @property
    def has_remote(self) -> bool:
        """Whether an object is remote."""
        return not all(each.is_local for each in self.objects)

    def select(self, rows: I64) -> WantedRanges:
        """Return some of the ranges."""
        columns = (self.key, self.row, self.offset, self.size, self.start, self.length)
        return WantedRanges(self.objects, *(each[rows] for each in columns))

    def whole(self) -> list[ByteRange | None]:
        """Return the range of each chunk as a key of the cache. None for a chunk that is never cached.

        These are chunks in local objects, and those in a pack of this session that is not durable.
        """
        is_cached = [not each.is_local and isinstance(each, _CACHED) for each in self.objects]
        places = [self.objects[key] if is_cached[key] else None for key in range(len(self.objects))]
        columns = zip(self.key.tolist(), self.offset.tolist(), self.size.tolist(), strict=True)
        return [
            None if (place := places[key]) is None else ByteRange(place, at, at + size)
            for key, at, size in columns
        ]


@dataclass(frozen=True, slots=True, eq=False)
class CachedChunks:
    """The wanted bytes that are cached.

    Attributes:
        data: The chunks, one after the other.
        rows: The rows whose chunks are cached, int64 of shape (k,).
        offset: The first wanted byte of each of these rows in ``data``, int64 of shape (k,).
    """

    data: U8
    rows: I64
    offset: I64


def cached_chunks(cache: ByteCache, wanted: WantedRanges) -> CachedChunks:
    """Return the chunks of some ranges that are cached."""
    results = [None if key is None else cache.get_chunk(key) for key in wanted.whole()]
    rows = np.array([row for row, each in enumerate(results) if each is not None], np.int64)
    chunks = [each for each in results if each is not None]
    ends = np.cumsum([0, *map(len, chunks)])
    return CachedChunks(np.frombuffer(b"".join(chunks), np.uint8), rows, ends[:-1] + wanted.start[rows])


@dataclass(frozen=True, slots=True, eq=False)
class CacheAdditions:
    """The chunks of a request that are added to the cache when the request has been read.

    Attributes:
        cache: The cache.
        wanted: The wanted ranges of the request, in the order of its rows.
    """

    cache: ByteCache
    wanted: WantedRanges

    def add(self, data: U8, offset: I64) -> None:
        """Add the chunks that were read whole. ``offset`` has the first byte of each row in ``data``."""
        wanted = self.wanted
        is_whole = (wanted.length == wanted.size) & (offset + wanted.size <= len(data))
        columns = zip(wanted.whole(), offset.tolist(), wanted.size.tolist(), is_whole.tolist(), strict=True)
        for key, at, size, is_complete in columns:
            if key is not None and is_complete:
                self.cache.add_chunk(key, data[at : at + size].data)
