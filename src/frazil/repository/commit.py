"""Turning a change set into a new version: manifests, transaction log, snapshot; then the one conditional
write.

Nothing is visible before that write, and all it refers to is durable by then. A commit that is refused
leaves files that nobody refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.log import transaction_log
from frazil.changes.manifests import distribute, plan
from frazil.format.columns import U8
from frazil.format.ids import id_keys, id_matrix
from frazil.format.keys import manifest_key, snapshot_key, transaction_key
from frazil.format.manifest import ChunkTable, LocationCompression, Manifest, encode_manifest
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node, NodeTable, Snapshot, encode_snapshot
from frazil.format.transaction_log import encode_transaction_log
from frazil.repository.clock import new_object_id, now_us
from frazil.repository.context import Context
from frazil.repository.mutations import new_commit, require_online, require_snapshot, require_tip
from frazil.repository.update import read_repo_info

_WRITERS = 8


@dataclass(frozen=True, slots=True)
class Written:
    """A manifest that was written: where, how large, and for which node and box."""

    node_id: bytes
    ref: ManifestRef
    size: int
    num_refs: int


def commit_changes(
    context: Context,
    branch: str,
    parent: Snapshot,
    changes: ChangeSet,
    message: str,
    metadata: dict[str, Any],
) -> bytes:
    """Commit ``changes``, made on ``parent``, to ``branch``; the new snapshot's id.

    The chunks of the changes have to be durable. Raises ``ConflictError`` with both parents if the branch
    has moved, and then wrote nothing that anybody sees.
    """
    info, _, _ = read_repo_info(context.storage)
    require_online(info)
    require_tip(info, branch, parent.id)
    snapshot = write_version(context, info, parent, changes, message, metadata)
    entry = SnapshotEntry(snapshot.id, parent.id, snapshot.flushed_at, message, metadata)
    context.update(new_commit(branch, parent.id, entry))
    return snapshot.id


def write_version(
    context: Context,
    info: RepoInfo,
    parent: Snapshot,
    changes: ChangeSet,
    message: str,
    metadata: dict[str, Any],
) -> Snapshot:
    """Write all files of a new version but ``repo``, durably."""
    id_ = new_object_id()
    nodes, written = write_manifests(context, parent, changes)
    # Later than the parent, whatever this machine's clock says.
    before = int(info.snapshots.flushed_at()[require_snapshot(info, parent.id)])
    snapshot = Snapshot(
        id=id_,
        flushed_at=max(now_us(), before + 1),
        message=message,
        metadata=metadata,
        nodes=nodes,
        manifests=manifest_files(parent.manifests, nodes, written),
    )
    level = context.settings.compression_level
    log = transaction_log(changes, id_)
    put_all(
        context,
        [
            (snapshot_key(id_), lambda: encode_snapshot(snapshot, level=level)),
            (transaction_key(id_), lambda: encode_transaction_log(log, level=level)),
        ],
    )
    return snapshot


def put_all(context: Context, files: Iterable[tuple[str, Callable[[], bytes]]]) -> list[int]:
    """Encode and write files side by side; their sizes."""

    def put(file: tuple[str, Callable[[], bytes]]) -> int:
        key, encode = file
        data = encode()
        context.storage.put(key, data)
        return len(data)

    files = list(files)
    if len(files) < 2:
        return list(map(put, files))
    with ThreadPoolExecutor(min(_WRITERS, len(files))) as pool:
        return list(pool.map(put, files))


def write_manifests(
    context: Context, parent: Snapshot, changes: ChangeSet
) -> tuple[NodeTable, list[Written]]:
    """The nodes after the changes, with the manifests that had to be written."""
    arrays = _arrays_to_write(parent, changes)
    tables: list[tuple[bytes, ChunkTable]] = []
    kept: dict[bytes, tuple[ManifestRef, ...]] = {}
    for node in arrays:
        assert node.array is not None
        edits = (
            changes.chunks[node.id].table()
            if node.id in changes.chunks
            else ChunkTable.empty(len(node.array.shape))
        )
        split = context.settings.split_sizes_for(node.path, node.array.dimension_names, node.array.num_chunks)
        rewrite = plan(node.array, edits, split)
        old = context.assets.manifests(
            [ref.id for ref in rewrite.read], context.settings.concurrent_manifest_fetches
        )
        known = [manifest.arrays[node.id] for manifest in old if node.id in manifest.arrays]
        kept[node.id] = rewrite.kept
        tables += [(node.id, table) for table in distribute(node.array, known, edits, split)]
    written = _put_manifests(context, tables)
    refs: dict[bytes, list[ManifestRef]] = {}
    for manifest in written:
        refs.setdefault(manifest.node_id, []).append(manifest.ref)
    changed = {path: node for path, node in changes.nodes.items() if node is not None}
    for node in arrays:
        assert node.array is not None
        manifests = (*kept[node.id], *refs.get(node.id, ()))
        changed[node.path] = replace(node, array=replace(node.array, manifests=manifests))
    paths = {**changes.nodes, **changed}
    rows = np.fromiter(map(parent.nodes.find, paths), np.int64, len(paths))
    return parent.nodes.edit(rows[rows >= 0], NodeTable.from_nodes(list(changed.values()))), written


def _arrays_to_write(parent: Snapshot, changes: ChangeSet) -> list[Node]:
    """Arrays with edits of chunks, and those whose grid became smaller than their manifests."""
    edited = {edits.path for edits in changes.chunks.values() if edits}
    resized = {
        path
        for path, node in changes.nodes.items()
        if node is not None
        and node.array is not None
        and any(
            (ref.extents[:, 1] > np.array(node.array.num_chunks, np.int64)).any()
            for ref in node.array.manifests
        )
    }
    return [changes.array(parent.nodes, path) for path in sorted(edited | resized, key=str.encode)]


def _put_manifests(context: Context, tables: list[tuple[bytes, ChunkTable]]) -> list[Written]:
    level = context.settings.compression_level
    settings = context.settings
    locations = LocationCompression(
        settings.location_compression_min_chunks,
        settings.location_dictionary_samples,
        settings.location_dictionary_bytes,
        settings.location_compression_level,
    )
    ids = [new_object_id() for _ in tables]

    def encoder(id_: bytes, node_id: bytes, table: ChunkTable) -> Callable[[], bytes]:
        return lambda: encode_manifest(Manifest(id_, {node_id: table}), level=level, locations=locations)

    sizes = put_all(
        context,
        [
            (manifest_key(id_), encoder(id_, node_id, table))
            for id_, (node_id, table) in zip(ids, tables, strict=True)
        ],
    )
    return [
        Written(node_id, ManifestRef(id_, table.bounds()), size, len(table))
        for id_, size, (node_id, table) in zip(ids, sizes, tables, strict=True)
    ]


def manifest_files(before: ManifestFiles, nodes: NodeTable, written: list[Written]) -> ManifestFiles:
    """The manifests that the nodes refer to, of those that were there and those that were written."""
    new: U8 = id_matrix([manifest.ref.id for manifest in written])
    ids = np.concatenate([before.ids, new])
    sizes = np.concatenate([before.size_bytes, np.array([manifest.size for manifest in written], np.uint64)])
    counts = np.concatenate(
        [before.num_chunk_refs, np.array([manifest.num_refs for manifest in written], np.uint32)]
    )
    keys = id_keys(ids)
    order = np.argsort(keys)
    used = order[np.isin(keys[order], id_keys(nodes.manifest_ids()))]
    return ManifestFiles(ids[used], sizes[used], counts[used])
