"""The files of a new version except ``repo``: manifests, transaction log and snapshot, and their upload.

A later attempt uses such a manifest again if it would write the same content: the edits of the array are
equal, and the old manifests that the commit merges with the edits are the same.

Each file costs a round trip on an object store, or a flush on a local disk, whatever its size. The files of a
commit refer to each other by ids and sizes. Both are known before the files are stored, so all files can be
uploaded at the same time. Only the conditional write comes after them.

On an object store, a thread uploads each file. On a local disk, threads cost more than they save: the files
are written first and flushed last (``Storage.put_many``). Threads only encode, if there are many files. The
conditional write of a commit may flush them together with its own file: ``Uploads.take_files`` returns these
files, and the caller calls ``confirm`` when they are stored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Buffer, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, override

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.diff import amended_log, transaction_log
from frazil.changes.manifests import (
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
from frazil.format.columns import I64, U8
from frazil.format.ids import (
    OBJECT_ID_BYTES,
    id_keys,
    id_matrix,
    ids_among,
    manifest_key,
    snapshot_key,
    transaction_key,
)
from frazil.format.manifest import ChunkTable, LocationCompression, Manifest, encode_manifest
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
from frazil.format.transaction_log import TransactionLog, encode_transaction_log
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_changes import MetadataEdit
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id, object_id_series
from frazil.storage.base import Storage
from frazil.storage.local_commit import put_many
from frazil.threads import Purpose, shared_pool, start_threads


@dataclass(frozen=True, slots=True)
class NewManifest:
    """The part of one array in a manifest file that a commit has stored.

    ``ref`` has the box of the array. ``size`` is the size of the whole file in bytes.
    """

    node_id: bytes
    ref: ManifestRef
    manifest: Manifest
    size: int

    @property
    def num_refs(self) -> int:
        """The number of references in the whole file."""
        return sum(map(len, self.manifest.arrays.values()))


@dataclass(frozen=True, slots=True, eq=False)
class ManifestUpdate:
    """An array whose manifests a commit updates, with its edits, its split, and the old manifests to read."""

    node: Node
    array: ArrayData
    edits: ChunkTable
    split: Split
    rewrite: ManifestRewrite

    @property
    def inputs(self) -> tuple[object, ...]:
        """The inputs that determine the content of the new manifests, except for the edits."""
        return (self.array.num_chunks, self.split, tuple(ref.id for ref in self.rewrite.read))


@dataclass(frozen=True, slots=True)
class _AttemptResult:
    """The manifests of one array in one attempt, and the inputs that determine their content."""

    inputs: tuple[object, ...]
    edits: ChunkTable
    manifests: tuple[NewManifest, ...]


class EarlierManifests:
    """The manifests that earlier attempts of one commit have stored, by array."""

    def __init__(self) -> None:
        self._stored: dict[bytes, _AttemptResult] = {}
        self._pending: dict[bytes, _AttemptResult] = {}

    def find_manifests(self, update: ManifestUpdate) -> tuple[NewManifest, ...] | None:
        """Return stored manifests with the content of this update, or None."""
        stored = self._stored.get(update.node.id)
        if stored is None or stored.inputs != update.inputs or not stored.edits.equals(update.edits):
            return None
        return stored.manifests

    def add_manifests(self, update: ManifestUpdate, manifests: Iterable[NewManifest]) -> None:
        """Record manifests whose upload has begun. The caller calls ``confirm_stored`` afterwards."""
        self._pending[update.node.id] = _AttemptResult(update.inputs, update.edits, tuple(manifests))

    def confirm_stored(self) -> None:
        """Record that all added manifests are durable."""
        self._stored |= self._pending
        self._pending = {}

    def forget_manifests(self) -> None:
        """Forget all manifests: a garbage collection may have deleted them."""
        self._stored, self._pending = {}, {}


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


COMMIT: Final = CommitKind("commit")
AMEND: Final = CommitKind("amend", replaces_parent=True)
FLUSH: Final = CommitKind("flush", moves_branch=False, needs_changes=False)
REWRITE: Final = CommitKind("rewrite", needs_changes=False, rewrites_manifests=True)
REWRITE_AMEND: Final = CommitKind(
    "rewrite", replaces_parent=True, needs_changes=False, rewrites_manifests=True
)


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommit:
    """The inputs of a commit.

    Attributes:
        branch: The branch of the session. It can be None for a flush.
        parent: The snapshot that the changes are relative to.
        session_start: When the session started. Only a later garbage collection can have deleted its files.
        writer: The writer of the chunks of the changes. None if all of them are durable.
        earlier_manifests: Manifests that earlier attempts of this commit have stored.
        note: Changes the metadata of the repository in the same update (spec version 2).
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
    earlier_manifests: EarlierManifests = field(default_factory=EarlierManifests)
    note: MetadataEdit | None = None

    def begin_flush(self, *, is_joint: bool) -> ChunkFlush:
        """Begin to make the chunks of the changes durable.

        With ``is_joint``, the caller stores the files of the flush together with its own files.
        """
        if self.writer is None:
            return ChunkFlush()
        return self.writer.begin_joint_flush() if is_joint else self.writer.begin_uploads()

    @property
    def target_branch(self) -> str | None:
        """The branch that this commit moves. None for a flush."""
        return self.branch if self.kind.moves_branch else None

    @property
    def is_unconditional(self) -> bool:
        """Whether the commit makes no conditional write.

        Such a write fails after a garbage collection, or if the parent was dropped.
        """
        return self.context.spec_version == 1 and not self.kind.moves_branch


#: Encoded files are stored together when they have this number of bytes.
_TOGETHER = 32 << 20
#: Up to this number of files, such as a snapshot and a transaction log, are encoded without threads.
_ALONE = 2


@contextmanager
def uploading(storage: Storage, flush: ChunkFlush | None = None) -> Iterator[Uploads]:
    """Open a block at whose end all files are durable, and the chunks of ``flush``, to which they refer."""
    with ChunkFlush() if flush is None else flush as chunks:
        uploads = (_LocalUploads if storage.is_local else _RemoteUploads)(storage, chunks)
        try:
            yield uploads
            uploads.confirm()
        finally:
            uploads.cancel()


class Uploads(ABC):
    """The uploads in the block of ``uploading``."""

    def __init__(self, storage: Storage, flush: ChunkFlush) -> None:
        self._storage = storage
        self._flush = flush
        self._running: list[Future[None]] = []

    @abstractmethod
    def run(self, action: Callable[[], None]) -> None:
        """Run another action, which is done at the end of the block."""

    @abstractmethod
    def put(self, key: str, encode: Callable[[], bytes]) -> Future[int]:
        """Encode and store a file. Return its size in bytes, as a future."""

    def take_files(self) -> list[tuple[str, Buffer]]:
        """Return the keys and bytes of the files that are not stored yet. The caller stores them."""
        return list(self._flush.files)

    def confirm(self) -> None:
        """Wait until all files and chunks are durable, and all actions are done. Raise the first error."""
        for running in self._running:
            running.result()
        self._flush.confirm()

    @abstractmethod
    def cancel(self) -> None:
        """Cancel uploads that have not begun. After an error, they are not needed."""


class _RemoteUploads(Uploads):
    """Uploads to an object store: each file and action has a thread."""

    def __init__(self, storage: Storage, flush: ChunkFlush) -> None:
        super().__init__(storage, flush)
        self._pool = start_threads(Purpose.COMMIT_UPLOADS)

    @override
    def run(self, action: Callable[[], None]) -> None:
        self._running.append(self._pool.submit(action))

    @override
    def put(self, key: str, encode: Callable[[], bytes]) -> Future[int]:
        size: Future[int] = Future()

        def work() -> None:
            try:
                data = encode()
            except BaseException as error:
                size.set_exception(error)
                raise
            size.set_result(len(data))
            self._storage.put(key, data)

        self.run(work)
        return size

    @override
    def cancel(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class _LocalUploads(Uploads):
    """Uploads to a local disk: files are encoded when a size is needed, and stored at the end."""

    def __init__(self, storage: Storage, flush: ChunkFlush) -> None:
        super().__init__(storage, flush)
        self._plain: list[tuple[str, Callable[[], bytes], _Size]] = []
        self._encoded: list[tuple[str, Buffer]] = []
        self._waiting = 0

    @override
    def run(self, action: Callable[[], None]) -> None:
        self._running.append(shared_pool(Purpose.COMMIT_ENCODING).submit(action))

    @override
    def put(self, key: str, encode: Callable[[], bytes]) -> Future[int]:
        size = _Size(self._encode)
        self._plain.append((key, encode, size))
        return size

    @override
    def take_files(self) -> list[tuple[str, Buffer]]:
        return [*super().take_files(), *self._take_encoded()]

    @override
    def confirm(self) -> None:
        if files := self._take_encoded():
            put_many(self._storage, files)
        super().confirm()

    @override
    def cancel(self) -> None:
        for running in self._running:
            running.cancel()
        wait(self._running)

    def _take_encoded(self) -> list[tuple[str, Buffer]]:
        self._encode()
        files, self._encoded, self._waiting = self._encoded, [], 0
        return files

    def _encode(self) -> None:
        plain, self._plain = self._plain, []
        encoders = [encode for _, encode, _ in plain]
        # The shared threads, because starting a thread costs as much as flushing a small file.
        run = map if len(encoders) <= _ALONE else shared_pool(Purpose.COMMIT_ENCODING).map
        for (key, _, size), data in zip(plain, run(lambda encode: encode(), encoders), strict=True):
            size.set_result(len(data))
            self._encoded.append((key, data))
            self._waiting += len(data)
            if self._waiting > _TOGETHER:
                files, self._encoded, self._waiting = self._encoded, [], 0
                put_many(self._storage, files)


class _Size(Future[int]):
    """The size of a file. The first call of ``result`` encodes the file."""

    def __init__(self, encode: Callable[[], None]) -> None:
        super().__init__()
        self._encode = encode

    @override
    def result(self, timeout: float | None = None) -> int:
        if not self.done():
            self._encode()
        return super().result(timeout)


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


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """The new snapshot and its new manifests."""

    snapshot: Snapshot
    manifests: list[NewManifest]

    @property
    def manifest_ids(self) -> U8:
        """The ids of the new manifest files, shape (k, 12)."""
        return id_matrix([each.ref.id for each in self.manifests])

    def store_in_cache(self, assets: Assets) -> None:
        """Put the files into the cache of the repository, so that the next session does not read them."""
        assets.store_snapshot(self.snapshot)
        for manifest in {each.manifest.id: each.manifest for each in self.manifests}.values():
            assets.store_manifest(manifest)


def write_commit_files(
    pending: PendingCommit, uploads: Uploads, before: SnapshotEntry, replaced: TransactionLog | None
) -> CommitFiles:
    """Put all files of the new version except ``repo``.

    ``before`` is the entry of the parent. ``replaced`` is the transaction log of the commit that the new
    commit replaces.
    """
    context, parent = pending.context, pending.parent
    id_ = new_object_id()
    nodes, manifests = write_manifests(pending, uploads)
    snapshot = Snapshot(
        id=id_,
        # Later than the parent, even if the clock of this host is late.
        flushed_at=max(now_us(), before.flushed_at + 1),
        message=pending.message,
        metadata=pending.metadata,
        nodes=nodes,
        manifests=referenced_files(with_prepared_files(parent.manifests, pending.changes), nodes, manifests),
        parent_id=parent.id,
        spec_version=context.spec_version,
    )
    level = context.settings.compression_level
    log = transaction_log(pending.changes, id_)
    if replaced is not None:
        log = amended_log(replaced, log)
    uploads.put(snapshot_key(id_), lambda: encode_snapshot(snapshot, level=level))
    uploads.put(
        transaction_key(id_),
        lambda: encode_transaction_log(log, level=level, spec_version=context.spec_version),
    )
    return CommitFiles(snapshot, manifests)
