"""Garbage collection: deletes the files that no version of the repository needs.

    plan     1. List the files that are older than the limit. Only these can be deleted.
             2. Read the repo info. A version is alive if a ref leads to it or its file is newer than the
             limit. 3. Read the manifests of these versions, if no earlier collection has read them
             (``stored_walk``). Their chunk files are alive. Store a list of the others.
    finish   4. One conditional write removes the dead versions from the repo info. It takes effect only if no
                version is alive that the plan has not seen. Otherwise the plan is completed first.
             5. Delete snapshots, then transaction logs, manifests and chunks, then backups of the repo info
                that the ops log does not need, and abandoned staged files of jobs.

A collection that dies at any point leaves a complete repository and some garbage. It deletes no file that the
repo info leads to, and it deletes each kind of file before the files that it refers to. A file that cannot be
read stops the collection in step 3, before any deletion.

A pack is one file with many chunks. It is alive while one of its chunks is. Virtual and inline chunks have no
files. The age of a file is the time since its last modification, by the storage's clock.

On a full storage, the record of the collection and the new repo info do not fit. Then the collection first
deletes what it deletes last: backups that its own update makes unneeded (``_freed``). If it dies before that
update, the ops log may end earlier, but no version is affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from frazil.errors import ErrorKind, FormatError, StorageError
from frazil.format.keys import REPO
from frazil.format.repo_info import OpsEntry, RepoInfo, UpdateKind
from frazil.maintenance.backups import LOGGED, named, old_backups, unneeded
from frazil.maintenance.deletion import Patience, Sweeper, Swept
from frazil.maintenance.digests import Marks
from frazil.maintenance.garbage_files import GCSummary
from frazil.maintenance.garbage_plan import Live, Old, after_collection, garbage, needed, old_files
from frazil.maintenance.incremental_walk import IncrementalWalk
from frazil.maintenance.listing import Listed, among
from frazil.maintenance.log_unions import LogUnion, planned_unions, put_unions
from frazil.maintenance.ops_retention import OpsLogRetention, cut_ops_log
from frazil.maintenance.progress import NO_PROGRESS, Progress
from frazil.maintenance.walk import Bounds, LocalWalk, Walk
from frazil.repository.catalog.collection_records import CollectionRecord, announce, delete_killed_records
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.leases import LEASES, Lease, LeaseLimit, delete_ended, lease_info
from frazil.repository.catalog.repo_requirements import require_online
from frazil.repository.catalog.repo_update import RepoUpdate
from frazil.repository.catalog.turns import delete_dead
from frazil.repository.clock import from_datetime, now_us, to_datetime
from frazil.repository.session.staged_work import delete_abandoned
from frazil.storage.base import Storage

#: The kind of the backups of the repo info.
BACKUPS: Final = "backups"
#: The duration of the lease for new logs, in microseconds.
_LEASE: Final = 24 * 3600 * 1_000_000

#: Deletes all listed files.
type Sweep = Callable[[Listed], Swept]


@dataclass(frozen=True, slots=True)
class Collection:
    """The files to collect: all that were modified before ``older_than`` (microseconds since 1970).

    ``walk`` reads manifests and ``sweep`` deletes files if another process than this one does it.
    """

    older_than: int
    bounds: Bounds = field(default_factory=Bounds)
    patience: Patience = field(default_factory=Patience)
    listings: int = 32
    walk: Walk | None = None
    sweep: Sweep | None = None
    progress: Progress = NO_PROGRESS
    ops: OpsLogRetention | None = None

    @property
    def walker(self) -> Walk:
        """The object that reads manifests: ``walk``, or this process."""
        return self.walk or LocalWalk(self.bounds)

    def sweeper(self, storage: Storage) -> Sweeper:
        """Return the object that deletes files in this process."""
        return Sweeper(storage, self.patience, progress=self.progress)


@dataclass(frozen=True, slots=True, eq=False)
class Collecting:
    """The repo change of a collection: step 4.

    It returns None, which ends the retry loop, if a version is alive that the plan has not seen.
    """

    old: Old
    live: Live

    def __call__(self, info: RepoInfo, now: int) -> RepoUpdate | None:
        """Return the repo info after the collection, or None if the plan is not complete."""
        require_online(info)
        after = after_collection(info, self.old)
        if not among(after.table.ids(), self.live.snapshots).all():
            return None
        return RepoUpdate(after, OpsEntry(UpdateKind.GC_RAN, now))


def collect(context: Context, what: Collection) -> GCSummary:
    """Collect garbage, with all steps. On a full storage, old backups are deleted first.

    ``repository.catalog.leases`` describes how the files of running sessions are protected.
    """
    try:
        return _collect(context, what)
    except StorageError as error:
        if error.kind != ErrorKind.STORAGE_FULL or not (freed := _freed(context, what)).objects:
            raise
    summary = _collect(context, what)
    return replace(
        summary,
        backups_deleted=summary.backups_deleted + freed.objects,
        backup_bytes_deleted=summary.backup_bytes_deleted + freed.size,
    )


def _freed(context: Context, what: Collection) -> Swept:
    """Delete backups that the update of a collection makes unneeded, before this update.

    The storage's time of ``repo`` decides which: a writer names only a backup that is newer than the ``repo``
    that it read. A lease may protect a copy, which reads older backups.
    """
    storage = context.storage
    present = storage.head(REPO)
    if context.spec_version < 2 or present is None or next(iter(storage.list(LEASES)), None) is not None:
        return Swept()
    after = context.catalog.full_repo_info().with_short_log(LOGGED)
    old = old_backups(storage, min(what.older_than, from_datetime(present.modified)))
    return what.sweeper(storage).sweep(unneeded(storage, old, named(after)))


def _collect(context: Context, what: Collection) -> GCSummary:
    storage = context.storage
    require_online(context.catalog.repo_info())
    announcement = announce(storage)
    try:
        limit = what.older_than + announcement.ahead
        delete_ended(storage, announcement.now)
        delete_dead(storage, announcement.now)
        delete_killed_records(storage, announcement.now, with_marks=context.spec_version > 1)
        spared = LeaseLimit(storage, announcement.now, limit)
        what = replace(what, older_than=spared.refresh())
        old = old_files(storage, what.older_than, limit, what.listings)
        old = replace(old, shortens_log=what.ops is not None and context.spec_version > 1)
        walk = IncrementalWalk(storage, what.walker, what.progress)
        unions = planned_unions(context, context.catalog.full_repo_info(), old.logs, announcement.now)
        with _unions_stored(context, unions, spared):
            old = replace(old, unions=unions)
            record, after, live = _edited(context, walk, old, announcement.record)
    except BaseException:
        announcement.record.end(storage, leaves_mark=False)  # nothing was deleted
        raise
    ends = True
    try:
        phases = garbage(after, old, live)
        done = _swept(storage, phases, what, spared, record)
        spared.refresh()
        if len(done) == len(phases) and not spared.protects_all:
            done |= _swept_backups(context, old, after, what)
        delete_abandoned(storage, what.older_than)
        walk.store(live.snapshots, live.manifests)
        return collection_summary(phases, done, spared)
    except BaseException:
        # Tasks in other processes may still delete listed files, so commits must find the list.
        ends = what.sweep is None
        raise
    finally:
        if ends:
            record.end(storage, leaves_mark=context.spec_version < 2)


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
        put_unions(context, unions)
        yield
    finally:
        lease.give_back(context.storage)


def _edited(
    context: Context, walk: IncrementalWalk, old: Old, record: CollectionRecord
) -> tuple[CollectionRecord, RepoInfo, Live]:
    """Do steps 2 to 4. Return the record with its list, the new repo info, and the files that are alive."""
    live = Live(Marks(old.chunks.ids))
    while True:
        live = needed(context.catalog.full_repo_info(), old, live, walk)
        dead_manifests = old.manifests.ids[~among(old.manifests.ids, live.manifests)]
        dead_chunks = old.chunks.ids[~live.chunks.rows()]
        record = record.with_list(context.storage, np.concatenate([dead_manifests, dead_chunks]))
        after = context.catalog.update_full_repo_info(Collecting(old, live))
        if after is not None:
            return record, after, live


def _swept(
    storage: Storage,
    phases: dict[str, Listed],
    what: Collection,
    spared: LeaseLimit,
    record: CollectionRecord,
) -> dict[str, Swept]:
    """Do step 5 up to the first kind with failed deletions.

    Files of sessions that took a lease in the meantime are kept. The deletion stops if another process has
    deleted the record, because commits then do not know which files will be deleted.
    """
    sweep = what.sweep or what.sweeper(storage).sweep
    done: dict[str, Swept] = {}
    for name, files in phases.items():
        if not record.is_current(storage):
            break
        done[name] = sweep(files.select_files(files.modified < spared.refresh()))
        if done[name].failed:
            break
    return done


def _swept_backups(context: Context, old: Old, after: RepoInfo, what: Collection) -> dict[str, Swept]:
    """Bound the ops log, and delete backups that ``after`` does not lead to.

    Sessions and jobs need no backup, so their leases do not count. The caller looks for leases of copies: a
    copy may have read a ``repo`` from before the update of the collection. Its log continues in the backups.

    If a damaged backup hides the rest of the log, no backup is deleted.
    """
    storage = context.storage
    try:
        if context.spec_version > 1:
            cut_ops_log(storage, after, what.ops, now_us(), context.settings.compression_level)
        gone = unneeded(storage, old.backups, named(after))
    except FormatError as error:
        return {BACKUPS: Swept(errors=[f"no backup was deleted: {error.message}"])}
    return {BACKUPS: what.sweeper(storage).sweep(gone)}


def collection_summary(phases: dict[str, Listed], done: dict[str, Swept], spared: LeaseLimit) -> GCSummary:
    """Return the result of a collection."""
    counts: dict[str, Any] = {f"{name}_deleted": swept.objects for name, swept in done.items()}
    return GCSummary(
        bytes_deleted=sum(swept.size for name, swept in done.items() if name != BACKUPS),
        **counts,
        backup_bytes_deleted=done[BACKUPS].size if BACKUPS in done else 0,
        objects_failed_to_delete=sum(swept.failed for swept in done.values()),
        throttled_batches=sum(swept.throttled for swept in done.values()),
        delete_errors=[error for swept in done.values() for error in swept.errors],
        skipped_phases=[name for name in phases if name not in done],
        leases_respected=len(spared.leases),
        spared_since=to_datetime(max(0, spared.older_than)) if spared.leases else None,
        leases=list(map(lease_info, spared.leases.values())),
    )
