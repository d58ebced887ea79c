"""Thread pools: what Frazil starts threads for, how many, and what happens after a fork.

No other module makes a pool. `SIZES` bounds the threads of each purpose. There are three ways to use them:

- ``map_bounded(purpose, function, items)`` calls a function for all items and returns a list. Its threads
  end with the call. One item costs no thread.
- ``thread_pool(purpose)`` is a pool for the length of a ``with`` block. If the block raises, calls that have
  not started are cancelled.
- ``ThreadPool(purpose)`` stays: for an object, or for the process (``shared_pool``). It starts with its first
  call. A forked child has none of its parent's threads, so there the pool starts again.

A pool can be shared if none of its calls waits for another call of the same pool. Otherwise all threads may
be busy with calls that wait for one that never starts. Therefore calls for different purposes have different
pools: the asynchronous methods may commit, a commit may look up files, and all of them send requests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import Final


class Purpose(StrEnum):
    """What threads are for. The value is the prefix of their names."""

    # These stay.
    ASYNC_CALLS = "frazil-async"
    CHUNK_READS = "frazil-read"
    PACK_UPLOADS = "frazil-pack"
    CONTENT_UPLOADS = "frazil-content"
    COMMIT_ENCODING = "frazil-encode"
    FLUSHES = "frazil-flush"
    WEB_REQUESTS = "frazil-web"
    # These end with a block or a call.
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


#: The most threads of one pool. Where a function takes a size of its own, this is the default or the limit.
SIZES: Final[dict[Purpose, int]] = {
    # Calls of a program that wait for a network. The loop's default executor has few threads for them.
    Purpose.ASYNC_CALLS: 32,
    # A remote read is mostly latency: 64 threads are as fast as coroutines.
    Purpose.CHUNK_READS: 64,
    # Packs are large: a few use the whole bandwidth. Each waits in memory.
    Purpose.PACK_UPLOADS: 4,
    # Each write is two to four requests, one after the other.
    Purpose.CONTENT_UPLOADS: 32,
    # Compression is processor time.
    Purpose.COMMIT_ENCODING: 8,
    # Flushes that wait for a disk at the same time take hardly longer than one. To start a thread costs as
    # much as a flush.
    Purpose.FLUSHES: 8,
    # As many as connections to one server (`web_options.CONNECTIONS`).
    Purpose.WEB_REQUESTS: 64,
    Purpose.BACKUP_READS: 8,
    # Up to 1,000 objects each. Services answer "slow down" to more.
    Purpose.BATCH_DELETES: 10,
    Purpose.CATALOG_READS: 32,
    Purpose.CATALOG_WRITES: 16,
    # Each call holds the bytes of a chunk.
    Purpose.CHUNK_COPIES: 8,
    Purpose.COLLECTION_STEPS: 32,
    Purpose.COMMIT_UPLOADS: 8,
    Purpose.FILE_CHECKS: 32,
    Purpose.FILE_COPIES: 16,
    # Each opens a file that is not on this machine, with a library that may hold a lock.
    Purpose.FILE_INSPECTIONS: 8,
    # Four folders, and the backups.
    Purpose.FOLDER_LISTINGS: 5,
    Purpose.IMPORT_READS: 16,
    # The engine says how many: one for each worker.
    Purpose.LOCAL_TASKS: os.cpu_count() or 1,
    Purpose.MARKER_READS: 32,
    Purpose.OBJECT_DELETES: 16,
    Purpose.RANGE_READS: 16,
    # Blocks that are read while another one is on its way to Spark. Each is held in memory.
    Purpose.SCAN_READS: 3,
    # The second Spark job fills the slots that the first leaves free.
    Purpose.SPARK_JOBS: 2,
    Purpose.STAGED_READS: 16,
    Purpose.VERIFICATION_READS: 16,
}

_lock = threading.Lock()
_forks = 0


def _after_fork() -> None:
    """In the child: every pool is forgotten, and so is a lock that another thread of the parent held."""
    global _lock, _forks
    _lock = threading.Lock()
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)


class ThreadPool:
    """Threads that stay. They start with the first call, and start again in a forked child.

    >>> pool = ThreadPool(Purpose.CHUNK_READS, size=2)
    >>> pool.submit(len, "ice").result()
    3
    >>> list(pool.map(len, ["frazil", "ice"]))
    [6, 3]
    """

    def __init__(self, purpose: Purpose, size: int | None = None) -> None:
        self._purpose = purpose
        self._size = size
        self._started: tuple[int, ThreadPoolExecutor] | None = None  # forks until then, threads

    @property
    def executor(self) -> Executor:
        """The threads of this process, for ``loop.run_in_executor``."""
        started = self._started
        if started is None or started[0] != _forks:
            with _lock:
                started = self._started
                if started is None or started[0] != _forks:
                    started = self._started = (_forks, start_threads(self._purpose, self._size))
        return started[1]

    def submit[**P, R](self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call the function on a thread."""
        return self.executor.submit(function, *args, **kwargs)

    def map[T, R](self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results in the order of the items."""
        return self.executor.map(function, items)


@cache
def shared_pool(purpose: Purpose) -> ThreadPool:
    """Return the pool of the whole process. Its calls must not wait for other calls of the same pool."""
    return ThreadPool(purpose)


def start_threads(purpose: Purpose, size: int | None = None) -> ThreadPoolExecutor:
    """Return a new pool, which the caller shuts down."""
    return ThreadPoolExecutor(max(1, SIZES[purpose] if size is None else size), purpose.value)


@contextmanager
def thread_pool(purpose: Purpose, size: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """A pool for a block, of ``SIZES[purpose]`` threads or ``size``. All calls have ended after the block."""
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
    """Call the function for all items, on ``SIZES[purpose]`` threads or ``size``.

    Results are in the order of the items. Raises the first error in this order; calls that have not started
    are cancelled then.

    >>> map_bounded(Purpose.CATALOG_READS, len, ["frazil", "ice"])
    [6, 3]
    """
    inputs = list(items)
    if len(inputs) < 2:
        return [function(each) for each in inputs]
    with thread_pool(purpose, min(len(inputs), SIZES[purpose] if size is None else size)) as pool:
        return list(pool.map(function, inputs))
