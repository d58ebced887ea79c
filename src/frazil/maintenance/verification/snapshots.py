"""Checks of snapshots and transaction logs: readable, by the rules, and consistent with each other.

A log is compared with the snapshots before and after it: nodes, moves, and the chunks in which their
manifests differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import ne
from typing import Any, Final

import numpy as np

from frazil.errors import IcechunkError
from frazil.format.columns import U32
from frazil.format.ids import (
    INITIAL_SNAPSHOT_ID,
    NODE_ID_BYTES,
    id_keys,
    id_list,
    snapshot_key,
    transaction_key,
)
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.nodes import NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot, SnapshotEntry
from frazil.format.transaction_log import Move, TransactionLog
from frazil.maintenance.verification.files import check_kind, noted, read_finding
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.ancestry import is_of_compaction
from frazil.repository.catalog.assets import SNAPSHOT, TRANSACTION_LOG, Assets, CacheLimits
from frazil.repository.catalog.context import Context
from frazil.storage.base import Storage
from frazil.storage.checks import is_outage, skip_damage
from frazil.survey.columns import ManifestUses

#: The parent is mostly the snapshot that was checked before.
_PARENTS: Final = CacheLimits(snapshot_nodes=50_000, chunk_refs=0)
#: The manifests of a version are those of the next version's parent. Several threads have a cache each.
_MANIFESTS: Final = CacheLimits(snapshot_nodes=0, chunk_refs=1_000_000)


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot to check.

    parent        the snapshot that its transaction log compares it with; None if it is not known
    pruned        expired snapshots between the two, whose logs may exist. Another version can have them too,
                  and then only one of both lists them here
    is_needed     whether a branch or tag leads to it. Other snapshots may have lost files in a garbage
                  collection
    is_root       whether it may have no parent
    spec_version  that of the repository
    entry         its summary in the repo info, or None
    """

    id: bytes
    parent: bytes | None
    pruned: tuple[bytes, ...]
    is_needed: bool
    is_root: bool = True
    spec_version: int = 2
    entry: SnapshotEntry | None = None


@dataclass(frozen=True, slots=True)
class ChangedArray:
    """An array of two snapshots with different manifests: those of the earlier only, of the later only."""

    node: bytes
    ndim: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LoggedChanges:
    """A snapshot whose transaction log must have the changed chunks of some arrays."""

    id: bytes
    arrays: tuple[ChangedArray, ...] = ()
    is_compaction: bool = False


@dataclass(slots=True, eq=False)
class CheckedVersion:
    """The findings of a snapshot, its manifests, and the arrays that use them."""

    id: bytes
    findings: list[Finding] = field(default_factory=list)
    manifests: ManifestFiles = field(default_factory=ManifestFiles.empty)
    uses: ManifestUses = field(default_factory=lambda: ManifestUses.union([]))
    changes: LoggedChanges = LoggedChanges(b"")


def check_versions(context: Context, item: tuple[None, Sequence[Version]]) -> Iterator[CheckedVersion]:
    """Check snapshots and their logs, best in the order of their history."""
    storage = context.storage
    assets = Assets(storage, _PARENTS)
    last: Snapshot | None = None
    for version in item[1]:
        checked = CheckedVersion(version.id)
        with noted(checked.findings, snapshot_key(version.id)):
            for id_ in version.pruned:
                _check_log(storage, replace(version, id=id_), checked, may_be_gone=True)
            parent = last if last is not None and last.id == version.parent else None
            with skip_damage():  # there is a finding for a parent that cannot be read
                if parent is None and version.parent is not None:
                    parent = assets.snapshot(version.parent)
            last = _check_version(storage, version, parent, checked) or last
        yield checked


def _check_version(
    storage: Storage, version: Version, parent: Snapshot | None, checked: CheckedVersion
) -> Snapshot | None:
    file = check_kind(storage, SNAPSHOT, version.id, version.spec_version)
    if version.is_needed or not file.is_missing:
        checked.findings += file.findings
    snapshot = file.value
    if snapshot is None:
        _check_log(storage, version, checked, may_be_gone=not version.is_needed)
        return None
    # In spec version 1 the first snapshot has no log, and old writers gave it a random id.
    first = snapshot.spec_version < 2 and snapshot.parent_id is None
    if first and not version.is_root and version.id != INITIAL_SNAPSHOT_ID:
        detail = "parent_id must be present in spec version 1"
        checked.findings.append(Finding("snapshot-parent-v1", snapshot_key(version.id), detail=detail))
    log = _check_log(storage, version, checked, may_be_gone=first or not version.is_needed)
    if log is not None:
        checked.findings += log_findings(version.id, parent, snapshot, log)
        if parent is not None and snapshot.spec_version > 1:
            arrays = tuple(_changed_arrays(parent.nodes, snapshot.nodes))
            is_compaction = bool(arrays) and is_of_compaction(snapshot.metadata)
            checked.changes = LoggedChanges(version.id, arrays, is_compaction)
    entry = version.entry
    names = ("flushed_at", "message", "metadata")
    wrong = [name for name in names if entry and getattr(entry, name) != getattr(snapshot, name)]
    if wrong:
        detail = f"the file `repo` has another {' and '.join(wrong)} than the snapshot"
        checked.findings.append(Finding("snapshot-summary", snapshot_key(version.id), detail=detail))
    checked.manifests, checked.uses = snapshot.manifests, ManifestUses.of(snapshot)
    return snapshot


def _check_log(
    storage: Storage, version: Version, checked: CheckedVersion, *, may_be_gone: bool
) -> TransactionLog | None:
    file = check_kind(storage, TRANSACTION_LOG, version.id, version.spec_version)
    if not (may_be_gone and file.is_missing):
        checked.findings += file.findings
    return file.value


# Nodes and moves of a log


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
        old, new = (
            dict(zip(id_list(each.ids), each.paths_list(), strict=True)) for each in (before, snapshot.nodes)
        )
        for check, node, detail in _wrong_moves(old, new, log.moves):
            yield Finding(check, key, node, detail=detail)


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
        rows, old_rows = _in_both(before, after)
        of_kind = after.is_array[rows] == arrays
        rows, old_rows = rows[of_kind], old_rows[of_kind]
        documents = after.user_data.take(rows).blobs(), before.user_data.take(old_rows).blobs()
        changed = id_keys(after.ids[rows])[np.fromiter(map(ne, *documents), bool, len(rows))]
        if not np.isin(changed, updated).all():
            yield f"updated {kind}", len(changed), len(updated)
    if before is not None:
        ids = id_keys(np.frombuffer(b"".join(log.updated_chunks), np.uint8).reshape(-1, NODE_ID_BYTES))
        arrays_of = [id_keys(table.ids[table.is_array]) for table in (before, after)]
        is_array = np.isin(ids, np.concatenate([*arrays_of, *passing]))
        if not is_array.all():
            yield "arrays with updated chunks", int(is_array.sum()), len(ids)


def _in_both(before: NodeTable, after: NodeTable) -> tuple[Any, Any]:
    """Return the rows of the nodes of both snapshots, in the later and in the earlier one."""
    _, rows, old_rows = np.intersect1d(
        id_keys(after.ids), id_keys(before.ids), assume_unique=True, return_indices=True
    )
    return rows, old_rows


def _wrong_moves(
    before: Mapping[bytes, str], after: Mapping[bytes, str], moves: Sequence[Move]
) -> Iterator[tuple[str, bytes, str]]:
    """Yield broken rules about the moves of a log and the paths of the two snapshots.

    A node that an amendment has deleted is in the snapshot before, at most.
    """
    moved = {move.node_id for move in moves}
    for id_, path in after.items():
        if before.get(id_, path) != path and id_ not in moved:
            yield "moves-complete", b"", f"the log has no move from {before[id_]} to {path}"
            break
    groups, sources = set(after.values()), {move.source for move in moves}
    occupied = set(before.values()) - sources if moves else set()
    rules = {
        "moves-paths": (
            "the move from {0.source} to {0.target} is not that of the snapshots",
            lambda move: (
                before.get(move.node_id, move.source) != move.source
                or after.get(move.node_id, move.target) != move.target
            ),
        ),
        "moves-parent": (
            "{0.target} has no parent group",
            lambda move: move.node_id in after and (move.target.rpartition("/")[0] or "/") not in groups,
        ),
        "moves-overwrite": (
            "{0.target} was the path of another node, which has no move",
            lambda move: move.target in occupied,
        ),
    }
    for check, (text, is_wrong) in rules.items():
        wrong = next(filter(is_wrong, moves), None)
        if wrong is not None:
            yield check, wrong.node_id, text.format(wrong)


# Chunks of a log


def _changed_arrays(before: NodeTable, after: NodeTable) -> Iterator[ChangedArray]:
    """Yield the arrays that are in both snapshots with different manifests."""
    rows, old_rows = _in_both(before, after)
    are_arrays = after.is_array[rows] & before.is_array[old_rows]
    rows, old_rows = rows[are_arrays], old_rows[are_arrays]
    blobs = after.manifests.take(rows).blobs(), before.manifests.take(old_rows).blobs()
    changed = np.fromiter(map(ne, *blobs), bool, len(rows))
    for row, old_row in zip(rows[changed].tolist(), old_rows[changed].tolist(), strict=True):
        old, new = before.manifests.row(old_row).tolist(), after.manifests.row(row).tolist()
        ndim = int(after.array_length.lengths[row])
        both = set(old).intersection(new)
        only_old, only_new = (tuple(id_ for id_ in ids if id_ not in both) for ids in (old, new))
        yield ChangedArray(after.ids[row].tobytes(), ndim, only_old, only_new)


def check_log_chunks(
    context: Context, item: tuple[None, Sequence[LoggedChanges]]
) -> Iterator[tuple[bytes, list[Finding]]]:
    """Yield the findings of each log about updated chunks, best in the order of the history."""
    assets = Assets(context.storage, _MANIFESTS)
    for changes in item[1]:
        key = transaction_key(changes.id)
        try:
            yield changes.id, list(_silent_chunks(assets, changes, key))
        except IcechunkError as error:  # another check reports a file that is missing or damaged
            yield changes.id, [read_finding(error, key)] if is_outage(error) else []


def _silent_chunks(assets: Assets, changes: LoggedChanges, key: str) -> Iterator[Finding]:
    log = assets.transaction_log(changes.id)
    for array in changes.arrays:
        changed = _changed_chunks(assets, array, is_compaction=changes.is_compaction)
        stored = log.updated_chunks.get(array.node, np.zeros((0, array.ndim), np.uint32))
        silent = changed[ChunkTable.from_absent(stored).find_chunks(changed) < 0]
        if len(silent):
            yield Finding("log-chunks", key, array.node, silent, "the log does not have changed chunks")


def _changed_chunks(assets: Assets, array: ChangedArray, *, is_compaction: bool) -> U32:
    """Return the coordinates of the chunks with different references.

    A compaction moves chunks to other files, and its log does not name them. They have the same lengths.
    """
    old, new = (_table(assets, array, ids) for ids in (array.old, array.new))
    rows = old.find_chunks(new.index)
    both = np.flatnonzero(rows >= 0)
    same = np.zeros(len(new), bool)
    same[both] = new.same(both, old, rows[both])
    if is_compaction:
        moved = (new.kind[both] == ChunkKind.NATIVE) & (old.kind[rows[both]] == ChunkKind.NATIVE)
        same[both] |= moved & (new.length[both] == old.length[rows[both]])
    gone = new.find_chunks(old.index) < 0
    return np.concatenate([new.index[~same], old.index[gone]])


def _table(assets: Assets, array: ChangedArray, ids: Sequence[bytes]) -> ChunkTable:
    tables = [assets.manifest(id_).arrays.get(array.node) for id_ in ids]
    fitting = [table for table in tables if table is not None and table.ndim == array.ndim]
    return ChunkTable.merge_tables([ChunkTable.empty(array.ndim), *fitting])
