"""Snapshots without history: the content of a version as the first commit of a copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from typing import Any, Final

import numpy as np

from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_keys, id_matrix, id_to_text
from frazil.format.keys import snapshot_key, transaction_key
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.snapshot import Snapshot, encode_snapshot
from frazil.format.transaction_log import TransactionLog, empty_log, encode_transaction_log
from frazil.pipeline.replication.part import RepositoryPart, first_entry, nodes_of_arrays, refs_of
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.lineage import FRAZIL

#: The value in the metadata of a flat snapshot: the id of its snapshot in the source.
SOURCE: Final = "source_snapshot"


@dataclass(frozen=True, slots=True, eq=False)
class FlatSnapshot:
    """A snapshot of a copy without history, with its entry and the id of its snapshot in the source."""

    source: bytes
    snapshot: Snapshot
    entry: SnapshotEntry

    def files(self, level: int) -> Iterator[tuple[str, bytes]]:
        """Yield the keys and bytes of the snapshot and its transaction log."""
        yield snapshot_key(self.entry.id), encode_snapshot(self.snapshot, level=level)
        yield transaction_key(self.entry.id), encode_transaction_log(_log(self.snapshot), level=level)


def flat_snapshots(context: Context, info: RepoInfo, part: RepositoryPart) -> list[FlatSnapshot]:
    """Return the newest states of the refs of a part."""
    root = first_entry(info).id
    refs = chain.from_iterable(each.values() for each in refs_of(info, part))
    return [_flat(context, info, part, id_) for id_ in dict.fromkeys(refs) if id_ != root]


def flat_id(source: bytes, part: RepositoryPart) -> bytes:
    """Return the id of the flat snapshot of a version."""
    text = repr(("frazil flat snapshot", source.hex(), part.arrays))
    return sha256(text.encode()).digest()[:OBJECT_ID_BYTES]


def _flat(context: Context, info: RepoInfo, part: RepositoryPart, id_: bytes) -> FlatSnapshot:
    before = context.assets.snapshot(id_)
    entry = info.table.entry(info.table.find_snapshot(id_))
    nodes = nodes_of_arrays(before.nodes.exact(), part.arrays)
    rows = np.isin(id_keys(before.manifests.ids), id_keys(nodes.manifest_ids()))
    metadata: dict[str, Any] = {**entry.metadata, FRAZIL: {SOURCE: id_to_text(id_)}}
    root = first_entry(info).id
    new_id = flat_id(id_, part)
    snapshot = replace(
        before,
        id=new_id,
        metadata=metadata,
        nodes=nodes,
        manifests=before.manifests.select_manifests(rows),
        parent_id=root,
    )
    return FlatSnapshot(id_, snapshot, SnapshotEntry(new_id, root, entry.flushed_at, entry.message, metadata))


def _log(snapshot: Snapshot) -> TransactionLog:
    """Return the log of a first commit: all nodes are new. Chunks of new arrays need no entry."""
    nodes = snapshot.nodes
    groups, arrays = (
        id_matrix(sorted(nodes.identities(np.flatnonzero(rows))[0]), NODE_ID_BYTES)
        for rows in (~nodes.is_array, nodes.is_array)
    )
    return replace(empty_log(snapshot.id), new_groups=groups, new_arrays=arrays)
