"""Encodes the coordinates of chunks as columns of a message.

The coordinates of a chunk become its number in the box of the array, and then the difference to the previous
chunk: 0 for consecutive chunks. Boxes with too many chunks for int64 have a column for each axis instead.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from frazil.errors import FormatError
from frazil.format.columns import I64, U32
from frazil.format.coordinates import ascending
from frazil.jobs.wire_columns import ColumnReader, ColumnWriter

#: Numbers of chunks are int64, and the sum of two must not overflow.
_MOST_CHUNKS: Final = 1 << 62


def put_coordinates(out: ColumnWriter, name: str, index: U32, counts: I64) -> None:
    """Add the coordinates of all arrays of one rank. ``counts`` are their numbers of chunks, at least 1."""
    starts = np.cumsum(counts) - counts
    limits = np.maximum.reduceat(index, starts, axis=0).astype(np.int64) + 1
    if float(np.prod(limits.astype(np.float64), axis=1).max()) > _MOST_CHUNKS:
        for axis, column in enumerate(index.T):
            out.numbers(f"{name} axis {axis}", np.diff(column, prepend=np.uint32(0)))
        return
    numbers = np.zeros(len(index), np.int64)
    for column, limit in zip(index.T, limits.T, strict=True):
        numbers *= limit if len(limit) == 1 else np.repeat(limit, counts)
        numbers += column
    steps = np.diff(numbers, prepend=0) - 1
    steps[starts] = 0
    out.numbers(f"{name} limits", limits.reshape(-1), least=1)
    out.numbers(f"{name} first", numbers[starts])
    out.numbers(f"{name} steps", steps)


def read_coordinates(columns: ColumnReader, name: str, rank: int, counts: I64) -> U32:
    """Return the coordinates of all arrays of one rank, (chunks, rank)."""
    total, starts = int(counts.sum()), np.cumsum(counts) - counts
    index = np.empty((total, rank), np.uint32)
    size = columns.count(f"{name} limits")
    if rank and not size:
        for axis in range(rank):
            steps = columns.numbers(f"{name} axis {axis}", total).astype(np.uint32)
            np.cumsum(steps, dtype=np.uint32, out=index[:, axis])
        owners = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
        if not ascending(np.column_stack((owners, index))):
            raise FormatError(f"{name}: chunk coordinates must be in ascending order, got others")
        return index
    limits = columns.numbers(f"{name} limits", len(counts) * rank).reshape(len(counts), rank).astype(np.int64)
    room = np.prod(limits.astype(np.float64), axis=1)
    if size and (int(limits.min()) < 1 or int(limits.max()) > 1 << 32 or float(room.max()) > _MOST_CHUNKS):
        raise FormatError(f"{name}: each limit of chunk coordinates must be 1 to {1 << 32}, got others")
    numbers = columns.numbers(f"{name} steps", total).view(np.int64)
    first = columns.numbers(f"{name} first", len(counts)).view(np.int64)
    numbers += 1
    numbers[starts] = first
    if len(counts) > 1:
        numbers[starts[1:]] -= first[:-1] + np.add.reduceat(numbers, starts)[:-1] - numbers[starts[:-1]]
    np.cumsum(numbers, out=numbers)
    rises = numbers[1:] > numbers[:-1]
    rises[starts[1:] - 1] = True
    if (
        int(first.min()) < 0
        or not rises.all()
        or (numbers[starts + counts - 1] >= np.prod(limits, axis=1)).any()
    ):
        raise FormatError("chunk coordinates out of order or out of bounds")
    for axis in range(rank - 1, 0, -1):
        limit: Any = limits[0, axis] if len(counts) == 1 else np.repeat(limits[:, axis], counts)
        above = numbers // limit
        index[:, axis] = numbers - above * limit
        numbers = above
    if rank:
        index[:, 0] = numbers
    return index
