"""Expiration: removes old snapshots from the history.

    kept     the first snapshot, the tip of ``main``, all snapshots that are not older than the limit, and the
             tips of other branches and of tags unless the user wants to delete those
    removed  all other snapshots, even if a ref leads to them

A snapshot whose parent is removed gets the first snapshot as its parent. Only the repo info changes. The
files of the removed snapshots are garbage, which a garbage collection deletes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from frazil.format.columns import U8
from frazil.format.ids import id_matrix
from frazil.format.repo_info import OpsEntry, RepoInfo, UpdateKind
from frazil.maintenance.links import NewParent, collapse
from frazil.maintenance.plan import RecordedChange
from frazil.maintenance.retention.report import RetentionReport, VersionList
from frazil.maintenance.retention.rules import Rules
from frazil.repository.catalog.history_records import with_expiring
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.catalog.repo_update import RepoUpdate


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
