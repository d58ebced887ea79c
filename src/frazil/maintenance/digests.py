"""Digests of ids: numbers of 48 bits, which are much faster to sort and to compare than ids of 12 bytes.

Two ids may have the same digest. In a repository with ten million chunk files, one of 30 million others has
the digest of one of them. A garbage collection treats equal digests as the same file, so it spares this one
file. It never deletes a file because of a digest.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U8, U64
from frazil.format.ids import OBJECT_ID_BYTES

DIGEST_BYTES: Final = 6

_HALF: Final = np.uint64(32)
_DROPPED_BITS: Final = np.uint64(64 - 8 * DIGEST_BYTES)
_MIX: Final = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))
_STEPS: Final = ((np.uint64(30), _MIX[1]), (np.uint64(27), _MIX[2]))


def mixed(one: U64, other: U64) -> U64:
    """Return a number for each pair of numbers (the last steps of splitmix64)."""
    out = one * _MIX[0]
    out += other
    for shift, factor in _STEPS:
        out ^= out >> shift
        out *= factor
    out ^= out >> np.uint64(31)
    return out


def id_words(ids: U8) -> tuple[U64, U64]:
    """Return the first 8 and the last 4 bytes of ids as numbers."""
    parts = np.ascontiguousarray(ids).view("<u4").reshape(len(ids), OBJECT_ID_BYTES // 4)
    first = parts[:, 1].astype(np.uint64)
    first <<= _HALF
    first |= parts[:, 0]
    return first, parts[:, 2].astype(np.uint64)


def id_digests(ids: U8) -> U64:
    """Return the digests of ids."""
    digests: U64 = mixed(*id_words(ids))
    digests >>= _DROPPED_BITS
    return digests


def distinct_digests(digests: U64) -> U64:
    """Return each number once, sorted. ``np.unique`` uses a hash table, which takes three times as long."""
    numbers: U64 = np.sort(digests)
    new = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=new[1:])
    return numbers if new.all() else numbers[new]


class Marks:
    """Marks on the files of a list, by the digests of their ids.

    Memory: 17 bytes for each file.
    """

    __slots__ = ("_digests", "_marked", "_order")

    def __init__(self, ids: U8) -> None:
        digests = id_digests(ids)
        self._order: I64 = np.argsort(digests, kind="stable")
        self._digests = digests[self._order]
        self._marked: NDArray[np.bool_] = np.zeros(len(ids), bool)

    def __len__(self) -> int:
        return len(self._digests)

    def mark(self, digests: U64) -> None:
        """Mark the files with these digests."""
        if len(self._digests):
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
