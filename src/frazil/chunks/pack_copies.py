"""Copies of many ranges of chunk files into new packs.

The ranges are columns. Their order is the order in the new packs, so that chunks that are neighbours in an
array stay neighbours. One step copies the ranges of one pack: it reads them with merged requests, places the
bytes in a buffer, and stores the buffer as one file. So the memory is about that of two packs, whatever the
number of ranges is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from frazil.chunks.coalesce import ReadPlan, plan_reads
from frazil.chunks.ranges import ByteRange, StoredObject
from frazil.format.columns import I64, U8, copy_rows
from frazil.format.ids import OBJECT_ID_BYTES, id_matrix
from frazil.format.keys import chunk_key
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

#: The limits of merged requests, in bytes.
_MAX_GAP: Final = 256 << 10
_MAX_WASTE: Final = 2 << 20
_MAX_SIZE: Final = 8 << 20


@dataclass(frozen=True, slots=True, eq=False)
class FileRanges:
    """n ranges of chunk files.

    Attributes:
        ids: The ids of the files, uint8 of shape (m, 12).
        source: The row of the file of each range in ``ids``, int64 of shape (n,).
        offset: The first byte of each range, int64 of shape (n,).
        length: The number of bytes of each range, int64 of shape (n,), at least 1.
    """

    ids: U8
    source: I64
    offset: I64
    length: I64

    def __len__(self) -> int:
        return len(self.length)

    def distinct(self) -> tuple[FileRanges, I64]:
        """Return each range once, in the order of the first occurrences, and the new row of each row.

        Examples:
            >>> columns = np.array([[1, 0, 1], [5, 0, 5], [2, 3, 2]])
            >>> ranges, rows = FileRanges(np.zeros((2, 12), np.uint8), *columns).distinct()
            >>> ranges.source.tolist(), rows.tolist()
            ([1, 0], [0, 1, 0])
        """
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
        ranges = FileRanges(self.ids, self.source[rows], self.offset[rows], self.length[rows])
        return ranges, rank[number]


def copy_to_packs(
    storage: Storage, ranges: FileRanges, *, pack_size: int, new_id: Callable[[], bytes], least: int = 1
) -> FileRanges:
    """Copy ranges of chunk files into new packs, which are durable on return.

    Args:
        storage: The storage of the repository.
        ranges: The ranges. Their order is the order in the packs.
        pack_size: The largest size of a pack in bytes. A larger range gets a file of its own.
        new_id: Returns the id of a new chunk file, 12 random bytes.
        least: The smallest number of ranges of a pack. Smaller packs are not written. Default: 1.

    Returns:
        The ranges of the copies, in the same order. The source of a range that was not copied is -1.

    Raises:
        StorageError: ``object-not-found`` for a missing file, ``invalid-object-size`` for a file that is too
            short. Another kind if the storage fails.

    Examples:
        >>> import itertools
        >>> from frazil.storage import in_memory_storage
        >>> storage, numbers = in_memory_storage(), itertools.count()
        >>> def new_id():
        ...     return next(numbers).to_bytes(12, "big")
        >>> stored = storage.put(chunk_key(new_id()), b"0123456789")
        >>> one = FileRanges(np.zeros((1, 12), np.uint8), *np.array([[0, 0], [7, 1], [3, 2]]))
        >>> copies = copy_to_packs(storage, one, pack_size=1 << 20, new_id=new_id)
        >>> bytes(storage.get(chunk_key(copies.ids[0].tobytes()))), copies.offset.tolist()
        (b'78912', [0, 3])
    """
    ids: list[bytes] = []
    source, offset = np.zeros((2, len(ranges)), np.int64)
    for start, stop in _pack_bounds(ranges.length, pack_size):
        rows = slice(start, stop)
        length = ranges.length[rows]
        if stop - start < least:
            source[rows] = -1
            continue
        offset[rows] = np.cumsum(length) - length
        source[rows] = len(ids)
        pack = _read_pack(storage, ranges, rows, offset[rows])
        ids.append(new_id())
        storage.put(chunk_key(ids[-1]), memoryview(pack))
    return FileRanges(id_matrix(ids, OBJECT_ID_BYTES), source, offset, ranges.length)


def _pack_bounds(length: I64, pack_size: int) -> Iterator[tuple[int, int]]:
    """Yield the rows of each pack. The loop runs once for each pack."""
    ends = np.cumsum(length)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + pack_size, "right")))
        yield start, stop
        start = stop


def _read_pack(storage: Storage, ranges: FileRanges, rows: slice, places: I64) -> U8:
    """Return the bytes of a pack, for ``rows`` of the ranges, each at its place."""
    source, offset, length = ranges.source[rows], ranges.offset[rows], ranges.length[rows]
    plan = plan_reads(source, offset, offset + length, _MAX_GAP, _MAX_WASTE, _MAX_SIZE)
    pack = np.empty(int(length.sum()), np.uint8)
    order = np.argsort(plan.part, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(plan.part[order])) + 1)

    def read_part(number: int) -> None:
        data = np.frombuffer(_request(storage, ranges.ids, plan, number).read(), np.uint8)
        wanted = parts[number]
        copy_rows(pack, places[wanted], data, plan.offset[wanted], length[wanted])

    map_bounded(Purpose.RANGE_READS, read_part, range(len(plan)))
    return pack


def _request(storage: Storage, ids: U8, plan: ReadPlan, number: int) -> ByteRange:
    key = chunk_key(ids[int(plan.key[number])].tobytes())
    return ByteRange(StoredObject(key, storage), int(plan.start[number]), int(plan.stop[number]))
