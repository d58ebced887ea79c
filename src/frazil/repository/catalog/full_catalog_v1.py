"""The full repo info of spec version 1, for maintenance: a table of all snapshots, and its updates.

A garbage collection may delete the parent of a snapshot that stays. It then writes another parent into the
file of this snapshot. Each file is written separately. If a collection is killed, the next collection changes
the other files.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable
from frazil.format.snapshot import encode_snapshot
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.files import SNAPSHOT
from frazil.repository.catalog.refs_v1 import read_all_refs
from frazil.repository.catalog.snapshots_v1 import reached_snapshots, read_all_snapshots
from frazil.storage.base import Storage


def full_repo_info_v1(storage: Storage, info: RepoInfo) -> RepoInfo:
    """Return ``info`` with all refs, and with all snapshots that have a file.

    A snapshot whose parent has no file becomes a root.
    """
    refs = read_all_refs(storage)
    results = read_all_snapshots(storage)
    entries = {id_: entry for id_, entry in results.items() if isinstance(entry, SnapshotEntry)}
    entries |= reached_snapshots(storage, results, refs.tips)
    table = SnapshotTable.of(
        [entry if entry.parent in entries else replace(entry, parent=None) for entry in entries.values()]
    )
    return replace(
        info,
        branches=refs.branches,
        tags=refs.tags,
        deleted_tags=frozenset(refs.deleted_tags),
        snapshots=table,
    )


def write_new_parents(assets: Assets, before: RepoInfo, after: RepoInfo, level: int) -> None:
    """Write the snapshot files whose parents a garbage collection has changed."""
    storage = assets.storage
    for id_, parent in _relinked(before.table, after.table):
        snapshot = replace(SNAPSHOT.read(storage, id_), parent_id=parent)
        storage.put(SNAPSHOT.key(id_), encode_snapshot(snapshot, level=level))
        assets.forget_snapshot(id_)


def _relinked(before: SnapshotTable, after: SnapshotTable) -> list[tuple[bytes, bytes]]:
    """Return the snapshots that get another parent, each with this parent."""
    rows = before.find_snapshots(after.ids())
    old, new = before.parents()[rows], after.parents()
    changed = np.flatnonzero((new >= 0) & (before.ids()[old] != after.ids()[new]).any(axis=1))
    return [(after.id_of(row), after.id_of(int(new[row]))) for row in changed.tolist()]
