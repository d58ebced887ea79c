"""A part of a version of a repository that a task can read without asking for its metadata.

    driver     snapshot, manifests ──> the nodes that are read, and for each task the references it needs
    task       a session over these alone: the only requests are those for chunks

What all tasks have in common (the handle, the nodes) is pickled once; a task brings the rows of the chunk
tables that lie in its part of the grid.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_edits import ChunkEdits
from frazil.format.manifest import ChunkTable
from frazil.format.nodes import Node, NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.repository.catalog.context import Context
from frazil.repository.session.session import Session, reading
from frazil.repository.session.workspace import Workspace

#: References of some arrays, by path.
type Tables = Mapping[str, ChunkTable]


@dataclass(frozen=True, slots=True)
class Shared:
    """What all parts of one version have in common. ``context`` is pickled: it is unpickled once a
    process.
    """

    context: bytes
    snapshot_id: bytes
    nodes: tuple[Node, ...]

    @staticmethod
    def of(session: Session, paths: Sequence[str]) -> Shared:
        """The arrays that will be read. ``session`` may be one with changes, if these come with the
        tables.
        """
        workspace = session.workspace
        nodes = tuple(map(_without_manifests, map(workspace.nodes.require_array, paths)))
        return Shared(pickle.dumps(workspace.context), workspace.snapshot_id, nodes)

    def session(self, tables: Tables) -> Session:
        """A session that reads these arrays, in the chunks that the tables have."""
        ids = {node.path: node.id for node in self.nodes}
        changes = ChangeSet(
            chunks={ids[path]: ChunkEdits(path, table.ndim, (table,)) for path, table in tables.items()}
        )
        workspace = Workspace(_context(self.context), self.snapshot_id, changes)
        # In its place: nobody asks for the file.
        workspace.snapshot = Snapshot(
            self.snapshot_id, 0, "", {}, NodeTable.from_nodes(self.nodes), ManifestFiles.empty()
        )
        return reading(workspace)


@functools.lru_cache(maxsize=4)
def _context(pickled: bytes) -> Context:
    """Connections live as long as the process."""
    context: Context = pickle.loads(pickled)
    return context


def _without_manifests(node: Node) -> Node:
    assert node.array is not None
    array = node.array
    return Node(
        node.id, node.path, node.user_data, type(array)(array.shape, array.num_chunks, array.dimension_names)
    )


def part(table: ChunkTable, low: Sequence[int], high: Sequence[int]) -> ChunkTable:
    """The rows in a box of chunk coordinates, ``low`` up to but not including ``high``."""
    if not table.ndim:
        return table
    # Rows are sorted, the first coordinate ascends: only these rows are looked at.
    first = table.index[:, 0]
    start, stop = np.searchsorted(first, [low[0], high[0]])
    rows = slice(int(start), int(stop))
    index = table.index[rows]
    inside = ((index >= np.array(low, np.int64)) & (index < np.array(high, np.int64))).all(axis=1)
    within = table.select_chunks(rows)
    return (within if inside.all() else within.select_chunks(inside)).prune().compact()
