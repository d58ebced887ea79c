"""A slice of a version that a task reads without requests for metadata.

    driver     snapshot, manifests ──> the nodes that are read, and for each task its references
    task       a session over these alone: it requests only chunks

The context and the nodes, which all tasks share, are pickled once. A task has the rows of the chunk tables
that are in its part of the grid.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges
from frazil.format.manifest import ChunkTable
from frazil.format.nodes import Node, NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.repository.catalog.context import Context
from frazil.repository.session.session import Session, reading
from frazil.repository.session.workspace import Workspace

#: References of some arrays, by path.
type Tables = Mapping[str, ChunkTable]


@dataclass(frozen=True, slots=True)
class SharedVersion:
    """The version that all tasks of a scan read. Each process unpickles ``context`` once."""

    context: bytes
    snapshot_id: bytes
    nodes: tuple[Node, ...]

    @staticmethod
    def of(session: Session, paths: Sequence[str]) -> SharedVersion:
        """Return the version of a session, with the arrays at these paths.

        ``session`` may have changes, if the tables of the tasks have them.
        """
        workspace = session.workspace
        nodes = tuple(map(_without_manifests, map(workspace.require_array, paths)))
        return SharedVersion(pickle.dumps(workspace.context), workspace.snapshot_id, nodes)

    def session(self, tables: Tables) -> Session:
        """Return a session that reads these arrays, with the references of the tables."""
        ids = {node.path: node.id for node in self.nodes}
        changes = ChangeSet(
            chunks={ids[path]: ChunkChanges(path, table.ndim, (table,)) for path, table in tables.items()}
        )
        # The session never reads the file of the snapshot.
        nodes = NodeTable.from_nodes(self.nodes)
        snapshot = Snapshot(self.snapshot_id, 0, "", {}, nodes, ManifestFiles.empty())
        return reading(Workspace(_context(self.context), self.snapshot_id, changes, snapshot=snapshot))


@functools.lru_cache(maxsize=4)
def _context(pickled: bytes) -> Context:
    """Return the context, one for each process: it keeps the connections."""
    context: Context = pickle.loads(pickled)
    return context


def _without_manifests(node: Node) -> Node:
    assert node.array is not None
    array = node.array
    return Node(
        node.id, node.path, node.user_data, type(array)(array.shape, array.num_chunks, array.dimension_names)
    )


def rows_in_box(table: ChunkTable, low: Sequence[int], high: Sequence[int]) -> ChunkTable:
    """Return the rows in a box of chunk coordinates, ``low`` up to but not including ``high``."""
    if not table.ndim:
        return table
    # Rows are sorted by the first coordinate: only these rows are compared.
    first = table.index[:, 0]
    start, stop = np.searchsorted(first, [low[0], high[0]])
    rows = slice(int(start), int(stop))
    index = table.index[rows]
    inside = ((index >= np.array(low, np.int64)) & (index < np.array(high, np.int64))).all(axis=1)
    within = table.select_chunks(rows)
    return (within if inside.all() else within.select_chunks(inside)).prune().compact()
