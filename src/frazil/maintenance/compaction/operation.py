"""The compaction of branches: the plan, the pieces of work, and the commit.

    plan     the newest versions of the branches; the live bytes of each chunk file, from all their manifests;
             the sizes of the files, from a listing; the files to leave
    pieces   copy live ranges to new packs, and write manifests that refer to the packs
    finish   one commit for each branch, which changes only references

If another writer commits to a branch during the work, the commit is late. Then the manifests that the other
writer changed are written once more: a chunk that did not change since gets its new reference, any other
chunk stays as the other writer has left it. No chunk is copied twice, and no change is lost.

A lease protects the new files from garbage collections. The old files stay, because older versions need them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from frazil.arguments import wrong_type
from frazil.changes.prepared_manifests import PreparedManifests
from frazil.errors import ConflictError, ErrorKind, InvalidInputError, StorageError
from frazil.format.columns import U32
from frazil.format.ids import id_list, id_to_text
from frazil.format.keys import CHUNKS
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.compaction.compaction_info import CompactionLimits, CompactionReport, LiveFiles
from frazil.maintenance.compaction.relocation import relocate_piece
from frazil.maintenance.compaction.survey import FileUses, all_files, chosen_files, survey_piece
from frazil.maintenance.compaction.units import (
    Relocation,
    Tip,
    TipArray,
    Unit,
    UnitWork,
    array_uses,
    manifests_of,
    tip_of,
)
from frazil.maintenance.file_batches import manifest_batches
from frazil.maintenance.listing import among, distinct, listed
from frazil.maintenance.rewrite import RewriteCommit, commit_manifests, is_amend, open_tip
from frazil.maintenance.verification.plan import Run
from frazil.maintenance.walk_columns import each_once
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.leases import Lease
from frazil.repository.catalog.lineage import of_compaction
from frazil.repository.clock import now_us

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


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """The options of a compaction.

    Attributes:
        commits: The branches, each with the commit that it gets.
        limits: Which files and manifests are written again.
        run: Does the pieces of work in this process or in others.
        advance: Called after each finished unit, with the numbers of its manifests and copied bytes.
    """

    commits: tuple[RewriteCommit, ...]
    limits: CompactionLimits
    run: Run
    advance: Callable[[int, int], None] = lambda manifests, bytes_: None


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
    """Return the name of the lease of a compaction, by which ``Repository.upkeep.break_lease`` deletes it."""
    return f"compact {', '.join(branches)}"


def compact(context: Context, options: CompactionOptions, *, dry_run: bool) -> CompactionReport:
    """Plan a compaction, and do it unless ``dry_run`` is set."""
    compaction = _Compaction(context, options)
    if dry_run:
        return compaction.plan()
    now = now_us()
    name = lease_name([commit.branch for commit in options.commits])
    lease = Lease.take(context.storage, now, now + _LEASE, purpose="compaction", name=name)
    try:
        return compaction.finish()
    finally:
        lease.give_back(context.storage)


@dataclass(slots=True)
class _Compaction:
    context: Context
    options: CompactionOptions
    #: The start of the session on each branch. It stays the same for later attempts.
    starts: dict[str, SessionStart] = field(default_factory=dict)
    tips: list[Tip] = field(default_factory=list)
    uses: dict[bytes, FileUses] = field(default_factory=dict)
    refs: dict[bytes, int] = field(default_factory=dict)
    leave: LiveFiles = field(default_factory=LiveFiles)
    results: dict[tuple[bytes, tuple[bytes, ...]], Relocation] = field(default_factory=dict)

    def plan(self) -> CompactionReport:
        """Choose the files and manifests, and return what the compaction would do."""
        self._survey()
        works = self._works()
        moved = int(self.leave.live.sum())
        tasks = max(1, moved // _TASK_BYTES) if moved else 0
        packs = max(-(-moved // self.options.limits.pack_size), tasks)
        return self._report(packs, moved, len(works), {})

    def finish(self) -> CompactionReport:
        """Do the work, and commit each branch."""
        self._survey()
        if not self._works() and not any(map(self._writes_others, self.tips)):
            return replace(self.plan(), dry_run=False)
        manifests = sum(tip.manifests for tip in self.tips)
        snapshots = {
            tip.branch: id_to_text(self._commit(tip, commit))
            for tip, commit in zip(self.tips, self.options.commits, strict=True)
        }
        packs = distinct([each.packs for each in self.results.values()])
        moved = sum(each.bytes_moved for each in self.results.values())
        report = self._report(len(packs), moved, len(self.results), snapshots)
        return replace(report, dry_run=False, manifests=manifests)

    def _report(
        self, packs: int, moved: int, new_manifests: int, snapshots: dict[str, str]
    ) -> CompactionReport:
        return CompactionReport(
            files=self.leave,
            new_files=packs,
            bytes_moved=moved,
            bytes_freed=int(self.leave.sizes.sum()),
            manifests=sum(tip.manifests for tip in self.tips),
            new_manifests=new_manifests,
            snapshots=snapshots,
        )

    # The plan

    def _tip(self, commit: RewriteCommit) -> Tip:
        start, snapshot = open_tip(self.context, commit)
        self.starts.setdefault(commit.branch, start)
        limits = self.options.limits
        return tip_of(self.context, commit.branch, snapshot, limits.arrays, limits.manifests)

    def _survey(self) -> dict[str, Tip]:
        """Read all manifests of the tips, and choose the files to leave. Return the tips by branch."""
        self.tips = list(map(self._tip, self.options.commits))
        uses = array_uses(self.tips)
        files = each_once([ManifestFiles.empty(), *(tip.snapshot.manifests for tip in self.tips)])
        files = files.select_manifests(
            np.fromiter((id_ in uses for id_ in id_list(files.ids)), bool, len(files))
        )
        items = [[(id_, uses[id_]) for id_ in batch] for batch in manifest_batches(files)]
        self.uses = dict(self.options.run(survey_piece, items))
        by_tip = [
            FileUses.total(
                [FileUses.empty(), *(self.uses[id_] for id_ in manifests_of(tip) if id_ in self.uses)]
            )
            for tip in self.tips
        ]
        stored = listed(self.context.storage, CHUNKS)
        self.leave = chosen_files(FileUses.largest(by_tip), stored, self.options.limits, _TASK_BYTES)
        self.refs = dict(zip(id_list(files.ids), files.num_chunk_refs.tolist(), strict=True))
        return {tip.branch: tip for tip in self.tips}

    def _writes_others(self, tip: Tip) -> bool:
        manifests = self.options.limits.manifests
        return tip.has_too_many_manifests if manifests is None else manifests

    def _files_of(self, unit: Unit) -> LiveFiles:
        """Return the files to leave that the manifests of a unit refer to."""
        ids = all_files([self.uses[ref.id] for ref in unit.old if ref.id in self.uses])
        return self.leave.select_files(among(self.leave.ids, ids))

    def _works(self) -> list[UnitWork]:
        """Return the work of all units that change, each once."""
        works: dict[tuple[bytes, tuple[bytes, ...]], UnitWork] = {}
        for array in (array for tip in self.tips for array in tip.arrays):
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
                    self.context,
                    commit,
                    self.starts[tip.branch],
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
        is_surveyed = any(each is tip for each in self.tips)
        works = self._works() if is_surveyed else self._late_works(tip)
        works = [work for work in works if work.unit.key not in self.results]
        pack_size = self.options.limits.pack_size
        items = [(pack_size, works[start:stop]) for start, stop in self._task_bounds(works)]
        for result in self.options.run(relocate_piece, items):
            self.results[result.unit.key] = result
            self.options.advance(len(result.manifests), result.bytes_moved)

    def _late_works(self, tip: Tip) -> list[UnitWork]:
        """Return the work of the manifests that others have changed since the first attempt."""
        by_array: dict[bytes, list[Relocation]] = {}
        for result in self.results.values():
            by_array.setdefault(result.unit.node.id, []).append(result)
        works: list[UnitWork] = []
        for array in tip.arrays:
            present = {unit.key for unit in array.units}
            earlier = [each for each in by_array.get(array.node.id, ()) if each.unit.key not in present]
            if earlier:
                units = [unit for unit in array.units if unit.key not in self.results]
                works += [UnitWork(unit, LiveFiles(), _near(unit, earlier)) for unit in units]
        return [work for work in works if work.earlier]

    def _task_bounds(self, works: Sequence[UnitWork]) -> list[tuple[int, int]]:
        """Return which works are one task."""
        sizes = [
            sum(int(self.uses[ref.id].select_files(work.leave.ids).live.sum()) for ref in work.unit.old)
            if len(work.leave)
            else 0
            for work in works
        ]
        refs = [sum(self.refs.get(ref.id, 0) for ref in work.unit.old) for work in works]
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
            results = [self.results.get(unit.key) for unit in array.units]
            if not any(results) and (not writes_others or _is_small(array)):
                continue
            manifests = tuple(
                ref
                for unit, result in zip(array.units, results, strict=True)
                for ref in (unit.old if result is None else result.manifests)
            )
            files = each_once([ManifestFiles.empty(), *(each.files for each in results if each is not None)])
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
