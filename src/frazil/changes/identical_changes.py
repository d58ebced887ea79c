"""What two sides did alike, which is no conflict: the same metadata, the same reference to a chunk, and nodes
that both have from one commit (it was picked or merged before) although their base has not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_edits import ChunkEdits
from frazil.changes.node_edits import Edits, in_both
from frazil.changes.version_changes import Version, same_refs
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node, NodeTable

_NONE = np.zeros(0, np.int64)


def without_twins(
    changes: ChangeSet, theirs: Edits, base: NodeTable, there: Version, new_id: Callable[[], bytes]
) -> tuple[ChangeSet, Edits, NodeTable]:
    """Ours and theirs without what they did alike, and their base with the nodes that only it has not.

    Such a node counts as one without chunks: each side wrote what it has there. If the base has another node
    in its place, ours is a node of its own, with an id of ``new_id``.
    """
    changes = changes.copy()
    theirs = replace(
        theirs,
        created=dict(theirs.created),
        updated=dict(theirs.updated),
        moved=dict(theirs.moved),
        written=dict(theirs.written),
        chunks=dict(theirs.chunks),
    )
    paths = {node.id: path for path, node in changes.nodes.items() if node is not None}
    adopted: list[Node] = []
    for id_ in changes.created & theirs.created.keys():
        path = paths[id_]
        mine, other = changes.nodes[path], there.node(id_)
        if mine is not None and base.find_node(path) < 0 and (mine.array is None) == (other.array is None):
            adopted.append(_adopt(changes, theirs, mine, other, there))
        elif mine is not None:
            _rename(changes, replace(mine, id=new_id()), id_)
    for id_ in changes.updated & theirs.updated.keys():
        node = changes.nodes[paths[id_]]
        if node is not None and node.user_data == there.node(id_).user_data:
            del changes.nodes[paths[id_]]
            changes.updated.discard(id_)
            del theirs.updated[id_]
    for id_ in changes.chunks.keys() & theirs.chunks.keys():
        _drop_same_chunks(changes, theirs, id_, there)
    return changes, theirs, base.edit(_NONE, NodeTable.from_nodes(adopted)) if adopted else base


def _rename(changes: ChangeSet, node: Node, before: bytes) -> None:
    """Give a new node another id."""
    changes.nodes[node.path] = node
    changes.created.discard(before)
    changes.created.add(node.id)
    if before in changes.chunks:
        changes.chunks[node.id] = changes.chunks.pop(before)


def _adopt(changes: ChangeSet, theirs: Edits, mine: Node, other: Node, there: Version) -> Node:
    """Count a node that both created as one of the base; this is how it is there."""
    id_ = mine.id
    changes.created.discard(id_)
    changes.updated.add(id_)
    theirs.updated[id_] = other.path
    del theirs.created[id_]
    if mine.path != other.path:
        theirs.moved[id_] = (mine.path, other.path)
    if other.array is None:
        return mine
    table = there.table(other.path)
    if len(table):
        theirs.chunks[id_], theirs.written[id_] = table.index, other.path
    return replace(mine, array=replace(other.array, manifests=()))


def _drop_same_chunks(changes: ChangeSet, theirs: Edits, id_: bytes, there: Version) -> None:
    edits = changes.chunks[id_]
    mine, coords = edits.table(), theirs.chunks[id_]
    if mine.ndim != coords.shape[1]:
        return
    both = mine.index[in_both(mine.index, coords)]
    same = both[same_refs(mine.stored(), there.table(theirs.written[id_]), both)]
    if not len(same):
        return
    rest: ChunkTable = mine.select_chunks(~in_both(mine.index, same))
    left = coords[~in_both(coords, same)]
    if len(rest):
        changes.chunks[id_] = ChunkEdits(edits.path, edits.ndim, (rest,))
    else:
        del changes.chunks[id_]
    if len(left):
        theirs.chunks[id_] = left
    else:
        del theirs.chunks[id_], theirs.written[id_]
