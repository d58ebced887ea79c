"""Distinct ranges of chunk files and foreign objects, in limited memory.

A repository may have ten million ranges. One sort of all of them needs several copies of the columns. So
blocks of ranges are split into parts by the first bits of the digests. Equal digests are in the same part, so
each part is sorted alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U64

_PARTS: Final = 64
_SHIFT: Final = np.uint64(58)
#: The number of ranges of a block, and of ranges that wait until repetitions are removed.
_BLOCK: Final = 1 << 17
_GATHERED: Final = 1 << 23
_LARGEST_SHORT: Final = np.iinfo(np.uint32).max


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges of chunk files or foreign objects: the digest, uint64 (k,), and the length in bytes of each.

    Lengths are uint32, or uint64 if one of them is larger. With a billion ranges, one repository in forty has
    two different ranges with the same digest. Then the statistics miss one of them.
    """

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
    """Sums up the lengths of distinct ranges.

    Memory: 12 bytes for each distinct range, and for each range since repetitions were removed.
    """

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
