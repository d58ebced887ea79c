"""How many requests this process sends to storages, and how many bytes they move.

All storages of a process count together. At its end a task in a worker takes the counts and sends them to the
driver: so a job can report its cost. A request is one request to a server, without its repetitions by the
client, or one to the file system.
"""

from __future__ import annotations

from collections.abc import Buffer
from dataclasses import dataclass
from threading import Lock
from typing import Final


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests, and bytes as they are in storage."""

    requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class TrafficCounter:
    """Counts that many threads add to.

    >>> counter = TrafficCounter()
    >>> counter.count_request()
    >>> counter.count_read(b"abc")
    b'abc'
    >>> counter.take_counts()
    Traffic(requests=1, bytes_read=3, bytes_written=0)
    >>> counter.take_counts()
    Traffic(requests=0, bytes_read=0, bytes_written=0)
    """

    __slots__ = ("_bytes_in", "_bytes_out", "_lock", "_requests")

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests = self._bytes_in = self._bytes_out = 0

    def count_request(self) -> None:
        """Count one request."""
        with self._lock:
            self._requests += 1

    def count_read[Data: Buffer](self, data: Data) -> Data:
        """``data`` itself, which came from a storage."""
        size = memoryview(data).nbytes
        with self._lock:
            self._bytes_in += size
        return data

    def count_write(self, data: Buffer) -> None:
        """Count ``data``, which goes to a storage."""
        size = memoryview(data).nbytes
        with self._lock:
            self._bytes_out += size

    def take_counts(self) -> Traffic:
        """The counts since the last call of this method."""
        with self._lock:
            traffic = Traffic(self._requests, self._bytes_in, self._bytes_out)
            self._requests = self._bytes_in = self._bytes_out = 0
        return traffic


#: The counter of this process.
TRAFFIC: Final = TrafficCounter()
