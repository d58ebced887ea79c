"""A dry run of a garbage collection: what it would delete, and what leases hold back. It writes nothing.

Without leases, the collection would delete all unused files that are older than its cut-off. With them it
deletes those that are also older than every lease. One read of the manifests finds both: first the versions
that live without leases, then the few that live because of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from frazil.format.repo_info import OpsEntry, UpdateKind
from frazil.maintenance.backups import named, unneeded
from frazil.maintenance.deletion import Swept
from frazil.maintenance.digests import Marks
from frazil.maintenance.garbage import BACKUPS, Collection, collection_summary
from frazil.maintenance.garbage_files import GCSummary
from frazil.maintenance.garbage_plan import Live, after_collection, garbage, needed, old_files
from frazil.maintenance.garbage_reasons import garbage_table
from frazil.maintenance.incremental_walk import IncrementalWalk
from frazil.maintenance.listing import Listed
from frazil.maintenance.log_unions import planned_unions
from frazil.maintenance.ops_retention import planned_link
from frazil.repository.catalog.collection_guard import newest_update
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.leases import LeaseLimit, lease_info
from frazil.repository.catalog.repo_requirements import require_online
from frazil.repository.catalog.version_info import LeaseInfo
from frazil.repository.clock import now_us

#: The name of the backup that the collection would write.
_PREVIEW: Final = "preview"


def look(context: Context, what: Collection) -> GCSummary:
    """Return what ``collect`` would delete. Writes nothing, so it uses the clock of this host."""
    storage = context.storage
    require_online(context.catalog.repo_info())
    limit = what.older_than
    spared = LeaseLimit(storage, now_us(), limit)
    what = replace(what, older_than=spared.refresh())
    every = old_files(storage, limit, limit, what.listings)
    every = replace(every, shortens_log=what.ops is not None and context.spec_version > 1)
    old = every.modified_before(what.older_than)
    info = context.catalog.full_repo_info()
    old = replace(old, unions=planned_unions(context, info, old.logs, now_us()))
    walk = IncrementalWalk(storage, what.walker, what.progress)
    live = needed(info, every, Live(Marks(every.chunks.ids)), walk)
    unused = garbage(after_collection(info, every), every, live)  # without the leases
    if what.older_than < limit:
        live = needed(info, old, live, walk)  # the leases protect more versions, but they are few
    after = after_collection(info, old)
    # The marks are those of all files.
    phases = garbage(after, replace(old, chunks=every.chunks), live)
    phases = {name: files.select_files(files.modified < what.older_than) for name, files in phases.items()}
    done = {name: Swept(len(files), int(files.sizes.sum())) for name, files in phases.items()}
    # The collection would write a backup of ``info`` and name it.
    names = named(after) | {*filter(None, [info.repo_before_updates])}
    now = max(now_us(), newest_update(info) + 1)  # as the collection would choose it
    preview = after.recorded(OpsEntry(UpdateKind.GC_RAN, now), backup=_PREVIEW, keep=len(after.ops) + 1)
    if context.spec_version > 1 and planned_link(storage, preview, what.ops, now_us()) is not None:
        gone = old.backups.select_backups(~np.isin(old.backups.names, sorted(named(preview))))
    else:
        gone = unneeded(storage, old.backups, names)
    summary = collection_summary(phases, done | {BACKUPS: Swept(len(gone), int(gone.sizes.sum()))}, spared)
    summary = replace(summary, leases=_with_held_files(spared, unused))
    return replace(summary, files=garbage_table(storage, info, phases, gone, what.walker))


def _with_held_files(spared: LeaseLimit, unused: dict[str, Listed]) -> list[LeaseInfo]:
    """Return the leases, each with the number and the bytes of the unused files that it protects."""
    modified, sizes = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(files, name) for files in unused.values())])
        for name in ("modified", "sizes")
    )
    return [
        replace(
            lease_info(lease),
            held_objects=int(np.count_nonzero(modified >= lease.since)),
            held_bytes=int(sizes[modified >= lease.since].sum()),
        )
        for lease in spared.leases.values()
    ]
