"""Whether nodes have changed between a commit that was removed from the history and the version after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from frazil.errors import SessionStateError
from frazil.format.columns import U8
from frazil.format.ids import NODE_ID_BYTES, id_from_text, id_matrix, ids_among
from frazil.format.transaction_log import ID_LISTS, TransactionLog
from frazil.repository.paths import absolute
from frazil.repository.session.commit_range import CommitLogs, read_logs
from frazil.repository.session.session import Session


def is_unchanged_since(commit: bytes, after: Session, paths: Sequence[str]) -> bool:
    """Return whether nodes are the same in a version and in a commit that a squash or expiration removed.

    Only the transaction logs of the removed commits tell. If they cannot decide, the nodes count as changed.
    """
    context = after.workspace.context
    end = id_from_text(after.snapshot_id)
    if commit == end:
        return True
    table = context.catalog.repo_info().snapshots
    row = table.find_snapshot(end)
    ids = table.entry(row).logs if row >= 0 else ()
    if commit not in ids:
        return False
    later = CommitLogs(end, ids[ids.index(commit) + 1 :])
    try:
        logs = read_logs(context.assets, [later])
    except SessionStateError:
        return False
    nodes = after.workspace.snapshot.nodes
    named = nodes.find_nodes([absolute(path) for path in paths])
    below = (nodes.ids[nodes.below(absolute(path))] for path in paths)
    those = np.concatenate([nodes.ids[named[named >= 0]], *below])
    return not any(_may_change(log, those) for log in logs)


def _may_change(log: TransactionLog, ids: U8) -> bool:
    """Return whether a commit changed one of some nodes, or moved or deleted any node."""
    if log.moves or len(log.deleted_arrays) or len(log.deleted_groups):
        return True
    chunks = id_matrix(list(log.updated_chunks), NODE_ID_BYTES)
    changed = np.concatenate([*(getattr(log, name) for name in ID_LISTS), chunks])
    return bool(ids_among(changed, ids).any())
