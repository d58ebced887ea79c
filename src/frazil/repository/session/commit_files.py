"""The files of a new version except ``repo``: manifests, transaction log and snapshot, and their upload.

Each file costs a round trip on an object store, or a flush on a local disk, whatever its size. So all files
of a commit are stored at the same time. Only the conditional write comes after them.
"""

from __future__ import annotations

import math
from collections.abc import Buffer, Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import call
from typing import Any, Final

import numpy as np

from frazil.changes.change_set import ChangeSet, moved_nodes, transaction_log
from frazil.changes.diff import amended_log
from frazil.changes.manifests import (
    UNSPLIT_REFS,
    ManifestRewrite,
    Split,
    auto_split,
    axes_of,
    boxes_with,
    capacity_for,
    distribute,
    plan_rewrite,
    plan_windows,
    share,
)
from frazil.chunks.writer import ChunkFlush, ChunkWriter
from frazil.format.ids import (
    OBJECT_ID_BYTES,
    id_keys,
    id_matrix,
    ids_among,
    manifest_key,
    snapshot_key,
    statistics_key,
    transaction_key,
)
from frazil.format.manifest import ChunkTable, Manifest, encode_manifest
from frazil.format.repo_info import SnapshotEntry
from frazil.format.snapshot import (
    ArrayData,
    ManifestFiles,
    ManifestRef,
    ManifestRefs,
    Node,
    NodeTable,
    Snapshot,
    encode_snapshot,
)
from frazil.format.statistics_file import encode_statistics, has_statistics
from frazil.format.transaction_log import TransactionLog, encode_transaction_log
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_changes import MetadataEdit, RefEdit
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id, object_id_series
from frazil.repository.settings.manifest_config import DEFAULT_SPLITTING, split_sizes_for
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded, shared_pool, start_threads


@dataclass(frozen=True, slots=True)
class NewManifest:
    """The part of one array in a manifest file that a commit has stored."""

    node_id: bytes
    ref: ManifestRef
    manifest: Manifest
    size: int
    num_refs: int


@dataclass(slots=True, eq=False)
class ManifestUpdate:
    """An array whose manifests a commit updates, with the inputs that determine their content."""

    node: Node
    array: ArrayData
    edits: ChunkTable
    split: Split
    rewrite: ManifestRewrite
    #: The new manifests, when they are known.
    manifests: list[NewManifest] | None = None

    def has_content_of(self, earlier: ManifestUpdate) -> bool:
        """Return whether the new manifests have the same content as those of an earlier attempt."""
        mine, others = (
            (each.array.num_chunks, each.split, [ref.id for ref in each.rewrite.read])
            for each in (self, earlier)
        )
        return mine == others and self.edits.equals(earlier.edits)


@dataclass(frozen=True, slots=True)
class CommitKind:
    """A kind of commit: commit, amend, flush, or a rewrite of manifests."""

    name: str
    #: The branch must be at the parent, and moves to the new snapshot.
    moves_branch: bool = True
    #: The new snapshot replaces the parent. Otherwise it follows the parent.
    replaces_parent: bool = False
    #: A commit without changes fails, unless the caller allows it.
    needs_changes: bool = True
    #: All manifests are written again with the current split of the configuration.
    rewrites_manifests: bool = False
    #: By default, an array with up to this number of references has one manifest.
    unsplit_refs: int = UNSPLIT_REFS


COMMIT: Final = CommitKind("commit")
MERGE: Final = CommitKind("merge", unsplit_refs=1 << 18)
AMEND: Final = CommitKind("amend", replaces_parent=True)
FLUSH: Final = CommitKind("flush", moves_branch=False, needs_changes=False)
REWRITE: Final = CommitKind("rewrite", needs_changes=False, rewrites_manifests=True)


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommit:
    """The inputs of a commit.

    ``branch`` is the branch that the commit moves, None for a flush. ``writer`` has chunks of the changes
    that are not durable. ``earlier_manifests`` are the updates whose manifests earlier attempts have stored,
    by node id. ``note`` changes the metadata of the repository in the same update, and ``refs`` changes refs
    (spec version 2).
    """

    context: Context
    kind: CommitKind
    branch: str | None
    parent: Snapshot
    changes: ChangeSet
    message: str
    metadata: dict[str, Any]
    session_start: SessionStart
    writer: ChunkWriter | None = None
    earlier_manifests: dict[bytes, ManifestUpdate] = field(default_factory=dict)
    note: MetadataEdit | None = None
    #: The ids of the detached snapshots that the update removes from the list, because the commit has them.
    merged: tuple[bytes, ...] = ()
    refs: RefEdit | None = None

    @property
    def is_unconditional(self) -> bool:
        """Whether no conditional write fails after a garbage collection, or if the parent was dropped."""
        return self.context.spec_version == 1 and not self.kind.moves_branch


#: Encoded files are stored together when they have this number of bytes.
_TOGETHER = 4 << 20
#: Up to this number of files, such as a snapshot and a transaction log, are encoded without threads.
_ALONE = 2


@contextmanager
def uploading(storage: Storage, flush: ChunkFlush | None = None) -> Iterator[Uploads]:
    """Open a block at whose end all files are durable, and the chunks of ``flush``, to which they refer."""
    with ChunkFlush() if flush is None else flush as chunks:
        uploads = Uploads(storage, chunks)
        try:
            yield uploads
            uploads.confirm()
        finally:
            uploads.cancel()


class Uploads:
    """The uploads in the block of ``uploading``.

    On an object store, each file and action has a thread. On a local disk, threads cost more than they save:
    files are written first and flushed last (``put_many``), and only many files are encoded on threads. The
    conditional write of a commit may flush them with its own file: it calls ``take_files``, and ``confirm``
    when they are stored.
    """

    def __init__(self, storage: Storage, flush: ChunkFlush) -> None:
        self._storage = storage
        self._flush = flush
        self._pool = None if storage.is_local else start_threads(Purpose.COMMIT_UPLOADS)
        self._running: list[Future[None]] = []
        self._encoded: list[tuple[str, Buffer]] = []
        self._waiting = 0  # the bytes of encoded files

    def run(self, action: Callable[[], None]) -> None:
        """Run another action, which is done at the end of the block."""
        # The shared threads, because starting a thread costs as much as flushing a small file.
        pool = self._pool or shared_pool(Purpose.COMMIT_ENCODING)
        self._running.append(pool.submit(action))

    def put(self, files: Sequence[tuple[str, Callable[[], bytes]]]) -> list[int]:
        """Encode files and begin to store them. Return their sizes in bytes."""
        if self._pool is not None:
            futures: list[Future[int]] = [Future() for _ in files]
            for file, future in zip(files, futures, strict=True):
                self.run(partial(self._encode_and_put, *file, future))
            return [future.result() for future in futures]
        encoders = [encode for _, encode in files]
        run = map if len(files) <= _ALONE else shared_pool(Purpose.COMMIT_ENCODING).map
        sizes = []
        for (key, _), data in zip(files, run(call, encoders), strict=True):
            sizes.append(len(data))
            self._encoded.append((key, data))
            self._waiting += len(data)
            if self._waiting > _TOGETHER:
                self._storage.put_many(self._encoded)
                self._encoded, self._waiting = [], 0
        return sizes

    def _encode_and_put(self, key: str, encode: Callable[[], bytes], size: Future[int]) -> None:
        try:
            data = encode()
        except BaseException as error:
            size.set_exception(error)
            raise
        size.set_result(len(data))
        self._storage.put(key, data)

    def take_files(self) -> list[tuple[str, Buffer]]:
        """Return the keys and bytes of the files that are not stored yet. The caller stores them."""
        files = [*self._flush.files, *self._encoded]
        self._encoded, self._waiting = [], 0
        return files

    def confirm(self) -> None:
        """Wait until all files and chunks are durable, and all actions are done. Raise the first error."""
        if self._encoded:
            self._storage.put_many(self._encoded)
            self._encoded, self._waiting = [], 0
        for running in self._running:
            running.result()
        self._flush.confirm()

    def cancel(self) -> None:
        """Cancel uploads that have not begun. After an error, they are not needed."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            return
        for running in self._running:
            running.cancel()
        wait(self._running)


_READERS = 32
#: A commit of more manifests gives them a series of ids, so that the snapshot is small.
_SERIES_FROM = 16


def _manifest_updates(pending: PendingCommit, nodes: NodeTable, files: ManifestFiles) -> list[ManifestUpdate]:
    """Return the updates of arrays with edited chunks, or with manifests that reach out of the grid."""
    changes = pending.changes
    if pending.kind.rewrites_manifests:
        rows = np.flatnonzero(nodes.is_array).tolist()
        arrays = [node for node in map(nodes.exact().node, rows) if node.id not in changes.ready]
    else:
        paths = {edits.path for edits in changes.chunks.values() if edits}
        for path, node in changes.nodes.items():
            if node is not None and node.array is not None:
                stops = ManifestRefs.of(node.array.manifests, len(node.array.shape)).extents[:, :, 1]
                if (stops > np.array(node.array.num_chunks, np.int64)).any():
                    paths.add(path)
        arrays = [changes.array(nodes, path) for path in sorted(paths, key=str.encode)]
    updates = []
    for node in arrays:
        chunk_edits = changes.chunks.get(node.id)
        edits = ChunkTable.empty(len(node.array_data.shape)) if chunk_edits is None else chunk_edits.table()
        row = nodes.find_node(node.path)
        before = () if row < 0 else tuple(nodes.num_chunks.row(row).tolist())
        rewrite, split = _plan(pending, node, edits, files, before)
        updates.append(ManifestUpdate(node, node.array_data, edits, split, rewrite))
    return updates


def _plan(
    pending: PendingCommit, node: Node, edits: ChunkTable, files: ManifestFiles, before: tuple[int, ...]
) -> tuple[ManifestRewrite, Split]:
    """Return the manifests to read for an array, and the division of its references."""
    array, everything = node.array_data, pending.kind.rewrites_manifests
    if pending.context.settings.has_windows and array.shape:
        axes = axes_of(array, before if len(before) == len(array.shape) else array.num_chunks)
        if axes.is_possible:
            listed = id_keys(files.ids)
            order = np.argsort(listed)
            ids = id_keys(ManifestRefs.of(array.manifests, len(array.shape)).ids)
            # Shared files count with all arrays.
            counts = files.num_chunk_refs[order[np.searchsorted(listed[order], ids)]].astype(np.int64)
            return plan_windows(array, edits, counts, axes, everything=everything)
    split = split_of(pending.context, node, num_refs(files, array) + len(edits), pending.kind.unsplit_refs)
    if everything:
        return ManifestRewrite((), array.manifests), split
    return plan_rewrite(array, edits, split), split


def _write_manifests(
    pending: PendingCommit, uploads: Uploads, updates: list[ManifestUpdate]
) -> list[NewManifest]:
    """Put the manifests of all updates. Manifests of earlier attempts are used again where they fit."""
    context = pending.context
    for update in updates:
        earlier = pending.earlier_manifests.get(update.node.id)
        if earlier is not None and update.has_content_of(earlier):
            update.manifests = earlier.manifests
    stored = [each for update in updates for each in update.manifests or ()]
    missing = [update for update in updates if update.manifests is None]
    reads = [ref.id for update in missing for ref in update.rewrite.read]
    threads = max(_READERS, context.settings.concurrent_manifest_fetches)
    old = dict(zip(reads, context.assets.manifests(reads, threads), strict=True))
    if context.settings.statistics or any(update.edits.statistics is not None for update in missing):
        keep = context.assets.with_statistics
        # Arrays can share a manifest.
        old = dict(zip(old, map_bounded(Purpose.CATALOG_READS, keep, old.values(), threads), strict=True))
    contents, by_node = [], {}
    for update in missing:
        id_, update.manifests = update.node.id, []
        by_node[id_] = update.manifests
        arrays = [old[ref.id].arrays for ref in update.rewrite.read]
        tables = [each[id_].of_rank(len(update.array.shape)) for each in arrays if id_ in each]
        contents.append((id_, distribute(update.array, tables, update.edits, update.split)))
    put = put_manifests(context, uploads, contents)
    for manifest in put:
        by_node[manifest.node_id].append(manifest)
    return [*put, *stored]


def split_of(context: Context, node: Node, refs: int, unsplit_refs: int = UNSPLIT_REFS) -> tuple[int, ...]:
    """Return how many chunks along each dimension share a manifest, in an array with ``refs`` references."""
    num_chunks = node.array_data.num_chunks
    refs = min(refs, math.prod(num_chunks))  # edits may replace existing chunks
    if context.settings.has_windows and num_chunks:
        order = axes_of(node.array_data, num_chunks).order
        return boxes_with(num_chunks, refs, capacity_for(refs), order)
    splitting = context.settings.splitting
    if splitting.split_sizes != DEFAULT_SPLITTING.split_sizes:
        return split_sizes_for(splitting, node.path, node.array_data.dimension_names, num_chunks)
    return auto_split(num_chunks, refs, unsplit_refs)


def num_refs(files: ManifestFiles, array: ArrayData) -> int:
    """Return the number of references in the manifests of an array."""
    ids = ManifestRefs.of(array.manifests, len(array.shape)).ids
    rows = np.isin(id_keys(files.ids), id_keys(ids))
    return int(files.num_chunk_refs[rows].sum())


def with_prepared_files(files: ManifestFiles, changes: ChangeSet) -> ManifestFiles:
    """Return ``files`` with the manifest files that workers have prepared for the changes."""
    return (
        ManifestFiles.union([files, *(each.files for each in changes.ready.values())])
        if changes.ready
        else files
    )


def manifest_files(stored: Sequence[NewManifest]) -> ManifestFiles:
    """Return the table of stored manifests."""
    return ManifestFiles(
        id_matrix([each.ref.id for each in stored]),
        np.array([each.size for each in stored], np.uint64),
        np.array([each.num_refs for each in stored], np.uint32),
    )


def put_manifests(
    context: Context,
    uploads: Uploads,
    updates: list[tuple[bytes, list[ChunkTable]]],
    ids: Iterator[bytes] | None = None,
) -> list[NewManifest]:
    """Put manifests with the tables of each node id. Small arrays share a file."""
    settings = context.settings
    encode = partial(
        encode_manifest,
        level=settings.compression_level,
        locations=settings.locations,
        spec_version=context.spec_version,
    )
    files = share(updates)
    if ids is None:
        ids = object_id_series() if len(files) > _SERIES_FROM else iter(new_object_id, b"")
    manifests = list(map(Manifest, ids, files))
    uploads.put(
        [
            (statistics_key(each.id), partial(encode_statistics, each.id, each.arrays))
            for each in manifests
            if has_statistics(each.arrays)
        ]
    )
    sizes = uploads.put([(manifest_key(each.id), partial(encode, each)) for each in manifests])
    counts = [sum(map(len, each.arrays.values())) for each in manifests]
    return [
        NewManifest(node_id, ManifestRef(manifest.id, table.bounds()), manifest, size, count)
        for manifest, size, count in zip(manifests, sizes, counts, strict=True)
        for node_id, table in manifest.arrays.items()
    ]


def write_commit_files(
    pending: PendingCommit, uploads: Uploads, before: SnapshotEntry, replaced: TransactionLog | None
) -> tuple[Snapshot, list[NewManifest], list[ManifestUpdate]]:
    """Put all files of the new version except ``repo``."""
    context, parent, changes = pending.context, pending.parent, pending.changes
    id_ = new_object_id()
    nodes = moved_nodes(parent.nodes, changes.moves)
    files = with_prepared_files(parent.manifests, changes)
    updates = _manifest_updates(pending, nodes, files)
    manifests = _write_manifests(pending, uploads, updates)
    changed = changes.present(nodes)
    for update in updates:
        unchanged = ManifestRefs.of(update.rewrite.unchanged, len(update.array.shape))
        refs = unchanged.join([each.ref for each in update.manifests or ()])
        changed[update.node.path] = replace(update.node, array=replace(update.array, manifests=refs))
    paths = {**changes.nodes, **changed}
    rows = np.fromiter(map(nodes.find_node, paths), np.int64, len(paths))
    nodes = nodes.edit(rows[rows >= 0], NodeTable.from_nodes(list(changed.values())))
    if manifests or len(files):  # only those that the nodes refer to
        files = ManifestFiles.union([files, manifest_files(manifests)])
        needed = nodes.manifests.compact().values.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
        files = files.select_manifests(ids_among(files.ids, needed))
    snapshot = Snapshot(
        id=id_,
        # Later than the parent, even if the clock of this host is late.
        flushed_at=max(now_us(), before.flushed_at + 1),
        message=pending.message,
        metadata=pending.metadata,
        nodes=nodes,
        manifests=files,
        parent_id=parent.id,
        spec_version=context.spec_version,
    )
    level = context.settings.compression_level
    log = transaction_log(changes, id_)
    if replaced is not None:
        log = amended_log(replaced, log)
    encode_log = partial(encode_transaction_log, log, level=level, spec_version=context.spec_version)
    encode = partial(encode_snapshot, snapshot, level=level)
    uploads.put([(snapshot_key(id_), encode), (transaction_key(id_), encode_log)])
    return snapshot, manifests, updates
