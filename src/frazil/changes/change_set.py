"""What a session did so far: nodes created, updated, deleted; chunk references set and deleted.

A change set is relative to the nodes of one snapshot (``base``), which every question brings along: the
change set itself stays small, can be pickled, and merged with those of forks.

    moves     node id -> from which path of the base to which; all else is relative to the base after these
    nodes     path -> the node as it is now; None where the base's node is gone
    created   ids of nodes that the base does not have
    updated   ids of the base's nodes with other metadata
    deleted   ids of the base's nodes that are gone -> whether each was an array
    chunks    node id -> edits of its references
    ready     node id -> manifests that others have written; what ``chunks`` has comes on top of these
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from frazil.changes.chunk_changes import ChunkChanges, Coords
from frazil.changes.moves import Moves, moved_nodes
from frazil.changes.prepared_manifests import PreparedManifests
from frazil.changes.zarr_metadata import parse_node
from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys
from frazil.format.manifest import ChunkRef, ChunkTable
from frazil.format.snapshot import Node, NodeTable


@dataclass(slots=True)
class ChangeSet:
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
        return not (self.created or self.updated or self.deleted or self.ready or any(self.chunks.values()))

    def copy(self) -> ChangeSet:
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
        """Return ids of the chunk files that the changes refer to, (k, 12), sorted."""
        tables = [chunk_changes.table().prune() for chunk_changes in self.chunks.values()]
        ids = np.concatenate(
            [np.zeros((0, OBJECT_ID_BYTES), np.uint8), *(table.chunk_ids for table in tables)]
        )
        return ids[np.unique(id_keys(ids), return_index=True)[1]]

    # Nodes

    def node(self, base: NodeTable, path: str) -> Node | None:
        """Return the node at ``path`` as the session sees it."""
        if path in self.nodes:
            return self._with_manifests(self.nodes[path])
        row = base.find_node(path)
        return None if row < 0 else self._with_manifests(base.node(row))

    def _with_manifests(self, node: Node | None) -> Node | None:
        """Return the node with the manifests that are ready for it."""
        if node is None or node.array is None or node.id not in self.ready:
            return node
        return replace(node, array=replace(node.array, manifests=self.ready[node.id].manifests))

    def present(self, base: NodeTable) -> dict[str, Node]:
        """Return the nodes that are other ones than in ``base``, by path."""
        paths = dict.fromkeys((*self.nodes, *(ready.path for ready in self.ready.values())))
        return {path: node for path in paths if (node := self.node(base, path)) is not None}

    def array(self, base: NodeTable, path: str) -> Node:
        """Return the array at ``path``; an error if there is none."""
        node = self.node(base, path)
        if node is None:
            raise NodeNotFoundError(f"no array at `{path}`: create it first")
        if node.array is None:
            raise InvalidInputError(
                f"expected an array at `{path}`, found a group: name an array in it", ErrorKind.NOT_AN_ARRAY
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
        """Create the node at ``path``, or give it other metadata. ``document`` is its ``zarr.json``.

        An array keeps its chunks, and loses those that a new shape leaves outside of the grid when it is
        committed, or all of them with another number of dimensions. The document that is there already
        changes nothing. ``below`` are the changes that are in the nodes of ``base``, and not yet in its
        manifests.
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
                    f"there is {existing_kind} at `{path}` already: delete it before you write {new_kind}",
                    ErrorKind.NODE_ALREADY_EXISTS,
                )
            if existing.array is not None and array is not None:
                if len(existing.array.shape) == len(array.shape):
                    array = replace(array, manifests=existing.array.manifests)
                elif any(existing.id in changes.chunks or existing.id in changes.ready for changes in below):
                    # Chunks that cannot be taken back from here would go on under the old id.
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
        """Delete a node and everything below it; nothing happens if there is none."""
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
        # What the base has at these paths is gone, unless an earlier change already replaced it.
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

    def set_chunk(self, base: NodeTable, path: str, coords: Coords, ref: ChunkRef) -> None:
        """Set one reference; ``InvalidInputError`` (``invalid-chunk-index``) outside of the grid."""
        node = self.array(base, path)
        check_coords(node, coords)
        self.chunk_changes_of(node).set(coords, ref)

    def delete_chunk(self, base: NodeTable, path: str, coords: Coords) -> None:
        """Delete one reference; nothing happens outside of the grid.

        It is a change even where there is none: whoever writes the fill value means that it stands there, and
        meets those who wrote something else meanwhile.
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
        """Set many references of one array at once; all of them have to lie in its grid."""
        node = self.array(base, path)
        assert node.array is not None
        if len(table):
            if table.ndim != len(node.array.num_chunks):
                raise _bad_coords(node, tuple(table.index[0].tolist()))
            outside = np.flatnonzero((table.index >= np.array(node.array.num_chunks, np.uint32)).any(axis=1))
            if len(outside):
                raise _bad_coords(node, tuple(table.index[outside[0]].tolist()))
            self.chunk_changes_of(node).set_table(table)

    def chunk_changes_of(self, node: Node) -> ChunkChanges:
        assert node.array is not None
        chunk_changes = self.chunks.get(node.id)
        if chunk_changes is None:
            chunk_changes = self.chunks[node.id] = ChunkChanges(node.path, len(node.array.shape))
        return chunk_changes

    # As a whole

    def apply(self, base: NodeTable) -> NodeTable:
        """Return the base's nodes with these changes; references are not part of it."""
        return self.apply_to_moved(self.moved_nodes(base))

    def moved_nodes(self, base: NodeTable) -> NodeTable:
        """Return the base's nodes at their new places: what the methods above are asked with."""
        return moved_nodes(base, self.moves)

    def apply_to_moved(self, base: NodeTable) -> NodeTable:
        """Return the nodes of ``moved`` with all other changes."""
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


def manifest_covers(extents: NDArray[np.uint32], coords: Coords) -> bool:
    """Return whether a box, half-open, of shape (ndim, 2), contains the coordinates. A box without dimensions
    contains all.
    """
    return all(low <= coord < high for coord, (low, high) in zip(coords, extents.tolist(), strict=False))


def check_coords(node: Node, coords: Coords) -> None:
    if not in_grid(node, coords):
        raise _bad_coords(node, coords)


def _bad_coords(node: Node, coords: Coords) -> InvalidInputError:
    assert node.array is not None
    return InvalidInputError(
        f"no chunk {coords} in `{node.path}`: its grid has {node.array.num_chunks} chunks, counted from 0",
        ErrorKind.INVALID_CHUNK_INDEX,
    )
