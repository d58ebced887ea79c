"""The survey of a compaction: which bytes of which chunk files are live, by manifest.

A byte is live if a reference of the newest version of a chosen branch points to it. A range with several
references in one manifest counts once. A range with references in several manifests of a branch counts once
for each of them, so a file may look more alive than it is, and is then left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from frazil.chunks.pack_copies import FileRanges
from frazil.format.columns import I64, U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.maintenance.compaction.compaction_info import CompactionLimits, LiveFiles
from frazil.maintenance.listing import Listed, among, distinct
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST

#: A file may have checksums after its chunks: bytes for the file, and for each chunk. They are not dead.
_TRAILER: Final = 48
_TRAILER_OF_CHUNK: Final = 12
#: Merging small files must make one file out of this number or more.
_GAIN: Final = 4


@dataclass(frozen=True, slots=True)
class ArrayUse:
    """The use of a manifest by one array.

    ``is_chosen`` says whether the compaction may move the chunks of the array.
    """

    node_id: bytes
    num_chunks: tuple[int, ...]
    is_chosen: bool


@dataclass(frozen=True, slots=True, eq=False)
class FileUses:
    """The live bytes of k chunk files, as columns sorted by id.

    Attributes:
        ids: uint8 of shape (k, 12).
        live: The live bytes, int64 of shape (k,).
        movable: The live bytes of chosen arrays, int64 of shape (k,).
        ranges: The number of live ranges, int64 of shape (k,).
    """

    ids: U8
    live: I64
    movable: I64
    ranges: I64

    def __len__(self) -> int:
        return len(self.live)

    @staticmethod
    def empty() -> FileUses:
        """Return no files."""
        nothing = np.zeros(0, np.int64)
        return FileUses(np.zeros((0, OBJECT_ID_BYTES), np.uint8), nothing, nothing, nothing)

    @staticmethod
    def total(parts: Sequence[FileUses]) -> FileUses:
        """Return each file once, with the sums of its numbers."""
        if len(parts) == 1:
            return parts[0]
        ids = np.concatenate([FileUses.empty().ids, *(part.ids for part in parts)])
        keys, rows = np.unique(id_keys(ids), return_inverse=True)

        def summed(name: str) -> I64:
            values = np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])
            return np.bincount(rows, values, len(keys)).astype(np.int64)

        matrix = keys.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
        return FileUses(matrix, summed("live"), summed("movable"), summed("ranges"))

    @staticmethod
    def largest(parts: Sequence[FileUses]) -> FileUses:
        """Return each file once, with the largest live bytes of a part.

        A range that is not movable in one part is not movable.
        """
        whole = FileUses.total(parts)
        if len(parts) == 1:
            return whole
        live, ranges = np.zeros((2, len(whole)), np.int64)
        is_movable = np.ones(len(whole), bool)
        keys = id_keys(whole.ids)
        for part in parts:
            rows = keys.searchsorted(id_keys(part.ids))
            live[rows] = np.maximum(live[rows], part.live)
            ranges[rows] = np.maximum(ranges[rows], part.ranges)
            is_movable[rows] &= part.movable == part.live
        return FileUses(whole.ids, live, np.where(is_movable, live, 0), ranges)

    def select_files(self, files: U8) -> FileUses:
        """Return the rows of some files."""
        rows = among(self.ids, files)
        return FileUses(self.ids[rows], self.live[rows], self.movable[rows], self.ranges[rows])


def survey_piece(context: Context, item: Any) -> Iterator[tuple[bytes, FileUses]]:
    """Yield the live bytes of the chunk files of manifests: a piece of work."""
    for manifest, uses in item:
        arrays = MANIFEST.read(context.storage, manifest).arrays
        parts = [_uses_of(arrays[use.node_id], use) for use in uses if use.node_id in arrays]
        yield manifest, FileUses.total(parts)


def _uses_of(table: ChunkTable, use: ArrayUse) -> FileUses:
    rows = native_rows(table, use.num_chunks)
    columns = (table.source[rows], table.offset[rows], table.length[rows])
    each_once, _ = FileRanges(table.chunk_ids, *(column.astype(np.int64) for column in columns)).distinct()
    source, length = each_once.source, each_once.length
    ranges = np.bincount(source, minlength=len(table.chunk_ids))
    live = np.bincount(source, length, len(table.chunk_ids)).astype(np.int64)
    used = np.flatnonzero(ranges)
    uses = FileUses(
        table.chunk_ids[used], live[used], live[used] if use.is_chosen else 0 * live[used], ranges[used]
    )
    return FileUses.total([FileUses.empty(), uses])


def native_rows(table: ChunkTable, num_chunks: Sequence[int]) -> I64:
    """Return the rows of the references to chunk files, inside of a chunk grid."""
    is_native = (table.kind == ChunkKind.NATIVE) & (table.length > 0)
    if num_chunks:
        is_native &= (table.index < np.array(num_chunks, np.uint64)).all(axis=1)
    return np.flatnonzero(is_native)


def chosen_files(uses: FileUses, listed: Listed, limits: CompactionLimits, task_bytes: int) -> LiveFiles:
    """Return the chunk files that a compaction writes again."""
    rows = np.minimum(id_keys(listed.ids).searchsorted(id_keys(uses.ids)), max(len(listed) - 1, 0))
    is_stored = among(uses.ids, listed.ids)
    sizes = np.zeros(len(uses), np.int64)
    sizes[is_stored] = listed.sizes[rows[is_stored]]
    movable = is_stored & (uses.live > 0) & (uses.movable == uses.live)
    payload = sizes - _TRAILER - _TRAILER_OF_CHUNK * uses.ranges
    dead = movable & (uses.live < limits.live_fraction * payload)
    small = movable & ~dead & (sizes < min(limits.small_size, limits.pack_size))
    moved = int(uses.live[small].sum())
    packs = moved // limits.pack_size + 1 + moved // task_bytes
    if np.count_nonzero(small) < _GAIN * packs:
        small[:] = False
    chosen = dead | small
    return LiveFiles(uses.ids[chosen], sizes[chosen], uses.live[chosen])


def all_files(parts: Sequence[FileUses]) -> U8:
    """Return the ids of the files of several parts, each once."""
    return distinct([part.ids for part in parts])
