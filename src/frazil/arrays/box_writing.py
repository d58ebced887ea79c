"""The write of a box of an array: all its chunks are encoded in bulk, and go into packs.

values ──boxes_of──> boxes of chunks ──threads──> encoded chunks ──RowWriter──> packs, references as columns

Few boxes are in memory at the same time, so values can be larger than the memory, for example a file that is
mapped into it. The references are set when all chunks are stored: an error leaves the array as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.arrays.chunk_encoding import ChunkEncoding, EncodedBox
from frazil.arrays.chunk_source import chunks_of
from frazil.arrays.encoders import encoder_of, uncompressed
from frazil.arrays.piece_reading import PieceReading
from frazil.arrays.pieces import Pieces, Region
from frazil.arrays.write_plan import ChunkBox, boxes_of
from frazil.chunks.row_writer import RowWriter
from frazil.threads import SIZES, Purpose, shared_pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.arrays.encoding import Encoding
    from frazil.arrays.selection import AxisSlice
    from frazil.repository.session.workspace import Workspace

#: The most bytes of chunks that are encoded together: those of a pack.
_LARGEST_BATCH: Final = 16 << 20
#: Smaller batches do not become smaller for more threads. In bytes.
_SMALLEST_BATCH: Final = 2 << 20
#: The number of batches that a thread should get.
_BATCHES: Final = 4
#: Selections with fewer bytes are encoded without threads.
_SMALL: Final = 1 << 20


class BoxWriting:
    """One write of a box."""

    def __init__(self, workspace: Workspace, path: str, encoding: Encoding, *, writes_fill: bool) -> None:
        self._workspace = workspace
        self._path = path
        self._encoding = encoding
        self._writes_fill = writes_fill
        self._inline_threshold = workspace.context.settings.inline_chunk_threshold_bytes

    def run(self, slices: tuple[AxisSlice, ...], values: NDArray[Any]) -> bool:
        """Write values."""
        workspace = self._workspace
        encoder = self._encoder()
        if encoder is None:
            return False
        while True:
            discards = workspace.discards
            writer = RowWriter(workspace.writer, len(slices), self._inline_threshold)
            for box in self._encoded(encoder, slices, values):
                if box is None:
                    return False
                writer.add(box.index, box.rows)
                writer.delete(box.fill)
            if workspace.replace_refs(self._path, writer.table(), discards):
                return True

    def _encoder(self) -> ChunkEncoding | None:
        encoding, writer = self._encoding, self._workspace.writer
        if encoding.shards is not None or writer.deduplicates:
            return None
        encoder = encoder_of(encoding.codecs_of_bytes)
        if encoder is None:
            return None
        crc_below = writer.pack_below if writer.has_checksums else 0
        views_from = max(writer.pack_below, self._inline_threshold + 1)
        return ChunkEncoding(encoding, encoder, self._writes_fill, crc_below, views_from)

    def _encoded(
        self, encoder: ChunkEncoding, slices: tuple[AxisSlice, ...], values: NDArray[Any]
    ) -> Iterator[EncodedBox | None]:
        """Yield the encoded chunks, box by box. Threads encode the next boxes.

        None: the chunks of a box cannot be read.
        """
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
        index, shape = box.index(), box.shape
        region = Region(shape, tuple(slice(0, n, 1) for n in shape), shape)
        target = np.zeros((len(index), len(shape)), np.int64)
        if shape:
            target[:, 0] = shape[0] * np.arange(len(index))
        pieces = Pieces(index, target, np.zeros(len(index), np.int64), (region,))
        # The chunks lie one after the other along the first dimension.
        out = np.empty((len(index) * shape[0], *shape[1:]) if shape else (), self._encoding.dtype)
        chunks = chunks_of(self._workspace, self._path, self._encoding)
        if len(PieceReading(chunks, self._encoding, pieces, out).run()):
            return None
        return out.reshape(len(index), *shape)
