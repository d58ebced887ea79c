"""Comparison of a transaction log with the snapshots before and after it: nodes and moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import ne
from typing import Any

import numpy as np

from frazil.format.ids import INITIAL_SNAPSHOT_ID, NODE_ID_BYTES, id_keys, id_list
from frazil.format.keys import transaction_key
from frazil.format.nodes import NodeTable
from frazil.format.snapshot import Snapshot
from frazil.format.transaction_log import Move, TransactionLog
from frazil.maintenance.verification.findings import Finding


def log_findings(
    id_: bytes, parent: Snapshot | None, snapshot: Snapshot, log: TransactionLog
) -> Iterator[Finding]:
    """Yield the contradictions between the log of a snapshot and the two snapshots.

    ``parent`` is None if it is not known. Then only the later snapshot is compared.
    """
    key = transaction_key(id_)
    before = NodeTable.from_nodes([]) if id_ == INITIAL_SNAPSHOT_ID else None
    # Expiration in spec version 1 changes parents and leaves no trace.
    if parent is not None and snapshot.spec_version > 1:
        before = parent.nodes
    differences = [
        f"{what}: {expected} by the snapshots, {logged} in the log"
        for what, expected, logged in _differences(before, snapshot.nodes, log)
    ]
    if differences:
        yield Finding("log-nodes", key, detail="; ".join(differences))
    if before is not None and (log.moves or parent is not None):
        yield from _move_findings(key, _paths_of(before), _paths_of(snapshot.nodes), log.moves)


def _differences(
    before: NodeTable | None, after: NodeTable, log: TransactionLog
) -> Iterator[tuple[str, int, int]]:
    """Yield contradictions between a log and the two snapshots, with the number of nodes in each.

    Without ``before``, only the later snapshot is compared. A node that is written again with the same
    content is updated only in the log. The reference joins the logs of a commit and of its amendment.
    Then a node that the commit created and the amendment deleted is in both lists of the log, and in
    neither snapshot.
    """
    passing: list[Any] = []
    for kind, arrays in (("arrays", True), ("groups", False)):
        after_keys = id_keys(after.ids[after.is_array == arrays])
        new, deleted, updated = (
            id_keys(getattr(log, f"{name}_{kind}")) for name in ("new", "deleted", "updated")
        )
        passing.append(np.intersect1d(new, deleted))
        new, deleted = np.setdiff1d(new, passing[-1]), np.setdiff1d(deleted, passing[-1])
        if before is None:
            if not np.isin(new, after_keys).all():
                yield f"new {kind}", int(np.isin(new, after_keys).sum()), len(new)
            continue
        before_keys = id_keys(before.ids[before.is_array == arrays])
        for name, expected, logged in (
            ("new", np.setdiff1d(after_keys, before_keys), new),
            ("deleted", np.setdiff1d(before_keys, after_keys), deleted),
        ):
            if not np.array_equal(expected, logged):
                yield f"{name} {kind}", len(expected), len(logged)
        changed = _changed(before, after, arrays=arrays)
        if not np.isin(changed, updated).all():
            yield f"updated {kind}", len(changed), len(updated)
    if before is not None:
        ids = id_keys(np.frombuffer(b"".join(log.updated_chunks), np.uint8).reshape(-1, NODE_ID_BYTES))
        arrays_of = [id_keys(table.ids[table.is_array]) for table in (before, after)]
        is_array = np.isin(ids, np.concatenate([*arrays_of, *passing]))
        if not is_array.all():
            yield "arrays with updated chunks", int(is_array.sum()), len(ids)


def _changed(before: NodeTable, after: NodeTable, *, arrays: bool) -> Any:
    """Return ids of nodes that are in both snapshots with different metadata."""
    keys, old = id_keys(after.ids), id_keys(before.ids)
    _, rows, old_rows = np.intersect1d(keys, old, assume_unique=True, return_indices=True)
    some = after.is_array[rows] == arrays
    rows, old_rows = rows[some], old_rows[some]
    documents = after.user_data.take(rows).blobs(), before.user_data.take(old_rows).blobs()
    return keys[rows[np.fromiter(map(ne, *documents), bool, len(rows))]]


def _paths_of(nodes: NodeTable) -> dict[bytes, str]:
    return dict(zip(id_list(nodes.ids), nodes.paths_list(), strict=True))


def _move_findings(
    key: str, before: Mapping[bytes, str], after: Mapping[bytes, str], moves: tuple[Move, ...]
) -> Iterator[Finding]:
    """Yield contradictions between the moves of a log and the paths of the two snapshots."""
    moved = {move.node_id: move for move in moves}
    # A node that an amendment has deleted is in the snapshot before, at most.
    wrong = [
        move
        for move in moves
        if before.get(move.node_id, move.source) != move.source
        or after.get(move.node_id, move.target) != move.target
    ]
    if wrong:
        detail = f"the move from {wrong[0].source} to {wrong[0].target} is not that of the snapshots"
        yield Finding("moves-paths", key, wrong[0].node_id, detail=detail)
    silent = [
        (before[id_], path)
        for id_, path in after.items()
        if id_ in before and before[id_] != path and id_ not in moved
    ]
    if silent:
        detail = f"the log has no move from {silent[0][0]} to {silent[0][1]}"
        yield Finding("moves-complete", key, detail=detail)
    if not moves:
        return
    groups = set(after.values())
    lost = [
        move
        for move in moves
        if move.node_id in after and (move.target.rpartition("/")[0] or "/") not in groups
    ]
    if lost:
        yield Finding("moves-parent", key, lost[0].node_id, detail=f"{lost[0].target} has no parent group")
    occupied = set(before.values())
    sources = {move.source for move in moves}
    lost = [move for move in moves if move.target in occupied - sources]
    if lost:
        detail = f"{lost[0].target} was the path of another node, which has no move"
        yield Finding("moves-overwrite", key, lost[0].node_id, detail=detail)
