"""The commits between two snapshots, their differences, and the parent that fits a snapshot.

The parent of the snapshot is the version that its transaction log fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from frazil.changes.diff import ChangedPaths, compare_versions, compose_logs, in_both, rows_of
from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError, SessionStateError, StorageError
from frazil.format.columns import Ragged
from frazil.format.ids import (
    NODE_ID_BYTES,
    id_from_text,
    id_keys,
    id_list,
    id_matrix,
    id_to_text,
    manifest_key,
    snapshot_key,
    transaction_key,
)
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.snapshot import Snapshot
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog import repo_changes
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.collection_guard import require_none_running
from frazil.repository.catalog.context import Context, files_of
from frazil.repository.catalog.repo_changes import new_snapshot, require_base, require_snapshot, resolve_id
from frazil.repository.session.workspace import Workspace
from frazil.threads import Purpose, map_bounded


@dataclass(frozen=True, slots=True)
class CommitLogs:
    """A commit with the ids of the transaction logs since the commit before it."""

    snapshot: bytes
    logs: tuple[bytes, ...]


def commits_between(info: RepoInfo, start: bytes, end: bytes) -> list[CommitLogs]:
    """Return the commits after ``start`` up to ``end``, oldest first.

    If ``start`` is not an ancestor of ``end``, because the branch was reset or its tip was amended, the
    result has one item. It has the logs from ``start`` back to the common ancestor, and from there to
    ``end``, without those of expired versions that both have: nothing differs by their changes.

    Raises ``SnapshotNotFoundError`` if ``start`` is not listed and no listed snapshot names it.
    """
    table = info.snapshots
    first = table.find_snapshot(start)
    commits: list[CommitLogs] = []
    rows: list[int] = []
    # In parts, because in a repository of version 1 every ancestor is a file to read.
    for part in table.parts(require_snapshot(info, end)):
        for row, entry in zip(part.tolist(), table.entries(part), strict=True):
            if row == first:
                return commits[::-1]
            logs = entry.logs
            if start in logs:  # the start was expired, or only other refs contain it
                commits.append(CommitLogs(entry.id, logs[logs.index(start) + 1 :]))
                return commits[::-1]
            commits.append(CommitLogs(entry.id, logs))
            rows.append(row)
    require_base(info, start)
    back = table.chain(first)
    left = back[: int(np.argmax(np.isin(back, rows)))]
    ancestor = rows.index(int(back[len(left)]))
    of_start = [id_ for entry in table.entries(left) for id_ in entry.logs]
    of_end = [id_ for commit in commits[:ancestor][::-1] for id_ in commit.logs]
    common = {*of_start} & {*of_end}
    return [CommitLogs(end, tuple(id_ for id_ in (*of_start, *of_end) if id_ not in common))]


def read_logs(assets: Assets, commits: Sequence[CommitLogs]) -> list[TransactionLog]:
    """Return the transaction logs of some commits."""
    ids = [id_ for commit in commits for id_ in commit.logs]
    logs = assets.transaction_logs(ids)
    for id_, log in zip(ids, logs, strict=True):
        if log is None:
            raise SessionStateError(
                f"the transaction log of {id_to_text(id_)} was deleted. Make your changes in a new session",
                ErrorKind.REBASE_TX_LOG_PRUNED,
            )
    return [log for log in logs if log is not None]


def difference(context: Context, info: RepoInfo, before: bytes, after: bytes) -> ChangedPaths:
    """Return the changes from one snapshot to another."""
    start, end = require_snapshot(info, before), require_snapshot(info, after)
    rows = info.snapshots.chain(end).tolist()
    old, new = Workspace(context, before), Workspace(context, after)
    if start == end or start not in rows:
        return compare_versions(old.base, new.base, old.ref_table, new.ref_table)
    newest_first = np.array(rows[: rows.index(start)], np.int64)
    groups = logs_of(context, list(info.snapshots.entries(newest_first)))
    oldest_first = list(chain.from_iterable(reversed(groups)))
    return compose_logs(oldest_first, old.base, new.base, list(chain.from_iterable(groups)))


def logs_of(context: Context, entries: Sequence[SnapshotEntry]) -> list[list[TransactionLog]]:
    """Return for each snapshot the logs of its expired ancestors, oldest first, and its own log."""
    ids = [id_ for entry in entries for id_ in entry.logs]
    logs = iter(context.assets.transaction_logs(ids))
    groups = []
    for entry in entries:
        *earlier, own = islice(logs, len(entry.logs))
        if own is None:
            with files_of(context, entry.id):
                own = context.assets.transaction_log(entry.id)
        groups.append([*filter(None, earlier), own])
    return groups


def relist_snapshot(context: Context, snapshot_id: str, branch: str, parent: str | None) -> bytes:
    """List a snapshot again and return its id. See ``Repository.upkeep.recover``."""
    start = context.catalog.begin_commit()
    info = start.info
    id_ = id_from_text(snapshot_id)
    if info.snapshots.find_snapshot(id_) >= 0:
        raise AlreadyExistsError(
            f"snapshot `{snapshot_id}` is already listed. Create a branch on it", ErrorKind.NOT_ALLOWED
        )
    require_none_running(context.storage)
    snapshot, log = _read_files(context, id_)
    parent_id = None if parent is None else resolve_id(parent, lambda: info)
    if parent_id is None:
        parent_id = _find_parent(context, info, snapshot, log, branch)
    else:
        require_snapshot(info, parent_id)
        if not _has_its_nodes(context.assets.snapshot(parent_id), snapshot, log):
            raise _unknown_parent(snapshot, f"not `{parent}`")
    entry = SnapshotEntry(id_, parent_id, snapshot.flushed_at, snapshot.message, snapshot.metadata)
    exists = branch in info.branches
    change = new_snapshot(entry, branch if exists else None, parent_id)
    start.save_backup(context.storage)
    if context.catalog.finish_commit(change, start) is None:  # a garbage collection ran at the same time
        return relist_snapshot(context, snapshot_id, branch, parent)
    if not exists:
        context.catalog.update_repo_info(repo_changes.create_branch(branch, id_))
    return id_


def _read_files(context: Context, id_: bytes) -> tuple[Snapshot, TransactionLog]:
    """Return the contents of the files of a snapshot that is not listed."""
    try:
        snapshot = context.assets.snapshot(id_)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        raise repo_changes.snapshot_not_found(id_to_text(id_)) from error
    log = context.assets.transaction_log(id_)
    # The snapshot and the log may come from a cache, so their files are checked too.
    own = [snapshot_key(id_), transaction_key(id_)]
    keys = [*own, *map(manifest_key, id_list(snapshot.manifests.ids))]
    heads = map_bounded(Purpose.FILE_CHECKS, context.storage.head, keys)
    if lost := [key for key, info in zip(keys, heads, strict=True) if info is None]:
        raise StorageError(
            f"snapshot `{id_to_text(id_)}` has lost {len(lost)} files, such as `{lost[0]}`",
            ErrorKind.OBJECT_NOT_FOUND,
        )
    return snapshot, log


def _find_parent(
    context: Context, info: RepoInfo, snapshot: Snapshot, log: TransactionLog, branch: str
) -> bytes:
    """Return the parent of a snapshot: the only tip that its log fits. Among several, that of the branch."""
    tips = dict.fromkeys([*info.branches.values(), *info.tags.values()])
    candidates = [tip.id for tip in map(context.assets.snapshot, tips) if _fits(tip, snapshot, log)]
    if len(candidates) > 1:
        candidates = [id_ for id_ in candidates if _has_its_chunks(context, id_, snapshot, log)]
    if len(candidates) > 1 and info.branches.get(branch) in candidates:
        return info.branches[branch]
    if len(candidates) != 1:
        raise _unknown_parent(snapshot, "several tips" if candidates else "no tip")
    return candidates[0]


def fitting_parents(context: Context, candidates: Iterable[bytes], id_: bytes) -> list[bytes]:
    """Return the versions among ``candidates`` whose difference from a snapshot its log contains."""
    snapshot, log = _read_files(context, id_)
    parents = [each.id for each in map(context.assets.snapshot, candidates) if _fits(each, snapshot, log)]
    return [each for each in parents if _has_its_chunks(context, each, snapshot, log)]


def _unknown_parent(snapshot: Snapshot, fits: str) -> InvalidInputError:
    return InvalidInputError(
        f"the parent of snapshot `{id_to_text(snapshot.id)}` is not known: its transaction log fits {fits}. "
        "Pass the id of the parent snapshot as `parent`",
        ErrorKind.INVALID_SNAPSHOT_ID,
    )


def _fits(before: Snapshot, after: Snapshot, log: TransactionLog) -> bool:
    """Return whether the log contains all differences between two snapshots."""
    if before.flushed_at >= after.flushed_at or not _has_its_nodes(before, after, log):
        return False
    chunks = id_matrix(list(log.updated_chunks), NODE_ID_BYTES)
    touched = np.concatenate([log.updated_groups, log.updated_arrays, chunks])
    both = np.intersect1d(id_keys(before.nodes.ids), id_keys(after.nodes.ids))
    same = np.setdiff1d(both, id_keys(touched)).view(np.uint8).reshape(-1, NODE_ID_BYTES)
    old, new = (each.nodes.select_nodes(rows_of(each.nodes, same)) for each in (before, after))
    return _equal(old.user_data, new.user_data) and _equal(old.manifests, new.manifests)


def _has_its_chunks(context: Context, before: bytes, after: Snapshot, log: TransactionLog) -> bool:
    """Return whether the log contains all chunks that differ. Reads manifests."""
    old, new = Workspace(context, before), Workspace(context, after.id)
    changed = compare_versions(old.base, new.base, old.ref_table, new.ref_table).updated_chunks
    for path, chunks in changed.items():
        if not in_both(chunks, log.chunks_of(new.require_node(path).id, chunks.shape[1])).all():
            return False
    return True


def _has_its_nodes(before: Snapshot, after: Snapshot, log: TransactionLog) -> bool:
    """Return whether the created and deleted nodes are exactly those of the log."""
    old, new = id_keys(before.nodes.ids), id_keys(after.nodes.ids)
    created = id_keys(np.concatenate([log.new_groups, log.new_arrays]))
    deleted = id_keys(np.concatenate([log.deleted_groups, log.deleted_arrays]))
    return np.array_equal(np.setdiff1d(new, old), np.unique(created)) and np.array_equal(
        np.setdiff1d(old, new), np.unique(deleted)
    )


def _equal(one: Ragged, other: Ragged) -> bool:
    return np.array_equal(one.lengths, other.lengths) and np.array_equal(
        one.compact().values.view(np.uint8), other.compact().values.view(np.uint8)
    )
