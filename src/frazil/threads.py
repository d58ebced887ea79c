"""Thread pools: their purposes, their sizes, and their behaviour after a fork of the process.

No other module creates a pool. ``map_bounded`` calls a function for all items, on threads that end with the
call. ``thread_pool`` is a pool for a ``with`` block. ``ThreadPool`` lives as long as an object, or as the
process (``shared_pool``).

Callers can share a pool if none of its calls waits for another call of the same pool. Otherwise all threads
may wait for a call that never starts. Therefore each purpose has another pool.

A process may not be able to start another thread. Then the operation fails with ``StorageError``.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import Final, override

from frazil.errors import ErrorKind, StorageError


class Purpose(StrEnum):
    """The purpose of a pool: the prefix of the names of its threads, and the largest number of threads.

    For functions with a parameter for the size, the number is the default or limit.
    """

    size: int

    def __new__(cls, prefix: str, size: int) -> Purpose:
        """Return the member with a prefix, which is its value, and a size."""
        member = str.__new__(cls, prefix)
        member._value_, member.size = prefix, size
        return member

    # Pools of an object or of the process.
    #: These calls wait for a network. The default executor of the event loop has few threads.
    ASYNC_CALLS = "frazil-async", 32
    #: Decompression needs processor time, as does compression.
    CHUNK_DECODING = "frazil-decode", os.cpu_count() or 1
    CHUNK_ENCODING = "frazil-compress", os.cpu_count() or 1
    #: A remote read mostly waits. 64 threads are as fast as coroutines.
    CHUNK_READS = "frazil-read", 64
    #: Packs are large. A few of them use the whole bandwidth, and each needs memory.
    PACK_UPLOADS = "frazil-pack", 4
    #: Each write makes two to four requests, one after the other.
    CONTENT_UPLOADS = "frazil-content", 32
    #: Compression needs processor time.
    COMMIT_ENCODING = "frazil-encode", 8
    #: Several flushes at the same time take hardly longer than one. Starting a thread takes as long.
    FLUSHES = "frazil-flush", 8
    #: The number of connections to one server (`web_client.CONNECTIONS`).
    WEB_REQUESTS = "frazil-web", 64
    # Pools of a block or a call.
    BACKUP_READS = "frazil-backups", 8
    #: A request deletes up to 1,000 objects. With more threads, services answer "slow down".
    BATCH_DELETES = "frazil-delete", 10
    CATALOG_READS = "frazil-catalog", 32
    CATALOG_WRITES = "frazil-refs", 16
    #: Each call holds the bytes of a chunk.
    CHUNK_COPIES = "frazil-fetch", 8
    COLLECTION_STEPS = "frazil-maintenance", 32
    #: A dataset has dozens of arrays, each with a manifest. An upload mostly waits.
    COMMIT_UPLOADS = "frazil-commit", 32
    FILE_CHECKS = "frazil-head", 32
    FILE_COPIES = "frazil-copy", 16
    #: Each call opens a remote file, with a library that may hold a lock.
    FILE_INSPECTIONS = "frazil-inspect", 8
    #: Four folders and the backups.
    FOLDER_LISTINGS = "frazil-list", 5
    #: The engine passes the size: one thread for each worker.
    LOCAL_TASKS = "frazil-local", os.cpu_count() or 1
    MARKER_READS = "frazil-markers", 32
    OBJECT_DELETES = "frazil-delete-one", 16
    RANGE_READS = "frazil-range", 16
    #: Blocks that are read while an engine gets another block. Each block needs memory.
    SCAN_READS = "frazil-scan", 3
    #: The second Spark job uses the slots that the first job leaves free.
    SPARK_JOBS = "frazil-spark", 2
    STAGED_READS = "frazil-staged", 16
    VERIFICATION_READS = "frazil-verify", 16
    #: Each call reads one variable of a block, and waits for the pools of chunks.
    WINDOW_READS = "frazil-window", 8


#: The size of the pool of each purpose.
SIZES: Final[dict[Purpose, int]] = {purpose: purpose.size for purpose in Purpose}

_lock = threading.Lock()
_forks = 0


def _after_fork() -> None:
    """Make the child start new pools, with a new lock: another thread of the parent may hold the old one."""
    global _lock, _forks
    _lock = threading.Lock()
    _forks += 1


def after_fork(call: Callable[[], object]) -> None:
    """Let each forked child call a function first. Windows has no forks."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=call)


after_fork(_after_fork)


@dataclass(slots=True, eq=False)
class ThreadPool:
    """A pool whose threads start with the first call, and start again in a forked child."""

    _purpose: Purpose
    _size: int | None = None
    #: The number of forks before the start, and the threads.
    _started: tuple[int, ThreadPoolExecutor] | None = None

    @property
    def executor(self) -> Executor:
        """The executor of this process, for ``loop.run_in_executor``."""
        started = self._started
        if started is None or started[0] != _forks:
            with _lock:
                started = self._started
                if started is None or started[0] != _forks:
                    started = self._started = (_forks, start_threads(self._purpose, self._size))
        return started[1]

    def submit[**P, R](self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call the function on a thread. Return its result as a future."""
        return self.executor.submit(function, *args, **kwargs)

    def map[T, R](self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Call the function for all items. Yield the results in the order of the items."""
        return self.executor.map(function, items)


@cache
def shared_pool(purpose: Purpose) -> ThreadPool:
    """Return the pool of the process. Its calls must not wait for other calls of the same pool."""
    return ThreadPool(purpose)


class thread_errors:  # noqa: N801  # like contextlib.suppress
    """Raise the error of Python for a thread that cannot start in a block as ``StorageError``."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
            raise StorageError(
                "the process cannot start another thread: it has reached a limit of threads or of memory. "
                "Raise the limit (`ulimit -u`, or that of the container), or let the process do less at the "
                "same time, and repeat the operation",
                ErrorKind.PROCESS_LIMIT,
            ) from error


class PlainThreadPool(ThreadPoolExecutor):
    """Threads whose start may fail with ``StorageError``."""

    @override
    def submit[**P, R](self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        with thread_errors():
            return super().submit(fn, *args, **kwargs)


def start_threads(purpose: Purpose, size: int | None = None) -> ThreadPoolExecutor:
    """Return a new pool. The caller shuts it down."""
    return PlainThreadPool(max(1, SIZES[purpose] if size is None else size), purpose.value)


@contextmanager
def thread_pool(purpose: Purpose, size: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Open a pool of ``SIZES[purpose]`` or ``size`` threads for a block. The block waits for all calls."""
    pool = start_threads(purpose, size)
    try:
        yield pool
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def in_order[T, R](submit: Callable[[T], Future[R]], items: Iterable[T], most: int) -> Iterator[R]:
    """Yield the results in the order of the items. At most ``most`` calls and results are waiting."""
    rest = iter(items)
    pending = list(map(submit, islice(rest, most)))
    while pending:
        result = pending.pop(0).result()
        pending += map(submit, islice(rest, 1))
        yield result


def map_bounded[T, R](
    purpose: Purpose, function: Callable[[T], R], items: Iterable[T], size: int | None = None
) -> list[R]:
    """Call the function for all items, on ``SIZES[purpose]`` or ``size`` threads.

    The results are in the order of the items. The first error in this order cancels the calls that have not
    started.
    """
    inputs = list(items)
    if len(inputs) < 2:
        return [function(each) for each in inputs]
    with thread_pool(purpose, min(len(inputs), SIZES[purpose] if size is None else size)) as pool:
        return list(pool.map(function, inputs))
