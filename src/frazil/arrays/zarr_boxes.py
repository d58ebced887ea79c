"""The boxes that lists of chunks of zarr stand for.

zarr gives its codec pipeline a list with the selection of each chunk. The selections of a box follow from the
first and the last of them, so the list is not read. Other selections, such as those with arrays of indices,
stay with zarr.

zarr reads the metadata of an array once. If another array is created at its path later, with another grid or
encoding, its coordinates and bytes are those of other elements. Reads and writes refuse such a stale array.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from zarr.core.metadata.v3 import ArrayV3Metadata, RectilinearChunkGridMetadata
from zarr.storage import StorePath

from frazil.arrays.axes import chunks_of_slice
from frazil.arrays.encoding import Encoding, encoding_of
from frazil.arrays.selection import AxisSlice
from frazil.errors import ErrorKind, InvalidInputError
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


@dataclass(frozen=True, slots=True, eq=False)
class StoredArray:
    """The array of a list of chunks of zarr, as its session has it.

    Attributes:
        store: The store of the array.
        path: The path of the array.
        document: The content of ``zarr.json``.
        coords: The coordinates of the first and the last chunk.
    """

    store: IcechunkStore
    path: str
    document: bytes
    coords: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(slots=True, eq=False)
class OpenedArray:
    """An array that zarr has opened.

    Attributes:
        metadata: The metadata that zarr has read.
        document: The content of ``zarr.json`` that was compared with them last.
    """

    metadata: ArrayV3Metadata
    document: bytes = b""

    def stored(self, batch: Sequence[tuple[Any, ...]]) -> StoredArray | None:
        """Return the array of a list of chunks of zarr, or None if the session has no array at their path."""
        place = batch[0][0]
        if not isinstance(place, StorePath) or not isinstance(place.store, IcechunkStore):
            return None
        try:
            path, first = parse_key(place.path)
            last_path, last = parse_key(batch[-1][0].path)
        except InvalidInputError:
            return None
        entry = place.store.session.workspace.array_entry(path)
        if entry is None or last_path != path or not isinstance(first, tuple) or not isinstance(last, tuple):
            return None
        document = entry.node.user_data
        if document is not self.document:
            self._require_same(path, _stored_metadata(document))
            self.document = document
        return StoredArray(place.store, path, document, (first, last))

    def _require_same(self, path: str, stored: ArrayV3Metadata) -> None:
        different = next((name for name, is_same in _COMPARISONS if not is_same(self.metadata, stored)), None)
        if different is not None:
            raise InvalidInputError(
                f"the stored array `{path}` must have the {different} that it had when zarr opened it, but "
                "the array was changed or created again. Open it again",
                ErrorKind.INVALID_ARRAY_METADATA,
            )


def opened_array(metadata: Any, store: Any) -> OpenedArray | None:
    """Return an array that zarr opens, or None if it is not an array of Frazil."""
    if not isinstance(store, IcechunkStore) or not isinstance(metadata, ArrayV3Metadata):
        return None
    return OpenedArray(metadata)


@lru_cache(256)
def _stored_metadata(document: bytes) -> ArrayV3Metadata:
    return ArrayV3Metadata.from_dict(json.loads(document))


def _same_fill(ours: ArrayV3Metadata, stored: ArrayV3Metadata) -> bool:
    dtype = stored.dtype.to_native_dtype()
    if dtype.hasobject:
        return bool(ours.fill_value == stored.fill_value)
    return np.array(ours.fill_value, dtype).tobytes() == np.array(stored.fill_value, dtype).tobytes()


def _same_codecs(ours: ArrayV3Metadata, stored: ArrayV3Metadata) -> bool:
    if ours.codecs == stored.codecs:
        return True
    return [each.to_dict() for each in ours.codecs] == [each.to_dict() for each in stored.codecs]


def _same_grid(ours: ArrayV3Metadata, stored: ArrayV3Metadata) -> bool:
    """Return whether two grids have the same chunks, as far as both go: an array may have grown."""
    grid, other_grid = ours.chunk_grid, stored.chunk_grid
    if grid == other_grid:
        return True
    rectilinear = RectilinearChunkGridMetadata
    if not isinstance(grid, rectilinear) or not isinstance(other_grid, rectilinear):
        return False
    # A length for all chunks is a number, other lengths are tuples.
    return all(
        one == other
        or (isinstance(one, tuple) and isinstance(other, tuple) and all(map(operator.eq, one, other)))
        for one, other in zip(grid.chunk_shapes, other_grid.chunk_shapes, strict=True)
    )


#: What an array has in common with the stored one, if it is not stale: a name, and a comparison.
_COMPARISONS: Final = (
    ("number of dimensions", lambda ours, stored: len(ours.shape) == len(stored.shape)),
    ("dtype", lambda ours, stored: ours.dtype == stored.dtype),
    ("fill value", _same_fill),
    ("chunk grid", _same_grid),
    ("codecs", _same_codecs),
)


def zarr_box(array: StoredArray | None, batch: Sequence[tuple[Any, ...]]) -> ZarrBox | None:
    """Return the box that a list of chunks of zarr stands for, or None for other lists."""
    _, spec, first, *_ = batch[0]
    if array is None:
        return None
    if not isinstance(first, tuple) or not all(isinstance(each, slice | int | np.integer) for each in first):
        return None
    encoding = encoding_of(array.document)
    if encoding is None:
        return None
    coords, last_coords = array.coords
    bounds = _chunk_bounds(encoding, spec.shape)
    slices = tuple(map(_box, first, batch[-1][2], coords, last_coords, bounds))
    is_slice = tuple(isinstance(each, slice) for each in first)
    shape = tuple(each.count for each, is_axis in zip(slices, is_slice, strict=True) if is_axis)
    if 0 in shape or (len(batch) > 1 and _touched(slices, bounds) != len(batch)):
        return None
    ends = (each.start + (each.count - 1) * each.step for each in slices)
    if any(end >= length for end, length in zip(ends, encoding.shape, strict=True)):
        return None  # the array has become smaller since zarr opened it
    return ZarrBox(array.store, array.path, encoding, slices, shape, is_slice)


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
