"""Differences between versions: the changes of one side, compositions of logs, and comparisons without logs.

Logs have all changes on the way from one version to another. The changes of one side since a version, and a
comparison, only have the remaining differences, by the ids of nodes: a node that was created and deleted in
between is not among them. A comparison also looks at the bytes that references point to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress, product, repeat
from operator import ne
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import (
    ChangeSet,
    ChunkChanges,
    composed_moves,
    in_order,
    moved_nodes,
    union_of_chunks,
    union_of_coordinates,
)
from frazil.errors import SessionStateError
from frazil.format.chunk_table import box, keys
from frazil.format.columns import I64, U8, U32, Ragged
from frazil.format.ids import NODE_ID_BYTES, distinct_ids, id_keys, id_list, id_matrix
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import ManifestRef, Node, NodeTable
from frazil.format.transaction_log import ID_LISTS, Move, TransactionLog


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


def union_of_logs(logs: Sequence[TransactionLog]) -> TransactionLog:
    """Return the union of logs, oldest first, with the id of the last. A node can be in several lists."""
    return TransactionLog(
        logs[-1].id,
        **{name: distinct_ids(np.concatenate([getattr(log, name) for log in logs])) for name in ID_LISTS},
        updated_chunks=union_of_chunks([log.updated_chunks for log in logs]),
        moves=tuple(chain.from_iterable(log.moves for log in logs)),
        odd_chunks={},
    )


def amended_log(first: TransactionLog, then: TransactionLog) -> TransactionLog:
    """Return the log of one commit with the changes of two commits. Each node is in at most one list.

    first     then
    new       updated   ->  new
    new       deleted   ->  in no list, also without chunks and moves
    updated   deleted   ->  deleted, without chunks and moves
    deleted   new       ->  updated, because the node came back
    """
    both = joined(first, then)
    lists: dict[str, Any] = {}
    dropped = id_keys(np.zeros((0, NODE_ID_BYTES), np.uint8))
    created = dropped
    for kind in ("groups", "arrays"):
        new, deletions, updated = (
            [id_keys(getattr(log, f"{name}_{kind}")) for log in (first, then)] for name in _DONE
        )
        # A log of another implementation may have nodes that were created and deleted in the same commit.
        absent = np.intersect1d(np.union1d(*new), deletions[1])
        absent = np.union1d(absent, np.intersect1d(new[0], deletions[0]))
        returned = np.setdiff1d(np.intersect1d(deletions[0], new[1]), new[0])
        elsewhere = np.union1d(absent, returned)
        new_ids = np.setdiff1d(np.union1d(*new), elsewhere)
        deleted = np.setdiff1d(np.union1d(*deletions), elsewhere)
        changed = np.setdiff1d(np.union1d(*updated), np.concatenate([new_ids, deleted, absent]))
        named = dict(zip(_DONE, (new_ids, deleted, np.union1d(changed, returned)), strict=True))
        lists |= {f"{name}_{kind}": _matrix(keys) for name, keys in named.items()}
        dropped = np.concatenate([dropped, deleted, absent])
        created = np.concatenate([created, new_ids])
    chunks = dict(both.updated_chunks)
    for id_ in chunks.keys() & set(id_list(_matrix(dropped))):
        del chunks[id_]
    moved = id_keys(id_matrix([move.node_id for move in both.moves], NODE_ID_BYTES))
    stays = ~np.isin(moved, np.concatenate([dropped, created]))
    return replace(both, **lists, updated_chunks=chunks, moves=tuple(compress(both.moves, stays.tolist())))


_DONE: Final = ("new", "deleted", "updated")


def _matrix(keys: NDArray[Any]) -> U8:
    return keys.view(np.uint8).reshape(len(keys), NODE_ID_BYTES)


def joined(first: TransactionLog, then: TransactionLog) -> TransactionLog:
    """Return the union of two consecutive logs, with composed moves. A node can be in several lists."""
    earlier, later = ({move.node_id: move for move in log.moves} for log in (first, then))
    moves = composed_moves(earlier, later).values()
    changed = tuple([move for move in moves if move.source != move.target])
    return replace(union_of_logs([first, then]), moves=changed)


@dataclass(frozen=True, slots=True)
class ChangedPaths:
    """The changed nodes and chunks by path: the later path, or for deleted nodes the earlier path."""

    new_groups: frozenset[str]
    new_arrays: frozenset[str]
    deleted_groups: frozenset[str]
    deleted_arrays: frozenset[str]
    updated_groups: frozenset[str]
    updated_arrays: frozenset[str]
    updated_chunks: dict[str, NDArray[np.uint32]]
    moved: tuple[tuple[str, str], ...] = ()


def compose_logs(
    logs: Sequence[TransactionLog],
    before: NodeTable,
    after: NodeTable,
    move_logs: Sequence[TransactionLog] | None = None,
) -> ChangedPaths:
    """Return the changes of commits from ``before`` to ``after``. ``logs`` are in order, oldest first.

    As in the reference, the result is the union of all logs: a node can be both new and updated, and can have
    several moves, in the order of ``move_logs`` (by default the logs, newest first). A node that was created
    and deleted on the way only has its moves.
    """
    ranked = [_ranked(log, (before, after)) if log.odd_chunks else log for log in logs]
    return compose_named(ranked, paths_by_id(before), paths_by_id(after), move_logs or list(reversed(logs)))


def _ranked(log: TransactionLog, tables: Iterable[NodeTable]) -> TransactionLog:
    """Return a log with the chunks that have the rank of their array, for arrays with several ranks."""
    chunks = dict(log.updated_chunks)
    for id_, table in product(log.odd_chunks, tables):
        if (row := row_of(table, id_)) >= 0:
            chunks[id_] = log.chunks_of(id_, int(table.array_length.lengths[row]))
    return replace(log, updated_chunks=chunks, odd_chunks={})


def compose_named(
    logs: Sequence[TransactionLog],
    old: Mapping[bytes, str],
    new: Mapping[bytes, str],
    move_logs: Sequence[TransactionLog] | None = None,
) -> ChangedPaths:
    """Return the result of ``compose_logs``, for the paths of both versions by the ids of their nodes."""
    names = new if old is new else {**old, **new}
    places = {"new": new, "deleted": old, "updated": names}

    def named(field: str) -> frozenset[str]:
        ids = {*id_list(np.concatenate([getattr(log, field) for log in logs]))}
        place = places[field.partition("_")[0]]
        return frozenset(map(place.__getitem__, filter(place.__contains__, ids)))

    chunks = union_of_chunks([log.updated_chunks for log in logs])
    moves = (
        in_order([(move.source, move.target) for move in log.moves]) for log in move_logs or reversed(logs)
    )
    arrays = list(filter(names.__contains__, chunks))
    return ChangedPaths(
        **{field: named(field) for field in ID_LISTS},
        updated_chunks=dict(
            zip(map(names.__getitem__, arrays), map(chunks.__getitem__, arrays), strict=True)
        ),
        moved=tuple(chain.from_iterable(moves)),
    )


def paths_by_id(nodes: NodeTable) -> dict[bytes, str]:
    """Return the paths of all nodes by their ids."""
    ids, _ = nodes.identities(np.arange(len(nodes)))
    return dict(zip(ids, nodes.paths_list(), strict=True))


#: All references of the array at a path.
References = Callable[[str], ChunkTable]


def compare_versions(before: NodeTable, after: NodeTable, old: References, new: References) -> ChangedPaths:
    """Return the differences from ``before`` to ``after``."""
    rows = rows_of(before, after.ids)
    one, other = before.select_nodes(rows[rows >= 0]), after.select_nodes(rows >= 0)
    created = after.select_nodes(rows < 0)
    deleted = before.select_nodes(_others(len(before), rows[rows >= 0]))

    updated = other.select_nodes(_differ(one.user_data.blobs(), other.user_data.blobs()))
    moves = zip(one.paths_list(), other.paths_list(), strict=True)
    moved = list(compress(moves, _differ(one.paths_list(), other.paths_list()).tolist()))
    touched = _differ(_grids(one), _grids(other))
    pairs = list(
        zip(one.select_nodes(touched).paths_list(), other.select_nodes(touched).paths_list(), strict=True)
    )
    chunks = {path: differing(old(was), new(path)) for was, path in pairs}
    chunks |= {path: new(path).index for path in _paths(created, arrays=True)}
    tables = {"new": created, "deleted": deleted, "updated": updated}
    return ChangedPaths(
        **{f"{name}_groups": _paths(table, arrays=False) for name, table in tables.items()},
        **{f"{name}_arrays": _paths(table, arrays=True) for name, table in tables.items()},
        updated_chunks={path: index for path, index in chunks.items() if len(index)},
        moved=tuple(in_order(moved)),
    )


def differing(one: ChunkTable, other: ChunkTable) -> NDArray[np.uint32]:
    """Return the coordinates, shape (k, ndim), sorted, at which two tables have different references."""
    if one.ndim != other.ndim:
        return other.index
    rows = one.find_chunks(other.index)
    both = rows >= 0
    changed = np.ones(len(other), np.bool_)
    changed[both] = ~one.same(rows[both], other, np.flatnonzero(both))
    is_absent = _others(len(one), rows[both])
    return ChunkTable.from_absent(np.concatenate([one.index[is_absent], other.index[changed]])).index


def _others(count: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    left = np.ones(count, np.bool_)
    left[rows] = False
    return left


def _differ[T](one: list[T], other: list[T]) -> NDArray[np.bool_]:
    return np.fromiter(map(ne, one, other), np.bool_, len(one))


def _grids(nodes: NodeTable) -> list[tuple[bytes, bytes, bytes]]:
    """Return the manifests of each node with their boxes, and the size of its grid."""
    columns = (nodes.manifests, nodes.extents, nodes.exact().num_chunks)
    return list(zip(*map(Ragged.blobs, columns), strict=True))


def _paths(nodes: NodeTable, *, arrays: bool) -> frozenset[str]:
    return frozenset(nodes.select_nodes(nodes.is_array == arrays).paths_list())


@dataclass(frozen=True, slots=True, eq=False)
class VersionContent:
    """The nodes of a version, and a function that returns the references of an array."""

    nodes: NodeTable
    table: References

    def node(self, id_: bytes) -> Node:
        """Return the node with this id."""
        return self.nodes.node(row_of(self.nodes, id_))


def exact_changes(
    node_changes: NodeChanges,
    before: VersionContent,
    after: VersionContent,
    among: Iterable[bytes],
    resized: set[bytes],
) -> NodeChanges:
    """Return ``node_changes`` with exactly the chunks that differ, for the arrays ``among``."""
    chunks = dict(node_changes.chunks)
    for id_ in set(among) & (chunks.keys() | resized):
        if row_of(before.nodes, id_) < 0 or id_ in node_changes.deleted:
            continue
        old, new = before.node(id_), after.node(id_)
        one, other = before.table(old.path), after.table(new.path)
        if one.ndim != other.ndim:
            chunks[id_] = other.index
            continue
        coords = union_of_coordinates([one.index, other.index]) if id_ in resized else chunks[id_]
        inside = (coords < np.array(new.array_data.num_chunks, np.uint64)).all(axis=1)
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
    """Return the change set from ``before`` to ``after``, whose difference is ``node_changes``."""
    targets = {target for _, target in node_changes.moved.values()}
    if taken := targets & set(node_changes.deleted.values()):
        raise SessionStateError(
            f"a node was moved to `{min(taken)}`, where another node had been deleted. One commit cannot "
            "repeat both changes. Apply the commits one by one"
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
            manifests: Sequence[ManifestRef] = ()  # of another number of dimensions, they are of no use
            if id_ not in node_changes.created and (old := before.node(id_).array) is not None:
                manifests = old.manifests if len(old.shape) == len(node.array.shape) else ()
            node = replace(node, array=replace(node.array, manifests=manifests))
        out.nodes[path] = node
        if id_ in node_changes.created and node.array is not None:
            table = after.table(path)
            if len(table):
                out.chunks[id_] = ChunkChanges(path, table.ndim, (table,))
    for id_, coords in node_changes.chunks.items():
        path = node_changes.chunk_paths[id_]
        out.chunks[id_] = ChunkChanges(path, coords.shape[1], (_at(after.table(path), coords),))
    return out


def _at(table: ChunkTable, coords: U32) -> ChunkTable:
    """Return the references at these coordinates, and deletions for missing chunks."""
    rows = table.find_chunks(coords)
    deletions = ChunkTable.from_absent(coords[rows < 0])
    return ChunkTable.merge_tables([table.select_chunks(np.sort(rows[rows >= 0])), deletions])
