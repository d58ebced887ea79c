"""The chunk that has a cell of an array."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import index

import numpy as np

from frazil.changes.zarr_metadata import chunk_lengths
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.snapshot import Node


def chunk_of_cell(node: Node, cell: Sequence[int]) -> tuple[int, ...]:
    """Return the coordinates of the chunk that has a cell. Negative indices count from the end."""
    assert node.array is not None
    shape = node.array.shape
    try:
        numbers = tuple(map(index, cell))
    except TypeError:
        raise TypeError(f"index must be integers, got {cell!r:.80}") from None
    places = [at + length if at < 0 else at for at, length in zip(numbers, shape, strict=False)]
    is_inside = len(numbers) == len(shape) and all(
        0 <= place < length for place, length in zip(places, shape, strict=True)
    )
    if not is_inside:
        raise InvalidInputError(
            f"index must name a cell of `{node.path}`, which has the shape {shape}, got {numbers}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    edges = chunk_lengths(node.user_data)
    return tuple(map(_chunk_of, places, edges))


def _chunk_of(place: int, edge: int | list[int]) -> int:
    if isinstance(edge, int):
        return place // edge
    return int(np.searchsorted(list(accumulate(edge)), place, "right"))
