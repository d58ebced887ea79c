"""The conflicts between two sides that changed the same version, as a table.

*Ours* is the side that is applied to another version: the changes of a session that is rebased, or of a
commit that is merged, picked or reverted. *Theirs* is the difference between the version that ours started
from (the *base*) and the version that ours is applied to (the *tip*). Two nodes are the same if they have the
same id. Two chunks are the same if they have the same node and coordinates.

``TABLE`` defines all conflicts. A row means: if ours made this change and theirs made that change, and the
two changes have this relation, then there is a conflict of this type. **Changes without a row are
compatible**: both orders of the changes have the same result, or one change applies to the result of the
other. So chunks with different coordinates never conflict. Neither do two deletions of the same node, a new
attribute of an array whose chunks they wrote, or a chunk that we wrote in an array that they moved (it
follows the array).

A relation is a function that yields the matching nodes, with the coordinates of the chunks in conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from frazil.changes.moves import parent_of
from frazil.changes.node_alignment import ChangeKind, NodeAlignment
from frazil.changes.node_changes import ancestors, in_both, rows_of
from frazil.changes.zarr_metadata import same_encoding
from frazil.format.columns import U32
from frazil.format.ids import NODE_ID_BYTES, id_matrix
from frazil.format.snapshot import Node


class ConflictType(Enum):
    """The type of a conflict between two changes."""

    NewNodeConflictsWithExistingNode = 1
    NewNodeInInvalidGroup = 2
    ZarrMetadataDoubleUpdate = 3
    ZarrMetadataUpdateOfDeletedArray = 4
    ZarrMetadataUpdateOfDeletedGroup = 5
    ChunkDoubleUpdate = 6
    ChunksUpdatedInDeletedArray = 7
    ChunksUpdatedInUpdatedArray = 8
    DeleteOfUpdatedArray = 9
    DeleteOfUpdatedGroup = 10
    MoveOperationCannotBeRebased = 11

    def __int__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in self.name)
        return words.strip().capitalize()


class NodeKind(Enum):
    """The kind of nodes that a row of the table applies to."""

    ARRAY = "arrays"
    GROUP = "groups"
    NODE = "arrays and groups"


@dataclass(frozen=True, slots=True, eq=False)
class NodeConflict:
    """A conflict. ``path`` is the path of ours, ``node_id`` the id of the node that ours changed."""

    type: ConflictType
    path: str
    node_id: bytes
    ours: ChangeKind
    theirs: ChangeKind
    chunks: U32 | None = None


#: A match of a relation: the path, the node id, and the coordinates.
type Match = tuple[str, bytes, U32 | None]


# The relations. Each function gets the changes of both sides.


def _same_node(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Both sides changed the same node."""
    mine = alignment.our_nodes(ours)
    return ((mine[id_], id_, None) for id_ in mine.keys() & alignment.their_nodes(theirs).keys())


def _same_chunk(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Both sides wrote the same chunks, which the conflict names."""
    for path, id_, _ in _same_node(alignment, ours, theirs):
        mine = alignment.ours.chunks[id_]
        both = mine[in_both(mine, alignment.theirs.chunks[id_])]
        if len(both):
            yield path, id_, both


def _chunk_lost(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Ours changed the metadata of an array so that chunks of theirs are lost, which the conflict names.

    They are outside of the smaller grid, or chunks are cut or encoded in another way.
    """
    for path, id_, _ in _same_node(alignment, ours, theirs):
        if id_ in alignment.theirs.updated:
            continue  # the double update of the metadata is the conflict
        lost = _lost_chunks(
            alignment, id_, alignment.theirs.chunks[id_], alignment.changes.array(alignment.moved_base, path)
        )
        if len(lost):
            yield path, id_, lost


def _under_them(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Theirs changed the metadata of an array whose chunks ours wrote.

    In a rebase, every change of the metadata is a conflict. In a merge, only a change that loses chunks is.
    """
    for path, id_, _ in _same_node(alignment, ours, theirs):
        after = alignment.moved_tip.node(
            int(rows_of(alignment.moved_tip, id_matrix([id_], NODE_ID_BYTES))[0])
        )
        if not alignment.by_chunk or len(_lost_chunks(alignment, id_, alignment.ours.chunks[id_], after)):
            yield path, id_, None


def _lost_chunks(alignment: NodeAlignment, id_: bytes, chunks: U32, after: Node) -> U32:
    """Return the chunks of an array of the base that do not fit the array ``after``."""
    assert after.array is not None
    before = alignment.moved_base.user_data.bytes(
        int(rows_of(alignment.moved_base, id_matrix([id_], NODE_ID_BYTES))[0])
    )
    if chunks.shape[1] != len(after.array.shape) or not same_encoding(before, after.user_data):
        return chunks
    return chunks[(chunks >= np.array(after.array.num_chunks, np.uint64)).any(axis=1)]


def _same_path(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Two different nodes would have the same path."""
    taken = set(alignment.their_nodes(theirs).values())
    return (
        (path, id_, None)
        for id_, path in alignment.our_nodes(ours).items()
        if alignment.tip_path(path) in taken
    )


def _in_array(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """A new node of ours would be below an array of theirs, whose path the conflict has."""
    arrays = {path for id_, path in alignment.their_nodes(theirs).items() if id_ in alignment.theirs.arrays}
    return _under(alignment, ours, arrays)


def _group_gone(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """A new node of ours would be below a deleted group, whose path the conflict has."""
    gone = {path for id_, path in alignment.their_nodes(theirs).items() if id_ not in alignment.theirs.arrays}
    gone -= alignment.our_groups()
    return _under(alignment, ours, {path for path in gone if alignment.moved_tip.find_node(path) < 0})


def _under(alignment: NodeAlignment, ours: ChangeKind, bad: set[str]) -> Iterator[Match]:
    """Yield the new nodes of ours below one of these paths."""
    mine = alignment.our_nodes(ours)
    bad &= ancestors(map(alignment.tip_path, mine.values()))
    for id_, path in mine.items() if bad else ():
        above = next((path for path in _upwards(alignment.tip_path(path)) if path in bad), None)
        if above is not None:
            yield above, id_, None


def _upwards(path: str) -> Iterator[str]:
    """Yield the groups above a path, the nearest first."""
    while path != "/":
        path = parent_of(path)
        yield path


def _below(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """A new node of theirs would be below a deleted group."""
    arrived = ancestors(alignment.their_nodes(theirs).values()) - alignment.our_groups()
    return ((path, id_, None) for id_, path in alignment.our_nodes(ours).items() if path in arrived)


def _torn(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Both sides moved the same node to different paths."""
    return ((path, id_, None) for id_, path in alignment.moved_apart.items())


def _blocked(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """A node that ours moved would be at the path of another node of theirs."""
    taken = alignment.their_nodes(theirs).values()
    return ((path, id_, None) for id_, path in alignment.blocked.items() if alignment.tip_path(path) in taken)


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table."""

    ours: ChangeKind
    theirs: ChangeKind
    of: NodeKind
    relation: Callable[[NodeAlignment, ChangeKind, ChangeKind], Iterator[Match]]
    conflict: ConflictType


_CREATED, _UPDATED, _WROTE, _DELETED, _MOVED = ChangeKind
_ARRAY, _GROUP, _NODE = NodeKind
_TYPE = ConflictType

# fmt: off
TABLE: Final = (
    #    ours       theirs     of       relation      conflict
    Rule(_UPDATED,  _UPDATED,  _NODE,   _same_node,  _TYPE.ZarrMetadataDoubleUpdate),
    Rule(_UPDATED,  _DELETED,  _ARRAY,  _same_node,  _TYPE.ZarrMetadataUpdateOfDeletedArray),
    Rule(_UPDATED,  _DELETED,  _GROUP,  _same_node,  _TYPE.ZarrMetadataUpdateOfDeletedGroup),
    Rule(_UPDATED,  _WROTE,    _ARRAY,  _chunk_lost, _TYPE.ChunksUpdatedInUpdatedArray),
    Rule(_WROTE,    _UPDATED,  _ARRAY,  _under_them, _TYPE.ChunksUpdatedInUpdatedArray),
    Rule(_WROTE,    _WROTE,    _ARRAY,  _same_chunk, _TYPE.ChunkDoubleUpdate),
    Rule(_WROTE,    _DELETED,  _ARRAY,  _same_node,  _TYPE.ChunksUpdatedInDeletedArray),
    Rule(_DELETED,  _UPDATED,  _ARRAY,  _same_node,  _TYPE.DeleteOfUpdatedArray),
    Rule(_DELETED,  _WROTE,    _ARRAY,  _same_node,  _TYPE.DeleteOfUpdatedArray),
    Rule(_DELETED,  _UPDATED,  _GROUP,  _same_node,  _TYPE.DeleteOfUpdatedGroup),
    Rule(_DELETED,  _CREATED,  _GROUP,  _below,      _TYPE.DeleteOfUpdatedGroup),
    Rule(_DELETED,  _MOVED,    _GROUP,  _below,      _TYPE.DeleteOfUpdatedGroup),
    Rule(_DELETED,  _MOVED,    _NODE,   _same_node,  _TYPE.MoveOperationCannotBeRebased),
    Rule(_CREATED,  _CREATED,  _NODE,   _same_path,  _TYPE.NewNodeConflictsWithExistingNode),
    Rule(_CREATED,  _MOVED,    _NODE,   _same_path,  _TYPE.NewNodeConflictsWithExistingNode),
    Rule(_CREATED,  _CREATED,  _NODE,   _in_array,   _TYPE.NewNodeInInvalidGroup),
    Rule(_CREATED,  _MOVED,    _NODE,   _in_array,   _TYPE.NewNodeInInvalidGroup),
    Rule(_CREATED,  _DELETED,  _NODE,   _group_gone, _TYPE.NewNodeInInvalidGroup),
    Rule(_MOVED,    _DELETED,  _NODE,   _same_node,  _TYPE.MoveOperationCannotBeRebased),
    Rule(_MOVED,    _MOVED,    _NODE,   _torn,       _TYPE.MoveOperationCannotBeRebased),
    Rule(_MOVED,    _CREATED,  _NODE,   _blocked,    _TYPE.MoveOperationCannotBeRebased),
    Rule(_MOVED,    _MOVED,    _NODE,   _blocked,    _TYPE.MoveOperationCannotBeRebased),
    Rule(_MOVED,    _CREATED,  _NODE,   _in_array,   _TYPE.MoveOperationCannotBeRebased),
    Rule(_MOVED,    _MOVED,    _NODE,   _in_array,   _TYPE.MoveOperationCannotBeRebased),
    Rule(_MOVED,    _DELETED,  _NODE,   _group_gone, _TYPE.MoveOperationCannotBeRebased),
)
# fmt: on


def find_conflicts(alignment: NodeAlignment) -> list[NodeConflict]:
    """Return all conflicts between ours and theirs, sorted by path and row of the table.

    A node has at most one conflict of each type, even if several rows match.
    """
    conflicts: dict[tuple[ConflictType, bytes], NodeConflict] = {}
    for rule in TABLE:
        for path, node_id, chunks in rule.relation(alignment, rule.ours, rule.theirs):
            kind = _ARRAY if node_id in alignment.ours.arrays else _GROUP
            if rule.of in (kind, _NODE):
                conflict = NodeConflict(rule.conflict, path, node_id, rule.ours, rule.theirs, chunks)
                conflicts.setdefault((rule.conflict, node_id), conflict)
    return sorted(conflicts.values(), key=lambda conflict: conflict.path)
