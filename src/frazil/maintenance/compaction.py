"""The compaction of branches: the plan, the pieces of work, and the commit.

    plan     the newest versions of the branches; the live bytes of each chunk file, from all their manifests;
             the sizes of the files, from a listing; the files to leave
    pieces   copy live ranges to new packs, and write manifests that refer to the packs
    finish   one commit for each branch, which changes only references

If another writer commits to a branch during the work, the commit is late. Then the manifests that the other
writer changed are written once more: a chunk that did not change since gets its new reference, any other
chunk stays as the other writer has left it. No chunk is copied twice, and no change is lost.

A lease protects the new files from garbage collections. The old files stay, because older versions need them.

A byte is live if a reference of the newest version of a chosen branch points to it. A range with several
references in one manifest counts once. A range with references in several manifests of a branch counts once
for each of them, so a file may look more alive than it is, and is then left alone.

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

from frazil.arguments import wrong_type
from frazil.changes.change_set import PreparedManifests
from frazil.changes.manifests import distribute
from frazil.chunks.packs import FileRanges, PackOptions, copy_to_packs
from frazil.engines import Engine, EngineName
from frazil.errors import ConflictError, ErrorKind, InvalidInputError, StorageError
from frazil.format.columns import I64, U8, U32
from frazil.format.ids import CHUNKS, OBJECT_ID_BYTES, id_keys, id_list, id_matrix, id_to_text
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node, Snapshot
from frazil.maintenance.plan import CompactionLimits, CompactionReport, LiveFiles
from frazil.maintenance.rewrite import RewriteCommit, commit_manifests, is_amend, open_tip
from frazil.repository.catalog.ancestry import of_compaction
from frazil.repository.catalog.assets import MANIFEST
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.leases import Lease
from frazil.repository.clock import now_us
from frazil.repository.session.commit_files import num_refs, put_manifests, split_of, uploading
from frazil.survey.columns import ObjectListing, among, distinct, each_once, list_objects, no_ids
from frazil.survey.steps import NO_PROGRESS, Progress, manifest_batches, run_with

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


#: The limits of one task: the bytes that it copies, and the references in its manifests.
_TASK_BYTES: Final = 256 << 20
_TASK_REFS: Final = 1 << 20
#: The number of commits of others during a compaction after which it gives up.
_TRIES: Final = 20
#: The duration of the lease, in microseconds.
_LEASE: Final = 24 * 3600 * 1_000_000
#: An array with up to this number of references in one manifest may share a manifest with other arrays.
_SHARED_REFS: Final = 1000

_NO_INDEX: Final[U32] = np.zeros((0, 0), np.uint32)
#: A file may have checksums after its chunks: bytes for the file, and for each chunk. They are not dead.
_TRAILER: Final = 48
_TRAILER_OF_CHUNK: Final = 12
#: Merging small files must make one file out of this number or more.
_GAIN: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class LiveUses:
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
    def empty() -> LiveUses:
        """Return no files."""
        nothing = np.zeros(0, np.int64)
        return LiveUses(no_ids(), nothing, nothing, nothing)

    @staticmethod
    def total(parts: Sequence[LiveUses]) -> LiveUses:
        """Return each file once, with the sums of its numbers."""
        if len(parts) == 1:
            return parts[0]
        ids = np.concatenate([LiveUses.empty().ids, *(part.ids for part in parts)])
        keys, rows = np.unique(id_keys(ids), return_inverse=True)

        def summed(name: str) -> I64:
            values = np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])
            return np.bincount(rows, values, len(keys)).astype(np.int64)

        matrix = keys.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
        return LiveUses(matrix, summed("live"), summed("movable"), summed("ranges"))

    @staticmethod
    def largest(parts: Sequence[LiveUses]) -> LiveUses:
        """Return each file once, with the largest live bytes of a part.

        A range that is not movable in one part is not movable.
        """
        whole = LiveUses.total(parts)
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
        return LiveUses(whole.ids, live, np.where(is_movable, live, 0), ranges)

    def select_files(self, files: U8) -> LiveUses:
        """Return the rows of some files."""
        rows = among(self.ids, files)
        return LiveUses(self.ids[rows], self.live[rows], self.movable[rows], self.ranges[rows])


def _read_uses(context: Context, item: Any) -> Iterator[tuple[bytes, LiveUses]]:
    """Yield the live bytes of the chunk files of manifests: a piece of work."""
    for manifest, uses in item:
        arrays = MANIFEST.read(context.storage, manifest).arrays
        parts = [_uses_of(arrays[use.node_id], use) for use in uses if use.node_id in arrays]
        yield manifest, LiveUses.total(parts)


def _uses_of(table: ChunkTable, use: ArrayUse) -> LiveUses:
    rows = native_rows(table, use.num_chunks)
    columns = (table.source[rows], table.offset[rows], table.length[rows])
    each_once, _ = FileRanges(table.chunk_ids, *(column.astype(np.int64) for column in columns)).distinct()
    source, length = each_once.source, each_once.length
    ranges = np.bincount(source, minlength=len(table.chunk_ids))
    live = np.bincount(source, length, len(table.chunk_ids)).astype(np.int64)
    used = np.flatnonzero(ranges)
    uses = LiveUses(
        table.chunk_ids[used], live[used], live[used] if use.is_chosen else 0 * live[used], ranges[used]
    )
    return LiveUses.total([LiveUses.empty(), uses])


def chosen_files(
    uses: LiveUses, listed: ObjectListing, limits: CompactionLimits, task_bytes: int
) -> LiveFiles:
    """Return the chunk files that a compaction writes again."""
    sizes, is_stored = listed.find_sizes(uses.ids)
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


def compaction_commits(
    message: str, branch: str | Sequence[str], metadata: dict[str, Any], commit_method: str
) -> tuple[RewriteCommit, ...]:
    """Return the commit of each branch."""
    if not isinstance(branch, Sequence) or not all(isinstance(name, str) for name in branch):
        raise wrong_type("branch", branch, "str", "Sequence[str]")
    branches = [branch] if isinstance(branch, str) else list(dict.fromkeys(branch))
    if not branches:
        raise InvalidInputError("branch must name a branch, got an empty list", ErrorKind.INVALID_ARGUMENT)
    amend = is_amend(commit_method)
    marked = of_compaction(metadata)
    return tuple(RewriteCommit(name, message, marked, amend) for name in branches)


def lease_name(branches: Sequence[str]) -> str:
    """Return the name of the lease of a compaction, by which ``Repository.break_lease`` deletes it."""
    return f"compact {', '.join(branches)}"


class Compaction:
    """The compaction of branches, each with the commit that it gets. ``plan`` and ``finish`` survey once."""

    def __init__(
        self,
        context: Context,
        commits: Sequence[RewriteCommit],
        limits: CompactionLimits | None = None,
        engine: Engine | EngineName | None = None,
        progress: Progress = NO_PROGRESS,
    ) -> None:
        self._context = context
        self._commits = commits
        self._limits = limits or CompactionLimits()
        self._run = run_with(context, engine)
        self._progress = progress
        #: The start of the session on each branch. It stays the same for later attempts.
        self._starts: dict[str, SessionStart] = {}
        self._tips: list[Tip] = []
        self._uses: dict[bytes, LiveUses] = {}
        self._refs: dict[bytes, int] = {}
        self._leave = LiveFiles()
        self._results: dict[tuple[bytes, tuple[bytes, ...]], Relocation] = {}

    def plan(self) -> CompactionReport:
        """Choose the files and manifests, and return what the compaction would do."""
        if not self._tips:
            self._survey()
        works = self._works()
        moved = int(self._leave.live.sum())
        tasks = max(1, moved // _TASK_BYTES) if moved else 0
        packs = max(-(-moved // self._limits.pack_size), tasks)
        return self._report(packs, moved, len(works), {})

    def finish(self) -> CompactionReport:
        """Do the work, and commit each branch. A lease protects the new files."""
        now = now_us()
        name = lease_name([commit.branch for commit in self._commits])
        lease = Lease.take(self._context.storage, now, now + _LEASE, purpose="compaction", name=name)
        try:
            return self._finish()
        finally:
            lease.give_back(self._context.storage)

    def _finish(self) -> CompactionReport:
        if not self._tips:
            self._survey()
        if not self._works() and not any(map(self._writes_others, self._tips)):
            return self.plan()
        manifests = sum(tip.manifests for tip in self._tips)
        snapshots = {
            tip.branch: id_to_text(self._commit(tip, commit))
            for tip, commit in zip(self._tips, self._commits, strict=True)
        }
        packs = distinct([each.packs for each in self._results.values()])
        moved = sum(each.bytes_moved for each in self._results.values())
        report = self._report(len(packs), moved, len(self._results), snapshots)
        return replace(report, manifests=manifests)

    def _report(
        self, packs: int, moved: int, new_manifests: int, snapshots: dict[str, str]
    ) -> CompactionReport:
        return CompactionReport(
            files=self._leave,
            new_files=packs,
            bytes_moved=moved,
            bytes_freed=int(self._leave.sizes.sum()),
            manifests=sum(tip.manifests for tip in self._tips),
            new_manifests=new_manifests,
            snapshots=snapshots,
        )

    # The plan

    def _tip(self, commit: RewriteCommit) -> Tip:
        start, snapshot = open_tip(self._context, commit)
        self._starts.setdefault(commit.branch, start)
        limits = self._limits
        return tip_of(self._context, commit.branch, snapshot, limits.arrays, limits.manifests)

    def _survey(self) -> dict[str, Tip]:
        """Read all manifests of the tips, and choose the files to leave. Return the tips by branch."""
        self._tips = list(map(self._tip, self._commits))
        uses = array_uses(self._tips)
        files = each_once([tip.snapshot.manifests for tip in self._tips])
        files = files.select_manifests(
            np.fromiter((id_ in uses for id_ in id_list(files.ids)), bool, len(files))
        )
        items = [[(id_, uses[id_]) for id_ in id_list(batch.ids)] for batch in manifest_batches(files)]
        self._uses = dict(self._run(_read_uses, items))
        by_tip = [
            LiveUses.total(
                [LiveUses.empty(), *(self._uses[id_] for id_ in manifests_of(tip) if id_ in self._uses)]
            )
            for tip in self._tips
        ]
        stored = list_objects(self._context.storage, CHUNKS)
        self._leave = chosen_files(LiveUses.largest(by_tip), stored, self._limits, _TASK_BYTES)
        self._refs = dict(zip(id_list(files.ids), files.num_chunk_refs.tolist(), strict=True))
        return {tip.branch: tip for tip in self._tips}

    def _writes_others(self, tip: Tip) -> bool:
        manifests = self._limits.manifests
        return tip.has_too_many_manifests if manifests is None else manifests

    def _files_of(self, unit: Unit) -> LiveFiles:
        """Return the files to leave that the manifests of a unit refer to."""
        ids = distinct([self._uses[ref.id].ids for ref in unit.old if ref.id in self._uses])
        return self._leave.select_files(among(self._leave.ids, ids))

    def _works(self) -> list[UnitWork]:
        """Return the work of all units that change, each once."""
        works: dict[tuple[bytes, tuple[bytes, ...]], UnitWork] = {}
        for array in (array for tip in self._tips for array in tip.arrays):
            for unit in array.units:
                leave = self._files_of(unit) if array.is_chosen else LiveFiles()
                if len(leave) or (unit.is_cut and not _is_small(array)):
                    works[unit.key] = UnitWork(unit, leave)
        return list(works.values())

    # The work and the commits

    def _commit(self, tip: Tip, commit: RewriteCommit) -> bytes:
        for _ in range(_TRIES):
            try:
                self._relocate(tip)
                return commit_manifests(
                    self._context,
                    commit,
                    self._starts[tip.branch],
                    tip.snapshot,
                    self._prepared(tip),
                    writes_others=self._writes_others(tip),
                )
            except (ConflictError, StorageError) as error:
                later = self._tip(commit)
                # A missing file is a loss, unless an expiration and a collection have removed the tip.
                if commit.amend or error.kind not in _PASSING or later.snapshot.id == tip.snapshot.id:
                    raise
                tip = later if isinstance(error, ConflictError) else self._survey()[tip.branch]
        raise ConflictError(
            message=f"the branch {commit.branch} moved during each of {_TRIES} attempts to commit the "
            "compaction. Compact when fewer writers commit",
            kind=ErrorKind.COMMIT_CONFLICT,
        )

    def _relocate(self, tip: Tip) -> None:
        """Do the work of the units of a tip that has not been done."""
        is_surveyed = any(each is tip for each in self._tips)
        works = self._works() if is_surveyed else self._late_works(tip)
        works = [work for work in works if work.unit.key not in self._results]
        pack_size = self._limits.pack_size
        items = [(pack_size, works[start:stop]) for start, stop in self._task_bounds(works)]
        self._progress.expect(len(works))
        for result in self._run(relocate_piece, items):
            self._results[result.unit.key] = result
            self._progress.advance(bytes=result.bytes_moved)

    def _late_works(self, tip: Tip) -> list[UnitWork]:
        """Return the work of the manifests that others have changed since the first attempt."""
        by_array: dict[bytes, list[Relocation]] = {}
        for result in self._results.values():
            by_array.setdefault(result.unit.node.id, []).append(result)
        works: list[UnitWork] = []
        for array in tip.arrays:
            present = {unit.key for unit in array.units}
            earlier = [each for each in by_array.get(array.node.id, ()) if each.unit.key not in present]
            if earlier:
                units = [unit for unit in array.units if unit.key not in self._results]
                works += [UnitWork(unit, LiveFiles(), _near(unit, earlier)) for unit in units]
        return [work for work in works if work.earlier]

    def _task_bounds(self, works: Sequence[UnitWork]) -> list[tuple[int, int]]:
        """Return which works are one task."""
        sizes = [
            sum(int(self._uses[ref.id].select_files(work.leave.ids).live.sum()) for ref in work.unit.old)
            if len(work.leave)
            else 0
            for work in works
        ]
        refs = [sum(self._refs.get(ref.id, 0) for ref in work.unit.old) for work in works]
        weights = np.maximum(np.array(sizes) / _TASK_BYTES, np.array(refs) / _TASK_REFS)
        numbers = np.floor(np.cumsum(weights) - weights / 2).astype(np.int64)
        cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
        pairs = zip([0, *cuts], [*cuts, len(works)], strict=True)
        return [(start, stop) for start, stop in pairs if stop > start]

    def _prepared(self, tip: Tip) -> dict[bytes, PreparedManifests]:
        """Return the manifests of all arrays that the commit itself does not write."""
        writes_others = self._writes_others(tip)
        prepared: dict[bytes, PreparedManifests] = {}
        for array in tip.arrays:
            node = array.node
            assert node.array is not None
            results = [self._results.get(unit.key) for unit in array.units]
            if not any(results) and (not writes_others or _is_small(array)):
                continue
            manifests = tuple(
                ref
                for unit, result in zip(array.units, results, strict=True)
                for ref in (unit.old if result is None else result.manifests)
            )
            files = each_once([each.files for each in results if each is not None])
            prepared[node.id] = PreparedManifests(node.path, manifests, files, _NO_INDEX)
        return prepared


#: The kinds of errors after which a compaction tries again, if the branch has moved.
_PASSING: Final = {ErrorKind.COMMIT_CONFLICT, ErrorKind.OBJECT_NOT_FOUND, ErrorKind.SNAPSHOT_NOT_FOUND}


def _is_small(array: TipArray) -> bool:
    """Return whether the array may share a manifest with others, which the commit decides."""
    return array.refs <= _SHARED_REFS


def _near(unit: Unit, earlier: Sequence[Relocation]) -> tuple[Relocation, ...]:
    """Return the earlier results whose boxes overlap with those of the unit."""
    low, high = _box(unit)
    return tuple(
        each
        for each in earlier
        if (np.maximum(low, _box(each.unit)[0]) < np.minimum(high, _box(each.unit)[1])).all()
    )


def _box(unit: Unit) -> tuple[U32, U32]:
    extents = np.stack([ref.extents for ref in unit.old])
    return extents[:, :, 0].min(axis=0), extents[:, :, 1].max(axis=0)
