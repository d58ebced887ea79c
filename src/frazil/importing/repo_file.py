"""The repo info of an imported repository."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from frazil.format.older.elements import OldRef
from frazil.format.ops_log import OpsEntry, OpsLog, UpdateKind
from frazil.format.repo_info import Availability, RepoInfo, SnapshotEntry, SnapshotTable, Status
from frazil.importing.history import ImportedHistory, ImportedVersion
from frazil.importing.source import Refs
from frazil.repository.catalog.repo_changes import MAIN

_SPEC_VERSION = 2
#: The version before the import. The older formats have no number, and readers know this one.
_BEFORE = 1


def new_info(refs: Refs, history: ImportedHistory, config: dict[str, Any], now: int) -> RepoInfo:
    """Return refs, snapshots, and an ops log with their history, as far as the ref files contain it."""
    versions = history.versions
    entries = [
        SnapshotEntry(
            version.id, version.parent, version.flushed_at, version.summary.message, version.summary.metadata
        )
        for version in versions.values()
    ]
    return RepoInfo(
        _SPEC_VERSION,
        {name: versions[sequence[-1].snapshot].id for name, sequence in refs.branches.items()},
        {name: versions[ref.snapshot].id for name, ref in refs.tags.items()},
        refs.deleted_tags,
        SnapshotTable.of(entries),
        Status(Availability.ONLINE, now),
        {},
        _ops(refs, history, now),
        config=config,
    )


def _ops(refs: Refs, history: ImportedHistory, now: int) -> OpsLog:
    """Return the ops log: newest entry first, with different times, and the creation as the oldest entry.

    An entry has the time of its ref file if this time is later than the snapshot and than the entry before on
    the branch, and is not in the future. Otherwise its time is one microsecond after those.
    """
    entries: list[OpsEntry] = []
    for name, sequence in refs.branches.items():
        steps = [ref for ref in sequence if ref.snapshot in history.versions]
        first = UpdateKind.REPO_INITIALIZED if name == MAIN else UpdateKind.BRANCH_CREATED
        versions = [history.versions[ref.snapshot] for ref in steps]
        times: list[int] = []
        for ref, version in zip(steps, versions, strict=True):
            times.append(max(_time(ref, version, now), times[-1] + 1 if times else 0))
        entries.append(OpsEntry(first, times[0], name=None if name == MAIN else name))
        entries += [_moved(name, *pair, at) for pair, at in zip(pairwise(versions), times[1:], strict=True)]
    entries += [
        OpsEntry(UpdateKind.TAG_CREATED, _time(ref, history.versions[ref.snapshot], now), name=name)
        for name, ref in refs.tags.items()
    ]
    entries.sort(key=lambda entry: (entry.kind is not UpdateKind.REPO_INITIALIZED, entry.updated_at))
    entries.append(OpsEntry(UpdateKind.REPO_MIGRATED, now, versions=(_BEFORE, _SPEC_VERSION)))
    last = -1
    for place, entry in enumerate(entries):
        last = max(entry.updated_at, last + 1)
        entries[place] = replace(entry, updated_at=last)
    return OpsLog.of(entries[::-1])


def _time(ref: OldRef, version: ImportedVersion, now: int) -> int:
    return max(min(ref.committed_at or 0, now), version.flushed_at + 1)


def _moved(branch: str, before: ImportedVersion, after: ImportedVersion, at: int) -> OpsEntry:
    if after.parent == before.id:
        return OpsEntry(UpdateKind.NEW_COMMIT, at, name=branch, new_snapshot=after.id)
    return OpsEntry(UpdateKind.BRANCH_RESET, at, name=branch, previous_snapshot=before.id)
