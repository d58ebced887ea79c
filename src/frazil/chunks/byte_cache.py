"""A cache of the bytes of chunks, with a limit in bytes."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Buffer, Hashable


class ByteCache:
    """A cache of the chunks that were used last, up to ``limit`` bytes in total.

    A chunk that is larger than the limit is never cached.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: OrderedDict[Hashable, bytes] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[ByteCache], tuple[int]]:
        return (ByteCache, (self.limit,))

    def get_chunk(self, key: Hashable) -> bytes | None:
        """Return the bytes of a chunk, or None if they are not cached."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def add_chunk(self, key: Hashable, data: Buffer) -> None:
        """Cache a copy of a chunk, and drop the chunks that were not used for longest."""
        copied = bytes(data)
        if len(copied) > self.limit:
            return
        with self._lock:
            if key not in self._values:
                self._values[key] = copied
                self._total += len(copied)
            while self._total > self.limit:
                _, gone = self._values.popitem(last=False)
                self._total -= len(gone)
