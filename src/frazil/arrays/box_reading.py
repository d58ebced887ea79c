"""The read of a box or of points of an array into a result, from chunks or from the inner chunks of shards.

The index of a shard becomes rows of references, one for each inner chunk. So inner chunks are read as chunks
are: each by its own range of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from frazil.arrays.encoding import CRC_BYTES, MISSING, encoding_of, plain, zstd, zstd_into
from frazil.arrays.selection import (
    AxisSlice,
    Pieces,
    Region,
    chunk_bounds,
    chunks_of_slice,
    pieces_of_axes,
    place_pieces,
)
from frazil.chunks.ranges import ByteRange, StoredObject
from frazil.chunks.reader import ChunkReader, ColumnRequest, requests_of, require_one_state
from frazil.errors import InvalidInputError
from frazil.format.chunk_trailer import crc32c
from frazil.format.columns import I64, ranges, rows_by_number, windows
from frazil.format.manifest import ChunkKind, ChunkRef, ChunkTable
from frazil.repository.session.workspace import size_of
from frazil.threads import Purpose, shared_pool

if TYPE_CHECKING:
    from frazil.arrays.encoding import Encoding, ShardLayout
    from frazil.arrays.selection import Points
    from frazil.format.columns import U8, U32, U64
    from frazil.repository.session.workspace import Workspace


#: Local requests for fewer bytes in total are read without threads.
_SMALL: Final = 1 << 20
#: The most bytes of chunks that are decoded together: about the cache of a processor.
_BATCH: Final = 4 << 20


def batches_of(rows: I64, size: int) -> list[I64]:
    """Split rows with chunks of ``size`` bytes after decoding into batches."""
    most = max(1, _BATCH // max(1, size))
    return [rows] if len(rows) <= most else np.split(rows, np.arange(most, len(rows), most))


class _ObjectAtHand(StoredObject):
    """An object of a remote storage whose bytes are on this machine, so that it is read as a local file."""

    @property
    def is_local(self) -> bool:
        """True, although the storage is remote."""
        return True


def _at_hand(request: ColumnRequest) -> ColumnRequest:
    place = request.where
    if request.is_local or not isinstance(place, ByteRange) or not isinstance(place.where, StoredObject):
        return request
    storage, key = place.where.storage, place.where.name
    if not storage.is_at_hand(key, place.start, place.stop):
        return request
    return replace(request, where=replace(place, where=_ObjectAtHand(key, storage)))


def process_all(
    reader: ChunkReader,
    process: Callable[[ColumnRequest], list[I64]],
    requests: list[ColumnRequest],
    size: int,
) -> I64:
    """Process all requests, in threads if they are large or remote. Return the failed rows in order."""
    rows: list[I64] = []
    requests = list(map(_at_hand, requests))
    for is_local in (True, False):
        chosen = [request for request in requests if request.is_local is is_local]
        if len(chosen) < 2 or (is_local and size < _SMALL):
            rows += chain.from_iterable(map(process, chosen))
        else:
            pool = shared_pool(Purpose.CHUNK_DECODING) if is_local else reader.pool
            bounded = process if is_local else partial(_within, reader, process)
            rows += chain.from_iterable(pool.map(bounded, chosen))
    require_one_state(each.where for each in requests if isinstance(each.where, ByteRange))
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0, np.int64)


def _within(
    reader: ChunkReader, process: Callable[[ColumnRequest], list[I64]], request: ColumnRequest
) -> list[I64]:
    """Process a remote request when the reader has memory for its bytes."""
    with reader.memory.spend(request.size):
        return process(request)


#: The largest offset and length. The sum of two of them is a number of 64 bits with a sign.
_LARGEST: Final = np.uint64(1 << 61)


def refs_of(workspace: Workspace, path: str, encoding: Encoding, index: U32) -> tuple[ChunkTable, I64]:
    """Return the references of chunks, in the order of ``index``, and the rows that cannot be read.

    The chunks of an array with shards are their inner chunks. Rows that cannot be read are ``ABSENT``: their
    shard has no readable index, or a damaged manifest has a range of bytes that no object has.
    """
    layout, chunks = encoding.shards, index
    if layout is not None:
        number, local = np.divmod(index, np.array(layout.counts, np.uint32))
        chunks, shard = np.unique(number, axis=0, return_inverse=True)
        shard = shard.reshape(-1)
    workspace.note_chunks(path, chunks)
    refs = workspace.refs_at(path, chunks)
    is_wrong = (refs.kind != ChunkKind.ABSENT) & (
        (refs.length == 0) | (refs.length > _LARGEST) | (refs.offset > _LARGEST)
    )
    if is_wrong.any():
        refs = replace(refs, kind=np.where(is_wrong, np.uint8(ChunkKind.ABSENT), refs.kind))
    if layout is None:
        return refs, np.flatnonzero(is_wrong)
    entries, is_failed = _shard_indexes(workspace.reader, refs, layout)
    is_failed |= is_wrong
    place = np.ravel_multi_index(tuple(local.T), layout.counts) if local.shape[1] else np.zeros(1, int)
    offset, length = entries[shard, place].T
    kind = refs.kind[shard]
    is_missing = ((offset == MISSING) & (length == MISSING)) | is_failed[shard]
    end = offset + length
    is_outside = ~is_missing & (kind != ChunkKind.ABSENT) & ((end < offset) | (end > refs.length[shard]))
    kind = np.where(is_missing | is_outside, np.uint8(ChunkKind.ABSENT), kind)
    is_absent = kind == ChunkKind.ABSENT
    inner = replace(
        refs,
        index=index,
        kind=kind,
        source=refs.source[shard],
        offset=np.where(is_absent, np.uint64(0), refs.offset[shard] + offset),
        length=np.where(is_absent, np.uint64(0), length),
        statistics=None,
    )
    return inner, np.flatnonzero(is_failed[shard] | is_outside)


def _shard_indexes(
    reader: ChunkReader, refs: ChunkTable, layout: ShardLayout
) -> tuple[U64, NDArray[np.bool_]]:
    """Return the entries of the index of each shard, and whether the index could not be read."""
    count = prod(layout.counts)
    size = layout.index_bytes
    entries = np.full((len(refs), count, 2), MISSING, np.uint64)
    is_absent = refs.kind == ChunkKind.ABSENT
    length = refs.length.astype(np.int64)
    is_failed = ~is_absent & (length < size)
    rows = np.flatnonzero(~is_absent & ~is_failed)
    start = np.zeros(len(rows), np.int64) if layout.is_index_first else length[rows] - size

    def process(request: ColumnRequest) -> list[I64]:
        try:
            data = request.read()
            indexes = windows(data, size)[request.offset].view(np.uint8).reshape(len(request.rows), size)
        except Exception:  # zarr reads these shards again, and raises the error
            return [request.rows]
        parts = (memoryview(np.ascontiguousarray(each)) for each in indexes[:, :-CRC_BYTES])
        sums = np.fromiter(map(crc32c, parts), np.int64, len(indexes))  # once for each shard
        is_right = sums == indexes[:, -CRC_BYTES:].copy().view("<u4")[:, 0]
        entries[rows[request.rows]] = indexes[:, :-CRC_BYTES].copy().view("<u8").reshape(-1, count, 2)
        return [request.rows[~is_right]]

    if len(rows):
        requests = requests_of(reader, refs.select_chunks(rows), start, np.full(len(rows), size, np.int64))
        is_failed[rows[process_all(reader, process, requests, size * len(rows))]] = True
    return entries, is_failed


#: The smallest mean length of the runs of a request, in bytes. Fewer bytes are copied faster than read alone.
_SHORTEST_RUN: Final = 64 << 10


def _is_run(counts: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether a box of ``counts`` elements is one run of an array in C order."""
    is_whole = [count == length for count, length in zip(counts, shape, strict=True)]
    longer = [axis for axis, count in enumerate(counts) if count > 1]
    return not longer or all(is_whole[longer[0] + 1 :])


class PieceReading:
    """One read of the pieces of a selection.

    The bytes of some pieces are in the same order in their chunk and in the result. Neighbouring pieces of
    this kind are a *run*, which one call reads into the memory of the result. Large zstd frames of such
    pieces are decoded there.
    """

    def __init__(
        self, workspace: Workspace, path: str, encoding: Encoding, pieces: Pieces, out: NDArray[Any]
    ) -> None:
        self._workspace = workspace
        self._path = path
        self._encoding = encoding
        self._pieces = pieces
        self._out = out
        self._is_partial = np.zeros(len(pieces.regions), np.bool_)
        # Elements have the same bytes in chunks and in the result, both in C order.
        is_in_order = encoding.is_in_c_order and encoding.stored == out.dtype and out.flags.c_contiguous
        runs = [is_in_order and _is_run(region.counts, out.shape) for region in pieces.regions]
        pairs = list(zip(pieces.regions, runs, strict=True))
        self._has_runs = encoding.decoder is plain and all(
            is_run and region.is_dense for region, is_run in pairs
        )
        #: The size of the decoded chunks of each region that are decoded into the result, or 0.
        self._sizes = [
            encoding.chunk_bytes(region.shape)
            if is_run and region.is_whole and encoding.decoder is zstd
            else 0
            for region, is_run in pairs
        ]
        if is_in_order:
            self._memory = memoryview(out.reshape(-1).view(np.uint8))
            self._place = pieces.target @ np.array(out.strides, np.int64)

    def run(self) -> I64:
        """Read the pieces. Return the rows of the pieces that could not be read or decoded."""
        pieces, encoding, reader = self._pieces, self._encoding, self._workspace.reader
        refs, failures = refs_of(self._workspace, self._path, encoding, pieces.index)
        is_absent = refs.kind == ChunkKind.ABSENT
        absent = np.flatnonzero(is_absent)
        for same in rows_by_number(pieces.region[absent]):
            region = pieces.regions[int(pieces.region[absent[same[0]]])]
            place_pieces(self._out, pieces.target[absent[same]], region.counts, encoding.fill)
        start, self._length = np.zeros(len(pieces.index), np.int64), refs.length.astype(np.int64)
        if encoding.decoder is plain:
            sizes = np.array([encoding.chunk_bytes(region.shape) for region in pieces.regions])
            if ((self._length != sizes[pieces.region]) & ~is_absent).any():
                return np.arange(len(pieces.index))
            for number, region in enumerate(pieces.regions if encoding.is_in_c_order else ()):
                first, last = region.elements()
                if last - first < prod(region.shape):  # only these elements are read
                    self._is_partial[number] = True
                    rows = slice(None) if len(pieces.regions) == 1 else pieces.region == number
                    start[rows] = first * encoding.stored.itemsize
                    size = (last - first) * encoding.stored.itemsize
                    self._length[rows] = np.where(self._length[rows] > 0, size, 0)
        try:
            requests = requests_of(reader, refs, start, self._length)
        except InvalidInputError:  # a container that is not authorised: zarr raises the error of the chunk
            return np.arange(len(pieces.index))
        failed = process_all(reader, self._process, requests, int(self._length.sum()))
        return failed if not len(failures) else np.union1d(failures, failed)

    def _process(self, request: ColumnRequest) -> list[I64]:
        rows = request.rows
        try:
            if self._has_runs and request.is_local and self._read_runs(request):
                return []
            data = request.read()
        except Exception:  # zarr reads these chunks again, and raises the error of the first one
            return [rows]
        if int((request.offset + self._length[rows]).max()) > len(data):
            return [rows]
        failures: list[I64] = []
        for same in rows_by_number(self._pieces.region[rows]):
            number = int(self._pieces.region[rows[same[0]]])
            region, size = self._pieces.regions[number], self._sizes[number]
            if size >= _SHORTEST_RUN:
                for row, at in zip(rows[same].tolist(), request.offset[same].tolist(), strict=True):
                    first = int(self._place[row])  # once for each chunk: large chunks are few
                    try:
                        frame = data[at : at + int(self._length[row])]
                        zstd_into(frame, self._memory[first : first + size])
                    except Exception:  # zarr reads these chunks again, and raises the error
                        failures.append(np.array([row]))
                continue
            for batch in batches_of(same, self._encoding.chunk_bytes(region.shape)):
                chosen = rows[batch]
                try:
                    values = self._values(region, data, request.offset[batch], chosen)
                except Exception:
                    failures.append(chosen)
                else:
                    place_pieces(self._out, self._pieces.target[chosen], region.counts, values)
        return failures

    def _read_runs(self, request: ColumnRequest) -> bool:
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

    def _values(self, region: Region, data: U8, offset: I64, rows: I64) -> NDArray[Any]:
        """Return the elements of a region from several chunks, shape (m, ...)."""
        encoding, length = self._encoding, self._length[rows]
        if not self._is_partial[self._pieces.region[rows[0]]]:
            chunks = encoding.decoder(data, offset, length, encoding.chunk_bytes(region.shape))
            values = encoding.decoded(chunks, region.shape)
            return values if region.is_whole else values[(slice(None), *region.slices)]
        return strided_regions(region, plain(data, offset, length, int(length[0])).view(encoding.stored))


def read_chunks(
    workspace: Workspace, path: str, encoding: Encoding, index: U32, shape: tuple[int, ...]
) -> tuple[NDArray[Any], I64]:
    """Return the elements of chunks of one shape, ``(m, *shape)``, and the rows that could not be read."""
    region = Region(shape, tuple(slice(0, n, 1) for n in shape), shape)
    target = np.zeros((len(index), len(shape)), np.int64)
    if shape:
        target[:, 0] = shape[0] * np.arange(len(index))
    pieces = Pieces(index, target, np.zeros(len(index), np.int64), (region,))
    # The chunks lie one after the other along the first dimension.
    out = np.empty((len(index) * shape[0], *shape[1:]) if shape else (), encoding.dtype)
    failures = PieceReading(workspace, path, encoding, pieces, out).run()
    return out.reshape(len(index), *shape), failures


def read_whole_chunks(
    workspace: Workspace, path: str, encoding: Encoding, index: U32, batch: int
) -> Iterator[tuple[I64, NDArray[Any], I64]]:
    """Yield rows of ``index``, the elements of these chunks, and which of these chunks could not be read.

    The chunks of a yield have one shape, and about ``batch`` bytes. Elements outside of the array are
    arbitrary.
    """
    lengths = np.empty(index.shape, np.int64)
    for axis, length in enumerate(encoding.lengths):
        low, high = chunk_bounds(index[:, axis].astype(np.int64), length)
        lengths[:, axis] = high - low
    shapes, group = np.unique(lengths, axis=0, return_inverse=True)
    for number, shape in enumerate(map(tuple, shapes.tolist())):
        rows = np.flatnonzero(group.reshape(-1) == number)
        most = max(1, batch // max(1, encoding.chunk_bytes(shape)))
        for part in np.split(rows, np.arange(most, len(rows), most)):
            yield part, *read_chunks(workspace, path, encoding, index[part], shape)


def strided_regions(region: Region, spans: NDArray[Any]) -> NDArray[Any]:
    """Return regions of chunks in C order. ``spans`` has the elements from the first to the last of each."""
    distance = np.cumprod([1, *region.shape[:0:-1]])[::-1]
    steps = (each * s.step * spans.itemsize for each, s in zip(distance.tolist(), region.slices, strict=True))
    return as_strided(spans, (len(spans), *region.counts), (spans.strides[0], *steps), writeable=False)


class PointReading:
    """One read of points."""

    def __init__(
        self, workspace: Workspace, path: str, encoding: Encoding, points: Points, out: NDArray[Any]
    ) -> None:
        self._workspace = workspace
        self._path = path
        self._encoding = encoding
        self._points = points
        self._out = out

    def run(self) -> I64:
        """Read the points. Return the points that could not be read or decoded."""
        points, encoding, reader = self._points, self._encoding, self._workspace.reader
        itemsize = encoding.stored.itemsize
        refs, failures = refs_of(self._workspace, self._path, encoding, points.index)
        if len(failures):
            return np.arange(len(points.chunk))
        is_absent = refs.kind == ChunkKind.ABSENT
        if is_absent.any():
            self._out[is_absent[points.chunk]] = encoding.fill
        if encoding.decoder is plain:
            if ((refs.length != points.size * itemsize) & ~is_absent).any():
                return np.arange(len(points.chunk))
            start, length = points.element * itemsize, np.full(len(points.chunk), itemsize, np.int64)
            requests = requests_of(reader, refs.select_chunks(points.chunk), start, length)
            return process_all(reader, self._take, requests, int(length.sum()))
        self._order = np.argsort(points.chunk, kind="stable")
        self._bounds = np.searchsorted(points.chunk[self._order], np.arange(len(refs) + 1))
        self._length = refs.length.astype(np.int64)
        requests = requests_of(reader, refs, np.zeros(len(refs), np.int64), self._length)
        return process_all(reader, self._decode, requests, int(self._length.sum()))

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
                points = self._points_in(chosen)
                try:
                    decoded = self._encoding.decoder(data, request.offset[batch], self._length[chosen], size)
                except Exception:
                    failures.append(points)
                    continue
                counts = self._bounds[chosen + 1] - self._bounds[chosen]
                rows = np.repeat(np.arange(len(batch)), counts)
                self._out[points] = decoded.view(stored)[rows, self._points.element[points]]
        return failures

    def _points_in(self, chunks: I64) -> I64:
        """Return the points in some chunks, one chunk after the other."""
        return self._order[ranges(self._bounds[chunks], self._bounds[chunks + 1] - self._bounds[chunks])]


def read_in_chunk(
    workspace: Workspace, path: str, encoding: Encoding, slices: tuple[AxisSlice, ...]
) -> NDArray[Any] | None:
    """Return the elements of a box in one chunk."""
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


def read_single_chunks(workspace: Workspace, paths: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the elements of arrays that have one chunk, read with merged requests.

    Arrays with more chunks, and arrays that only zarr can read, are not in the result.
    """
    entries = {path: workspace.array_entry(path) for path in paths}
    workspace.manifests(list({id_ for entry in entries.values() if entry for id_ in entry.ids}))
    chosen: list[tuple[str, Encoding, ChunkRef]] = []
    values: dict[str, NDArray[Any]] = {}
    for path, entry in entries.items():
        encoding = None if entry is None else encoding_of(entry.node.user_data)
        if encoding is None or encoding.shards is not None or 0 in encoding.shape:
            continue
        pairs = zip(encoding.shape, encoding.lengths, strict=True)
        if not all(isinstance(length, int) and size <= length for size, length in pairs):
            continue
        first = (0,) * len(encoding.shape)
        workspace.note_chunk(path, first)
        ref = workspace.ref(path, first)
        if ref is None:
            values[path] = np.full(encoding.shape, encoding.fill, encoding.dtype)
        else:
            chosen.append((path, encoding, ref))
    try:
        chunks = workspace.reader.read_many([(ref, 0, None) for _, _, ref in chosen])
    except Exception:  # a read of the array raises the error
        return values
    for (path, encoding, _), data in zip(chosen, chunks, strict=True):
        shape = tuple(each for each in encoding.lengths if isinstance(each, int))
        chunk, size = np.frombuffer(data, np.uint8), encoding.chunk_bytes(shape)
        if encoding.decoder is plain and len(chunk) != size:
            continue
        with suppress(Exception):
            decoded = encoding.decoder(chunk, np.zeros(1, np.int64), np.full(1, len(chunk)), size)
            elements = encoding.decoded(decoded, shape)[0, ...]
            values[path] = elements[tuple(map(slice, encoding.shape))].astype(encoding.dtype)
    return values


def read_box_into(
    workspace: Workspace, path: str, encoding: Encoding, slices: tuple[AxisSlice, ...], out: NDArray[Any]
) -> tuple[Pieces, I64]:
    """Read a box that is not empty into ``out``. Return its pieces, and the rows of the failed ones."""
    axes = zip(slices, encoding.lengths, strict=True)
    pieces = pieces_of_axes([chunks_of_slice(each.start, each.count, each.step, n) for each, n in axes])
    return pieces, PieceReading(workspace, path, encoding, pieces, out).run()
