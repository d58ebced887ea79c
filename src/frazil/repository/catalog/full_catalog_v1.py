"""A repository of spec version 1 as a whole, for upkeep: all snapshots in a table, and changes to it.

A collection of garbage may leave a snapshot whose parent is gone: it gets another one, in its file. Each file
is written for itself: killed in between it has changed some, and another collection goes on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable
from frazil.format.snapshot import encode_snapshot
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.files import SNAPSHOT
from frazil.repository.catalog.refs_v1 import read_all_refs
from frazil.repository.catalog.snapshots_v1 import reached, read_all_snapshots
from frazil.storage.base import Storage


def whole_v1(storage: Storage, info: RepoInfo) -> RepoInfo:
    """``info`` with all refs read, and all snapshots that have a file.

    One whose parent is gone is a root: nobody leads to it.
    """
    refs = read_all_refs(storage)
    found = read_all_snapshots(storage)
    entries = {id_: entry for id_, entry in found.items() if isinstance(entry, SnapshotEntry)}
    entries |= reached(storage, found, refs.tips)
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


def carry_out(assets: Assets, before: RepoInfo, after: RepoInfo, level: int) -> None:
    """Write what a collection of garbage has changed."""
    storage = assets.storage
    for id_, parent in _relinked(before.table, after.table):
        snapshot = replace(SNAPSHOT.read(storage, id_), parent_id=parent)
        storage.put(SNAPSHOT.key(id_), encode_snapshot(snapshot, level=level))
        assets.forget_snapshot(id_)


def _relinked(before: SnapshotTable, after: SnapshotTable) -> list[tuple[bytes, bytes]]:
    """Snapshots that have another parent than before, with that."""
    rows = before.find_snapshots(after.ids())
    old, new = before.parents()[rows], after.parents()
    changed = np.flatnonzero((new >= 0) & (before.ids()[old] != after.ids()[new]).any(axis=1))
    return [(after.id_of(row), after.id_of(int(new[row]))) for row in changed.tolist()]
