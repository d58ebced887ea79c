"""The concurrent upload of the files of a commit.

Each file costs a round trip on an object store, or a flush on a local disk, whatever its size. The files of a
commit refer to each other by ids and sizes. Both are known before the files are stored, so all files can be
uploaded at the same time. Only the conditional write comes after them.

On an object store, a thread uploads each file. On a local disk, threads cost more than they save: the files
are written first and flushed last (``Storage.put_many``). Threads only encode, if there are many files. The
conditional write of a commit may flush them together with its own file: ``Puts.rest`` returns these files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Protocol

from frazil.storage.base import Storage
from frazil.storage.local_commit import put_many
from frazil.threads import Purpose, shared_pool, start_threads

#: Encoded files are stored together when they have this number of bytes.
_TOGETHER = 32 << 20
#: Up to this number of files, such as a snapshot and a transaction log, are encoded without threads.
_ALONE = 2


class Puts(Protocol):
    """The uploads in the block of ``putting``."""

    def run(self, action: Callable[[], None]) -> None:
        """Run another action, which is done at the end of the block."""

    def put(self, key: str, encode: Callable[[], bytes]) -> Future[int]:
        """Encode and store a file. Return its size in bytes, as a future."""

    def rest(self) -> list[tuple[str, bytes]]:
        """Return the keys and bytes of the files that are not stored yet. The caller stores them."""

    def wait(self) -> None:
        """Wait until all files are stored and all other actions are done. Raise the first error."""


@contextmanager
def putting(storage: Storage) -> Iterator[Puts]:
    """Open a block at whose end all files are durable. The end of the block raises the first error."""
    with _Local(storage) if storage.is_local else _Remote(storage) as puts:
        yield puts
        puts.wait()


class _Remote:
    """Uploads to an object store: each file and action has a thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pool = start_threads(Purpose.COMMIT_UPLOADS)
        self._running: list[Future[None]] = []

    def __enter__(self) -> _Remote:
        return self

    def __exit__(self, *error: object) -> None:
        # After an error, uploads that have not begun are not needed.
        self._pool.shutdown(cancel_futures=True)

    def run(self, action: Callable[[], None]) -> None:
        self._running.append(self._pool.submit(action))

    def put(self, key: str, encode: Callable[[], bytes]) -> Future[int]:
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

    def rest(self) -> list[tuple[str, bytes]]:
        return []

    def wait(self) -> None:
        for running in self._running:
            running.result()


class _Local:
    """Uploads to a local disk: files are encoded when a size is needed, and stored at the end."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._running: list[Future[None]] = []
        self._plain: list[tuple[str, Callable[[], bytes], _Size]] = []
        self._encoded: list[tuple[str, bytes]] = []
        self._waiting = 0

    def __enter__(self) -> _Local:
        return self

    def __exit__(self, *error: object) -> None:
        for running in self._running:
            running.cancel()
        wait(self._running)

    def run(self, action: Callable[[], None]) -> None:
        self._running.append(shared_pool(Purpose.COMMIT_ENCODING).submit(action))

    def put(self, key: str, encode: Callable[[], bytes]) -> Future[int]:
        size = _Size(self._encode)
        self._plain.append((key, encode, size))
        return size

    def rest(self) -> list[tuple[str, bytes]]:
        self._encode()
        files, self._encoded, self._waiting = self._encoded, [], 0
        return files

    def wait(self) -> None:
        self._store(self.rest())
        for running in self._running:
            running.result()

    def _encode(self) -> None:
        plain, self._plain = self._plain, []
        encoders = [encode for _, encode, _ in plain]
        if len(encoders) <= _ALONE:
            self._keep(plain, (encode() for encode in encoders))
            return
        # The shared threads, because starting a thread costs as much as flushing a small file.
        self._keep(plain, shared_pool(Purpose.COMMIT_ENCODING).map(lambda encode: encode(), encoders))

    def _keep(self, plain: list[tuple[str, Callable[[], bytes], _Size]], encoded: Iterator[bytes]) -> None:
        for (key, _, size), data in zip(plain, encoded, strict=True):
            size.set_result(len(data))
            self._encoded.append((key, data))
            self._waiting += len(data)
            if self._waiting > _TOGETHER:
                files, self._encoded, self._waiting = self._encoded, [], 0
                self._store(files)

    def _store(self, files: list[tuple[str, bytes]]) -> None:
        if files:
            put_many(self._storage, files)


class _Size(Future[int]):
    """The size of a file. The first call of ``result`` encodes the file."""

    def __init__(self, encode: Callable[[], None]) -> None:
        super().__init__()
        self._encode = encode

    def result(self, timeout: float | None = None) -> int:
        if not self.done():
            self._encode()
        return super().result(timeout)
