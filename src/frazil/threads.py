"""Thread pools: their purposes, their sizes, and their behaviour after a fork of the process.

No other module creates a pool. `SIZES` limits the threads of each purpose. There are three kinds of use:

- ``map_bounded(purpose, function, items)`` calls a function for all items and returns a list. Its threads
  end with the call. A single item needs no thread.
- ``thread_pool(purpose)`` is a pool for a ``with`` block. If the block raises an error, calls that have not
  started are cancelled.
- ``ThreadPool(purpose)`` lives as long as an object, or as the process (``shared_pool``). Its first call
  starts the threads. A forked child has no threads of its parent, so the pool starts again in the child.

Callers can share a pool if none of its calls waits for another call of the same pool. Otherwise all threads
may wait for a call that never starts. Therefore each purpose has another pool: the asynchronous methods may
commit, a commit may look up files, and all of them send requests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final


class Purpose(StrEnum):
    """The purpose of a pool. The value is the prefix of the names of its threads."""

    # Pools of an object or of the process.
    ASYNC_CALLS = "frazil-async"
    CHUNK_DECODING = "frazil-decode"
    CHUNK_ENCODING = "frazil-compress"
    CHUNK_READS = "frazil-read"
    PACK_UPLOADS = "frazil-pack"
    CONTENT_UPLOADS = "frazil-content"
    COMMIT_ENCODING = "frazil-encode"
    FLUSHES = "frazil-flush"
    WEB_REQUESTS = "frazil-web"
    # Pools of a block or a call.
    BACKUP_READS = "frazil-backups"
    BATCH_DELETES = "frazil-delete"
    CATALOG_READS = "frazil-catalog"
    CATALOG_WRITES = "frazil-refs"
    CHUNK_COPIES = "frazil-fetch"
    COLLECTION_STEPS = "frazil-maintenance"
    COMMIT_UPLOADS = "frazil-commit"
    FILE_CHECKS = "frazil-head"
    FILE_COPIES = "frazil-copy"
    FILE_INSPECTIONS = "frazil-inspect"
    FOLDER_LISTINGS = "frazil-list"
    IMPORT_READS = "frazil-import"
    LOCAL_TASKS = "frazil-local"
    MARKER_READS = "frazil-markers"
    OBJECT_DELETES = "frazil-delete-one"
    RANGE_READS = "frazil-range"
    SCAN_READS = "frazil-scan"
    SPARK_JOBS = "frazil-spark"
    STAGED_READS = "frazil-staged"
    VERIFICATION_READS = "frazil-verify"


#: The largest number of threads of a pool. For functions with a parameter for the size, the default or limit.
SIZES: Final[dict[Purpose, int]] = {
    # These calls wait for a network. The default executor of the event loop has few threads.
    Purpose.ASYNC_CALLS: 32,
    # Decompression needs processor time.
    Purpose.CHUNK_DECODING: os.cpu_count() or 1,
    # As does compression.
    Purpose.CHUNK_ENCODING: os.cpu_count() or 1,
    # A remote read mostly waits. 64 threads are as fast as coroutines.
    Purpose.CHUNK_READS: 64,
    # Packs are large. A few of them use the whole bandwidth, and each needs memory.
    Purpose.PACK_UPLOADS: 4,
    # Each write makes two to four requests, one after the other.
    Purpose.CONTENT_UPLOADS: 32,
    # Compression needs processor time.
    Purpose.COMMIT_ENCODING: 8,
    # Several flushes at the same time take hardly longer than one flush. Starting a thread takes as long as a
    # flush.
    Purpose.FLUSHES: 8,
    # The number of connections to one server (`web_options.CONNECTIONS`).
    Purpose.WEB_REQUESTS: 64,
    Purpose.BACKUP_READS: 8,
    # A request deletes up to 1,000 objects. With more threads, services answer "slow down".
    Purpose.BATCH_DELETES: 10,
    Purpose.CATALOG_READS: 32,
    Purpose.CATALOG_WRITES: 16,
    # Each call holds the bytes of a chunk.
    Purpose.CHUNK_COPIES: 8,
    Purpose.COLLECTION_STEPS: 32,
    # A dataset has dozens of arrays, each with a manifest. An upload mostly waits.
    Purpose.COMMIT_UPLOADS: 32,
    Purpose.FILE_CHECKS: 32,
    Purpose.FILE_COPIES: 16,
    # Each call opens a remote file, with a library that may hold a lock.
    Purpose.FILE_INSPECTIONS: 8,
    # Four folders and the backups.
    Purpose.FOLDER_LISTINGS: 5,
    Purpose.IMPORT_READS: 16,
    # The engine passes the size: one thread for each worker.
    Purpose.LOCAL_TASKS: os.cpu_count() or 1,
    Purpose.MARKER_READS: 32,
    Purpose.OBJECT_DELETES: 16,
    Purpose.RANGE_READS: 16,
    # Blocks that are read while Spark gets another block. Each block needs memory.
    Purpose.SCAN_READS: 3,
    # The second Spark job uses the slots that the first job leaves free.
    Purpose.SPARK_JOBS: 2,
    Purpose.STAGED_READS: 16,
    Purpose.VERIFICATION_READS: 16,
}

_lock = threading.Lock()
_forks = 0


def _after_fork() -> None:
    """Make the child start new pools, with a new lock: another thread of the parent may hold the old one."""
    global _lock, _forks
    _lock = threading.Lock()
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)


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


def start_threads(purpose: Purpose, size: int | None = None) -> ThreadPoolExecutor:
    """Return a new pool. The caller shuts it down."""
    return ThreadPoolExecutor(max(1, SIZES[purpose] if size is None else size), purpose.value)


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


def map_bounded[T, R](
    purpose: Purpose, function: Callable[[T], R], items: Iterable[T], size: int | None = None
) -> list[R]:
    """Call the function for all items, on ``SIZES[purpose]`` or ``size`` threads.

    The results are in the order of the items. If calls fail, the function raises the first error in this
    order, and cancels the calls that have not started.
    """
    inputs = list(items)
    if len(inputs) < 2:
        return [function(each) for each in inputs]
    with thread_pool(purpose, min(len(inputs), SIZES[purpose] if size is None else size)) as pool:
        return list(pool.map(function, inputs))
