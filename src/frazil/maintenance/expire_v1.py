"""Expiration in repositories of spec version 1, where refs and snapshot files define the history.

The refs are processed one by one, first the tags. The oldest remaining snapshot gets the first snapshot as
its parent, and its file is written again in place. The snapshots in between are skipped, even if another ref
leads to them: then the snapshot is kept but not in this history. Each file is written separately. If the
process dies in between, a part is expired, and another run continues.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U8
from frazil.format.ids import id_matrix
from frazil.format.keys import snapshot_key
from frazil.format.snapshot import encode_snapshot
from frazil.maintenance.expire import Expiry
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_changes import MAIN, delete_branch, delete_tag
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.catalog.snapshots_v1 import SnapshotsV1
from frazil.survey.steps import NO_PROGRESS, Progress


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
