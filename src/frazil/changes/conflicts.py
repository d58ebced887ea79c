"""What happens when two sides changed one version: the table of conflicts.

*Ours* are changes on their way onto another version: those of a session that is rebased, or of a commit that
is merged, picked or reverted. *Theirs* is what leads from the version that ours started from (the *base*) to
the one they shall go on (the *tip*). Nodes are the same if their ids are; chunks if node and coordinates are.

``TABLE`` is the whole of it. A row reads: if ours did this and theirs did that, and the two stand in this
relation, it is a conflict of this type. **What has no row is compatible**: the two orders of doing it give
the same result, or one side simply goes on what the other did. So chunks of different coordinates never
conflict, nor do two deletions of one node, a new attribute under chunks that they wrote, or a chunk that we
wrote in an array that they moved (it follows the array).

Relations:

    SAME_NODE   one node, by its id
    SAME_CHUNK  one node, and some coordinates that both wrote; the conflict has them
    CHUNK_LOST  one array whose metadata ours changed so that chunks that theirs wrote are lost: they lie
                outside of the smaller grid, or chunks are cut or encoded in another way. It has their
                coordinates, as far as they are lost
    SAME_PATH   two nodes that ended at one path
    IN_ARRAY    a new node of ours would be below an array of theirs; the conflict has the array's path
    GROUP_GONE  a new node of ours would be below a group that is gone; the conflict has the group's path
    BELOW       a new node of theirs would be below a group that is gone
    RENAMED     one node, that was moved for itself and not along with its group
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.edits import Edits, ancestors, edits_of, in_both, parent_of, rows_of
from frazil.changes.zarr_metadata import same_encoding
from frazil.format.columns import U32
from frazil.format.ids import id_matrix
from frazil.format.snapshot import NodeTable


class ConflictType(Enum):
    """What kind of conflict two changes make."""

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

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in self.name)
        return words.strip().capitalize()


class Did(Enum):
    """What one side did to a node."""

    CREATED = "created"
    UPDATED = "updated its metadata"
    WROTE = "set or deleted chunks"
    DELETED = "deleted"
    MOVED = "moved"


class Of(Enum):
    """What a row of the table is about."""

    ARRAY = "arrays"
    GROUP = "groups"
    NODE = "arrays and groups"


@dataclass(frozen=True, slots=True, eq=False)
class Clash:
    """One conflict. ``path`` is that of ours; ``node_id`` of the node that ours changed."""

    type: ConflictType
    path: str
    node_id: bytes
    ours: Did
    theirs: Did
    chunks: U32 | None = None


#: What a relation finds: path, node id, coordinates.
type Met = tuple[str, bytes, U32 | None]


@dataclass(frozen=True, eq=False)
class Meeting:
    """Ours and theirs, and what each question about them needs."""

    changes: ChangeSet
    base: NodeTable
    theirs: Edits
    tip: NodeTable

    @cached_property
    def ours(self) -> Edits:
        return edits_of(self.changes, self.base)

    @cached_property
    def places(self) -> dict[str, str]:
        """Where ours go in the tip, of those paths that are not the same: theirs moved the node or its group.

        A new node goes where its group went.
        """
        sources = dict(self.theirs.moved.values())
        if not sources:
            return {}
        mine = [*self.ours.created.values(), *self.ours.updated.values()]
        mine += [edits.path for edits in self.changes.chunks.values()]
        new = set(self.ours.created.values())

        def place(path: str) -> str:
            above = path
            while above in new and above != "/":
                above = parent_of(above)
            return sources[above] + path[len(above) :] if above in sources else path

        return {path: now for path in mine if (now := place(path)) != path}

    def place(self, path: str) -> str:
        """Where a path of ours is in the tip."""
        return self.places.get(path, path)

    @cached_property
    def our_groups(self) -> set[str]:
        """Paths in the tip of groups that ours created."""
        ours = self.ours
        return {self.place(path) for id_, path in ours.created.items() if id_ not in ours.arrays}

    def our(self, did: Did) -> dict[bytes, str]:
        """Nodes to which ours did this, with their paths."""
        return _nodes(self.ours, did)

    def their(self, did: Did) -> dict[bytes, str]:
        """Nodes to which theirs did this."""
        return _nodes(self.theirs, did)


def _nodes(edits: Edits, did: Did) -> dict[bytes, str]:
    match did:
        case Did.CREATED:
            return edits.created
        case Did.UPDATED:
            return edits.updated
        case Did.WROTE:
            return edits.written
        case Did.DELETED:
            return edits.deleted
        case Did.MOVED:
            return {id_: target for id_, (_, target) in edits.moved.items()}


# Relations: what both sides did, and what it was.


def _same_node(at: Meeting, ours: Did, theirs: Did) -> Iterator[Met]:
    mine = at.our(ours)
    return ((mine[id_], id_, None) for id_ in mine.keys() & at.their(theirs).keys())


def _same_chunk(at: Meeting, ours: Did, theirs: Did) -> Iterator[Met]:
    for path, id_, _ in _same_node(at, ours, theirs):
        mine = at.ours.chunks[id_]
        both = mine[in_both(mine, at.theirs.chunks[id_])]
        if len(both):
            yield path, id_, both


def _chunk_lost(at: Meeting, ours: Did, theirs: Did) -> Iterator[Met]:
    for path, id_, _ in _same_node(at, ours, theirs):
        if id_ in at.theirs.updated:
            continue  # that is the conflict
        written = at.theirs.chunks[id_]
        node = at.changes.array(at.base, path)
        assert node.array is not None
        before = at.base.user_data.bytes(int(rows_of(at.base, id_matrix([id_], len(id_)))[0]))
        if written.shape[1] == len(node.array.shape) and same_encoding(before, node.user_data):
            written = written[(written >= np.array(node.array.num_chunks, np.uint64)).any(axis=1)]
        if len(written):
            yield path, id_, written


def _same_path(at: Meeting, ours: Did, theirs: Did) -> Iterator[Met]:
    taken = set(at.their(theirs).values())
    return ((path, id_, None) for id_, path in at.our(ours).items() if at.place(path) in taken)


def _in_array(at: Meeting, ours: Did, theirs: Did) -> Iterator[Met]:
    arrays = {path for id_, path in at.their(theirs).items() if id_ in at.theirs.arrays}
    return _under(at, ours, arrays)


def _group_gone(at: Meeting, ours: Did, theirs: Did) -> Iterator[Met]:
    gone = {path for id_, path in at.their(theirs).items() if id_ not in at.theirs.arrays}
    gone -= at.our_groups
    return _under(at, ours, {path for path in gone if at.tip.find(path) < 0})


def _under(at: Meeting, ours: Did, bad: set[str]) -> Iterator[Met]:
    """New nodes of ours below one of these paths."""
    mine = at.our(ours)
    bad &= ancestors(map(at.place, mine.values()))
    for id_, path in mine.items() if bad else ():
        above = next((path for path in _upwards(at.place(path)) if path in bad), None)
        if above is not None:
            yield above, id_, None


def _upwards(path: str) -> Iterator[str]:
    """The groups above a path, the nearest first."""
    while path != "/":
        path = parent_of(path)
        yield path


def _below(at: Meeting, ours: Did, theirs: Did) -> Iterator[Met]:
    arrived = ancestors(at.their(theirs).values()) - at.our_groups
    return ((path, id_, None) for id_, path in at.our(ours).items() if path in arrived)


def _renamed(at: Meeting, ours: Did, theirs: Did) -> Iterator[Met]:
    places = dict(at.theirs.moved.values())
    for path, id_, _ in _same_node(at, ours, theirs):
        source, target = at.theirs.moved[id_]
        if not _moved_along(places, source, target):
            yield path, id_, None


def _moved_along(places: Mapping[str, str], source: str, target: str) -> bool:
    """Whether a node is where it is because its group was moved."""
    name = source.rpartition("/")[2]
    return places.get(parent_of(source)) == parent_of(target) and target.endswith(f"/{name}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table."""

    ours: Did
    theirs: Did
    of: Of
    relation: Callable[[Meeting, Did, Did], Iterator[Met]]
    conflict: ConflictType


def _table(*rows: tuple[Did, Did, Of, str, str]) -> tuple[Rule, ...]:
    relations = {
        "SAME_NODE": _same_node,
        "SAME_CHUNK": _same_chunk,
        "CHUNK_LOST": _chunk_lost,
        "SAME_PATH": _same_path,
        "IN_ARRAY": _in_array,
        "GROUP_GONE": _group_gone,
        "BELOW": _below,
        "RENAMED": _renamed,
    }
    return tuple(
        Rule(ours, theirs, of, relations[how], ConflictType[name]) for ours, theirs, of, how, name in rows
    )


_CREATED, _UPDATED, _WROTE, _DELETED, _MOVED = Did
_ARRAY, _GROUP, _NODE = Of

# fmt: off
TABLE: Final = _table(
    # ours      theirs     of       relation      conflict
    (_UPDATED,  _UPDATED,  _NODE,   "SAME_NODE",  "ZarrMetadataDoubleUpdate"),
    (_UPDATED,  _DELETED,  _ARRAY,  "SAME_NODE",  "ZarrMetadataUpdateOfDeletedArray"),
    (_UPDATED,  _DELETED,  _GROUP,  "SAME_NODE",  "ZarrMetadataUpdateOfDeletedGroup"),
    (_UPDATED,  _WROTE,    _ARRAY,  "CHUNK_LOST", "ChunksUpdatedInUpdatedArray"),
    (_WROTE,    _UPDATED,  _ARRAY,  "SAME_NODE",  "ChunksUpdatedInUpdatedArray"),
    (_WROTE,    _WROTE,    _ARRAY,  "SAME_CHUNK", "ChunkDoubleUpdate"),
    (_WROTE,    _DELETED,  _ARRAY,  "SAME_NODE",  "ChunksUpdatedInDeletedArray"),
    (_DELETED,  _UPDATED,  _ARRAY,  "SAME_NODE",  "DeleteOfUpdatedArray"),
    (_DELETED,  _WROTE,    _ARRAY,  "SAME_NODE",  "DeleteOfUpdatedArray"),
    (_DELETED,  _UPDATED,  _GROUP,  "SAME_NODE",  "DeleteOfUpdatedGroup"),
    (_DELETED,  _CREATED,  _GROUP,  "BELOW",      "DeleteOfUpdatedGroup"),
    (_DELETED,  _MOVED,    _GROUP,  "BELOW",      "DeleteOfUpdatedGroup"),
    (_DELETED,  _MOVED,    _NODE,   "RENAMED",    "MoveOperationCannotBeRebased"),
    (_CREATED,  _CREATED,  _NODE,   "SAME_PATH",  "NewNodeConflictsWithExistingNode"),
    (_CREATED,  _MOVED,    _NODE,   "SAME_PATH",  "NewNodeConflictsWithExistingNode"),
    (_CREATED,  _CREATED,  _NODE,   "IN_ARRAY",   "NewNodeInInvalidGroup"),
    (_CREATED,  _MOVED,    _NODE,   "IN_ARRAY",   "NewNodeInInvalidGroup"),
    (_CREATED,  _DELETED,  _NODE,   "GROUP_GONE", "NewNodeInInvalidGroup"),
)
# fmt: on


def find_conflicts(at: Meeting) -> list[Clash]:
    """All conflicts between ours and theirs, by path and row of the table.

    A node has each type of conflict once, whatever rows it meets.
    """
    found: dict[tuple[ConflictType, bytes], Clash] = {}
    for rule in TABLE:
        for path, node_id, chunks in rule.relation(at, rule.ours, rule.theirs):
            kind = _ARRAY if node_id in at.ours.arrays else _GROUP
            if rule.of in (kind, _NODE):
                clash = Clash(rule.conflict, path, node_id, rule.ours, rule.theirs, chunks)
                found.setdefault((rule.conflict, node_id), clash)
    return sorted(found.values(), key=lambda clash: clash.path)
