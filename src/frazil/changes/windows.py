"""Windows: the parts of the chunk grid whose references share a manifest, by the number of references.

With the splitting ``"auto"`` no configuration says how large a manifest is. The rule has these words:

    key         the coordinates of a chunk as one number, with the bits of the leading dimension first. So the
                order of keys is the order of coordinates, if the leading dimension comes first
    cell        all keys that are equal without their last k bits: a box of the grid. A cell of k + 1 bits
                has two cells of k bits
    capacity    the largest number of references in a manifest
    window      the largest cell that has no more references than the capacity

An array that grows along its leading dimension fills the last window, until this window is full. Then the
next cell of the same size is the last window. So a step changes one manifest, and no window is cut again.
An overfull window is cut in halves. Two neighbours that have become small become one window when a commit
changes one of them. Nothing is stored about windows: they follow from the boxes and the counts of the
manifests in the snapshot. Manifests with other boxes, of other writers or earlier rules, are cut when a
commit changes them.

Design: ``design/055-manifests-that-split-themselves.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.grid_keys import MOST_BITS, Axes, Spans
from frazil.format.columns import I64, U32

#: The largest number of references in a manifest of a small array: 40 to 190 KB.
CAPACITY: Final = 8192
#: The bytes of a manifest in the snapshot, divided by the bytes of a reference in its manifest.
_ENTRY_BYTES: Final = 1.5
#: How full windows are on average: a window is between half full and full.
_FULLNESS: Final = 0.75
#: A window with less than this part of the capacity is small.
_SMALL: Final = 4
#: The number of keys whose windows are looked up at once.
_PROBES: Final = 512


def capacity_for(refs: int) -> int:
    """Return the largest number of references in a manifest, for an array with ``refs`` references.

    A commit of one chunk writes a manifest and a list of all manifests, the snapshot. The sum is smallest for
    manifests in proportion to the square root of the references. The capacities are powers of two.
    """
    best = (_ENTRY_BYTES * refs) ** 0.5 / _FULLNESS
    return int(CAPACITY * 2 ** max(0, round(np.log2(max(best, 1) / CAPACITY))))


def windows_of(keys: I64, spans: Spans, loose: I64, capacity: int) -> tuple[I64, I64]:
    """Return the first keys and the numbers of bits of the windows that contain ``keys``."""
    first: list[I64] = []
    bits: list[I64] = []
    left = keys
    while len(left):
        probes = left[:: -(-len(left) // _PROBES)]
        level = _bits_of(probes, spans, loose, capacity)
        start = (probes >> level) << level
        start, rows = np.unique(start, return_index=True)
        first.append(start)
        bits.append(level[rows])
        left = _outside(left, start, start + (np.int64(1) << level[rows]))
    if not first:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts, levels = np.concatenate(first), np.concatenate(bits)
    order = np.argsort(starts)
    return starts[order], levels[order]


def _outside(keys: I64, start: I64, stop: I64) -> I64:
    """Return the sorted keys outside of disjoint half-open spans, which are sorted, too."""
    begins = np.append(np.searchsorted(keys, start), len(keys))
    ends = np.append(np.zeros(1, np.int64), np.searchsorted(keys, stop))
    gaps = np.flatnonzero(ends < begins)
    parts = [keys[low:high] for low, high in zip(ends[gaps].tolist(), begins[gaps].tolist(), strict=True)]
    return np.concatenate(parts) if parts else keys[:0]


def _bits_of(keys: I64, spans: Spans, loose: I64, capacity: int) -> I64:
    """Return the bits of the window of each key, by a binary search over the sizes of cells."""
    low = np.zeros(len(keys), np.int64)
    high = np.full(len(keys), MOST_BITS, np.int64)
    while (low < high).any():
        middle = (low + high + 1) >> 1
        start = (keys >> middle) << middle
        last = start + ((np.int64(1) << middle) - 1)
        begin, end = spans.meeting(start, last)
        count = spans.before[end] - spans.before[begin]
        count += np.searchsorted(loose, last, "right") - np.searchsorted(loose, start, "left")
        fits = count <= capacity
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return low


def neighbours(spans: Spans, first: I64, last: I64, capacity: int) -> list[int]:
    """Return spans beside small windows that are read too, so that a small window becomes larger.

    ``first`` and ``last`` are the windows that a commit writes. The last window of the array may be small: it
    grows when the array grows.
    """
    out: list[int] = []
    low, high = spans.meeting(first, last)
    counts = spans.before[high] - spans.before[low]
    for row in np.flatnonzero(counts * _SMALL < capacity).tolist():
        if high[row] >= len(spans):
            continue
        for other in (int(low[row]) - 1, int(high[row])):
            if 0 <= other < len(spans) - 1 and counts[row] + spans.counts[other] <= capacity:
                out.append(other)
                break
    return out


@dataclass(frozen=True, slots=True)
class Windows:
    """How a commit divides the references that it writes into manifests.

    ``others`` are the first and last keys of the manifests that stay, as bytes of int64.
    """

    axes: Axes
    capacity: int
    others: bytes = b""

    def rows(self, index: U32) -> list[NDArray[np.int64] | slice]:
        """Return the rows of each window, for coordinates of shape (n, ndim) without repetitions."""
        if 0 < len(index) <= self.capacity and not self.others:
            return [np.arange(len(index))]
        keys = self.axes.keys(index)
        order = None
        if not (keys[1:] > keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
        pairs = np.frombuffer(self.others, np.int64).reshape(2, -1)
        spans, _ = Spans.of(pairs[0], pairs[1], np.full(pairs.shape[1], self.capacity + 1, np.int64))
        first, bits = windows_of(keys, spans, keys, self.capacity)
        cuts = np.searchsorted(keys, first)
        last = first + ((np.int64(1) << bits) - 1)
        starts = self._joined(first, last, np.diff(np.append(cuts, len(keys))), spans)
        ends = [*cuts[starts][1:].tolist(), len(keys)]
        parts = [slice(low, high) for low, high in pairwise([0, *ends])] if len(keys) else []
        return list(parts) if order is None else [order[part] for part in parts]

    def _joined(self, first: I64, last: I64, counts: I64, spans: Spans) -> list[int]:
        """Return the windows at which manifests begin, after small windows joined a neighbour."""
        starts: list[int] = []
        size = 0
        tail = len(counts) - 1  # the last window of the array may be small: it grows when the array grows
        if len(spans) and len(first) and spans.last[-1] > first[-1]:
            tail = len(counts)
        for row, count in enumerate(counts.tolist()):
            small = min(size, count) * _SMALL < self.capacity and row < tail
            if starts and small and size + count <= self.capacity:
                begin, end = int(first[starts[-1]]), int(last[row])
                low, high = spans.meeting(np.array([begin]), np.array([end]))
                if low[0] == high[0] and self.axes.is_box(begin, end):
                    size += count
                    continue
            starts.append(row)
            size = count
        return starts
