"""The merge of neighbouring ranges of an object, so that many small ranges need few requests.

On an object store, a request takes about 15 ms before the first byte arrives. In this time, a connection
transfers about a megabyte. So one request for two ranges of an object is faster if the gap between them is
small. Merging needs limits: without them, ranges of 1 KiB every 60 KiB would fetch sixty times the wanted
bytes. Every merged range keeps three limits (ranges inside of a larger wanted range do not count):

    max_gap     the largest gap between neighbours, in bytes
    max_waste   the sum of these gaps, in bytes
    max_size    the size of the merged range, in bytes, so that large reads still run in parallel

The functions are pure: numpy in, numpy out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ReadPlan:
    """The m ranges to fetch, and the places of the n wanted ranges in them.

    Attributes:
        key: The number of the object, int64 of shape (m,).
        start: The first byte to fetch, int64 of shape (m,).
        stop: The byte after the last byte to fetch, int64 of shape (m,).
        part: The number of the fetched range that contains the wanted range, int64 of shape (n,).
        offset: The first byte of the wanted range within the fetched range, int64 of shape (n,).
    """

    key: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    part: NDArray[np.int64]
    offset: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.key)


def plan_reads(
    keys: ArrayLike, starts: ArrayLike, stops: ArrayLike, max_gap: int, max_waste: int, max_size: int
) -> ReadPlan:
    """Return the plan for reads of ``starts[i] <= byte < stops[i]`` of the object with number ``keys[i]``.

    The wanted ranges can be in any order, and can overlap or repeat. Each is completely in one fetched range.
    """
    key, start, stop = (np.asarray(column, np.int64) for column in (keys, starts, stops))
    n = len(key)
    if n == 0:
        return ReadPlan(key, start, stop, key, key)
    order = np.lexsort((stop, start, key))
    key, first, last = key[order], start[order], stop[order]

    new_key = np.empty(n, bool)
    new_key[0] = True
    np.not_equal(key[1:], key[:-1], out=new_key[1:])
    reach = _running_maximum(last, new_key)
    gap = np.zeros(n, np.int64)
    np.subtract(first[1:], reach[:-1], out=gap[1:])
    gap[new_key] = 0
    np.maximum(gap, 0, out=gap)

    begins = np.flatnonzero(new_key | (gap > max_gap))
    gap[begins] = 0
    begins = _split(begins, first, reach, np.cumsum(gap), max_waste, max_size)

    part = np.zeros(n, np.int64)
    part[begins[1:]] = 1
    part = np.cumsum(part)
    fetched_start = first[begins]
    back = np.empty(n, np.int64)
    back[order] = np.arange(n)
    return ReadPlan(
        key[begins],
        fetched_start,
        np.maximum.reduceat(last, begins),
        part[back],
        start - fetched_start[part[back]],
    )


def _running_maximum(values: NDArray[np.int64], restart: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the running maximum of non-negative values, which starts again where ``restart`` is True."""
    if np.all((values[1:] >= values[:-1]) | restart[1:]):  # the usual case, such as the chunks of a pack
        return values
    # Lift each group above all earlier groups, so that one running maximum is enough. The lift uses ranks
    # instead of values, so that it cannot overflow.
    distinct, rank = np.unique(values, return_inverse=True)
    lift = (np.cumsum(restart) - 1) * len(distinct)
    highest: NDArray[Any] = distinct[np.maximum.accumulate(rank + lift) - lift]
    return highest


def _split(
    begins: NDArray[np.int64],
    first: NDArray[np.int64],
    reach: NDArray[np.int64],
    waste: NDArray[np.int64],
    max_waste: int,
    max_size: int,
) -> NDArray[np.int64]:
    """Return where merged ranges begin, after cuts of ranges that are too large or have too much waste.

    ``waste`` is the running sum of the gaps. Within a group, ``reach`` and ``waste`` ascend, so bisection
    finds the end of a piece. The loop runs once for each request, not for each wanted range.
    """
    ends = np.append(begins[1:], len(first))
    tail = ends - 1
    too_much = (reach[tail] - first[begins] > max_size) | (waste[tail] - waste[begins] > max_waste)
    too_much &= ends - begins > 1
    if not too_much.any():
        return begins
    cuts: list[int] = []
    for begin, end in zip(begins[too_much].tolist(), ends[too_much].tolist(), strict=True):
        at = begin
        while at < end:
            # A wanted range that is larger than the limit may still contain other wanted ranges.
            furthest = max(int(first[at]) + max_size, int(reach[at]))
            fits = at + int(np.searchsorted(reach[at:end], furthest, "right"))
            cheap = at + int(np.searchsorted(waste[at:end], int(waste[at]) + max_waste, "right"))
            at = max(at + 1, min(fits, cheap))
            cuts.append(at)
    return np.union1d(begins, np.array([cut for cut in cuts if cut < len(first)], np.int64))
