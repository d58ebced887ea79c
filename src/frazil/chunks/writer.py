"""Writes of chunks: small chunks are collected in packs, and large chunks are separate files.

To create a file takes a millisecond on a disk and tens of milliseconds on an object store, whatever its size.
So the writer copies chunks below a threshold into the open pack, and uploads a full pack in the background:

    write ──> open pack ──full or flush──> sealed pack ──upload done──> durable, dropped from memory
                                                       ──failed──> stays in memory, uploaded again by flush

``write`` returns a reference before the pack is durable, and ``pending()`` its bytes. So a commit must flush
first. The id of a pack is random, so a second upload is harmless; it never has two different contents, so a
forked child cannot continue the open pack of its parent. Memory: ``max_in_flight`` sealed packs and one more.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Buffer, Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.chunks.packs import (
    ContentStore,
    Pack,
    PackRows,
    PackSettings,
    digest_of,
    file_parts,
    groups_of,
    remember,
)
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.chunk_statistics import ChunkStatistics
from frazil.format.chunk_trailer import crc32c
from frazil.format.columns import I64, U32, Ragged
from frazil.format.ids import chunk_key, id_matrix
from frazil.format.manifest import ChunkKind, ChunkTable, NativeRef
from frazil.lazy_names import asyncio
from frazil.storage.base import Storage
from frazil.threads import Purpose, ThreadPool

MAX_IN_FLIGHT: Final = 4
#: Up to this size, in bytes, a pack is stored with the other files of a local commit.
_JOINT_BYTES: Final = 4 << 20


class ChunkFlush:
    """A flush of chunks, some of whose files the caller stores together with other files.

    In a ``with`` block. The caller stores ``files``, pairs of a key and bytes, and then calls ``confirm``. If
    the block ends without ``confirm``, the writer stores the files itself.
    """

    __slots__ = ("_done", "_puts", "files")

    def __init__(
        self,
        puts: Sequence[Future[None]] = (),
        files: Sequence[tuple[str, Buffer]] = (),
        done: Callable[[bool], None] | None = None,
    ) -> None:
        self.files: Final = files
        self._puts = puts
        self._done = done

    def __enter__(self) -> ChunkFlush:
        return self

    def __exit__(self, *error: object) -> None:
        if self._done is not None:
            self._done(False)

    def confirm(self) -> None:
        """Note that ``files`` are durable, and wait until all other chunks are. Raises their first error."""
        done, self._done = self._done, None
        if done is not None:
            done(True)
        wait(self._puts)
        for error in filter(None, map(_failure, self._puts)):
            raise error


class ChunkWriter:
    """A writer of chunks, which packs small chunks. Threads may share it."""

    def __init__(
        self,
        storage: Storage,
        settings: PackSettings,
        new_id: Callable[[], bytes],
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        content: ContentStore | None = None,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._new_id = new_id
        self._max_in_flight = max_in_flight
        self._content = content
        #: The size of the smallest chunk that gets a separate file, in bytes.
        self.pack_below: Final = settings.threshold if settings.enabled else 0
        self.has_checksums: Final = settings.checksums
        self.deduplicates: Final = content is not None
        #: Files are cheaper together than one by one: a local disk flushes them at the same time.
        self.stores_together: Final = storage.is_local
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._open: Pack | None = None
        self._sealed: dict[bytes, Pack] = {}  # oldest first
        self._pool = ThreadPool(Purpose.PACK_UPLOADS, self._max_in_flight)
        if self._content is not None:
            self._content.start()

    # Threads, locks and open packs cannot be pickled, so all chunks must be durable first.
    def __reduce__(self) -> tuple[Any, ...]:
        self.flush()
        options: dict[str, Any] = {"max_in_flight": self._max_in_flight, "content": self._content}
        return partial(ChunkWriter, **options), (self._storage, self._settings, self._new_id)

    @property
    def keep_until(self) -> int | None:
        """See ``ContentStore.keep_until``."""
        return None if self._content is None else self._content.keep_until

    def write(self, data: Buffer) -> NativeRef:
        """Write one chunk. On return, its bytes are copied or stored."""
        view = _bytes_of(data)
        if view.nbytes >= self.pack_below:
            return NativeRef(self._put_file(view), 0, view.nbytes)
        sums = self._sums(view)
        while not isinstance(answer := self._append(view, *sums), NativeRef):
            wait([answer])
        return answer

    async def write_async(self, data: Buffer) -> NativeRef:
        """Write one chunk, as ``write``, without blocking the event loop."""
        view = _bytes_of(data)
        if view.nbytes >= self.pack_below:
            if self._storage.is_local or self._content is not None:
                # On a thread, so that other chunks can be encoded and written at the same time.
                loop = asyncio.get_running_loop()
                id_ = await loop.run_in_executor(self._file_threads().executor, self._put_file, view)
            else:
                id_ = self._new_id()
                await self._storage.put_parts_async(chunk_key(id_), self._file_parts(id_, view))
            return NativeRef(id_, 0, view.nbytes)
        sums = self._sums(view)
        while not isinstance(answer := self._append(view, *sums), NativeRef):
            await _done(answer)
        return answer

    def pack_rows(self, rows: PackRows) -> list[tuple[bytes, int, int]]:
        """Write chunks into packs, without deduplication. Rows that nearly fill a pack become one."""
        places: list[tuple[bytes, int, int]] = []
        begin = 0
        while begin < len(rows):
            answer = self._append_rows(rows if begin == 0 else rows.rows(begin, len(rows)))
            if isinstance(answer, Future):
                wait([answer])
            else:
                places.append(answer)
                begin += answer[2]
        return places

    def submit_files(self, views: list[memoryview]) -> Future[list[bytes]]:
        """Store chunks in files, on a thread, without deduplication. Return the ids of durable files."""
        return self._file_threads().submit(self._put_files, views)

    def flush(self) -> None:
        """Wait until all written chunks are durable."""
        self.begin_uploads().confirm()

    def begin_uploads(self, *, is_joint: bool = False) -> ChunkFlush:
        """Begin to upload all written chunks. With ``is_joint``, the caller stores a small open pack.

        A thread for one small pack takes longer than the pack, and a local disk flushes files together.
        """
        self._enter()
        with self._lock:
            pack = self._open
            parts = pack.file_parts() if is_joint and pack and pack.size <= _JOINT_BYTES else ()
            if pack is None or len(parts) != 1:
                return ChunkFlush(self._begin_uploads())
            self._open = None
            try:
                puts = self._begin_uploads()
            except BaseException:
                self._open = pack
                raise
            self._sealed[pack.id] = pack
            pack.put = Future()
        return ChunkFlush(puts, [(chunk_key(pack.id), parts[0])], partial(self._end_joint, pack, pack.put))

    def _end_joint(self, pack: Pack, put: Future[None], is_stored: bool) -> None:
        """End the upload of a pack that the caller has stored, or upload it if the caller has not."""
        if is_stored:
            with self._lock:
                self._sealed.pop(pack.id, None)
            if not put.cancelled():
                put.set_result(None)
            return
        with self._lock:
            if pack.id not in self._sealed:
                return  # the session has discarded its changes, and has cancelled the upload
            upload = self._submit(pack)
        upload.add_done_callback(partial(_copy_result, put))

    def _begin_uploads(self) -> list[Future[None]]:
        """Begin all uploads that are needed. Return those that have not succeeded. The caller locks."""
        for pack in self._sealed.values():
            if pack.put is not None and _failure(pack.put) is not None:
                self._submit(pack)
        if self._open is not None:
            self._seal(self._open)
        puts = [pack.put for pack in self._sealed.values() if pack.put is not None]
        if self._content is not None and self._content.unflushed is not None:
            puts.append(self._content.threads.submit(self._content.flush_names))
        return puts

    def pending(self, chunk_id: bytes, start: int, stop: int) -> Buffer | None:
        """Return bytes of a pack that is not durable yet, or None if this writer does not have the pack."""
        with self._lock:
            pack = self._open
            if pack is None or pack.id != chunk_id:
                pack = self._sealed.get(chunk_id)
            return None if pack is None else pack.view(start, stop)

    def forget(self) -> None:
        """Drop all chunks that are not durable, after the session has discarded its changes."""
        if self._process != os.getpid():
            self._start()
        with self._lock:
            for pack in self._sealed.values():
                if pack.put is not None:
                    pack.put.cancel()
            self._sealed.clear()
            self._open = None
            if self._content is not None:
                self._content.packed.clear()  # their packs were dropped

    # Internal

    def _put_file(self, view: memoryview) -> bytes:
        """Store a chunk in a separate file. Return its id."""
        if self._content is not None:
            self._enter()
            return self._content.put_chunk(view)
        id_ = self._new_id()
        self._storage.put_parts(chunk_key(id_), self._file_parts(id_, view))
        return id_

    def _put_files(self, views: list[memoryview]) -> list[bytes]:
        """Store each chunk in a separate file. Return the ids."""
        if len(views) == 1:
            return [self._put_file(views[0])]
        ids = [self._new_id() for _ in views]
        files = [b"".join(self._file_parts(id_, view)) for id_, view in zip(ids, views, strict=True)]
        self._storage.put_many(zip(map(chunk_key, ids), files, strict=True))
        return ids

    def _file_parts(self, id_: bytes, view: memoryview) -> list[Buffer]:
        return file_parts(id_, view, checksums=self.has_checksums)

    def _sums(self, view: memoryview) -> tuple[bytes | None, int | None]:
        """Return the hash for the deduplication, and the checksum, of a chunk."""
        digest = None if self._content is None else digest_of(view)
        return digest, crc32c(view) if self.has_checksums else None

    def _append(self, view: memoryview, digest: bytes | None, crc: int | None) -> NativeRef | Future[None]:
        """Copy a chunk into the open pack. Return its reference, or the upload to wait for if it is full."""
        self._enter()
        size = view.nbytes
        with self._lock:
            if self._content is not None and digest is not None:
                before = self._content.packed.get(digest)
                if before is not None:
                    return before
            pack = self._open
            if pack is None or pack.size + size > self._settings.pack_size:
                if pack is not None:
                    busy = self._no_room()
                    if busy is not None:
                        return busy
                    self._seal(pack)
                pack = self._open = Pack(self._new_id(), self._settings.pack_size)
            ref = NativeRef(pack.id, pack.append(view, crc), size)
            if self._content is not None and digest is not None:
                remember(self._content.packed, digest, ref)
            return ref

    def _append_rows(self, rows: PackRows) -> tuple[bytes, int, int] | Future[None]:
        """Write the first rows. Return the pack, the position and the number, or the upload to wait for."""
        self._enter()
        total, limit = len(rows.data), self._settings.pack_size
        with self._lock:
            pack = self._open
            is_pack = limit // 2 <= total <= limit
            space = 0 if pack is None or is_pack else limit - pack.size
            count = int(np.searchsorted(np.cumsum(rows.length), space, "right"))
            if pack is None or not count:
                busy = self._no_room() if pack is not None or is_pack else None
                if busy is not None:
                    return busy
                if is_pack:  # a pack of their own. The open pack stays open
                    pack = Pack(self._new_id(), limit, total, rows.data)
                    pack.record(rows)
                    self._sealed[pack.id] = pack
                    self._submit(pack)
                    return pack.id, 0, len(rows)
                if pack is not None:
                    self._seal(pack)
                pack = self._open = Pack(self._new_id(), limit)
                count = max(1, int(np.searchsorted(np.cumsum(rows.length), limit, "right")))
            rows = rows.rows(0, count)
            start = pack.append(memoryview(rows.data), None)
            pack.record(rows)
            return pack.id, start, count

    def _no_room(self) -> Future[None] | None:
        """Return the oldest upload if no other may start, or None. Raises the error of a failed upload."""
        if len(self._sealed) < self._max_in_flight:
            return None
        puts = [pack.put for pack in self._sealed.values() if pack.put is not None]
        for error in filter(None, map(_failure, puts)):
            raise error
        return puts[0]

    def _seal(self, pack: Pack) -> None:
        self._open = None
        self._sealed[pack.id] = pack
        self._submit(pack)

    def _submit(self, pack: Pack) -> Future[None]:
        try:
            upload = self._pool.submit(self._put, pack)
        except StorageError as error:  # no thread can start: the next flush uploads the pack again
            upload = Future()
            upload.set_exception(error)
        pack.put = upload
        return upload

    def _file_threads(self) -> ThreadPool:
        self._enter()
        return self._pool if self._content is None else self._content.threads

    def _put(self, pack: Pack) -> None:
        parts = pack.file_parts()
        if len(parts) == 1 and self._storage.is_local:
            # One wait for the disk instead of two: nobody looks for a pack before its flush.
            self._storage.put_many([(chunk_key(pack.id), parts[0])])
        else:
            self._storage.put_parts(chunk_key(pack.id), parts)
        # Not earlier: a reader that does not find the bytes here must find them in storage.
        with self._lock:
            self._sealed.pop(pack.id, None)

    def _enter(self) -> None:
        """Restart in a forked child, which has no threads, and cannot continue the parent's open pack."""
        if self._process != os.getpid():
            if self._open is not None or self._sealed:
                raise StorageError(
                    f"chunks of process {self._process} were not durable when it was forked into process "
                    f"{os.getpid()}. Flush before the fork, or pickle a fork of the session",
                    ErrorKind.FORKED_PROCESS,
                )
            self._start()


def _copy_result(to: Future[None], put: Future[None]) -> None:
    """Let one upload end as another one has ended."""
    error = _failure(put)
    if to.cancelled():
        return
    if error is None:
        to.set_result(None)
    else:
        to.set_exception(error)


def _bytes_of(data: Buffer) -> memoryview:
    """Return the bytes of a chunk as a one-dimensional view."""
    view = memoryview(data)
    if view.nbytes == 0:
        raise InvalidInputError("a chunk must have at least 1 byte, got 0", ErrorKind.ZERO_LENGTH_CHUNK)
    if view.ndim == 1 and view.itemsize == 1:
        return view if view.contiguous else memoryview(view.tobytes())
    # cast() would refuse formats such as ">f4".
    return memoryview(np.frombuffer(view, np.uint8)) if view.c_contiguous else memoryview(view.tobytes())


def _failure(put: Future[None]) -> BaseException | None:
    """Return the error of a failed upload, or None if it is running, has succeeded or was cancelled."""
    return put.exception() if put.done() and not put.cancelled() else None


async def _done(put: Future[None]) -> None:
    """Wait until an upload has ended. A cancellation of the wait does not cancel the upload."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def wake() -> None:
        if not ended.done():
            ended.set_result(None)

    def wake_loop(_: Future[None]) -> None:
        with suppress(RuntimeError):  # the loop was closed, so no task waits
            loop.call_soon_threadsafe(wake)

    put.add_done_callback(wake_loop)
    await ended


#: The number of writes of large chunks that run at the same time.
_MOST_WRITES: Final = 6
#: The most bytes of files that are written together.
_TOGETHER: Final = 16 << 20


class RowWriter:
    """Stores the chunks of one array, and gathers their references."""

    def __init__(self, writer: ChunkWriter, ndim: int, inline_threshold: int) -> None:
        self._writer = writer
        self._threshold = inline_threshold
        self._ndim = ndim
        self._parts: list[tuple[NDArray[Any], ...]] = []
        self._ids: list[bytes] = []
        self._inline: list[Ragged] = []
        self._num_inline = 0
        self._files: deque[tuple[int, Future[list[bytes]]]] = deque()
        self._statistics: list[ChunkStatistics | None] = []
        self._counts: list[int] = []

    def add(self, index: U32, rows: PackRows, statistics: ChunkStatistics | None = None) -> None:
        """Store chunks: small ones inline, large ones in files, and all others in packs."""
        is_inline = rows.length <= self._threshold
        is_file = ~is_inline & (rows.length >= self._writer.pack_below)
        is_packed = ~(is_inline | is_file)
        order = [np.flatnonzero(each) for each in (is_inline, is_file, is_packed)]
        self._statistics.append(None if statistics is None else statistics.take(np.concatenate(order)))
        self._counts.append(len(index))
        if is_inline.any():
            chosen = _chosen(rows, is_inline)
            first, self._num_inline = self._num_inline, self._num_inline + len(chosen)
            self._inline.append(Ragged.from_lengths(chosen.data, chosen.length))
            source = np.arange(first, self._num_inline)
            self._record(index[is_inline], ChunkKind.INLINE, source, 0, chosen.length)
        if is_file.any():  # a step for each of them costs little
            chosen, first = _chosen(rows, is_file), len(self._ids)
            data, ends = memoryview(chosen.data).toreadonly(), np.cumsum(chosen.length)
            for begin, end in groups_of(ends, _TOGETHER if self._writer.stores_together else 0):
                self._wait(_MOST_WRITES - 1)
                starts = (ends - chosen.length)[begin:end].tolist()
                views = [data[low:high] for low, high in zip(starts, ends[begin:end].tolist(), strict=True)]
                self._files.append((len(self._ids), self._writer.submit_files(views)))
                self._ids += [b""] * len(views)
            source = np.arange(first, len(self._ids))
            self._record(index[is_file], ChunkKind.NATIVE, source, 0, chosen.length)
        if is_packed.any():
            at, chosen, first = index[is_packed], _chosen(rows, is_packed), 0
            begins = np.cumsum(chosen.length) - chosen.length
            for id_, start, count in self._writer.pack_rows(chosen):
                part = slice(first, first + count)
                offset = begins[part] - begins[first] + start
                self._record(at[part], ChunkKind.NATIVE, len(self._ids), offset, chosen.length[part])
                self._ids.append(id_)
                first += count

    def delete(self, index: U32) -> None:
        """Record chunks that must not exist."""
        self._record(index, ChunkKind.ABSENT, 0, 0, 0)
        self._statistics.append(None)
        self._counts.append(len(index))

    def table(self) -> ChunkTable:
        """Return the references. Chunks that must not exist are rows of the kind ``ABSENT``."""
        self._wait(0)
        if not self._parts:
            return ChunkTable.empty(self._ndim)
        index, kind, source, offset, length = map(np.concatenate, zip(*self._parts, strict=True))
        inline = Ragged.concat(self._inline) if self._inline else Ragged.empty()
        ids, foreign = id_matrix(self._ids), ChunkTable.empty(0).foreign
        statistics = ChunkStatistics.concat(self._statistics, self._counts)
        return ChunkTable(index, kind, source, offset, length, ids, foreign, inline, statistics).sorted()

    def _wait(self, most: int) -> None:
        """Wait until at most this number of writes of files is running."""
        while len(self._files) > most:
            number, stored = self._files.popleft()
            ids = stored.result()
            self._ids[number : number + len(ids)] = ids

    def _record(
        self, index: U32, kind: ChunkKind, source: I64 | int, offset: I64 | int, length: I64 | int
    ) -> None:
        columns = ((kind, np.uint8), (source, np.uint32), (offset, np.uint64), (length, np.uint64))
        values = (np.asarray(value, dtype) for value, dtype in columns)
        self._parts.append((index, *(np.broadcast_to(value, len(index)) for value in values)))


def _chosen(rows: PackRows, is_chosen: NDArray[np.bool_]) -> PackRows:
    """Return some chunks, one after the other. All of them are not copied."""
    if is_chosen.all():
        return rows
    ends: I64 = np.cumsum(rows.length)
    chosen = Ragged(rows.data, (ends - rows.length)[is_chosen], rows.length[is_chosen]).compact()
    return PackRows(chosen.values, chosen.lengths, None if rows.crc is None else rows.crc[is_chosen])
