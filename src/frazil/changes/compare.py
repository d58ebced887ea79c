"""The comparison of two versions by their nodes and references, without transaction logs.

Logs have all changes on the way from one version to another. This comparison only has the remaining
differences. Two nodes are the same if they have the same id, at any path. Two references are the same if they
point to the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from operator import ne

import numpy as np
from numpy.typing import NDArray

from frazil.changes.diff import ChangedPaths
from frazil.changes.moves import in_order
from frazil.format.columns import Ragged, distinct_rows, intern
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import NodeTable

#: All references of the array at a path.
References = Callable[[str], ChunkTable]


def compare_versions(before: NodeTable, after: NodeTable, old: References, new: References) -> ChangedPaths:
    """Return the differences from ``before`` to ``after``.

    ``old`` and ``new`` return the references of an array. They are only called for arrays that may differ.
    """
    old_rows, new_rows = _rows_by_id(before), _rows_by_id(after)
    common = list(filter(old_rows.__contains__, new_rows))
    common_before = np.fromiter(map(new_rows.__getitem__, common), np.int64, len(common))
    common_after = np.fromiter(map(old_rows.__getitem__, common), np.int64, len(common))
    one, other = before.select_nodes(common_after), after.select_nodes(common_before)
    created = after.select_nodes(_others(len(after), common_before))
    deleted = before.select_nodes(_others(len(before), common_after))

    updated = other.select_nodes(_differ(one.user_data.blobs(), other.user_data.blobs()))
    moves = zip(one.paths_list(), other.paths_list(), strict=True)
    moved = list(compress(moves, _differ(one.paths_list(), other.paths_list()).tolist()))
    touched = _differ(_grids(one), _grids(other))
    pairs = list(
        zip(one.select_nodes(touched).paths_list(), other.select_nodes(touched).paths_list(), strict=True)
    )
    chunks = {path: differing(old(was), new(path)) for was, path in pairs}
    chunks |= {path: new(path).index for path in _paths(created, arrays=True)}
    return ChangedPaths(
        new_groups=_paths(created, arrays=False),
        new_arrays=_paths(created, arrays=True),
        deleted_groups=_paths(deleted, arrays=False),
        deleted_arrays=_paths(deleted, arrays=True),
        updated_groups=_paths(updated, arrays=False),
        updated_arrays=_paths(updated, arrays=True),
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
    changed[both] = ~_same(one.select_chunks(rows[both]), other.select_chunks(both))
    gone = _others(len(one), rows[both])
    return ChunkTable.from_absent(np.concatenate([one.index[gone], other.index[changed]])).index


def _same(one: ChunkTable, other: ChunkTable) -> NDArray[np.bool_]:
    """Return for each row whether the references are the same."""
    columns = ((one.kind, other.kind), (one.offset, other.offset), (one.length, other.length))
    same: NDArray[np.bool_] = np.logical_and.reduce([mine == theirs for mine, theirs in columns])
    native, virtual, inline = (
        np.flatnonzero(same & (one.kind == kind))
        for kind in (ChunkKind.NATIVE, ChunkKind.VIRTUAL, ChunkKind.INLINE)
    )
    mine, theirs = one.chunk_ids[one.source[native]], other.chunk_ids[other.source[native]]
    same[native] = (mine == theirs).all(axis=1)
    if len(virtual):
        _, numbers = intern([*_objects(one), *_objects(other)])
        same[virtual] = _equal(numbers, one.source[virtual], len(one.foreign), other.source[virtual])
    if len(inline):
        _, numbers = distinct_rows(Ragged.concat([one.inline, other.inline]))
        same[inline] = _equal(numbers, one.source[inline], len(one.inline), other.source[inline])
    return same


def _equal(
    numbers: NDArray[np.uint32], one: NDArray[np.uint32], count: int, other: NDArray[np.uint32]
) -> NDArray[np.bool_]:
    """Return whether the sources have the same number. The other table starts at ``count``."""
    equal: NDArray[np.bool_] = numbers[one] == numbers[count + other.astype(np.int64)]
    return equal


def _objects(table: ChunkTable) -> Iterable[tuple[bytes, bytes, int]]:
    foreign = table.foreign
    return zip(foreign.locations.blobs(), foreign.etags.blobs(), foreign.modified.tolist(), strict=True)


def _rows_by_id(nodes: NodeTable) -> dict[bytes, int]:
    ids, _ = nodes.identities(np.arange(len(nodes)))
    return dict(zip(ids, range(len(ids)), strict=True))


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
