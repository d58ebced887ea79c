"""The nodes of a workspace: groups and arrays, with the session's changes."""

from __future__ import annotations

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.snapshot import Node, NodeTable
from frazil.repository.catalog.missing_names import no_node
from frazil.repository.ids import new_node_id
from frazil.repository.session.workspace_layers import WorkspaceLayers


class NodeView:
    """The value of ``workspace.nodes``. Threads may share it."""

    __slots__ = ("_workspace",)

    def __init__(self, workspace: WorkspaceLayers) -> None:
        self._workspace = workspace

    def node(self, path: str) -> Node | None:
        """Return the node at ``path``, or None if there is none."""
        workspace = self._workspace
        with workspace.lock:
            return workspace.changes.node(workspace.moved_base, path)

    def require_node(self, path: str) -> Node:
        """Return the node at ``path``. Raises ``NodeNotFoundError`` if there is none."""
        node = self.node(path)
        if node is None:
            raise no_node(path, self._workspace.moved_base, self._workspace.changes.nodes)
        return node

    def require_array(self, path: str) -> Node:
        """Return the array at ``path``. Raises ``InvalidInputError`` (``not-an-array``) for a group."""
        node = self.require_node(path)
        if node.array is None:
            raise InvalidInputError(
                f"the node at `{path}` must be an array, got a group. Name an array in the group",
                ErrorKind.NOT_AN_ARRAY,
            )
        return node

    def same_node(self, node: Node) -> Node | None:
        """Return the node here that has the id of another version's node, else its path; None if none has."""
        table = self.node_table()
        rows = np.flatnonzero((table.ids == np.frombuffer(node.id, np.uint8)).all(axis=1))
        return table.node(int(rows[0])) if len(rows) else self.node(node.path)

    def is_array(self, path: str) -> bool:
        """Return whether there is an array at ``path``. This is faster than ``node``."""
        return self._workspace.array_entry(path) is not None

    def set_node(self, path: str, document: bytes) -> None:
        """Create a node, or replace its metadata. See ``ChangeSet.set_node``."""
        workspace = self._workspace
        with workspace.commit_lock, workspace.lock:
            workspace.require_uncommitted()
            layers = (workspace.sealed, workspace.inherited)
            workspace.changes.set_node(workspace.moved_base, path, document, new_node_id, layers)
            workspace.array_entries.pop(path, None)

    def delete_node(self, path: str) -> None:
        """Delete a node and all nodes below it."""
        workspace = self._workspace
        with workspace.commit_lock, workspace.lock:
            workspace.require_uncommitted()
            workspace.changes.delete_node(workspace.moved_base, path)
            workspace.array_entries.clear()

    def move_node(self, source: str, target: str) -> None:
        """Move a node and all nodes below it. See ``MoveTree.move``."""
        workspace = self._workspace
        with workspace.commit_lock, workspace.lock:
            workspace.require_uncommitted()
            workspace.tree.move(source, target)
            workspace.invalidate("moved_base")

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes directly below a group, sorted by bytes."""
        workspace = self._workspace
        with workspace.lock:
            names = set(workspace.moved_base.children(path))
            prefix = path.rstrip("/") + "/"
            for changed, node in workspace.changes.nodes.items():
                name = changed[len(prefix) :]
                if changed.startswith(prefix) and name and "/" not in name:
                    (names.discard if node is None else names.add)(name)
            return sorted(names, key=str.encode)

    def node_table(self) -> NodeTable:
        """Return all nodes of the session as a table."""
        workspace = self._workspace
        with workspace.lock:
            return workspace.changes.apply_to_moved(workspace.moved_base)
