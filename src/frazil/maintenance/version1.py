"""Upkeep in repositories of spec version 1, where the versions are what refs and snapshot files say.

*Expiration* gives the oldest snapshot of a ref that stays the first one as its parent, by writing its file
again in place. What lies between is no version any more; the files go with the garbage.

*Garbage* is what no ref leads to. There is no single file whose change could come first, so refs are read
once more after everything else, and what came meanwhile is looked at as well.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np

from frazil.format.columns import U8
from frazil.format.ids import id_list, id_matrix
from frazil.format.keys import SNAPSHOTS, snapshot_key
from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable
from frazil.format.snapshot import encode_snapshot
from frazil.maintenance.expire import Expiry
from frazil.maintenance.listing import listed
from frazil.repository.context import Context
from frazil.repository.mutations import MAIN, delete_branch, delete_tag
from frazil.repository.snapshots_v1 import SnapshotsV1


def all_versions(context: Context) -> RepoInfo:
    """A repo info with all versions that a ref leads to, and those that are only files as well, without
    ancestors. In spec version 2 it is the one that there is.
    """
    info = context.repo_info()
    if context.spec_version >= 2:
        return info
    snapshots = info.snapshots
    files = listed(context.storage, SNAPSHOTS)
    tips = {*info.branches.values(), *info.tags.values()}
    rows = sorted(set(chain.from_iterable(snapshots.chain(snapshots.find(tip)).tolist() for tip in tips)))
    entries = {entry.id: entry for entry in snapshots.entries(np.array(rows, np.int64))}
    others = [id_ for id_ in id_list(files.ids) if id_ not in entries]
    alone = [SnapshotEntry(id_, None, 0, "", {}) for id_ in others]
    return replace(
        info,
        branches=dict(info.branches),
        tags=dict(info.tags),
        snapshots=SnapshotTable.of([*entries.values(), *alone]),
    )


def expire_v1(context: Context, what: Expiry) -> U8:
    """Expire, file by file; the ids of what went."""
    info = context.repo_info()
    snapshots = info.snapshots
    assert isinstance(snapshots, SnapshotsV1)
    gone: set[bytes] = set()
    for refs, deletes, remove in (
        (info.tags, what.tags, delete_tag),
        (info.branches, what.branches, delete_branch),
    ):
        for name in sorted(refs):
            rows = snapshots.chain(snapshots.find(refs[name]))
            old = np.array([entry.flushed_at for entry in snapshots.entries(rows)]) < what.older_than
            old[-1] = False
            if deletes and old[0] and not (refs is info.branches and name == MAIN):
                gone.update(map(snapshots.id_of, rows[:-1].tolist()))
                context.update(remove(name))
                continue
            if old[0]:
                gone.add(snapshots.id_of(int(rows[0])))  # stays, for this ref; told as if it went
                old[0] = False
            if old.any():
                stays = int(np.argmax(old)) - 1
                gone.update(map(snapshots.id_of, rows[stays + 1 : -1].tolist()))
                _reparent(context, snapshots, *map(snapshots.id_of, rows[[stays, -1]].tolist()))
    return id_matrix(sorted(gone))


def _reparent(context: Context, snapshots: SnapshotsV1, id_: bytes, parent: bytes) -> None:
    """Write the file of a snapshot again, with another parent."""
    snapshot = replace(context.assets.snapshot(id_), parent_id=parent)
    context.storage.put(
        snapshot_key(id_), encode_snapshot(snapshot, level=context.settings.compression_level)
    )
    snapshots.reparent(id_, parent)
