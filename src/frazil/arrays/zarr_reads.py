"""Reads of zarr as boxes: all chunks of one read of zarr in one call.

zarr gives its codec pipeline a list with the selection of each chunk. The selections of a box follow from the
first and the last of them, so the list is not read. Other reads, such as those with arrays of indices, stay
with zarr.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from zarr.storage import StorePath

from frazil.arrays.axes import chunks_of_slice
from frazil.arrays.box_reading import read_box_into
from frazil.arrays.encoding import Encoding, encoding_of
from frazil.arrays.selection import AxisSlice
from frazil.arrays.single_chunk import read_in_chunk
from frazil.errors import InvalidInputError
from frazil.format.columns import I64
from frazil.repository.session.session import Session
from frazil.zarr_store.keys import parse_key
from frazil.zarr_store.store import IcechunkStore

#: The size of a chunk whose decoding does not hold up an event loop, in bytes.
_SMALL_CHUNK: Final = 4 << 20


@dataclass(frozen=True, slots=True, eq=False)
class ZarrRead:
    """A read of zarr that is a box.

    Attributes:
        session: The session of the store.
        path: The path of the array.
        encoding: The encoding of the array.
        slices: The box.
        out: The result, with all dimensions of the array.
        chunks: The number of chunks, or of shards.
        chunk_bytes: The number of bytes of the first chunk or shard after decoding.
    """

    session: Session
    path: str
    encoding: Encoding
    slices: tuple[AxisSlice, ...]
    out: NDArray[Any]
    chunks: int
    chunk_bytes: int

    @property
    def is_fast(self) -> bool:
        """Whether the read is of one small chunk, and never waits for a network."""
        context = self.session.workspace.context
        is_local = context.storage.is_local and all(each.is_local for each in context.virtual.containers)
        return is_local and self.chunks == 1 and self.chunk_bytes <= _SMALL_CHUNK

    def run(self) -> bool:
        """Read the box. Return whether all chunks were read and decoded."""
        if self.chunks == 1 and self.encoding.shards is None:
            values = read_in_chunk(self.session.workspace, self.path, self.encoding, self.slices)
            if values is None:
                return False
            self.out[...] = values
            return True
        _, failures = read_box_into(self.session, self.path, self.encoding, self.slices, self.out)
        return not len(failures)


def zarr_read(batch: Sequence[tuple[Any, ...]], out: Any) -> ZarrRead | None:
    """Return the box that a list of chunks of zarr reads, or None for other reads.

    Args:
        batch: For each chunk, its place in a store, its ``ArraySpec``, and the selections in the chunk and in
            the result.
        out: The result, a buffer of zarr.
    """
    place, spec, first, *_ = batch[0]
    if not isinstance(place, StorePath) or not isinstance(place.store, IcechunkStore):
        return None
    if not isinstance(first, tuple) or not all(isinstance(each, slice | int | np.integer) for each in first):
        return None
    if getattr(spec.config, "read_missing_chunks", True) is False:
        return None  # zarr wants to know which chunks are missing
    session = place.store.session
    try:
        path, coords = parse_key(place.path)
        last_path, last_coords = parse_key(batch[-1][0].path)
    except InvalidInputError:
        return None
    entry = session.workspace.array_entry(path)
    if (
        entry is None
        or last_path != path
        or not isinstance(coords, tuple)
        or not isinstance(last_coords, tuple)
    ):
        return None
    encoding = encoding_of(entry.node.user_data)
    values = out.as_ndarray_like()
    if encoding is None or not isinstance(values, np.ndarray) or values.dtype != encoding.dtype:
        return None
    bounds = _chunk_bounds(encoding, spec.shape)
    slices = tuple(map(_box, first, batch[-1][2], coords, last_coords, bounds))
    is_slice = [isinstance(each, slice) for each in first]
    counts = tuple(each.count for each, is_axis in zip(slices, is_slice, strict=True) if is_axis)
    if counts != values.shape or 0 in counts:
        return None
    if len(batch) > 1 and _touched(slices, bounds) != len(batch):
        return None
    whole = values[(*(slice(None) if each else None for each in is_slice), ...)]
    chunk_bytes = prod(spec.shape) * encoding.dtype.itemsize
    return ZarrRead(session, path, encoding, slices, whole, len(batch), chunk_bytes)


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
