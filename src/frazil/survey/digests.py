"""Sets of files and of ranges in limited memory, by digests.

A digest of an id has 48 bits. Two ids may have the same digest: then a garbage collection treats them as the
same file, and spares it. It never deletes a file because of a digest. A digest of a range has 64 bits. With a
billion ranges, one repository in forty has two ranges with the same digest, and misses one in its statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from operator import methodcaller
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U8, U64
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.joined_files import ChunkRanges
from frazil.format.manifest import ChunkKind

DIGEST_BYTES: Final = 6

#: The number of first bits of a digest that are compared before the whole digest.
_START_BITS: Final = 20

_HALF: Final = np.uint64(32)
_DROPPED_BITS: Final = np.uint64(64 - 8 * DIGEST_BYTES)
_MIX: Final = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))
_STEPS: Final = ((np.uint64(30), _MIX[1]), (np.uint64(27), _MIX[2]))

#: The number of parts of a block of ranges, by the first bits of the digests. Equal digests are in the same
#: part, so each part is sorted by itself. One sort of all ranges would need several copies of the columns.
_PARTS: Final = 64
_SHIFT: Final = np.uint64(58)
#: The number of ranges of a block, and of ranges that wait until repetitions are removed.
_BLOCK: Final = 1 << 17
_GATHERED: Final = 1 << 23
_LARGEST_SHORT: Final = np.iinfo(np.uint32).max


def _mixed(one: U64, other: U64) -> U64:
    """Return a number for each pair of numbers (the last steps of splitmix64)."""
    out = one * _MIX[0]
    out += other
    for shift, factor in _STEPS:
        out ^= out >> shift
        out *= factor
    out ^= out >> np.uint64(31)
    return out


def _words(ids: U8) -> tuple[U64, U64]:
    """Return the first 8 and the last 4 bytes of ids as numbers."""
    parts = np.ascontiguousarray(ids).view("<u4").reshape(len(ids), OBJECT_ID_BYTES // 4)
    first = parts[:, 1].astype(np.uint64)
    first <<= _HALF
    first |= parts[:, 0]
    return first, parts[:, 2].astype(np.uint64)


def id_digests(ids: U8) -> U64:
    """Return the digests of ids."""
    digests: U64 = _mixed(*_words(ids))
    digests >>= _DROPPED_BITS
    return digests


def distinct_digests(digests: U64) -> U64:
    """Return each number once, sorted. ``np.unique`` uses a hash table, which takes three times as long."""
    numbers: U64 = np.sort(digests)
    new = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=new[1:])
    return numbers if new.all() else numbers[new]


def _starts(digests: U64) -> I64:
    return (digests >> np.uint64(8 * DIGEST_BYTES - _START_BITS)).view(np.int64)


class Marks:
    """Marks on the files of a list, by the digests of their ids. Memory: 17 bytes for each, and 1 MiB."""

    __slots__ = ("_digests", "_marked", "_order", "_starts")

    def __init__(self, ids: U8) -> None:
        digests = id_digests(ids)
        self._order: I64 = np.argsort(digests, kind="stable")
        self._digests = digests[self._order]
        self._marked: NDArray[np.bool_] = np.zeros(len(ids), bool)
        #: The first bits that digests of the files have: most digests of others fail this fast test.
        self._starts: NDArray[np.bool_] = np.zeros(1 << _START_BITS, bool)
        self._starts[_starts(digests)] = True

    def __len__(self) -> int:
        return len(self._digests)

    def mark(self, digests: U64) -> None:
        """Mark the files with these digests."""
        if len(self._digests) < len(self._starts):
            digests = digests[self._starts[_starts(digests)]]
        if len(self._digests) and len(digests):
            places = np.minimum(np.searchsorted(self._digests, digests), len(self._digests) - 1)
            self._marked[places[self._digests[places] == digests]] = True

    def rows(self) -> NDArray[np.bool_]:
        """Return which files are marked. Of files with equal digests, all are marked or none."""
        marked = self._marked
        starts = np.flatnonzero(np.append(True, self._digests[1:] != self._digests[:-1]))
        if 0 < len(starts) < len(marked):
            runs = np.logical_or.reduceat(marked, starts)
            marked = np.repeat(runs, np.diff(np.append(starts, len(marked))))
        rows = np.empty(len(marked), bool)
        rows[self._order] = marked
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges of chunk files or foreign objects: digests, uint64 (k,), and lengths, uint32 or uint64."""

    digests: U64
    lengths: NDArray[Any]

    def __len__(self) -> int:
        return len(self.digests)

    @classmethod
    def of(cls, digests: U64, lengths: U64) -> Ranges:
        """Return ranges with short lengths where possible."""
        is_short = not len(lengths) or int(lengths.max()) <= _LARGEST_SHORT
        return cls(digests, lengths.astype(np.uint32) if is_short else lengths)

    @classmethod
    def concat(cls, parts: Sequence[Ranges]) -> Ranges:
        """Return the ranges of all parts."""
        digests = [np.zeros(0, np.uint64), *(part.digests for part in parts)]
        lengths = [np.zeros(0, np.uint32), *(part.lengths for part in parts)]
        return cls(np.concatenate(digests), np.concatenate(lengths))

    def distinct(self) -> Ranges:
        """Return each range once."""
        # A sort of numbers is three times as fast as their order, and most manifests share no ranges.
        numbers = np.sort(self.digests)
        if not (numbers[1:] == numbers[:-1]).any():
            return self
        order = np.argsort(self.digests)
        numbers = self.digests[order]
        first = order[np.append(True, numbers[1:] != numbers[:-1])]
        return Ranges(self.digests[first], self.lengths[first])

    def split(self) -> list[Ranges]:
        """Return the parts of a block, by the first bits of the digests."""
        numbers = (self.digests >> _SHIFT).astype(np.uint8)
        order = np.argsort(numbers, kind="stable")
        digests, lengths = self.digests[order], self.lengths[order]
        stops = np.cumsum(np.bincount(numbers, minlength=_PARTS)).tolist()
        rows = map(slice, [0, *stops[:-1]], stops)
        return [Ranges(digests[part], lengths[part]) for part in rows]


class DistinctRanges:
    """Sums up the lengths of distinct ranges. Memory: 12 bytes for each distinct one."""

    __slots__ = ("_blocks", "_gathered", "_held", "_settled", "_waiting")

    def __init__(self) -> None:
        self._gathered: list[Ranges] = []
        self._waiting = 0
        self._blocks: list[list[Ranges]] = []
        self._held = 0
        self._settled = 0

    def add(self, ranges: Ranges) -> None:
        """Add ranges."""
        self._gathered.append(ranges)
        self._waiting += len(ranges)
        if self._waiting >= _BLOCK:
            self._pack()
            if self._held > max(2 * self._settled, _GATHERED):
                self._blocks = [[part.distinct() for part in self._parts()]]
                self._held = self._settled = sum(map(len, self._blocks[0]))

    def length(self) -> int:
        """Return the total length of the distinct ranges."""
        self._pack()
        return sum(int(part.distinct().lengths.sum(dtype=np.uint64)) for part in self._parts())

    def _pack(self) -> None:
        block = Ranges.concat(self._gathered)
        self._gathered, self._waiting = [], 0
        self._blocks.append(block.split())
        self._held += len(block)

    def _parts(self) -> map[Ranges]:
        return map(Ranges.concat, zip(*self._blocks, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class RangeSums:
    """The content of some manifests: ranges of chunk files, ranges of foreign objects, and inline bytes."""

    native: Ranges
    virtual: Ranges
    inline: int

    @classmethod
    def of(cls, tables: Sequence[ChunkRanges]) -> RangeSums:
        """Return the content of some tables of references."""
        hashed, digest = partial(blake2b, digest_size=OBJECT_ID_BYTES), methodcaller("digest")
        locations = [b"".join(map(digest, map(hashed, table.locations.blobs()))) for table in tables]
        ids = [np.frombuffer(each, np.uint8).reshape(-1, OBJECT_ID_BYTES) for each in locations]
        return cls(
            _ranges(tables, ChunkKind.NATIVE, [table.chunk_ids for table in tables]),
            _ranges(tables, ChunkKind.VIRTUAL, ids),
            sum(int(table.length[table.kind == ChunkKind.INLINE].sum()) for table in tables),
        )


def _ranges(tables: Sequence[ChunkRanges], kind: ChunkKind, ids: Sequence[U8]) -> Ranges:
    rows = [table.kind == kind for table in tables]
    pairs = [(table, np.s_[:] if at.all() else at) for table, at in zip(tables, rows, strict=True)]
    firsts = np.cumsum([0, *map(len, ids)]).astype(np.uint32)
    sources = [table.source[at] + first for (table, at), first in zip(pairs, firsts, strict=False)]
    offset, length = (
        _joined([getattr(table, name)[at] for table, at in pairs]) for name in ("offset", "length")
    )
    numbers = _mixed(*_words(_joined(ids)))[_joined(sources)]
    return Ranges.of(_mixed(_mixed(numbers, offset), length), length)


def _joined(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
