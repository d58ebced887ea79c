"""Chunk files: packs of many chunks, deduplication by hashes, and copies of ranges into new packs.

With deduplication, the id of a file is the first 12 bytes of the SHA-256 of its chunk. An attacker can make a
collision of 96 bits, so the bytes of an existing file are compared. Its writer may have been killed before it
flushed the name, so a commit flushes the names of files that it has found. A file that is younger than half
of the lifetime of a session is used again: the session must commit before it can be collected
(``keep_until``). An older file is written again, or the chunk gets a random id. Design:
``design/013-content-addressed.md``.

A copy of ranges takes the memory of about two packs, whatever their number. It compares the checksums in the
trailers of the old files, so that a damaged chunk gets no checksum that says it is right.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections.abc import Buffer, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.chunks.ranges import ByteRange, MergeLimits, StoredObject, plan_reads
from frazil.errors import ErrorKind, FormatError, StorageError
from frazil.format.chunk_trailer import (
    SINGLE_TRAILER_BYTES,
    ChunkTrailer,
    crc32c,
    decode_trailer,
    encode_trailer,
    is_marked,
    single_trailer,
    trailer_size,
)
from frazil.format.columns import I64, U8, U32, copy_rows, rows_by_number
from frazil.format.ids import CHUNKS, OBJECT_ID_BYTES, chunk_key, id_matrix
from frazil.remedies import call
from frazil.storage.base import ALWAYS, Condition, IfAbsent, Refused, Storage, Stored
from frazil.threads import Purpose, ThreadPool, map_bounded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.format.manifest import NativeRef


_FIRST_BUFFER: Final = 256 << 10
#: The buffer of a pack has room for a trailer of 1/2^5 of its size: enough for chunks of 384 bytes.
_TRAILER_SHARE: Final = 5


@dataclass(frozen=True, slots=True)
class PackSettings:
    """The options of packs. Sizes are in bytes."""

    enabled: bool = True
    threshold: int = 1 << 20
    pack_size: int = 16 << 20
    checksums: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class PackRows:
    """The bytes of n chunks, one after the other without gaps, with their lengths and checksums.

    Nobody changes them after a write. ``crc`` is None if the writer has no checksums.
    """

    data: NDArray[np.uint8]
    length: NDArray[np.int64]
    crc: NDArray[np.uint32] | None

    def __len__(self) -> int:
        return len(self.length)

    def rows(self, begin: int, end: int) -> PackRows:
        """Return the chunks from row ``begin`` up to row ``end``."""
        first = int(self.length[:begin].sum())
        last = first + int(self.length[begin:end].sum())
        crc = None if self.crc is None else self.crc[begin:end]
        return PackRows(self.data[first:last], self.length[begin:end], crc)


@dataclass(slots=True, eq=False)
class Pack:
    """A pack. ``append`` is for an open pack. A sealed pack has ``put``, its upload."""

    id: bytes
    limit: int
    size: int = 0
    buffer: NDArray[np.uint8] = field(default_factory=lambda: np.empty(_FIRST_BUFFER, np.uint8))
    put: Future[None] | None = None
    #: Lengths and checksums of the chunks.
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    crcs: array[int] = field(default_factory=lambda: array("I"))

    def append(self, data: memoryview, crc: int | None) -> int:
        """Add a chunk and its checksum. Return the position of the chunk in the pack."""
        start, end = self.size, self.size + data.nbytes
        if end > len(self.buffer):
            # A part of the buffer is for the trailer.
            most = self.limit + (self.limit >> _TRAILER_SHARE)
            larger = np.empty(max(end, min(most, 8 * len(self.buffer))), np.uint8)
            larger[:start] = self.buffer[:start]
            self.buffer = larger
        self.buffer[start:end] = np.frombuffer(data, np.uint8)
        self.size = end
        if crc is not None:
            self.lengths.append(data.nbytes)
            self.crcs.append(crc)
        return start

    def record(self, rows: PackRows) -> None:
        """Add checksums of chunks that are in the buffer."""
        if rows.crc is not None:
            self.lengths.frombytes(rows.length.astype(np.uint64).tobytes())
            self.crcs.frombytes(rows.crc.tobytes())

    def file_parts(self) -> list[Buffer]:
        """Return the bytes of the file. The trailer is in the same buffer as the chunks if there is room."""
        if not self.crcs:
            return [self.view(0, self.size)]
        trailer = encode_trailer(self.id, self.lengths, self.crcs)
        end = self.size + len(trailer)
        if end > len(self.buffer):
            return [self.view(0, self.size), trailer]
        self.buffer[self.size : end] = np.frombuffer(trailer, np.uint8)
        return [memoryview(self.buffer)[:end].toreadonly()]

    def view(self, start: int, stop: int) -> memoryview:
        """Return the bytes from ``start`` up to ``stop``, read-only."""
        return memoryview(self.buffer)[start : min(stop, self.size)].toreadonly()


#: The largest number of chunks that a session remembers, with about 250 bytes each.
REMEMBERED: Final = 1 << 18
#: The number of attempts, if a file appears and disappears, before the chunk gets a random id.
_TRIES: Final = 4


@dataclass(eq=False)
class ContentStore:
    """A store of chunks under ids that are hashes of their bytes. Threads may share it."""

    storage: Storage
    lifetime_us: int
    compare: bool
    checksums: bool
    new_id: Callable[[], bytes]
    now_us: Callable[[], int]
    quiet: Callable[[], bool]
    under_way: Callable[[], bool] | None = None
    #: When a commit must have referred to existing files that were used, in microseconds since 1970.
    keep_until: int | None = field(default=None, init=False)
    #: The last existing file that was used, if its name may not be durable.
    unflushed: bytes | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Reset the state: a new process cannot use the locks and threads of the old process."""
        self._lock = threading.Lock()
        self._digests: dict[bytes, bytes] = {}  # SHA-256 of the stored bytes by id
        #: The references of chunks that the session has packed, by SHA-256.
        self.packed: dict[bytes, NativeRef] = {}
        self._busy: dict[bytes, threading.Event] = {}
        self._turn = threading.Lock()  # for renewals
        self._watching = False
        self._calm = False
        #: Threads for asynchronous callers.
        self.threads: ThreadPool = ThreadPool(Purpose.CONTENT_UPLOADS)

    def __reduce__(self) -> tuple[Any, ...]:
        options = (self.storage, self.lifetime_us, self.compare, self.checksums)
        return ContentStore, (*options, self.new_id, self.now_us, self.quiet, self.under_way)

    def put_chunk(self, data: memoryview | bytes) -> bytes:
        """Return the id of a chunk file that begins with exactly these bytes, which is durable on return."""
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
                remember(self._digests, id_, digest)
            return id_
        finally:
            with self._lock:
                del self._busy[id_]
            mine.set()

    def flush_names(self) -> None:
        """Make the names of existing files durable that were used since the last call."""
        id_ = self.unflushed
        if id_ is not None:
            self.storage.flush_folders([CHUNKS])
            if self.unflushed is id_:  # otherwise another thread has used one meanwhile
                self.unflushed = None

    # Internal

    def _put_apart(self, data: memoryview | bytes) -> bytes:
        id_ = self.new_id()
        self._put(id_, data)
        return id_

    def _put(self, id_: bytes, data: memoryview | bytes, condition: Condition = ALWAYS) -> Stored | Refused:
        return self.storage.put_parts(
            chunk_key(id_), file_parts(id_, data, checksums=self.checksums), condition
        )

    def _find_or_create(self, id_: bytes, data: memoryview | bytes) -> bool:
        """Return whether the object has the bytes ``data``, and garbage collection spares it long enough."""
        key = chunk_key(id_)
        # A running collection may delete the file. The commit detects a collection that begins later.
        self._calm = self._calm or self.under_way is None or not self.under_way()
        if not self._calm:
            return False
        for _ in range(_TRIES):
            info = self.storage.head(key)
            if info is None:
                if isinstance(self._put(id_, data, IfAbsent()), Stored):
                    return True
                continue  # another writer, or an earlier attempt of our own, was first
            until = int(info.modified.timestamp() * 1_000_000) + self.lifetime_us
            is_young = self.now_us() <= until - self.lifetime_us // 2
            if self.compare or not is_young:
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
            must_commit_by = until - self.lifetime_us // 8
            with self._lock:
                self.unflushed = id_
                self.keep_until = min(self.keep_until or must_commit_by, must_commit_by)
            return True
        return False

    def _holds(self, id_: bytes, data: memoryview | bytes) -> bool | None:
        """Return whether the object has these bytes, and no damaged trailer. None if it does not exist."""
        try:
            stored = memoryview(self.storage.get(chunk_key(id_))).cast("B")
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                return None
            raise
        size = memoryview(data).nbytes
        rest = stored[size:]
        # ``==`` of memoryviews compares single bytes.
        is_same = np.array_equal(np.frombuffer(stored[:size], np.uint8), np.frombuffer(data, np.uint8))
        return is_same and (not rest or bytes(rest) == single_trailer(id_, data))

    def _renew(self, id_: bytes, data: memoryview | bytes) -> bool:
        """Overwrite the object with its bytes, so that it is young. Return False if that may be too late."""
        with self._turn:
            if not self._watching:
                self._watching = self.quiet()
            before = self._watching
            self._put(id_, data)
            # This call is after the write, because a collection that begins later finds a young object.
            self._watching = self.quiet()
            return before and self._watching


def digest_of(data: memoryview | bytes) -> bytes:
    """Return the SHA-256 of a chunk. Hardware computes about 2 GB/s."""
    return hashlib.sha256(data).digest()


def remember[K, V](table: dict[K, V], key: K, value: V) -> None:
    """Add an entry, and drop the oldest one if there are many."""
    if len(table) >= REMEMBERED:
        table.pop(next(iter(table)), None)
    table[key] = value


def file_parts(id_: bytes, data: memoryview | bytes, *, checksums: bool) -> list[Buffer]:
    """Return the bytes of a file with one chunk."""
    return [data, single_trailer(id_, data)] if checksums else [data]


def groups_of(ends: I64, most: int, most_rows: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of groups of rows of at most ``most`` bytes, or of one row."""
    begin = 0
    while begin < len(ends):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, "right")))
        end = end if most_rows is None else min(end, begin + most_rows)
        yield begin, end
        begin = end


_LIMITS: Final = MergeLimits(max_gap=256 << 10, max_waste=2 << 20, max_size=8 << 20)
#: The number of bytes at the end of a file that are read for its trailer: enough for 1,300 chunks.
_TAIL: Final = 16 << 10
#: The largest number of chunks in a pack, which limits its trailer.
_MOST_CHUNKS: Final = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class FileRanges:
    """n ranges of chunk files: the row of the file in ``ids``, the first byte, and the length of each.

    ``sizes`` are the sizes of the files. -1 or None: not known, so that checksums are not compared.
    """

    ids: U8
    source: I64
    offset: I64
    length: I64
    sizes: I64 | None = None

    def __len__(self) -> int:
        return len(self.length)

    def distinct(self) -> tuple[FileRanges, I64]:
        """Return each range once, in the order of the first occurrences, and the new row of each row."""
        order = np.lexsort((self.length, self.offset, self.source))
        is_new = np.zeros(len(order), bool)
        is_new[:1] = True
        for column in (self.source, self.offset, self.length):
            is_new[1:] |= np.diff(column[order]) != 0
        first = order[is_new]  # lexsort is stable, so these are the first occurrences
        number = np.empty(len(order), np.int64)
        number[order] = np.cumsum(is_new) - 1
        by_place = np.argsort(first)
        rank = np.empty(len(first), np.int64)
        rank[by_place] = np.arange(len(first))
        rows = first[by_place]
        ranges = FileRanges(self.ids, self.source[rows], self.offset[rows], self.length[rows], self.sizes)
        return ranges, rank[number]


@dataclass(frozen=True, slots=True)
class PackOptions:
    """How new packs are written."""

    pack_size: int
    least: int = 1
    checksums: bool = True


def copy_to_packs(
    storage: Storage, ranges: FileRanges, options: PackOptions, new_id: Callable[[], bytes]
) -> FileRanges:
    """Copy ranges of chunk files into new packs, which are durable on return."""
    ids: list[bytes] = []
    source, offset = np.zeros((2, len(ranges)), np.int64)
    for start, stop in groups_of(np.cumsum(ranges.length), options.pack_size, _MOST_CHUNKS):
        rows = slice(start, stop)
        length = ranges.length[rows]
        if stop - start < options.least:
            source[rows] = -1
            continue
        offset[rows] = np.cumsum(length) - length
        source[rows] = len(ids)
        pack, crcs = _read_pack(storage, ranges, rows, offset[rows])
        ids.append(new_id())
        parts: list[Buffer] = [memoryview(pack)]
        if options.checksums:
            parts.append(encode_trailer(ids[-1], length.tolist(), crcs.tolist()))
        storage.put_parts(chunk_key(ids[-1]), parts)
    return FileRanges(id_matrix(ids, OBJECT_ID_BYTES), source, offset, ranges.length)


def _read_pack(storage: Storage, ranges: FileRanges, rows: slice, places: I64) -> tuple[U8, U32]:
    """Return the bytes of a pack, for ``rows`` of the ranges, each at its place, and their checksums."""
    source, offset, length = ranges.source[rows], ranges.offset[rows], ranges.length[rows]
    count = len(source)
    sizes = np.full(len(ranges.ids), -1, np.int64) if ranges.sizes is None else ranges.sizes
    files = np.unique(source)
    files = files[sizes[files] >= 0]
    ends = sizes[files]
    starts = np.maximum(0, ends - _TAIL)
    plan = plan_reads(
        np.concatenate([source, files]),
        np.concatenate([offset, starts]),
        np.concatenate([offset + length, ends]),
        _LIMITS,
    )
    pack = np.empty(int(length.sum()), np.uint8)
    parts = rows_by_number(plan.part)
    tails: dict[int, bytes] = {}

    def read_part(number: int) -> None:
        key = chunk_key(ranges.ids[int(plan.key[number])].tobytes())
        request = ByteRange(StoredObject(key, storage), int(plan.start[number]), int(plan.stop[number]))
        data = np.frombuffer(request.read(), np.uint8)
        chunks = parts[number][parts[number] < count]
        copy_rows(pack, places[chunks], data, plan.offset[chunks], length[chunks])
        for row in parts[number][parts[number] >= count].tolist():  # once for each file
            first = int(plan.offset[row])
            tails[row - count] = data[first : first + int(ends[row - count] - starts[row - count])].tobytes()

    map_bounded(Purpose.RANGE_READS, read_part, range(len(plan)))
    view = memoryview(pack)
    bounds = zip(places.tolist(), (places + length).tolist(), strict=True)
    crcs = np.fromiter((crc32c(view[low:high]) for low, high in bounds), np.uint32, count)
    by_file = np.argsort(source, kind="stable")
    for number, (file, size) in enumerate(zip(files.tolist(), ends.tolist(), strict=True)):
        low, high = np.searchsorted(source[by_file], [file, file + 1])
        members = by_file[low:high]
        id_ = ranges.ids[file].tobytes()
        tail, needed = tails[number], trailer_size(id_, tails[number], size)
        if needed > len(tail):
            tail = bytes(ByteRange(StoredObject(chunk_key(id_), storage), size - needed, size).read())
        trailer = decode_trailer(id_, tail, size)
        if trailer is None and is_marked(id_) and not any(tails[number][-SINGLE_TRAILER_BYTES:]):
            raise FormatError(
                f"{chunk_key(id_)}: the file must end with the checksums of its chunks, got zeros. Run "
                "Repository.upkeep.verify, and restore the file from a copy"
            )
        if trailer is not None:
            _require_same(id_, trailer, offset[members], length[members], crcs[members])
    return pack, crcs


def _require_same(id_: bytes, trailer: ChunkTrailer, offset: I64, length: I64, crcs: U32) -> None:
    """Raise ``FormatError`` if whole chunks of a file differ from the checksums in its trailer."""
    if trailer.id != id_:
        raise FormatError(
            f"{chunk_key(id_)}: the file must have its own chunks, got those of {chunk_key(trailer.id)}"
        ).with_remedy("Run `{}`, and restore the file from a copy", call("verify"))
    rows = trailer.find_ranges(offset.astype(np.uint64), length.astype(np.uint64))
    damaged = np.flatnonzero((rows >= 0) & (trailer.crcs[rows] != crcs))
    if len(damaged):
        first = damaged[0]
        raise FormatError(
            f"{chunk_key(id_)}: the bytes {offset[first]} to {offset[first] + length[first]} must have the "
            "checksum that the file records, got other bytes"
        ).with_remedy("Run `{}`, and restore the file from a copy", call("verify"))
