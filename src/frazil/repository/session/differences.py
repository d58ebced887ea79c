"""The differences between two versions."""

from __future__ import annotations

from functools import partial
from itertools import chain

from frazil.changes.compare import compare_versions
from frazil.changes.diff import ChangedPaths, compose_logs
from frazil.errors import ErrorKind, StorageError
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
        return compare_versions(old.base, new.base, old.chunks.ref_table, new.chunks.ref_table)
    groups = list(map(partial(logs_of, context), map(info.snapshots.entry, rows[: rows.index(start)])))
    oldest_first = list(chain.from_iterable(reversed(groups)))
    return compose_logs(oldest_first, old.base, new.base, list(chain.from_iterable(groups)))


def logs_of(context: Context, entry: SnapshotEntry) -> list[TransactionLog]:
    """Return the transaction logs of a snapshot's expired ancestors, oldest first, and its own log.

    Some implementations delete the logs of expired ancestors. Deleted logs are left out.
    """
    logs = []
    for id_ in entry.pruned_ancestor_tx_logs:
        try:
            logs.append(context.assets.transaction_log(id_))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
    with files_of(context, entry.id):
        return [*logs, context.assets.transaction_log(entry.id)]
