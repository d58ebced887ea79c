"""Chunk files named by what they hold: a chunk that is stored already is not stored again.

The id of such a file is the first 12 bytes of the SHA-256 of its bytes. Writing goes

    known to this session? ── yes ──> done, no request
    there in storage?  ── no ──> create it, if it still is not there
                       ── other length or other bytes ──> a file of its own, with a random id
                       ── the same, and young ──> done, nothing is sent
                       ── the same, and old ──> written again in place, so that it is young

*Collisions.* 96 bits: among a billion chunks two different ones meet by accident with a chance of 6 in 10^12.
But who may choose the bytes of two chunks can make a pair that meets, with some 2^48 hashes. So what is found
is compared byte by byte (``compare``), and within a session the whole hashes are; what differs is stored
apart. Files are only ever created if absent, or replaced by the bytes they were seen to have.

*Garbage.* A file that is found may be one that nobody refers to any more. Garbage collection leaves alone
what is younger than the lifetime of a session. A file younger than half of that is taken as it is, and the
session has to commit before the file could be old enough (``keep_until``); an older one is written again. A
collection that was under way meanwhile may have seen it while it was old: then the chunk is stored apart.

Theory and alternatives: ``design/013-content-addressed.md``.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import ErrorKind, StorageError
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.keys import chunk_key
from frazil.storage.base import IfAbsent, Stored
from frazil.threads import Purpose, ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.format.manifest import NativeRef
    from frazil.storage.base import ObjectInfo, Storage

#: Chunks that a session remembers; about 250 bytes each.
REMEMBERED: Final = 1 << 18
#: So often a file may come and go before its chunk is stored apart.
_TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class ContentSettings:
    """``lifetime_us``: how long after it was stored no garbage collection takes a file, in microseconds.

    ``compare``: read what was found, and compare it with what is to be written.
    """

    lifetime_us: int
    compare: bool = True


class ContentStore:
    """Stores chunks under ids made of their bytes. Every method may be called from many threads.

    ``new_id`` makes random ids, ``now_us`` tells the time, in microseconds since 1970. ``quiet`` tells
    whether no garbage collection has been under way since it was asked before, or, asked for the first time,
    now; ``under_way``, whether one is now.

    >>> import os, time
    >>> from frazil.storage.memory import MemoryStorage
    >>> settings = ContentSettings(lifetime_us=86_400_000_000)
    >>> def store_on(storage):
    ...     return ContentStore(
    ...         storage, settings, lambda: os.urandom(12), lambda: time.time_ns() // 1000, lambda: True
    ...     )
    >>> storage = MemoryStorage()
    >>> store_on(storage).put_chunk(b"ice") == store_on(storage).put_chunk(b"ice")
    True
    >>> len(list(storage.list("chunks")))
    1
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
        """Begin with nothing known: in a new process the locks and threads of the old one are of no use."""
        self._lock = threading.Lock()
        self._digests: dict[bytes, bytes] = {}  # id -> SHA-256 of what is stored under it
        self._packed: dict[bytes, NativeRef] = {}  # SHA-256 -> where in a pack
        self._busy: dict[bytes, threading.Event] = {}
        self._turn = threading.Lock()  # of renewals
        self._watching = False
        self._calm = False
        #: For callers that must not wait.
        self.threads = ThreadPool(Purpose.CONTENT_UPLOADS)

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            ContentStore,
            (self._storage, self._settings, self._new_id, self._now_us, self._quiet, self._under_way),
        )

    @property
    def keep_until(self) -> int | None:
        """Whoever refers to the chunks has to be committed by then, in microseconds since 1970; None if
        nothing was found that is older than this object.
        """
        return self._keep_until

    def put_chunk(self, data: memoryview | bytes) -> bytes:
        """Return the id of a chunk file that holds ``data`` and nothing else, which is durable on return.

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
            if not self._find_or_create(chunk_key(id_), data):
                return self._put_apart(data)
            with self._lock:
                _remember(self._digests, id_, digest)
            return id_
        finally:
            with self._lock:
                del self._busy[id_]
            mine.set()

    def packed(self, digest: bytes) -> NativeRef | None:
        """Return where this session has packed a chunk with this hash."""
        return self._packed.get(digest)

    def remember_packed(self, digest: bytes, ref: NativeRef) -> None:
        _remember(self._packed, digest, ref)

    def forget_packed(self) -> None:
        """Packs that were not durable have been dropped."""
        self._packed.clear()

    # ------------------------------------------------------------------------------------- inside

    def _put_apart(self, data: memoryview | bytes) -> bytes:
        id_ = self._new_id()
        self._storage.put(chunk_key(id_), data)
        return id_

    def _find_or_create(self, key: str, data: memoryview | bytes) -> bool:
        """Whether the object holds ``data`` now, and garbage collection leaves it alone long enough."""
        # One that is under way may delete what is found. Of one that begins later the commit learns.
        if not self._calm:
            self._calm = not self._under_way()
        if not self._calm:
            return False
        for _ in range(_TRIES):
            info = self._storage.head(key)
            if info is None:
                if isinstance(self._storage.put(key, data, IfAbsent()), Stored):
                    return True
                continue  # refused: somebody was first, which may have been an attempt of our own
            until = _microseconds(info) + self._settings.lifetime_us
            is_young = self._now_us() <= until - self._settings.lifetime_us // 2
            if self._settings.compare or not is_young:
                same = self._holds(key, data)
                if same is None:
                    continue
            else:
                same = info.size == memoryview(data).nbytes
            if not same:
                return False
            if not is_young:
                return self._renew(key, data)
            # An eighth is for clocks that differ and for the commit itself.
            self._must_commit_by(until - self._settings.lifetime_us // 8)
            return True
        return False

    def _holds(self, key: str, data: memoryview | bytes) -> bool | None:
        """Return whether the object has these bytes, or None if there is none any more."""
        try:
            stored = memoryview(self._storage.get(key))
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                return None
            raise
        return stored.nbytes == memoryview(data).nbytes and stored.cast("B") == data

    def _renew(self, key: str, data: memoryview | bytes) -> bool:
        """Make the object, which holds ``data``, young; False if that may have come too late."""
        with self._turn:
            if not self._watching:
                self._watching = self._quiet()
            before = self._watching
            self._storage.put(key, data)
            # Asked after the write: a collection that begins later finds a young object.
            self._watching = self._quiet()
            return before and self._watching

    def _must_commit_by(self, when: int) -> None:
        with self._lock:
            self._keep_until = when if self._keep_until is None else min(self._keep_until, when)


def _never() -> bool:
    return False


def digest_of(data: memoryview | bytes) -> bytes:
    """SHA-256 of a chunk; hardware does about 2 GB/s."""
    return hashlib.sha256(data).digest()


def _remember[K, V](table: dict[K, V], key: K, value: V) -> None:
    if len(table) >= REMEMBERED:
        table.pop(next(iter(table)), None)  # the oldest
    table[key] = value


def _microseconds(info: ObjectInfo) -> int:
    return int(info.modified.timestamp() * 1_000_000)
