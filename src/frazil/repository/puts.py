"""Files of a commit on their way to storage, side by side.

A file costs a round trip on an object store and a flush of the disk on a local one, whatever its size. The
files of a commit refer to each other by ids and sizes, which are known before anything is stored, so all of
them can be on their way at once; only the one conditional write comes after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from frazil.storage.base import Storage

_WRITERS = 8


class Puts:
    """What goes on in the block of ``putting``."""

    def __init__(self, storage: Storage, pool: ThreadPoolExecutor) -> None:
        self._storage = storage
        self._pool = pool
        self._running: list[Future[None]] = []

    def run(self, action: Callable[[], None]) -> None:
        """Something else that has to be done by the end of the block."""
        self._running.append(self._pool.submit(action))

    def put(self, key: str, encode: Callable[[], bytes]) -> Future[int]:
        """Encode a file and store it; its size, as soon as that is known."""
        size: Future[int] = Future()

        def work() -> None:
            try:
                data = encode()
            except BaseException as error:
                size.set_exception(error)
                raise
            size.set_result(len(data))
            self._storage.put(key, data)

        self.run(work)
        return size

    def wait(self) -> None:
        for running in self._running:
            running.result()


@contextmanager
def putting(storage: Storage) -> Iterator[Puts]:
    """A block at whose end all that was put is durable; raises the first error there."""
    pool = ThreadPoolExecutor(_WRITERS, "frazil-commit")
    try:
        puts = Puts(storage, pool)
        yield puts
        puts.wait()
    finally:
        # After an error nobody needs the files that have not begun.
        pool.shutdown(cancel_futures=True)
