"""Many small ranges, few requests: which neighbouring ranges to fetch together.

A request costs about 15 ms on an object store before the first byte comes, in which a connection carries
about a megabyte. Two ranges of one object are therefore better fetched as one if what lies between them is
small. Merging without a bound is a trap: ranges of 1 KiB every 60 KiB would fetch sixty times what was asked
for. Three bounds hold for every range that was merged (of ranges within a larger one, only that one counts):

    max_gap     between neighbours, in bytes not asked for
    max_waste   sum of these gaps, in bytes
    max_size    of the merged range, in bytes, so that large reads still run side by side

Pure: numpy in, numpy out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ReadPlan:
    """m ranges to fetch, and where in them the n wanted ranges are.

    key, start, stop   int64 (m,)  object number, first byte, byte after the last
    part               int64 (n,)  which fetched range holds the wanted range
    offset             int64 (n,)  first byte of the wanted range within the fetched one
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
    """Plan the reads of ``starts[i] <= byte < stops[i]`` of object number ``keys[i]``, in any order.

    Wanted ranges may overlap or repeat; each lies whole in one fetched range.

    >>> plan = plan_reads([7, 7, 7], [100, 0, 5000], [200, 90, 5100], max_gap=64, max_waste=64, max_size=4096)
    >>> plan.start.tolist(), plan.stop.tolist()
    ([0, 5000], [200, 5100])
    >>> plan.part.tolist(), plan.offset.tolist()
    ([0, 0, 1], [100, 0, 0])
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
    """Running maximum of non-negative values that begins anew wherever ``restart``."""
    if np.all((values[1:] >= values[:-1]) | restart[1:]):  # as for the chunks of a pack
        return values
    # Sorting by (group, value) is not needed: lifting each group above all earlier ones makes one running
    # maximum serve all. Values are ranked first, so that the lift cannot overflow.
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
    """Return where merged ranges begin, after cutting those that are too large or too wasteful.

    ``waste`` is the running sum of the gaps. Within a group ``reach`` and ``waste`` ascend, so the end of a
    piece is found by bisection: the loop runs once per request that will be made, not per wanted range.
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
            # A range that is already larger than allowed may still carry those that lie within it.
            furthest = max(int(first[at]) + max_size, int(reach[at]))
            fits = at + int(np.searchsorted(reach[at:end], furthest, "right"))
            cheap = at + int(np.searchsorted(waste[at:end], int(waste[at]) + max_waste, "right"))
            at = max(at + 1, min(fits, cheap))
            cuts.append(at)
    return np.union1d(begins, np.array([cut for cut in cuts if cut < len(first)], np.int64))
