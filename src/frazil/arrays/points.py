"""Points of an array: single elements in any order, as columns.

Each chunk is read once. Of chunks without compression, only the bytes of the elements are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from frazil.arrays.axes import chunk_bounds, chunk_numbers
from frazil.format.columns import I64, U32

if TYPE_CHECKING:
    from frazil.arrays.encoding import Encoding


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """n points in m chunks.

    Attributes:
        index: The coordinates of the chunks, uint32 of shape (m, ndim).
        size: The number of elements of each chunk, int64 of shape (m,).
        chunk: The row of the chunk of each point, int64 of shape (n,).
        element: The position of each point in its decoded chunk, int64 of shape (n,).
    """

    index: U32
    size: I64
    chunk: I64
    element: I64


def points_of(encoding: Encoding, coordinates: tuple[I64, ...]) -> Points:
    """Return the chunks and places of points."""
    numbers = [
        chunk_numbers(each, length) for each, length in zip(coordinates, encoding.lengths, strict=True)
    ]
    num_chunks = encoding.num_chunks
    if prod(num_chunks) < 1 << 62:
        key = numbers[0]
        for each, count in zip(numbers[1:], num_chunks[1:], strict=True):
            key = key * count + each
        _, first, chunk = np.unique(key, return_index=True, return_inverse=True)
        index = np.stack([each[first] for each in numbers], axis=1)
    else:
        index, first, chunk = np.unique(
            np.stack(numbers, axis=1), axis=0, return_index=True, return_inverse=True
        )
    element = np.zeros(len(chunk), np.int64)
    size = np.ones(len(index), np.int64)
    for axis in encoding.order:
        low, high = chunk_bounds(index[:, axis], encoding.lengths[axis])
        length = high - low
        element = element * (length[0] if isinstance(encoding.lengths[axis], int) else length[chunk])
        element += coordinates[axis] - low[chunk]
        size = size * length
    return Points(index.astype(np.uint32), size, chunk.reshape(-1), element)
