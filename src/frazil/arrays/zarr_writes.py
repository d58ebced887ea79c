"""Writes of zarr as boxes: all chunks of one write of zarr in one call.

As with reads (``zarr_reads``), the box follows from the first and the last selection. A write of few chunks
costs less in zarr's own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.arrays.box_writing import BoxWriting
from frazil.arrays.encoding import Encoding
from frazil.arrays.selection import AxisSlice
from frazil.arrays.zarr_boxes import zarr_box

#: Fewer chunks are written by zarr.
_FEW: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class ZarrWrite:
    """A write of zarr that is a box.

    Attributes:
        writing: The writer of the box.
        slices: The box.
        values: The values, with all dimensions of the array.
    """

    writing: BoxWriting
    slices: tuple[AxisSlice, ...]
    values: NDArray[Any]

    def run(self) -> bool:
        """Write the box. Return False if zarr has to write it. Then nothing has changed."""
        return self.writing.run(self.slices, self.values)


def zarr_write(batch: Sequence[tuple[Any, ...]], value: Any, codecs: tuple[Any, ...]) -> ZarrWrite | None:
    """Return the box that a list of chunks of zarr writes, or None for other writes.

    Args:
        batch: For each chunk, its place in a store, its ``ArraySpec``, the selections in the chunk and in the
            values, and whether the chunk is written whole.
        value: The values, a buffer of zarr.
        codecs: The codecs of the array that zarr has opened.
    """
    if len(batch) < _FEW:
        return None
    values = value.as_ndarray_like()
    box = zarr_box(batch)
    if box is None or not isinstance(values, np.ndarray):
        return None
    # The array that zarr has opened may be an earlier one at the same path.
    if box.encoding.shards is not None or box.encoding.codecs != codecs or box.store.read_only:
        return None
    if values.shape != () and values.shape != box.shape:
        return None
    spec = batch[0][1]
    if not _same_array(spec, box.encoding):
        return None
    box.session.require_writable()
    writes_fill = spec.config.write_empty_chunks
    writing = BoxWriting(box.session.workspace, box.path, box.encoding, writes_fill=writes_fill)
    return ZarrWrite(writing, box.slices, box.whole(np.broadcast_to(values, box.shape)))


def _same_array(spec: Any, encoding: Encoding) -> bool:
    """Return whether a chunk of zarr has the dtype, fill value and shape of the chunks of an array."""
    dtype = spec.dtype.to_native_dtype()
    return bool(
        dtype == encoding.dtype
        and np.array(spec.fill_value, dtype).tobytes() == encoding.fill.tobytes()
        and all(
            n == length
            for n, length in zip(spec.shape, encoding.lengths, strict=True)
            if isinstance(length, int)
        )
    )
