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
from frazil.arrays.encoders import encoder_of, plain
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

#: The most bytes of chunks that are compressed together: about the cache of a processor.
_BATCH: Final = 4 << 20
#: The most bytes of chunks without compression: those of a pack.
_PLAIN_BATCH: Final = 16 << 20
#: Selections with fewer bytes are encoded without threads.
_SMALL: Final = 1 << 20


class UnreadableChunkError(Exception):
    """A chunk that is written in part cannot be read in bulk."""


class BoxWriting:
    """One write of a box.

    Args:
        workspace: The workspace of the session.
        path: The path of the array.
        encoding: The encoding of the array, without shards.
        writes_fill: Whether chunks that have only the fill value are stored. Otherwise they are deleted.
    """

    def __init__(self, workspace: Workspace, path: str, encoding: Encoding, *, writes_fill: bool) -> None:
        self._workspace = workspace
        self._path = path
        self._encoding = encoding
        self._writes_fill = writes_fill

    def run(self, slices: tuple[AxisSlice, ...], values: NDArray[Any]) -> bool:
        """Write values.

        Args:
            slices: The elements to write, at least one.
            values: The values, with the shape of the box.

        Returns:
            False if zarr has to write the values: the codecs have no encoder, the session deduplicates, or
            a chunk cannot be read in bulk. Then nothing has changed.

        Raises:
            StorageError: The storage fails.
            SessionStateError: The session has committed, or the array has changed meanwhile.
        """
        workspace = self._workspace
        encoder = self._encoder()
        if encoder is None:
            return False
        while True:
            discards = workspace.discards
            threshold = workspace.context.settings.inline_chunk_threshold_bytes
            writer = RowWriter(workspace.writer, len(slices), threshold)
            try:
                for box in self._encoded(encoder, slices, values):
                    writer.add(box.index, box.rows)
                    writer.delete(box.fill)
            except UnreadableChunkError:
                return False
            if workspace.chunks.set_written(self._path, writer.table(), discards):
                return True

    def _encoder(self) -> ChunkEncoding | None:
        encoding, writer = self._encoding, self._workspace.writer
        if encoding.shards is not None or writer.deduplicates:
            return None
        encoder = encoder_of(encoding.codecs_of_bytes)
        if encoder is None:
            return None
        return ChunkEncoding(encoding, encoder, self._writes_fill, writer.has_checksums)

    def _encoded(
        self, encoder: ChunkEncoding, slices: tuple[AxisSlice, ...], values: NDArray[Any]
    ) -> Iterator[EncodedBox]:
        """Yield the encoded chunks, box by box. Threads encode the next boxes."""
        jobs = self._jobs(encoder, slices)
        size = prod(values.shape) * self._encoding.stored.itemsize
        if size < _SMALL:
            for box, before in jobs:
                yield encoder.encode(box, values, before)
            return
        pool, running = shared_pool(Purpose.CHUNK_ENCODING), deque[Future[EncodedBox]]()
        try:
            for box, before in jobs:
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
        self, encoder: ChunkEncoding, slices: tuple[AxisSlice, ...]
    ) -> Iterable[tuple[ChunkBox, NDArray[Any] | None]]:
        """Yield the boxes of chunks, with their elements before the write if they are needed."""
        most = _PLAIN_BATCH if encoder.encoder is plain else _BATCH
        for box in boxes_of(self._encoding, slices):
            for part in box.parts(max(1, most // max(1, self._encoding.chunk_bytes(box.shape)))):
                yield part, None if part.is_complete else self._read(part)

    def _read(self, box: ChunkBox) -> NDArray[Any]:
        """Return the elements of chunks, shape ``(m, *shape)``."""
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
            raise UnreadableChunkError
        return out.reshape(len(index), *shape)
