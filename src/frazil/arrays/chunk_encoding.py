"""The encoding of one box of chunks: gather, compare with the fill value, encode, compute checksums."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frazil.arrays.encoders import uncompressed
from frazil.arrays.fill_values import are_fill
from frazil.chunks.pack import ChunkRows
from frazil.format.chunk_trailer import crc32c_rows
from frazil.format.columns import U32

if TYPE_CHECKING:
    from frazil.arrays.encoders import Encoder
    from frazil.arrays.encoding import Encoding
    from frazil.arrays.write_plan import ChunkBox


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBox:
    """The result of the encoding of a box.

    Attributes:
        index: The coordinates of the encoded chunks, uint32 of shape (n, ndim).
        rows: Their bytes.
        fill: The coordinates of the chunks that have only the fill value, and no bytes.
    """

    index: U32
    rows: ChunkRows
    fill: U32


@dataclass(frozen=True, slots=True, eq=False)
class ChunkEncoding:
    """How chunks become bytes.

    Attributes:
        encoding: The encoding of the array.
        encoder: The encoder of the bytes of chunks.
        writes_fill: Whether chunks that have only the fill value are stored, too.
        crc_below: Chunks that are smaller get a checksum here, others when they are stored. In bytes.
        views_from: Chunks without compression of at least this size are stored before the write returns, so
            that they may be views of the values. In bytes.
    """

    encoding: Encoding
    encoder: Encoder
    writes_fill: bool
    crc_below: int
    views_from: int

    def encode(self, box: ChunkBox, values: NDArray[Any], before: NDArray[Any] | None) -> EncodedBox:
        """Encode the chunks of a box."""
        chunks = self._chunks(box, values, before)
        index = box.index()
        is_fill = np.zeros(len(index), np.bool_)
        if not self.writes_fill:
            is_fill = are_fill(chunks, self.encoding.fill.astype(self.encoding.stored))
        fill = index[is_fill]
        if len(fill):
            index, chunks = index[~is_fill], chunks[~is_fill]
        data, length = np.zeros(0, np.uint8), np.zeros(0, np.int64)
        if len(chunks):
            data, length = self.encoder(chunks.view(np.uint8).reshape(len(chunks), -1))
        crc = crc32c_rows(data, length) if (length < self.crc_below).any() else None
        return EncodedBox(index, ChunkRows(data, length, crc), fill)

    def _chunks(self, box: ChunkBox, values: NDArray[Any], before: NDArray[Any] | None) -> NDArray[Any]:
        """Return the new elements of chunks as they are stored, shape (m, n), without gaps."""
        encoding, tiles = self.encoding, box.tiles
        m, ndim = prod(tiles), len(tiles)
        if box.is_whole and self._may_be_views(box, values):
            view = box.view(values)
            if view.flags.c_contiguous:
                return view.reshape(m, prod(box.shape))
        stored = np.empty(tiles + tuple(box.shape[axis] for axis in encoding.order), encoding.stored)
        chunks = stored.transpose(*range(ndim), *(ndim + encoding.order.index(axis) for axis in range(ndim)))
        if not box.is_whole:
            chunks[...] = encoding.fill if before is None else before.reshape(tiles + box.shape)
        chunks[(..., *box.elements)] = box.view(values)  # type: ignore[index]  # a tuple of slices
        return stored.reshape(m, prod(box.shape))

    def _may_be_views(self, box: ChunkBox, values: NDArray[Any]) -> bool:
        """Return whether the chunks need no copy if they lie in the values as they are stored."""
        encoding = self.encoding
        is_stored = self.encoder is not uncompressed or encoding.chunk_bytes(box.shape) >= self.views_from
        return is_stored and encoding.is_in_c_order and values.dtype == encoding.stored
