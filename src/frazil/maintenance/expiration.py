"""Expiration and squash: they remove versions from a history, and only change the repo info.

Of the versions in between, those that another ref needs stay in the repository, but not in this history. In
spec version 1, refs and snapshot files define the history. They are processed one by one. If the process dies
in between, a part is expired, and another run continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import I64, U8
from frazil.format.ids import id_matrix, id_to_text, snapshot_key, transaction_key
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, SnapshotTable, UpdateKind
from frazil.format.snapshot import Snapshot, encode_snapshot
from frazil.format.transaction_log import encode_transaction_log
from frazil.maintenance.links import NewParent, collapse, relink
from frazil.maintenance.plan import RecordedChange
from frazil.maintenance.retention import (
    Decision,
    RetentionReport,
    RetentionRules,
    VersionList,
    add_held,
    add_refs,
    decision,
)
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files_v1 import SnapshotsV1
from frazil.repository.catalog.history_records import with_amended, with_expiring
from frazil.repository.catalog.repo_changes import (
    MAIN,
    branch_tip,
    delete_branch,
    delete_tag,
    require_online,
    require_snapshot,
)
from frazil.repository.catalog.repo_update import RepoUpdate
from frazil.repository.catalog.version_info import HOLD_TAG
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id
from frazil.survey.survey import Progress


def expire(info: RepoInfo, older_than: int, deletes_branches: bool, deletes_tags: bool, held: U8) -> Decision:
    """Return the repo info after an expiration, and the report. A pure function.

    ``held`` are the ids of the detached snapshots with a lease. They and their parents stay.

    The first version stays, and the tip of ``main``, and the tips of other branches and of tags unless the
    user wants to delete those. Of the others, those that are older than the limit are removed, even if a ref
    leads to them. A version whose parent is removed gets the first version as its parent.
    """
    table = info.table
    is_old = table.flushed_at() < older_than
    old = is_old & (table.parents() >= 0)
    branches = _left(info.branches, info, old) if deletes_branches else info.branches
    if MAIN in info.branches:
        branches = {**branches, MAIN: info.branches[MAIN]}
    tags = _left(info.tags, info, old) if deletes_tags else info.tags
    # Those of hold-backs stay: no other version may have the data.
    tags = {**{tag: id_ for tag, id_ in info.tags.items() if tag.startswith(HOLD_TAG)}, **tags}
    stays, removed = RetentionRules(len(table)), RetentionRules(len(table))
    stays.add("first version", table.parents() < 0)
    add_refs(stays, info, "tip of branch", branches)
    add_refs(stays, info, "tag", tags)
    add_held(stays, info, held)
    stays.add("not older than the limit", ~is_old)
    removed.add("older than the limit", is_old)
    return decision(replace(info, branches=branches, tags=tags), info, stays, removed, NewParent.ROOT)


def _left(refs: Mapping[str, bytes], info: RepoInfo, old: np.ndarray) -> dict[str, bytes]:
    """Return the refs whose tips are not old."""
    rows = info.snapshots.find_snapshots(id_matrix(list(refs.values())))
    return {name: id_ for (name, id_), flag in zip(refs.items(), old[rows].tolist(), strict=True) if not flag}


def expire_v1(
    context: Context, older_than: int, deletes_branches: bool, deletes_tags: bool, progress: Progress
) -> U8:
    """Expire snapshots file by file, and return the ids of the removed snapshots. A step is one ref."""
    info = context.catalog.repo_info()
    snapshots = info.snapshots
    assert isinstance(snapshots, SnapshotsV1)
    progress.expect(len(info.tags) + len(info.branches))
    ids: set[bytes] = set()
    for refs, deletes, remove in (
        (info.tags, deletes_tags, delete_tag),
        (info.branches, deletes_branches, delete_branch),
    ):
        for name in sorted(refs):
            rows = snapshots.chain(require_snapshot(info, refs[name]))
            old = np.array([entry.flushed_at for entry in snapshots.entries(rows)]) < older_than
            old[-1] = False
            if deletes and old[0] and not (refs is info.branches and name == MAIN):
                ids.update(map(snapshots.id_of, rows[:-1].tolist()))
                context.catalog.update_repo_info(remove(name))
            else:
                ids |= _expire_line(context, snapshots, rows, old)
            progress.advance()
    return id_matrix(sorted(ids))


def _expire_line(context: Context, snapshots: SnapshotsV1, rows: I64, old: NDArray[np.bool_]) -> set[bytes]:
    """Remove the old snapshots of a ref that stays. Return their ids, and that of an old tip, which stays."""
    ids = {snapshots.id_of(int(rows[0]))} if old[0] else set()
    old[0] = False
    if old.any():
        stays = int(np.argmax(old)) - 1
        ids.update(map(snapshots.id_of, rows[stays + 1 : -1].tolist()))
        id_, parent = map(snapshots.id_of, rows[[stays, -1]].tolist())
        snapshot = replace(context.assets.snapshot(id_), parent_id=parent)
        level = context.settings.compression_level
        context.storage.put(snapshot_key(id_), encode_snapshot(snapshot, level=level))
        context.assets.forget_snapshot(id_)
        snapshots.reparent(id_, parent)
    return ids


# Squash


@dataclass(frozen=True, slots=True)
class SquashRange:
    """The versions of a branch after ``since``, up to ``until``, as ids. ``until`` None is the tip.

    With a message, a new version replaces the tip. ``metadata`` are added to those of the tip.
    """

    branch: str
    since: bytes
    until: bytes | None
    message: str | None
    metadata: Mapping[str, Any]


def squash(context: Context, span: SquashRange) -> bytes:
    """Remove the versions between two versions of a branch, in one update of the repository."""
    if span.message is None:
        change = _squash_change(span)
        return change.result(context.catalog.update_repo_info(change))
    while (id_ := _attempt(context, span, span.message)) is None:
        pass  # a garbage collection ran at the same time, and may have deleted the new files
    return id_


def _attempt(context: Context, span: SquashRange, message: str) -> bytes | None:
    """Store a new tip, and make it visible. Return None if a garbage collection ran in between."""
    start = context.catalog.begin_commit()
    require_online(start.info)
    rows = _rows_of(start.info, span)
    table = start.info.table
    tip = start.info.table.entry(int(rows[0]))
    if start.info.branches[span.branch] != tip.id:
        raise _refusal(
            f"until must be the tip of the branch `{span.branch}` if a message is given, got "
            f"`{id_to_text(tip.id)}`. Leave out until or message"
        )
    start.save_backup(context.storage)
    new = replace(
        context.assets.snapshot(tip.id),
        id=new_object_id(),
        flushed_at=max(now_us(), tip.flushed_at + 1),
        message=message,
        metadata={**tip.metadata, **span.metadata},
        parent_id=table.id_of(int(rows[-1])),
    )
    # Its transaction log has the changes of the replaced snapshot.
    level = context.settings.compression_level
    log = replace(context.assets.transaction_log(tip.id), id=new.id)
    encoded = encode_transaction_log(log, level=level, spec_version=context.spec_version)
    context.storage.put(transaction_key(new.id), encoded)
    context.storage.put(snapshot_key(new.id), encode_snapshot(new, level=level))
    if context.catalog.finish_commit(_squash_change(replace(span, until=tip.id), new), start) is None:
        return None
    return new.id


def _refusal(problem: str) -> InvalidInputError:
    """Return the error for a range that cannot be squashed."""
    return InvalidInputError(problem, ErrorKind.NOT_ALLOWED)


def _rows_of(info: RepoInfo, span: SquashRange) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the rows from the later version to the earlier one, both included."""
    history = info.table.chain(require_snapshot(info, branch_tip(info, span.branch)))
    ends = [require_snapshot(info, span.since)]
    ends.append(int(history[0]) if span.until is None else require_snapshot(info, span.until))
    places = [np.flatnonzero(history == row) for row in ends]
    for name, row, place in zip(("since", "until"), ends, places, strict=True):
        if not len(place):
            raise _refusal(
                f"{name} must be a version in the history of the branch `{span.branch}`, got "
                f"`{id_to_text(info.table.id_of(row))}`. Repository.ancestry lists its versions"
            )
    since, until = (int(place[0]) for place in places)
    if until >= since:
        raise _refusal(
            f"since must be older than until, got `{id_to_text(info.table.id_of(ends[0]))}`. Exchange them"
        )
    return history[until : since + 1]


def squash_report(info: RepoInfo, span: SquashRange) -> RetentionReport:
    """Return the versions that leave the history of the branch, and those that stay in it."""
    require_online(info)
    table, rows = info.table, _rows_of(info, span)
    leaving = rows[1:-1] if span.message is None else rows[:-1]
    removed, stays = RetentionRules(len(table)), RetentionRules(len(table))
    removed.add(f"squashed into `{id_to_text(table.id_of(int(rows[0])))}`", leaving)
    history = table.chain(require_snapshot(info, branch_tip(info, span.branch)))
    left = history[~np.isin(history, leaving)]
    stays.add(f"in the history of `{span.branch}`", left)
    return RetentionReport(
        VersionList(table, leaving, tuple(removed)), VersionList(table, left, tuple(stays))
    )


def _squash_change(span: SquashRange, new: Snapshot | None = None) -> RecordedChange[bytes]:
    """Return the repo change of a squash. ``new`` replaces the tip. Its result is the later version."""

    def change(info: RepoInfo, now: int) -> tuple[RepoUpdate, bytes]:
        rows = _rows_of(info, span)
        end, since = int(rows[0]), int(rows[-1])
        old = info.table.id_of(end)
        if new is None:
            after = replace(info, snapshots=relink(info.table, end, since))
            left = _without_unused(info, after, rows[1:-1])
            return RepoUpdate(left, OpsEntry(UpdateKind.EXPIRATION_RAN, now)), old
        if info.branches[span.branch] != old:
            raise _refusal(
                f"until must be the tip of the branch `{span.branch}`, but another writer has committed "
                "since. Squash again"
            )
        # The repo info after ``new`` replaced the tip. Both are listed.
        replaced = info.table.entry(end)
        listed = SnapshotEntry(
            new.id,
            replaced.parent,
            new.flushed_at,
            new.message,
            new.metadata,
            replaced.pruned_ancestor_tx_logs,
        )
        branches = {**info.branches, span.branch: new.id}
        before = replace(info, snapshots=info.table.added(listed), branches=branches)
        before = replace(before, metadata=with_amended(before, old, new.id, span.branch))
        table = before.table
        tip, parent = map(table.find_snapshot, (new.id, info.table.id_of(since)))
        after = replace(before, snapshots=relink(table, tip, parent))
        unused = table.find_snapshots(info.table.ids()[rows[:-1]])
        entry = OpsEntry(
            UpdateKind.COMMIT_AMENDED, now, name=span.branch, previous_snapshot=old, new_snapshot=new.id
        )
        return RepoUpdate(_without_unused(before, after, unused), entry), old

    return RecordedChange(change)


def _without_unused(before: RepoInfo, after: RepoInfo, rows: np.ndarray[Any, np.dtype[np.int64]]) -> RepoInfo:
    """Return ``after`` without those of the rows that no branch and no tag needs."""
    table: SnapshotTable = after.table
    refs = id_matrix([*after.branches.values(), *after.tags.values()])
    keep = np.ones(len(table), bool)
    keep[rows] = table.reachable(table.find_snapshots(refs))[rows]
    snapshots = collapse(table, keep, NewParent.NEXT)
    metadata = with_expiring(replace(before, metadata=after.metadata), keep, snapshots)
    return replace(after, metadata=metadata, snapshots=snapshots)
