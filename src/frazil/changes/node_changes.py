"""The changes of one side since a version that both sides have, and the reads that they make stale.

The result only has the remaining differences, by node id: a node that was created and deleted in between is
not in it. Reads are compared at the paths of the version that was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from operator import ne
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet, moved_nodes, parent_of, union_of_chunks, union_of_coordinates
from frazil.format.chunk_table import box, keys
from frazil.format.columns import I64, U8, U32
from frazil.format.ids import NODE_ID_BYTES, distinct_ids, id_keys, id_list, id_matrix
from frazil.format.snapshot import NodeTable
from frazil.format.transaction_log import ID_LISTS, TransactionLog


@dataclass(frozen=True, slots=True, eq=False)
class NodeChanges:
    """The changes of one side, by node id, with the paths of nodes on this side.

    ``deleted`` has the paths after the moves of this side, ``moved`` the path in the base and the path now.
    ``chunks`` has the coordinates of chunks that were set or deleted in arrays of the base, at
    ``chunk_paths``. ``arrays`` are the ids of the arrays among these nodes.
    """

    created: dict[bytes, str] = field(default_factory=dict)
    deleted: dict[bytes, str] = field(default_factory=dict)
    updated: dict[bytes, str] = field(default_factory=dict)
    moved: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    chunk_paths: dict[bytes, str] = field(default_factory=dict)
    chunks: dict[bytes, U32] = field(default_factory=dict)
    arrays: frozenset[bytes] = frozenset()


def node_changes_of_change_set(changes: ChangeSet, base: NodeTable) -> NodeChanges:
    """Return the changes that a change set makes to its base."""
    new_paths = {node.id: path for path, node in changes.nodes.items() if node is not None}
    arrays = {node.id for node in changes.nodes.values() if node is not None and node.array is not None}
    deleted = list(changes.deleted)
    moved_base = moved_nodes(base, changes.moves)
    rows = rows_of(moved_base, id_matrix(deleted, NODE_ID_BYTES))
    chunks = {
        id_: table.index
        for id_, chunk_changes in changes.chunks.items()
        if id_ not in changes.created and len(table := chunk_changes.table())
    }
    moved = [id_ for id_, move in changes.moves.items() if move.is_array]
    return NodeChanges(
        created={id_: new_paths[id_] for id_ in new_paths.keys() & changes.created},
        deleted=dict(zip(deleted, moved_base.paths.take(rows).texts(), strict=True)),
        updated={id_: new_paths[id_] for id_ in new_paths.keys() & changes.updated},
        moved={id_: (move.source, move.target) for id_, move in changes.moves.items()},
        chunk_paths={id_: changes.chunks[id_].path for id_ in chunks},
        chunks=chunks,
        arrays=frozenset(chain(arrays, compress(deleted, changes.deleted.values()), chunks, moved)),
    )


def node_changes_of_logs(logs: Sequence[TransactionLog], before: NodeTable, after: NodeTable) -> NodeChanges:
    """Return the changes of the commits from one version to another. The logs can be in any order."""
    # A log has one move for a group, which moves all nodes below the group.
    moved = any(log.moves for log in logs)
    lists = [getattr(log, name) for log in logs for name in ID_LISTS]
    array_ids = list(chain.from_iterable(log.updated_chunks for log in logs))
    touched = np.concatenate(
        [before.ids, after.ids] if moved else [id_matrix(array_ids, NODE_ID_BYTES), *lists]
    )
    touched = distinct_ids(touched)
    old, new = rows_of(before, touched), rows_of(after, touched)
    ids = np.array([*id_list(touched), None], object)[:-1]

    def named(chosen: NDArray[np.bool_], table: NodeTable, rows: I64) -> dict[bytes, str]:
        return dict(zip(ids[chosen].tolist(), table.paths.take(rows[chosen]).texts(), strict=True))

    both = (old >= 0) & (new >= 0)
    stayed = named(both, after, new)
    places = dict(
        zip(stayed, zip(named(both, before, old).values(), stayed.values(), strict=True), strict=True)
    )
    documents = before.user_data.take(old[both]).blobs(), after.user_data.take(new[both]).blobs()
    changed = list(map(ne, *documents))
    # A node with row -1 is only in the other table. A table can be empty.
    is_array = np.zeros(len(ids), bool)
    is_array[old >= 0] = before.is_array[old[old >= 0]]
    is_array[new >= 0] = after.is_array[new[new >= 0]]
    ndims = dict(zip(stayed, after.array_length.take(new[both]).lengths.tolist(), strict=True))
    # Of arrays in both versions, the coordinates with the number of dimensions of the later one.
    indices = [
        {id_: log.chunks_of(id_, ndims[id_]) for id_ in log.updated_chunks if id_ in ndims} for log in logs
    ]
    chunks = {id_: index for id_, index in union_of_chunks(indices).items() if len(index)}
    return NodeChanges(
        created=named((old < 0) & (new >= 0), after, new),
        deleted=named((old >= 0) & (new < 0), before, old),
        updated=dict(compress(stayed.items(), changed)),
        moved=dict(compress(places.items(), [source != target for source, target in places.values()])),
        chunk_paths={id_: stayed[id_] for id_ in chunks},
        chunks=chunks,
        arrays=frozenset(ids[is_array].tolist()),
    )


def rows_of(table: NodeTable, ids: U8) -> I64:
    """Return the rows of the nodes with these ids, shape (k, 8), and -1 for ids without a node."""
    table_keys, targets = id_keys(table.ids), id_keys(ids)
    if not len(table_keys) or not len(targets):
        return np.full(len(targets), -1, np.int64)
    order = np.argsort(table_keys)
    at = np.minimum(np.searchsorted(table_keys, targets, sorter=order), len(table_keys) - 1)
    rows: I64 = np.where(table_keys[order[at]] == targets, order[at], -1).astype(np.int64)
    return rows


def row_of(table: NodeTable, id_: bytes) -> int:
    """Return the row of the node with this id, or -1."""
    return int(rows_of(table, id_matrix([id_], NODE_ID_BYTES))[0])


def in_both(rows: U32, others: U32) -> NDArray[np.bool_]:
    """Return for each row of ``rows`` whether ``others`` has the same coordinates."""
    if rows.shape[1] != others.shape[1] or not len(rows) or not len(others):
        return np.zeros(len(rows), bool)
    limits = list(map(max, box(rows), box(others)))
    is_shared: NDArray[np.bool_] = np.isin(keys(rows, limits), keys(others, limits))
    return is_shared


def ancestors(paths: Iterable[str]) -> set[str]:
    """Return the paths of all groups above some nodes."""
    groups: set[str] = set()
    level = parents(paths)
    while level := level - groups:
        groups |= level
        level = parents(level)
    return groups


def parents(paths: Iterable[str]) -> set[str]:
    """Return the paths of the parents of some nodes. The parent of the root is the root."""
    heads: Iterable[Any] = map(str.rpartition, paths, repeat("/"))
    return {head or "/" for head, _, _ in heads}


#: A message lists this number of chunks, and the number of the others.
_LISTED: Final = 5


@dataclass(frozen=True, slots=True, eq=False)
class ReadSet:
    """The reads of a session, by path.

    ``documents`` are nodes whose ``zarr.json`` was read or was missing, ``members`` groups that were listed,
    and ``trees`` nodes that were read with all nodes below. ``chunks`` has coordinates, a column for each
    number of dimensions, and ``boxes`` half-open boxes of chunks, of shape (k, 2, ndim).
    """

    documents: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()
    chunks: Mapping[str, Sequence[U32]] = field(default_factory=dict)
    boxes: Mapping[str, U32] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.documents or self.members or self.trees or self.chunks or self.boxes)


NOTHING_READ: Final = ReadSet()


@dataclass(frozen=True, slots=True, eq=False)
class StaleRead:
    """A read of data that another writer has changed.

    Attributes:
        path: The path of the node that was read.
        change: The change of the other writer, as text.
        chunks: The coordinates of the changed chunks, uint32 of shape (k, ndim). None if other parts of the
            node were changed.
    """

    path: str
    change: str
    chunks: U32 | None = None

    def __str__(self) -> str:
        if self.chunks is None:
            return f"`{self.path}`: {self.change}"
        listing = ", ".join(map(str, self.chunks[:_LISTED].tolist()))
        rest = f" and {len(self.chunks) - _LISTED} more" if len(self.chunks) > _LISTED else ""
        return f"`{self.path}`: {self.change} {listing}{rest}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StaleRead):
            return NotImplemented
        mine, yours = (None if each.chunks is None else each.chunks.tolist() for each in (self, other))
        return (self.path, self.change, mine) == (other.path, other.change, yours)

    def __hash__(self) -> int:
        return hash((self.path, self.change))


def stale_reads(reads: ReadSet, theirs: NodeChanges) -> list[StaleRead]:
    """Return the stale reads, sorted by path. ``theirs`` has the changes since the version that was read."""
    if not reads:
        return []
    sources = {id_: source for id_, (source, _) in theirs.moved.items()}
    documents = {sources.get(id_, path) for id_, path in theirs.updated.items()}
    writes = {sources.get(id_, path): theirs.chunks[id_] for id_, path in theirs.chunk_paths.items()}
    # There is one text for a path. The deletion of a node is more important than a new node at its path.
    places = {
        **dict.fromkeys(theirs.created.values(), "a node was created here"),
        **dict.fromkeys((target for _, target in theirs.moved.values()), "a node was moved here"),
        **dict.fromkeys(sources.values(), "it was moved to another path"),
        **dict.fromkeys(theirs.deleted.values(), "it was deleted"),
    }
    nodes = {**dict.fromkeys(documents, "its metadata were changed"), **places}
    read_nodes = reads.documents | reads.chunks.keys() | reads.boxes.keys()
    stale = {path: StaleRead(path, nodes[path]) for path in read_nodes & nodes.keys()}
    for each in chain(
        _members(reads.members, places),
        _trees(reads.trees, nodes, writes),
        _chunks(reads.chunks, writes),
        _boxes(reads.boxes, writes),
    ):
        stale.setdefault(each.path, each)
    return sorted(stale.values(), key=lambda each: each.path)


def _members(members: frozenset[str], places: Mapping[str, str]) -> Iterator[StaleRead]:
    for path in members & places.keys():
        yield StaleRead(path, places[path])
    if groups := members & parents(places.keys() - {"/"}):
        # The message names the first of several children.
        first = {parent_of(child): child for child in sorted(places.keys() - {"/"}, reverse=True)}
        for path in groups:
            yield StaleRead(path, f"among its members, `{first[path]}`: {places[first[path]]}")


def _trees(trees: frozenset[str], nodes: Mapping[str, str], writes: Mapping[str, U32]) -> Iterator[StaleRead]:
    paths = nodes.keys() | writes.keys()
    for path in trees & paths:
        yield StaleRead(path, nodes[path]) if path in nodes else _chunks_of(path, writes[path])
    groups = trees & ancestors(paths - {"/"})
    # The first of the paths below each group. If a group has one, so have all groups above it.
    first: dict[str, str] = {}
    for path in sorted(paths - {"/"}) if groups else ():
        group = parent_of(path)
        while group not in first:
            first[group] = path
            group = parent_of(group)
    for path in groups:
        below = first[path]
        yield StaleRead(path, f"below it, `{below}`: {nodes.get(below, 'another session wrote chunks')}")


def _chunks(chunks: Mapping[str, Sequence[U32]], writes: Mapping[str, U32]) -> Iterator[StaleRead]:
    for path in chunks.keys() & writes.keys():
        for column in chunks[path]:
            overlap = in_both(writes[path], column)
            if overlap.any():
                yield _chunks_of(path, writes[path][overlap])


def _boxes(boxes: Mapping[str, U32], writes: Mapping[str, U32]) -> Iterator[StaleRead]:
    for path in boxes.keys() & writes.keys():
        coords = writes[path]
        if boxes[path].shape[2] != coords.shape[1]:
            continue
        overlap = np.zeros(len(coords), bool)
        for low, high in boxes[path]:
            overlap |= ((coords >= low) & (coords < high)).all(axis=1)
        if overlap.any():
            yield _chunks_of(path, coords[overlap])


def _chunks_of(path: str, coords: U32) -> StaleRead:
    return StaleRead(path, "another session wrote the chunks", coords)


def joined_reads(parts: Sequence[ReadSet]) -> ReadSet:
    """Return the union of several read sets."""
    if len(parts) < 2:
        return parts[0] if parts else NOTHING_READ
    chunks: dict[str, dict[int, list[U32]]] = {}
    boxes: dict[str, list[U32]] = {}
    for part in parts:
        for path, columns in part.chunks.items():
            for column in columns:
                chunks.setdefault(path, {}).setdefault(column.shape[1], []).append(column)
        for path, column in part.boxes.items():
            boxes.setdefault(path, []).append(column)
    return ReadSet(
        frozenset().union(*(part.documents for part in parts)),
        frozenset().union(*(part.members for part in parts)),
        frozenset().union(*(part.trees for part in parts)),
        {path: tuple(map(union_of_coordinates, by_rank.values())) for path, by_rank in chunks.items()},
        {path: np.concatenate(columns) for path, columns in boxes.items()},
    )
