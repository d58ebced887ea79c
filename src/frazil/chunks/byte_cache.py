"""Bytes of chunks that were read, kept for the next time, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Buffer, Hashable


class KeptBytes:
    """The bytes that were used last. What is larger than everything that may be kept is not kept.

    >>> kept = KeptBytes(10)
    >>> kept.keep("a", b"12345678")
    >>> kept.get("a"), kept.keep("b", b"123"), kept.get("a")
    (b'12345678', None, None)
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: OrderedDict[Hashable, bytes] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[KeptBytes], tuple[int]]:
        return (KeptBytes, (self.limit,))

    def get_chunk(self, key: Hashable) -> bytes | None:
        """The bytes of a chunk, if they are here."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def add_chunk(self, key: Hashable, data: Buffer) -> None:
        """Keep a copy."""
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
