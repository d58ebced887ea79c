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


@contextmanager
def object_lock(path: str) -> Iterator[None]:
    """Hold the lock of the object at ``path``. It excludes all other threads and processes.

    Raises:
        StorageError: ``semaphore-acquire`` if the lock is not free within ``LOCK_SECONDS``.
    """
    lock_path = f"{os.path.realpath(path)}#0"
    thread_lock = process_state().thread_lock(lock_path)
    deadline = host.monotonic_seconds() + LOCK_SECONDS
    if not thread_lock.acquire(timeout=LOCK_SECONDS):
        raise _lock_timeout(lock_path)
    try:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            _lock_file(descriptor, lock_path, deadline)
            yield
        finally:
            os.close(descriptor)
    finally:
        thread_lock.release()


def _lock_file(descriptor: int, path: str, deadline: float) -> None:
    pause = 0.0001
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
        else:
            return
        if host.monotonic_seconds() > deadline:
            raise _lock_timeout(path)
        # With a random pause, waiting processes do not try at the same moments.
        host.pause(pause * host.random_between(0.5, 1.5))
        pause = min(pause * 2, 0.004)


def _lock_timeout(path: str) -> StorageError:
    return StorageError(
        f"could not lock {path!r} within {LOCK_SECONDS:.0f} s: another process holds it and may be "
        "stopped. Continue or end that process",
        ErrorKind.SEMAPHORE_ACQUIRE,
    )
