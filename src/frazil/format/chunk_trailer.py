"""Checksums of chunks, in a trailer at the end of a chunk file, which other readers ignore.

    chunks    the bytes of n chunks, one after the other, without gaps
    8 bytes   ``FRAZIL:[``
    12 bytes  id of the file: shows that two files were exchanged
    8n bytes  lengths of the chunks, uint64: show that a reference points at a wrong place
    4n bytes  checksums of the chunks, uint32: CRC-32C, which is no protection against an attacker
    8 bytes   length of the trailer, uint64
    4 bytes   version of the trailer: 1
    4 bytes   checksum of all bytes of the trailer before this one
    8 bytes   ``]:FRAZIL``

All numbers are little-endian. A file of zeros has no mark. So the *name* says that a file has a trailer: the
last two bytes of a random id are a checksum of the other ten (``marked_id``).
"""

from __future__ import annotations

from collections.abc import Buffer, Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import google_crc32c
import numpy as np

from frazil.errors import FormatError
from frazil.format.columns import I64, U8, U32, U64
from frazil.format.ids import OBJECT_ID_BYTES, chunk_key

_HEAD: Final = b"FRAZIL:["
_TAIL: Final = b"]:FRAZIL"
#: Length of the trailer, version, checksum, mark.
_END: Final = Struct("<QII8s")
_VERSION: Final = 1
_ROW: Final = 12
#: The number of bytes of an id that say that the file has a trailer.
MARK_BYTES: Final = 2
_FIXED: Final = len(_HEAD) + OBJECT_ID_BYTES + _END.size
#: The number of bytes at the end of a chunk file that tell the length of its trailer.
END_BYTES: Final = _END.size
#: The length of the trailer of a file with one chunk.
SINGLE_TRAILER_BYTES: Final = _FIXED + _ROW
#: The package has a fallback in Python, which is about 10,000 times slower.
IS_FAST: Final = google_crc32c.implementation == "c"
#: The longest trailer, that of 89 million chunks, in bytes.
_LONGEST: Final = 1 << 30
#: The function holds the interpreter lock. Between two parts, other threads can run.
_PART: Final = 16 << 20


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C of bytes."""
    view = np.frombuffer(data, np.uint8)
    value: int = google_crc32c.value(view[:_PART])
    for start in range(_PART, len(view), _PART):
        value = google_crc32c.extend(value, view[start : start + _PART])
    return value


def crc32c_rows(data: U8, length: I64) -> U32:
    """Return the CRC-32C of many chunks, one after the other in ``data``."""
    ends = np.cumsum(length)
    rows: Iterable[U8] = map(data.__getitem__, map(slice, (ends - length).tolist(), ends.tolist()))
    if len(length) and (length == length[0]).all():
        rows = data.reshape(len(length), int(length[0]))
    is_short = not len(length) or length.max() <= _PART
    return np.fromiter(map(google_crc32c.value if is_short else crc32c, rows), np.uint32, len(length))


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTrailer:
    """The trailer of a chunk file."""

    id: bytes  # of the file for which the trailer was written
    lengths: U64  # of the chunks, in bytes
    crcs: U32  # CRC-32C of the chunks
    offsets: I64  # positions of the chunks
    size: int  # the number of bytes of all chunks

    def find_ranges(self, offset: U64, length: U64) -> I64:
        """Return the rows of ranges, -1 where no chunk is exactly at this range."""
        if not len(self.offsets):
            return np.full(len(offset), -1, np.int64)
        rows = self.offsets.searchsorted(offset.astype(np.int64), side="right") - 1
        # The position of a chunk is at least 0, so the first search result is never -1.
        is_same = (self.offsets[rows] == offset.astype(np.int64)) & (self.lengths[rows] == length)
        return np.where(is_same, rows, -1)


def encode_trailer(id_: bytes, lengths: Sequence[int], crcs: Sequence[int]) -> bytes:
    """Return the trailer of a chunk file."""
    table = np.asarray(lengths, "<u8").tobytes() + np.asarray(crcs, "<u4").tobytes()
    start: bytes = _HEAD + id_ + table + _END.pack(_FIXED + len(table), _VERSION, 0, b"")[:12]
    return start + crc32c(start).to_bytes(4, "little") + _TAIL


def single_trailer(id_: bytes, chunk: Buffer) -> bytes:
    """Return the trailer of a file with one chunk."""
    return encode_trailer(id_, [memoryview(chunk).nbytes], [crc32c(chunk)])


def marked_id(lead: bytes) -> bytes:
    """Return the id of a chunk file that has a trailer."""
    return lead + crc32c(_HEAD + lead).to_bytes(4, "little")[:MARK_BYTES]


def is_marked(id_: bytes) -> bool:
    """Return whether an id says that its chunk file has a trailer. One of 65,536 other ids does by chance."""
    return marked_id(id_[:-MARK_BYTES]) == id_


def trailer_size(id_: bytes, end: Buffer, size: int) -> int:
    """Return the length of the trailer of a chunk file, 0 if the file has none."""
    last = memoryview(end).cast("B")[-END_BYTES:]
    if len(last) < END_BYTES or bytes(last[-len(_TAIL) :]) != _TAIL:
        return 0
    length, version, _, _ = _END.unpack(last)
    shortest, step = (_FIXED, _ROW) if version == _VERSION else (END_BYTES, 1)
    if not shortest <= length < size or (length - shortest) % step:
        raise _damaged(id_, f"must have a possible length in {size} bytes, got {length}")
    if length > _LONGEST:
        raise _damaged(id_, f"must have at most {_LONGEST} bytes, got {length}")
    return int(length)


def decode_trailer(id_: bytes, end: Buffer, size: int) -> ChunkTrailer | None:
    """Return the trailer of a chunk file."""
    length = trailer_size(id_, end, size)
    if not length:
        return None
    view = memoryview(end).cast("B")[-length:]
    if len(view) < length:
        raise _damaged(id_, f"must have {length} bytes, got {len(view)}")
    _, version, crc, _ = _END.unpack(view[-END_BYTES:])
    if crc32c(view[: -len(_TAIL) - 4]) != crc:
        raise _damaged(id_, "must have the checksum that it records, got other bytes")
    if version != _VERSION:
        return None
    return _table(id_, bytes(view), size - length)


def _table(id_: bytes, trailer: bytes, size: int) -> ChunkTrailer:
    start = len(_HEAD) + OBJECT_ID_BYTES
    count = (len(trailer) - _FIXED) // _ROW
    lengths = np.frombuffer(trailer, "<u8", count, start).astype(np.uint64)
    crcs = np.frombuffer(trailer, "<u4", count, start + 8 * count).astype(np.uint32)
    # Each length is at most `size`, so a sum that does not fit into 64 bits is less than the sum before it.
    ends = lengths.cumsum(dtype=np.uint64)
    total = int(ends[-1]) if count else 0
    is_possible = ((lengths > 0) & (lengths <= size)).all() and (ends[1:] >= ends[:-1]).all()
    if trailer[: len(_HEAD)] != _HEAD or not is_possible or total != size:
        raise _damaged(id_, f"must describe the {size} bytes before it, got {count} chunks of {total} bytes")
    own_id = trailer[len(_HEAD) : start]
    return ChunkTrailer(own_id, lengths, crcs, ends.astype(np.int64) - lengths.astype(np.int64), size)


def find_remains(id_: bytes, rest: Buffer) -> bool:
    """Return whether bytes contain the beginning of the trailer of a file, even if its end is cut off."""
    return bytes(rest).rfind(_HEAD + id_) >= 0


def _damaged(id_: bytes, problem: str) -> FormatError:
    return FormatError(f"{chunk_key(id_)}: the trailer {problem}")


@dataclass(frozen=True, slots=True, eq=False)
class ChunkFileCheck:
    """The comparison of a chunk file with its trailer."""

    trailer: ChunkTrailer | None  # None if the file has no trailer
    rows: I64  # of the trailer whose chunks are damaged; all rows if the file was exchanged

    @property
    def ok(self) -> bool:
        """Whether no chunk differs from its checksum. A file without a trailer has nothing that differs."""
        return not len(self.rows)


def check_file(id_: bytes, data: Buffer) -> ChunkFileCheck:
    """Compare a whole chunk file with its trailer."""
    view = memoryview(data).cast("B")
    trailer = decode_trailer(id_, view, len(view))
    if trailer is None and find_remains(id_, view):
        raise FormatError(f"{chunk_key(id_)}: the end of the trailer is damaged or cut off")
    if trailer is None:
        return ChunkFileCheck(None, np.zeros(0, np.int64))
    rows = np.arange(len(trailer.lengths))
    return ChunkFileCheck(trailer, rows if trailer.id != id_ else damaged_rows(trailer, rows, view))


def damaged_rows(trailer: ChunkTrailer, rows: I64, data: Buffer, start: int = 0) -> I64:
    """Return which chunks differ from their checksums."""
    view = memoryview(data).cast("B")
    low = (trailer.offsets[rows] - start).tolist()
    high = (trailer.offsets[rows] - start + trailer.lengths[rows].astype(np.int64)).tolist()
    crcs = np.fromiter((crc32c(view[a:b]) for a, b in zip(low, high, strict=True)), np.uint32, len(low))
    damaged: I64 = rows[crcs != trailer.crcs[rows]]
    return damaged
