"""What this process does with storages: the counts of its requests, and the process that uses obstore.

All storages of a process share the counts. At its end, a task takes the counts and sends them to the driver,
so that a job can report its cost. One request to a server counts once, without the retries of the client. One
access to the file system also counts as one request.

obstore runs its requests on threads of one runtime per process. ``os.fork()`` copies the runtime but not its
threads. A call in the child would therefore wait forever, on any store, also on a new one. For this reason
the mark belongs to the process and not to a store. The first use saves the process id, and a later use under
another id raises an error. A process that forks before the first use can use obstore, and so can a process
that was started by spawn or forkserver.
"""

from __future__ import annotations

import os
from collections.abc import Buffer
from dataclasses import dataclass
from threading import Lock
from typing import Final

from frazil.errors import ErrorKind, StorageError

_used_by: int | None = None


def enter_runtime() -> None:
    """Check the process. Every use of obstore calls this function first."""
    global _used_by
    process = os.getpid()
    if _used_by != process:
        if _used_by is not None:
            raise forked_process(_used_by)
        _used_by = process


def forked_process(parent: int) -> StorageError:
    """Return the error of a storage that cannot work in this child of the process ``parent``."""
    return StorageError(
        f"this storage was used in process {parent} and then forked into process {os.getpid()}, where it "
        "cannot work. Start child processes with the 'spawn' or 'forkserver' method",
        ErrorKind.FORKED_PROCESS,
    )


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
