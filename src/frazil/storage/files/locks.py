"""Locks of objects, between all threads and processes that write to the same directory."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from frazil import host
from frazil.errors import ErrorKind, StorageError
from frazil.storage.files.process_state import process_state

if TYPE_CHECKING:
    from collections.abc import Iterator

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
