"""The change set between two versions, for a merge, a cherry-pick or a revert."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges
from frazil.changes.node_changes import NodeChanges, rows_of, union_of_coordinates
from frazil.errors import ErrorKind, SessionStateError
from frazil.format.columns import U32
from frazil.format.ids import NODE_ID_BYTES, id_matrix
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import ManifestRef, Node, NodeTable
from frazil.format.transaction_log import Move

#: All references of an array in one version, by its path there.
Tables = Callable[[str], ChunkTable]


@dataclass(frozen=True, slots=True, eq=False)
class VersionContent:
    """The nodes of a version, and a function that returns the references of an array."""

    nodes: NodeTable
    table: Tables

    def node(self, id_: bytes) -> Node:
        """Return the node with this id."""
        return self.nodes.node(int(rows_of(self.nodes, id_matrix([id_], NODE_ID_BYTES))[0]))


def exact_changes(
    node_changes: NodeChanges,
    before: VersionContent,
    after: VersionContent,
    among: Iterable[bytes],
    resized: set[bytes],
) -> NodeChanges:
    """Return ``node_changes`` with exactly the chunks that differ, for the arrays ``among``.

    The chunks come from transaction logs. Logs also have chunks that were changed and changed back. They do
    not have chunks that a smaller shape dropped, in ``resized`` arrays.
    """
    chunks = dict(node_changes.chunks)
    for id_ in set(among) & (chunks.keys() | resized):
        row = int(rows_of(before.nodes, id_matrix([id_], NODE_ID_BYTES))[0])
        if row < 0 or id_ in node_changes.deleted:
            continue
        old, new = before.node(id_), after.node(id_)
        one, other = before.table(old.path), after.table(new.path)
        if one.ndim != other.ndim:
            chunks[id_] = other.index
            continue
        coords = union_of_coordinates([one.index, other.index]) if id_ in resized else chunks[id_]
        assert new.array is not None
        inside = (coords < np.array(new.array.num_chunks, np.uint64)).all(axis=1)
        coords = coords[inside]
        chunks[id_] = coords[~same_refs(one, other, coords)]
    chunks = {id_: coords for id_, coords in chunks.items() if len(coords)}
    return replace(node_changes, chunks=chunks, chunk_paths={id_: after.node(id_).path for id_ in chunks})


def same_refs(one: ChunkTable, other: ChunkTable, coords: U32) -> NDArray[np.bool_]:
    """Return whether two tables have the same reference, or none, at coordinates of shape (k, ndim)."""
    mine, theirs = one.find_chunks(coords), other.find_chunks(coords)
    same = (mine < 0) & (theirs < 0)
    both = np.flatnonzero((mine >= 0) & (theirs >= 0))
    same[both] = one.same(mine[both], other, theirs[both])
    return same


def change_set_between(node_changes: NodeChanges, before: VersionContent, after: VersionContent) -> ChangeSet:
    """Return the change set from ``before`` to ``after``, whose difference is ``node_changes``.

    Raises ``SessionStateError`` (``not-allowed``) if a node was moved to the path of a deleted node: a change
    set cannot contain that.
    """
    targets = {target for _, target in node_changes.moved.values()}
    if taken := targets & set(node_changes.deleted.values()):
        raise SessionStateError(
            f"a node was moved to `{min(taken)}`, where another node had been deleted. One commit cannot "
            "repeat both changes. Apply the commits one by one",
            ErrorKind.NOT_ALLOWED,
        )
    out = ChangeSet(
        created=set(node_changes.created),
        updated=set(node_changes.updated),
        deleted={id_: id_ in node_changes.arrays for id_ in node_changes.deleted},
        moves={
            id_: Move(source, target, id_, id_ in node_changes.arrays)
            for id_, (source, target) in node_changes.moved.items()
        },
    )
    out.nodes.update(dict.fromkeys(node_changes.deleted.values()))
    for id_, path in (node_changes.created | node_changes.updated).items():
        node = after.nodes.node(after.nodes.find_node(path))
        if node.array is not None:
            old = () if id_ in node_changes.created else _manifests(before.node(id_), node)
            node = replace(node, array=replace(node.array, manifests=old))
        out.nodes[path] = node
        if id_ in node_changes.created and node.array is not None:
            table = after.table(path)
            if len(table):
                out.chunks[id_] = ChunkChanges(path, table.ndim, (table,))
    for id_, coords in node_changes.chunks.items():
        path = node_changes.chunk_paths[id_]
        out.chunks[id_] = ChunkChanges(path, coords.shape[1], (_at(after.table(path), coords),))
    return out


def _manifests(old: Node, new: Node) -> Sequence[ManifestRef]:
    """Return the old manifests, to which the edits apply. None if the number of dimensions has changed."""
    assert old.array is not None
    assert new.array is not None
    return old.array.manifests if len(old.array.shape) == len(new.array.shape) else ()


def _at(table: ChunkTable, coords: U32) -> ChunkTable:
    """Return the references at these coordinates, and deletions for missing chunks."""
    rows = table.find_chunks(coords)
    gone = ChunkTable.from_absent(coords[rows < 0])
    return ChunkTable.merge_tables([table.select_chunks(np.sort(rows[rows >= 0])), gone])
