"""How many requests this process has made to storages, and how many bytes they moved.

Storages count here, all of a process together: a task that runs in a worker takes the counts when it ends and
sends them to the driver, so that a job can tell what it has cost. A request is what was asked of a server,
its repetitions by the client not included, or of the file system.
"""

from __future__ import annotations

from collections.abc import Buffer
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class Taken:
    """Requests, and bytes as they are in storage."""

    requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class Counts:
    """Counts that many threads add to.

    >>> counts = Counts()
    >>> counts.request()
    >>> counts.read(b"abc")
    b'abc'
    >>> counts.take(), counts.take()
    (Taken(requests=1, bytes_read=3, bytes_written=0), Taken(requests=0, bytes_read=0, bytes_written=0))
    """

    __slots__ = ("_lock", "_read", "_requests", "_written")

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests = self._read = self._written = 0

    def request(self) -> None:
        with self._lock:
            self._requests += 1

    def read[Data: Buffer](self, data: Data) -> Data:
        """``data`` itself, which an answer brought."""
        size = memoryview(data).nbytes
        with self._lock:
            self._read += size
        return data

    def written(self, data: Buffer) -> None:
        """``data`` has been sent."""
        size = memoryview(data).nbytes
        with self._lock:
            self._written += size

    def take(self) -> Taken:
        """What was counted since this was called last."""
        with self._lock:
            taken = Taken(self._requests, self._read, self._written)
            self._requests = self._read = self._written = 0
        return taken


COUNTS = Counts()
