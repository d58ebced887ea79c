"""The ops log of an upgraded repository, reconstructed from the refs and snapshots of spec version 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from frazil.format.repo_info import OpsEntry, SnapshotEntry, UpdateKind
from frazil.repository.catalog.refs_v1 import AllRefs
from frazil.repository.catalog.repo_changes import MAIN

#: How many microseconds after its snapshot a ref counts as created, or as deleted.
_CREATED, _DELETED = 1_000, 2_000


def history_of(snapshots: Mapping[bytes, SnapshotEntry], root: bytes, refs: AllRefs) -> list[OpsEntry]:
    """Return operations that can have led to these refs, oldest first, all at different times.

    A snapshot counts as a commit to ``main`` if ``main`` contains it, otherwise as a commit to the first
    branch by name that contains it. A branch or a tag counts as created one millisecond after its snapshot,
    and a tag as deleted one millisecond after its creation. Operations on snapshots that are gone count as
    operations on the first snapshot.
    """
    events: list[OpsEntry] = [OpsEntry(UpdateKind.REPO_INITIALIZED, snapshots[root].flushed_at)]
    committed = {root}
    others = sorted(set(refs.branches) - {MAIN})
    for name in (MAIN, *others):
        id_: bytes | None = refs.branches[name]
        while id_ is not None and id_ not in committed:
            committed.add(id_)
            time = snapshots[id_].flushed_at
            events.append(OpsEntry(UpdateKind.NEW_COMMIT, time, name=name, new_snapshot=id_))
            id_ = snapshots[id_].parent
    created: list[tuple[bytes | None, OpsEntry]] = [
        (refs.branches[name], OpsEntry(UpdateKind.BRANCH_CREATED, _CREATED, name=name)) for name in others
    ]
    for tags in (refs.tags, refs.deleted_tags):
        created += [
            (tags[name], OpsEntry(UpdateKind.TAG_CREATED, _CREATED, name=name)) for name in sorted(tags)
        ]
    deleted = [
        (at, OpsEntry(UpdateKind.TAG_DELETED, _DELETED, name=name, previous_snapshot=at or root))
        for name, at in sorted(refs.deleted_tags.items())
    ]
    for group in (created, deleted):
        count: dict[bytes, int] = {}
        for at, entry in group:
            where = at if at in snapshots else root
            assert where is not None
            number = count.get(where, 0)
            count[where] = number + 1
            time = snapshots[where].flushed_at + entry.updated_at + number
            events.append(replace(entry, updated_at=time))
    events.sort(key=lambda entry: entry.updated_at)
    return _at_different_times(events)


def _at_different_times(events: list[OpsEntry]) -> list[OpsEntry]:
    """Return the same events, each at least one microsecond after the previous one."""
    out: list[OpsEntry] = []
    last = -1
    for entry in events:
        last = max(entry.updated_at, last + 1)
        out.append(entry if entry.updated_at == last else replace(entry, updated_at=last))
    return out
