"""The read of points into a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from frazil.arrays.batches import batches_of, process_all, rows_by_number
from frazil.arrays.decoders import plain
from frazil.chunks.column_reads import requests_of
from frazil.format.columns import ranges, windows
from frazil.format.manifest import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.arrays.chunk_source import ChunkSource
    from frazil.arrays.encoding import Encoding
    from frazil.arrays.points import Points
    from frazil.chunks.column_reads import ColumnRequest
    from frazil.format.columns import I64


class PointReading:
    """One read of points."""

    def __init__(self, source: ChunkSource, encoding: Encoding, points: Points, out: NDArray[Any]) -> None:
        self._source = source
        self._encoding = encoding
        self._points = points
        self._out = out

    def run(self) -> I64:
        """Read the points. Return the points that could not be read or decoded."""
        points, encoding = self._points, self._encoding
        itemsize = encoding.stored.itemsize
        refs, failures = self._source.refs(points.index)
        if len(failures):
            return np.arange(len(points.chunk))
        is_absent = refs.kind == ChunkKind.ABSENT
        if is_absent.any():
            self._out[is_absent[points.chunk]] = encoding.fill
        if encoding.decoder is plain:
            if ((refs.length != points.size * itemsize) & ~is_absent).any():
                return np.arange(len(points.chunk))
            start, length = points.element * itemsize, np.full(len(points.chunk), itemsize, np.int64)
            requests = requests_of(self._source.reader, refs.select_chunks(points.chunk), start, length)
            return process_all(self._source.reader, self._take, requests, int(length.sum()))
        self._order = np.argsort(points.chunk, kind="stable")
        self._bounds = np.searchsorted(points.chunk[self._order], np.arange(len(refs) + 1))
        self._length = refs.length.astype(np.int64)
        requests = requests_of(self._source.reader, refs, np.zeros(len(refs), np.int64), self._length)
        return process_all(self._source.reader, self._decode, requests, int(self._length.sum()))

    def _take(self, request: ColumnRequest) -> list[I64]:
        """Copy elements of chunks without compression."""
        itemsize = self._encoding.stored.itemsize
        try:
            data = request.read()
        except Exception:  # zarr reads these points again, and raises the error
            return [request.rows]
        if int(request.offset.max()) + itemsize > len(data):
            return [request.rows]
        self._out[request.rows] = windows(data, itemsize)[request.offset].view(self._encoding.stored)
        return []

    def _decode(self, request: ColumnRequest) -> list[I64]:
        """Decode the chunks of a request, and copy their points."""
        chunks, stored = request.rows, self._encoding.stored
        try:
            data = request.read()
        except Exception:
            return [self._points_in(chunks)]
        if int((request.offset + self._length[chunks]).max()) > len(data):
            return [self._points_in(chunks)]
        failures = []
        for group in rows_by_number(self._points.size[chunks]):
            size = int(self._points.size[chunks[group[0]]]) * stored.itemsize
            for batch in batches_of(group, size):
                chosen = chunks[batch]
                wanted = self._points_in(chosen)
                try:
                    decoded = self._encoding.decoder(data, request.offset[batch], self._length[chosen], size)
                except Exception:
                    failures.append(wanted)
                    continue
                counts = self._bounds[chosen + 1] - self._bounds[chosen]
                rows = np.repeat(np.arange(len(batch)), counts)
                self._out[wanted] = decoded.view(stored)[rows, self._points.element[wanted]]
        return failures

    def _points_in(self, chunks: I64) -> I64:
        """Return the points in some chunks, one chunk after the other."""
        return self._order[ranges(self._bounds[chunks], self._bounds[chunks + 1] - self._bounds[chunks])]
