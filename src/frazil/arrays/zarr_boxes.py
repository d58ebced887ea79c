"""The boxes that lists of chunks of zarr stand for.

zarr gives its codec pipeline a list with the selection of each chunk. The selections of a box follow from the
first and the last of them, so the list is not read. Other selections, such as those with arrays of indices,
stay with zarr.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from zarr.storage import StorePath

from frazil.arrays.axes import chunks_of_slice
from frazil.arrays.encoding import Encoding, encoding_of
from frazil.arrays.selection import AxisSlice
from frazil.errors import InvalidInputError
from frazil.format.columns import I64
from frazil.repository.session.session import Session
from frazil.zarr_store.keys import parse_key
from frazil.zarr_store.store import IcechunkStore


@dataclass(frozen=True, slots=True, eq=False)
class ZarrBox:
    """A box of an array.

    Attributes:
        store: The store of the array.
        path: The path of the array.
        encoding: The encoding of the array.
        slices: The box.
        shape: The shape of the box for zarr, without the dimensions of integers.
        is_slice: For each dimension, whether the index is a slice. Otherwise it is an integer.
    """

    store: IcechunkStore
    path: str
    encoding: Encoding
    slices: tuple[AxisSlice, ...]
    shape: tuple[int, ...]
    is_slice: tuple[bool, ...]

    @property
    def session(self) -> Session:
        """The session of the store."""
        return self.store.session

    def whole(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a view of values of ``shape`` with all dimensions of the array."""
        return values[(*(slice(None) if each else None for each in self.is_slice), ...)]


def zarr_box(batch: Sequence[tuple[Any, ...]]) -> ZarrBox | None:
    """Return the box that a list of chunks of zarr stands for, or None for other lists.

    Args:
        batch: For each chunk, its place in a store, its ``ArraySpec``, and the selections in the chunk and in
            the values.
    """
    place, spec, first, *_ = batch[0]
    if not isinstance(place, StorePath) or not isinstance(place.store, IcechunkStore):
        return None
    if not isinstance(first, tuple) or not all(isinstance(each, slice | int | np.integer) for each in first):
        return None
    try:
        path, coords = parse_key(place.path)
        last_path, last_coords = parse_key(batch[-1][0].path)
    except InvalidInputError:
        return None
    entry = place.store.session.workspace.array_entry(path)
    if (
        entry is None
        or last_path != path
        or not isinstance(coords, tuple)
        or not isinstance(last_coords, tuple)
    ):
        return None
    encoding = encoding_of(entry.node.user_data)
    if encoding is None:
        return None
    bounds = _chunk_bounds(encoding, spec.shape)
    slices = tuple(map(_box, first, batch[-1][2], coords, last_coords, bounds))
    is_slice = tuple(isinstance(each, slice) for each in first)
    shape = tuple(each.count for each, is_axis in zip(slices, is_slice, strict=True) if is_axis)
    if 0 in shape or _touched(slices, bounds) != len(batch):
        return None
    return ZarrBox(place.store, path, encoding, slices, shape, is_slice)


def _chunk_bounds(encoding: Encoding, chunk_shape: tuple[int, ...]) -> list[int | I64]:
    """Return the lengths of the chunks that zarr knows: those of shards if there are shards."""
    if encoding.shards is None:
        return list(encoding.lengths)
    return list(chunk_shape)


def _box(first: slice | int, last: slice | int, low: int, high: int, bounds: int | I64) -> AxisSlice:
    """Return the selection of one dimension from those in its first and its last chunk."""
    if not isinstance(first, slice) or not isinstance(last, slice):
        return AxisSlice(_begin(low, bounds) + int(first), 1, 1)  # type: ignore[arg-type]
    step = first.step or 1
    start = _begin(low, bounds) + (first.start or 0)
    end = _begin(high, bounds) + last.stop
    return AxisSlice(start, len(range(start, end, step)), step)


def _begin(number: int, bounds: int | I64) -> int:
    return number * bounds if isinstance(bounds, int) else int(bounds[number])


def _touched(slices: tuple[AxisSlice, ...], bounds: list[int | I64]) -> int:
    """Return the number of chunks that contain elements of the box."""
    return prod(
        len(chunks_of_slice(each.start, each.count, each.step, length).number)
        for each, length in zip(slices, bounds, strict=True)
    )
