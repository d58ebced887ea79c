"""The chunks of a workspace: references and bytes, with the session's changes.

A lookup of a reference searches the layers of changes first, from the newest to the oldest, and then the
manifests.
"""

from __future__ import annotations

from collections.abc import Buffer, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import check_coords
from frazil.changes.chunk_changes import Coords
from frazil.errors import FormatError, StorageError
from frazil.format.columns import U32
from frazil.format.coordinates import within
from frazil.format.lazy_manifest import find_ref
from frazil.format.manifest import ChunkRef, ChunkTable, InlineRef, Manifest, NativeRef
from frazil.format.snapshot import Node
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.catalog.expired_versions import require_listed
from frazil.repository.session.array_entry import ArrayEntry
from frazil.repository.session.chunk_rows import ChunkRows
from frazil.repository.session.workspace_layers import WorkspaceLayers

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = ModuleOnDemand("asyncio")


class ChunkView:
    """The value of ``workspace.chunks``. Threads may share it."""

    __slots__ = ("_workspace",)

    def __init__(self, workspace: WorkspaceLayers) -> None:
        self._workspace = workspace

    # References

    def ref(self, path: str, coords: Coords) -> ChunkRef | None:
        """Return the reference of one chunk, or None if the array or the chunk is missing."""
        workspace = self._workspace
        entry = workspace.array_entry(path)
        if entry is None:
            return None
        for edits in entry.edits:
            with workspace.lock:
                is_edited, ref = edits.find_change(coords)
            if is_edited:
                return ref
        for number in entry.manifests_at(coords):
            assert entry.node.array is not None
            (manifest,) = self._manifests([entry.node.array.manifests[number].id])
            ref = find_ref(manifest, entry.node.id, coords)
            if ref is not None:
                return ref
        return None

    def refs_at(self, path: str, index: U32) -> ChunkTable:
        """Return the references of many chunks of an array, in the order of their coordinates ``index``.

        Missing chunks have rows of the kind ``ABSENT``. Coordinates may repeat.
        """
        workspace = self._workspace
        rows = ChunkRows(index)
        entry = workspace.array_entry(path)
        if entry is None:
            return rows.table()
        for edits in entry.edits:
            with workspace.lock:
                rows.look_up(edits.table())
        assert entry.node.array is not None
        manifests = entry.node.array.manifests
        boxes = entry.boxes.astype(np.int64)
        meeting = entry.manifests_meeting(index)
        wanted = {number: rows.missing_in(boxes[number, :, 0], boxes[number, :, 1]) for number in meeting}
        numbers = [number for number, each in wanted.items() if len(each)]
        self._manifests([manifests[number].id for number in numbers])  # all at once
        for number in numbers:
            rows.look_up(self._manifest_table(entry.node, number), wanted[number])
        return rows.table()

    def is_cached(self, path: str, coords: Coords) -> bool:
        """Return whether ``ref`` needs no request for a manifest or the snapshot."""
        workspace = self._workspace
        if "base" not in workspace.__dict__:
            return False
        entry = workspace.array_entry(path)
        if entry is None or entry.node.array is None:
            return True
        has = workspace.context.assets.has_manifest
        manifests = entry.node.array.manifests
        return all(has(manifests[number].id) for number in entry.manifests_at(coords))

    def ref_table(self, path: str) -> ChunkTable:
        """Return all references of an array."""
        workspace = self._workspace
        with workspace.lock:
            node = workspace.changes.array(workspace.moved_base, path)
            entry = workspace.array_entry(path)
            assert entry is not None
            assert node.array is not None
            manifests = self._manifests([ref.id for ref in node.array.manifests])
            tables = [manifest.arrays[node.id] for manifest in manifests if node.id in manifest.arrays]
            tables = [table for table in tables if len(table)]  # an empty table has no rank
            _require_rank(path, tables, len(node.array.shape))
            tables += [edits.table() for edits in reversed(entry.edits)]
        if not tables:
            return ChunkTable.empty(len(node.array.shape))
        table = tables[0] if len(tables) == 1 else ChunkTable.merge_tables(tables)
        table = table.stored()
        is_inside = within(table.index, node.array.num_chunks)
        return table if is_inside.all() else table.select_chunks(is_inside)

    def set_ref(self, path: str, coords: Coords, ref: ChunkRef) -> None:
        """Set one reference. Raises ``InvalidInputError`` (``invalid-chunk-index``) outside of the grid."""
        workspace = self._workspace
        with workspace.commit_lock, workspace.lock:
            workspace.require_uncommitted()
            self._set_ref(self._entry_with_chunk(path, coords), path, coords, ref)

    def set_refs(self, path: str, table: ChunkTable) -> None:
        """Set many references of one array."""
        workspace = self._workspace
        with workspace.commit_lock, workspace.lock:
            workspace.require_uncommitted()
            workspace.changes.set_chunks(workspace.moved_base, path, table)
            self._drop_outdated_entry(path)

    def replace_refs(self, path: str, table: ChunkTable, discards: int) -> bool:
        """Set the references of chunks that were stored after ``discards`` discards.

        Rows of the kind ``ABSENT`` delete chunks, which need not exist. Return False if the session has
        discarded its changes since: the writer has then dropped the bytes.
        """
        workspace = self._workspace
        with workspace.commit_lock, workspace.lock:
            if discards != workspace.discards:
                return False
            workspace.require_uncommitted()
            workspace.changes.write_chunks(workspace.moved_base, path, table)
            self._drop_outdated_entry(path)
            return True

    def delete_ref(self, path: str, coords: Coords) -> None:
        """Delete one reference."""
        workspace = self._workspace
        with workspace.commit_lock, workspace.lock:
            workspace.require_uncommitted()
            workspace.changes.delete_chunk(workspace.moved_base, path, coords)
            self._drop_outdated_entry(path)

    def delete_refs(self, path: str, index: NDArray[np.uint32]) -> None:
        """Delete references. They must exist. ``index`` has their coordinates, shape (n, ndim)."""
        self.set_refs(path, ChunkTable.from_absent(index))

    # Bytes

    def read(self, path: str, coords: Coords, start: int = 0, stop: int | None = None) -> Buffer | None:
        """Return the bytes ``start`` to ``stop`` of one chunk, or None for a missing chunk."""
        ref = self.ref(path, coords)
        return None if ref is None else self.read_ref(ref, start, stop)

    async def read_async(
        self, path: str, coords: Coords, start: int = 0, stop: int | None = None
    ) -> Buffer | None:
        """Return the result of ``read``."""
        ref = self.ref(path, coords)
        return None if ref is None else await self.read_ref_async(ref, start, stop)

    def read_ref(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the bytes ``start`` to ``stop`` of the chunk that a reference points to."""
        try:
            return self._workspace.reader.read(ref, start, stop)
        except StorageError as error:
            self._require_listed(ref, error)
            raise

    async def read_ref_async(self, ref: ChunkRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the result of ``read_ref``."""
        try:
            return await self._workspace.reader.read_async(ref, start, stop)
        except StorageError as error:
            await asyncio.to_thread(self._require_listed, ref, error)
            raise

    def _require_listed(self, ref: ChunkRef, error: StorageError) -> None:
        """Call ``require_listed`` for a native chunk. Garbage collections delete no other chunks."""
        if isinstance(ref, NativeRef):
            require_listed(self._workspace.context, self._workspace.snapshot_id, error)

    def store_bytes(self, data: Buffer) -> ChunkRef:
        """Store the bytes of a chunk, inline, in a pack or as a file. Return the reference."""
        return self._inline_ref(data) or self._workspace.writer.write(data)

    def write(self, path: str, coords: Coords, data: Buffer) -> None:
        """Store one chunk and set its reference. Raises an error for a chunk outside of the grid."""
        entry = self._entry_with_chunk(path, coords)
        while True:
            discards = self._workspace.discards
            if self._set_stored_ref(entry, path, coords, self.store_bytes(data), discards):
                return

    async def write_async(self, path: str, coords: Coords, data: Buffer) -> None:
        """Store one chunk and set its reference, as ``write``."""
        entry = self._entry_with_chunk(path, coords)
        while True:
            discards = self._workspace.discards
            ref = self._inline_ref(data) or await self._workspace.writer.write_async(data)
            if self._set_stored_ref(entry, path, coords, ref, discards):
                return

    def _set_stored_ref(
        self, entry: ArrayEntry, path: str, coords: Coords, ref: ChunkRef, discards: int
    ) -> bool:
        """Set the reference of bytes that were stored after ``discards`` discards.

        Return False if the session has discarded its changes since: the writer has then dropped the bytes.
        """
        workspace = self._workspace
        with workspace.commit_lock, workspace.lock:
            if discards != workspace.discards:
                return False
            workspace.require_uncommitted()
            if workspace.array_entries.get(path) is not entry:  # the array may have changed or be deleted
                entry = self._entry_with_chunk(path, coords)
            self._set_ref(entry, path, coords, ref)
            return True

    def _set_ref(self, entry: ArrayEntry, path: str, coords: Coords, ref: ChunkRef) -> None:
        """Set a reference inside of the grid. The caller holds both locks."""
        edits = self._workspace.changes.chunk_changes_of(entry.node)
        edits.set(coords, ref)
        if not entry.edits or entry.edits[0] is not edits:  # these are the first edits of the array
            self._workspace.array_entries.pop(path, None)

    def _drop_outdated_entry(self, path: str) -> None:
        """Drop the cached entry of an array if it does not contain the current edits."""
        workspace = self._workspace
        entry = workspace.array_entries.get(path)
        if entry is not None:
            edits = workspace.changes.chunks.get(entry.node.id)
            if not entry.edits or entry.edits[0] is not edits:
                del workspace.array_entries[path]

    def _entry_with_chunk(self, path: str, coords: Coords) -> ArrayEntry:
        """Return the array. Raises an error if it does not exist, or if its grid has no such chunk."""
        workspace = self._workspace
        entry = workspace.array_entry(path)
        while entry is None:
            with workspace.lock:
                workspace.changes.array(workspace.moved_base, path)  # raises if there is no array
                entry = workspace.array_entry(path)
        check_coords(entry.node, coords)
        return entry

    def _inline_ref(self, data: Buffer) -> InlineRef | None:
        size = memoryview(data).nbytes
        threshold = self._workspace.context.settings.inline_chunk_threshold_bytes
        return InlineRef(bytes(data)) if 0 < size <= threshold else None

    # Manifests

    def _manifest_table(self, node: Node, number: int) -> ChunkTable:
        assert node.array is not None
        (manifest,) = self._manifests([node.array.manifests[number].id])
        table = manifest.arrays.get(node.id)
        return ChunkTable.empty(len(node.array.shape)) if table is None else table

    def _manifests(self, ids: list[bytes]) -> list[Manifest]:
        """Return manifests of the snapshot, in the order of ``ids``."""
        context = self._workspace.context
        try:
            return context.assets.manifests(ids, context.settings.concurrent_manifest_fetches)
        except StorageError as error:
            require_listed(context, self._workspace.snapshot_id, error)
            raise


def size_of(ref: ChunkRef) -> int:
    """Return the number of bytes of a chunk."""
    return len(ref.data) if isinstance(ref, InlineRef) else ref.length


def _require_rank(path: str, tables: Sequence[ChunkTable], ndim: int) -> None:
    """Raise ``FormatError`` if a manifest has references with more or fewer coordinates than the array."""
    for table in tables:
        if table.index.shape[1] != ndim:
            raise FormatError(
                f"a manifest of `{path}` must have {ndim} coordinates for each chunk, got "
                f"{table.index.shape[1]}. Restore the manifest from a copy"
            )
