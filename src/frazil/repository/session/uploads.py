"""The concurrent upload of the files of a commit, which alone decides when all of them are durable.

Each file costs a round trip on an object store, or a flush on a local disk, whatever its size. The files of a
commit refer to each other by ids and sizes. Both are known before the files are stored, so all files can be
uploaded at the same time. Only the conditional write comes after them.

On an object store, a thread uploads each file. On a local disk, threads cost more than they save: the files
are written first and flushed last (``Storage.put_many``). Threads only encode, if there are many files. The
conditional write of a commit may flush them together with its own file: ``Uploads.take_files`` returns these
files, and the caller calls ``confirm`` when they are stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Buffer, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import override

from frazil.chunks.writer import ChunkFlush
from frazil.storage.base import Storage
from frazil.storage.local_commit import put_many
from frazil.threads import Purpose, shared_pool, start_threads

#: Encoded files are stored together when they have this number of bytes.
_TOGETHER = 32 << 20
#: Up to this number of files, such as a snapshot and a transaction log, are encoded without threads.
_ALONE = 2


@contextmanager
def uploading(storage: Storage, flush: ChunkFlush | None = None) -> Iterator[Uploads]:
    """Open a block at whose end all files are durable, and the chunks of ``flush``, to which they refer."""
    with ChunkFlush() if flush is None else flush as chunks:
        uploads = (_LocalUploads if storage.is_local else _RemoteUploads)(storage, chunks)
        try:
            yield uploads
            uploads.confirm()
        finally:
            uploads.cancel()


class Uploads(ABC):
    """The uploads in the block of ``uploading``."""

    def __init__(self, storage: Storage, flush: ChunkFlush) -> None:
        self._storage = storage
        self._flush = flush
        self._running: list[Future[None]] = []

    @abstractmethod
    def run(self, action: Callable[[], None]) -> None:
        """Run another action, which is done at the end of the block."""

    @abstractmethod
    def put(self, key: str, encode: Callable[[], bytes]) -> Future[int]:
        """Encode and store a file. Return its size in bytes, as a future."""

    def take_files(self) -> list[tuple[str, Buffer]]:
        """Return the keys and bytes of the files that are not stored yet. The caller stores them."""
        return list(self._flush.files)

    def confirm(self) -> None:
        """Wait until all files and chunks are durable, and all actions are done. Raise the first error."""
        for running in self._running:
            running.result()
        self._flush.confirm()

    @abstractmethod
    def cancel(self) -> None:
        """Cancel uploads that have not begun. After an error, they are not needed."""


class _RemoteUploads(Uploads):
    """Uploads to an object store: each file and action has a thread."""

    def __init__(self, storage: Storage, flush: ChunkFlush) -> None:
        super().__init__(storage, flush)
        self._pool = start_threads(Purpose.COMMIT_UPLOADS)

    @override
    def run(self, action: Callable[[], None]) -> None:
        self._running.append(self._pool.submit(action))

    @override
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

    @override
    def cancel(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class _LocalUploads(Uploads):
    """Uploads to a local disk: files are encoded when a size is needed, and stored at the end."""

    def __init__(self, storage: Storage, flush: ChunkFlush) -> None:
        super().__init__(storage, flush)
        self._plain: list[tuple[str, Callable[[], bytes], _Size]] = []
        self._encoded: list[tuple[str, Buffer]] = []
        self._waiting = 0

    @override
    def run(self, action: Callable[[], None]) -> None:
        self._running.append(shared_pool(Purpose.COMMIT_ENCODING).submit(action))

    @override
    def put(self, key: str, encode: Callable[[], bytes]) -> Future[int]:
        size = _Size(self._encode)
        self._plain.append((key, encode, size))
        return size

    @override
    def take_files(self) -> list[tuple[str, Buffer]]:
        return [*super().take_files(), *self._take_encoded()]

    @override
    def confirm(self) -> None:
        if files := self._take_encoded():
            put_many(self._storage, files)
        super().confirm()

    @override
    def cancel(self) -> None:
        for running in self._running:
            running.cancel()
        wait(self._running)

    def _take_encoded(self) -> list[tuple[str, Buffer]]:
        self._encode()
        files, self._encoded, self._waiting = self._encoded, [], 0
        return files

    def _encode(self) -> None:
        plain, self._plain = self._plain, []
        encoders = [encode for _, encode, _ in plain]
        # The shared threads, because starting a thread costs as much as flushing a small file.
        run = map if len(encoders) <= _ALONE else shared_pool(Purpose.COMMIT_ENCODING).map
        for (key, _, size), data in zip(plain, run(lambda encode: encode(), encoders), strict=True):
            size.set_result(len(data))
            self._encoded.append((key, data))
            self._waiting += len(data)
            if self._waiting > _TOGETHER:
                files, self._encoded, self._waiting = self._encoded, [], 0
                put_many(self._storage, files)


class _Size(Future[int]):
    """The size of a file. The first call of ``result`` encodes the file."""

    def __init__(self, encode: Callable[[], None]) -> None:
        super().__init__()
        self._encode = encode

    @override
    def result(self, timeout: float | None = None) -> int:
        if not self.done():
            self._encode()
        return super().result(timeout)
