"""State that the threads of this process share: locks of files, and flushes of directories."""

from __future__ import annotations

import os
import threading
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from frazil.threads import Purpose, shared_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: Number of files whose flushes the process remembers.
_MOST_STAMPS: Final = 64


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What identifies the content of an open file: its inode, size, and time of the last write."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @staticmethod
    def of(status: os.stat_result) -> FileStamp:
        """Return the stamp of a file."""
        return FileStamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class DirectoryFlush:
    """Flushes one directory. Writers that arrive during a flush share the next one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._count = threading.Lock()
        self._requests = 0
        self._completed = 0

    def flush(self) -> None:
        """Return after a flush that began after this call."""
        with self._count:
            self._requests += 1
            ticket = self._requests
        with self._turn:
            if self._completed >= ticket:
                return
            with self._count:
                last_ticket = self._requests
            flush_directory_now(self._path)
            self._completed = last_ticket


def flush_directory_now(directory: str) -> None:
    """Make the names of the files in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ProcessState:
    """The shared state of one process.

    A forked child begins with a new state, because it has none of the threads of its parent.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._directories: dict[str, DirectoryFlush] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._flushed: dict[str, FileStamp] = {}
        #: Directories whose own names this process has made durable.
        self.named_directories: set[str] = set()

    def directory_flush(self, path: str) -> DirectoryFlush:
        """Return the flush that all writers in a directory share."""
        with self._guard:
            flush = self._directories.get(path)
            if flush is None:
                flush = self._directories[path] = DirectoryFlush(path)
        return flush

    def thread_lock(self, path: str) -> threading.Lock:
        """Return the lock between threads for a lock file."""
        with self._guard:
            return self._locks.setdefault(path, threading.Lock())

    def note_flushed(self, path: str, stamp: FileStamp) -> None:
        """Record that this process has flushed the bytes of the file at ``path``."""
        with self._guard:
            self._flushed.pop(path, None)
            self._flushed[path] = stamp
            if len(self._flushed) > _MOST_STAMPS:
                del self._flushed[next(iter(self._flushed))]

    def is_flushed(self, path: str, stamp: FileStamp) -> bool:
        """Return whether this process has flushed this content of the file at ``path``."""
        return self._flushed.get(path) == stamp

    def flush_together(self, flushes: Sequence[Callable[[], None]]) -> None:
        """Run flushes at the same time. This takes hardly longer than one flush."""
        if len(flushes) < 2:
            for flush in flushes:
                flush()
            return
        flushers = shared_pool(Purpose.FLUSHES)
        futures = [flushers.submit(flush) for flush in flushes[1:]]
        try:
            flushes[0]()
        finally:
            wait(futures)
        for future in futures:
            future.result()


_state = ProcessState()


def process_state() -> ProcessState:
    """Return the state of this process."""
    return _state


def _renew_state() -> None:
    global _state
    _state = ProcessState()


os.register_at_fork(after_in_child=_renew_state)
