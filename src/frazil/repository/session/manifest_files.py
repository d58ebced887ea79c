"""The manifest files of a commit: which arrays get new manifests, and their content."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.manifests import ManifestRewrite, auto_split, distribute, plan_rewrite, share
from frazil.format.columns import U8
from frazil.format.ids import id_keys, id_matrix
from frazil.format.keys import manifest_key
from frazil.format.manifest import ChunkTable, LocationCompression, Manifest, encode_manifest
from frazil.format.snapshot import ArrayData, ManifestFiles, ManifestRef, Node, NodeTable
from frazil.repository.catalog.context import Context
from frazil.repository.clock import new_object_id
from frazil.repository.session.earlier_manifests import ManifestUpdate, NewManifest
from frazil.repository.session.pending_commit import PendingCommit
from frazil.repository.session.uploads import Puts

_READERS = 32


def write_manifests(pending: PendingCommit, puts: Puts) -> tuple[NodeTable, list[NewManifest]]:
    """Put the new manifests of a commit. Return the nodes after the changes, and the manifests."""
    changes, parent = pending.changes, pending.parent
    nodes = changes.moved_nodes(parent.nodes)
    updates = _manifest_updates(pending, nodes)
    new = _new_manifests(pending, puts, updates)
    refs: dict[bytes, list[ManifestRef]] = {}
    for manifest in new:
        refs.setdefault(manifest.node_id, []).append(manifest.ref)
    changed = changes.present(nodes)
    for update in updates:
        manifests = (*update.rewrite.unchanged, *refs.get(update.node.id, ()))
        changed[update.node.path] = replace(update.node, array=replace(update.array, manifests=manifests))
    paths = {**changes.nodes, **changed}
    rows = np.fromiter(map(nodes.find_node, paths), np.int64, len(paths))
    return nodes.edit(rows[rows >= 0], NodeTable.from_nodes(list(changed.values()))), new


def _manifest_updates(pending: PendingCommit, nodes: NodeTable) -> list[ManifestUpdate]:
    changes, rewrites_all = pending.changes, pending.kind.rewrites_manifests
    arrays = _arrays_to_write(nodes, changes)
    if rewrites_all:
        arrays = [node for node in _all_arrays(nodes) if node.id not in changes.ready]
    files = with_prepared_files(pending.parent.manifests, changes)
    updates = []
    for node in arrays:
        assert node.array is not None
        chunk_edits = changes.chunks.get(node.id)
        edits = ChunkTable.empty(len(node.array.shape)) if chunk_edits is None else chunk_edits.table()
        split = split_of(pending.context, node, num_refs(files, node.array) + len(edits))
        rewrite = (
            ManifestRewrite((), node.array.manifests)
            if rewrites_all
            else plan_rewrite(node.array, edits, split)
        )
        updates.append(ManifestUpdate(node, node.array, edits, split, rewrite))
    return updates


def _new_manifests(pending: PendingCommit, puts: Puts, updates: list[ManifestUpdate]) -> list[NewManifest]:
    """Return the manifests of all updates. Manifests of earlier attempts are used again where they fit."""
    context, earlier = pending.context, pending.earlier_manifests
    stored = [earlier.find_manifests(update) for update in updates]
    missing = [update for update, manifests in zip(updates, stored, strict=True) if manifests is None]
    reads = [ref.id for update in missing for ref in update.rewrite.read]
    threads = max(_READERS, context.settings.concurrent_manifest_fetches)
    old = dict(zip(reads, context.assets.manifests(reads, threads), strict=True))
    put = put_manifests(context, puts, [(update.node.id, _tables(update, old)) for update in missing])
    by_node: dict[bytes, list[NewManifest]] = {}
    for manifest in put:
        by_node.setdefault(manifest.node_id, []).append(manifest)
    for update in missing:
        earlier.add_manifests(update, by_node.get(update.node.id, ()))
    return [*put, *chain.from_iterable(filter(None, stored))]


def _tables(update: ManifestUpdate, manifests: Mapping[bytes, Manifest]) -> list[ChunkTable]:
    """Return the content of the new manifests of an array, one table each."""
    old = [manifests[ref.id].arrays for ref in update.rewrite.read]
    tables = [arrays[update.node.id] for arrays in old if update.node.id in arrays]
    return distribute(update.array, tables, update.edits, update.split)


def split_of(context: Context, node: Node, refs: int) -> tuple[int, ...]:
    """Return how many chunks along each dimension share a manifest, in an array with ``refs`` references.

    The configuration decides, or ``auto_split`` without one.
    """
    assert node.array is not None
    num_chunks = node.array.num_chunks
    if context.settings.is_split_configured:
        return context.settings.split_sizes_for(node.path, node.array.dimension_names, num_chunks)
    return auto_split(num_chunks, min(refs, math.prod(num_chunks)))  # edits may replace existing chunks


def num_refs(files: ManifestFiles, array: ArrayData) -> int:
    """Return the number of references in the manifests of an array."""
    rows = np.isin(id_keys(files.ids), id_keys(id_matrix([ref.id for ref in array.manifests])))
    return int(files.num_chunk_refs[rows].sum())


def with_prepared_files(files: ManifestFiles, changes: ChangeSet) -> ManifestFiles:
    """Return ``files`` with the manifest files that workers have prepared for the changes."""
    parts = [files, *(ready.files for ready in changes.ready.values())]
    if len(parts) == 1:
        return files
    ids = np.concatenate([part.ids for part in parts])
    _, first = np.unique(id_keys(ids), return_index=True)
    return ManifestFiles(
        ids[first],
        np.concatenate([part.size_bytes for part in parts])[first],
        np.concatenate([part.num_chunk_refs for part in parts])[first],
    )


def _all_arrays(nodes: NodeTable) -> list[Node]:
    return list(map(nodes.exact().node, np.flatnonzero(nodes.is_array).tolist()))


def _arrays_to_write(nodes: NodeTable, changes: ChangeSet) -> list[Node]:
    """Return the arrays with edited chunks, and the arrays whose grid is smaller than their manifests."""
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
    return [changes.array(nodes, path) for path in sorted(edited | resized, key=str.encode)]


def put_manifests(
    context: Context, puts: Puts, updates: list[tuple[bytes, list[ChunkTable]]]
) -> list[NewManifest]:
    """Put manifests with the tables of each node id. Small arrays share a file."""
    settings = context.settings
    level = settings.compression_level
    locations = LocationCompression(
        settings.location_compression_min_chunks,
        settings.location_dictionary_samples,
        settings.location_dictionary_bytes,
        settings.location_compression_level,
    )
    manifests = [Manifest(new_object_id(), arrays) for arrays in share(updates)]

    def encoder(manifest: Manifest) -> Callable[[], bytes]:
        return lambda: encode_manifest(
            manifest, level=level, locations=locations, spec_version=context.spec_version
        )

    sizes = [puts.put(manifest_key(each.id), encoder(each)) for each in manifests]
    return [
        NewManifest(node_id, ManifestRef(manifest.id, table.bounds()), manifest, size.result())
        for manifest, size in zip(manifests, sizes, strict=True)
        for node_id, table in manifest.arrays.items()
    ]


def referenced_files(before: ManifestFiles, nodes: NodeTable, new: list[NewManifest]) -> ManifestFiles:
    """Return the old and new manifest files that the nodes refer to."""
    files = list({manifest.ref.id: manifest for manifest in new}.values())
    new_ids: U8 = id_matrix([manifest.ref.id for manifest in files])
    ids = np.concatenate([before.ids, new_ids])
    sizes = np.concatenate([before.size_bytes, np.array([each.size for each in files], np.uint64)])
    counts = np.concatenate([before.num_chunk_refs, np.array([each.num_refs for each in files], np.uint32)])
    keys = id_keys(ids)
    order = np.argsort(keys)
    used = order[np.isin(keys[order], id_keys(nodes.manifest_ids()))]
    return ManifestFiles(ids[used], sizes[used], counts[used])
