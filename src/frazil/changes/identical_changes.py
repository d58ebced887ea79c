"""Identical changes of both sides, which never conflict.

They are the same metadata, the same reference of a chunk, and nodes that both sides have from the same commit
(which was picked or merged before), but that their base does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges
from frazil.changes.node_changes import NodeChanges, in_both
from frazil.changes.version_changes import VersionContent, same_refs
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node, NodeTable

_NONE = np.zeros(0, np.int64)


def without_identical_changes(
    changes: ChangeSet,
    theirs: NodeChanges,
    base: NodeTable,
    tip: VersionContent,
    new_id: Callable[[], bytes],
) -> tuple[ChangeSet, NodeChanges, NodeTable]:
    """Return ours and theirs without identical changes, and the base with the nodes that both sides have.

    Such a node has no chunks in the new base, so the chunks of each side count as written. If the base has
    another node at its path, the node of ours becomes a separate node, with an id from ``new_id``.
    """
    changes = changes.copy()
    theirs = replace(
        theirs,
        created=dict(theirs.created),
        updated=dict(theirs.updated),
        moved=dict(theirs.moved),
        chunk_paths=dict(theirs.chunk_paths),
        chunks=dict(theirs.chunks),
    )
    paths = {node.id: path for path, node in changes.nodes.items() if node is not None}
    adopted: list[Node] = []
    for id_ in changes.created & theirs.created.keys():
        path = paths[id_]
        mine, other = changes.nodes[path], tip.node(id_)
        if mine is not None and base.find_node(path) < 0 and (mine.array is None) == (other.array is None):
            adopted.append(_adopt(changes, theirs, mine, other, tip))
        elif mine is not None:
            _rename(changes, replace(mine, id=new_id()), id_)
    for id_ in changes.updated & theirs.updated.keys():
        node = changes.nodes[paths[id_]]
        if node is not None and node.user_data == tip.node(id_).user_data:
            del changes.nodes[paths[id_]]
            changes.updated.discard(id_)
            del theirs.updated[id_]
    for id_ in changes.chunks.keys() & theirs.chunks.keys():
        _drop_same_chunks(changes, theirs, id_, tip)
    return changes, theirs, base.edit(_NONE, NodeTable.from_nodes(adopted)) if adopted else base


def _rename(changes: ChangeSet, node: Node, before: bytes) -> None:
    """Change the id of a new node."""
    changes.nodes[node.path] = node
    changes.created.discard(before)
    changes.created.add(node.id)
    if before in changes.chunks:
        changes.chunks[node.id] = changes.chunks.pop(before)


def _adopt(changes: ChangeSet, theirs: NodeChanges, mine: Node, other: Node, tip: VersionContent) -> Node:
    """Make a node that both sides created a node of the base. Return the node for the base."""
    id_ = mine.id
    changes.created.discard(id_)
    changes.updated.add(id_)
    theirs.updated[id_] = other.path
    del theirs.created[id_]
    if mine.path != other.path:
        theirs.moved[id_] = (mine.path, other.path)
    if other.array is None:
        return mine
    table = tip.table(other.path)
    if len(table):
        theirs.chunks[id_], theirs.chunk_paths[id_] = table.index, other.path
    return replace(mine, array=replace(other.array, manifests=()))


def _drop_same_chunks(changes: ChangeSet, theirs: NodeChanges, id_: bytes, tip: VersionContent) -> None:
    chunk_changes = changes.chunks[id_]
    mine, coords = chunk_changes.table(), theirs.chunks[id_]
    if mine.ndim != coords.shape[1]:
        return
    shared = mine.index[in_both(mine.index, coords)]
    same = shared[same_refs(mine.stored(), tip.table(theirs.chunk_paths[id_]), shared)]
    if not len(same):
        return
    rest: ChunkTable = mine.select_chunks(~in_both(mine.index, same))
    left = coords[~in_both(coords, same)]
    if len(rest):
        changes.chunks[id_] = ChunkChanges(chunk_changes.path, chunk_changes.ndim, (rest,))
    else:
        del changes.chunks[id_]
    if len(left):
        theirs.chunks[id_] = left
    else:
        del theirs.chunks[id_], theirs.chunk_paths[id_]
