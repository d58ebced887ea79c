"""Expiration: removes old snapshots from the history.

    stay     the first snapshot, the tip of ``main``, all snapshots that are not older than the limit, and the
             tips of other branches and of tags unless the user wants to delete those
    removed  all other snapshots, even if a ref leads to them

A snapshot whose parent is removed gets the first snapshot as its parent. Only the repo info changes. The
files of the removed snapshots are garbage, which a garbage collection deletes.

In spec version 1, refs and snapshot files define the history. The refs are processed one by one, first the
tags. The oldest remaining snapshot gets the first snapshot as its parent, and its file is written again in
place. The snapshots in between are skipped, even if another ref leads to them: then the snapshot stays, but
not in this history. Each file is written separately. If the process dies in between, a part is expired, and
another run continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U8
from frazil.format.ids import id_matrix, snapshot_key
from frazil.format.repo_info import OpsEntry, RepoInfo, UpdateKind
from frazil.format.snapshot import encode_snapshot
from frazil.maintenance.links import NewParent, collapse
from frazil.maintenance.plan import RecordedChange
from frazil.maintenance.retention import RetentionReport, Rules, VersionList
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files_v1 import SnapshotsV1
from frazil.repository.catalog.history_records import with_expiring
from frazil.repository.catalog.repo_changes import MAIN, delete_branch, delete_tag, require_snapshot
from frazil.repository.catalog.repo_update import RepoUpdate
from frazil.survey.steps import NO_PROGRESS, Progress


@dataclass(frozen=True, slots=True)
class Expiry:
    """The snapshots to expire: all that were flushed before ``older_than`` (microseconds since 1970).

    ``branches`` and ``tags`` say whether refs to such snapshots are deleted, too.
    """

    older_than: int
    branches: bool = False
    tags: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Expired:
    """The repo info after an expiration, and the ids of the removed snapshots, uint8 (k, 12)."""

    info: RepoInfo
    ids: U8


def expire(info: RepoInfo, what: Expiry) -> Expired:
    """Return the repo info after an expiration. A pure function."""
    table = info.table
    old = (table.flushed_at() < what.older_than) & (table.parents() >= 0)
    branches = _left(info.branches, info, old) if what.branches else info.branches
    if MAIN in info.branches:
        branches = {**branches, MAIN: info.branches[MAIN]}
    tags = _left(info.tags, info, old) if what.tags else info.tags
    keep = ~old
    keep[table.find_snapshots(id_matrix([*branches.values(), *tags.values()]))] = True
    snapshots = collapse(table, keep, NewParent.ROOT)
    left = replace(
        info,
        branches=branches,
        tags=tags,
        deleted_tags=info.deleted_tags | (info.tags.keys() - tags.keys()),
        metadata=with_expiring(info, keep, snapshots) if info.spec_version > 1 else info.metadata,
        snapshots=snapshots,
    )
    return Expired(left, table.ids()[~keep])


def expiry_report(info: RepoInfo, what: Expiry) -> RetentionReport:
    """Return what an expiration would remove, and why."""
    table, after = info.table, expire(info, what)
    keep = np.ones(len(table), bool)
    keep[table.find_snapshots(after.ids)] = False
    stays, removed = Rules(len(table)), Rules(len(table))
    stays.add("first version", table.parents() < 0)
    for reason, refs in (("tip of branch", after.info.branches), ("tag", after.info.tags)):
        if refs:
            stays.add(reason, table.find_snapshots(id_matrix(list(refs.values()))), list(refs))
    old = table.flushed_at() < what.older_than
    stays.add("not older than the limit", ~old)
    removed.add("older than the limit", old)
    return RetentionReport(
        removed=VersionList(table, np.flatnonzero(~keep), tuple(removed)),
        retained=VersionList(table, np.flatnonzero(keep), tuple(stays)),
        deleted_branches=tuple(sorted(info.branches.keys() - after.info.branches.keys())),
        deleted_tags=tuple(sorted(info.tags.keys() - after.info.tags.keys())),
    )


def _left(refs: Mapping[str, bytes], info: RepoInfo, old: np.ndarray) -> dict[str, bytes]:
    """Return the refs whose tips are not old."""
    rows = info.snapshots.find_snapshots(id_matrix(list(refs.values())))
    return {name: id_ for (name, id_), gone in zip(refs.items(), old[rows].tolist(), strict=True) if not gone}


def expiration_change(what: Expiry) -> RecordedChange[U8]:
    """Return the repo change of an expiration. Its result are the ids of the removed snapshots."""

    def change(info: RepoInfo, now: int) -> tuple[RepoUpdate, U8]:
        done = expire(info, what)
        return RepoUpdate(done.info, OpsEntry(UpdateKind.EXPIRATION_RAN, now)), done.ids

    return RecordedChange(change)


def expire_v1(context: Context, what: Expiry, progress: Progress = NO_PROGRESS) -> U8:
    """Expire snapshots file by file, and return the ids of the removed snapshots. A step is one ref."""
    info = context.catalog.repo_info()
    snapshots = info.snapshots
    assert isinstance(snapshots, SnapshotsV1)
    progress.expect(len(info.tags) + len(info.branches))
    gone: set[bytes] = set()
    for refs, deletes, remove in (
        (info.tags, what.tags, delete_tag),
        (info.branches, what.branches, delete_branch),
    ):
        for name in sorted(refs):
            rows = snapshots.chain(require_snapshot(info, refs[name]))
            old = np.array([entry.flushed_at for entry in snapshots.entries(rows)]) < what.older_than
            old[-1] = False
            if deletes and old[0] and not (refs is info.branches and name == MAIN):
                gone.update(map(snapshots.id_of, rows[:-1].tolist()))
                context.catalog.update_repo_info(remove(name))
            else:
                gone |= _expire_line(context, snapshots, rows, old)
            progress.advance()
    return id_matrix(sorted(gone))


def _expire_line(context: Context, snapshots: SnapshotsV1, rows: I64, old: NDArray[np.bool_]) -> set[bytes]:
    """Remove the old snapshots of a ref that stays. Return their ids, and that of an old tip, which stays."""
    gone = {snapshots.id_of(int(rows[0]))} if old[0] else set()
    old[0] = False
    if old.any():
        stays = int(np.argmax(old)) - 1
        gone.update(map(snapshots.id_of, rows[stays + 1 : -1].tolist()))
        _reparent(context, snapshots, *map(snapshots.id_of, rows[[stays, -1]].tolist()))
    return gone


def _reparent(context: Context, snapshots: SnapshotsV1, id_: bytes, parent: bytes) -> None:
    """Write the file of a snapshot again, with another parent."""
    snapshot = replace(context.assets.snapshot(id_), parent_id=parent)
    context.storage.put(
        snapshot_key(id_), encode_snapshot(snapshot, level=context.settings.compression_level)
    )
    context.assets.forget_snapshot(id_)
    snapshots.reparent(id_, parent)
