"""The conflicts between two sides that changed the same version, as a table.

*Ours* is a change set on the *base*, which is applied to another version, the *tip*. *Theirs* is the
difference between base and tip. ``TABLE`` defines all conflicts. **Changes without a row are compatible**:
both orders have the same result, or one change applies to the result of the other.

A node that one side moved is at the path where that side moved it. A new node of the other side in a moved
group follows the group. The *moved tip* is the tip with the moves of ours; its paths are those of both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import compress
from typing import Final

import numpy as np

from frazil.changes.change_set import ChangeSet, Moves, moved_nodes, parent_of
from frazil.changes.diff import NodeChanges, ancestors, in_both, node_changes_of_change_set, row_of, rows_of
from frazil.changes.zarr_metadata import same_encoding
from frazil.format.columns import U32
from frazil.format.ids import NODE_ID_BYTES, id_matrix
from frazil.format.snapshot import Node, NodeTable
from frazil.format.transaction_log import Move


class ChangeKind(Enum):
    """The change that one side made to a node."""

    CREATED = "created"
    UPDATED = "updated its metadata"
    WROTE = "set or deleted chunks"
    DELETED = "deleted"
    MOVED = "moved"


@dataclass(frozen=True, slots=True, eq=False)
class NodeAlignment:
    """The nodes of both sides, by their paths on the moved tip.

    ``changes`` and ``ours`` have the paths of ours, relative to ``moved_base``. ``theirs`` and ``moved_tip``
    have paths of the moved tip, which is the tip after ``moves``. ``tip_paths`` has the path there for each
    other path of ours. ``moved_apart`` are nodes that both sides moved to different paths, ``blocked`` those
    that ours cannot move: the path in ours by id. With ``by_chunk``, changed metadata of an array only
    conflict with chunks that become invalid.
    """

    changes: ChangeSet
    moved_base: NodeTable
    ours: NodeChanges
    theirs: NodeChanges
    moved_tip: NodeTable
    moves: Moves
    moved_apart: dict[bytes, str]
    blocked: dict[bytes, str]
    tip_paths: dict[str, str]
    by_chunk: bool = False

    def tip_path(self, path: str) -> str:
        """Return the path on the moved tip for a path of ours."""
        return self.tip_paths.get(path, path)

    def our_groups(self) -> set[str]:
        """Return the paths on the moved tip of the groups that ours created or moved."""
        ours = self.ours
        new = {**_nodes(ours, ChangeKind.MOVED), **ours.created}
        return {self.tip_path(path) for id_, path in new.items() if id_ not in ours.arrays}


def align_nodes(
    changes: ChangeSet, base: NodeTable, theirs: NodeChanges, tip: NodeTable, *, by_chunk: bool = False
) -> NodeAlignment:
    """Return the alignment of both sides. ``theirs`` leads from ``base`` to ``tip``."""
    moved_base = moved_nodes(base, changes.moves)
    ours = node_changes_of_change_set(changes, base)
    places = _places(changes, ours, theirs.moved)
    torn = {
        id_: target
        for id_, (_, target) in ours.moved.items()
        if id_ in theirs.moved and theirs.moved[id_][1] != target
    }
    if not changes.moves:
        return NodeAlignment(changes, moved_base, ours, theirs, tip, {}, torn, {}, places, by_chunk)
    targets = {
        id_: places.get(target, target)
        for id_, (_, target) in ours.moved.items()
        if id_ not in theirs.moved and id_ not in theirs.deleted
    }
    # Nodes that theirs created in groups of ours, or moved there, follow the groups.
    sources = {source: targets[id_] for id_, (source, _) in ours.moved.items() if id_ in targets}
    arrived = {**theirs.created, **{id_: target for id_, (_, target) in theirs.moved.items()}}
    carried = _carried(arrived.values(), sources, set(arrived.values()))
    targets.update((id_, carried[path]) for id_, path in arrived.items() if path in carried)
    blocked = _cannot_go(targets, tip, ours, places)
    ids = [id_ for id_ in targets if id_ not in blocked]
    now = dict(zip(ids, map(targets.__getitem__, ids), strict=True))
    rows = rows_of(tip, id_matrix(ids, NODE_ID_BYTES))
    starts, kinds = tip.paths.take(rows).texts(), tip.is_array[rows].tolist()
    moves = dict(zip(ids, map(Move, starts, now.values(), ids, kinds), strict=True))
    theirs = replace(
        theirs,
        created={id_: now.get(id_, path) for id_, path in theirs.created.items()},
        moved={id_: (source, now.get(id_, path)) for id_, (source, path) in theirs.moved.items()},
    )
    return NodeAlignment(
        changes, moved_base, ours, theirs, moved_nodes(tip, moves), moves, torn, blocked, places, by_chunk
    )


def _cannot_go(
    targets: Mapping[bytes, str], tip: NodeTable, ours: NodeChanges, places: Mapping[str, str]
) -> dict[bytes, str]:
    """Return the nodes that cannot be moved to their ``targets``, with their paths in ours."""
    taken = dict(zip(tip.paths_list(), tip.identities(np.arange(len(tip)))[0], strict=True))
    arrays = set(compress(taken.values(), tip.is_array.tolist()))
    new_groups = {places.get(path, path) for id_, path in ours.created.items() if id_ not in ours.arrays}
    going = dict(targets)
    vacancies: set[str] = set()
    while True:
        # A node that stays may block others.
        staying = {path: id_ for path, id_ in taken.items() if id_ not in going}
        groups = {path for path, id_ in staying.items() if id_ not in arrays}
        groups.update(new_groups - staying.keys())
        groups.update(path for id_, path in going.items() if id_ not in arrays)
        carried = {path for id_, path in going.items() if id_ not in ours.moved}
        lost = [
            id_
            for id_, path in going.items()
            if path in staying
            or (path in carried and id_ in ours.moved)
            or (above := parent_of(path)) not in groups
            or above in vacancies  # another group of theirs is there, not the group that this node follows
        ]
        if not lost:
            stays = targets.keys() - going.keys()
            return {id_: ours.moved[id_][1] if id_ in ours.moved else targets[id_] for id_ in stays}
        vacancies.update(map(going.pop, lost))


def _places(
    changes: ChangeSet, ours: NodeChanges, moved_paths: Mapping[bytes, tuple[str, str]]
) -> dict[str, str]:
    """Return the new paths of the nodes of ours that theirs moved, themselves or with their group."""
    if not moved_paths:
        return {}
    new = {*ours.created.values(), *(target for _, target in ours.moved.values())}
    paths = {*new, *ours.updated.values(), *(node_changes.path for node_changes in changes.chunks.values())}
    return _carried(paths, dict(moved_paths.values()), new)


def _carried(paths: Iterable[str], sources: Mapping[str, str], new: set[str]) -> dict[str, str]:
    """Return the new paths of nodes that were moved, or whose group was. ``new`` nodes follow their group."""

    def place(path: str) -> str:
        above = path
        while above in new and above != "/":
            above = parent_of(above)
        return sources[above] + path[len(above) :] if above in sources else path

    return {path: now for path in paths if (now := place(path)) != path}


def _nodes(node_changes: NodeChanges, did: ChangeKind) -> dict[bytes, str]:
    """Return the nodes that one side changed in this way, by id, with their new paths."""
    if did is not ChangeKind.MOVED:
        changed: dict[bytes, str] = getattr(node_changes, _FIELDS[did])
        return changed
    # Not the nodes that were only moved with their group.
    places = dict(node_changes.moved.values())
    return {
        id_: target
        for id_, (source, target) in node_changes.moved.items()
        if places.get(parent_of(source)) != parent_of(target)
        or source.rpartition("/")[2] != target.rpartition("/")[2]
    }


_FIELDS: Final = {
    ChangeKind.CREATED: "created",
    ChangeKind.UPDATED: "updated",
    ChangeKind.WROTE: "chunk_paths",
    ChangeKind.DELETED: "deleted",
}


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
    mine = _nodes(alignment.ours, ours)
    return ((mine[id_], id_, None) for id_ in mine.keys() & _nodes(alignment.theirs, theirs).keys())


def _same_chunk(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Both sides wrote the same chunks, which the conflict names."""
    for path, id_, _ in _same_node(alignment, ours, theirs):
        mine = alignment.ours.chunks[id_]
        both = mine[in_both(mine, alignment.theirs.chunks[id_])]
        if len(both):
            yield path, id_, both


def _chunk_lost(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Chunks of theirs are lost: ours made the grid smaller, or the encoding different."""
    for path, id_, _ in _same_node(alignment, ours, theirs):
        if id_ in alignment.theirs.updated:
            continue  # the double update of the metadata is the conflict
        lost = _lost_chunks(
            alignment, id_, alignment.theirs.chunks[id_], alignment.changes.array(alignment.moved_base, path)
        )
        if len(lost):
            yield path, id_, lost


def _under_them(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Theirs changed the metadata of an array whose chunks ours wrote. ``by_chunk`` ignores what fits."""
    for path, id_, _ in _same_node(alignment, ours, theirs):
        after = alignment.moved_tip.node(row_of(alignment.moved_tip, id_))
        if not alignment.by_chunk or len(_lost_chunks(alignment, id_, alignment.ours.chunks[id_], after)):
            yield path, id_, None


def _lost_chunks(alignment: NodeAlignment, id_: bytes, chunks: U32, after: Node) -> U32:
    """Return the chunks of an array of the base that do not fit the array ``after``."""
    before = alignment.moved_base.user_data.bytes(row_of(alignment.moved_base, id_))
    if chunks.shape[1] != len(after.array_data.shape) or not same_encoding(before, after.user_data):
        return chunks
    return chunks[(chunks >= np.array(after.array_data.num_chunks, np.uint64)).any(axis=1)]


def _same_path(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Two different nodes would have the same path."""
    taken = set(_nodes(alignment.theirs, theirs).values())
    return (
        (path, id_, None)
        for id_, path in _nodes(alignment.ours, ours).items()
        if alignment.tip_path(path) in taken
    )


def _in_array(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """A new node of ours would be below an array of theirs, whose path the conflict has."""
    other = alignment.theirs
    return _under(
        alignment, ours, {path for id_, path in _nodes(other, theirs).items() if id_ in other.arrays}
    )


def _group_loss(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """A new node of ours would be below a deleted group, whose path the conflict has."""
    other = alignment.theirs
    paths = {path for id_, path in _nodes(other, theirs).items() if id_ not in other.arrays}
    paths -= alignment.our_groups()
    return _under(alignment, ours, {path for path in paths if alignment.moved_tip.find_node(path) < 0})


def _under(alignment: NodeAlignment, ours: ChangeKind, bad: set[str]) -> Iterator[Match]:
    """Yield the new nodes of ours below one of these paths."""
    mine = _nodes(alignment.ours, ours)
    bad &= ancestors(map(alignment.tip_path, mine.values()))
    for id_, path in mine.items() if bad else ():
        above = alignment.tip_path(path)
        while above != "/":
            above = parent_of(above)
            if above in bad:
                yield above, id_, None
                break


def _below(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """A new node of theirs would be below a deleted group."""
    arrived = ancestors(_nodes(alignment.theirs, theirs).values()) - alignment.our_groups()
    return ((path, id_, None) for id_, path in _nodes(alignment.ours, ours).items() if path in arrived)


def _torn(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """Both sides moved the same node to different paths."""
    return ((path, id_, None) for id_, path in alignment.moved_apart.items())


def _blocked(alignment: NodeAlignment, ours: ChangeKind, theirs: ChangeKind) -> Iterator[Match]:
    """A node that ours moved would be at the path of another node of theirs."""
    taken = _nodes(alignment.theirs, theirs).values()
    return ((path, id_, None) for id_, path in alignment.blocked.items() if alignment.tip_path(path) in taken)


@dataclass(frozen=True, slots=True)
class ConflictRule:
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
    ConflictRule(_UPDATED,  _UPDATED,  _NODE,   _same_node,  _TYPE.ZarrMetadataDoubleUpdate),
    ConflictRule(_UPDATED,  _DELETED,  _ARRAY,  _same_node,  _TYPE.ZarrMetadataUpdateOfDeletedArray),
    ConflictRule(_UPDATED,  _DELETED,  _GROUP,  _same_node,  _TYPE.ZarrMetadataUpdateOfDeletedGroup),
    ConflictRule(_UPDATED,  _WROTE,    _ARRAY,  _chunk_lost, _TYPE.ChunksUpdatedInUpdatedArray),
    ConflictRule(_WROTE,    _UPDATED,  _ARRAY,  _under_them, _TYPE.ChunksUpdatedInUpdatedArray),
    ConflictRule(_WROTE,    _WROTE,    _ARRAY,  _same_chunk, _TYPE.ChunkDoubleUpdate),
    ConflictRule(_WROTE,    _DELETED,  _ARRAY,  _same_node,  _TYPE.ChunksUpdatedInDeletedArray),
    ConflictRule(_DELETED,  _UPDATED,  _ARRAY,  _same_node,  _TYPE.DeleteOfUpdatedArray),
    ConflictRule(_DELETED,  _WROTE,    _ARRAY,  _same_node,  _TYPE.DeleteOfUpdatedArray),
    ConflictRule(_DELETED,  _UPDATED,  _GROUP,  _same_node,  _TYPE.DeleteOfUpdatedGroup),
    ConflictRule(_DELETED,  _CREATED,  _GROUP,  _below,      _TYPE.DeleteOfUpdatedGroup),
    ConflictRule(_DELETED,  _MOVED,    _GROUP,  _below,      _TYPE.DeleteOfUpdatedGroup),
    ConflictRule(_DELETED,  _MOVED,    _NODE,   _same_node,  _TYPE.MoveOperationCannotBeRebased),
    ConflictRule(_CREATED,  _CREATED,  _NODE,   _same_path,  _TYPE.NewNodeConflictsWithExistingNode),
    ConflictRule(_CREATED,  _MOVED,    _NODE,   _same_path,  _TYPE.NewNodeConflictsWithExistingNode),
    ConflictRule(_CREATED,  _CREATED,  _NODE,   _in_array,   _TYPE.NewNodeInInvalidGroup),
    ConflictRule(_CREATED,  _MOVED,    _NODE,   _in_array,   _TYPE.NewNodeInInvalidGroup),
    ConflictRule(_CREATED,  _DELETED,  _NODE,   _group_loss, _TYPE.NewNodeInInvalidGroup),
    ConflictRule(_MOVED,    _DELETED,  _NODE,   _same_node,  _TYPE.MoveOperationCannotBeRebased),
    ConflictRule(_MOVED,    _MOVED,    _NODE,   _torn,       _TYPE.MoveOperationCannotBeRebased),
    ConflictRule(_MOVED,    _CREATED,  _NODE,   _blocked,    _TYPE.MoveOperationCannotBeRebased),
    ConflictRule(_MOVED,    _MOVED,    _NODE,   _blocked,    _TYPE.MoveOperationCannotBeRebased),
    ConflictRule(_MOVED,    _CREATED,  _NODE,   _in_array,   _TYPE.MoveOperationCannotBeRebased),
    ConflictRule(_MOVED,    _MOVED,    _NODE,   _in_array,   _TYPE.MoveOperationCannotBeRebased),
    ConflictRule(_MOVED,    _DELETED,  _NODE,   _group_loss, _TYPE.MoveOperationCannotBeRebased),
)
# fmt: on


def find_conflicts(alignment: NodeAlignment) -> list[NodeConflict]:
    """Return all conflicts, sorted by path and row of the table. A node has at most one of each type."""
    conflicts: dict[tuple[ConflictType, bytes], NodeConflict] = {}
    for rule in TABLE:
        for path, node_id, chunks in rule.relation(alignment, rule.ours, rule.theirs):
            kind = _ARRAY if node_id in alignment.ours.arrays else _GROUP
            if rule.of in (kind, _NODE):
                conflict = NodeConflict(rule.conflict, path, node_id, rule.ours, rule.theirs, chunks)
                conflicts.setdefault((rule.conflict, node_id), conflict)
    return sorted(conflicts.values(), key=lambda conflict: conflict.path)
