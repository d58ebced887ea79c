"""The differences between two versions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

import numpy as np

from frazil.changes.compare import compare_versions
from frazil.changes.diff import ChangedPaths, compose_logs
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.expired_versions import files_of
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.session.workspace import Workspace


def difference(context: Context, info: RepoInfo, before: bytes, after: bytes) -> ChangedPaths:
    """Return the changes from one snapshot to another.

    If ``before`` is an ancestor of ``after``, the transaction logs between them have the changes. Other
    snapshots, such as the tips of two branches, are compared node by node and reference by reference.
    """
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
    """Return for each snapshot the transaction logs of its expired ancestors, oldest first, and its own log.

    Some implementations delete the logs of expired ancestors. Deleted logs are left out. Raises
    ``SnapshotNotFoundError`` if a snapshot was expired or dropped.
    """
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
