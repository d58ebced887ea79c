"""The write of values to a selection of an array: all its chunks are encoded in bulk, and go into packs.

values ──boxes_of──> boxes of chunks ──threads──> encoded chunks ──RowWriter──> packs, references as columns

Few boxes are in memory at the same time, so values can be larger than the memory. The references are set when
all chunks are stored: an error leaves the array as it was. The comparison with the fill value has the rules
of zarr: a real zero is compared by its bits, all other values as numbers, and all NaN are equal.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Buffer, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import zarr
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from zarr.core.array_spec import ArrayConfig
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore, StorePath

from frazil.arrays.box_reading import read_chunks
from frazil.arrays.element_statistics import STATISTICS_ATTRIBUTE, Meaning, chunk_rows, meaning_of
from frazil.arrays.encoding import Encoder, Encoding, ShardLayout, encoder_of, tiles_of_chunks, uncompressed
from frazil.arrays.selection import AxisChunks, AxisSlice, chunk_bounds, chunks_of_slice
from frazil.cf import missing_element_of
from frazil.chunks.packs import PackRows
from frazil.chunks.writer import RowWriter
from frazil.format.chunk_statistics import ChunkStatistics
from frazil.format.chunk_trailer import crc32c_rows
from frazil.format.columns import I64, U32
from frazil.repository.session.workspace import Workspace
from frazil.threads import SIZES, Purpose, shared_pool
from frazil.zarr_store.array_metadata import stored_metadata


@dataclass(frozen=True, slots=True, eq=False)
class AxisRun:
    """Chunks of one dimension into which the same elements are written.

    ``target`` is the position of the first element in the values, and ``spacing`` the distance of chunks
    there. ``length`` is the length of a chunk. ``elements`` and ``count`` are the written elements of each.
    ``is_complete``: all elements of the chunks that the array has are written.
    """

    numbers: I64
    target: int
    spacing: int
    length: int
    elements: slice
    count: int
    is_complete: bool

    def split(self, most: int) -> list[AxisRun]:
        """Return parts of about equal size with at most ``most`` chunks."""
        parts = np.array_split(np.arange(len(self.numbers)), -(-len(self.numbers) // most))
        return [
            replace(self, numbers=self.numbers[part], target=self.target + int(part[0]) * self.spacing)
            for part in parts
        ]


class ChunkBox:
    """A box of chunks, with a run of each dimension."""

    def __init__(self, runs: tuple[AxisRun, ...]) -> None:
        self.runs = runs
        #: The number of chunks along each dimension, and the shape and the written elements of a chunk.
        self.tiles: Final = tuple(len(run.numbers) for run in runs)
        self.shape: Final = tuple(run.length for run in runs)
        self.elements: Final = tuple(run.elements for run in runs)
        #: Whether all elements of the chunks that the array has are written, and whether these are the chunk.
        self.is_complete: Final = all(run.is_complete for run in runs)
        self.is_whole: Final = self.is_complete and all(run.count == run.length for run in runs)

    def index(self) -> U32:
        """Return the coordinates of the chunks, uint32 of shape (m, ndim)."""
        index = np.empty((*self.tiles, len(self.runs)), np.uint32)
        for axis, run in enumerate(self.runs):
            across = [-1 if each == axis else 1 for each in range(len(self.runs))]
            index[..., axis] = run.numbers.reshape(across)
        return index.reshape(prod(self.tiles), len(self.runs))

    def view(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the elements of the chunks in the values, without a copy, shape ``(*tiles, *counts)``."""
        counts = tuple(run.count for run in self.runs)
        ends = [run.target + (len(run.numbers) - 1) * run.spacing + run.count for run in self.runs]
        spot: list[Any] = [slice(run.target, end) for run, end in zip(self.runs, ends, strict=True)]
        corner = values[(*spot, ...)]  # with the ellipsis, a single element stays an array
        steps = tuple(s * run.spacing for s, run in zip(corner.strides, self.runs, strict=True))
        return as_strided(corner, self.tiles + counts, steps + corner.strides, writeable=False)

    def parts(self, most: int) -> Iterator[ChunkBox]:
        """Split the box into parts with at most ``most`` chunks. They follow each other in C order."""
        split: list[list[AxisRun]] = []
        for run in reversed(self.runs):
            split.append(run.split(max(1, most)))
            most //= len(run.numbers)
        return map(ChunkBox, product(*reversed(split)))


def boxes_of(encoding: Encoding, slices: tuple[AxisSlice, ...]) -> list[ChunkBox]:
    """Return the boxes of a selection that is not empty."""
    runs = []
    for each, size, length in zip(slices, encoding.shape, encoding.lengths, strict=True):
        axis = chunks_of_slice(each.start, each.count, each.step, length)
        runs.append(list(_runs(axis, size, length)))
    return list(map(ChunkBox, product(*runs)))


def _runs(axis: AxisChunks, size: int, length: int | I64) -> Iterator[AxisRun]:
    """Yield the runs of a dimension of ``size`` elements."""
    class_, rows = axis.classes()
    for number, row in enumerate(rows.tolist()):
        members = np.flatnonzero(class_ == number)
        low, high = (int(each[0]) for each in chunk_bounds(axis.number[row : row + 1], length))
        first, count = int(axis.first[row]), int(axis.count[row])
        # Chunks of a class with all their elements are whole chunks, or one chunk at the end of the array.
        is_complete = axis.step == 1 and first == 0 and count >= min(high, size) - low
        elements = slice(first, first + (count - 1) * axis.step + 1, axis.step)
        # The positions of the chunks of a run have equal distances.
        for part in np.split(members, np.flatnonzero(np.diff(axis.target[members], 2)) + 2):
            target = axis.target[part]
            spacing = int(target[1] - target[0]) if len(target) > 1 else 0
            yield AxisRun(
                axis.number[part], int(target[0]), spacing, high - low, elements, count, is_complete
            )


#: The dtypes whose elements can be "not a number".
_WITH_NAN = "fcmM"


def are_fill(chunks: NDArray[Any], fill: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether all elements of a chunk are the fill value, for each chunk."""
    if fill.dtype.kind == "f" and fill == 0 and fill.dtype.itemsize in (2, 4, 8):
        bits = np.dtype(f"u{fill.dtype.itemsize}")
        chunks, fill = chunks.view(bits), fill.view(bits)
    result = np.zeros(len(chunks), np.bool_)
    # The first and the last element tell it for most chunks.
    rows = np.flatnonzero(_equal(chunks[:, 0], fill) & _equal(chunks[:, -1], fill))
    if len(rows):
        chosen = chunks if len(rows) == len(chunks) else chunks[rows]
        result[rows] = _equal(chosen, fill).all(axis=1)
    return result


def _equal(values: NDArray[Any], fill: NDArray[Any]) -> NDArray[np.bool_]:
    equal: NDArray[np.bool_] = values == fill
    if fill.dtype.kind in _WITH_NAN and np.isnan(fill):
        equal |= np.isnan(values)
    return equal


def missing_element(array: zarr.Array[Any]) -> Any:
    """Return the element of a cell without a value: one that decodes as missing, or the fill value."""
    element = missing_element_of(array.attrs.asdict(), array.dtype)
    return array.fill_value if element is None else element


def is_fill(array: zarr.Array[Any], element: Any) -> bool:
    """Return whether the elements of chunks that are not stored are equal to an element."""
    one, fill = (np.asarray(each, array.dtype) for each in (element, array.fill_value))
    return bool(are_fill(one.reshape(1, 1), fill)[0])


#: The first element and the end of a box along each dimension of an array.
type Bounds = Sequence[tuple[int, int]]


def fill_box(array: zarr.Array[Any], box: Bounds, value: Any, *, only_whole: bool = False) -> None:
    """Set all elements of a box to one value."""
    if any(start >= stop for start, stop in box):
        return
    try:
        grid = tuple(array.shards or array.chunks)
    except NotImplementedError:  # a rectilinear grid
        if not only_whole:
            array[_slices(box)] = value
        return
    chunks = whole_chunks(box, grid, array.shape)
    core = [(stop, stop) for _, stop in box]
    if all(low < high for low, high in chunks):
        core = [
            (low * step, min(high * step, size))
            for (low, high), step, size in zip(chunks, grid, array.shape, strict=True)
        ]
        _fill_chunks(array, chunks, grid, value)
    rest = list(box)
    for axis, (first, end) in enumerate(() if only_whole else core):
        for edge in ((rest[axis][0], first), (end, rest[axis][1])):
            if edge[0] < edge[1]:
                array[_slices([*rest[:axis], edge, *rest[axis + 1 :]])] = value
        if first == end:
            return
        rest[axis] = (first, end)


def filled_chunk(
    document: bytes, path: str, at: tuple[int, ...], data: Buffer, boxes: Iterable[Bounds]
) -> bytes | None:
    """Return the bytes of a chunk after boxes of its array got the fill value; None if it has no other."""
    metadata = stored_metadata(document, path)
    key = metadata.encode_chunk_key(at)
    chunks: dict[str, Any] = {key: default_buffer_prototype().buffer.from_bytes(bytes(data))}
    config = ArrayConfig(order="C", write_empty_chunks=False)
    place = StorePath(MemoryStore(chunks), "")
    scratch: zarr.Array[Any] = zarr.Array(zarr.AsyncArray(metadata, place, config))
    for box in boxes:
        scratch[_slices(box)] = metadata.fill_value
    left: bytes | None = chunks[key].to_bytes() if key in chunks else None
    return left


def _slices(box: Bounds) -> tuple[slice, ...]:
    return tuple(slice(*each) for each in box)


def whole_chunks(box: Bounds, grid: Sequence[int], shape: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the end of the chunks that a box contains whole, along each dimension."""
    return [
        (-(-start // step), -(-stop // step) if stop >= size else stop // step)
        for (start, stop), step, size in zip(box, grid, shape, strict=True)
    ]


def _fill_chunks(
    array: zarr.Array[Any], chunks: Sequence[tuple[int, int]], grid: Sequence[int], value: Any
) -> None:
    """Give whole chunks one value: zarr writes the first chunk, and the others get its reference."""
    first = [
        (low * step, min((low + 1) * step, size))
        for (low, _), step, size in zip(chunks, grid, array.shape, strict=True)
    ]
    array[_slices(first)] = value
    counts = [high - low for low, high in chunks]
    index = np.indices(counts, np.uint32).reshape(len(counts), math.prod(counts)).T
    index = index + np.array([low for low, _ in chunks], np.uint32)
    workspace = array.store.session.workspace  # type: ignore[attr-defined]  # the store is an IcechunkStore
    path = "/" + array.path.strip("/")
    # zarr stores no chunk for the fill value: then the row of the first chunk is a deletion
    stored = workspace.refs_at(path, index[:1]).prune()
    rows = stored.select_chunks(np.zeros(len(index), np.int64))
    workspace.set_refs(path, replace(rows, index=index))


#: The coordinates, the bytes and the statistics of chunks, and the coordinates of chunks of the fill value.
type EncodedBox = tuple[U32, PackRows, ChunkStatistics | None, U32]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkEncoding:
    """How chunks become bytes.

    Attributes:
        writes_fill: Whether chunks that have only the fill value are stored, too.
        crc_below: Chunks that are smaller get a checksum here, others when they are stored. In bytes.
        views_from: Chunks without compression of at least this size are stored before the write returns, so
            that they may be views of the values. In bytes.
        meaning: What the elements mean, if the chunks get statistics.
        shards: The layout of the chunks, if they are shards.
    """

    encoding: Encoding
    encoder: Encoder
    writes_fill: bool
    crc_below: int
    views_from: int
    meaning: Meaning | None
    shards: ShardLayout | None

    def encode(self, box: ChunkBox, values: NDArray[Any], before: NDArray[Any] | None) -> EncodedBox:
        """Encode the chunks of a box."""
        chunks = self._chunks(box, values, before)
        index = box.index()
        if self.shards is not None:
            return self._shards(self.shards, index, self.shards.split(chunks, box.shape), box.shape)
        is_fill = np.zeros(len(index), np.bool_)
        if not self.writes_fill:
            is_fill = are_fill(chunks, self.encoding.fill.astype(self.encoding.stored))
        fill = index[is_fill]
        if len(fill):
            index, chunks = index[~is_fill], chunks[~is_fill]
        data, length, statistics = np.zeros(0, np.uint8), np.zeros(0, np.int64), None
        if len(chunks):
            stored = chunks.view(np.uint8).reshape(len(chunks), -1)
            data, length = self.encoder(stored)
            if self.meaning is not None:
                elements = self.encoding.decoded(stored, box.shape)
                rows = chunk_rows(self.meaning, self.encoding, index, elements)
                statistics = ChunkStatistics(self.meaning.context, rows[:, None])
        crc = crc32c_rows(data, length) if (length < self.crc_below).any() else None
        return index, PackRows(data, length, crc), statistics, fill

    def _shards(
        self, layout: ShardLayout, index: U32, chunks: NDArray[Any], shape: tuple[int, ...]
    ) -> EncodedBox:
        """Encode shards of a shape. ``chunks`` are all their inner chunks."""
        length = np.zeros(len(chunks), np.int64)
        if not self.writes_fill:
            length[are_fill(chunks, self.encoding.fill.astype(self.encoding.stored))] = -1
        is_stored = length == 0
        data = np.zeros(0, np.uint8)
        if is_stored.any():
            part = chunks if is_stored.all() else chunks[is_stored]
            data, length[is_stored] = self.encoder(part.view(np.uint8).reshape(len(part), -1))
        count = prod(layout.counts)
        by_shard = length.reshape(len(index), count)
        has_chunks = (by_shard >= 0).any(axis=1)
        data, sizes = layout.join(data, by_shard[has_chunks])
        statistics = None
        if self.meaning is not None:
            inner = tuple(n // each for n, each in zip(shape, layout.counts, strict=True))
            grid = replace(self.encoding, lengths=inner)
            tiles = tiles_of_chunks(layout.counts, index).astype(np.uint32)
            elements = grid.decoded(chunks.view(np.uint8).reshape(len(chunks), -1), inner)
            rows = chunk_rows(self.meaning, grid, tiles, elements).reshape(len(index), count)
            statistics = ChunkStatistics(self.meaning.context, rows[has_chunks])
        crc = crc32c_rows(data, sizes) if (sizes < self.crc_below).any() else None
        return index[has_chunks], PackRows(data, sizes, crc), statistics, index[~has_chunks]

    def _chunks(self, box: ChunkBox, values: NDArray[Any], before: NDArray[Any] | None) -> NDArray[Any]:
        """Return the new elements of chunks as they are stored, shape (m, n), without gaps."""
        encoding, tiles = self.encoding, box.tiles
        m, ndim = prod(tiles), len(tiles)
        # Chunks need no copy if they lie in the values as they are stored.
        is_stored = self.encoder is not uncompressed or encoding.chunk_bytes(box.shape) >= self.views_from
        is_same = encoding.is_in_c_order and values.dtype == encoding.stored
        if box.is_whole and is_stored and is_same:
            view = box.view(values)
            if view.flags.c_contiguous:
                return view.reshape(m, prod(box.shape))
        stored = np.empty(tiles + tuple(box.shape[axis] for axis in encoding.order), encoding.stored)
        chunks = stored.transpose(*range(ndim), *(ndim + encoding.order.index(axis) for axis in range(ndim)))
        if not box.is_whole:
            chunks[...] = encoding.fill if before is None else before.reshape(tiles + box.shape)
        chunks[(..., *box.elements)] = box.view(values)  # type: ignore[index]  # a tuple of slices
        return stored.reshape(m, prod(box.shape))


#: The most bytes of chunks that are encoded together: those of a pack.
_LARGEST_BATCH: Final = 16 << 20
#: Smaller batches do not become smaller for more threads. In bytes.
_SMALLEST_BATCH: Final = 2 << 20
#: The number of batches that a thread should get.
_BATCHES: Final = 4
#: Selections with fewer bytes are encoded without threads.
_SMALL: Final = 1 << 20


def wants_statistics(workspace: Workspace, document: bytes) -> bool:
    """Return whether new chunks of an array get statistics: by its attribute, or by the configuration."""
    by_default = workspace.context.settings.statistics
    if not by_default and STATISTICS_ATTRIBUTE.encode() not in document:
        return False
    meaning = meaning_of(document)
    return meaning is not None and (by_default if meaning.is_wanted is None else meaning.is_wanted)


class BoxWriting:
    """One write of a box."""

    def __init__(self, workspace: Workspace, path: str, encoding: Encoding, *, writes_fill: bool) -> None:
        self._workspace = workspace
        self._path = path
        self._encoding = encoding
        self._writes_fill = writes_fill
        self._inline_threshold = workspace.context.settings.inline_chunk_threshold_bytes

    def run(self, slices: tuple[AxisSlice, ...], values: NDArray[Any]) -> bool:
        """Write values. Return False if zarr has to write them; then nothing has changed."""
        workspace, encoding, writer = self._workspace, self._encoding, self._workspace.writer
        meaning, shards, codecs = self._meaning(), encoding.shards, encoding.codecs
        if shards is not None:
            # zarr encodes parts of shards: it reads their other inner chunks first.
            if meaning is None or not encoding.is_in_c_order:
                return False
            lengths = (each * count for each, count in zip(encoding.lengths, shards.counts, strict=True))
            encoding = self._encoding = replace(encoding, lengths=tuple(lengths), shards=None)
            if not all(box.is_complete for box in boxes_of(encoding, slices)):
                return False
            codecs = codecs[0].codecs
        encode = None if writer.deduplicates else encoder_of(codecs)
        if encode is None:
            return False
        crc_below = writer.pack_below if writer.has_checksums else 0
        views_from = max(writer.pack_below, self._inline_threshold + 1)
        encoder = ChunkEncoding(encoding, encode, self._writes_fill, crc_below, views_from, meaning, shards)
        while True:
            discards = workspace.discards
            rows = RowWriter(writer, len(slices), self._inline_threshold)
            for box in self._encoded(encoder, slices, values):
                if box is None:
                    return False
                index, chunks, statistics, fill = box
                rows.add(index, chunks, statistics)
                rows.delete(fill)
            if workspace.set_refs(self._path, rows.table(), discards):
                return True

    def _meaning(self) -> Meaning | None:
        """Return what the elements mean, if new chunks get statistics."""
        entry = self._workspace.array_entry(self._path)
        document = None if entry is None else entry.node.user_data
        if document is None or not wants_statistics(self._workspace, document):
            return None
        return meaning_of(document)

    def _encoded(
        self, encoder: ChunkEncoding, slices: tuple[AxisSlice, ...], values: NDArray[Any]
    ) -> Iterator[EncodedBox | None]:
        """Yield the encoded chunks, box by box, or None for chunks that cannot be read."""
        size = prod(values.shape) * self._encoding.stored.itemsize
        batch = _LARGEST_BATCH
        if encoder.encoder is not uncompressed:
            batch = min(batch, max(_SMALLEST_BATCH, size // (_BATCHES * SIZES[Purpose.CHUNK_ENCODING])))
        jobs = self._jobs(slices, batch)
        if size < _SMALL:
            for box, before in jobs:
                is_readable = box.is_complete or before is not None
                yield encoder.encode(box, values, before) if is_readable else None
            return
        pool, running = shared_pool(Purpose.CHUNK_ENCODING), deque[Future[EncodedBox]]()
        try:
            for box, before in jobs:
                if not box.is_complete and before is None:
                    yield None
                    return
                # A copy of the context, because it has numpy's handling of errors.
                running.append(pool.submit(copy_context().run, encoder.encode, box, values, before))
                if len(running) > SIZES[Purpose.CHUNK_ENCODING]:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for each in running:
                each.cancel()

    def _jobs(
        self, slices: tuple[AxisSlice, ...], batch: int
    ) -> Iterable[tuple[ChunkBox, NDArray[Any] | None]]:
        """Yield boxes of chunks of ``batch`` bytes, with their elements before the write if they matter."""
        for box in boxes_of(self._encoding, slices):
            for part in box.parts(max(1, batch // max(1, self._encoding.chunk_bytes(box.shape)))):
                yield part, None if part.is_complete else self._read(part)

    def _read(self, box: ChunkBox) -> NDArray[Any] | None:
        """Return the elements of chunks, shape ``(m, *shape)``, or None if a chunk cannot be read."""
        elements, failures = read_chunks(self._workspace, self._path, self._encoding, box.index(), box.shape)
        return None if len(failures) else elements
