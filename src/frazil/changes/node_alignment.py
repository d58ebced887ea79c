"""The node alignment: the nodes of both sides of a rebase or merge, by their paths on the tip.

Ours is a change set on a *base*. Theirs is the difference between the base and the *tip*. A node that one
side moved is at the path where that side moved it, whatever the other side changed in it. A node that the
other side created in a group, or moved into it, follows the group. The *moved tip* is the tip with the moves
of ours, where new nodes of theirs follow their groups. The paths of both sides are paths of the moved tip.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import compress

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.moves import Moves, moved_nodes, parent_of
from frazil.changes.node_changes import NodeChanges, node_changes_of_change_set, rows_of
from frazil.format.ids import NODE_ID_BYTES, id_matrix
from frazil.format.snapshot import NodeTable
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

    Attributes:
        changes: The change set of ours.
        moved_base: The base with the moves of ours. The other paths of ``changes`` are relative to it.
        ours: The changes of ours, with the paths of ``changes``.
        theirs: The changes of theirs, with paths of the moved tip.
        moved_tip: The nodes of the tip, at the paths to which ours and theirs have moved them.
        moves: The moves of ours, from the tip to the moved tip.
        moved_apart: Nodes that the two sides moved to different paths: the path in ours by id.
        blocked: Nodes that ours moved to a path where theirs has another node, or no group any more: the path
            in ours by id.
        tip_paths: The path on the moved tip for each path of ours that differs from it.
        by_chunk: Whether changed metadata of an array only conflict with chunks that become invalid.
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

    def our_nodes(self, did: ChangeKind) -> dict[bytes, str]:
        """Return the nodes that ours changed in this way, except nodes that only follow their group."""
        return _nodes(self.ours, did)

    def their_nodes(self, did: ChangeKind) -> dict[bytes, str]:
        """Return the nodes that theirs changed in this way, except nodes that only follow their group."""
        return _nodes(self.theirs, did)

    def our_groups(self) -> set[str]:
        """Return the paths on the moved tip of the groups that ours created or moved."""
        ours = self.ours
        new = {**self.our_nodes(ChangeKind.MOVED), **ours.created}
        return {self.tip_path(path) for id_, path in new.items() if id_ not in ours.arrays}


def align_nodes(
    changes: ChangeSet, base: NodeTable, theirs: NodeChanges, tip: NodeTable, *, by_chunk: bool = False
) -> NodeAlignment:
    """Return the alignment of both sides. ``theirs`` leads from ``base`` to ``tip``."""
    moved_base = changes.moved_nodes(base)
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
    arrived = {**theirs.created, **_targets(theirs.moved)}
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
    """Return the nodes that cannot be moved to their ``targets``, with their paths in ours.

    These nodes, and the nodes below them, stay at the paths of theirs.
    """
    taken = dict(zip(tip.paths_list(), _ids(tip), strict=True))
    arrays = set(compress(taken.values(), tip.is_array.tolist()))
    new_groups = {places.get(path, path) for id_, path in ours.created.items() if id_ not in ours.arrays}
    going = dict(targets)
    gone: set[str] = set()
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
            or above in gone  # another group of theirs is there, not the group that this node follows
        ]
        if not lost:
            return {id_: _our_path(ours, id_, targets[id_]) for id_ in targets.keys() - going.keys()}
        gone.update(map(going.pop, lost))


def _our_path(ours: NodeChanges, id_: bytes, path: str) -> str:
    return ours.moved[id_][1] if id_ in ours.moved else path


def _targets(moved_paths: Mapping[bytes, tuple[str, str]]) -> dict[bytes, str]:
    return {id_: target for id_, (_, target) in moved_paths.items()}


def _ids(nodes: NodeTable) -> list[bytes]:
    return nodes.identities(np.arange(len(nodes)))[0]


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
    """Return the new paths of nodes that were moved, or whose group was moved.

    ``new`` nodes only follow their group.
    """

    def place(path: str) -> str:
        above = path
        while above in new and above != "/":
            above = parent_of(above)
        return sources[above] + path[len(above) :] if above in sources else path

    return {path: now for path in paths if (now := place(path)) != path}


def _nodes(node_changes: NodeChanges, did: ChangeKind) -> dict[bytes, str]:
    match did:
        case ChangeKind.CREATED:
            return node_changes.created
        case ChangeKind.UPDATED:
            return node_changes.updated
        case ChangeKind.WROTE:
            return node_changes.chunk_paths
        case ChangeKind.DELETED:
            return node_changes.deleted
        case ChangeKind.MOVED:
            return dict(moved_roots(node_changes.moved))


def moved_roots(moved_paths: Mapping[bytes, tuple[str, str]]) -> Iterator[tuple[bytes, str]]:
    """Return the nodes that were moved themselves, not only with their group, with their new paths."""
    places = dict(moved_paths.values())
    along = (
        places.get(parent_of(source)) == parent_of(target)
        and source.rpartition("/")[2] == target.rpartition("/")[2]
        for source, target in moved_paths.values()
    )
    return ((id_, moved_paths[id_][1]) for id_ in compress(moved_paths, (not each for each in along)))
