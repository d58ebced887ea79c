"""A repository's nodes and chunks as one session sees them.

    snapshot    what was committed
    inherited   what the session that this one was forked from had changed
    sealed      own changes that forks have seen
    changes     own changes since the last fork

A later layer hides an earlier one. Nodes of all but the last are joined once; references are looked up layer
by layer, and in the manifests last.

A commit keeps all changes waiting until it is done, and refuses them then: one that came too late to be part
of it would be lost in silence.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Buffer
from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet, check_coords, in_grid, manifest_covers
from frazil.changes.chunk_edits import ChunkEdits, Coords
from frazil.changes.merge import absorb, merge_forks
from frazil.changes.moves import Tree
from frazil.changes.prepared_manifests import Ready
from frazil.errors import ErrorKind, InvalidInputError, ReadOnlyError, StorageError
from frazil.format.manifest import ChunkRef, ChunkTable, InlineRef, Manifest, NativeRef
from frazil.format.snapshot import Node, NodeTable, Snapshot
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.expired_versions import require_listed
from frazil.repository.catalog.missing_names import no_node
from frazil.repository.clock import new_node_id
from frazil.repository.session.earlier_manifests import EarlierManifests
from frazil.repository.session.read_set import ReadTracker

#: Indices of chunks are less.
_END: Final = 1 << 32


@dataclass(frozen=True, slots=True, eq=False)
class _Array:
    """An array ready for lookups: edits newest first, then the boxes of its manifests."""

    node: Node
    edits: tuple[ChunkEdits, ...]
    lows: list[list[int]]
    highs: list[list[int]]


class Workspace:
    """See the module. Threads may share it."""

    def __init__(
        self,
        context: Context,
        snapshot_id: bytes,
        inherited: ChangeSet | None = None,
        sealed: ChangeSet | None = None,
        changes: ChangeSet | None = None,
        reads: ReadTracker | None = None,
    ) -> None:
        self.context = context
        self.snapshot_id = snapshot_id
        self.inherited = inherited or ChangeSet()
        self.sealed = sealed or ChangeSet()
        self.changes = changes or ChangeSet()
        #: Notes what the session reads, if that was asked for.
        self.reads = reads
        self.writer = context.writer()
        self.reader = context.reader(self.writer)
        self._arrays: dict[str, _Array] = {}
        self._lock = RLock()
        self.earlier_manifests = EarlierManifests()
        self._committed = False
        self._discards = 0
        self._was_changed = False  # even if a rebase left nothing of it
        self._turn = RLock()  # of changes and commits; always taken before the other lock

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            self.writer.flush()
            # Copies: what other threads write until they are pickled is not durable.
            own = self.sealed.copy(), self.changes.copy()
            return (Workspace, (self.context, self.snapshot_id, self.inherited, *own, self.reads))

    @cached_property
    def snapshot(self) -> Snapshot:
        """``SessionSnapshotNotFoundError`` if it was expired and collected; so everything that reads."""
        try:
            return self.context.assets.snapshot(self.snapshot_id)
        except StorageError as error:
            require_listed(self.context, self.snapshot_id, error)
            raise

    @cached_property
    def start(self) -> NodeTable:
        """Nodes that all own changes together are relative to."""
        nodes = self.snapshot.nodes
        return self.inherited.apply(nodes) if self.inherited else nodes

    @cached_property
    def base(self) -> NodeTable:
        """Nodes that ``changes`` are relative to."""
        return self.sealed.apply(self.start) if self.sealed else self.start

    @cached_property
    def here(self) -> NodeTable:
        """The nodes of ``base`` at the places where ``changes`` has moved them."""
        return self.changes.moved(self.base)

    @cached_property
    def _tree(self) -> Tree:
        return Tree(self.base, self.changes.moves)

    @property
    def has_changes(self) -> bool:
        if self.sealed and self.changes:
            return self._was_changed or bool(self.own())  # what was sealed may have been taken back
        return self._was_changed or bool(self.sealed or self.changes)

    def own(self) -> ChangeSet:
        """All own changes as one."""
        with self._lock:
            return merge_forks(self.start, self.sealed, [self.changes]) if self.sealed else self.changes

    def everything(self) -> ChangeSet:
        """All changes since the snapshot, what was inherited included."""
        own = self.own()
        return merge_forks(self.snapshot.nodes, self.inherited, [own]) if self.inherited else own

    def seal(self, more: ChangeSet | None = None) -> None:
        """Own changes until now, and ``more``, become the base of later ones."""
        with self._turn, self._lock:
            if more:
                self._require_uncommitted()
            for changes in (self.changes, more or ChangeSet()):
                absorb(self.start, self.sealed, changes)
                self.changes = ChangeSet()
                self._forget("here", "_tree", *(["base"] if changes.nodes or changes.moves else []))

    def adopt(self, ready: dict[bytes, Ready]) -> None:
        """Manifests that others have written, in which the own edits of these arrays are contained."""
        with self._turn, self._lock:
            self.seal()
            self._require_uncommitted()
            for id_ in ready.keys() & self.sealed.chunks.keys():
                del self.sealed.chunks[id_]
            self.sealed.ready.update(ready)
            self._forget("base", "here", "_tree")

    def merge(self, forks: list[ChangeSet], twins: set[bytes]) -> None:
        """Take over the changes of forks that ``check_forks`` had nothing against."""
        # Where nothing is gone or moved nobody asks what the base is, and it need not be made for each merge.
        asked = any(fork.moves or None in fork.nodes.values() for fork in forks)
        self.seal(merge_forks(self.base if asked else self.start, ChangeSet(), forks, twins))

    def moved_to(self, snapshot_id: bytes) -> Workspace:
        """A workspace on the snapshot that the changes became, which takes none itself."""
        self._committed = True
        moved = Workspace(self.context, snapshot_id)
        moved._committed = True
        return moved

    def continue_on(self, snapshot_id: bytes, changes: ChangeSet) -> None:
        """Go on from another snapshot, with changes that were made for it."""
        with self._turn, self._lock:
            self._was_changed = self.has_changes
            self.snapshot_id = snapshot_id
            self.sealed = ChangeSet()
            self.changes = changes
            self._forget("snapshot", "start", "base", "here", "_tree")

    def taken(self) -> ChangeSet:
        """A copy of ``own()``, all of whose chunks are durable: other threads may go on."""
        with self._turn, self._lock:
            self.writer.flush()
            return self.own().copy()

    def keep(self, data: Buffer) -> ChunkRef:
        """Store the bytes of a chunk, inline or in a pack."""
        return self._inline(data) or self.writer.write(data)

    def committing(self) -> RLock:
        """To hold while the changes are committed."""
        return self._turn

    def _require_uncommitted(self) -> None:
        if self._committed:
            raise ReadOnlyError(
                "this session has committed its changes: open a new one with Repository.writable_session "
                "to change more",
                ErrorKind.READ_ONLY_STORE,
            )

    def replace(self, changes: ChangeSet) -> None:
        """Other changes than those that were made since forks have last seen them."""
        with self._turn, self._lock:
            self._require_uncommitted()
            self.changes = changes
            self._discards += 1
            self._forget("here", "_tree")
            self.writer.forget()

    def discard(self) -> None:
        """Forget own changes."""
        with self._turn, self._lock:
            self.sealed = ChangeSet()
            self.changes = ChangeSet()
            self.earlier_manifests = EarlierManifests()
            self._was_changed = False
            self._discards += 1
            self._forget("base", "here", "_tree")
            self.writer.forget()

    # Nodes

    def node(self, path: str) -> Node | None:
        with self._lock:
            return self.changes.node(self.here, path)

    def require(self, path: str) -> Node:
        """The node at ``path``; ``NodeNotFoundError`` if there is none."""
        node = self.node(path)
        if node is None:
            raise no_node(path, self.here, self.changes.nodes)
        return node

    def require_array(self, path: str) -> Node:
        """``require``; ``InvalidInputError`` (``not-an-array``) for a group."""
        node = self.require(path)
        if node.array is None:
            raise InvalidInputError(
                f"expected an array at `{path}`, found a group: name an array in it", ErrorKind.NOT_AN_ARRAY
            )
        return node

    def is_array(self, path: str) -> bool:
        """Cheaper than ``node`` where it is asked for every chunk."""
        return self._array(path) is not None

    def set_node(self, path: str, document: bytes) -> None:
        with self._turn, self._lock:
            self._require_uncommitted()
            self.changes.set_node(self.here, path, document, new_node_id, (self.sealed, self.inherited))
            self._arrays.pop(path, None)

    def delete_node(self, path: str) -> None:
        with self._turn, self._lock:
            self._require_uncommitted()
            self.changes.delete_node(self.here, path)
            self._arrays.clear()

    def move_node(self, source: str, target: str) -> None:
        """Move a node and all below it; see ``Tree.move``."""
        with self._turn, self._lock:
            self._require_uncommitted()
            self._tree.move(source, target)
            self._forget("here")

    def children(self, path: str) -> list[str]:
        """Names of the nodes directly below a group, sorted by bytes."""
        with self._lock:
            names = set(self.here.children(path))
            prefix = path.rstrip("/") + "/"
            for changed, node in self.changes.nodes.items():
                name = changed[len(prefix) :]
                if changed.startswith(prefix) and name and "/" not in name:
                    (names.discard if node is None else names.add)(name)
            return sorted(names, key=str.encode)

    def nodes_table(self) -> NodeTable:
        """All nodes, changes included."""
        with self._lock:
            return self.changes.edited(self.here)

    # What was read. Nothing is noted of what the session has made: nobody else can change that.

    def note_document(self, path: str) -> None:
        """The metadata of the node at ``path`` are about to be read, or it is looked whether there is one."""
        if self.reads is not None and not self._is_changed(path):
            self.reads.document(path)

    def note_members(self, path: str) -> None:
        """The members of a group are about to be listed."""
        if self.reads is not None and not self._is_own_tree(path):
            self.reads.members(path)

    def note_tree(self, path: str) -> None:
        """All that is at and below ``path`` is about to be read."""
        if self.reads is not None and not self._is_own_tree(path):
            self.reads.tree(path)

    def note_chunk(self, path: str, coords: Coords) -> None:
        """A chunk is about to be read, or it is looked whether there is one."""
        if self.reads is None:
            return
        array = self._array(path)
        if array is None or not all(0 <= each < _END for each in coords):
            self.note_document(path)  # nobody can write such a chunk
            return
        with self._lock:
            is_own = any(edits.get(coords)[0] for edits in array.edits)
        if not is_own and not self._is_own_tree(path):
            self.reads.chunk(path, coords)

    def _layers(self) -> tuple[ChangeSet, ChangeSet, ChangeSet]:
        return self.changes, self.sealed, self.inherited

    def _is_changed(self, path: str) -> bool:
        """Whether this session has created, changed or deleted the node at ``path``."""
        return any(path in layer.nodes for layer in self._layers())

    def _is_own_tree(self, path: str) -> bool:
        """Whether this session has created or deleted a node, and so has made all that is below it."""
        layer = next((layer for layer in self._layers() if path in layer.nodes), None)
        if layer is None:
            return False
        node, nodes = layer.nodes[path], self.snapshot.nodes
        below = nodes.below(path)
        # A group may be missing above nodes that are there. What is at a path is deleted with all below it.
        is_free = nodes.find(path) >= 0 or below.start == below.stop
        return node is None or (is_free and any(node.id in each.created for each in self._layers()))

    # References

    def ref(self, path: str, coords: Coords) -> ChunkRef | None:
        """The reference of one chunk; None if there is no such array, chunk or reference."""
        array = self._array(path)
        if array is None:
            return None
        for edits in array.edits:
            with self._lock:
                known, ref = edits.get(coords)
            if known:
                return ref
        assert array.node.array is not None
        for number, (low, high) in enumerate(zip(array.lows, array.highs, strict=True)):
            if len(low) == len(coords) and all(a <= c < b for a, c, b in zip(low, coords, high, strict=True)):
                table = self._manifest(array.node, number)
                row = table.find(coords)
                if row >= 0:
                    return table.ref(row)
        return None

    def is_at_hand(self, path: str, coords: Coords) -> bool:
        """Whether ``ref`` would answer without asking the storage for a manifest or the snapshot."""
        if "base" not in self.__dict__:
            return False
        array = self._array(path)
        if array is None or array.node.array is None:
            return True
        has = self.context.assets.has_manifest
        return all(has(ref.id) for ref in array.node.array.manifests if manifest_covers(ref.extents, coords))

    def table(self, path: str) -> ChunkTable:
        """All references of an array."""
        with self._lock:
            node = self.changes.array(self.here, path)
            array = self._array(path)
            assert array is not None
            assert node.array is not None
            manifests = self._manifests([ref.id for ref in node.array.manifests])
            tables = [manifest.arrays[node.id] for manifest in manifests if node.id in manifest.arrays]
            tables += [edits.table() for edits in reversed(array.edits)]
        if not tables:
            return ChunkTable.empty(len(node.array.shape))
        table = tables[0] if len(tables) == 1 else ChunkTable.merge(tables)
        table = table.stored()
        inside = (table.index < np.array(node.array.num_chunks, np.uint64)).all(axis=1)
        return table if inside.all() else table.take(inside)

    def set_ref(self, path: str, coords: Coords, ref: ChunkRef) -> None:
        with self._turn, self._lock:
            self._require_uncommitted()
            self.changes.set_chunk(self.here, path, coords, ref)
            self._forget_without_edits(path)

    def set_refs(self, path: str, table: ChunkTable) -> None:
        """Set many at once."""
        with self._turn, self._lock:
            self._require_uncommitted()
            self.changes.set_chunks(self.here, path, table)
            self._forget_without_edits(path)

    def delete_ref(self, path: str, coords: Coords) -> None:
        with self._turn, self._lock:
            self._require_uncommitted()
            self.changes.delete_chunk(self.here, path, coords)
            self._forget_without_edits(path)

    def delete_refs(self, path: str, index: NDArray[np.uint32]) -> None:
        """Delete the references at coordinates of shape (n, ndim), which have to be there."""
        self.set_refs(path, ChunkTable.from_absent(index))

    # Bytes

    def read(self, path: str, coords: Coords, start: int = 0, stop: int | None = None) -> Buffer | None:
        """Bytes of one chunk, None if it is not there."""
        ref = self.ref(path, coords)
        return None if ref is None else self.read_ref(ref, start, stop)

    async def read_async(
        self, path: str, coords: Coords, start: int = 0, stop: int | None = None
    ) -> Buffer | None:
        ref = self.ref(path, coords)
        return None if ref is None else await self.read_ref_async(ref, start, stop)

    def read_ref(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Bytes of the chunk behind a reference."""
        try:
            return self.reader.read(ref, start, stop)
        except StorageError as error:
            self._require_kept(ref, error)
            raise

    async def read_ref_async(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        try:
            return await self.reader.read_async(ref, start, stop)
        except StorageError as error:
            await to_thread(self._require_kept, ref, error)
            raise

    def _require_kept(self, ref: ChunkRef, error: StorageError) -> None:
        if isinstance(ref, NativeRef):  # other chunks are in nobody's care
            require_listed(self.context, self.snapshot_id, error)

    def write(self, path: str, coords: Coords, data: Buffer) -> None:
        """Store one chunk: inline, packed, or as a file of its own."""
        self._check(path, coords)
        while True:
            kept_in = self._discards
            if self._set_kept(path, coords, self.keep(data), kept_in):
                return

    async def write_async(self, path: str, coords: Coords, data: Buffer) -> None:
        self._check(path, coords)
        while True:
            kept_in = self._discards
            ref = self._inline(data) or await self.writer.write_async(data)
            if self._set_kept(path, coords, ref, kept_in):
                return

    def _set_kept(self, path: str, coords: Coords, ref: ChunkRef, kept_in: int) -> bool:
        """``set_ref``; False if the bytes were forgotten meanwhile, with all that was discarded."""
        with self._turn:
            if kept_in != self._discards:
                return False
            self.set_ref(path, coords, ref)
            return True

    def _check(self, path: str, coords: Coords) -> None:
        # Before the bytes are written, so that a wrong key leaves nothing behind.
        array = self._array(path)
        if array is None:
            with self._lock:
                check_coords(self.changes.array(self.here, path), coords)
        elif not in_grid(array.node, coords):
            check_coords(array.node, coords)

    def _inline(self, data: Buffer) -> InlineRef | None:
        size = memoryview(data).nbytes
        return (
            InlineRef(bytes(data)) if 0 < size <= self.context.settings.inline_chunk_threshold_bytes else None
        )

    def _array(self, path: str) -> _Array | None:
        array = self._arrays.get(path)
        if array is None:
            with self._lock:
                node = self.changes.node(self.here, path)
                if node is None or node.array is None:
                    return None
                layers = [layer.chunks.get(node.id) for layer in (self.changes, self.sealed, self.inherited)]
                boxes = [ref.extents for ref in node.array.manifests]
                array = _Array(
                    node,
                    tuple(edits for edits in layers if edits is not None),
                    [box[:, 0].tolist() for box in boxes],
                    [box[:, 1].tolist() for box in boxes],
                )
                self._arrays[path] = array
        return array

    def _forget(self, *derived: str) -> None:
        """What was worked out from changes that are no more, or no more all."""
        for name in derived:
            self.__dict__.pop(name, None)
        self._arrays.clear()

    def _forget_without_edits(self, path: str) -> None:
        array = self._arrays.get(path)
        if array is not None and self.changes.chunks.get(array.node.id) not in array.edits:
            del self._arrays[path]

    def _manifest(self, node: Node, number: int) -> ChunkTable:
        assert node.array is not None
        (manifest,) = self._manifests([node.array.manifests[number].id])
        table = manifest.arrays.get(node.id)
        return ChunkTable.empty(len(node.array.shape)) if table is None else table

    def _manifests(self, ids: list[bytes]) -> list[Manifest]:
        """Manifests of the snapshot."""
        try:
            return self.context.assets.manifests(ids, self.context.settings.concurrent_manifest_fetches)
        except StorageError as error:
            require_listed(self.context, self.snapshot_id, error)
            raise


def size_of(ref: ChunkRef) -> int:
    """Number of bytes of a chunk."""
    return len(ref.data) if isinstance(ref, InlineRef) else ref.length
