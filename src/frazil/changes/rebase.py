"""The changes of a session, moved to another base.

A change of ours without a conflict stays: it applies to the node with the same id, at its path in theirs. A
``Resolution`` decides each conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet, ChunkChanges, parent_of
from frazil.changes.conflicts import ChangeKind, ConflictType, NodeAlignment, NodeConflict
from frazil.changes.diff import (
    NodeChanges,
    References,
    VersionContent,
    ancestors,
    in_both,
    parents,
    row_of,
    rows_of,
    same_refs,
)
from frazil.changes.zarr_metadata import parse_node, same_encoding
from frazil.format.chunk_table import within
from frazil.format.ids import NODE_ID_BYTES, id_matrix
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node, NodeTable

_NONE = np.zeros(0, np.int64)


def without_identical_changes(
    changes: ChangeSet, theirs: NodeChanges, base: NodeTable, tip: VersionContent, new_id: Callable[[], bytes]
) -> tuple[ChangeSet, NodeChanges, NodeTable]:
    """Return ours and theirs without identical changes, and the base with the nodes that both sides have.

    Both sides have nodes from the same commit that was picked or merged before. Such a node has no chunks in
    the new base, so the chunks of each side count as written. If the base has another node at its path, the
    node of ours becomes a separate node, with an id from ``new_id``.
    """
    changes = changes.copy()
    theirs = NodeChanges(**{name: copy(getattr(theirs, name)) for name in NodeChanges.__slots__})
    paths = {node.id: path for path, node in changes.nodes.items() if node is not None}
    adopted: list[Node] = []
    for id_ in changes.created & theirs.created.keys():
        path = paths[id_]
        mine, other = changes.nodes[path], tip.node(id_)
        if mine is not None and base.find_node(path) < 0 and (mine.array is None) == (other.array is None):
            adopted.append(_adopt(changes, theirs, mine, other, tip))
        elif mine is not None:
            changes.nodes[path] = separate = replace(mine, id=new_id())
            changes.created ^= {id_, separate.id}
            if id_ in changes.chunks:
                changes.chunks[separate.id] = changes.chunks.pop(id_)
    for id_ in changes.updated & theirs.updated.keys():
        node = changes.nodes[paths[id_]]
        if node is not None and node.user_data == tip.node(id_).user_data:
            del changes.nodes[paths[id_]]
            changes.updated.discard(id_)
            del theirs.updated[id_]
    for id_ in changes.chunks.keys() & theirs.chunks.keys():
        _drop_same_chunks(changes, theirs, id_, tip)
    return changes, theirs, base.edit(_NONE, NodeTable.from_nodes(adopted)) if adopted else base


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


@dataclass(frozen=True, slots=True, eq=False)
class Resolution:
    """The decision of a conflict: whether ours is kept, for a ``ChunkDoubleUpdate`` one value for each chunk.

    ``chunks`` and ``document`` are other content for some of these chunks, or for the metadata.
    """

    ours: bool | NDArray[np.bool_]
    chunks: ChunkTable | None = None
    document: bytes | None = None


def ours_can_stand(alignment: NodeAlignment, conflict: NodeConflict) -> bool:
    """Return whether ours can be kept, with ``Resolution(True)``. A move, for example, cannot."""
    if conflict.type is ConflictType.ChunksUpdatedInUpdatedArray and conflict.ours is ChangeKind.WROTE:
        old, new = (
            table.node(row_of(table, conflict.node_id))
            for table in (alignment.moved_base, alignment.moved_tip)
        )
        same_rank = len(old.array_data.shape) == len(new.array_data.shape)
        return same_rank and same_encoding(old.user_data, new.user_data)
    if conflict.type is ConflictType.MoveOperationCannotBeRebased:
        return conflict.ours is ChangeKind.DELETED
    if conflict.theirs is ChangeKind.DELETED:
        above = conflict.path if conflict.ours is ChangeKind.CREATED else parent_of(conflict.path)
        return alignment.moved_tip.find_node(conflict.path) < 0 and _revivable(alignment, above) is not None
    return conflict.type is not ConflictType.NewNodeInInvalidGroup


def _revivable(alignment: NodeAlignment, path: str) -> list[str] | None:
    """Return the deleted groups that must come back so that ``path`` is a group, or None if it cannot be."""
    groups: list[str] = []
    while (row := alignment.moved_tip.find_node(path)) < 0:
        old = alignment.moved_base.find_node(path)
        if old < 0 or alignment.moved_base.is_array[old]:
            return groups if path in alignment.our_groups() else None
        groups.append(path)
        if path == "/":
            return groups
        path = parent_of(path)
    return None if alignment.moved_tip.is_array[row] else groups


class _Effects:
    """The decided conflicts of a rebase, as ``resolutions``."""

    def __init__(self, resolutions: Sequence[tuple[NodeConflict, Resolution]]) -> None:
        self.resolutions = resolutions
        #: The changes of ours that are dropped, because theirs is kept: the change and the node id.
        self.undone = {
            (conflict.ours, conflict.node_id)
            for conflict, resolution in resolutions
            if resolution.ours is False and conflict.type is not ConflictType.ChunkDoubleUpdate
        }
        #: The conflicts in which ours is kept.
        self.forced = [conflict for conflict, resolution in resolutions if resolution.ours is True]
        #: The ``zarr.json`` documents that replace both sides, by node id.
        self.documents = {
            conflict.node_id: resolution.document
            for conflict, resolution in resolutions
            if resolution.document is not None
        }

    def undone_ids(self, did: ChangeKind) -> set[bytes]:
        """Return the ids of the nodes for which this change of ours is dropped."""
        return {id_ for what, id_ in self.undone if what is did}


def rebased(
    alignment: NodeAlignment, resolutions: Sequence[tuple[NodeConflict, Resolution]], base_table: References
) -> ChangeSet:
    """Return the changes of ours relative to the tip. Every conflict must be decided."""
    if not resolutions and not _interact(alignment):
        return alignment.changes
    effects = _Effects(resolutions)
    out = ChangeSet(moves=alignment.moves)
    adopted, dropped, replaced = _at_taken_paths(alignment, effects)
    out.deleted = _deletions(alignment, effects) | replaced
    out.nodes.update(dict.fromkeys(_paths(alignment.moved_tip, out.deleted).values()))
    out.nodes.update(adopted)
    out.updated.update(node.id for node in adopted.values())
    # New nodes are not created where theirs is kept, or the deletion of a node at their path is dropped.
    dropped |= effects.undone_ids(ChangeKind.CREATED)
    undeleted = set(_paths(alignment.moved_tip, effects.undone_ids(ChangeKind.DELETED)).values())
    for id_ in alignment.changes.created - dropped:
        node = alignment.changes.nodes[alignment.ours.created[id_]]
        assert node is not None
        path = alignment.tip_path(node.path)
        if path not in undeleted:
            out.nodes[path] = node if path == node.path else replace(node, path=path)
            out.created.add(id_)
    _update_nodes(alignment, out, effects)
    for conflict in effects.forced:
        if conflict.theirs is ChangeKind.DELETED:
            _revive(alignment, out, conflict, base_table)
    _take_chunks(alignment, out, effects)
    return out


def _at_taken_paths(
    alignment: NodeAlignment, effects: _Effects
) -> tuple[dict[str, Node], set[bytes], dict[bytes, bool]]:
    """Return the effects of new nodes of ours that are kept at paths where theirs has new nodes too."""
    adopted: dict[str, Node] = {}
    dropped: set[bytes] = set()
    replaced: dict[bytes, bool] = {}
    for conflict in effects.forced:
        if conflict.type is not ConflictType.NewNodeConflictsWithExistingNode:
            continue
        path = alignment.tip_path(conflict.path)
        mine = alignment.changes.nodes[conflict.path]
        theirs = alignment.moved_tip.node(alignment.moved_tip.find_node(path))
        assert mine is not None
        if mine.array is None and theirs.array is None:
            adopted[path] = replace(theirs, user_data=mine.user_data)
            dropped.add(mine.id)
        else:
            replaced[theirs.id] = theirs.array is not None
            replaced.update(_below(alignment.moved_tip, path))
    return adopted, dropped, replaced


def is_whole(alignment: NodeAlignment, changes: ChangeSet) -> bool:
    """Return whether every node has its own path in a group. Resolutions can contradict each other."""
    nodes = changes.apply_to_moved(alignment.moved_tip)
    paths = nodes.paths_list()
    groups = set(compress(paths, (~nodes.is_array).tolist()))
    return len(set(paths)) == len(paths) and parents(paths) - {"/"} <= groups


def _interact(alignment: NodeAlignment) -> bool:
    """Return whether theirs changed or moved a node of ours."""
    theirs, ours = alignment.theirs, alignment.ours
    if not ours.arrays.isdisjoint(ours.updated):
        return True  # logs do not have manifests that were rewritten
    touched = theirs.updated.keys() | theirs.chunks.keys() | theirs.deleted.keys() | theirs.moved.keys()
    mine = ours.updated.keys() | ours.deleted.keys() | (alignment.changes.chunks.keys() & theirs.moved.keys())
    return (
        bool(alignment.tip_paths)
        or alignment.moves != alignment.changes.moves
        or not touched.isdisjoint(mine)
    )


def _deletions(alignment: NodeAlignment, effects: _Effects) -> dict[bytes, bool]:
    """Return the ids of the nodes that ours deletes, each with whether it is an array.

    Nodes that theirs deleted too are left out. So are nodes whose deletion is dropped, and the groups above
    them. If a group is deleted although theirs added nodes to it, these nodes are deleted too.
    """
    ours, undeleted = alignment.ours.deleted, effects.undone_ids(ChangeKind.DELETED)
    ids = list(ours)
    alive = (rows_of(alignment.moved_tip, id_matrix(ids, NODE_ID_BYTES)) >= 0).tolist()
    above = ancestors(map(ours.__getitem__, undeleted))
    spared = {id_ for id_ in ours if id_ in undeleted or ours[id_] in above} if undeleted else set()
    deleted = {id_: alignment.changes.deleted[id_] for id_ in compress(ids, alive) if id_ not in spared}
    for conflict in effects.forced:
        if conflict.type is ConflictType.DeleteOfUpdatedGroup and conflict.path not in alignment.our_groups():
            deleted.update(_below(alignment.moved_tip, conflict.path))
    return deleted


def _below(nodes: NodeTable, path: str) -> dict[bytes, bool]:
    """Return the ids of all nodes below a path, each with whether it is an array."""
    below = nodes.below(path)
    return dict(zip(*nodes.identities(np.arange(below.start, below.stop)), strict=True))


def _update_nodes(alignment: NodeAlignment, out: ChangeSet, effects: _Effects) -> None:
    for id_, path in _paths(alignment.moved_tip, alignment.changes.updated).items():
        if (ChangeKind.UPDATED, id_) in effects.undone:
            continue
        node, base = alignment.changes.nodes[alignment.ours.updated[id_]], alignment.moved_base
        old, new = base.node(row_of(base, id_)), alignment.moved_tip.node(alignment.moved_tip.find_node(path))
        assert node is not None
        array = node.array
        document = effects.documents.get(id_)
        if document is not None:
            node = replace(node, user_data=document, array=parse_node(document))
        if array is not None:
            # If the base has manifests and ours has none, ours dropped all chunks.
            keeps = array.manifests or not old.array_data.manifests
            fits = len(node.array_data.shape) == len(new.array_data.shape)
            manifests = new.array_data.manifests if keeps and fits else ()
            node = replace(node, array=replace(node.array_data, manifests=manifests))
        out.nodes[path] = replace(node, path=path)
        out.updated.add(id_)


def _revive(alignment: NodeAlignment, out: ChangeSet, conflict: NodeConflict, base_table: References) -> None:
    """Create a node of ours again that theirs deleted, with the groups above it."""
    path = conflict.path if conflict.ours is ChangeKind.CREATED else parent_of(conflict.path)
    nodes = [
        alignment.moved_base.node(alignment.moved_base.find_node(path))
        for path in _revivable(alignment, path) or ()
        if path not in out.nodes
    ]
    if conflict.ours is not ChangeKind.CREATED:
        node = alignment.changes.node(alignment.moved_base, conflict.path)
        assert node is not None
        if node.array is not None:
            chunk_changes = alignment.changes.chunks.get(node.id)
            before, _ = alignment.ours.moved.get(node.id, (conflict.path, None))
            tables = [base_table(before)] if node.array.manifests else []
            table = ChunkTable.merge_tables(
                [*tables, *([chunk_changes.table()] if chunk_changes else [])]
                or [ChunkTable.empty(len(node.array.shape))]
            )
            inside = within(table.index, node.array.num_chunks)
            table = table.select_chunks(inside).stored()
            if len(table):
                out.chunks[node.id] = ChunkChanges(node.path, table.ndim, (table,))
            node = replace(node, array=replace(node.array, manifests=()))
        nodes.append(node)
    for node in nodes:
        out.nodes[node.path] = node
        out.created.add(node.id)


def _take_chunks(alignment: NodeAlignment, out: ChangeSet, effects: _Effects) -> None:
    partly = {
        conflict.node_id: (conflict, resolution)
        for conflict, resolution in effects.resolutions
        if conflict.type is ConflictType.ChunkDoubleUpdate
    }
    paths = {node.id: path for path, node in out.nodes.items() if node is not None}
    paths = _paths(alignment.moved_tip, alignment.changes.chunks.keys() - paths.keys()) | paths
    for id_, chunk_changes in alignment.changes.chunks.items():
        is_undone = (ChangeKind.WROTE, id_) in effects.undone
        if id_ not in paths or id_ in out.deleted or id_ in out.chunks or is_undone:
            continue
        table = chunk_changes.table()
        path = paths[id_]
        if id_ in partly:
            table = _resolved_chunks(table, *partly[id_])
        if id_ in alignment.theirs.updated or id_ in alignment.changes.updated:
            node = out.node(alignment.moved_tip, path)
            assert node is not None
            if len(node.array_data.shape) != chunk_changes.ndim:
                continue
            inside = within(table.index, node.array_data.num_chunks)
            table = table if inside.all() else table.select_chunks(inside)
        same = path == chunk_changes.path and table is chunk_changes.table()
        out.chunks[id_] = chunk_changes if same else ChunkChanges(path, chunk_changes.ndim, (table,))


def _resolved_chunks(table: ChunkTable, conflict: NodeConflict, resolution: Resolution) -> ChunkTable:
    """Return our references: dropped where theirs wins, replaced where both are merged."""
    assert conflict.chunks is not None
    theirs = conflict.chunks[~np.broadcast_to(resolution.ours, len(conflict.chunks))]
    if len(theirs):
        table = table.select_chunks(~in_both(table.index, theirs))
    return table if resolution.chunks is None else ChunkTable.merge_tables([table, resolution.chunks])


def _paths(nodes: NodeTable, ids: Iterable[bytes]) -> dict[bytes, str]:
    """Return the paths of the nodes that exist."""
    node_ids = list(ids)
    rows = rows_of(nodes, id_matrix(node_ids, NODE_ID_BYTES))
    return dict(
        zip(compress(node_ids, (rows >= 0).tolist()), nodes.paths.take(rows[rows >= 0]).texts(), strict=True)
    )
