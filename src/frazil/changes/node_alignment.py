"""Ours and theirs on one map: where every node of both would be.

Ours are a change set on a *base*, theirs what leads from there to the *tip*. A node that one side moved is
where that side put it, whatever the other did to it. What the other put into a group goes where the group
went: a new node, or one that was moved into it. So the *ground* is the tip with the moves of ours, the new
nodes of theirs carried along; on it stand the paths of both.
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


class Did(Enum):
    """What one side did to a node."""

    CREATED = "created"
    UPDATED = "updated its metadata"
    WROTE = "set or deleted chunks"
    DELETED = "deleted"
    MOVED = "moved"


@dataclass(frozen=True, slots=True, eq=False)
class NodeAlignment:
    """See the module.

    changes   ours
    here      the base with the moves of ours: what the other paths of ``changes`` are relative to
    ours      what ours did, with the paths of ``changes``
    theirs    what theirs did, with paths on the ground
    ground    the nodes of the tip, where ours and theirs have put them
    moves     the moves of ours, from the tip to the ground
    torn      id -> path in ours: nodes that both sides moved, each somewhere else
    blocked   id -> path in ours: nodes that ours moved to where theirs has another node, or no group any more
    places    where paths of ours are on the ground, as far as they are not the same
    by_chunk  whether other metadata of an array are fine with chunks that stay good under them
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
        """Return where a path of ours is on the ground."""
        return self.tip_paths.get(path, path)

    def our_nodes(self, did: Did) -> dict[bytes, str]:
        """Nodes to which ours did this, with their paths; not those that moved along with their group."""
        return _nodes(self.ours, did)

    def their_nodes(self, did: Did) -> dict[bytes, str]:
        """Return the same of theirs."""
        return _nodes(self.theirs, did)

    def our_groups(self) -> set[str]:
        """Return where ours has new groups, or has moved some, on the ground."""
        ours = self.ours
        new = {**self.our_nodes(Did.MOVED), **ours.created}
        return {self.tip_path(path) for id_, path in new.items() if id_ not in ours.arrays}


def align_nodes(
    changes: ChangeSet, base: NodeTable, theirs: NodeChanges, tip: NodeTable, *, by_chunk: bool = False
) -> NodeAlignment:
    """Put both sides on one map."""
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
    # What theirs put into groups that ours moved comes along.
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
    """Nodes that cannot be where ``targets`` puts them, with their paths in ours: they stay where theirs has
    them, and so do those below them.
    """
    taken = dict(zip(tip.paths_list(), _ids(tip), strict=True))
    arrays = set(compress(taken.values(), tip.is_array.tolist()))
    new_groups = {places.get(path, path) for id_, path in ours.created.items() if id_ not in ours.arrays}
    going = dict(targets)
    gone: set[str] = set()
    while True:
        # What stays may be in the way of others.
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
            or above in gone  # a group of theirs is there, not the one that this went along with
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
    """Where theirs has put the nodes of ours, and the groups of those that ours created or moved there."""
    if not moved_paths:
        return {}
    new = {*ours.created.values(), *(target for _, target in ours.moved.values())}
    paths = {*new, *ours.updated.values(), *(node_changes.path for node_changes in changes.chunks.values())}
    return _carried(paths, dict(moved_paths.values()), new)


def _carried(paths: Iterable[str], sources: Mapping[str, str], new: set[str]) -> dict[str, str]:
    """New paths of those nodes whose group, or who themselves, were moved; ``new`` nodes by their group."""

    def place(path: str) -> str:
        above = path
        while above in new and above != "/":
            above = parent_of(above)
        return sources[above] + path[len(above) :] if above in sources else path

    return {path: now for path in paths if (now := place(path)) != path}


def _nodes(node_changes: NodeChanges, did: Did) -> dict[bytes, str]:
    match did:
        case Did.CREATED:
            return node_changes.created
        case Did.UPDATED:
            return node_changes.updated
        case Did.WROTE:
            return node_changes.chunk_paths
        case Did.DELETED:
            return node_changes.deleted
        case Did.MOVED:
            return dict(moved_roots(node_changes.moved))


def moved_roots(moved_paths: Mapping[bytes, tuple[str, str]]) -> Iterator[tuple[bytes, str]]:
    """Return the nodes that were moved for themselves, not along with their group; with where they went."""
    places = dict(moved_paths.values())
    along = (
        places.get(parent_of(source)) == parent_of(target)
        and source.rpartition("/")[2] == target.rpartition("/")[2]
        for source, target in moved_paths.values()
    )
    return ((id_, moved_paths[id_][1]) for id_ in compress(moved_paths, (not each for each in along)))
