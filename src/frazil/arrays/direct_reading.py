"""The read of chunks without compression straight into the result, and the decoding of zstd frames into it.

The bytes of some pieces are in the same order in their chunk and in the result. Neighbouring pieces of this
kind are a *run*: their bytes follow each other in an object and in the result. A run is read by one call into
the memory of the result, without a copy.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.arrays.decoders import plain, zstd, zstd_into

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.arrays.encoding import Encoding
    from frazil.arrays.pieces import Pieces, Region
    from frazil.chunks.column_reads import ColumnRequest
    from frazil.format.columns import I64, U8

#: The smallest mean length of the runs of a request, in bytes. Fewer bytes are copied faster than read alone.
_SHORTEST_RUN: Final = 64 << 10


class DirectReading:
    """The places of pieces in the memory of a result."""

    def __init__(self, pieces: Pieces, out: NDArray[Any], length: I64) -> None:
        self._memory = memoryview(out.reshape(-1).view(np.uint8))
        self._place = pieces.target @ np.array(out.strides, np.int64)
        self._length = length

    def read(self, request: ColumnRequest) -> bool:
        """Read a request into the result. Return False if its runs are too short; then nothing is read."""
        rows = request.rows
        place, length, offset = self._place[rows], self._length[rows], request.offset
        if len(rows) > 1:
            is_next = (offset[1:] == offset[:-1] + length[:-1]) & (place[1:] == place[:-1] + length[:-1])
            begins = np.flatnonzero(np.concatenate([[True], ~is_next]))
            place, offset, length = place[begins], offset[begins], np.add.reduceat(length, begins)
            if length.sum() < _SHORTEST_RUN * len(begins):
                return False
        for begin, first, size in zip(offset.tolist(), place.tolist(), length.tolist(), strict=True):
            request.read_into(begin, self._memory[first : first + size])
        return True


class DirectDecoding:
    """The decoding of large zstd frames into the memory of a result."""

    def __init__(self, encoding: Encoding, pieces: Pieces, out: NDArray[Any]) -> None:
        self._memory = memoryview(out.reshape(-1).view(np.uint8))
        self._place = pieces.target @ np.array(out.strides, np.int64)
        self._sizes = [
            encoding.chunk_bytes(region.shape) if region.is_whole and _is_run(region.counts, out.shape) else 0
            for region in pieces.regions
        ]

    def is_for(self, region: int) -> bool:
        """Return whether the chunks of a region can be decoded in this way."""
        return self._sizes[region] >= _SHORTEST_RUN

    def decode(self, region: int, data: U8, offset: I64, length: I64, rows: I64) -> I64:
        """Decode the chunks of some pieces of a region. Return the rows that failed.

        The loop runs once for each chunk. Large chunks are few.
        """
        size = self._sizes[region]
        failures: list[int] = []
        for row, at, count in zip(rows.tolist(), offset.tolist(), length.tolist(), strict=True):
            first = int(self._place[row])
            try:
                zstd_into(data[at : at + count], self._memory[first : first + size])
            except Exception:  # zarr reads these chunks again, and raises the error
                failures.append(row)
        return np.array(failures, np.int64)


def direct_reading(
    encoding: Encoding, pieces: Pieces, out: NDArray[Any], length: I64
) -> DirectReading | None:
    """Return the direct reading of pieces, or None if their bytes are in another order in the result."""
    if encoding.decoder is not plain or not _is_same_order(encoding, out):
        return None
    if not all(_is_dense(region, out.shape) for region in pieces.regions):
        return None
    return DirectReading(pieces, out, length)


def direct_decoding(encoding: Encoding, pieces: Pieces, out: NDArray[Any]) -> DirectDecoding | None:
    """Return the direct decoding of pieces, or None if no frame can be decoded into the result."""
    if encoding.decoder is not zstd or not _is_same_order(encoding, out):
        return None
    decoding = DirectDecoding(encoding, pieces, out)
    return decoding if any(map(decoding.is_for, range(len(pieces.regions)))) else None


def _is_same_order(encoding: Encoding, out: NDArray[Any]) -> bool:
    """Return whether elements have the same bytes in chunks and in the result, both in C order."""
    return encoding.is_in_c_order and encoding.stored == out.dtype and bool(out.flags.c_contiguous)


def _is_dense(region: Region, shape: tuple[int, ...]) -> bool:
    """Return whether the elements of a region follow each other in the chunk, and in an array of a shape."""
    first, last = region.elements()
    return last - first == prod(region.counts) and _is_run(region.counts, shape)


def _is_run(counts: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether a box of ``counts`` elements is one run of an array in C order."""
    is_whole = [count == length for count, length in zip(counts, shape, strict=True)]
    longer = [axis for axis, count in enumerate(counts) if count > 1]
    return not longer or all(is_whole[longer[0] + 1 :])
