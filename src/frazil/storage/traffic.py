"""Counts of the requests that this process sends to storages, and of the bytes that they move.

All storages of a process share the counts. At its end, a task takes the counts and sends them to the driver,
so that a job can report its cost. One request to a server counts once, without the retries of the client. One
access to the file system also counts as one request.
"""

from __future__ import annotations

from collections.abc import Buffer
from dataclasses import dataclass
from threading import Lock
from typing import Final


@dataclass(frozen=True, slots=True)
class Traffic:
    """The number of requests, and of bytes as they are in the storage."""

    requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class TrafficCounter:
    """Counts that many threads can increase."""

    __slots__ = ("_bytes_in", "_bytes_out", "_lock", "_requests")

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests = self._bytes_in = self._bytes_out = 0

    def count_request(self) -> None:
        """Count one request."""
        with self._lock:
            self._requests += 1

    def count_read[Data: Buffer](self, data: Data) -> Data:
        """Count bytes that came from a storage, and return them."""
        size = memoryview(data).nbytes
        with self._lock:
            self._bytes_in += size
        return data

    def count_write(self, size: int) -> None:
        """Count bytes that go to a storage."""
        with self._lock:
            self._bytes_out += size

    def take_counts(self) -> Traffic:
        """Return the counts since the last call of this method."""
        with self._lock:
            traffic = Traffic(self._requests, self._bytes_in, self._bytes_out)
            self._requests = self._bytes_in = self._bytes_out = 0
        return traffic


#: The counter of this process.
TRAFFIC: Final = TrafficCounter()
