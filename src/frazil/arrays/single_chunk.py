"""The read of a selection that lies in one chunk, such as a point, without columns."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from frazil.arrays.decoders import plain
from frazil.arrays.piece_reading import strided_regions
from frazil.arrays.pieces import Region
from frazil.repository.session.workspace import size_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.arrays.encoding import Encoding
    from frazil.arrays.selection import AxisSlice
    from frazil.repository.session.workspace import Workspace


def read_in_chunk(
    workspace: Workspace, path: str, encoding: Encoding, slices: tuple[AxisSlice, ...]
) -> NDArray[Any] | None:
    """Return the elements of a box in one chunk.

    None: the box is in several chunks, or the chunk cannot be read or decoded. The caller then reads it in
    the general way, which raises the errors.
    """
    coords: list[int] = []
    shape: list[int] = []
    inner: list[slice] = []
    for each, length in zip(slices, encoding.lengths, strict=True):
        if not isinstance(length, int):
            return None
        number, first = divmod(each.start, length)
        last = first + (each.count - 1) * each.step
        if last >= length:
            return None
        coords.append(number)
        shape.append(length)
        inner.append(slice(first, last + 1, each.step))
    counts = tuple(each.count for each in slices)
    region = Region(tuple(shape), tuple(inner), counts)
    workspace.note_chunk(path, tuple(coords))
    try:
        ref = workspace.ref(path, tuple(coords))
        if ref is None:
            return np.full(counts, encoding.fill, encoding.dtype)
        length, size = size_of(ref), encoding.chunk_bytes(region.shape)
        if encoding.decoder is plain and encoding.is_in_c_order:
            if length != size:
                return None
            first, end = (each * encoding.stored.itemsize for each in region.elements())
            span = np.frombuffer(workspace.read_ref(ref, first, end), encoding.stored)
            if len(span) == prod(counts):
                return span.reshape(counts).astype(encoding.dtype)
            values = strided_regions(region, span.reshape(1, -1))
        else:
            data = np.frombuffer(workspace.read_ref(ref), np.uint8)
            chunk = encoding.decoder(data, np.zeros(1, np.int64), np.full(1, length), size)
            values = encoding.decoded(chunk, region.shape)[(slice(None), *region.slices)]
    except Exception:
        return None
    return values[0, ...].astype(encoding.dtype)
