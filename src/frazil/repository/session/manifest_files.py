"""The manifest files of a commit: which arrays get new manifests, and their content."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.manifests import (
    ManifestRewrite,
    Split,
    auto_split,
    boxes_with,
    distribute,
    plan_rewrite,
    share,
)
from frazil.changes.window_plan import axes_of, plan_windows
from frazil.changes.windows import capacity_for
from frazil.format.columns import I64, U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, id_matrix, ids_among
from frazil.format.keys import manifest_key
from frazil.format.manifest import ChunkTable, LocationCompression, Manifest, encode_manifest
from frazil.format.snapshot import ArrayData, ManifestFiles, ManifestRef, ManifestRefs, Node, NodeTable
from frazil.repository.catalog.context import Context
from frazil.repository.ids import new_object_id, object_id_series
from frazil.repository.session.earlier_manifests import ManifestUpdate, NewManifest
from frazil.repository.session.pending_commit import PendingCommit
from frazil.repository.session.uploads import Uploads

_READERS = 32
#: A commit of more manifests gives them a series of ids, so that the snapshot is small.
_SERIES_FROM = 16


def write_manifests(pending: PendingCommit, uploads: Uploads) -> tuple[NodeTable, list[NewManifest]]:
    """Put the new manifests of a commit. Return the nodes after the changes, and the manifests."""
    changes, parent = pending.changes, pending.parent
    nodes = changes.moved_nodes(parent.nodes)
    updates = _manifest_updates(pending, nodes)
    new = _new_manifests(pending, uploads, updates)
    refs: dict[bytes, list[ManifestRef]] = {}
    for manifest in new:
        refs.setdefault(manifest.node_id, []).append(manifest.ref)
    changed = changes.present(nodes)
    for update in updates:
        unchanged = ManifestRefs.of(update.rewrite.unchanged, len(update.array.shape))
        manifests = unchanged.join(refs.get(update.node.id, ()))
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
        row = nodes.find_node(node.path)
        before = () if row < 0 else tuple(nodes.num_chunks.row(row).tolist())
        rewrite, split = _plan(pending, node, edits, files, before)
        updates.append(ManifestUpdate(node, node.array, edits, split, rewrite))
    return updates


def _plan(
    pending: PendingCommit, node: Node, edits: ChunkTable, files: ManifestFiles, before: tuple[int, ...]
) -> tuple[ManifestRewrite, Split]:
    """Return the manifests to read for an array, and the division of its references."""
    array, everything = node.array, pending.kind.rewrites_manifests
    assert array is not None
    if pending.context.settings.has_windows and array.shape:
        axes = axes_of(array, before if len(before) == len(array.shape) else array.num_chunks)
        if axes.is_possible:
            return plan_windows(array, edits, counts_of(files, array), axes, everything=everything)
    split = split_of(pending.context, node, num_refs(files, array) + len(edits))
    if everything:
        return ManifestRewrite((), array.manifests), split
    return plan_rewrite(array, edits, split), split


def _new_manifests(
    pending: PendingCommit, uploads: Uploads, updates: list[ManifestUpdate]
) -> list[NewManifest]:
    """Return the manifests of all updates. Manifests of earlier attempts are used again where they fit."""
    context, earlier = pending.context, pending.earlier_manifests
    stored = [earlier.find_manifests(update) for update in updates]
    missing = [update for update, manifests in zip(updates, stored, strict=True) if manifests is None]
    reads = [ref.id for update in missing for ref in update.rewrite.read]
    threads = max(_READERS, context.settings.concurrent_manifest_fetches)
    old = dict(zip(reads, context.assets.manifests(reads, threads), strict=True))
    put = put_manifests(context, uploads, [(update.node.id, _tables(update, old)) for update in missing])
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

    The configuration decides, or ``auto_split`` without one. With the splitting ``"auto"``, the boxes are the
    windows of an array whose references are evenly distributed.
    """
    assert node.array is not None
    num_chunks = node.array.num_chunks
    refs = min(refs, math.prod(num_chunks))  # edits may replace existing chunks
    if context.settings.has_windows and num_chunks:
        order = axes_of(node.array, num_chunks).order
        return boxes_with(num_chunks, refs, capacity_for(refs), order)
    if context.settings.is_split_configured:
        return context.settings.split_sizes_for(node.path, node.array.dimension_names, num_chunks)
    return auto_split(num_chunks, refs)


def counts_of(files: ManifestFiles, array: ArrayData) -> I64:
    """Return the number of references in each manifest of an array. Shared files count with all arrays."""
    ids = id_keys(ManifestRefs.of(array.manifests, len(array.shape)).ids)
    listed = id_keys(files.ids)
    order = np.argsort(listed)
    rows = np.searchsorted(listed[order], ids)
    return files.num_chunk_refs[order[rows]].astype(np.int64)


def num_refs(files: ManifestFiles, array: ArrayData) -> int:
    """Return the number of references in the manifests of an array."""
    ids = ManifestRefs.of(array.manifests, len(array.shape)).ids
    rows = np.isin(id_keys(files.ids), id_keys(ids))
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
        if node is not None and node.array is not None and _reaches_out(node.array)
    }
    return [changes.array(nodes, path) for path in sorted(edited | resized, key=str.encode)]


def _reaches_out(array: ArrayData) -> bool:
    """Return whether a manifest has a box that is not inside of the grid."""
    stops = ManifestRefs.of(array.manifests, len(array.shape)).extents[:, :, 1]
    return bool((stops > np.array(array.num_chunks, np.int64)).any())


def put_manifests(
    context: Context,
    uploads: Uploads,
    updates: list[tuple[bytes, list[ChunkTable]]],
    ids: Iterator[bytes] | None = None,
) -> list[NewManifest]:
    """Put manifests with the tables of each node id. Small arrays share a file.

    ``ids`` are the ids of the files. Default: random ids, or a series if there are many files.
    """
    settings = context.settings
    level = settings.compression_level
    locations = LocationCompression(
        settings.location_compression_min_chunks,
        settings.location_dictionary_samples,
        settings.location_dictionary_bytes,
        settings.location_compression_level,
    )
    files = share(updates)
    if ids is None:
        ids = object_id_series() if len(files) > _SERIES_FROM else iter(new_object_id, b"")
    manifests = list(map(Manifest, ids, files))

    def encoder(manifest: Manifest) -> Callable[[], bytes]:
        return lambda: encode_manifest(
            manifest, level=level, locations=locations, spec_version=context.spec_version
        )

    sizes = [uploads.put(manifest_key(each.id), encoder(each)) for each in manifests]
    return [
        NewManifest(node_id, ManifestRef(manifest.id, table.bounds()), manifest, size.result())
        for manifest, size in zip(manifests, sizes, strict=True)
        for node_id, table in manifest.arrays.items()
    ]


def referenced_files(before: ManifestFiles, nodes: NodeTable, new: list[NewManifest]) -> ManifestFiles:
    """Return the old and new manifest files that the nodes refer to."""
    if not len(before) and not new:
        return before
    files = list({manifest.ref.id: manifest for manifest in new}.values())
    new_ids: U8 = id_matrix([manifest.ref.id for manifest in files])
    ids = np.concatenate([before.ids, new_ids])
    sizes = np.concatenate([before.size_bytes, np.array([each.size for each in files], np.uint64)])
    counts = np.concatenate([before.num_chunk_refs, np.array([each.num_refs for each in files], np.uint32)])
    order = np.argsort(id_keys(ids))
    needed = nodes.manifests.compact().values.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    used = order[ids_among(ids[order], needed)]
    return ManifestFiles(ids[used], sizes[used], counts[used])
