"""What the writers on one machine share: flushes of files and directories, and locks of objects.

A local storage has one ``Flusher``. ``FLUSH`` makes writes durable, and is the default. ``NO_FLUSH`` leaves
it to the operating system when files reach the disk.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from frazil import host
from frazil.errors import ErrorKind, StorageError
from frazil.threads import Purpose, shared_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


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


#: Errors of a flush of a directory above the storage.
_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})


def flush_directory(directory: str) -> None:
    """Make the names of the files in a directory durable. Threads that call it together share a flush.

    The first call of the process also makes the name of the directory durable. Another process may have
    created the directory, and may have been killed before its flush.
    """
    state = process_state()
    if directory not in state.named_directories:
        _flush_name_of(directory)
    state.directory_flush(directory).flush()


def _flush_name_of(directory: str) -> None:
    """Make the names of a directory and of all directories above it durable, each once in this process."""
    named = process_state().named_directories
    paths = []
    while directory not in named and os.path.dirname(directory) != directory:
        paths.append(directory)
        directory = os.path.dirname(directory)
    for path in paths:
        try:
            flush_directory_now(os.path.dirname(path))
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            break  # this process could not have created a directory there
    named.update(paths)


def make_directory(path: str, flush: Callable[[str], None]) -> None:
    """Create ``path`` and its missing parents. ``flush`` makes each entry durable in its parent."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directory(parent, flush)
    with suppress(FileExistsError):
        os.mkdir(path)
    flush(parent)


class Flusher:
    """Flushes, which return when the data are durable."""

    __slots__ = ()

    def flush_file(self, descriptor: int) -> None:
        """Make the bytes of an open file durable."""
        os.fsync(descriptor)

    def flush_names(self, directory: str) -> None:
        """Make the names of the files in a directory durable, and the name of the directory itself."""
        flush_directory(directory)

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents, with durable names."""
        make_directory(path, flush_directory_now)

    def flush_together(self, flushes: Sequence[Callable[[], None]]) -> None:
        """Run flushes at the same time."""
        process_state().flush_together(flushes)

    def note_flushed(self, path: str, stamp: FileStamp) -> None:
        """Record that the bytes of the file at ``path`` are durable."""
        process_state().note_flushed(path, stamp)

    def is_flushed(self, path: str, stamp: FileStamp) -> bool:
        """Return whether this content of the file at ``path`` is durable, as far as this process knows."""
        return process_state().is_flushed(path, stamp)


class _NoFlusher(Flusher):
    """Flushes that do nothing."""

    __slots__ = ()

    def flush_file(self, descriptor: int) -> None:
        pass

    def flush_names(self, directory: str) -> None:
        pass

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def flush_together(self, flushes: Sequence[Callable[[], None]]) -> None:
        pass

    def note_flushed(self, path: str, stamp: FileStamp) -> None:
        pass


FLUSH: Final = Flusher()
NO_FLUSH: Final = _NoFlusher()


#: Seconds. No update takes this long, so a process that holds the lock longer is stopped.
LOCK_SECONDS: Final = 60.0


#: Seconds that a writer waits for its turn. Most commits take milliseconds.
TURN_SECONDS: Final = 1.0

#: The longest pause of a writer that waits for its turn, in seconds. With shorter pauses, the writers wake up
#: more often than commits end, and take processor time from the writer that has the turn. A writer that
#: returns with a new session usually finds the turn free, and sessions that are late by then wait.
_LONGEST_TURN_PAUSE: Final = 0.03


@contextmanager
def object_lock(path: str) -> Iterator[None]:
    """Hold the lock of the object at ``path``. It excludes all other threads and processes."""
    lock_path = f"{os.path.realpath(path)}#0"
    with _held(lock_path, LOCK_SECONDS, 0.004) as is_held:
        if not is_held:
            raise _lock_timeout(lock_path)
        yield


@contextmanager
def writer_turn(path: str) -> Iterator[None]:
    """Wait until the other writers of the object at ``path`` that have a turn have finished.

    A turn only saves work: without it, all writers but one would lose, and begin again. It ends with the
    block. A writer that waits for more than ``TURN_SECONDS``, or that cannot create the lock file, continues
    without a turn.
    """
    with _held(f"{os.path.realpath(path)}-turn#0", TURN_SECONDS, _LONGEST_TURN_PAUSE, needed=False):
        yield


@contextmanager
def _held(lock_path: str, seconds: float, longest_pause: float, *, needed: bool = True) -> Iterator[bool]:
    """Yield whether this thread holds the lock within ``seconds``."""
    thread_lock = process_state().thread_lock(lock_path)
    deadline = host.monotonic_seconds() + seconds
    if not thread_lock.acquire(timeout=seconds):
        yield False
        return
    descriptor = -1
    try:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(lock_path, flags, 0o666)
            is_locked = _is_locked(descriptor, deadline, longest_pause)
        except OSError:
            if needed:
                raise
            is_locked = False
        yield is_locked
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        thread_lock.release()


def _is_locked(descriptor: int, deadline: float, longest_pause: float) -> bool:
    """Lock a file. Return False if another process still holds the lock at the deadline."""
    pause = 0.0001
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
        else:
            return True
        if host.monotonic_seconds() > deadline:
            return False
        # With a random pause, waiting processes do not try at the same moments.
        host.pause(pause * host.random_between(0.5, 1.5))
        pause = min(pause * 2, longest_pause)


def _lock_timeout(path: str) -> StorageError:
    return StorageError(
        f"could not lock {path!r} within {LOCK_SECONDS:.0f} s: another process holds it and may be "
        "stopped. Continue or end that process",
        ErrorKind.SEMAPHORE_ACQUIRE,
    )
