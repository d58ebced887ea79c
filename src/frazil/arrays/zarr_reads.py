"""Reads of zarr as boxes: all chunks of one read of zarr in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.arrays.box_reading import read_box_into
from frazil.arrays.encoding import Encoding
from frazil.arrays.selection import AxisSlice
from frazil.arrays.single_chunk import read_in_chunk
from frazil.arrays.zarr_boxes import OpenedArray, zarr_box
from frazil.repository.session.session import Session

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


def zarr_read(batch: Sequence[tuple[Any, ...]], out: Any, opened: OpenedArray | None) -> ZarrRead | None:
    """Return the box that a list of chunks of zarr reads, or None for other reads."""
    spec, array = batch[0][1], None if opened is None else opened.stored(batch)
    if getattr(spec.config, "read_missing_chunks", True) is False:
        return None  # zarr wants to know which chunks are missing
    box, values = zarr_box(array, batch), out.as_ndarray_like()
    if box is None or not isinstance(values, np.ndarray):
        return None
    if values.dtype != box.encoding.dtype or values.shape != box.shape:
        return None
    chunk_bytes = prod(spec.shape) * box.encoding.dtype.itemsize
    return ZarrRead(
        box.session, box.path, box.encoding, box.slices, box.whole(values), len(batch), chunk_bytes
    )
