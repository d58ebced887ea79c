"""Cuts chunks of plain bytes into smaller chunks, by references alone.

A variable without compression is stored as values one after the other. A reference to a part of them is
possible if the part is a run of bytes: whole steps of one dimension, and one index in each dimension before
it. So files of different lengths can have one chunk shape:

    files of 120, 120 and 60 steps     chunks of 60
    one more file of 12 steps          chunks of 12; stored references are cut too

Chunks along the concat dimension are as long as the borders of all files allow.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError
from frazil.format.chunk_table import ChunkKind, ChunkTable
from frazil.format.columns import Ragged
from frazil.pipeline.ingest.arrays import LARGEST
from frazil.pipeline.ingest.axis import Axis, Pieces, old_pieces
from frazil.pipeline.ingest.file_layout import ANY, VirtualChunks
from frazil.readers.reader import ChunkReferences
from frazil.repository.session.session import Session


@dataclass(frozen=True, slots=True)
class Cut:
    """The division of chunks of the shape ``large`` into chunks of the shape ``small``, along ``axis``.

    ``small`` has one step in each dimension before the axis, and the length of ``large`` in each dimension
    after it. A remainder of ``large`` along the axis is left out.
    """

    large: tuple[int, ...]
    small: tuple[int, ...]
    axis: int

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of small chunks in a large chunk, for each dimension."""
        return tuple(size // step for size, step in zip(self.large, self.small, strict=True))

    def index(self, index: NDArray[Any]) -> NDArray[np.int64]:
        """Return the indices of the small chunks, (n * parts, ndim), of large chunks, (n, ndim)."""
        counts = np.array(self.counts, np.int64)
        inside = np.indices(self.counts).reshape(len(counts), -1).T
        places = index.astype(np.int64)[:, None, :] * counts + inside[None]
        return np.asarray(places.reshape(-1, len(counts)))

    def starts(self, itemsize: int) -> NDArray[np.int64]:
        """Return the offset of each small chunk in a large chunk, in bytes."""
        behind = math.prod(self.large[self.axis + 1 :]) * itemsize
        before = np.arange(math.prod(self.large[: self.axis]), dtype=np.int64) * self.large[self.axis]
        inside = np.arange(self.counts[self.axis], dtype=np.int64) * self.small[self.axis]
        return (before[:, None] + inside).ravel() * behind


def cut_shape(chunks: tuple[int, ...], axis: int, steps: int) -> tuple[int, ...]:
    """Return the shape of chunks that are cut to ``steps`` along an axis."""
    if chunks[axis] == steps:
        return chunks
    return (*(1,) * axis, steps, *chunks[axis + 1 :])


def cut_references(references: ChunkReferences, chunks: tuple[int, ...], axis: int) -> ChunkReferences:
    """Return references to parts of chunks of plain bytes, for chunks of another shape (see `cut_shape`)."""
    if references.chunks == chunks:
        return references
    itemsize = references.dtype.itemsize
    _require_full(references.length, references.chunks, itemsize, references.locations[0])
    how = Cut(references.chunks, chunks, axis)
    starts, size = how.starts(itemsize), math.prod(chunks) * itemsize
    parts = len(starts)
    inline = {
        row * parts + part: data[start : start + size]
        for row, data in references.inline.items()
        for part, start in enumerate(starts.tolist())
    }
    offset = np.repeat(references.offset, parts) + np.tile(starts, len(references.offset)).astype(np.uint64)
    return replace(
        references,
        chunks=chunks,
        index=how.index(references.index).astype(np.uint32),
        offset=offset,
        length=np.full(len(offset), size, np.uint64),
        location=np.repeat(references.location, parts),
        inline=inline,
    )


def common_steps(
    pieces: Pieces, axis: Axis, units: NDArray[np.int64], lengths: NDArray[np.int64], existing: int | None
) -> int:
    """Return the longest chunk along the axis on whose borders all pieces of files begin and end, in steps.

    ``units`` and ``lengths`` (steps) are those of the file of each piece. ``existing`` is the length of the
    chunks of the array, None if it is new. A piece that ends at the end of the axis may be part of a chunk,
    if its file has the whole chunk.
    """
    part = (pieces.at + pieces.count == axis.length) & (units < lengths)
    numbers = [pieces.at, pieces.start, pieces.count[~part], units]
    if existing is not None:
        old = old_pieces(axis, 0, axis.length)
        part = (old.start + old.count == len(axis.old)) & (old.at + old.count == axis.length)
        numbers += [old.at, old.start, old.count[~part], np.array([existing])]
    return max(int(np.gcd.reduce(np.concatenate(numbers))), 1)


def cuttable_chunks(references: ChunkReferences, axis: int, length: int) -> tuple[tuple[int, ...], int]:
    """Return the chunk shape of a file for its layout, and the unit in which it can be cut.

    See `VirtualChunks`. ``length`` is the length of the variable along the axis. Chunks that cannot be cut
    keep their shape, and their unit is 0.
    """
    chunks = references.chunks
    if not references.is_plain:
        return chunks, 0
    size = chunks[axis]
    before = chunks[:axis] if size <= max(length, 1) else (1,) * axis
    return (*before, ANY, *chunks[axis + 1 :]), min(size, length)


def array_chunks(
    chunked: VirtualChunks, axis: int, steps: int, *, whole: bool, existing: tuple[int, ...] | None
) -> VirtualChunks:
    """Return the virtual chunks with a chunk shape that all files and the ``existing`` array can have.

    ``steps`` is the result of `common_steps`. ``whole``: the chunks of all files have exactly so many steps.
    """
    before, behind = chunked.chunks[:axis], chunked.chunks[axis + 1 :]
    ones = (1,) * axis
    if existing is None:
        row = math.prod(behind) * chunked.dtype.itemsize * (math.prod(before) if whole else 1)
        chosen = _divisor(steps, max(LARGEST // max(row, 1), 1))
        chunks = (*(before if whole and chosen == steps else ones), chosen, *behind)
    elif steps == existing[axis] and (existing[:axis] == ones or (whole and existing[:axis] == before)):
        chunks = (*existing[: axis + 1], *behind)
    else:
        chunks = (*ones, steps, *behind)
    return replace(chunked, chunks=chunks, unit=0)


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor of a number that is at most ``most``."""
    candidates = np.arange(1, min(number, most) + 1)
    return int(candidates[number % candidates == 0].max(initial=1))


def recut_array(session: Session, path: str, chunks: tuple[int, ...], axis: int, itemsize: int) -> None:
    """Give an array of plain bytes another chunk shape, by changing only its references."""
    workspace = session.workspace
    document = json.loads(workspace.require_array(path).user_data)
    grid = document["chunk_grid"]["configuration"]
    large = tuple(grid["chunk_shape"])
    table = workspace.ref_table(path)
    grid["chunk_shape"] = list(chunks)
    workspace.set_node(path, json.dumps(document).encode())
    if not len(table):
        return
    _require_full(table.length, large, itemsize, path)
    how = Cut(large, chunks, axis)
    starts, size = how.starts(itemsize), math.prod(chunks) * itemsize
    parts, rows = len(starts), len(table)
    inline = np.repeat(table.kind == ChunkKind.INLINE, parts)
    source = np.repeat(table.source, parts)
    inside = np.tile(starts, rows)
    blobs = table.inline.starts[source[inline]] + inside[inline]
    source[inline] = np.arange(len(blobs), dtype=source.dtype)
    offset = np.repeat(table.offset, parts) + inside.astype(np.uint64)
    offset[inline] = 0
    small = replace(
        table,
        index=how.index(table.index).astype(np.uint32),
        kind=np.repeat(table.kind, parts),
        source=source,
        offset=offset,
        length=np.full(rows * parts, size, np.uint64),
        inline=Ragged(table.inline.values, blobs, np.full(len(blobs), size, np.int64)),
    )
    counts = [-(-size // step) for size, step in zip(document["shape"], chunks, strict=True)]
    small = small.select_chunks((small.index < np.array(counts, np.int64)).all(axis=1)).sorted()
    workspace.set_refs(path, ChunkTable.merge_tables([ChunkTable.from_absent(table.index), small]))


def _require_full(length: NDArray[Any], chunks: tuple[int, ...], itemsize: int, where: str) -> None:
    expected = math.prod(chunks) * itemsize
    wrong = np.flatnonzero(length != expected)
    if len(wrong):
        raise FormatError(
            f"{where}: each chunk of {chunks} must have {expected} bytes, got {int(length[wrong[0]])}",
            ErrorKind.INVALID_FILE_FORMAT,
        )
