"""The change set of a session: its nodes, chunks, moves and prepared manifests.

A change set is relative to the nodes of one snapshot, ``base``. The caller passes ``base`` to the methods. So
a change set is small, can be pickled, and can be merged with the change sets of forks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final

import numpy as np

from frazil.changes.zarr_metadata import parse_node
from frazil.errors import (
    AlreadyExistsError,
    ErrorKind,
    InvalidInputError,
    NodeNotFoundError,
    SessionStateError,
)
from frazil.format.chunk_table import box, keys, within
from frazil.format.columns import U8, U32, Ragged, intern
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, distinct_ids, id_matrix
from frazil.format.manifest import (
    ChunkKind,
    ChunkRef,
    ChunkTable,
    InlineRef,
    NativeRef,
    VirtualObjects,
    VirtualRef,
)
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node, NodeTable
from frazil.format.transaction_log import Move, TransactionLog

Coords = tuple[int, ...]
#: This number of tables of similar size is joined at a time. With more, reads look into more tables.
_JOINED: Final = 4


class ChunkChanges:
    """The edits of one array, newest last. None as a reference is a deletion.

    zarr sets chunks one by one: they are in a dict until columns are needed. Large tables stay tables.
    """

    __slots__ = ("_single", "_tables", "ndim", "path")

    def __init__(self, path: str, ndim: int, tables: tuple[ChunkTable, ...] = ()) -> None:
        self.path: str = path
        self.ndim: Final = ndim
        self._tables = list(tables)
        self._single: dict[Coords, ChunkRef | None] = {}

    def __bool__(self) -> bool:
        return bool(self._single or self._tables)

    def set(self, coords: Coords, ref: ChunkRef | None) -> None:
        """Set one reference, or delete it."""
        self._single[coords] = ref

    def unset(self, coords: Coords) -> None:
        """Remove the edit of one chunk, in an array that no snapshot has yet."""
        self._single.pop(coords, None)
        if any(table.find_chunk(coords) >= 0 for table in self._tables):
            self._single[coords] = None

    def unset_many(self, index: U32) -> None:
        """Remove the edits of many chunks, in an array that no snapshot has yet."""
        table = self.table()
        rows = table.find_chunks(index)
        stays = np.ones(len(table), np.bool_)
        stays[rows[rows >= 0]] = False
        self._tables = [table.select_chunks(stays)]

    def add_table(self, table: ChunkTable) -> None:
        """Set many references. Tables of similar size are joined, so that there are few tables."""
        self._columns()
        self._tables.append(table)
        tables = self._tables
        while len(tables) >= _JOINED and len(tables[-_JOINED]) <= _JOINED * len(tables[-1]):
            tables[-_JOINED:] = [ChunkTable.merge_tables(tables[-_JOINED:])]

    def find_change(self, coords: Coords) -> tuple[bool, ChunkRef | None]:
        """Return whether there is an edit of this chunk, and its reference."""
        if coords in self._single:
            return True, self._single[coords]
        for table in reversed(self._tables):
            row = table.find_chunk(coords)
            if row >= 0:
                return True, None if table.kind[row] == ChunkKind.ABSENT else table.ref(row)
        return False, None

    def table(self) -> ChunkTable:
        """Return all edits as one table. Deletions are rows of the kind ``ABSENT``."""
        self._columns()
        if len(self._tables) != 1:
            self._tables = [
                ChunkTable.merge_tables(self._tables) if self._tables else ChunkTable.empty(self.ndim)
            ]
        return self._tables[0]

    def copy(self) -> ChunkChanges:
        """Return an independent copy."""
        return ChunkChanges(self.path, self.ndim, (self.table(),))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ChunkChanges, (self.path, self.ndim, (self.table(),)))  # which pickles only what it uses

    def _columns(self) -> None:
        if self._single:
            self._tables.append(table_of(self._single, self.ndim))
            self._single = {}


def table_of(refs: dict[Coords, ChunkRef | None], ndim: int) -> ChunkTable:
    """Return a table of single references."""
    order = sorted(refs)
    values = list(map(refs.__getitem__, order))
    index = np.array(order, np.uint32).reshape(len(order), ndim)
    classes = np.fromiter(map(_KIND_OF.__getitem__, map(type, values)), np.uint8, len(values))
    source = np.zeros(len(order), np.uint32)
    offset, length = np.zeros((2, len(order)), np.uint64)

    native = [ref for ref in values if isinstance(ref, NativeRef)]
    chunk_ids, source[classes == ChunkKind.NATIVE] = intern([ref.chunk_id for ref in native])
    virtual = [ref for ref in values if isinstance(ref, VirtualRef)]
    objects, source[classes == ChunkKind.VIRTUAL] = intern(
        [(ref.location, ref.etag or "", ref.modified or 0) for ref in virtual]
    )
    inline = [ref.data for ref in values if isinstance(ref, InlineRef)]
    source[classes == ChunkKind.INLINE] = np.arange(len(inline))
    length[classes == ChunkKind.INLINE] = list(map(len, inline))
    for kind, ranged in ((ChunkKind.NATIVE, native), (ChunkKind.VIRTUAL, virtual)):
        offset[classes == kind] = [ref.offset for ref in ranged]
        length[classes == kind] = [ref.length for ref in ranged]
    foreign = VirtualObjects(
        Ragged.of_text([location for location, _, _ in objects]),
        Ragged.of_text([etag for _, etag, _ in objects]),
        np.array([modified for _, _, modified in objects], np.uint32),
    )
    return ChunkTable(
        index, classes, source, offset, length, id_matrix(chunk_ids), foreign, Ragged.of_bytes(inline)
    )


_KIND_OF = {
    NativeRef: ChunkKind.NATIVE,
    VirtualRef: ChunkKind.VIRTUAL,
    InlineRef: ChunkKind.INLINE,
    type(None): ChunkKind.ABSENT,
}


@dataclass(frozen=True, slots=True, eq=False)
class PreparedManifests:
    """All manifests of an array after a commit, unchanged ones included, with the sizes of their files.

    ``index`` has the sorted coordinates of all references that were set or deleted, for the transaction log;
    None for an array that the same change set creates.
    """

    path: str
    manifests: Sequence[ManifestRef]
    files: ManifestFiles
    index: U32 | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled copy is in a fork, which writes no log.
        index = None if self.index is None else self.index[:0]
        return (PreparedManifests, (self.path, self.manifests, self.files, index))


#: Moves by node id.
Moves = dict[bytes, Move]

_source: Callable[[Move], str] = attrgetter("source")
_target: Callable[[Move], str] = attrgetter("target")
_is_array: Callable[[Move], bool] = attrgetter("is_array")


def moved_nodes(base: NodeTable, moves: Mapping[bytes, Move]) -> NodeTable:
    """Return the nodes of the base at their new paths."""
    if not moves:
        return base
    sources, targets = list(map(_source, moves.values())), list(map(_target, moves.values()))
    return base.renamed(base.find_nodes(sources), targets)


def composed_moves(first: Moves, then: Moves) -> Moves:
    """Return the moves ``first`` and then ``then`` as one set of moves."""
    if not first or not then:
        return dict(then or first)
    sources = dict(zip(first, map(_source, first.values()), strict=True))
    ids = list(then)
    later = list(then.values())
    starts = map(sources.get, ids, map(_source, later))
    arrays = map(_is_array, later)
    return {**first, **dict(zip(ids, map(Move, starts, map(_target, later), ids, arrays), strict=True))}


def moved_twice(forks: Sequence[Moves], unseen: Sequence[Moves]) -> str | None:
    """Return the old path of a node that two of ``forks`` moved, or a fork and ``unseen``, or None."""
    moves: Moves = {}
    for part in unseen:
        moves |= part
    for part in forks:
        for id_ in moves.keys() & part.keys():
            return moves[id_].source
        moves |= part
    return None


def misplaced(base: NodeTable, moves: Moves) -> str | None:
    """Return a target that another node has too, or whose parent is not a group. None if there is none."""
    if not moves:
        return None
    targets = list(map(_target, moves.values()))
    sources = set(map(_source, moves.values()))
    is_array = dict(zip(base.paths_list(), base.is_array.tolist(), strict=True))
    unmoved = is_array.keys() - sources
    groups = {path for path in unmoved if not is_array[path]}
    groups.update(move.target for move in moves.values() if not move.is_array)
    if len(set(targets)) < len(targets) or not unmoved.isdisjoint(targets):
        return next(path for path in targets if path in unmoved or targets.count(path) > 1)
    return next((path for path in targets if parent_of(path) not in groups), None)


def in_order(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return moves in the order of the public interface: sorted by target, segment by segment."""
    keys = list(map(_segments, map(itemgetter(1), pairs)))
    return list(map(pairs.__getitem__, sorted(range(len(pairs)), key=keys.__getitem__)))


#: A sort key of paths that sorts them segment by segment: no character of a segment is less than "\0".
_segments: Callable[[str], str] = methodcaller("replace", "/", "\0")


def parent_of(path: str) -> str:
    """Return the path of the group of a node. The parent of the root is the root."""
    return path.rpartition("/")[0] or "/"


class MoveTree:
    """The paths of the base's nodes after some moves. ``move`` changes ``moves`` in place."""

    def __init__(self, base: NodeTable, moves: Moves) -> None:
        self._base = base
        self._moves = moves
        sources = list(map(_source, moves.values()))
        rows = base.find_nodes(sources).tolist()
        self._left = set(sources)
        self._came = dict(zip(map(_target, moves.values()), rows, strict=True))
        self._places = sorted(self._came)  # sorted, so that all paths below a node are consecutive

    def find_node(self, path: str) -> int:
        """Return the row in the base of the node that is at ``path`` now, or -1 if there is none."""
        row = self._came.get(path)
        if row is None:
            row = -1 if path in self._left else self._base.find_node(path)
        return row

    def move(self, source: str, target: str) -> None:
        """Move a node and all nodes below it. ``_check`` raises the errors."""
        row = self.find_node(source)
        self._check(row, source, target)
        base, came = self._base, self._came
        below = base.below(source)
        stayed = dict(zip(base.paths_list()[below], range(below.start, below.stop), strict=True))
        for key in stayed.keys() & self._left:
            del stayed[key]
        # The paths below ``source`` to which earlier moves have brought nodes.
        places = self._places
        moved = slice(bisect_left(places, f"{source}/"), bisect_left(places, f"{source}0"))
        arrived = places[moved]
        del places[moved]
        if source in came:
            del places[bisect_left(places, source)]
        subtree = {source: row, **stayed, **dict(zip(arrived, map(came.__getitem__, arrived), strict=True))}
        rows = list(subtree.values())
        origins = list(map(base.paths_list().__getitem__, rows))
        rests = map(itemgetter(slice(len(source), None)), subtree)
        targets = list(map(target.__add__, rests))
        ids, are_arrays = base.identities(np.array(rows, np.int64))
        for path in came.keys() & subtree.keys():
            del came[path]
        came.update(zip(targets, rows, strict=True))
        insort(places, target)
        at = bisect_left(places, f"{target}/")
        places[at:at] = sorted(targets[1:])
        self._left.update(origins)
        self._moves.update(zip(ids, map(Move, origins, targets, ids, are_arrays), strict=True))

    def _check(self, row: int, source: str, target: str) -> None:
        if row < 0:
            raise NodeNotFoundError(f"there is no group or array at `{source}` to move")
        if source == "/" or f"{target}/".startswith(f"{source}/"):
            raise SessionStateError(
                f"cannot move `{source}` to `{target}`: a node cannot be below itself",
                ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT,
            )
        if self.find_node(target) >= 0:
            raise AlreadyExistsError(
                f"cannot move `{source}` to `{target}`: the target exists. Delete it, or use another path",
                ErrorKind.MOVE_WONT_OVERWRITE,
            )
        parent = parent_of(target)
        above = self.find_node(parent)
        if above < 0:
            raise SessionStateError(
                f"cannot move `{source}` to `{target}`: there is no group `{parent}`. Commit it before",
                ErrorKind.MOVE_DESTINATION_PARENT_MISSING,
            )
        if self._base.is_array[above]:
            raise SessionStateError(
                f"cannot move `{source}` to `{target}`: `{parent}` is an array. Only groups have children",
                ErrorKind.MOVE_DESTINATION_PARENT_NOT_GROUP,
            )


@dataclass(slots=True)
class ChangeSet:
    """The uncommitted changes of a session.

    Attributes:
        nodes: The changed nodes by path. None for a deleted node of the base. All paths are relative to the
            base after ``moves``.
        created: The ids of nodes that the base does not have.
        updated: The ids of nodes of the base with changed metadata.
        deleted: The ids of deleted nodes of the base, each with whether it was an array.
        chunks: The edits of references by node id.
        moves: The moves from one path of the base to another, by node id. A node that was moved back has a
            move to its own path: the change set is not empty then.
        ready: Manifests that workers have written, by node id. ``chunks`` has later edits.
    """

    nodes: dict[str, Node | None] = field(default_factory=dict)
    created: set[bytes] = field(default_factory=set)
    updated: set[bytes] = field(default_factory=set)
    deleted: dict[bytes, bool] = field(default_factory=dict)
    chunks: dict[bytes, ChunkChanges] = field(default_factory=dict)
    moves: Moves = field(default_factory=dict)
    ready: dict[bytes, PreparedManifests] = field(default_factory=dict)

    def __bool__(self) -> bool:
        changes = (self.moves, self.created, self.updated, self.deleted, self.ready)
        return any(changes) or any(self.chunks.values())

    def copy(self) -> ChangeSet:
        """Return an independent copy."""
        parts = {name: copy(getattr(self, name)) for name in self.__slots__}
        parts["chunks"] = {id_: chunk_changes.copy() for id_, chunk_changes in self.chunks.items()}
        return ChangeSet(**parts)

    def chunk_files(self) -> U8:
        """Return the ids of the chunk files that the changes refer to, shape (k, 12), sorted."""
        tables = [chunk_changes.table().prune() for chunk_changes in self.chunks.values()]
        ids = np.concatenate(
            [np.zeros((0, OBJECT_ID_BYTES), np.uint8), *(table.chunk_ids for table in tables)]
        )
        return distinct_ids(ids)

    # Nodes

    def node(self, base: NodeTable, path: str) -> Node | None:
        """Return the node at ``path`` after the changes, or None if there is none."""
        if path in self.nodes:
            node = self.nodes[path]
        else:
            row = base.find_node(path)
            node = base.node(row) if row >= 0 else None
        if node is None or node.array is None or node.id not in self.ready:
            return node
        return replace(node, array=replace(node.array, manifests=self.ready[node.id].manifests))

    def present(self, base: NodeTable) -> dict[str, Node]:
        """Return the created and changed nodes by path."""
        paths = dict.fromkeys((*self.nodes, *[ready.path for ready in self.ready.values()]))
        return {path: node for path in paths if (node := self.node(base, path)) is not None}

    def array(self, base: NodeTable, path: str) -> Node:
        """Return the array at ``path``. Raises an error if there is no node, or a group."""
        node = self.node(base, path)
        if node is None:
            raise NodeNotFoundError(f"there is no array at `{path}`. Create it first")
        return array_node(node)

    def set_node(
        self,
        base: NodeTable,
        path: str,
        document: bytes,
        new_id: Callable[[], bytes],
        below: Sequence[ChangeSet] = (),
    ) -> None:
        """Create the node at ``path``, or replace its metadata. ``document`` is its ``zarr.json``.

        An array keeps its chunks. With a new shape, the commit drops the chunks outside of the grid. With
        another number of dimensions, the array loses all chunks. An unchanged document is not a change.
        ``below`` has change sets that the nodes of ``base`` contain, but its manifests do not.
        """
        existing = self.node(base, path)
        if existing is not None and existing.user_data == document:
            return
        array = parse_node(document)
        if existing is None:
            node = Node(new_id(), path, document, array)
            self.created.add(node.id)
        else:
            if (existing.array is None) != (array is None):
                existing_kind, new_kind = (
                    ("a group", "an array") if existing.array is None else ("an array", "a group")
                )
                raise AlreadyExistsError(
                    f"there is already {existing_kind} at `{path}`. Delete it before you write {new_kind}"
                )
            if existing.array is not None and array is not None:
                if len(existing.array.shape) == len(array.shape):
                    array = replace(array, manifests=existing.array.manifests)
                elif any(existing.id in changes.chunks or existing.id in changes.ready for changes in below):
                    # The old id would keep chunks of the lower layers.
                    self.delete_node(base, path)
                    self.set_node(base, path, document, new_id)
                    return
                else:
                    self.chunks.pop(existing.id, None)
                    self.ready.pop(existing.id, None)
            node = Node(existing.id, path, document, array)
            if node.id not in self.created:
                self.updated.add(node.id)
        self.nodes[path] = node

    def delete_node(self, base: NodeTable, path: str) -> None:
        """Delete a node and all nodes below it. If there is no node, nothing happens."""
        node = self.node(base, path)
        if node is None:
            return
        prefix = path.rstrip("/") + "/"
        mine = [key for key in self.nodes if key == path or key.startswith(prefix)]
        nodes = {key: node_ for key in mine if (node_ := self.nodes[key]) is not None}
        below = base.below(path)
        paths = base.select_nodes(below).paths_list()
        row = base.find_node(path)
        rows = np.r_[np.arange(len(base))[below], [row] if row >= 0 else []].astype(np.int64)
        # The nodes of the base at these paths are deleted, unless an earlier change has replaced them.
        ids, arrays = base.identities(rows)
        self.deleted.update(zip(ids, arrays, strict=True))
        for node_ in nodes.values():
            self.created.discard(node_.id)
        removed = {node_.id for node_ in nodes.values()}.union(ids)
        self.updated -= removed
        for part in (self.chunks, self.ready):
            for id_ in removed & part.keys():
                del part[id_]
        for key in mine:
            del self.nodes[key]
        self.nodes.update(dict.fromkeys(paths))
        if row >= 0:
            self.nodes[path] = None

    def without_below(self, base: NodeTable, roots: Collection[str]) -> ChangeSet:
        """Return the changes without those of some nodes and of all nodes below them."""

        def is_inside(path: str) -> bool:
            while path not in roots and path != "/":
                path = parent_of(path)
            return path in roots

        paths, every = set(filter(is_inside, self.nodes)), np.arange(len(base))
        rows = np.array([base.find_node(path) for path in roots], np.int64)
        own = np.concatenate([rows, *(every[base.below(path)] for path in roots)])
        ids = {*base.identities(own[own >= 0])[0]}
        ids |= {node.id for each in paths if (node := self.nodes[each]) is not None}

        def rest[T](part: Mapping[bytes, T]) -> dict[bytes, T]:
            return {id_: each for id_, each in part.items() if id_ not in ids}

        return ChangeSet(
            {each: node for each, node in self.nodes.items() if each not in paths},
            self.created - ids,
            self.updated - ids,
            rest(self.deleted),
            rest(self.chunks),
            rest(self.moves),
            rest(self.ready),
        )

    # Chunks

    def delete_chunk(self, base: NodeTable, path: str, coords: Coords) -> None:
        """Delete one reference. Outside of the grid, nothing happens.

        The deletion of a missing chunk is a change too: a session that writes the fill value must conflict
        with another session that writes a chunk there.
        """
        node = self.node(base, path)
        if node is None or node.array is None or not in_grid(node, coords):
            return
        if node.id in self.created:
            if node.id in self.chunks:
                self.chunks[node.id].unset(coords)
        else:
            self.chunk_changes_of(node).set(coords, None)

    def set_chunks(self, base: NodeTable, path: str, table: ChunkTable) -> None:
        """Set many references of one array, and delete those of the kind ``ABSENT``, as ``delete_chunk``."""
        node = self.array(base, path)
        is_deleted = table.kind == ChunkKind.ABSENT
        if node.id in self.created and is_deleted.any():
            if node.id in self.chunks:
                self.chunks[node.id].unset_many(table.index[is_deleted])
            table = table.select_chunks(~is_deleted)
        if len(table):
            if table.ndim != len(node.array_data.num_chunks):
                raise _bad_coords(node, tuple(table.index[0].tolist()))
            outside = np.flatnonzero(~within(table.index, node.array_data.num_chunks))
            if len(outside):
                raise _bad_coords(node, tuple(table.index[outside[0]].tolist()))
            self.chunk_changes_of(node).add_table(table)

    def chunk_changes_of(self, node: Node) -> ChunkChanges:
        """Return the edits of an array, which are empty for an array without edits."""
        chunk_changes = self.chunks.get(node.id)
        if chunk_changes is None:
            chunk_changes = self.chunks[node.id] = ChunkChanges(node.path, len(node.array_data.shape))
        return chunk_changes

    # As a whole

    def apply(self, base: NodeTable) -> NodeTable:
        """Return the nodes of the base with these changes. References do not change."""
        return self.apply_to_moved(moved_nodes(base, self.moves))

    def apply_to_moved(self, base: NodeTable) -> NodeTable:
        """Return the nodes of the moved ``base`` with all other changes."""
        if not (self.nodes or self.ready):
            return base
        present = self.present(base)
        paths = self.nodes | present
        rows = np.fromiter(map(base.find_node, paths), np.int64, len(paths))
        return base.edit(rows[rows >= 0], NodeTable.from_nodes(list(present.values())))


def array_node(node: Node) -> Node:
    """Return a node that must be an array."""
    if node.array is None:
        raise InvalidInputError(
            f"the node at `{node.path}` must be an array, got a group. Name an array in the group",
            ErrorKind.NOT_AN_ARRAY,
        )
    return node


def in_grid(node: Node, coords: Coords) -> bool:
    """Return whether the array has a chunk at these coordinates."""
    counts = node.array_data.num_chunks
    return len(coords) == len(counts) and all(
        0 <= coord < count for coord, count in zip(coords, counts, strict=True)
    )


def check_coords(node: Node, coords: Coords) -> None:
    """Raise ``InvalidInputError`` (``invalid-chunk-index``) for coordinates outside of the grid."""
    if not in_grid(node, coords):
        raise _bad_coords(node, coords)


def _bad_coords(node: Node, coords: Coords) -> InvalidInputError:
    return InvalidInputError(
        f"the coordinates of a chunk of `{node.path}` must be in its grid of {node.array_data.num_chunks} "
        f"chunks, counted from 0, got {coords}",
        ErrorKind.INVALID_CHUNK_INDEX,
    )


def transaction_log(changes: ChangeSet, id_: bytes) -> TransactionLog:
    """Return the transaction log of a commit of these changes. ``id_`` is its snapshot."""
    now = [node for node in changes.nodes.values() if node is not None]
    arrays = {node.id for node in now if node.array is not None}
    groups = {node.id for node in now if node.array is None}
    deleted_arrays = {id_ for id_, is_array in changes.deleted.items() if is_array}
    lists = {
        "new_groups": changes.created & groups,
        "new_arrays": changes.created & arrays,
        "deleted_groups": changes.deleted.keys() - deleted_arrays,
        "deleted_arrays": deleted_arrays,
        "updated_arrays": changes.updated & arrays,
        "updated_groups": changes.updated & groups,
    }
    prepared = {id_: ready.index for id_, ready in sorted(changes.ready.items())}
    edited = {id_: edits.table().index for id_, edits in sorted(changes.chunks.items())}
    return TransactionLog(
        id=id_,
        **{name: id_matrix(sorted(ids), NODE_ID_BYTES) for name, ids in lists.items()},
        updated_chunks=union_of_chunks(
            [
                {id_: index for id_, index in part.items() if index is not None and len(index)}
                for part in (prepared, edited)
            ]
        ),
        moves=tuple([move for move in changes.moves.values() if move.source != move.target]),
        odd_chunks={},
    )


def union_of_chunks(parts: Sequence[Mapping[bytes, U32]]) -> dict[bytes, U32]:
    """Return the union of the coordinates of several logs, oldest first, by array."""
    chunks: dict[bytes, U32] = {}
    several: dict[bytes, list[U32]] = {}
    for part in parts:
        for id_ in chunks.keys() & part.keys():
            several.setdefault(id_, [chunks[id_]]).append(part[id_])
        chunks.update(part)
    for id_, columns in several.items():
        rank = columns[-1].shape[1]
        chunks[id_] = union_of_coordinates([each for each in columns if each.shape[1] == rank])
    return chunks


def union_of_coordinates(rows: Sequence[U32]) -> U32:
    """Return the union of the coordinates of several columns, sorted, without repetitions."""
    every = np.concatenate(rows)
    _, first = np.unique(keys(every, box(every)), return_index=True)
    return every[first]
