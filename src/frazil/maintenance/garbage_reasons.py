"""The files that a dry run of a collection lists, each with the reason why it is garbage.

    expired        it belongs to a version that an expiration, a squash or an amend has removed from a history
    unreachable    it belongs to a version that the repository lists, but no branch and no tag leads to it
    unreferenced   it belongs to no version: a session or commit that failed, or a version removed long ago
    old-backup     a backup that neither the ops log nor a recovery needs

To find the reasons, the dry run also reads snapshots and manifests that are garbage. If one of them cannot be
read, the files that it refers to count as unreferenced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import IcechunkError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.backups import Backups
from frazil.maintenance.digests import Marks
from frazil.maintenance.garbage_files import GarbageFiles, GarbageFolder, GarbageReason
from frazil.maintenance.listing import Listed, among
from frazil.maintenance.walk import Walk
from frazil.maintenance.walk_columns import each_once
from frazil.storage.base import Storage

_CODES: Final = {reason: number for number, reason in enumerate(GarbageReason)}


def garbage_table(
    storage: Storage, info: RepoInfo, phases: Mapping[str, Listed], backups: Backups, walk: Walk
) -> GarbageFiles:
    """Return the garbage as a table, with reasons."""
    snapshots, manifests, chunks = (phases[name] for name in ("snapshots", "manifests", "chunks"))
    reasons = {
        name: _reasons_of_versions(info, phases[name].ids) for name in ("snapshots", "transaction_logs")
    }
    reasons |= {name: _unreferenced(len(phases[name])) for name in ("manifests", "chunks")}
    for reason in (GarbageReason.UNREACHABLE, GarbageReason.EXPIRED):
        dead = snapshots.ids[reasons["snapshots"] == _CODES[reason]]
        try:
            files = each_once(
                [ManifestFiles.empty(), *(part.files for part in walk.snapshots(storage, dead[:0], dead))]
            )
            rows = among(manifests.ids, files.ids)
            reasons["manifests"][rows] = _CODES[reason]
            marks = Marks(chunks.ids)
            for part in walk.chunks(storage, files.select_manifests(among(files.ids, manifests.ids))):
                marks.mark(part.digests.compact().values)
            reasons["chunks"][marks.rows()] = _CODES[reason]
        except IcechunkError:
            continue
    folders = [GarbageFolder(name, phases[name], reasons[name]) for name in phases]
    of_backups = np.full(len(backups), _CODES[GarbageReason.OLD_BACKUP], np.uint8)
    return GarbageFiles([*folders, GarbageFolder("backups", backups, of_backups)])


def _unreferenced(count: int) -> NDArray[np.uint8]:
    return np.full(count, _CODES[GarbageReason.UNREFERENCED], np.uint8)


def _reasons_of_versions(info: RepoInfo, ids: U8) -> NDArray[np.uint8]:
    """Return the reasons for snapshots or transaction logs, by their ids."""
    out = _unreferenced(len(ids))
    for part in _removed(info):
        out[among(ids, part)] = _CODES[GarbageReason.EXPIRED]
    out[among(ids, info.table.ids())] = _CODES[GarbageReason.UNREACHABLE]
    return out


def _removed(info: RepoInfo) -> Sequence[U8]:
    """Return the ids of versions that were committed, by the lists of removed versions and by the ops log."""
    pruned = np.ascontiguousarray(info.table.pruned().compact().values).view(np.uint8)
    return pruned.reshape(-1, OBJECT_ID_BYTES), info.ops.new, info.ops.previous
