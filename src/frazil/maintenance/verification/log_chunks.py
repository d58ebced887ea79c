"""Comparison of the updated chunks in a transaction log with the manifests of the snapshots around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Final

import numpy as np

from frazil.errors import IcechunkError
from frazil.format.columns import U32
from frazil.format.ids import id_keys, id_list
from frazil.format.keys import transaction_key
from frazil.format.manifest import ChunkTable
from frazil.format.nodes import NodeTable
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.repository.catalog.findings import Finding
from frazil.storage.base import Storage

#: The manifests of a version are those of the next version's parent.
_CACHED: Final = CacheLimits(snapshot_nodes=50_000, chunk_refs=4_000_000)


@dataclass(frozen=True, slots=True)
class LogPair:
    """A snapshot and its parent, whose difference is in the transaction log of the snapshot."""

    id: bytes
    parent: bytes


def check_log_chunks(storage: Storage, pairs: Sequence[LogPair]) -> Iterator[tuple[bytes, list[Finding]]]:
    """Yield the findings of each pair, best in the order of their history. This is a piece of work."""
    assets = Assets(storage, _CACHED)
    return ((pair.id, _findings(assets, pair)) for pair in pairs)


def _findings(assets: Assets, pair: LogPair) -> list[Finding]:
    try:
        log = assets.transaction_log(pair.id)
        before, after = assets.snapshot(pair.parent), assets.snapshot(pair.id)
        if after.spec_version < 2:
            return []
        findings = []
        for node in _changed_arrays(before.nodes, after.nodes):
            changed = _changed_chunks(assets, node, before.nodes, after.nodes)
            stored = log.updated_chunks.get(node, np.zeros((0, changed.shape[1]), np.uint32))
            silent = changed[ChunkTable.from_absent(stored).find_chunks(changed) < 0]
            if len(silent):
                key, detail = transaction_key(pair.id), "the log does not have changed chunks"
                findings.append(Finding("log-chunks", key, node, silent, detail))
    except IcechunkError:  # another check reports the file
        return []
    return findings


def _changed_arrays(before: NodeTable, after: NodeTable) -> list[bytes]:
    """Return the arrays that are in both snapshots with different manifests."""
    _, rows, old_rows = np.intersect1d(
        id_keys(after.ids), id_keys(before.ids), assume_unique=True, return_indices=True
    )
    both = after.is_array[rows] & before.is_array[old_rows]
    rows, old_rows = rows[both], old_rows[both]
    manifests = after.manifests.take(rows).blobs(), before.manifests.take(old_rows).blobs()
    changed = np.fromiter(map(ne, *manifests), bool, len(rows))
    return id_list(after.ids[rows[changed]])


def _changed_chunks(assets: Assets, node: bytes, before: NodeTable, after: NodeTable) -> U32:
    """Return the coordinates of the chunks with different references."""
    old_ids, new_ids = _manifests(before, node), _manifests(after, node)
    ndim = int(after.array_length.lengths[_row(after, node)])
    old = _table(assets, node, [id_ for id_ in old_ids if id_ not in new_ids], ndim)
    new = _table(assets, node, [id_ for id_ in new_ids if id_ not in old_ids], ndim)
    rows = old.find_chunks(new.index)
    both = np.flatnonzero(rows >= 0)
    same = np.zeros(len(new), bool)
    same[both] = new.same(both, old, rows[both])
    gone = new.find_chunks(old.index) < 0
    return np.concatenate([new.index[~same], old.index[gone]])


def _row(nodes: NodeTable, node: bytes) -> int:
    return id_list(nodes.ids).index(node)


def _manifests(nodes: NodeTable, node: bytes) -> list[bytes]:
    ids: list[bytes] = nodes.manifests.row(_row(nodes, node)).tolist()
    return ids


def _table(assets: Assets, node: bytes, ids: Sequence[bytes], ndim: int) -> ChunkTable:
    tables = [assets.manifest(id_).arrays.get(node) for id_ in ids]
    fitting = [table for table in tables if table is not None and table.ndim == ndim]
    return ChunkTable.merge_tables([ChunkTable.empty(ndim), *fitting])
