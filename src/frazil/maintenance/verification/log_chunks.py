"""Comparison of the updated chunks in a transaction log with the manifests of the snapshots around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Final

import numpy as np

from frazil.errors import IcechunkError
from frazil.format.columns import U32
from frazil.format.ids import id_keys
from frazil.format.keys import transaction_key
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.nodes import NodeTable
from frazil.maintenance.verification.file_checks import read_finding
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.storage.base import Storage
from frazil.storage.outages import is_outage

#: The manifests of a version are those of the next version's parent. Several threads have a cache each.
_CACHED: Final = CacheLimits(snapshot_nodes=0, chunk_refs=1_000_000)


@dataclass(frozen=True, slots=True)
class ChangedArray:
    """An array that is in two snapshots with different manifests.

    Attributes:
        node: The id of the array.
        ndim: The number of its dimensions.
        old: The manifests that only the earlier snapshot has.
        new: The manifests that only the later snapshot has.
    """

    node: bytes
    ndim: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LoggedChanges:
    """A snapshot whose transaction log must have the changed chunks of some arrays.

    Attributes:
        id: The id of the snapshot.
        arrays: The arrays.
        is_compaction: Whether a compaction wrote the snapshot.
    """

    id: bytes
    arrays: tuple[ChangedArray, ...]
    is_compaction: bool = False


def changed_arrays(before: NodeTable, after: NodeTable) -> tuple[ChangedArray, ...]:
    """Return the arrays that are in both snapshots with different manifests."""
    _, rows, old_rows = np.intersect1d(
        id_keys(after.ids), id_keys(before.ids), assume_unique=True, return_indices=True
    )
    both = after.is_array[rows] & before.is_array[old_rows]
    rows, old_rows = rows[both], old_rows[both]
    manifests = after.manifests.take(rows).blobs(), before.manifests.take(old_rows).blobs()
    changed = np.fromiter(map(ne, *manifests), bool, len(rows))
    return tuple(
        _changed_array(before, old_row, after, row)
        for row, old_row in zip(rows[changed].tolist(), old_rows[changed].tolist(), strict=True)
    )


def _changed_array(before: NodeTable, old_row: int, after: NodeTable, row: int) -> ChangedArray:
    old, new = before.manifests.row(old_row).tolist(), after.manifests.row(row).tolist()
    both = set(old).intersection(new)
    return ChangedArray(
        after.ids[row].tobytes(),
        int(after.array_length.lengths[row]),
        tuple(id_ for id_ in old if id_ not in both),
        tuple(id_ for id_ in new if id_ not in both),
    )


def check_log_chunks(
    storage: Storage, changes: Sequence[LoggedChanges]
) -> Iterator[tuple[bytes, list[Finding]]]:
    """Yield the findings of each log, best in the order of the history. This is a piece of work."""
    assets = Assets(storage, _CACHED)
    return ((each.id, _findings(assets, each)) for each in changes)


def _findings(assets: Assets, changes: LoggedChanges) -> list[Finding]:
    findings: list[Finding] = []
    try:
        log = assets.transaction_log(changes.id)
        for array in changes.arrays:
            changed = _changed_chunks(assets, array, is_compaction=changes.is_compaction)
            stored = log.updated_chunks.get(array.node, np.zeros((0, array.ndim), np.uint32))
            silent = changed[ChunkTable.from_absent(stored).find_chunks(changed) < 0]
            if len(silent):
                key, detail = transaction_key(changes.id), "the log does not have changed chunks"
                findings.append(Finding("log-chunks", key, array.node, silent, detail))
    except IcechunkError as error:  # another check reports a file that is missing or damaged
        return [read_finding(error, transaction_key(changes.id))] if is_outage(error) else []
    return findings


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
