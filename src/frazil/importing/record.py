"""The repo info of an imported repository."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from frazil.format.ops_log import OpsEntry, OpsLog, UpdateKind
from frazil.format.repo_info import Availability, RepoInfo, SnapshotEntry, SnapshotTable, Status
from frazil.importing.history import History, Version
from frazil.importing.source import Refs
from frazil.repository.mutations import MAIN

_SPEC_VERSION = 2
#: What readers know for "before": there was never a number for the older formats.
_BEFORE = 1


def new_info(refs: Refs, history: History, config: dict[str, Any], now: int) -> RepoInfo:
    """Refs, snapshots, and an ops log that tells how they came to be, as far as the ref files do."""
    versions = history.versions
    entries = [
        SnapshotEntry(
            version.id, version.parent, version.flushed_at, version.summary.message, version.summary.metadata
        )
        for version in versions.values()
    ]
    return RepoInfo(
        _SPEC_VERSION,
        {name: versions[sequence[-1]].id for name, sequence in refs.branches.items()},
        {name: versions[id_].id for name, id_ in refs.tags.items()},
        refs.deleted_tags,
        SnapshotTable.of(entries),
        Status(Availability.ONLINE, now),
        {},
        _ops(refs, history, now),
        config=config,
    )


def _ops(refs: Refs, history: History, now: int) -> OpsLog:
    """Newest first; times are those of the snapshots, a microsecond later, and rise strictly."""
    told: list[OpsEntry] = []
    for name, sequence in refs.branches.items():
        known = [history.versions[id_] for id_ in sequence if id_ in history.versions]
        first = UpdateKind.REPO_INITIALIZED if name == MAIN else UpdateKind.BRANCH_CREATED
        told.append(OpsEntry(first, known[0].flushed_at + 1, name=None if name == MAIN else name))
        told += [_moved(name, before, after) for before, after in pairwise(known)]
    told += [
        OpsEntry(UpdateKind.TAG_CREATED, history.versions[id_].flushed_at + 1, name=name)
        for name, id_ in refs.tags.items()
    ]
    told.sort(key=lambda entry: (entry.updated_at, entry.kind is not UpdateKind.REPO_INITIALIZED))
    told.append(OpsEntry(UpdateKind.REPO_MIGRATED, now, versions=(_BEFORE, _SPEC_VERSION)))
    last = -1
    for place, entry in enumerate(told):
        last = max(entry.updated_at, last + 1)
        told[place] = replace(entry, updated_at=last)
    return OpsLog.of(told[::-1])


def _moved(branch: str, before: Version, after: Version) -> OpsEntry:
    if after.parent == before.id:
        return OpsEntry(UpdateKind.NEW_COMMIT, after.flushed_at + 1, name=branch, new_snapshot=after.id)
    return OpsEntry(UpdateKind.BRANCH_RESET, after.flushed_at + 1, name=branch, previous_snapshot=before.id)
