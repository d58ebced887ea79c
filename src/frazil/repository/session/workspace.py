"""The workspace of a session, which is a snapshot under layers of changes, and the state of a session.

    snapshot    the committed version
    inherited   changes of the session that created this fork, from before the fork
    sealed      own changes that later forks contain
    changes     own changes since the last fork

A later layer hides an earlier layer. Locks are acquired in this order; every thread may skip some of them:

    1. ``commit_lock``, by commits, and by every change of the workspace: changes wait while a commit runs
    2. the commit queues of the storage and of the catalog, by commits (``Session.commit``)
    3. ``lock``, by changes, and by reads of the layers
    4. the locks of the writer, the reader and the caches, which call nothing back
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Buffer, Mapping
from threading import RLock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import (
    ChangeSet,
    Coords,
    MoveTree,
    PreparedManifests,
    array_node,
    check_coords,
    moved_nodes,
)
from frazil.changes.merge import merge_fork, merge_forks, require_groups
from frazil.changes.reads import PathKind, ReadTracker
from frazil.chunks.reader import ChunkReader
from frazil.chunks.writer import ChunkWriter
from frazil.errors import ErrorKind, ReadOnlyError, StorageError
from frazil.format.chunk_table import within
from frazil.format.columns import U32
from frazil.format.manifest import ChunkRef, ChunkTable, InlineRef, Manifest, NativeRef, find_ref
from frazil.format.snapshot import Node, NodeTable, Snapshot
from frazil.lazy_names import asyncio
from frazil.repository.asynchronous import begin
from frazil.repository.catalog.context import Context, require_listed
from frazil.repository.catalog.repo_changes import no_node
from frazil.repository.ids import new_node_id
from frazil.repository.session.chunk_refs import ArrayEntry, ChunkLookup
from frazil.repository.session.commit_files import ManifestUpdate
from frazil.threads import thread_errors

#: Chunk coordinates are less than this number.
_COORDS_END: Final = 1 << 32


def _has(nodes: Mapping[str, Node | None], node: Node) -> bool:
    own = nodes.get(node.path)
    return own is not None and own.id == node.id


class Workspace:
    """The nodes and chunks that a session sees. Threads may share it."""

    def __init__(
        self,
        context: Context,
        snapshot_id: bytes,
        inherited: ChangeSet | None = None,
        sealed: ChangeSet | None = None,
        changes: ChangeSet | None = None,
        reads: ReadTracker | None = None,
        snapshot: Snapshot | None = None,
        before: Workspace | None = None,
    ) -> None:
        self.context = context
        self.snapshot_id: bytes = snapshot_id
        self.inherited: Final = inherited or ChangeSet()
        self.sealed: ChangeSet = sealed or ChangeSet()
        self.changes: ChangeSet = changes or ChangeSet()
        #: Tracks the reads of the session. None if the session does not track reads.
        self.reads = reads
        # A workspace after a commit has the writer and the reader of the workspace before it.
        access = context.chunk_access() if before is None else (before.writer, before.reader)
        self.writer: ChunkWriter = access[0]
        self.reader: ChunkReader = access[1]
        #: The updates whose manifests earlier attempts of a commit have stored, by node id.
        self.earlier_manifests: dict[bytes, ManifestUpdate] = {}
        #: The paths of nodes that were deleted or replaced, in this order.
        self.removed: list[str] = [] if before is None else before.removed
        #: The number of discards. A discard also drops the bytes of the changes.
        self.discards: int = 0
        self.commit_lock: Final = RLock()
        self.lock: Final = RLock()
        #: Prepared lookups by the path of the array. A change of the node drops its entry.
        self._array_entries: dict[str, ArrayEntry] = {}
        self._snapshot = snapshot  # None until the first access reads its file
        self._start: NodeTable | None = None
        self._base: NodeTable | None = None
        self._moved_base: NodeTable | None = None
        self._tree: MoveTree | None = None
        #: Why the workspace refuses changes, and what to do; None if it allows them.
        self._refusal: tuple[str, str] | None = None
        self._was_changed = False  # stays True if a rebase drops all changes

    def __reduce__(self) -> tuple[Any, ...]:
        with self.lock:
            self.writer.flush()
            # Copies, because chunks that other threads write later are not durable.
            own = self.sealed.copy(), self.changes.copy()
            return (Workspace, (self.context, self.snapshot_id, self.inherited, *own, self.reads))

    # Layers

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot. The first access reads its file."""
        snapshot = self._snapshot
        if snapshot is None:
            try:
                snapshot = self._snapshot = self.context.assets.snapshot(self.snapshot_id)
            except StorageError as error:
                require_listed(self.context, self.snapshot_id, error)
                raise
        return snapshot

    @property
    def has_snapshot(self) -> bool:
        """Whether the snapshot is in memory, so that its nodes need no read."""
        return self._snapshot is not None

    @property
    def start(self) -> NodeTable:
        """The nodes that the joined own changes are relative to."""
        start = self._start
        if start is None:
            nodes = self.snapshot.nodes
            start = self._start = self.inherited.apply(nodes) if self.inherited else nodes
        return start

    @property
    def base(self) -> NodeTable:
        """The nodes that ``changes`` are relative to."""
        base = self._base
        if base is None:
            base = self._base = self.sealed.apply(self.start) if self.sealed else self.start
        return base

    @property
    def moved_base(self) -> NodeTable:
        """The nodes of ``base`` at the paths where ``changes`` has moved them."""
        moved = self._moved_base
        if moved is None:
            moved = self._moved_base = moved_nodes(self.base, self.changes.moves)
        return moved

    def _invalidate(self, *, base: bool = False) -> None:
        """Drop what depends on ``changes``; with ``base`` also what depends on ``sealed``."""
        self._moved_base = self._tree = None
        if base:
            self._base = None
        self._array_entries.clear()

    def array_entry(self, path: str) -> ArrayEntry | None:
        """Return the prepared lookups of the array at ``path``, or None if there is no array."""
        entry = self._array_entries.get(path)
        if entry is None:
            with self.lock:
                node = self.changes.node(self.moved_base, path)
                layers = (self.changes, self.sealed, self.inherited)
                entry = None if node is None else ArrayEntry.of(node, layers)
                if entry is not None:
                    self._array_entries[path] = entry
        return entry

    def _drop_outdated_entry(self, path: str) -> None:
        """Drop the cached entry of an array if it does not contain the current edits."""
        entry = self._array_entries.get(path)
        if entry is not None:
            edits = self.changes.chunks.get(entry.node.id)
            if not entry.edits or entry.edits[0] is not edits:
                del self._array_entries[path]

    def _require_open(self) -> None:
        """Raise ``ReadOnlyError`` (``read-only-store``) after the end."""
        if self._refusal is not None:
            reason, remedy = self._refusal
            raise ReadOnlyError(reason, ErrorKind.READ_ONLY_STORE).with_remedy(remedy, shell="")

    # Changes as a whole

    @property
    def has_changes(self) -> bool:
        """Whether there are own changes, or were before a rebase dropped them."""
        if self.sealed and self.changes:
            return self._was_changed or bool(self.own_changes())  # sealed changes may have been undone
        return self._was_changed or bool(self.sealed or self.changes)

    def own_changes(self) -> ChangeSet:
        """Return all own changes as one change set."""
        with self.lock:
            return merge_forks(self.start, self.sealed, [self.changes]) if self.sealed else self.changes

    def all_changes(self) -> ChangeSet:
        """Return all changes since the snapshot, inherited ones included."""
        own = self.own_changes()
        return merge_forks(self.snapshot.nodes, self.inherited, [own]) if self.inherited else own

    def durable_changes(self) -> ChangeSet:
        """Return a copy of ``own_changes()`` whose chunks are durable. Other threads may write meanwhile."""
        with self.commit_lock, self.lock:
            self.writer.flush()
            return self.own_changes().copy()

    def seal_changes(self, more: ChangeSet | None = None) -> None:
        """Make the own changes until now, and ``more``, part of the base of later changes."""
        with self.commit_lock, self.lock:
            if more:
                self._require_open()
                own = (self.changes.nodes, self.sealed.nodes)
                self.removed += [
                    path
                    for path, node in more.nodes.items()
                    if node is None or (node.id in more.created and not any(_has(each, node) for each in own))
                ]
            for changes in (self.changes, more or ChangeSet()):
                merge_fork(self.start, self.sealed, changes)
                self.changes = ChangeSet()
                self._invalidate(base=bool(changes.nodes or changes.moves))

    def adopt_manifests(self, ready: dict[bytes, PreparedManifests]) -> None:
        """Add manifests that workers have prepared, by node id, with the own edits of their arrays."""
        with self.commit_lock, self.lock:
            self.seal_changes()
            self._require_open()
            for id_ in ready.keys() & self.sealed.chunks.keys():
                del self.sealed.chunks[id_]
            self.sealed.ready.update(ready)
            self._invalidate(base=True)

    def merge_changes(self, forks: list[ChangeSet], twins: set[bytes]) -> None:
        """Add the changes of forks. ``check_forks`` has accepted them."""
        # Only deletions and moves need the base. Without them, a merge does not build it.
        needs_base = any(each.moves or None in each.nodes.values() for each in (*forks, self.sealed))
        merged = merge_forks(self.base if needs_base else self.start, ChangeSet(), forks, twins)
        if needs_base:
            require_groups(self.start, self.base, merged)
        self.seal_changes(merged)

    def replace_changes(self, changes: ChangeSet) -> None:
        """Replace the changes since the last fork by ``changes``."""
        with self.commit_lock, self.lock:
            self._require_open()
            self.changes = changes
            self.discards += 1
            self._invalidate()
            self.writer.forget()

    def discard_changes(self) -> None:
        """Discard all own changes."""
        with self.commit_lock, self.lock:
            for own in (self.sealed, self.changes):
                self.removed += [path for path, node in own.nodes.items() if node and node.id in own.created]
            self.sealed = ChangeSet()
            self.changes = ChangeSet()
            self.earlier_manifests = {}
            self._was_changed = False
            self.discards += 1
            self._invalidate(base=True)
            self.writer.forget()

    def rebase_onto(self, snapshot_id: bytes, changes: ChangeSet) -> None:
        """Continue on another snapshot, with changes that are relative to it."""
        with self.commit_lock, self.lock:
            self._was_changed = self.has_changes
            self.snapshot_id = snapshot_id
            self.sealed = ChangeSet()
            self.changes = changes
            self._snapshot = self._start = None
            self._invalidate(base=True)

    def end(self, reason: str, remedy: str) -> None:
        """Refuse changes from now on. A change that is too late would be lost silently."""
        with self.commit_lock, self.lock:
            self._refusal = (reason, remedy)

    def end_at(self, snapshot_id: bytes) -> Workspace:
        """Refuse changes from now on. Return the workspace of the new snapshot, which refuses them too."""
        successor = Workspace(self.context, snapshot_id, before=self)
        for each in (self, successor):
            each.end(
                "this session has committed its changes",
                "To make more changes, open a session with Repository.writable_session",
            )
        return successor

    # Nodes

    def node(self, path: str) -> Node | None:
        """Return the node at ``path``, or None if there is none."""
        with self.lock:
            return self.changes.node(self.moved_base, path)

    def require_node(self, path: str) -> Node:
        """Return the node at ``path``. Raises ``NodeNotFoundError`` if there is none."""
        node = self.node(path)
        if node is None:
            raise no_node(path, self.moved_base, self.changes.nodes)
        return node

    def require_array(self, path: str) -> Node:
        """Return the array at ``path``. Raises ``InvalidInputError`` (``not-an-array``) for a group."""
        return array_node(self.require_node(path))

    def same_node(self, node: Node) -> Node | None:
        """Return the node here that has the id of another version's node, else its path; None if none has."""
        table = self.node_table()
        rows = np.flatnonzero((table.ids == np.frombuffer(node.id, np.uint8)).all(axis=1))
        return table.node(int(rows[0])) if len(rows) else self.node(node.path)

    def is_array(self, path: str) -> bool:
        """Return whether there is an array at ``path``. This is faster than ``node``."""
        return self.array_entry(path) is not None

    def set_node(self, path: str, document: bytes) -> None:
        """Create a node, or replace its metadata. See ``ChangeSet.set_node``."""
        with self.commit_lock, self.lock:
            self._require_open()
            layers = (self.sealed, self.inherited)
            self.changes.set_node(self.moved_base, path, document, new_node_id, layers)
            self._array_entries.pop(path, None)

    def delete_node(self, path: str) -> None:
        """Delete a node and all nodes below it."""
        with self.commit_lock, self.lock:
            self._require_open()
            self.changes.delete_node(self.moved_base, path)
            self.removed.append(path)
            self._array_entries.clear()

    def move_node(self, source: str, target: str) -> None:
        """Move a node and all nodes below it. See ``MoveTree.move``."""
        with self.commit_lock, self.lock:
            self._require_open()
            if self._tree is None:
                self._tree = MoveTree(self.base, self.changes.moves)
            self._tree.move(source, target)
            self.removed += [source, target]
            self._moved_base = None
            self._array_entries.clear()

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes directly below a group, sorted by bytes."""
        with self.lock:
            names = set(self.moved_base.children(path))
            prefix = path.rstrip("/") + "/"
            for changed, node in self.changes.nodes.items():
                name = changed[len(prefix) :]
                if changed.startswith(prefix) and name and "/" not in name:
                    (names.discard if node is None else names.add)(name)
            return sorted(names, key=str.encode)

    def node_table(self) -> NodeTable:
        """Return all nodes of the session as a table."""
        with self.lock:
            return self.changes.apply_to_moved(self.moved_base)

    # References

    def ref(self, path: str, coords: Coords) -> ChunkRef | None:
        """Return the reference of one chunk, or None if the array or the chunk is missing."""
        entry = self.array_entry(path)
        if entry is None:
            return None
        for edits in entry.edits:
            with self.lock:
                is_edited, ref = edits.find_change(coords)
            if is_edited:
                return ref
        for number in entry.manifests_at(coords):
            (manifest,) = self.manifests([entry.ids[number]])
            ref = find_ref(manifest, entry.node.id, coords)
            if ref is not None:
                return ref
        return None

    def refs_at(self, path: str, index: U32) -> ChunkTable:
        """Return the references of many chunks, in the order of ``index``; ``ABSENT`` for missing chunks."""
        rows = ChunkLookup(index)
        entry = self.array_entry(path)
        if entry is None:
            return rows.table()
        for edits in entry.edits:
            with self.lock:
                rows.look_up(edits.table())
        boxes = entry.boxes.astype(np.int64)
        meeting = entry.manifests_meeting(index)
        gaps = {number: rows.missing_in(boxes[number, :, 0], boxes[number, :, 1]) for number in meeting}
        numbers = [number for number, each in gaps.items() if len(each)]
        manifests = self.manifests([entry.ids[number] for number in numbers])  # all at once
        for number, manifest in zip(numbers, manifests, strict=True):
            table = manifest.arrays.get(entry.node.id)
            if table is not None:
                rows.look_up(table.of_rank(index.shape[1]), gaps[number])
        return rows.table()

    def is_cached(self, path: str, coords: Coords) -> bool:
        """Return whether ``ref`` needs no request for a manifest or the snapshot."""
        if self._base is None:
            return False
        entry = self.array_entry(path)
        if entry is None:
            return True
        has = self.context.assets.has_manifest
        return all(has(entry.ids[number]) for number in entry.manifests_at(coords))

    def ref_table(self, path: str, *, with_statistics: bool = False, first: int = 0) -> ChunkTable:
        """Return all references of an array, on request with their stored statistics.

        With ``first``, those of the chunks from this coordinate of the first dimension on.
        """
        with self.lock:
            node = self.changes.array(self.moved_base, path)
            entry = self.array_entry(path)
            assert entry is not None
            ids = entry.ids
            if first:
                ids = list(itertools.compress(ids, (entry.boxes[:, 0, 1] > first).tolist()))
            manifests = self.manifests(ids)
            if with_statistics:
                manifests = list(map(self.context.assets.with_statistics, manifests))
            ndim = len(node.array_data.shape)
            # The first of two references of one chunk counts, and the later table overrides.
            tables = [
                each.arrays[node.id].of_rank(ndim) for each in reversed(manifests) if node.id in each.arrays
            ]
            tables += [edits.table() for edits in reversed(entry.edits)]
        if not tables:
            return ChunkTable.empty(len(node.array_data.shape))
        table = tables[0] if len(tables) == 1 else ChunkTable.merge_tables(tables)
        table = table.stored()
        is_inside = within(table.index, node.array_data.num_chunks)
        if first:
            is_inside &= table.index[:, 0] >= first
        return table if is_inside.all() else table.select_chunks(is_inside)

    def set_ref(self, path: str, coords: Coords, ref: ChunkRef) -> None:
        """Set one reference. Raises ``InvalidInputError`` (``invalid-chunk-index``) outside of the grid."""
        with self.commit_lock, self.lock:
            self._require_open()
            self._set_ref(self._entry_with_chunk(path, coords), path, coords, ref)

    def set_refs(self, path: str, table: ChunkTable, discards: int | None = None) -> bool:
        """Set many references of one array; delete the ``ABSENT`` ones.

        Return False if the session has discarded its changes since ``discards`` discards, when the bytes of
        the chunks were stored: the writer has then dropped the bytes.
        """
        with self.commit_lock, self.lock:
            if discards is not None and discards != self.discards:
                return False
            self._require_open()
            self.changes.set_chunks(self.moved_base, path, table)
            self._drop_outdated_entry(path)
            return True

    def delete_ref(self, path: str, coords: Coords) -> None:
        """Delete one reference."""
        with self.commit_lock, self.lock:
            self._require_open()
            self.changes.delete_chunk(self.moved_base, path, coords)
            self._drop_outdated_entry(path)

    def delete_refs(self, path: str, index: NDArray[np.uint32]) -> None:
        """Delete references. They must exist. ``index`` has their coordinates, shape (n, ndim)."""
        self.set_refs(path, ChunkTable.from_absent(index))

    def _set_ref(self, entry: ArrayEntry, path: str, coords: Coords, ref: ChunkRef) -> None:
        """Set a reference inside of the grid. The caller holds both locks."""
        edits = self.changes.chunk_changes_of(entry.node)
        edits.set(coords, ref)
        if not entry.edits or entry.edits[0] is not edits:  # these are the first edits of the array
            self._array_entries.pop(path, None)

    def _entry_with_chunk(self, path: str, coords: Coords) -> ArrayEntry:
        """Return the array. Raises an error if it does not exist, or if its grid has no such chunk."""
        entry = self.array_entry(path)
        while entry is None:
            with self.lock:
                self.changes.array(self.moved_base, path)  # raises if there is no array
                entry = self.array_entry(path)
        check_coords(entry.node, coords)
        return entry

    def manifests(self, ids: list[bytes]) -> list[Manifest]:
        """Return manifests of the snapshot, in the order of ``ids``."""
        try:
            return self.context.assets.manifests(ids, self.context.settings.concurrent_manifest_fetches)
        except StorageError as error:
            require_listed(self.context, self.snapshot_id, error)
            raise

    # Bytes

    def read_chunk(self, path: str, coords: Coords) -> Buffer | None:
        """Return the bytes of one chunk, or None for a missing chunk."""
        ref = self.ref(path, coords)
        return None if ref is None else self.read_ref(ref)

    def read_ref(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the bytes ``start`` to ``stop`` of the chunk that a reference points to."""
        try:
            return self.reader.read(ref, start, stop)
        except StorageError as error:
            self._require_listed(ref, error)
            raise

    async def read_ref_async(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the result of ``read_ref``."""
        try:
            return await self.reader.read_async(ref, start, stop)
        except StorageError as error:
            with thread_errors():
                await asyncio.to_thread(self._require_listed, ref, error)
            raise

    def _require_listed(self, ref: ChunkRef, error: StorageError) -> None:
        """Call ``require_listed`` for a native chunk. Garbage collections delete no other chunks."""
        if isinstance(ref, NativeRef):
            require_listed(self.context, self.snapshot_id, error)

    def store_bytes(self, data: Buffer) -> ChunkRef:
        """Store the bytes of a chunk, inline, in a pack or as a file. Return the reference."""
        return self._inline_ref(data) or self.writer.write(data)

    def write_chunk(self, path: str, coords: Coords, data: Buffer) -> None:
        """Store one chunk and set its reference. Raises an error for a chunk outside of the grid."""
        entry = self._entry_with_chunk(path, coords)
        while True:
            discards = self.discards
            if self._set_stored_ref(entry, path, coords, self.store_bytes(data), discards):
                return

    async def write_chunk_async(self, path: str, coords: Coords, data: Buffer) -> None:
        """Store one chunk and set its reference, as ``write_chunk``."""
        entry = self._entry_with_chunk(path, coords)
        while True:
            discards = self.discards
            ref = self._inline_ref(data) or await self.writer.write_async(data)
            if self._set_stored_ref(entry, path, coords, ref, discards):
                return

    def _set_stored_ref(
        self, entry: ArrayEntry, path: str, coords: Coords, ref: ChunkRef, discards: int
    ) -> bool:
        """Set the reference of stored bytes. See ``set_refs``."""
        with self.commit_lock, self.lock:
            if discards != self.discards:
                return False
            self._require_open()
            if self._array_entries.get(path) is not entry:  # the array may have changed or be deleted
                entry = self._entry_with_chunk(path, coords)
            self._set_ref(entry, path, coords, ref)
            return True

    def _inline_ref(self, data: Buffer) -> InlineRef | None:
        size = memoryview(data).nbytes
        threshold = self.context.settings.inline_chunk_threshold_bytes
        return InlineRef(bytes(data)) if 0 < size <= threshold else None

    # Reads of a session that tracks them. Its own changes are not noted, because nobody else can change them.

    def note_document(self, path: str) -> None:
        """Note a read of the metadata of the node at ``path``, or a test whether there is a node."""
        if self.reads is not None and not any(path in layer.nodes for layer in self._layers()):
            self.reads.path("documents", path)

    def note_tree(self, path: str, kind: PathKind = "trees") -> None:
        """Note a read of all nodes and chunks at and below ``path``."""
        if self.reads is not None and not self._is_own_tree(path):
            self.reads.path(kind, path)

    def note_chunk(self, path: str, coords: Coords) -> None:
        """Note a read of a chunk, or a test whether there is a chunk."""
        if self.reads is None:
            return
        entry = self.array_entry(path)
        if entry is None or not all(0 <= each < _COORDS_END for each in coords):
            self.note_document(path)  # no session can write such a chunk
            return
        with self.lock:
            is_own = any(edits.find_change(coords)[0] for edits in entry.edits)
        if not is_own and not self._is_own_tree(path):
            self.reads.chunk(path, coords)

    def note_chunks(self, path: str, index: U32) -> None:
        """Note reads of many chunks of an array, whose coordinates are rows of ``index``."""
        if self.reads is None or self._is_own_tree(path):
            return
        entry = self.array_entry(path)
        if entry is None:
            self.note_document(path)
            return
        is_foreign = np.ones(len(index), np.bool_)
        for edits in entry.edits:
            with self.lock:
                is_foreign &= edits.table().find_chunks(index) < 0
        self.reads.chunks(path, index[is_foreign])

    def _layers(self) -> tuple[ChangeSet, ChangeSet, ChangeSet]:
        """Return the layers of changes, newest first."""
        return self.changes, self.sealed, self.inherited

    def _is_own_tree(self, path: str) -> bool:
        """Return whether this session has created or deleted the node at ``path`` and all nodes below it."""
        layer = next((layer for layer in self._layers() if path in layer.nodes), None)
        if layer is None:
            return False
        node, nodes = layer.nodes[path], self.snapshot.nodes
        below = nodes.below(path)
        # The snapshot may have nodes without a group above them. A deletion deletes all nodes below a path.
        is_free = nodes.find_node(path) >= 0 or below.start == below.stop
        return node is None or (is_free and any(node.id in each.created for each in self._layers()))


def size_of(ref: ChunkRef) -> int:
    """Return the number of bytes of a chunk."""
    return len(ref.data) if isinstance(ref, InlineRef) else ref.length


_log: Final = logging.getLogger(__name__)


def preload(workspace: Workspace) -> None:
    """Begin to load the manifests that the configuration selects. Local manifests are fast to read later."""
    manifest = workspace.context.config.manifest
    if manifest is not None and manifest.preload is not None and not workspace.context.storage.is_local:
        begin(_load, workspace)


def _load(workspace: Workspace) -> None:
    context, settings = workspace.context, workspace.context.settings
    try:
        snapshot = workspace.snapshot
        counts = dict(
            zip(map(bytes, snapshot.manifests.ids), snapshot.manifests.num_chunk_refs.tolist(), strict=True)
        )
        sizes: dict[bytes, int] = {}
        rows = np.flatnonzero(snapshot.nodes.is_array)[: settings.preload_max_arrays_to_scan]
        for node in map(snapshot.nodes.node, rows.tolist()):
            if node.array is None:
                continue
            ids = {ref.id: counts.get(ref.id, 0) for ref in node.array.manifests}
            total = sum((sizes | ids).values())
            if total <= settings.preload_max_total_refs and settings.preloads(node.path, sum(ids.values())):
                sizes |= ids
        context.assets.manifests(list(sizes), settings.concurrent_manifest_fetches)
    except Exception as error:
        _log.debug("manifests were not preloaded: %s", error)
