"""The change set: nodes that a session created, updated, deleted and moved, and the edits of references.

A change set is relative to the nodes of one snapshot, ``base``. The caller passes ``base`` to the methods. So
a change set is small, can be pickled, and can be merged with the change sets of forks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from frazil.changes.chunk_changes import ChunkChanges, Coords
from frazil.changes.moves import Moves, moved_nodes
from frazil.changes.prepared_manifests import PreparedManifests
from frazil.changes.zarr_metadata import parse_node
from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.columns import U8
from frazil.format.coordinates import within
from frazil.format.ids import OBJECT_ID_BYTES, id_keys
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import Node, NodeTable


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
        moves: The moves from one path of the base to another, by node id.
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
        return bool(self.moves) or not self.only_moves

    @property
    def only_moves(self) -> bool:
        """Whether there are no changes except moves."""
        return not (self.created or self.updated or self.deleted or self.ready or any(self.chunks.values()))

    def copy(self) -> ChangeSet:
        """Return an independent copy."""
        chunks = {id_: chunk_changes.copy() for id_, chunk_changes in self.chunks.items()}
        return ChangeSet(
            dict(self.nodes),
            set(self.created),
            set(self.updated),
            dict(self.deleted),
            chunks,
            dict(self.moves),
            dict(self.ready),
        )

    def chunk_files(self) -> U8:
        """Return the ids of the chunk files that the changes refer to, shape (k, 12), sorted."""
        tables = [chunk_changes.table().prune() for chunk_changes in self.chunks.values()]
        ids = np.concatenate(
            [np.zeros((0, OBJECT_ID_BYTES), np.uint8), *(table.chunk_ids for table in tables)]
        )
        return ids[np.unique(id_keys(ids), return_index=True)[1]]

    # Nodes

    def node(self, base: NodeTable, path: str) -> Node | None:
        """Return the node at ``path`` after the changes, or None if there is none."""
        if path in self.nodes:
            return self._with_manifests(self.nodes[path])
        row = base.find_node(path)
        return None if row < 0 else self._with_manifests(base.node(row))

    def _with_manifests(self, node: Node | None) -> Node | None:
        """Return the node with its prepared manifests."""
        if node is None or node.array is None or node.id not in self.ready:
            return node
        return replace(node, array=replace(node.array, manifests=self.ready[node.id].manifests))

    def present(self, base: NodeTable) -> dict[str, Node]:
        """Return the created and changed nodes by path."""
        paths = dict.fromkeys((*self.nodes, *(ready.path for ready in self.ready.values())))
        return {path: node for path in paths if (node := self.node(base, path)) is not None}

    def array(self, base: NodeTable, path: str) -> Node:
        """Return the array at ``path``. Raises an error if there is no node, or a group."""
        node = self.node(base, path)
        if node is None:
            raise NodeNotFoundError(f"there is no array at `{path}`. Create it first")
        if node.array is None:
            raise InvalidInputError(
                f"the node at `{path}` must be an array, got a group. Name an array in the group",
                ErrorKind.NOT_AN_ARRAY,
            )
        return node

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
                    f"there is already {existing_kind} at `{path}`. Delete it before you write {new_kind}",
                    ErrorKind.NODE_ALREADY_EXISTS,
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
        gone = {key: node_ for key in mine if (node_ := self.nodes[key]) is not None}
        below = base.below(path)
        paths = base.select_nodes(below).paths_list()
        row = base.find_node(path)
        rows = np.r_[np.arange(len(base))[below], [row] if row >= 0 else []].astype(np.int64)
        # The nodes of the base at these paths are deleted, unless an earlier change has replaced them.
        ids, arrays = base.identities(rows)
        self.deleted.update(zip(ids, arrays, strict=True))
        for node_ in gone.values():
            self.created.discard(node_.id)
        removed = {node_.id for node_ in gone.values()}.union(ids)
        self.updated -= removed
        for part in (self.chunks, self.ready):
            for id_ in removed & part.keys():
                del part[id_]
        for key in mine:
            del self.nodes[key]
        self.nodes.update(dict.fromkeys(paths))
        if row >= 0:
            self.nodes[path] = None

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
        """Set many references of one array. All of them must be inside of its grid."""
        self._set_chunks(self.array(base, path), table)

    def _set_chunks(self, node: Node, table: ChunkTable) -> None:
        assert node.array is not None
        if len(table):
            if table.ndim != len(node.array.num_chunks):
                raise _bad_coords(node, tuple(table.index[0].tolist()))
            outside = np.flatnonzero(~within(table.index, node.array.num_chunks))
            if len(outside):
                raise _bad_coords(node, tuple(table.index[outside[0]].tolist()))
            self.chunk_changes_of(node).add_table(table)

    def write_chunks(self, base: NodeTable, path: str, table: ChunkTable) -> None:
        """Set many references of one array, and delete the chunks whose rows are ``ABSENT``.

        A deletion has the same effect as ``delete_chunk``.
        """
        node = self.array(base, path)
        is_deleted = table.kind == ChunkKind.ABSENT
        if node.id in self.created and is_deleted.any():
            if node.id in self.chunks:
                self.chunks[node.id].unset_many(table.index[is_deleted])
            table = table.select_chunks(~is_deleted)
        self._set_chunks(node, table)

    def chunk_changes_of(self, node: Node) -> ChunkChanges:
        """Return the edits of an array, which are empty for an array without edits."""
        assert node.array is not None
        chunk_changes = self.chunks.get(node.id)
        if chunk_changes is None:
            chunk_changes = self.chunks[node.id] = ChunkChanges(node.path, len(node.array.shape))
        return chunk_changes

    # As a whole

    def apply(self, base: NodeTable) -> NodeTable:
        """Return the nodes of the base with these changes. References do not change."""
        return self.apply_to_moved(self.moved_nodes(base))

    def moved_nodes(self, base: NodeTable) -> NodeTable:
        """Return the nodes of the base after the moves. The methods above need this table as ``base``."""
        return moved_nodes(base, self.moves)

    def apply_to_moved(self, base: NodeTable) -> NodeTable:
        """Return the nodes of the moved ``base`` with all other changes."""
        if not (self.nodes or self.ready):
            return base
        present = self.present(base)
        paths = self.nodes | present
        rows = np.fromiter(map(base.find_node, paths), np.int64, len(paths))
        return base.edit(rows[rows >= 0], NodeTable.from_nodes(list(present.values())))


def in_grid(node: Node, coords: Coords) -> bool:
    """Return whether the array has a chunk at these coordinates."""
    assert node.array is not None
    counts = node.array.num_chunks
    return len(coords) == len(counts) and all(
        0 <= coord < count for coord, count in zip(coords, counts, strict=True)
    )


def check_coords(node: Node, coords: Coords) -> None:
    """Raise ``InvalidInputError`` (``invalid-chunk-index``) for coordinates outside of the grid."""
    if not in_grid(node, coords):
        raise _bad_coords(node, coords)


def _bad_coords(node: Node, coords: Coords) -> InvalidInputError:
    assert node.array is not None
    return InvalidInputError(
        f"the coordinates of a chunk of `{node.path}` must be in its grid of {node.array.num_chunks} chunks, "
        f"counted from 0, got {coords}",
        ErrorKind.INVALID_CHUNK_INDEX,
    )
