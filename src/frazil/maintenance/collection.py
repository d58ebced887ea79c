"""Garbage collection: deletes the files that no version of the repository needs.

    plan     1. List the files that are older than the limit. Only these can be deleted.
             2. Read the repo info. A version is alive if a ref leads to it or its file is newer.
             3. Survey the manifests of these versions. Their chunk files are alive. List the others.
    finish   4. One conditional write removes the dead versions from the repo info. It takes effect only if no
                version is alive that the plan has not seen. Otherwise the plan is completed first.
             5. Delete snapshots, then transaction logs, manifests and chunks, then backups of the repo info
                that the ops log does not need, and abandoned staged files of jobs.

So a collection that dies at any point leaves a complete repository and some garbage. The age of a file is the
time since its last modification, by the storage's clock. A preview writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil import host
from frazil.engines import Engine, EngineName
from frazil.errors import ConflictError, ErrorKind, FormatError, IcechunkError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import (
    CHUNKS,
    MANIFESTS,
    OBJECT_ID_BYTES,
    REPO,
    SNAPSHOTS,
    STATISTICS,
    TRANSACTIONS,
    transaction_key,
)
from frazil.format.repo_info import OpsEntry, RepoInfo, UpdateKind
from frazil.format.snapshot import ManifestFiles
from frazil.format.transaction_log import encode_transaction_log
from frazil.maintenance.backups import (
    LOGGED,
    Backups,
    OpsLogRetention,
    check_latest,
    cut_ops_log,
    old_backups,
    planned_link,
    unneeded,
)
from frazil.maintenance.links import LogUnion, NewParent, collapse, planned_unions, with_unions
from frazil.maintenance.plan import GarbageFiles, GarbageFolder, GarbageReason, GCSummary
from frazil.remedies import call
from frazil.repository.catalog.backup_rules import named
from frazil.repository.catalog.collection_guard import (
    LEASES,
    CollectionRecord,
    Lease,
    LeaseLimit,
    announce,
    delete_abandoned,
    delete_ended,
    delete_killed_records,
    flushed_snapshots,
)
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_changes import require_online
from frazil.repository.catalog.repo_update import RepoUpdate, next_update_time
from frazil.repository.catalog.version_info import LeaseInfo
from frazil.repository.clock import DAY_US, from_datetime, now_us, to_datetime
from frazil.repository.retries import delete_dead
from frazil.storage.base import Storage
from frazil.survey.columns import Marks, ObjectColumns, ObjectListing, among, distinct, list_objects, no_ids
from frazil.survey.survey import NO_PROGRESS, Bounds, Progress, Survey, reachable, side_by_side
from frazil.threads import Purpose, thread_pool

_BATCH: Final = 1000
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 20.0
_MAX_ERRORS: Final = 10
_FILES_PER_TASK: Final = 50_000
#: Upper limit for concurrent requests.
_MOST: Final = 1024


@dataclass(frozen=True, slots=True)
class DeleteLimits:
    """The number of concurrent requests, and of failures in a row after which the deletion stops."""

    concurrent: int = 10
    failures_in_a_row: int = 50


@dataclass(slots=True)
class DeletionResult:
    """The result of a deletion: counts, bytes, and the first errors."""

    objects: int = 0
    size: int = 0
    failed: int = 0
    throttled: int = 0
    errors: list[str] = field(default_factory=list)

    def add(self, part: DeletionResult) -> None:
        """Add the result of a part."""
        self.objects += part.objects
        self.size += part.size
        self.failed += part.failed
        self.throttled += part.throttled
        self.errors = (self.errors + part.errors)[:_MAX_ERRORS]


@dataclass(slots=True, eq=False)
class Sweeper:
    """Deletes objects, and counts failures in a row over all its deletions."""

    storage: Storage
    limits: DeleteLimits
    sleep: Callable[[float], None] = host.pause
    progress: Progress = NO_PROGRESS
    _lock: Lock = field(default_factory=Lock)
    _in_a_row: int = 0
    _last: StorageError | None = None

    def sweep(self, garbage: ObjectColumns) -> DeletionResult:
        """Delete all objects of a list, and return the counts."""
        total = DeletionResult()
        starts = range(0, len(garbage.sizes), _BATCH)
        self.progress.expect(len(starts))

        def delete(start: int) -> DeletionResult:
            batch = garbage.part(start, start + _BATCH)
            return self._delete(batch.keys(), batch.sizes.tolist())

        concurrent = min(max(1, self.limits.concurrent), _MOST)
        for done in side_by_side(starts, delete, concurrent, Purpose.BATCH_DELETES):
            total.add(done)
            self.progress.advance(bytes=done.size)
        return total

    def _delete(self, keys: list[str], sizes: list[int]) -> DeletionResult:
        """Delete objects with one request, with pauses while the storage is throttled."""
        self._give_up_if_hopeless()
        done, pause = DeletionResult(), _FIRST_PAUSE_S
        while True:
            try:
                self.storage.delete(keys)
            except StorageError as error:
                if error.kind == ErrorKind.THROTTLED:
                    done.throttled += 1
                    if pause >= _LONGEST_PAUSE_S:
                        self._failed(error)
                        self._give_up_if_hopeless()
                    self.sleep(host.random_between(0.5, 1.0) * pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
                    continue
                if len(keys) == 1:
                    done.failed, done.errors = 1, [f"{keys[0]}: {error.message}"]
                    self._failed(error)
                else:
                    for key, size in zip(keys, sizes, strict=True):
                        done.add(self._delete([key], [size]))
            else:
                done.objects, done.size = len(keys), sum(sizes)
                with self._lock:
                    self._in_a_row = 0
            return done

    def _failed(self, error: StorageError) -> None:
        with self._lock:
            self._in_a_row += 1
            self._last = error

    def _give_up_if_hopeless(self) -> None:
        if self._in_a_row >= max(1, self.limits.failures_in_a_row):
            raise ConflictError(
                message=f"{self._in_a_row} requests to delete failed in a row, the last one with: "
                f"{self._last}. The repository is complete. Collect garbage again when the storage works",
                kind=ErrorKind.GC_DELETES_FAILING,
            ) from self._last


def _require_latest(context: Context) -> None:
    """Check that ``repo`` has the latest state: a collection would delete the commits that it lacks."""
    for each in check_latest(context):
        raise FormatError(
            f"the file `{REPO}` must have the latest state, but {each.detail}. A collection would delete the "
            "files of later commits",
            check=each.check,
        ).with_remedy("`{}` shows how to bring the later state back", call("repair"))


def _delete(context: Context, item: tuple[ObjectListing, DeleteLimits]) -> Iterator[DeletionResult]:
    """Delete files: a piece of work. Its error does not count the files of other tasks."""
    yield Sweeper(context.storage, item[1]).sweep(item[0])


#: The kinds of files and their folders, in the order of the deletion: a file goes before those that it
#: refers to. Backups come last.
_FOLDERS: Final = {
    "snapshots": SNAPSHOTS,
    "transaction_logs": TRANSACTIONS,
    "statistics": STATISTICS,
    "manifests": MANIFESTS,
    "chunks": CHUNKS,
}
_BACKUPS: Final = "backups"
#: The duration of the lease for new logs, in microseconds.
_LEASE: Final = DAY_US
#: The name of the backup that the collection would write.
_PREVIEW: Final = "preview"
_CODES: Final = {reason: number for number, reason in enumerate(GarbageReason)}

#: Files by kind.
type Files = Mapping[str, ObjectListing]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateFiles:
    """All files that are older than the limit, by kind. ``unions`` replace logs of removed versions.

    ``held`` are the ids of the detached snapshots with a lease, ``listed`` those of all snapshots then.
    """

    files: Files
    backups: Backups
    shortens_log: bool = False
    unions: Sequence[LogUnion] = ()
    held: U8 = field(default_factory=no_ids)
    listed: U8 = field(default_factory=no_ids)

    def seen(self, storage: Storage, info: RepoInfo) -> CandidateFiles:
        """Return the files with the snapshots of ``info``, and the leases that were stored before them."""
        return replace(self, held=flushed_snapshots(storage), listed=info.table.ids())


@dataclass(frozen=True, slots=True, eq=False)
class ReachableFiles:
    """The ids of snapshots and manifests that are alive, and marks on the old chunk files."""

    chunks: Marks
    snapshots: U8 = field(default_factory=no_ids)
    manifests: U8 = field(default_factory=no_ids)


def candidate_files(storage: Storage, before: int, backups_before: int, listings: int = 32) -> CandidateFiles:
    """Return the old files: step 1.

    Backups have their own limit, because no session needs them. Only the lease of a copy protects them.
    """
    with thread_pool(Purpose.FOLDER_LISTINGS, min(len(_FOLDERS) + 1, listings)) as pool:
        backups = pool.submit(old_backups, storage, backups_before)
        files = pool.map(lambda folder: list_objects(storage, folder, before), _FOLDERS.values())
        return CandidateFiles(dict(zip(_FOLDERS, files, strict=True)), backups.result())


def _modified_before(files: Files, time: int) -> Files:
    return {kind: each.select_files(each.modified < time) for kind, each in files.items()}


def without_expired(info: RepoInfo, old: U8, held: U8) -> RepoInfo:
    """Return the repo info without versions that no ref or lease leads to and whose files are in ``old``."""
    return replace(info, snapshots=collapse(info.table, _living(info, old, held), NewParent.NEXT))


def after_collection(info: RepoInfo, old: CandidateFiles) -> RepoInfo:
    """Return the repo info that the collection leaves, without its entry in the ops log."""
    after = without_expired(info, old.files["snapshots"].ids, old.held)
    after = replace(after, snapshots=with_unions(after.table, old.unions)) if old.unions else after
    return after.with_short_log(LOGGED) if len(old.backups) or old.shortens_log else after


def collection_change(
    old: CandidateFiles, live: ReachableFiles, info: RepoInfo, now: int
) -> RepoUpdate | None:
    """Return the repo info after the collection: step 4. None if the plan misses a version that is alive."""
    require_online(info)
    after = after_collection(info, old)
    # A new snapshot without a ref may have a lease that the plan does not know.
    if not (among(after.table.ids(), live.snapshots).all() and among(info.table.ids(), old.listed).all()):
        return None
    return RepoUpdate(after, OpsEntry(UpdateKind.GC_RAN, now))


def _living(info: RepoInfo, old: U8, held: U8) -> NDArray[np.bool_]:
    table = info.table
    first = (table.parents() < 0) & (info.spec_version > 1)
    rows = table.find_snapshots(held)
    return reachable(info) | table.reachable(rows[rows >= 0]) | ~among(table.ids(), old) | first


def needed(info: RepoInfo, old: CandidateFiles, earlier: ReachableFiles, survey: Survey) -> ReachableFiles:
    """Return the files that the versions of ``info`` need, together with ``earlier``: steps 2 and 3.

    Manifests and chunks are read only as far as needed to decide about the old files.
    """
    living, led_to = _living(info, old.files["snapshots"].ids, old.held), reachable(info)
    ids = info.snapshots.ids()
    new = ~among(ids, earlier.snapshots)
    files = ManifestFiles.empty()
    if any(len(old.files[kind]) for kind in ("statistics", "manifests", "chunks")):
        # A version without a ref may have lost its file.
        files = survey.manifests(ids[living & led_to & new], ids[living & ~led_to & new])
    fresh = files.select_manifests(~among(files.ids, earlier.manifests))
    if len(old.files["chunks"]):
        survey.mark_chunks(fresh, earlier.chunks)
    return ReachableFiles(
        earlier.chunks, distinct([earlier.snapshots, ids[living]]), distinct([earlier.manifests, fresh.ids])
    )


def garbage(after: RepoInfo, old: CandidateFiles, live: ReachableFiles) -> dict[str, ObjectListing]:
    """Return the files to delete by kind, in the order of their deletion."""
    alive = {
        "snapshots": live.snapshots,
        "transaction_logs": distinct([after.table.ids(), _pruned(after)]),
        "statistics": live.manifests,  # they have the ids of their manifests
        "manifests": live.manifests,
    }
    dead = {
        kind: old.files[kind].select_files(~among(old.files[kind].ids, ids)) for kind, ids in alive.items()
    }
    return {**dead, "chunks": old.files["chunks"].select_files(~live.chunks.rows())}


def _pruned(info: RepoInfo) -> U8:
    """Return the ids of the versions that were removed from histories, and whose logs stay."""
    ids = np.ascontiguousarray(info.table.pruned().compact().values)
    return ids.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)


class Collection:
    """A garbage collection of all files that were modified before a time, in microseconds since 1970."""

    def __init__(
        self,
        context: Context,
        older_than: int,
        engine: Engine | EngineName | None = None,
        *,
        bounds: Bounds | None = None,
        limits: DeleteLimits | None = None,
        listings: int = 32,
        progress: Progress = NO_PROGRESS,
        ops: OpsLogRetention | None = None,
    ) -> None:
        self._context = context
        self._older_than = older_than
        self._has_tasks = engine is not None
        self._limits = limits or DeleteLimits()
        self._listings = listings
        self._ops = ops
        self._shortens_log = ops is not None and context.spec_version > 1
        self._progress = progress
        self._survey = Survey(context, engine, bounds=bounds, progress=progress)

    def _sweeper(self) -> Sweeper:
        return Sweeper(self._context.storage, self._limits, progress=self._progress)

    def collect(self) -> GCSummary:
        """Collect garbage, with all steps.

        On a full storage, the record of the collection and the new repo info do not fit. Then the collection
        first deletes what it deletes last: backups that its own update makes unneeded. If it dies before that
        update, the ops log may end earlier, but no version is affected.
        """
        try:
            return self._collect()
        except StorageError as error:
            if error.kind != ErrorKind.STORAGE_FULL or not (freed := self._freed()).objects:
                raise
        summary = self._collect()
        return replace(
            summary,
            backups_deleted=summary.backups_deleted + freed.objects,
            backup_bytes_deleted=summary.backup_bytes_deleted + freed.size,
        )

    def _freed(self) -> DeletionResult:
        """Delete backups that the update of a collection makes unneeded, before this update.

        The storage's time of ``repo`` decides which: a writer names only a backup that is newer than the
        ``repo`` that it read. A lease may protect a copy, which reads older backups.
        """
        context, storage = self._context, self._context.storage
        present = storage.head(REPO)
        if context.spec_version < 2 or present is None or next(iter(storage.list(LEASES)), None) is not None:
            return DeletionResult()
        after = context.catalog.full_repo_info().with_short_log(LOGGED)
        old = old_backups(storage, min(self._older_than, from_datetime(present.modified)))
        return self._sweeper().sweep(unneeded(storage, old, named(after)))

    def _collect(self) -> GCSummary:
        context, storage = self._context, self._context.storage
        require_online(context.catalog.repo_info())
        _require_latest(context)
        record, now, ahead = announce(storage)
        try:
            limit = self._older_than + ahead
            delete_ended(storage, now)
            delete_dead(storage, now)
            delete_killed_records(storage, now, with_marks=context.spec_version > 1)
            spared = LeaseLimit(storage, now, limit)
            older_than = spared.refresh()
            old = candidate_files(storage, older_than, limit, self._listings)
            logs = old.files["transaction_logs"]
            unions = planned_unions(context, context.catalog.full_repo_info(), logs, now)
            old = replace(old, shortens_log=self._shortens_log, unions=unions)
            with _unions_stored(context, unions, spared):
                record, after, live = self._edited(old, record)
        except BaseException:
            record.end(storage, leaves_mark=False)  # nothing was deleted
            raise
        ends = True
        try:
            phases = garbage(after, old, live)
            done = self._swept(phases, spared, record)
            spared.refresh()
            if len(done) == len(phases) and not spared.protects_all:
                done[_BACKUPS] = self._swept_backups(old, after)
            delete_abandoned(storage, older_than)
            self._survey.store(live.snapshots, live.manifests)
            return _summary(phases, done, spared)
        except BaseException:
            # Tasks in other processes may still delete listed files, so commits must find the list.
            ends = not self._has_tasks
            raise
        finally:
            if ends:
                record.end(storage, leaves_mark=context.spec_version < 2)

    def _edited(
        self, old: CandidateFiles, record: CollectionRecord
    ) -> tuple[CollectionRecord, RepoInfo, ReachableFiles]:
        """Do steps 2 to 4. Return the record with its list, the new repo info, and the live files."""
        catalog, manifests, chunks = (
            self._context.catalog,
            old.files["manifests"].ids,
            old.files["chunks"].ids,
        )
        live = ReachableFiles(Marks(chunks))
        while True:
            info = catalog.full_repo_info()
            old = old.seen(self._context.storage, info)
            try:
                live = needed(info, old, live, self._survey)
            except StorageError as error:
                ids = catalog.full_repo_info().table.ids()
                if error.kind != ErrorKind.OBJECT_NOT_FOUND or np.array_equal(ids, info.table.ids()):
                    raise
                continue  # another process removed versions, and another collection deleted their files
            dead = [manifests[~among(manifests, live.manifests)], chunks[~live.chunks.rows()]]
            record = record.with_list(self._context.storage, np.concatenate(dead))
            after = catalog.update_full_repo_info(partial(collection_change, old, live))
            if after is not None:
                return record, after, live

    def _swept(
        self, phases: Files, spared: LeaseLimit, record: CollectionRecord
    ) -> dict[str, DeletionResult]:
        """Do step 5 up to the first kind with failed deletions.

        Files of sessions that took a lease in the meantime are kept. The deletion stops if another process
        has deleted the record, because commits then do not know which files will be deleted.
        """
        sweeper = self._sweeper()
        done: dict[str, DeletionResult] = {}
        for kind, files in phases.items():
            if self._context.storage.head(record.key) is None:
                break
            dead = files.select_files(files.modified < spared.refresh())
            if self._has_tasks:
                starts = range(0, len(dead), _FILES_PER_TASK)
                items = [(dead.part(start, start + _FILES_PER_TASK), self._limits) for start in starts]
                done[kind] = DeletionResult()
                for part in self._survey.run(_delete, items):
                    done[kind].add(part)
            else:
                done[kind] = sweeper.sweep(dead)
            if done[kind].failed:
                break
        return done

    def _swept_backups(self, old: CandidateFiles, after: RepoInfo) -> DeletionResult:
        """Bound the ops log, and delete backups that ``after`` does not lead to.

        Sessions and jobs need no backup, so their leases do not count. The caller looks for leases of copies:
        a copy may have read a ``repo`` from before the update of the collection. Its log continues in the
        backups. If a damaged backup hides the rest of the log, no backup is deleted.
        """
        context, storage = self._context, self._context.storage
        try:
            if context.spec_version > 1:
                cut_ops_log(storage, after, self._ops, now_us(), context.settings.compression_level)
            backups = unneeded(storage, old.backups, named(after))
        except FormatError as error:
            return DeletionResult(errors=[f"no backup was deleted: {error.message}"])
        return self._sweeper().sweep(backups)

    def preview(self) -> GCSummary:
        """Return what ``collect`` would delete. Writes nothing, so it uses the clock of this host.

        Without leases, the collection would delete all unused files that are older than its cut-off. With
        them it deletes those that are also older than every lease. One survey finds both: first the versions
        that live without leases, then the few that live because of them.
        """
        context, storage, survey, limit = self._context, self._context.storage, self._survey, self._older_than
        require_online(context.catalog.repo_info())
        _require_latest(context)
        spared = LeaseLimit(storage, now_us(), limit)
        older_than = spared.refresh()
        every = candidate_files(storage, limit, limit, self._listings)
        every = replace(every, shortens_log=self._shortens_log)
        old = replace(every, files=_modified_before(every.files, older_than))
        info = context.catalog.full_repo_info()
        every, old = every.seen(storage, info), old.seen(storage, info)
        old = replace(old, unions=planned_unions(context, info, old.files["transaction_logs"], now_us()))
        live = needed(info, every, ReachableFiles(Marks(every.files["chunks"].ids)), survey)
        unused = garbage(after_collection(info, every), every, live)  # without the leases
        if older_than < limit:
            live = needed(info, old, live, survey)  # the leases protect more versions, but they are few
        after = after_collection(info, old)
        # The marks are those of all files.
        marked = replace(old, files={**old.files, "chunks": every.files["chunks"]})
        phases = _modified_before(garbage(after, marked, live), older_than)
        # The collection would write a backup of ``info`` and name it.
        names = named(after) | {*filter(None, [info.repo_before_updates])}
        now = next_update_time(info)  # as the collection would choose it
        preview = after.recorded(OpsEntry(UpdateKind.GC_RAN, now), backup=_PREVIEW, keep=len(after.ops) + 1)
        if context.spec_version > 1 and planned_link(storage, preview, self._ops, now_us()) is not None:
            backups = old.backups.select_backups(~np.isin(old.backups.names, sorted(named(preview))))
        else:
            backups = unneeded(storage, old.backups, names)
        deleted: dict[str, ObjectColumns] = {**phases, _BACKUPS: backups}
        done = {
            kind: DeletionResult(len(each.sizes), int(each.sizes.sum())) for kind, each in deleted.items()
        }
        return replace(
            _summary(phases, done, spared),
            leases=_with_held_files(spared, unused),
            files=_garbage_table(info, phases, backups, survey),
        )


@contextmanager
def _unions_stored(context: Context, unions: Sequence[LogUnion], spared: LeaseLimit) -> Iterator[None]:
    """Store the unions of logs, and protect them from other collections until ``repo`` names them."""
    if not unions:
        yield
        return
    now = now_us()
    lease = Lease.take(context.storage, now, now + _LEASE, purpose="collection", name="garbage_collect")
    spared.own = lease.key
    try:
        for each in unions:
            log = encode_transaction_log(each.log, level=context.settings.compression_level)
            context.storage.put(transaction_key(each.log.id), log)
        yield
    finally:
        lease.give_back(context.storage)


def _summary(phases: Files, done: dict[str, DeletionResult], spared: LeaseLimit) -> GCSummary:
    """Return the result of a collection."""
    counts: dict[str, Any] = {f"{kind}_deleted": swept.objects for kind, swept in done.items()}
    return GCSummary(
        bytes_deleted=sum(swept.size for kind, swept in done.items() if kind != _BACKUPS),
        **counts,
        backup_bytes_deleted=done[_BACKUPS].size if _BACKUPS in done else 0,
        objects_failed_to_delete=sum(swept.failed for swept in done.values()),
        throttled_batches=sum(swept.throttled for swept in done.values()),
        delete_errors=[error for swept in done.values() for error in swept.errors],
        skipped_phases=[kind for kind in phases if kind not in done],
        leases_respected=len(spared.leases),
        spared_since=to_datetime(max(0, spared.older_than)) if spared.leases else None,
        leases=[lease.info for lease in spared.leases.values()],
    )


def _with_held_files(spared: LeaseLimit, unused: Files) -> list[LeaseInfo]:
    """Return the leases, each with the number and the bytes of the unused files that it protects."""
    modified = np.concatenate([files.modified for files in unused.values()])
    sizes = np.concatenate([files.sizes for files in unused.values()])
    held = [(lease, sizes[modified >= lease.since]) for lease in spared.leases.values()]
    return [replace(lease.info, held_objects=len(each), held_bytes=int(each.sum())) for lease, each in held]


def _garbage_table(info: RepoInfo, phases: Files, backups: Backups, survey: Survey) -> GarbageFiles:
    """Return the garbage as a table, with reasons."""
    unreferenced = _CODES[GarbageReason.UNREFERENCED]
    reasons = {kind: np.full(len(files), unreferenced, np.uint8) for kind, files in phases.items()}
    for kind in ("snapshots", "transaction_logs"):
        for removed in (_pruned(info), info.ops.new, info.ops.previous):
            reasons[kind][among(phases[kind].ids, removed)] = _CODES[GarbageReason.EXPIRED]
        reasons[kind][among(phases[kind].ids, info.table.ids())] = _CODES[GarbageReason.UNREACHABLE]
    snapshots, manifests, chunks = (phases[kind].ids for kind in ("snapshots", "manifests", "chunks"))
    for reason in (GarbageReason.UNREACHABLE, GarbageReason.EXPIRED):
        dead = snapshots[reasons["snapshots"] == _CODES[reason]]
        try:
            files = ManifestFiles.union([part.files for part in survey.read_versions(dead[:0], dead)])
            reasons["manifests"][among(manifests, files.ids)] = _CODES[reason]
            marks = Marks(chunks)
            for part in survey.chunk_digests(files.select_manifests(among(files.ids, manifests))):
                marks.mark(part.digests.compact().values)
            reasons["chunks"][marks.rows()] = _CODES[reason]
        except IcechunkError:
            continue
    folders = [GarbageFolder(kind, phases[kind], reasons[kind]) for kind in phases]
    of_backups = np.full(len(backups), _CODES[GarbageReason.OLD_BACKUP], np.uint8)
    return GarbageFiles([*folders, GarbageFolder(_BACKUPS, backups, of_backups)])
