"""The read of blocks into a result: references, requests, decoding, and copies to their places."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from frazil.arrays.batches import batches_of, groups_of, process_all
from frazil.arrays.blocks import place_blocks
from frazil.arrays.decoders import plain
from frazil.chunks.column_reads import requests_of
from frazil.format.manifest import ChunkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.arrays.blocks import Blocks, Part
    from frazil.arrays.chunk_source import ArrayChunks
    from frazil.arrays.encoding import Encoding
    from frazil.arrays.shards import ShardedChunks
    from frazil.chunks.column_reads import ColumnRequest
    from frazil.format.columns import I64, U8


class BlockReading:
    """One read of the blocks of a selection.

    Args:
        source: The chunks of the array.
        encoding: The encoding of the array.
        blocks: The blocks to read.
        out: The result, which ``run`` fills.
    """

    def __init__(
        self, source: ArrayChunks | ShardedChunks, encoding: Encoding, blocks: Blocks, out: NDArray[Any]
    ) -> None:
        self._source = source
        self._encoding = encoding
        self._blocks = blocks
        self._out = out
        self._is_partial = np.zeros(len(blocks.parts), np.bool_)

    def run(self) -> I64:
        """Read the blocks. Return the rows of the blocks that could not be read or decoded."""
        blocks = self._blocks
        refs, failures = self._source.refs(blocks.index)
        is_absent = refs.kind == ChunkKind.ABSENT
        if is_absent.any():
            self._fill(np.flatnonzero(is_absent))
        start, self._length = np.zeros(len(blocks), np.int64), refs.length.astype(np.int64)
        if self._encoding.decoder is plain:
            sizes = np.array([self._encoding.chunk_bytes(part.shape) for part in blocks.parts])
            if ((self._length != sizes[blocks.group]) & ~is_absent).any():
                return np.arange(len(blocks))
            if self._encoding.is_in_c_order:
                self._narrow(start)
        requests = requests_of(self._source.reader, refs, start, self._length)
        failed = process_all(self._process, requests, int(self._length.sum()))
        return failed if not len(failures) else np.union1d(failures, failed)

    def _fill(self, rows: I64) -> None:
        for group in groups_of(self._blocks.group[rows]):
            part = self._part_of(rows[group])
            place_blocks(self._out, self._blocks.target[rows[group]], part.counts, self._encoding.fill)

    def _part_of(self, rows: I64) -> Part:
        return self._blocks.parts[int(self._blocks.group[rows[0]])]

    def _narrow(self, start: I64) -> None:
        """Set the bytes to read of chunks without compression: those from the first to the last element."""
        blocks, itemsize = self._blocks, self._encoding.stored.itemsize
        for number, part in enumerate(blocks.parts):
            first, last = part.elements()
            if last - first < prod(part.shape):
                self._is_partial[number] = True
                rows = slice(None) if len(blocks.parts) == 1 else blocks.group == number
                start[rows] = first * itemsize
                self._length[rows] = np.where(self._length[rows] > 0, (last - first) * itemsize, 0)

    def _process(self, request: ColumnRequest) -> list[I64]:
        rows = request.rows
        try:
            data = request.read()
        except Exception:  # zarr reads these chunks again, and raises the error of the first one
            return [rows]
        if int((request.offset + self._length[rows]).max()) > len(data):
            return [rows]
        failures = []
        for group in groups_of(self._blocks.group[rows]):
            part = self._part_of(rows[group])
            for batch in batches_of(group, self._encoding.chunk_bytes(part.shape)):
                chosen = rows[batch]
                try:
                    values = self._values(part, data, request.offset[batch], chosen)
                except Exception:
                    failures.append(chosen)
                else:
                    place_blocks(self._out, self._blocks.target[chosen], part.counts, values)
        return failures

    def _values(self, part: Part, data: U8, offset: I64, rows: I64) -> NDArray[Any]:
        """Return the decoded parts of the chunks of one group, shape (m, ...)."""
        encoding, length = self._encoding, self._length[rows]
        if not self._is_partial[self._blocks.group[rows[0]]]:
            chunks = encoding.decoder(data, offset, length, encoding.chunk_bytes(part.shape))
            values = encoding.decoded(chunks, part.shape)
            return values if part.is_whole else values[(slice(None), *part.slices)]
        return strided_parts(part, plain(data, offset, length, int(length[0])).view(encoding.stored))


def strided_parts(part: Part, spans: NDArray[Any]) -> NDArray[Any]:
    """Return parts of chunks in C order, from the elements between the first and the last of each part."""
    distance = np.cumprod([1, *part.shape[:0:-1]])[::-1]
    steps = (each * s.step * spans.itemsize for each, s in zip(distance.tolist(), part.slices, strict=True))
    return as_strided(spans, (len(spans), *part.counts), (spans.strides[0], *steps), writeable=False)
