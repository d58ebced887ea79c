"""Keys of chunks: coordinates as numbers, with the bits of a leading dimension first; and spans of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U32

#: Keys have at most this number of bits.
MOST_BITS: Final = 62


@dataclass(frozen=True, slots=True)
class Spans:
    """Disjoint spans of keys, sorted: the first and last key, and the sum of the counts before each span."""

    first: I64
    last: I64
    before: I64

    @classmethod
    def of(cls, first: I64, last: I64, counts: I64) -> tuple[Spans, I64]:
        """Return disjoint spans, and for each given span the number of the span that contains it."""
        order = np.argsort(first, kind="stable")
        reach = np.maximum.accumulate(last[order])
        begins = np.ones(len(order), bool)
        begins[1:] = first[order][1:] > reach[:-1]
        number = np.empty(len(order), np.int64)
        number[order] = np.cumsum(begins) - 1
        rows = np.flatnonzero(begins)
        ends = np.append(rows[1:], len(order)) - 1 if len(rows) else rows
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[order])])
        return cls(first[order][rows], reach[ends], np.append(total[rows], total[-1])), number

    def __len__(self) -> int:
        return len(self.first)

    @property
    def counts(self) -> I64:
        """The number of references of each span."""
        return np.diff(self.before)

    def without(self, deleted: I64) -> Spans:
        """Return the spans with one reference less for each number of a span in ``deleted``."""
        if not len(deleted):
            return self
        left = np.maximum(self.counts - np.bincount(deleted, minlength=len(self)), 0)
        return replace(self, before=np.concatenate([np.zeros(1, np.int64), np.cumsum(left)]))

    def meeting(self, first: I64, last: I64) -> tuple[I64, I64]:
        """Return the half-open ranges of spans that meet other spans."""
        low = np.searchsorted(self.last, first, "left")
        return low, np.maximum(np.searchsorted(self.first, last, "right"), low)

    def having(self, keys: I64) -> I64:
        """Return the numbers of the spans of keys, or -1 for keys without a span."""
        if not len(self):
            return np.full(len(keys), -1, np.int64)
        at = np.searchsorted(self.first, keys, "right") - 1
        return np.where((at >= 0) & (keys <= self.last[np.maximum(at, 0)]), at, -1)


@dataclass(frozen=True, slots=True)
class Axes:
    """The order of the dimensions in keys, and the bits of each dimension, by this order."""

    order: tuple[int, ...]
    bits: tuple[int, ...]

    @classmethod
    def leading(cls, axis: int, limits: Sequence[int]) -> Axes:
        """Return the axes with one dimension first. ``limits`` are the chunks along each dimension."""
        order = (axis, *(other for other in range(len(limits)) if other != axis))
        return cls(order, tuple(max(limits[each] - 1, 0).bit_length() for each in order))

    @property
    def is_possible(self) -> bool:
        """Whether keys of the grid fit into a number."""
        return sum(self.bits) <= MOST_BITS

    def keys(self, index: NDArray[np.integer]) -> I64:
        """Return the keys of coordinates of shape (n, ndim)."""
        out = np.zeros(len(index), np.int64)
        for axis, bits in zip(self.order, self.bits, strict=True):
            out <<= bits
            out |= index[:, axis].astype(np.int64)
        return out

    def is_box(self, first: int, last: int) -> bool:
        """Return whether the chunks between two keys, inclusive, are a box that no other box can cross.

        It is a box if the keys differ in one dimension, and are whole in all dimensions after it.
        """
        low = sum(self.bits)
        for bits in self.bits:
            low -= bits
            if first >> low != last >> low:
                whole = (1 << low) - 1
                return first & whole == 0 and last & whole == whole
        return True


def leading_axis(extents: U32, num_chunks: Sequence[int], before: Sequence[int]) -> int:
    """Return the dimension along which the windows of an array are cut.

    The windows that exist decide. Without them it is the dimension that grew, or else the first one of
    several chunks.
    """
    grown = [axis for axis, (new, old) in enumerate(zip(num_chunks, before, strict=True)) if new > old]
    several = [axis for axis, count in enumerate(num_chunks) if count > 1]
    preferred = list(dict.fromkeys([*grown, *several, 0]))
    if len(extents) < 2:
        return preferred[0]
    limits = np.maximum(extents[:, :, 1].max(axis=0), 1).tolist()
    best = (0, preferred[0])
    for axis in preferred:
        axes = Axes.leading(axis, limits)
        if not axes.is_possible:
            continue
        spans, _ = Spans.of(*corners(axes, extents), np.zeros(len(extents), np.int64))
        if len(spans) > best[0]:
            best = (len(spans), axis)
        if len(spans) == len(extents):
            break
    return best[1]


def corners(axes: Axes, extents: U32) -> tuple[I64, I64]:
    """Return the first and the last key of boxes, (m, ndim, 2), half-open."""
    boxes = extents.astype(np.int64)
    return axes.keys(boxes[:, :, 0]), axes.keys(np.maximum(boxes[:, :, 1] - 1, 0))
