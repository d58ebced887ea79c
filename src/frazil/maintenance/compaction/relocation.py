"""The work of a compaction: it copies live ranges to new packs, and writes manifests that refer to them.

A task gets several units. It first reads all references of its units, so that chunks of several arrays share
packs. Then it copies each distinct range once, in the order of arrays and coordinates. The packs are durable
before the manifests are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from frazil.changes.manifests import distribute
from frazil.chunks.pack_copies import FileRanges, PackOptions, copy_to_packs
from frazil.format.columns import I64
from frazil.format.ids import id_keys, id_matrix
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.compaction.compaction_info import LiveFiles
from frazil.maintenance.compaction.survey import native_rows
from frazil.maintenance.compaction.units import Relocation, Unit, UnitWork
from frazil.maintenance.listing import among, distinct
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST
from frazil.repository.session.manifest_files import put_manifests
from frazil.repository.session.uploads import putting


def relocate_piece(context: Context, item: Any) -> Iterator[Relocation]:
    """Move the chunks of some units, and write their manifests: a piece of work."""
    pack_size, works = item
    if not works:
        return
    tables = [_table(context, work) for work in works]
    moves = [_move(work, table) for work, table in zip(works, tables, strict=True)]
    leave = LiveFiles.union([work.leave for work in works])
    places, copied = _copy(context, moves, leave, pack_size)
    start = 0
    for work, table, move in zip(works, tables, moves, strict=True):
        rows = slice(start, start + len(move))
        start = rows.stop
        yield replace(_write(context, work.unit, table, move, places, rows), bytes_moved=copied)
        copied = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """The rows of a table whose chunks are moved, and their ranges."""

    rows: I64
    ranges: FileRanges

    def __len__(self) -> int:
        return len(self.rows)


def _table(context: Context, work: UnitWork) -> ChunkTable:
    """Return the references of a unit, with the new references of earlier attempts."""
    table = _merged(context, work.unit)
    for earlier in work.earlier:
        before = _merged(context, earlier.unit)
        after = _merged(context, replace(earlier.unit, old=earlier.manifests))
        if before.ndim == table.ndim == after.ndim:
            table = _carried(table, before, after)
    return table


def _merged(context: Context, unit: Unit) -> ChunkTable:
    id_, array = unit.node.id, unit.node.array
    assert array is not None
    files = [MANIFEST.read(context.storage, ref.id).arrays for ref in unit.old]
    tables = [arrays[id_] for arrays in files if id_ in arrays]
    return ChunkTable.merge_tables(tables) if tables else ChunkTable.empty(len(array.shape))


def _carried(table: ChunkTable, before: ChunkTable, after: ChunkTable) -> ChunkTable:
    """Return ``table`` with the references of ``after`` where it is equal to ``before``."""
    rows = before.find_chunks(table.index)
    at = np.flatnonzero(rows >= 0)
    at = at[table.same(at, before, rows[at])]
    moved = after.find_chunks(table.index[at])
    moved = np.sort(moved[moved >= 0])
    return ChunkTable.merge_tables([table, after.select_chunks(moved)])


def _move(work: UnitWork, table: ChunkTable) -> _Move:
    array = work.unit.node.array
    assert array is not None
    rows = native_rows(table, array.num_chunks)
    rows = rows[among(table.chunk_ids, work.leave.ids)[table.source[rows]]]
    columns = (table.source[rows], table.offset[rows], table.length[rows])
    source, offset, length = (column.astype(np.int64) for column in columns)
    return _Move(rows, FileRanges(table.chunk_ids, source, offset, length))


def _copy(
    context: Context, moves: Sequence[_Move], leave: LiveFiles, pack_size: int
) -> tuple[FileRanges, int]:
    """Copy each distinct range once.

    Return the new range of each row of all moves, and the number of bytes of the copies.
    """
    files = distinct([move.ranges.ids[np.unique(move.ranges.source)] for move in moves])
    keys = id_keys(files)
    nothing = np.zeros(0, np.int64)
    source = np.concatenate(
        [nothing, *(keys.searchsorted(id_keys(move.ranges.ids[move.ranges.source])) for move in moves)]
    )
    offset = np.concatenate([nothing, *(move.ranges.offset for move in moves)])
    length = np.concatenate([nothing, *(move.ranges.length for move in moves)])
    sizes = leave.sizes[id_keys(leave.ids).searchsorted(keys)]
    ranges, number = FileRanges(files, source, offset, length, sizes).distinct()
    # A file with one chunk may be named by the hash of its bytes. A copy under another name gains nothing.
    settings = context.settings
    options = PackOptions(pack_size, 2 if settings.deduplicate else 1, settings.checksums)
    copies = copy_to_packs(context.storage, ranges, options, context.new_chunk_id)
    copied = int(copies.length[copies.source >= 0].sum())
    return FileRanges(copies.ids, copies.source[number], copies.offset[number], length), copied


def _write(
    context: Context, unit: Unit, table: ChunkTable, move: _Move, places: FileRanges, rows: slice
) -> Relocation:
    """Write the manifest of a unit with the new places of its chunks."""
    array = unit.node.array
    assert array is not None
    moved = places.source[rows] >= 0
    source, offset = places.source[rows][moved], places.offset[rows][moved]
    changed = move.rows[moved]
    sources, offsets = table.source.copy(), table.offset.copy()
    sources[changed] = len(table.chunk_ids) + source
    offsets[changed] = offset
    ids = np.concatenate([table.chunk_ids, places.ids])
    table = replace(table, source=sources, offset=offsets, chunk_ids=ids)
    tables = distribute(array, [table], ChunkTable.empty(table.ndim), unit.split)
    with putting(context.storage) as puts:
        stored = put_manifests(context, puts, [(unit.node.id, tables)])
    files = ManifestFiles(
        id_matrix([each.ref.id for each in stored]),
        np.array([each.size for each in stored], np.uint64),
        np.array([each.num_refs for each in stored], np.uint32),
    )
    packs = places.ids[np.unique(source)]
    return Relocation(unit, tuple(each.ref for each in stored), files, packs, 0)
