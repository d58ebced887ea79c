"""What each version of a history changed, in one pass from the newest version to the first.

A transaction log has the ids of the nodes that a commit changed. Their paths come from the snapshot of the
newest version. An older snapshot is only read where a commit has moved or deleted nodes, because other
commits leave the paths as they are. So a history of n commits costs n logs, and not 2 n snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import batched, chain
from typing import Final

from frazil.changes.diff import ChangedPaths, compose_named, paths_by_id
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.expired_versions import files_of
from frazil.repository.catalog.history import ancestry
from frazil.repository.session.differences import logs_of

#: The most logs that are in memory at the same time.
_BATCH: Final = 256

type Names = Mapping[bytes, str]


def version_changes(
    context: Context, info: RepoInfo, tip: bytes
) -> Iterator[tuple[SnapshotEntry, ChangedPaths | None]]:
    """Yield a version and its ancestors, newest first, each with its changes since its parent.

    The changes of the first version are None. They are those that ``Repository.diff`` returns for the parent
    and the version.
    """
    names: Names | None = None
    parts = chain.from_iterable(batched(part, _BATCH) for part in ancestry(info, tip))
    for part in parts:
        changed = [entry for entry in part if entry.parent is not None]
        logs = dict(zip((entry.id for entry in changed), logs_of(context, changed), strict=True))
        for entry in part:
            if entry.parent is None:
                yield entry, None
                continue
            new = _names(context, entry.id) if names is None else names
            own = logs[entry.id]
            names = new if all(map(_leaves_paths, own)) else _names(context, entry.parent)
            yield entry, compose_named(own, names, new, own)


def _leaves_paths(log: TransactionLog) -> bool:
    """Return whether all nodes of the earlier version have the same paths in the later version."""
    return not (log.moves or len(log.deleted_groups) or len(log.deleted_arrays))


def _names(context: Context, id_: bytes) -> Names:
    with files_of(context, id_):
        return paths_by_id(context.assets.snapshot(id_).nodes)
