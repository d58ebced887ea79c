"""Copies of many ranges of chunk files into new packs.

The ranges are columns. Their order is the order in the new packs, so that chunks that are neighbours in an
array stay neighbours. One step copies the ranges of one pack: it reads them with merged requests, places the
bytes in a buffer, and stores the buffer as one file. So the memory is about that of two packs, whatever the
number of ranges is.

The trailers of the old files (``frazil.format.chunk_trailer``) are read in the same requests where they are
near. A copied range must have the checksum that the old file records. So a damaged chunk is not copied to a
file whose own checksum would say that it is right.
"""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from frazil.chunks.coalesce import ReadPlan, plan_reads
from frazil.chunks.ranges import ByteRange, StoredObject
from frazil.errors import FormatError
from frazil.format.chunk_trailer import (
    SINGLE_TRAILER_BYTES,
    ChunkTrailer,
    crc32c,
    decode_trailer,
    encode_trailer,
    is_marked,
    trailer_size,
)
from frazil.format.columns import I64, U8, U32, copy_rows
from frazil.format.ids import OBJECT_ID_BYTES, id_matrix
from frazil.format.keys import chunk_key
from frazil.remedies import call
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

#: The limits of merged requests, in bytes.
_MAX_GAP: Final = 256 << 10
_MAX_WASTE: Final = 2 << 20
_MAX_SIZE: Final = 8 << 20
#: The number of bytes at the end of a file that are read for its trailer: enough for 1,300 chunks.
_TAIL: Final = 16 << 10
#: The largest number of chunks in a pack, which limits its trailer.
_MOST_CHUNKS: Final = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class FileRanges:
    """n ranges of chunk files.

    Attributes:
        ids: The ids of the files, uint8 of shape (m, 12).
        source: The row of the file of each range in ``ids``, int64 of shape (n,).
        offset: The first byte of each range, int64 of shape (n,).
        length: The number of bytes of each range, int64 of shape (n,), at least 1.
        sizes: The sizes of the files in bytes, int64 of shape (m,). -1 if the size is not known; then the
            checksums of the file are not compared. None: no size is known.
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
    """How new packs are written.

    Attributes:
        pack_size: The largest size of a pack in bytes. A larger range gets a file of its own.
        least: The smallest number of ranges of a pack. Smaller packs are not written. Default: 1.
        checksums: Whether packs get a trailer with the checksums of their chunks. Default: True.
    """

    pack_size: int
    least: int = 1
    checksums: bool = True


def copy_to_packs(
    storage: Storage, ranges: FileRanges, options: PackOptions, new_id: Callable[[], bytes]
) -> FileRanges:
    """Copy ranges of chunk files into new packs, which are durable on return."""
    ids: list[bytes] = []
    source, offset = np.zeros((2, len(ranges)), np.int64)
    for start, stop in _pack_bounds(ranges.length, options.pack_size):
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


def _pack_bounds(length: I64, pack_size: int) -> Iterator[tuple[int, int]]:
    """Yield the rows of each pack. The loop runs once for each pack."""
    ends = np.cumsum(length)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + pack_size, "right")))
        stop = min(stop, start + _MOST_CHUNKS)
        yield start, stop
        start = stop


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
        _MAX_GAP,
        _MAX_WASTE,
        _MAX_SIZE,
    )
    pack = np.empty(int(length.sum()), np.uint8)
    order = np.argsort(plan.part, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(plan.part[order])) + 1)
    tails: dict[int, bytes] = {}

    def read_part(number: int) -> None:
        data = np.frombuffer(_request(storage, ranges.ids, plan, number).read(), np.uint8)
        chunks = parts[number][parts[number] < count]
        copy_rows(pack, places[chunks], data, plan.offset[chunks], length[chunks])
        for row in parts[number][parts[number] >= count].tolist():  # once for each file
            first = int(plan.offset[row])
            tails[row - count] = data[first : first + int(ends[row - count] - starts[row - count])].tobytes()

    map_bounded(Purpose.RANGE_READS, read_part, range(len(plan)))
    crcs = _checksums(pack, places, length)
    by_file = np.argsort(source, kind="stable")
    for number, (file, size) in enumerate(zip(files.tolist(), ends.tolist(), strict=True)):
        low, high = np.searchsorted(source[by_file], [file, file + 1])
        wanted = by_file[low:high]
        id_ = ranges.ids[file].tobytes()
        trailer = _trailer(storage, id_, tails[number], size)
        if trailer is None and is_marked(id_) and not any(tails[number][-SINGLE_TRAILER_BYTES:]):
            raise FormatError(
                f"{chunk_key(id_)}: the file must end with the checksums of its chunks, got zeros. Run "
                "Repository.upkeep.verify, and restore the file from a copy"
            )
        if trailer is not None:
            _require_same(id_, trailer, offset[wanted], length[wanted], crcs[wanted])
    return pack, crcs


def _checksums(pack: U8, places: I64, length: I64) -> U32:
    """Return the checksum of each chunk of a pack."""
    view = memoryview(pack)
    bounds = zip(places.tolist(), (places + length).tolist(), strict=True)
    return np.fromiter((crc32c(view[low:high]) for low, high in bounds), np.uint32, len(places))


def _trailer(storage: Storage, id_: bytes, tail: bytes, size: int) -> ChunkTrailer | None:
    """Return the trailer of a file of ``size`` bytes, from its last bytes or from one more request."""
    needed = trailer_size(id_, tail, size)
    if needed > len(tail):
        tail = bytes(ByteRange(StoredObject(chunk_key(id_), storage), size - needed, size).read())
    return decode_trailer(id_, tail, size)


def _require_same(id_: bytes, trailer: ChunkTrailer, offset: I64, length: I64, crcs: U32) -> None:
    """Raise ``FormatError`` if ranges of a file differ from the checksums in its trailer.

    A range that is not a whole chunk has no checksum.
    """
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


def _request(storage: Storage, ids: U8, plan: ReadPlan, number: int) -> ByteRange:
    key = chunk_key(ids[int(plan.key[number])].tobytes())
    return ByteRange(StoredObject(key, storage), int(plan.start[number]), int(plan.stop[number]))
