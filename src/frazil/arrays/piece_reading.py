"""The read of pieces into a result: references, requests, decoding, and copies to their places."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from frazil.arrays.batches import batches_of, process_all, rows_by_number
from frazil.arrays.decoders import plain
from frazil.arrays.direct_reading import direct_decoding, direct_reading
from frazil.arrays.pieces import place_pieces
from frazil.chunks.column_reads import requests_of
from frazil.format.manifest import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.arrays.chunk_source import ChunkSource
    from frazil.arrays.encoding import Encoding
    from frazil.arrays.pieces import Pieces, Region
    from frazil.chunks.column_reads import ColumnRequest
    from frazil.format.columns import I64, U8


class PieceReading:
    """One read of the pieces of a selection."""

    def __init__(self, source: ChunkSource, encoding: Encoding, pieces: Pieces, out: NDArray[Any]) -> None:
        self._source = source
        self._encoding = encoding
        self._pieces = pieces
        self._out = out
        self._is_partial = np.zeros(len(pieces.regions), np.bool_)

    def run(self) -> I64:
        """Read the pieces. Return the rows of the pieces that could not be read or decoded."""
        pieces = self._pieces
        refs, failures = self._source.refs(pieces.index)
        is_absent = refs.kind == ChunkKind.ABSENT
        if is_absent.any():
            self._fill(np.flatnonzero(is_absent))
        start, self._length = np.zeros(len(pieces), np.int64), refs.length.astype(np.int64)
        if self._encoding.decoder is plain:
            sizes = np.array([self._encoding.chunk_bytes(region.shape) for region in pieces.regions])
            if ((self._length != sizes[pieces.region]) & ~is_absent).any():
                return np.arange(len(pieces))
            if self._encoding.is_in_c_order:
                self._narrow(start)
        self._direct = direct_reading(self._encoding, pieces, self._out, self._length)
        self._decoding = direct_decoding(self._encoding, pieces, self._out)
        requests = requests_of(self._source.reader, refs, start, self._length)
        failed = process_all(self._source.reader, self._process, requests, int(self._length.sum()))
        return failed if not len(failures) else np.union1d(failures, failed)

    def _fill(self, rows: I64) -> None:
        for same in rows_by_number(self._pieces.region[rows]):
            region = self._region_of(rows[same])
            place_pieces(self._out, self._pieces.target[rows[same]], region.counts, self._encoding.fill)

    def _region_of(self, rows: I64) -> Region:
        return self._pieces.regions[int(self._pieces.region[rows[0]])]

    def _narrow(self, start: I64) -> None:
        """Set the bytes to read of chunks without compression: those from the first to the last element."""
        pieces, itemsize = self._pieces, self._encoding.stored.itemsize
        for number, region in enumerate(pieces.regions):
            first, last = region.elements()
            if last - first < prod(region.shape):
                self._is_partial[number] = True
                rows = slice(None) if len(pieces.regions) == 1 else pieces.region == number
                start[rows] = first * itemsize
                self._length[rows] = np.where(self._length[rows] > 0, (last - first) * itemsize, 0)

    def _process(self, request: ColumnRequest) -> list[I64]:
        rows = request.rows
        try:
            if self._direct is not None and request.is_local and self._direct.read(request):
                return []
            data = request.read()
        except Exception:  # zarr reads these chunks again, and raises the error of the first one
            return [rows]
        if int((request.offset + self._length[rows]).max()) > len(data):
            return [rows]
        failures: list[I64] = []
        for same in rows_by_number(self._pieces.region[rows]):
            chosen, number = rows[same], int(self._pieces.region[rows[same[0]]])
            if self._decoding is not None and self._decoding.is_for(number):
                offset, length = request.offset[same], self._length[chosen]
                failures.append(self._decoding.decode(number, data, offset, length, chosen))
                continue
            region = self._pieces.regions[number]
            for batch in batches_of(same, self._encoding.chunk_bytes(region.shape)):
                chosen = rows[batch]
                try:
                    values = self._values(region, data, request.offset[batch], chosen)
                except Exception:
                    failures.append(chosen)
                else:
                    place_pieces(self._out, self._pieces.target[chosen], region.counts, values)
        return failures

    def _values(self, region: Region, data: U8, offset: I64, rows: I64) -> NDArray[Any]:
        """Return the elements of a region from several chunks, shape (m, ...)."""
        encoding, length = self._encoding, self._length[rows]
        if not self._is_partial[self._pieces.region[rows[0]]]:
            chunks = encoding.decoder(data, offset, length, encoding.chunk_bytes(region.shape))
            values = encoding.decoded(chunks, region.shape)
            return values if region.is_whole else values[(slice(None), *region.slices)]
        return strided_regions(region, plain(data, offset, length, int(length[0])).view(encoding.stored))


def strided_regions(region: Region, spans: NDArray[Any]) -> NDArray[Any]:
    """Return regions of chunks in C order. ``spans`` has the elements from the first to the last of each."""
    distance = np.cumprod([1, *region.shape[:0:-1]])[::-1]
    steps = (each * s.step * spans.itemsize for each, s in zip(distance.tolist(), region.slices, strict=True))
    return as_strided(spans, (len(spans), *region.counts), (spans.strides[0], *steps), writeable=False)
