"""Chunk coordinates: their order, search keys for them, and their layout in flatbuffers.

The coordinates of n chunks are uint32 of shape (n, ndim), sorted by the first coordinate, then the second,
and so on. In a file each chunk has a table with a vector of ndim numbers, and each array has a vector of such
tables.

Specification: *ChunkRef* and *ArrayUpdatedChunks*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError
from frazil.format.columns import I64, U32, row_keys
from frazil.format.flatbuffer import Layout, Tables


def ascending(index: U32) -> bool:
    """Return whether the rows are strictly ascending.

    >>> ascending(np.array([[0, 5], [1, 0], [1, 1]], np.uint32))
    True
    """
    if len(index) < 2:
        return True
    # From the last dimension to the first, because later dimensions decide ties of earlier ones.
    verdict = np.zeros(len(index) - 1, np.bool_)
    for column in index.T[::-1]:
        before, after = column[:-1], column[1:]
        verdict &= before == after
        verdict |= before < after
    return bool(verdict.all())


def box(index: U32) -> list[int]:
    """Return the largest coordinate plus one, for each dimension."""
    # numpy is much slower along the rows of a narrow matrix than along a column.
    return [int(column.max()) + 1 for column in index.T] if len(index) else [0] * index.shape[1]


def lowest(index: U32) -> list[int]:
    """Return the smallest coordinate, for each dimension of at least one chunk."""
    return [int(column.min()) for column in index.T]


def within(index: U32, limits: Sequence[int]) -> NDArray[np.bool_]:
    """Return which rows have only coordinates below ``limits``, one for each dimension.

    >>> within(np.array([[1, 2], [0, 4]], np.uint32), [2, 4]).tolist()
    [True, False]
    """
    inside = np.ones(len(index), np.bool_)
    for column, limit in zip(index.T, limits, strict=True):
        inside &= column < limit
    return inside


def keys(index: U32, limits: Sequence[int]) -> NDArray[Any]:
    """Return search keys that order the rows within ``limits`` like their coordinates.

    A key is an int64, the number of the chunk in the box of these limits. If such numbers need more than 62
    bits, the keys are byte strings.

    >>> keys(np.array([[1, 2], [0, 3]], np.uint32), [2, 4]).tolist()
    [6, 3]
    """
    room = 1
    for limit in limits:
        room *= limit
    if room > 1 << 62:
        return row_keys(index)
    numbers = np.zeros(len(index), np.int64)
    for column, limit in zip(index.T, limits, strict=True):
        numbers *= limit
        numbers += column
    return numbers


def by_rank(ndims: I64, counts: I64) -> Iterator[tuple[int, list[int], I64 | slice]]:
    """Yield each rank with the arrays of this rank, and their rows among the rows of all arrays."""
    for ndim in sorted(set(ndims.tolist())):
        chosen = ndims == ndim
        rows = slice(None) if chosen.all() else np.flatnonzero(np.repeat(chosen, counts))
        yield ndim, np.flatnonzero(chosen).tolist(), rows


def joined(parts: Sequence[U32]) -> U32:
    """Return the coordinates of several arrays of one rank, without copying if there is only one array."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@cache
def coordinates_layout(fields: tuple[tuple[int, str], ...], slots: int, slot: int, ndim: int) -> Layout:
    """Return the layout of a table with other ``fields``, and coordinates for ``slot`` in its tail."""
    tail = np.dtype([("count", "<u4"), ("at", "<u4", (ndim,))])
    return Layout({slot: "u4", **dict(fields)}, slots, tail)


def put_coordinates(records: NDArray[Any], layout: Layout, slot: int, index: U32) -> None:
    """Fill the vectors of coordinates of tables with ``coordinates_layout``."""
    records[f"f{slot}"] = layout.tail_offset - layout.place(slot)
    records["tail"]["count"] = index.shape[1]
    tails = records["tail"]["at"]
    for place, column in enumerate(index.T):  # several times as fast as a copy of short rows
        tails[:, place] = column


def read_coordinates(tables: Tables, slot: int, counts: I64, check: str) -> tuple[U32, I64, I64]:
    """Read the coordinates of many arrays, each with ``counts`` consecutive tables.

    ``check`` is the rule that all coordinates of an array have the same rank.
    """
    filled = counts > 0
    ndims = np.zeros(len(counts), np.int64)
    matrix = tables.even_numbers(slot, "<u4")
    if matrix is not None:
        ndims[filled] = matrix.shape[1]
        sizes = ndims * counts
        return matrix.reshape(-1), ndims, np.cumsum(sizes) - sizes
    index = tables.numbers(slot, "<u4")
    starts = np.cumsum(counts) - counts
    ndims[filled] = index.lengths[starts[filled]]
    wrong = np.flatnonzero(np.repeat(ndims, counts) != index.lengths)
    if len(wrong):
        place = int(wrong[0])
        expected, actual = int(np.repeat(ndims, counts)[place]), int(index.lengths[place])
        raise FormatError(
            f"all coordinates of an array must have {expected} numbers, got {actual} at chunk {place}",
            check=check,
        )
    sizes = ndims * counts
    return index.values, ndims, np.cumsum(sizes) - sizes


def cut(numbers: U32, starts: I64, counts: I64, ndims: I64) -> list[U32]:
    """Return the coordinates of each array, shape (n, ndim), from the numbers of all arrays."""
    stops = starts + counts * ndims
    parts = map(numbers.__getitem__, map(slice, starts.tolist(), stops.tolist()))
    return list(map(np.ndarray.reshape, parts, zip(counts.tolist(), ndims.tolist(), strict=True)))


def unsorted_arrays(numbers: U32, ndims: I64, starts: I64, counts: I64) -> Iterator[int]:
    """Yield the numbers of the arrays whose coordinates are not strictly ascending.

    One comparison covers all arrays of one rank: the number of the array is the first column.
    """
    for ndim, members, _ in by_rank(ndims, counts):
        chosen = np.array(members)
        parts = cut(numbers, starts[chosen], counts[chosen], np.full(len(chosen), ndim))
        owners = np.repeat(np.arange(len(members), dtype=np.uint32), counts[chosen])
        if not ascending(np.column_stack((owners, np.concatenate(parts)))):
            yield from (each for each, part in zip(members, parts, strict=True) if not ascending(part))


def ranks(arrays: Sequence[U32]) -> I64:
    """Return the number of dimensions of each array's coordinates."""
    return np.fromiter(map(itemgetter(1), map(attrgetter("shape"), arrays)), np.int64, len(arrays))


def in_order(arrays: Sequence[U32]) -> list[U32]:
    """Return the coordinates of each array sorted, without a Python loop over sorted arrays."""
    if len(arrays) == 1 and ascending(arrays[0]):
        return list(arrays)
    counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
    out = dict(zip(range(len(arrays)), arrays, strict=True))
    for ndim, members, _ in by_rank(ranks(arrays), counts):
        sizes = counts[members]
        owners = np.repeat(np.arange(len(members), dtype=np.uint32), sizes)
        # With the array's number as the first column, one comparison and one sort cover all arrays.
        numbered = np.column_stack((owners, joined(list(map(arrays.__getitem__, members)))))
        if not ascending(numbered):
            order = keys(numbered, box(numbered)).argsort(kind="stable")
            numbers = numbered[order, 1:].reshape(-1)
            starts = (np.cumsum(sizes) - sizes) * ndim
            out.update(zip(members, cut(numbers, starts, sizes, np.full(len(members), ndim)), strict=True))
    return list(out.values())
