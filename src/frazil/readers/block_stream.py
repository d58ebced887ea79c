"""File objects for objects of an object store, for libraries that read from file objects."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Final, Protocol, override

#: The bytes of one block, which is the smallest request.
BLOCK: Final = 512 << 10
#: The number of blocks that one stream caches.
CACHED_BLOCKS: Final = 64
#: One request reads ranges with at most this many bytes between them.
LARGEST_GAP: Final = 64 << 10


class RangeSource(Protocol):
    """The protocol of bytes that are read in ranges, such as a `frazil.readers.files.File`."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``."""
        ...

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each range."""
        ...


class BlockStream(io.RawIOBase):
    """A file object that reads an object in blocks of `BLOCK` bytes, and caches the last used blocks.

    Metadata are small and close together, so a few blocks have all of them. A read of more than one block is
    a separate request. ``prefetch`` reads many ranges at once.
    """

    def __init__(self, file: RangeSource) -> None:
        super().__init__()
        self._file = file
        self._position = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._ranges: list[tuple[int, int]] = []
        self._prefetched: list[bytes] = []

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self._position

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._file.size)[whence]
        return self._position

    @override
    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._file.size)
        count = max(stop - self._position, 0)
        view[:count] = self._bytes(self._position, self._position + count)
        self._position += count
        return count

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Read ranges in parallel. Until the next call, reads inside these ranges need no request.

        A call without ranges frees the memory.
        """
        self._ranges = list(merge_ranges(ranges))
        self._prefetched = self._file.read_many(self._ranges)

    def _bytes(self, start: int, stop: int) -> bytes | memoryview:
        row = bisect_right(self._ranges, start, key=itemgetter(0)) - 1
        if row >= 0 and stop <= self._ranges[row][1]:
            first = self._ranges[row][0]
            return memoryview(self._prefetched[row])[start - first : stop - first]
        if stop - start > BLOCK:
            return self._file.read(start, stop)
        first, last = start // BLOCK, max(stop - 1, start) // BLOCK
        whole = b"".join(map(self._block, range(first, last + 1)))
        return memoryview(whole)[start - first * BLOCK : stop - first * BLOCK]

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            start = number * BLOCK
            block = self._file.read(start, min(start + BLOCK, self._file.size))
            self._blocks[number] = block
            if len(self._blocks) > CACHED_BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(number)
        return block


def merge_ranges(ranges: Iterable[tuple[int, int]], gap: int = LARGEST_GAP) -> Iterator[tuple[int, int]]:
    """Yield ranges in the order of the file, and merge ranges that are close to each other."""
    first, last = 0, -1
    for start, stop in sorted(ranges):
        if last < 0:
            first, last = start, stop
        elif start <= last + gap:
            last = max(last, stop)
        else:
            yield first, last
            first, last = start, stop
    if last >= 0:
        yield first, last
