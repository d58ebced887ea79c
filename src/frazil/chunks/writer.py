"""Chunks on their way to storage: small ones gathered into packs, large ones as files of their own.

A reference names a range of a chunk file, so one file may hold many chunks. A file costs about a
millisecond to make on a disk and tens of milliseconds on an object store, whatever its size; a copy of a
small chunk into a buffer costs microseconds. Hence chunks under a threshold are copied into the open
pack, and a full pack is put in the background as one object.

    write ──> open pack ──full──> sealed pack ──put returned──> durable, forgotten here
                          flush
                                  sealed pack ──put failed──> kept, and put again by flush

A reference is handed out at once, so *nothing may be reported durable before it is*: whoever commits
references calls ``flush()`` first, which returns only when every pack is in storage. Until then the bytes are
readable here, through ``pending()``.

The id of a pack is random and nobody else writes under it, so putting a pack twice is harmless; an id is
never used for two different contents, which is why a forked child may not carry on with its parent's open
pack.

Memory: at most ``max_in_flight`` sealed packs and the open one. A writer that would exceed it waits for
the oldest.

With deduplication (``content_addressing``), files are named by what they hold, and a chunk that the session
has packed before is a second reference to the same range.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.chunks.content_addressing import ContentStore, digest_of
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.keys import chunk_key
from frazil.format.manifest import NativeRef
from frazil.threads import Purpose, ThreadPool

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable

    from numpy.typing import NDArray

    from frazil.storage.base import Storage

MAX_IN_FLIGHT: Final = 4
_FIRST_BUFFER: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class PackSettings:
    """Which chunks are packed, and how large a pack grows; sizes in bytes.

    ``threshold``: shorter chunks are packed. ``pack_size``: a pack is put before it would exceed this.
    """

    enabled: bool = True
    threshold: int = 1 << 20
    pack_size: int = 16 << 20


@dataclass(slots=True, eq=False)
class _Pack:
    """``append`` is for packs that are open; ``put`` is there once one is sealed.

    Bytes once in the buffer stay as they are, and a buffer that is too small gives way to another, so views
    stay good. numpy's memory, since it asks for huge pages: a page fault for every 4 KiB of a pack costs
    more than the copy of the bytes.
    """

    id: bytes
    limit: int
    size: int = 0
    buffer: NDArray[np.uint8] = field(default_factory=lambda: np.empty(_FIRST_BUFFER, np.uint8))
    put: Future[None] | None = None

    def append(self, data: memoryview) -> int:
        """Return where the bytes are in the pack."""
        start, end = self.size, self.size + data.nbytes
        if end > len(self.buffer):
            larger = np.empty(max(end, min(self.limit, 8 * len(self.buffer))), np.uint8)
            larger[:start] = self.buffer[:start]
            self.buffer = larger
        self.buffer[start:end] = np.frombuffer(data, np.uint8)
        self.size = end
        return start

    def view(self, start: int, stop: int) -> memoryview:
        return memoryview(self.buffer)[start : min(stop, self.size)].toreadonly()


class ChunkWriter:
    """Writes chunks to a storage, packing the small ones. Every method may be called from many threads.

    ``new_id`` makes the 12 random bytes of a chunk file's id. ``content`` finds chunks that are stored
    already.

    >>> import secrets
    >>> from frazil.storage.memory import MemoryStorage
    >>> writer = ChunkWriter(MemoryStorage(), PackSettings(), lambda: secrets.token_bytes(12))
    >>> first, second = writer.write(b"abc"), writer.write(b"defg")
    >>> first.chunk_id == second.chunk_id, second.offset, second.length
    (True, 3, 4)
    >>> writer.flush()
    """

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
        self._pack_below = settings.threshold if settings.enabled else 0
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._open: _Pack | None = None
        self._sealed: dict[bytes, _Pack] = {}  # oldest first
        self._pool = ThreadPool(Purpose.PACK_UPLOADS, self._max_in_flight)

    # Threads, locks and open packs do not travel; what was written has to be durable where it was written.
    def __getstate__(self) -> tuple[Any, ...]:
        self.flush()
        return (self._storage, self._settings, self._new_id, self._max_in_flight, self._content)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        storage, settings, new_id, max_in_flight, content = state
        ChunkWriter.__init__(self, storage, settings, new_id, max_in_flight=max_in_flight, content=content)

    @property
    def keep_until(self) -> int | None:
        """See ``ContentStore.keep_until``."""
        return None if self._content is None else self._content.keep_until

    def write(self, data: Buffer) -> NativeRef:
        """Take one chunk; its bytes are copied or stored on return.

        Raises ``InvalidInputError`` (``zero-length-chunk``), and ``StorageError`` if this chunk cannot be
        stored, or if there is no room for it because an earlier pack could not be.
        """
        view = _bytes_of(data)
        if view.nbytes >= self._pack_below:
            return NativeRef(self._put_file(view), 0, view.nbytes)
        digest = self._digest(view)
        while not isinstance(answer := self._append(view, digest), NativeRef):
            wait([answer])
        return answer

    async def write_async(self, data: Buffer) -> NativeRef:
        """``write`` for an event loop: waits for the storage without holding up the loop."""
        view = _bytes_of(data)
        if view.nbytes >= self._pack_below:
            if self._storage.is_local or self._content is not None:
                # Other chunks are encoded and written while the disk is busy with this one.
                loop = asyncio.get_running_loop()
                id_ = await loop.run_in_executor(self._file_threads().executor, self._put_file, view)
            else:
                id_ = self._new_id()
                await self._storage.put_async(chunk_key(id_), view)
            return NativeRef(id_, 0, view.nbytes)
        digest = self._digest(view)
        while not isinstance(answer := self._append(view, digest), NativeRef):
            await _done(answer)
        return answer

    def flush(self) -> None:
        """Return when everything written so far is durable.

        Raises the first error of a put. What could not be put is kept, and tried again by the next
        ``flush()``; until one succeeds, the references handed out must not be committed.
        """
        self._enter()
        with self._lock:
            for pack in self._sealed.values():
                if pack.put is not None and _failure(pack.put) is not None:
                    self._submit(pack)
            if self._open is not None:
                self._seal(self._open)
            puts = [pack.put for pack in self._sealed.values() if pack.put is not None]
        wait(puts)
        for put in puts:
            error = _failure(put)
            if error is not None:
                raise error

    def pending(self, chunk_id: bytes, start: int, stop: int) -> Buffer | None:
        """Return bytes ``start <= i < stop`` of a pack that is not durable yet, or None if it is not here."""
        with self._lock:
            pack = self._open
            if pack is None or pack.id != chunk_id:
                pack = self._sealed.get(chunk_id)
            return None if pack is None else pack.view(start, stop)

    def forget(self) -> None:
        """Drop what is not durable: the session was discarded, nobody will ask for it."""
        self._enter_or_restart()
        with self._lock:
            for pack in self._sealed.values():
                if pack.put is not None:
                    pack.put.cancel()
            self._sealed.clear()
            self._open = None
            if self._content is not None:
                self._content.forget_packed()

    # ------------------------------------------------------------------------------------- inside

    def _put_file(self, view: memoryview) -> bytes:
        """Return the id of a file that holds this chunk alone."""
        if self._content is not None:
            self._enter()
            return self._content.put_chunk(view)
        id_ = self._new_id()
        _stored(self._storage, id_, view)
        return id_

    def _digest(self, view: memoryview) -> bytes | None:
        return None if self._content is None else digest_of(view)

    def _append(self, view: memoryview, digest: bytes | None) -> NativeRef | Future[None]:
        """The reference of a chunk copied into the open pack, or the put to wait for until there is room."""
        self._enter()
        size = view.nbytes
        with self._lock:
            if self._content is not None and digest is not None:
                before = self._content.packed(digest)
                if before is not None:
                    return before
            pack = self._open
            if pack is None or pack.size + size > self._settings.pack_size:
                if pack is not None:
                    busy = self._no_room()
                    if busy is not None:
                        return busy
                    self._seal(pack)
                pack = self._open = _Pack(self._new_id(), self._settings.pack_size)
            ref = NativeRef(pack.id, pack.append(view), size)
            if self._content is not None and digest is not None:
                self._content.remember_packed(digest, ref)
            return ref

    def _no_room(self) -> Future[None] | None:
        """The oldest put, if as many packs as allowed are in flight. Raises what a failed one raised."""
        if len(self._sealed) < self._max_in_flight:
            return None
        puts = [pack.put for pack in self._sealed.values() if pack.put is not None]
        for put in puts:
            error = _failure(put)
            if error is not None:
                raise error
        return puts[0]

    def _seal(self, pack: _Pack) -> None:
        self._open = None
        self._sealed[pack.id] = pack
        self._submit(pack)

    def _submit(self, pack: _Pack) -> None:
        pack.put = self._pool.submit(self._put, pack)

    def _file_threads(self) -> ThreadPool:
        self._enter()
        return self._pool if self._content is None else self._content.threads

    def _put(self, pack: _Pack) -> None:
        _stored(self._storage, pack.id, pack.view(0, pack.size))
        # Only now may the bytes go; a reader that no longer finds them here finds them in storage.
        with self._lock:
            self._sealed.pop(pack.id, None)

    def _enter(self) -> None:
        """In a forked child there are no threads, and the parent may go on with the open pack."""
        if self._process != os.getpid():
            if self._open is not None or self._sealed:
                raise StorageError(
                    f"chunks written in process {self._process} were not durable when it was forked into "
                    f"process {os.getpid()}: flush before forking, or pickle the session",
                    ErrorKind.FORKED_PROCESS,
                )
            self._restart()

    def _enter_or_restart(self) -> None:
        if self._process != os.getpid():
            self._restart()

    def _restart(self) -> None:
        self._start()
        if self._content is not None:
            self._content.start()


def _bytes_of(data: Buffer) -> memoryview:
    """Return a chunk as one row of bytes."""
    view = memoryview(data)
    if view.nbytes == 0:
        raise InvalidInputError(
            "a chunk of no bytes cannot be written: expected at least one byte", ErrorKind.ZERO_LENGTH_CHUNK
        )
    if view.ndim == 1 and view.itemsize == 1:
        return view if view.contiguous else memoryview(view.tobytes())
    # Not cast(): it refuses formats such as ">f4".
    return memoryview(np.frombuffer(view, np.uint8)) if view.c_contiguous else memoryview(view.tobytes())


def _stored(storage: Storage, id_: bytes, data: memoryview) -> None:
    storage.put(chunk_key(id_), data)


def _failure(put: Future[None]) -> BaseException | None:
    """What a finished put raised; None for one that is running, went well, or was cancelled."""
    return put.exception() if put.done() and not put.cancelled() else None


async def _done(put: Future[None]) -> None:
    """Wait until a put has ended, well or not. Cancelling the waiting does not cancel the put."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def wake() -> None:
        if not ended.done():
            ended.set_result(None)

    def wake_loop(_: Future[None]) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(wake)

    put.add_done_callback(wake_loop)
    await ended
