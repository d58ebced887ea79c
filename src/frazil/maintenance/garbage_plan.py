"""The plan of a garbage collection: the old files, and which of them versions need. See ``garbage``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, id_matrix
from frazil.format.keys import CHUNKS, MANIFESTS, SNAPSHOTS, TRANSACTIONS
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.backups import LOGGED, Backups, old_backups
from frazil.maintenance.collapse import Onto, collapse
from frazil.maintenance.digests import Marks
from frazil.maintenance.incremental_walk import IncrementalWalk
from frazil.maintenance.listing import Listed, among, distinct, listed
from frazil.maintenance.log_unions import LogUnion, with_unions
from frazil.storage.base import Storage
from frazil.threads import Purpose, thread_pool


def _no_ids() -> U8:
    return np.zeros((0, OBJECT_ID_BYTES), np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Old:
    """All files that are older than the limit, by folder."""

    snapshots: Listed
    logs: Listed
    manifests: Listed
    chunks: Listed
    backups: Backups
    #: Whether the ops log in ``repo`` becomes short, even if there are no old backups.
    shortens_log: bool = False
    #: Logs that take the place of logs of removed versions.
    unions: Sequence[LogUnion] = ()

    def modified_before(self, time: int) -> Old:
        """Return the files, other than backups, that were modified before a time, and all backups."""
        kinds = (self.snapshots, self.logs, self.manifests, self.chunks)
        snapshots, logs, manifests, chunks = (each.select_files(each.modified < time) for each in kinds)
        return replace(self, snapshots=snapshots, logs=logs, manifests=manifests, chunks=chunks)


@dataclass(frozen=True, slots=True, eq=False)
class Live:
    """The files that are alive: ids of snapshots and manifests, uint8 (k, 12), and marks on old chunk files.

    Files that were written after the listing are not in it. They are not old either.
    """

    chunks: Marks
    snapshots: U8 = field(default_factory=_no_ids)
    manifests: U8 = field(default_factory=_no_ids)


def old_files(storage: Storage, before: int, backups_before: int, listings: int) -> Old:
    """Return the old files: step 1.

    Backups have their own limit, because no session needs them. Only the lease of a copy protects them.
    """
    folders = (SNAPSHOTS, TRANSACTIONS, MANIFESTS, CHUNKS)
    with thread_pool(Purpose.FOLDER_LISTINGS, min(len(folders) + 1, listings)) as pool:
        backups = pool.submit(old_backups, storage, backups_before)
        files = pool.map(lambda folder: listed(storage, folder, before), folders)
        snapshots, logs, manifests, chunks = files
        return Old(snapshots, logs, manifests, chunks, backups.result())


def without_dead(info: RepoInfo, old: U8) -> RepoInfo:
    """Return the repo info without versions that no ref leads to and whose files are in ``old``."""
    return replace(info, snapshots=collapse(info.table, _living(info, old), Onto.NEXT))


def after_collection(info: RepoInfo, old: Old) -> RepoInfo:
    """Return the repo info that the collection leaves, without its entry in the ops log."""
    after = without_dead(info, old.snapshots.ids)
    after = replace(after, snapshots=with_unions(after.table, old.unions)) if old.unions else after
    return after.with_short_log(LOGGED) if len(old.backups) or old.shortens_log else after


def _living(info: RepoInfo, old: U8) -> NDArray[np.bool_]:
    table = info.table
    first = (table.parents() < 0) & (info.spec_version > 1)
    return referred(info) | ~among(table.ids(), old) | first


def referred(info: RepoInfo) -> NDArray[np.bool_]:
    """Return which snapshots a branch or tag leads to."""
    tips = id_matrix([*info.branches.values(), *info.tags.values()])
    return info.table.reachable(info.table.find_snapshots(tips))


def needed(info: RepoInfo, old: Old, earlier: Live, walk: IncrementalWalk) -> Live:
    """Return the files that the versions of ``info`` need, together with ``earlier``: steps 2 and 3.

    Manifests and chunks are read only as far as needed to decide about the old files.
    """
    living, led_to = _living(info, old.snapshots.ids), referred(info)
    ids = info.snapshots.ids()
    new = ~among(ids, earlier.snapshots)
    files = ManifestFiles.empty()
    if len(old.manifests) or len(old.chunks):
        # A version without a ref may have lost its file.
        files = walk.manifests(ids[living & led_to & new], ids[living & ~led_to & new])
    fresh = files.select_manifests(~among(files.ids, earlier.manifests))
    if len(old.chunks):
        walk.mark_chunks(fresh, earlier.chunks)
    return Live(
        earlier.chunks,
        distinct([earlier.snapshots, ids[living]]),
        distinct([earlier.manifests, fresh.ids]),
    )


def garbage(after: RepoInfo, old: Old, live: Live) -> dict[str, Listed]:
    """Return the files to delete by kind, in the order of their deletion."""
    table = after.table
    logs = distinct(
        [table.ids(), np.ascontiguousarray(table.pruned().compact().values).view(np.uint8).reshape(-1, 12)]
    )
    alive = {
        "snapshots": (old.snapshots, live.snapshots),
        "transaction_logs": (old.logs, logs),
        "manifests": (old.manifests, live.manifests),
    }
    dead = {name: files.select_files(~among(files.ids, ids)) for name, (files, ids) in alive.items()}
    return {**dead, "chunks": old.chunks.select_files(~live.chunks.rows())}
