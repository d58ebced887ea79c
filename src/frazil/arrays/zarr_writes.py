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
from frazil.arrays.selection import AxisSlice
from frazil.arrays.zarr_boxes import OpenedArray, zarr_box

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


def zarr_write(batch: Sequence[tuple[Any, ...]], value: Any, opened: OpenedArray | None) -> ZarrWrite | None:
    """Return the box that a list of chunks of zarr writes, or None for other writes."""
    array = None if opened is None else opened.stored(batch)
    if len(batch) < _FEW:
        return None
    values = value.as_ndarray_like()
    box = zarr_box(array, batch)
    if box is None or not isinstance(values, np.ndarray):
        return None
    if box.encoding.shards is not None or box.store.read_only:
        return None
    if values.shape != () and values.shape != box.shape:
        return None
    box.session.require_writable()
    writes_fill = batch[0][1].config.write_empty_chunks
    writing = BoxWriting(box.session.workspace, box.path, box.encoding, writes_fill=writes_fill)
    return ZarrWrite(writing, box.slices, box.whole(np.broadcast_to(values, box.shape)))
