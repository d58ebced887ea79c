"""Notes of the reads of a session, for sessions that track their reads.

Reads of the session's own changes are not noted, because no other session can change them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import Coords
from frazil.format.columns import U32
from frazil.repository.session.workspace_layers import WorkspaceLayers

#: Chunk coordinates are less than this number.
_END: Final = 1 << 32


class ReadNotes:
    """The value of ``workspace.notes``. It notes reads before they happen, if the session tracks reads."""

    __slots__ = ("_workspace",)

    def __init__(self, workspace: WorkspaceLayers) -> None:
        self._workspace = workspace

    def note_document(self, path: str) -> None:
        """Note a read of the metadata of the node at ``path``, or a test whether there is a node."""
        reads = self._workspace.reads
        if reads is not None and not self._is_changed(path):
            reads.document(path)

    def note_members(self, path: str) -> None:
        """Note a listing of the members of a group."""
        reads = self._workspace.reads
        if reads is not None and not self._is_own_tree(path):
            reads.members(path)

    def note_tree(self, path: str) -> None:
        """Note a read of all nodes and chunks at and below ``path``."""
        reads = self._workspace.reads
        if reads is not None and not self._is_own_tree(path):
            reads.tree(path)

    def note_chunk(self, path: str, coords: Coords) -> None:
        """Note a read of a chunk, or a test whether there is a chunk."""
        workspace = self._workspace
        if workspace.reads is None:
            return
        entry = workspace.array_entry(path)
        if entry is None or not all(0 <= each < _END for each in coords):
            self.note_document(path)  # no session can write such a chunk
            return
        with workspace.lock:
            is_own = any(edits.find_change(coords)[0] for edits in entry.edits)
        if not is_own and not self._is_own_tree(path):
            workspace.reads.chunk(path, coords)

    def note_chunks(self, path: str, index: U32) -> None:
        """Note reads of many chunks of an array, whose coordinates are rows of ``index``."""
        workspace = self._workspace
        if workspace.reads is None or self._is_own_tree(path):
            return
        entry = workspace.array_entry(path)
        if entry is None:
            self.note_document(path)
            return
        is_foreign = np.ones(len(index), np.bool_)
        for edits in entry.edits:
            with workspace.lock:
                is_foreign &= edits.table().find_chunks(index) < 0
        workspace.reads.chunks(path, index[is_foreign])

    def _layers(self) -> tuple[ChangeSet, ...]:
        return self._workspace.layers()

    def _is_changed(self, path: str) -> bool:
        """Return whether this session has created, changed or deleted the node at ``path``."""
        return any(path in layer.nodes for layer in self._layers())

    def _is_own_tree(self, path: str) -> bool:
        """Return whether this session has created or deleted the node at ``path`` and all nodes below it."""
        layer = next((layer for layer in self._layers() if path in layer.nodes), None)
        if layer is None:
            return False
        node, nodes = layer.nodes[path], self._workspace.snapshot.nodes
        below = nodes.below(path)
        # The snapshot may have nodes without a group above them. A deletion deletes all nodes below a path.
        is_free = nodes.find_node(path) >= 0 or below.start == below.stop
        return node is None or (is_free and any(node.id in each.created for each in self._layers()))
