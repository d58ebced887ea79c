"""The workspace of a session: nodes and chunks, with the session's changes.

`WorkspaceLayers` has the snapshot and the layers of changes. ``nodes``, ``chunks`` and ``notes`` are the
views for other modules.
"""

from __future__ import annotations

from typing import Any

from frazil.repository.session.chunk_view import ChunkView
from frazil.repository.session.node_view import NodeView
from frazil.repository.session.read_notes import ReadNotes
from frazil.repository.session.workspace_layers import WorkspaceLayers


class Workspace(WorkspaceLayers):
    """The nodes and chunks that a session sees. Threads may share it."""

    def __reduce__(self) -> tuple[Any, ...]:
        with self.lock:
            self.writer.flush()
            # Copies, because chunks that other threads write later are not durable.
            own = self.sealed.copy(), self.changes.copy()
            return (Workspace, (self.context, self.snapshot_id, self.inherited, *own, self.reads))

    @property
    def nodes(self) -> NodeView:
        """The groups and arrays."""
        return NodeView(self)

    @property
    def chunks(self) -> ChunkView:
        """The references and bytes of chunks."""
        return ChunkView(self)

    @property
    def notes(self) -> ReadNotes:
        """The notes of the session's reads."""
        return ReadNotes(self)

    def end_at(self, snapshot_id: bytes) -> Workspace:
        """Refuse changes from now on, after a commit.

        Return the workspace of the new snapshot, which refuses changes too.
        """
        self._is_committed = True
        successor = Workspace(self.context, snapshot_id)
        successor._is_committed = True
        return successor
