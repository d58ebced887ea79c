"""The work of a compaction: it copies live ranges to new packs, and writes manifests that refer to them.

A unit consists of the manifests of an array that are written again together. Usually a unit is one manifest,
and becomes one manifest for the same chunks. If a branch has too many manifests, all manifests inside of one
box of the splitting are a unit, and a manifest that crosses several boxes is a unit that becomes several
manifests. The boxes are those of ``changes.manifests``.

A task gets several units. It first reads all references of its units, so that chunks of several arrays share
packs. Then it copies each distinct range once, in the order of arrays and coordinates. The packs are durable
before the manifests are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np

from frazil.changes.manifests import distribute
from frazil.chunks.packs import FileRanges, PackOptions, copy_to_packs
from frazil.format.columns import I64, U8
from frazil.format.ids import id_keys, id_list, id_matrix
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node, Snapshot
from frazil.maintenance.compaction_info import LiveFiles
from frazil.repository.catalog.assets import MANIFEST
from frazil.repository.catalog.context import Context
from frazil.repository.session.commit_files import num_refs, put_manifests, split_of, uploading
from frazil.survey.columns import among, distinct

#: Manifests are written again if there are this many times more of them than boxes.
_TOO_MANY: Final = 4


@dataclass(frozen=True, slots=True)
class ArrayUse:
    """The use of a manifest by one array.

    ``is_chosen`` says whether the compaction may move the chunks of the array.
    """

    node_id: bytes
    num_chunks: tuple[int, ...]
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Unit:
    """Manifests of one array that are written again together.

    ``split`` is the size of the boxes of the new manifests, in chunks. ``is_cut`` says whether the old
    manifests are not as the splitting wants them.
    """

    node: Node
    old: tuple[ManifestRef, ...]
    split: tuple[int, ...]
    is_cut: bool = False

    @property
    def key(self) -> tuple[bytes, tuple[bytes, ...]]:
        """The array and the old manifests, which identify the content of the unit."""
        return self.node.id, tuple(ref.id for ref in self.old)


@dataclass(frozen=True, slots=True, eq=False)
class Relocation:
    """The result of a unit: its new manifest, and its new chunk files.

    ``manifests`` is empty if the unit has no references. Units of one task share packs. ``bytes_moved`` of
    the first unit counts the bytes of all of them.
    """

    unit: Unit
    manifests: tuple[ManifestRef, ...]
    files: ManifestFiles
    packs: U8
    bytes_moved: int


@dataclass(frozen=True, slots=True, eq=False)
class UnitWork:
    """The work of a unit: the chunk files to leave, and results of earlier attempts for the same array.

    After an earlier attempt, the new references of chunks that did not change since are taken from there.
    """

    unit: Unit
    leave: LiveFiles
    earlier: tuple[Relocation, ...] = ()


@dataclass(frozen=True, slots=True)
class TipArray:
    """An array of a tip, with its units and whether the compaction may move its chunks."""

    node: Node
    units: tuple[Unit, ...]
    is_chosen: bool
    refs: int
    boxes: int


@dataclass(frozen=True, slots=True, eq=False)
class Tip:
    """The newest version of a branch, with its arrays that have manifests."""

    branch: str
    snapshot: Snapshot
    arrays: tuple[TipArray, ...] = field(default=())

    @property
    def manifests(self) -> int:
        """The number of manifests of all arrays."""
        return sum(len(each.node.array.manifests) for each in self.arrays if each.node.array is not None)

    @property
    def has_too_many_manifests(self) -> bool:
        """Whether the arrays have several times as many manifests as the splitting needs."""
        return self.manifests >= _TOO_MANY * max(1, sum(each.boxes for each in self.arrays))


def tip_of(
    context: Context, branch: str, snapshot: Snapshot, arrays: Sequence[str], merges: bool | None
) -> Tip:
    """Return the newest version of a branch, cut into units."""
    nodes = snapshot.nodes.exact()
    tip_arrays: list[TipArray] = []
    for node in map(nodes.node, np.flatnonzero(nodes.is_array & (nodes.manifests.lengths > 0)).tolist()):
        assert node.array is not None
        refs = num_refs(snapshot.manifests, node.array)
        units = tuple(_boxes(node, split_of(context, node, refs)))
        is_chosen = any(fnmatchcase(node.path, pattern) for pattern in arrays)
        tip_arrays.append(TipArray(node, units, is_chosen, refs, len(units)))
    tip = Tip(branch, snapshot, tuple(tip_arrays))
    if merges or (merges is None and tip.has_too_many_manifests):
        return tip
    return Tip(branch, snapshot, tuple(map(_single, tip_arrays)))


def _single(array: TipArray) -> TipArray:
    """Return the array with one unit for each manifest."""
    node = array.node
    assert node.array is not None
    whole = tuple(max(1, count) for count in node.array.num_chunks)
    units = tuple(Unit(node, (ref,), whole) for ref in node.array.manifests)
    return TipArray(node, units, array.is_chosen, array.refs, array.boxes)


def _boxes(node: Node, split: tuple[int, ...]) -> Iterator[Unit]:
    """Yield the manifests of each box. A manifest that crosses boxes is alone."""
    assert node.array is not None
    refs = node.array.manifests
    if not node.array.shape:
        yield Unit(node, tuple(refs), split, len(refs) > 1)
        return
    extents = np.stack([ref.extents for ref in refs]).astype(np.int64)
    low, high = extents[:, :, 0] // np.array(split), (extents[:, :, 1] - 1) // np.array(split)
    is_inside = (low == high).all(axis=1)
    _, number = np.unique(low, axis=0, return_inverse=True)
    number = np.where(is_inside, number.reshape(-1), len(refs) + np.arange(len(refs)))
    order = np.argsort(number, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        is_cut = len(rows) > 1 or not is_inside[rows[0]]
        yield Unit(node, tuple(refs[row] for row in rows.tolist()), split, is_cut)


def array_uses(tips: Sequence[Tip]) -> dict[bytes, list[ArrayUse]]:
    """Return the arrays that use each manifest."""
    uses: dict[bytes, dict[bytes, ArrayUse]] = {}
    for tip in tips:
        for each in tip.arrays:
            assert each.node.array is not None
            use = ArrayUse(each.node.id, each.node.array.num_chunks, each.is_chosen)
            for ref in each.node.array.manifests:
                uses.setdefault(ref.id, {})[each.node.id] = use
    return {id_: list(by_node.values()) for id_, by_node in uses.items()}


def manifests_of(tip: Tip) -> list[bytes]:
    """Return the ids of the manifests of a tip, each once."""
    return id_list(tip.snapshot.nodes.manifest_ids())


def native_rows(table: ChunkTable, num_chunks: Sequence[int]) -> I64:
    """Return the rows of the references to chunk files, inside of a chunk grid."""
    is_native = (table.kind == ChunkKind.NATIVE) & (table.length > 0)
    if num_chunks:
        is_native &= (table.index < np.array(num_chunks, np.uint64)).all(axis=1)
    return np.flatnonzero(is_native)


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
    with uploading(context.storage) as puts:
        stored = put_manifests(context, puts, [(unit.node.id, tables)])
    files = ManifestFiles(
        id_matrix([each.ref.id for each in stored]),
        np.array([each.size for each in stored], np.uint64),
        np.array([each.num_refs for each in stored], np.uint32),
    )
    packs = places.ids[np.unique(source)]
    return Relocation(unit, tuple(each.ref for each in stored), files, packs, 0)
