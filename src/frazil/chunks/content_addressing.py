"""Deduplication of chunks, with files whose ids are hashes of their chunks.

The id of such a file is the first 12 bytes of the SHA-256 of its chunk. A trailer with the checksum
(``frazil.format.chunk_trailer``) does not count. A write works as follows:

    written by this session before? ── yes ──> done, no request
    in the storage?    ── no ──> create the file, if it is still absent
                       ── other length or other bytes ──> store the chunk in a file with a random id
                       ── same bytes, and young ──> done, no upload
                       ── same bytes, and old ──> overwrite the file, so that it is young

*Collisions.* An id has 96 bits. Among a billion chunks, the probability of an accidental collision is 6 in
10^12. But an attacker who can choose the bytes of two chunks can make a collision with about 2^48 hashes. So
the store compares the bytes of an existing file with the chunk (``compare``), and the whole hashes within a
session. A chunk that differs gets a file with a random id. Files are only created if they are absent, or
overwritten with the same bytes.

*Garbage.* Possibly no version refers to an existing file any more. Garbage collection spares files that are
younger than the lifetime of a session. If the file is younger than half of the lifetime, the session uses it,
and must commit before the file can be collected (``keep_until``). An older file is written again. A garbage
collection that ran at the same time may have seen the old file. In that case the chunk gets a file with a
random id.

Theory and alternatives: ``design/013-content-addressed.md``.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.errors import ErrorKind, StorageError
from frazil.format.chunk_trailer import SINGLE_TRAILER_BYTES, single_trailer
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.keys import chunk_key
from frazil.storage.base import IfAbsent, Stored
from frazil.threads import Purpose, ThreadPool

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable

    from frazil.format.manifest import NativeRef
    from frazil.storage.base import ObjectInfo, Storage

#: The largest number of chunks that a session remembers, with about 250 bytes each.
REMEMBERED: Final = 1 << 18
#: The number of attempts, if a file appears and disappears, before the chunk gets a random id.
_TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class ContentSettings:
    """The options of deduplication.

    Attributes:
        lifetime_us: The time after the upload in which no garbage collection deletes a file, in microseconds.
        compare: Whether to read an existing file and compare its bytes with the chunk.
        checksums: Whether files are written with a trailer (``frazil.format.chunk_trailer``).
    """

    lifetime_us: int
    compare: bool = True
    checksums: bool = True


class ContentStore:
    """A store of chunks under ids that are hashes of their bytes. Threads may share it.

    ``new_id`` returns random ids. ``now_us`` returns the time in microseconds since 1970. ``quiet`` returns
    whether no garbage collection was running since its last call (the first call only looks at the current
    state). ``under_way`` returns whether a garbage collection is running now.
    """

    def __init__(
        self,
        storage: Storage,
        settings: ContentSettings,
        new_id: Callable[[], bytes],
        now_us: Callable[[], int],
        quiet: Callable[[], bool],
        under_way: Callable[[], bool] | None = None,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._new_id = new_id
        self._now_us = now_us
        self._quiet = quiet
        self._under_way = under_way or _never
        self._keep_until: int | None = None
        self.start()

    def start(self) -> None:
        """Reset the state, because a new process cannot use the locks and threads of the old process."""
        self._lock = threading.Lock()
        self._digests: dict[bytes, bytes] = {}  # SHA-256 of the stored bytes by id
        self._packed: dict[bytes, NativeRef] = {}  # reference of a packed chunk by SHA-256
        self._busy: dict[bytes, threading.Event] = {}
        self._turn = threading.Lock()  # for renewals
        self._watching = False
        self._calm = False
        #: Threads for asynchronous callers.
        self.threads = ThreadPool(Purpose.CONTENT_UPLOADS)

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            ContentStore,
            (self._storage, self._settings, self._new_id, self._now_us, self._quiet, self._under_way),
        )

    @property
    def keep_until(self) -> int | None:
        """When a commit must have referred to the chunks, in microseconds since 1970.

        None if the store has not used existing files.
        """
        return self._keep_until

    def put_chunk(self, data: memoryview | bytes) -> bytes:
        """Return the id of a chunk file that begins with exactly these bytes, which is durable on return.

        Raises ``StorageError`` if the storage fails.
        """
        digest = digest_of(data)
        id_ = digest[:OBJECT_ID_BYTES]
        while True:
            with self._lock:
                stored_digest = self._digests.get(id_)
                busy = self._busy.get(id_)
                if stored_digest is None and busy is None:
                    mine = self._busy[id_] = threading.Event()
                    break
            if stored_digest is not None:
                return id_ if stored_digest == digest else self._put_apart(data)
            assert busy is not None
            busy.wait()  # another thread stores the same bytes
        try:
            if not self._find_or_create(id_, data):
                return self._put_apart(data)
            with self._lock:
                _remember(self._digests, id_, digest)
            return id_
        finally:
            with self._lock:
                del self._busy[id_]
            mine.set()

    def packed(self, digest: bytes) -> NativeRef | None:
        """Return the reference of a chunk with this hash that the session has packed, or None."""
        return self._packed.get(digest)

    def remember_packed(self, digest: bytes, ref: NativeRef) -> None:
        """Record that the session has packed a chunk with this hash."""
        _remember(self._packed, digest, ref)

    def forget_packed(self) -> None:
        """Forget all packed chunks, because packs that were not durable were dropped."""
        self._packed.clear()

    # Internal

    def _put_apart(self, data: memoryview | bytes) -> bytes:
        id_ = self._new_id()
        self._storage.put_parts(chunk_key(id_), self._file_parts(id_, data))
        return id_

    def _file_parts(self, id_: bytes, data: memoryview | bytes) -> list[Buffer]:
        return [data, single_trailer(id_, data)] if self._settings.checksums else [data]

    def _find_or_create(self, id_: bytes, data: memoryview | bytes) -> bool:
        """Return whether the object has the bytes ``data``, and garbage collection spares it long enough."""
        key = chunk_key(id_)
        # A running collection may delete the file. The commit detects a collection that begins later.
        if not self._calm:
            self._calm = not self._under_way()
        if not self._calm:
            return False
        for _ in range(_TRIES):
            info = self._storage.head(key)
            if info is None:
                if isinstance(self._storage.put_parts(key, self._file_parts(id_, data), IfAbsent()), Stored):
                    return True
                continue  # another writer, or an earlier attempt of our own, was first
            until = _microseconds(info) + self._settings.lifetime_us
            is_young = self._now_us() <= until - self._settings.lifetime_us // 2
            if self._settings.compare or not is_young:
                same = self._holds(id_, data)
                if same is None:
                    continue
            else:
                same = info.size - memoryview(data).nbytes in (0, SINGLE_TRAILER_BYTES)
            if not same:
                return False
            if not is_young:
                return self._renew(id_, data)
            # An eighth of the lifetime is for differences of clocks and for the commit itself.
            self._must_commit_by(until - self._settings.lifetime_us // 8)
            return True
        return False

    def _holds(self, id_: bytes, data: memoryview | bytes) -> bool | None:
        """Return whether the object has these bytes, with a trailer or without.

        None if it does not exist any more. An object whose trailer is damaged does not have these bytes.
        """
        try:
            stored = memoryview(self._storage.get(chunk_key(id_))).cast("B")
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                return None
            raise
        size = memoryview(data).nbytes
        rest = stored[size:]
        return _equal(stored[:size], data) and (not rest or bytes(rest) == single_trailer(id_, data))

    def _renew(self, id_: bytes, data: memoryview | bytes) -> bool:
        """Overwrite the object with its bytes, so that it is young. Return False if that may be too late."""
        with self._turn:
            if not self._watching:
                self._watching = self._quiet()
            before = self._watching
            self._storage.put_parts(chunk_key(id_), self._file_parts(id_, data))
            # This call is after the write, because a collection that begins later finds a young object.
            self._watching = self._quiet()
            return before and self._watching

    def _must_commit_by(self, when: int) -> None:
        with self._lock:
            self._keep_until = when if self._keep_until is None else min(self._keep_until, when)


def _never() -> bool:
    return False


def _equal(one: memoryview | bytes, other: memoryview | bytes) -> bool:
    """Return whether two objects have the same bytes. ``==`` of memoryviews compares single bytes."""
    first, second = np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8)
    if len(first) != len(second):
        return False
    words = len(first) & ~7
    same = np.array_equal(first[:words].view(np.uint64), second[:words].view(np.uint64))
    return same and first[words:].tobytes() == second[words:].tobytes()


def digest_of(data: memoryview | bytes) -> bytes:
    """Return the SHA-256 of a chunk. Hardware computes about 2 GB/s."""
    return hashlib.sha256(data).digest()


def _remember[K, V](table: dict[K, V], key: K, value: V) -> None:
    if len(table) >= REMEMBERED:
        table.pop(next(iter(table)), None)  # the oldest
    table[key] = value


def _microseconds(info: ObjectInfo) -> int:
    return int(info.modified.timestamp() * 1_000_000)
