"""The compaction of branches, and the rewrite of manifests.

A compaction surveys the newest versions of the branches, copies live ranges to new packs, writes manifests
that refer to the packs, and then makes one commit for each branch, which changes only references. If another
writer commits in between, only the manifests that it changed are written once more. The old files stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, Final, get_args

import numpy as np

from frazil.arguments import wrong_type
from frazil.changes.change_set import ChangeSet, PreparedManifests
from frazil.changes.manifests import distribute
from frazil.chunks.packs import FileRanges, PackOptions, copy_to_packs
from frazil.engines import Engine, EngineName
from frazil.errors import ConflictError, ErrorKind, InvalidInputError, StorageError
from frazil.format.chunk_table import within
from frazil.format.columns import I64, U8
from frazil.format.ids import CHUNKS, OBJECT_ID_BYTES, id_keys, id_list, id_to_text
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.nodes import ArrayData
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node, Snapshot
from frazil.maintenance.plan import CompactionLimits, CompactionReport, LiveFiles
from frazil.repository.catalog.ancestry import of_compaction
from frazil.repository.catalog.assets import MANIFEST, with_read_statistics
from frazil.repository.catalog.collection_guard import Lease, SessionStart
from frazil.repository.catalog.context import Context, with_current
from frazil.repository.catalog.repo_changes import branch_tip, require_online
from frazil.repository.catalog.repo_update import newest_update
from frazil.repository.catalog.version_info import CommitMethod
from frazil.repository.clock import DAY_US, now_us
from frazil.repository.retries import turn_of
from frazil.repository.session.commit import RESERVED, write_commit
from frazil.repository.session.commit_files import (
    REWRITE,
    PendingCommit,
    manifest_files,
    num_refs,
    put_manifests,
    split_of,
    uploading,
)
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config_document import SPLITTING
from frazil.survey.columns import ObjectListing, among, distinct, list_objects, no_ids
from frazil.survey.survey import NO_PROGRESS, Progress, manifest_batches, run_with


@dataclass(frozen=True, slots=True)
class RewriteCommit:
    """The commit of a rewrite."""

    branch: str
    message: str
    metadata: dict[str, Any]
    amend: bool = False


def is_amend(commit_method: str) -> bool:
    """Return whether the commit replaces the tip of the branch."""
    if not isinstance(commit_method, str):
        raise TypeError(f"commit_method must be text, got {type(commit_method).__name__}")
    if commit_method not in get_args(CommitMethod):
        raise ValueError(f"commit_method must be one of {get_args(CommitMethod)}, got {commit_method!r}")
    return commit_method == "amend"


def rewrite(context: Context, commit: RewriteCommit) -> bytes:
    """Write all manifests again in a commit, and return the id of the new snapshot."""
    return commit_manifests(context, commit, *open_tip(context, commit), {}, writes_others=True)


def open_tip(context: Context, commit: RewriteCommit) -> tuple[SessionStart, Snapshot]:
    """Return the newest version of the branch, and the start of the session on it."""
    if commit.amend:
        context.require_version_2()
    since = now_us()
    info, parent = with_current(
        context, lambda info: (info, Workspace(context, branch_tip(info, commit.branch)).snapshot)
    )
    require_online(info)
    return SessionStart(newest_update(info), since), parent


def commit_manifests(
    context: Context,
    commit: RewriteCommit,
    start: SessionStart,
    parent: Snapshot,
    manifests: dict[bytes, PreparedManifests],
    *,
    writes_others: bool,
) -> bytes:
    """Commit new manifests with the same content. The log names no chunks, so a rebase has no conflict."""
    kind = replace(REWRITE, replaces_parent=commit.amend, rewrites_manifests=writes_others)
    metadata = commit.metadata
    if writes_others:
        before = metadata.get(RESERVED)
        splitting: dict[str, Any] = SPLITTING.write(context.settings.splitting)
        reserved = {**(before if isinstance(before, dict) else {}), "splitting_config": splitting}
        metadata = {**metadata, RESERVED: reserved}
    changes = ChangeSet(ready=manifests)
    return write_commit(
        PendingCommit(context, kind, commit.branch, parent, changes, commit.message, metadata, start)
    )


#: Manifests are written again if there are this many times more of them than boxes of the splitting.
_TOO_MANY: Final = 4
#: The limits of one task: the bytes that it copies, and the references in its manifests.
_TASK_BYTES: Final = 256 << 20
_TASK_REFS: Final = 1 << 20
#: The number of commits of others during a compaction after which it gives up.
_TRIES: Final = 20
#: The duration of the lease, in microseconds.
_LEASE: Final = DAY_US
#: An array with up to this number of references in one manifest may share a manifest with other arrays.
_SHARED_REFS: Final = 1000
#: A file may have checksums after its chunks: bytes for the file, and for each chunk. They are not dead.
_TRAILER: Final = 48
_TRAILER_OF_CHUNK: Final = 12
#: Merging small files must make one file out of this number or more.
_GAIN: Final = 4
#: The kinds of errors after which a compaction tries again, if the branch has moved.
_PASSING: Final = {ErrorKind.COMMIT_CONFLICT, ErrorKind.OBJECT_NOT_FOUND, ErrorKind.SNAPSHOT_NOT_FOUND}


@dataclass(frozen=True, slots=True)
class Unit:
    """Manifests of one array that are written again together: one, or all inside of one box of the splitting.

    ``split`` is the size of a box in chunks. ``is_cut`` says whether the splitting wants other manifests.
    """

    node: Node
    old: tuple[ManifestRef, ...]
    split: tuple[int, ...]
    is_cut: bool = False

    @property
    def key(self) -> tuple[bytes, tuple[bytes, ...]]:
        """The array and the old manifests, which identify the content of the unit."""
        return self.node.id, tuple(ref.id for ref in self.old)

    @property
    def array(self) -> ArrayData:
        """The description of the array."""
        return self.node.array_data


@dataclass(frozen=True, slots=True, eq=False)
class Relocation:
    """The result of a unit: its new manifests, none if it has no references, and its new chunk files."""

    unit: Unit
    manifests: tuple[ManifestRef, ...]
    files: ManifestFiles
    packs: U8
    bytes_moved: int


@dataclass(frozen=True, slots=True, eq=False)
class UnitWork:
    """The work of a unit: the chunk files to leave, and results of earlier attempts for the same array."""

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

    @property
    def is_small(self) -> bool:
        """Whether the array may share a manifest with others, which the commit decides."""
        return self.refs <= _SHARED_REFS


@dataclass(frozen=True, slots=True, eq=False)
class Tip:
    """The newest version of a branch, with its arrays that have manifests."""

    branch: str
    snapshot: Snapshot
    arrays: tuple[TipArray, ...]
    manifests: int

    @property
    def has_too_many_manifests(self) -> bool:
        """Whether the arrays have several times as many manifests as the splitting needs."""
        return self.manifests >= _TOO_MANY * max(1, sum(each.boxes for each in self.arrays))


def tip_of(
    context: Context, branch: str, snapshot: Snapshot, arrays: Sequence[str], merges: bool | None
) -> Tip:
    """Return the newest version of a branch, cut into units."""
    nodes = snapshot.nodes.exact()
    rows = np.flatnonzero(nodes.is_array & (nodes.manifests.lengths > 0))
    tip_arrays: list[TipArray] = []
    for node in map(nodes.node, rows.tolist()):
        refs = num_refs(snapshot.manifests, node.array_data)
        units = tuple(_boxes(node, node.array_data.manifests, split_of(context, node, refs)))
        is_chosen = any(fnmatchcase(node.path, pattern) for pattern in arrays)
        tip_arrays.append(TipArray(node, units, is_chosen, refs, len(units)))
    tip = Tip(branch, snapshot, tuple(tip_arrays), int(nodes.manifests.lengths[rows].sum()))
    if merges or (merges is None and tip.has_too_many_manifests):
        return tip
    single = [
        tuple(
            Unit(each.node, (ref,), tuple(max(1, count) for count in each.units[0].array.num_chunks))
            for ref in each.units[0].array.manifests
        )
        for each in tip_arrays
    ]
    separate = tuple(replace(each, units=units) for each, units in zip(tip_arrays, single, strict=True))
    return replace(tip, arrays=separate)


def _boxes(node: Node, refs: Sequence[ManifestRef], split: tuple[int, ...]) -> Iterator[Unit]:
    """Yield the manifests of each box. A manifest that crosses boxes is a unit of its own."""
    if not split:
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


def native_rows(table: ChunkTable, num_chunks: Sequence[int]) -> I64:
    """Return the rows of the references to chunk files, inside of a chunk grid."""
    is_native = (table.kind == ChunkKind.NATIVE) & (table.length > 0)
    return np.flatnonzero(is_native & within(table.index, num_chunks))


# The work of a task


def relocate_piece(context: Context, item: Any) -> Iterator[Relocation]:
    """Move the chunks of some units, and write their manifests: a piece of work.

    Chunks of several arrays share packs. Each distinct range is copied once, in the order of arrays and
    coordinates. The packs are durable before the manifests are written.
    """
    pack_size, works = item
    tables, moved = list[ChunkTable](), list[I64]()
    for work in works:
        table = _references(context, work)
        rows = native_rows(table, work.unit.array.num_chunks)
        moved.append(rows[among(table.chunk_ids, work.leave.ids)[table.source[rows]]])
        tables.append(table)
    places, copied = _copied(
        context, tables, moved, LiveFiles.union([work.leave for work in works]), pack_size
    )
    start = 0
    for work, table, rows in zip(works, tables, moved, strict=True):
        part = slice(start, start + len(rows))
        start = part.stop
        has_moved = places.source[part] >= 0
        source, offset = places.source[part][has_moved], places.offset[part][has_moved]
        sources, offsets = table.source.copy(), table.offset.copy()
        sources[rows[has_moved]] = len(table.chunk_ids) + source
        offsets[rows[has_moved]] = offset
        ids = np.concatenate([table.chunk_ids, places.ids])
        table = replace(table, source=sources, offset=offsets, chunk_ids=ids)
        parts = distribute(work.unit.array, [table], ChunkTable.empty(table.ndim), work.unit.split)
        with uploading(context.storage) as puts:
            stored = put_manifests(context, puts, [(work.unit.node.id, parts)])
        files = manifest_files(stored)
        packs = places.ids[np.unique(source)]
        yield Relocation(work.unit, tuple(each.ref for each in stored), files, packs, copied)
        copied = 0


def _references(context: Context, work: UnitWork) -> ChunkTable:
    """Return the references of a unit, with the new references of chunks that are as in earlier attempts."""
    table = _merged(context, work.unit, work.unit.old)
    for earlier in work.earlier:
        before = _merged(context, earlier.unit, earlier.unit.old)
        after = _merged(context, earlier.unit, earlier.manifests)
        if before.ndim == table.ndim == after.ndim:
            rows = before.find_chunks(table.index)
            at = np.flatnonzero(rows >= 0)
            at = at[table.same(at, before, rows[at])]
            moved = after.find_chunks(table.index[at])
            table = ChunkTable.merge_tables([table, after.select_chunks(np.sort(moved[moved >= 0]))])
    return table


def _merged(context: Context, unit: Unit, manifests: Sequence[ManifestRef]) -> ChunkTable:
    read = (MANIFEST.read(context.storage, ref.id) for ref in manifests)
    files = [with_read_statistics(context.storage, each).arrays for each in read]
    ndim = len(unit.array.shape)
    tables = [arrays[unit.node.id].of_rank(ndim) for arrays in files if unit.node.id in arrays]
    return ChunkTable.merge_tables(tables[::-1]) if tables else ChunkTable.empty(ndim)


def _copied(
    context: Context, tables: Sequence[ChunkTable], rows: Sequence[I64], leave: LiveFiles, pack_size: int
) -> tuple[FileRanges, int]:
    """Copy each distinct range of some rows once."""
    pairs = list(zip(tables, rows, strict=True))
    owners = np.concatenate([no_ids(), *(table.chunk_ids[table.source[each]] for table, each in pairs)])
    offset, length = (
        np.concatenate([getattr(table, name)[each] for table, each in pairs]).astype(np.int64)
        for name in ("offset", "length")
    )
    files = distinct([owners])
    source = id_keys(files).searchsorted(id_keys(owners))
    sizes = leave.sizes[id_keys(leave.ids).searchsorted(id_keys(files))]
    ranges, number = FileRanges(files, source, offset, length, sizes).distinct()
    # A file with one chunk may be named by the hash of its bytes. A copy under another name gains nothing.
    settings = context.settings
    options = PackOptions(pack_size, 2 if settings.deduplicate else 1, settings.checksums)
    copies = copy_to_packs(context.storage, ranges, options, context.new_chunk_id)
    copied = int(copies.length[copies.source >= 0].sum())
    return FileRanges(copies.ids, copies.source[number], copies.offset[number], length), copied


# The choice of files


@dataclass(frozen=True, slots=True, eq=False)
class LiveUses:
    """The live bytes of k chunk files, as columns sorted by id: those that a chosen branch refers to.

    A range counts once for each manifest of a branch that has it, so a file may look more alive than it is,
    and then stays as it is. ``fixed`` are the live bytes of arrays that are not chosen.
    """

    ids: U8
    live: I64
    fixed: I64
    ranges: I64

    @staticmethod
    def union(parts: Sequence[LiveUses], most: bool = False) -> LiveUses:
        """Return each file once, with the sums of its numbers, or with its largest live bytes and ranges."""
        keys, rows = np.unique(
            id_keys(np.concatenate([no_ids(), *(part.ids for part in parts)])), return_inverse=True
        )
        sums = np.zeros((3, len(keys)), np.int64)
        for name, out in zip(("live", "fixed", "ranges"), sums, strict=True):
            values = np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])
            (np.maximum if most else np.add).at(out, rows, values)
        return LiveUses(keys.view(np.uint8).reshape(-1, OBJECT_ID_BYTES), *sums)


def _read_uses(context: Context, item: Any) -> Iterator[tuple[bytes, LiveUses]]:
    """Yield the live bytes of the chunk files of manifests: a piece of work."""
    for manifest, arrays in item:
        tables = MANIFEST.read(context.storage, manifest).arrays
        parts: list[LiveUses] = []
        for node_id, (num_chunks, is_chosen) in arrays.items():
            if (table := tables.get(node_id)) is None:
                continue
            table = table.of_rank(len(num_chunks))
            rows = native_rows(table, num_chunks)
            columns = (table.source[rows], table.offset[rows], table.length[rows])
            source, offset, length = (column.astype(np.int64) for column in columns)
            once, _ = FileRanges(table.chunk_ids, source, offset, length).distinct()
            count = len(table.chunk_ids)
            ranges = np.bincount(once.source, minlength=count)
            live = np.bincount(once.source, once.length, count).astype(np.int64)
            used = np.flatnonzero(ranges)
            fixed = live[used] * (not is_chosen)
            parts.append(LiveUses(table.chunk_ids[used], live[used], fixed, ranges[used]))
        yield manifest, LiveUses.union(parts)


def chosen_files(
    uses: LiveUses, listed: ObjectListing, limits: CompactionLimits, task_bytes: int
) -> LiveFiles:
    """Return the chunk files that a compaction writes again."""
    sizes, is_stored = listed.find_sizes(uses.ids)
    movable = is_stored & (uses.live > 0) & (uses.fixed == 0)
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
        raise InvalidInputError("branch must name a branch, got an empty list")
    amend = is_amend(commit_method)
    marked = of_compaction(metadata)
    return tuple(RewriteCommit(name, message, marked, amend) for name in branches)


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
        return CompactionReport(
            files=self._leave,
            new_files=max(-(-moved // self._limits.pack_size), tasks),
            bytes_moved=moved,
            bytes_freed=int(self._leave.sizes.sum()),
            manifests=sum(tip.manifests for tip in self._tips),
            new_manifests=len(works),
        )

    def finish(self) -> CompactionReport:
        """Do the work, and commit each branch. A lease protects the new files."""
        now = now_us()
        # The name by which ``Repository.upkeep.break_lease`` deletes it.
        name = f"compact {', '.join(commit.branch for commit in self._commits)}"
        lease = Lease.take(self._context.storage, now, now + _LEASE, purpose="compaction", name=name)
        try:
            planned = self.plan()
            if not planned.new_manifests and not any(map(self._writes_others, self._tips)):
                return planned
            snapshots = {
                tip.branch: id_to_text(self._commit(tip, commit))
                for tip, commit in zip(self._tips, self._commits, strict=True)
            }
        finally:
            lease.give_back(self._context.storage)
        return replace(
            planned,
            files=self._leave,
            new_files=len(distinct([each.packs for each in self._results.values()])),
            bytes_moved=sum(each.bytes_moved for each in self._results.values()),
            bytes_freed=int(self._leave.sizes.sum()),
            new_manifests=len(self._results),
            snapshots=snapshots,
        )

    def _tip(self, commit: RewriteCommit) -> Tip:
        start, snapshot = open_tip(self._context, commit)
        self._starts.setdefault(commit.branch, start)
        limits = self._limits
        return tip_of(self._context, commit.branch, snapshot, limits.arrays, limits.manifests)

    def _survey(self) -> dict[str, Tip]:
        """Read all manifests of the tips, and choose the files to leave. Return the tips by branch."""
        self._tips = list(map(self._tip, self._commits))
        arrays: dict[bytes, dict[bytes, tuple[tuple[int, ...], bool]]] = {}
        for each in (each for tip in self._tips for each in tip.arrays):
            for ref in each.units[0].array.manifests:
                use = each.units[0].array.num_chunks, each.is_chosen
                arrays.setdefault(ref.id, {})[each.node.id] = use
        files = ManifestFiles.union([tip.snapshot.manifests for tip in self._tips])
        files = files.select_manifests(
            np.fromiter((id_ in arrays for id_ in id_list(files.ids)), bool, len(files))
        )
        items = [[(id_, arrays[id_]) for id_ in id_list(batch.ids)] for batch in manifest_batches(files)]
        self._uses = dict(self._run(_read_uses, items))
        by_tip = [
            LiveUses.union(
                [self._uses[id_] for id_ in id_list(tip.snapshot.nodes.manifest_ids()) if id_ in self._uses]
            )
            for tip in self._tips
        ]
        stored = list_objects(self._context.storage, CHUNKS)
        self._leave = chosen_files(LiveUses.union(by_tip, most=True), stored, self._limits, _TASK_BYTES)
        self._refs = dict(zip(id_list(files.ids), files.num_chunk_refs.tolist(), strict=True))
        return {tip.branch: tip for tip in self._tips}

    def _writes_others(self, tip: Tip) -> bool:
        manifests = self._limits.manifests
        return tip.has_too_many_manifests if manifests is None else manifests

    def _works(self) -> list[UnitWork]:
        """Return the work of all units that change, each once."""
        works: dict[tuple[bytes, tuple[bytes, ...]], UnitWork] = {}
        for array in (array for tip in self._tips for array in tip.arrays):
            for unit in array.units:
                leave = LiveFiles()
                if array.is_chosen:
                    ids = distinct([self._uses[ref.id].ids for ref in unit.old if ref.id in self._uses])
                    leave = self._leave.select_files(among(self._leave.ids, ids))
                if len(leave) or (unit.is_cut and not array.is_small):
                    works[unit.key] = UnitWork(unit, leave)
        return list(works.values())

    # The work and the commits

    def _commit(self, tip: Tip, commit: RewriteCommit) -> bytes:
        with ExitStack() as turn:
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
                    if commit.amend or error.kind not in _PASSING:
                        raise
                    # Otherwise, busy writers would move the branch during each attempt.
                    turn.close()
                    turn.enter_context(turn_of(self._context.storage, commit.branch))
                    later = self._tip(commit)
                    # A missing file is a loss, unless an expiration and a collection have removed the tip.
                    if later.snapshot.id == tip.snapshot.id:
                        raise
                    tip = later if isinstance(error, ConflictError) else self._survey()[tip.branch]
        raise ConflictError(
            message=f"{commit.branch} moved during {_TRIES} attempts. Compact when fewer writers commit",
            kind=ErrorKind.COMMIT_CONFLICT,
        )

    def _relocate(self, tip: Tip) -> None:
        """Do the work of the units of a tip that has not been done."""
        is_surveyed = any(each is tip for each in self._tips)
        works = self._works() if is_surveyed else self._late_works(tip)
        works = [work for work in works if work.unit.key not in self._results]
        self._progress.expect(len(works))
        # The tasks: works that follow each other, with limited bytes and references.
        weights = np.zeros(len(works))
        for number, (old, leave) in enumerate((work.unit.old, work.leave.ids) for work in works):
            own = [self._uses[ref.id] for ref in old] if len(leave) else []
            size = sum(int(uses.live[among(uses.ids, leave)].sum()) for uses in own)
            refs = sum(self._refs.get(ref.id, 0) for ref in old)
            weights[number] = max(size / _TASK_BYTES, refs / _TASK_REFS)
        numbers = np.floor(np.cumsum(weights) - weights / 2).astype(np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(works)]
        items = [(self._limits.pack_size, works[low:high]) for low, high in pairwise(cuts) if high > low]
        for result in self._run(relocate_piece, items):
            self._results[result.unit.key] = result
            self._progress.advance(bytes=result.bytes_moved)

    def _late_works(self, tip: Tip) -> list[UnitWork]:
        """Return the work of manifests that others have changed, with the earlier results for their boxes."""
        by_array: dict[bytes, list[Relocation]] = {}
        for result in self._results.values():
            by_array.setdefault(result.unit.node.id, []).append(result)
        works: list[UnitWork] = []
        for array in tip.arrays:
            present = {unit.key for unit in array.units}
            earlier = [each for each in by_array.get(array.node.id, ()) if each.unit.key not in present]
            for unit in array.units if earlier else ():
                near = tuple(each for each in earlier if _overlap(unit, each.unit))
                if near and unit.key not in self._results:
                    works.append(UnitWork(unit, LiveFiles(), near))
        return works

    def _prepared(self, tip: Tip) -> dict[bytes, PreparedManifests]:
        """Return the manifests of all arrays that the commit itself does not write."""
        writes_others = self._writes_others(tip)
        prepared: dict[bytes, PreparedManifests] = {}
        for array in tip.arrays:
            results = [self._results.get(unit.key) for unit in array.units]
            if not any(results) and (not writes_others or array.is_small):
                continue
            manifests = tuple(
                ref
                for unit, result in zip(array.units, results, strict=True)
                for ref in (unit.old if result is None else result.manifests)
            )
            files = ManifestFiles.union([each.files for each in results if each is not None])
            no_index = np.zeros((0, 0), np.uint32)
            prepared[array.node.id] = PreparedManifests(array.node.path, manifests, files, no_index)
        return prepared


def _overlap(unit: Unit, other: Unit) -> bool:
    """Return whether the boxes of two units have chunks in common."""
    extents = (np.stack([ref.extents for ref in each.old]) for each in (unit, other))
    low, high = zip(
        *((each[:, :, 0].min(axis=0), each[:, :, 1].max(axis=0)) for each in extents), strict=True
    )
    return bool((np.maximum(*low) < np.minimum(*high)).all())
