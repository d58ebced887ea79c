"""The merge of the changes of forks, which is a union.

It is an error if two forks changed the same node or chunk: with the last writer's, half of a chunk would be
lost silently when two workers each wrote a part. The same reference is the same write: no error.

A *generation* is the number of forks and merges of the session until then. A fork does not contain changes of
its own generation and later. A lookup or an addition costs the size of the fork, not of all earlier merges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

import numpy as np

from frazil.changes.change_set import (
    ChangeSet,
    ChunkChanges,
    Moves,
    composed_moves,
    misplaced,
    moved_nodes,
    moved_twice,
)
from frazil.changes.diff import parents
from frazil.changes.zarr_metadata import same_encoding
from frazil.errors import ErrorKind, SessionStateError
from frazil.format.chunk_table import box, lowest, within
from frazil.format.columns import I64, U32
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node, NodeTable

#: With more tables than this, the tables are arranged, because each fork would be compared with all of them.
_MOST_BOXES: Final = 256


@dataclass(slots=True)
class Layers:
    """The references of one array, deletions included, with the generation in which each was set last."""

    parts: list[tuple[ChunkTable, I64]] = field(default_factory=list)
    #: Tables that are not arranged yet. Most forks write regions of their own, which are compared as boxes.
    fresh: list[tuple[ChunkTable, int]] = field(default_factory=list)
    #: The smallest coordinates of each of these tables, and the largest ones plus one.
    boxes: list[tuple[list[int], list[int]]] = field(default_factory=list)

    def add(self, table: ChunkTable, generation: int) -> None:
        """Add references that were set in a generation."""
        if len(table):
            self.fresh.append((table, generation))
            self.boxes.append((lowest(table.index), box(table.index)))

    def differing(self, table: ChunkTable, since: int) -> U32:
        """Return the coordinates, (k, ndim), where ``since`` or later another reference was set."""
        # Another table that is not arranged yet may have references of the same chunks.
        if len(table) and self.boxes:
            meets = len(self.boxes) > _MOST_BOXES or any(each.ndim != table.ndim for each, _ in self.fresh)
            if not meets:
                boxes = np.array(self.boxes, np.int64)
                inside = (boxes[:, 0] < box(table.index)) & (boxes[:, 1] > lowest(table.index))
                meets = bool(inside.all(axis=1).any())
            if meets:
                self._arrange()
        wrong = np.zeros(len(table), np.bool_)
        open_ = np.ones(len(table), np.bool_)
        for part, generations in reversed(self.parts):
            rows = part.find_chunks(table.index)
            present = np.flatnonzero(open_ & (rows >= 0))
            open_[present] = False
            present = present[generations[rows[present]] >= since]
            wrong[present] = ~table.same(present, part, rows[present])
        return table.index[wrong]

    def _arrange(self) -> None:
        parts = self.parts
        for generation, group in groupby(self.fresh, itemgetter(1)):
            together = ChunkTable.merge_tables(list(map(itemgetter(0), group)))
            parts.append((together, np.full(len(together), generation, np.int64)))
            while len(parts) > 1 and len(parts[-2][0]) <= 2 * len(parts[-1][0]):
                early, late = parts[-2:]
                both = ChunkTable.merge_tables([early[0], late[0]])
                at = np.empty(len(both), np.int64)
                for table, generations in (early, late):
                    at[both.find_chunks(table.index)] = generations
                parts[-2:] = [(both, at)]
        self.fresh.clear()
        self.boxes.clear()


@dataclass(slots=True)
class ForkGenerations:
    """The changes of a session, with the generation of each change."""

    nodes: dict[str, tuple[int, Node | None]] = field(default_factory=dict)
    touched: dict[bytes, int] = field(default_factory=dict)
    deleted: dict[bytes, int] = field(default_factory=dict)
    moves: list[tuple[int, Moves]] = field(default_factory=list)
    chunks: dict[bytes, Layers] = field(default_factory=dict)

    def add(self, generation: int, changes: ChangeSet) -> None:
        """Add changes of a generation, which is the latest so far."""
        self.nodes.update((path, (generation, node)) for path, node in changes.nodes.items())
        self.touched.update(dict.fromkeys(chain(changes.chunks, changes.updated), generation))
        self.deleted.update(dict.fromkeys(changes.deleted, generation))
        if changes.moves:
            self.moves.append((generation, changes.moves))
        for id_, chunk_changes in changes.chunks.items():
            if chunk_changes:
                self.chunks.setdefault(id_, Layers()).add(chunk_changes.table(), generation)


_NOTHING = ForkGenerations()


def merge_forks(
    base: NodeTable, mine: ChangeSet, forks: list[ChangeSet], duplicate_groups: set[bytes] | None = None
) -> ChangeSet:
    """Return ``mine``, which is relative to ``base``, with the changes of forks that started from it.

    If several forks have created a group with the same document, such as the parent of their arrays, the
    result has one group: ``duplicate_groups``, if the caller has called ``check_forks`` before.

    Raises ``SessionStateError`` (``merge-failed``) if two forks set or deleted the same chunk in different
    ways, wrote different metadata to the same node, or if one fork deleted a node that another one wrote to.
    """
    duplicate_groups = check_forks(forks) if duplicate_groups is None else duplicate_groups
    out = mine.copy()
    for fork in forks:
        _add_nodes(base, out, fork, duplicate_groups)
    for id_ in set(chain.from_iterable(fork.chunks for fork in forks)):
        chunk_changes = [fork.chunks[id_] for fork in forks if fork.chunks.get(id_)]
        if chunk_changes:
            tables = [edit.table() for edit in chunk_changes]
            # In the order of their coordinates, parts of an array need no sorting. Equal chunks are the same.
            tables.sort(key=lambda table: lowest(table.index) if len(table) else [])
            _add_chunks(out, id_, chunk_changes[0].path, ChunkTable.merge_tables(tables))
    return out


def merge_snapshot_changes(base: NodeTable, parts: Sequence[ChangeSet]) -> ChangeSet:
    """Return the union of the changes that sessions, which did not know each other, made to ``base``.

    Raises the errors of ``merge_forks``. Also if one part changed the grid or the encoding of an array, and
    another part wrote chunks that do not fit, or if a node would be below no group.
    """
    out = merge_forks(base, ChangeSet(), list(parts))
    moved = moved_nodes(base, out.moves)
    paths = {node.id: path for path, node in out.nodes.items() if node is not None}
    for id_ in out.updated & out.chunks.keys():
        node, before = out.nodes[paths[id_]], moved.find_node(paths[id_])
        if node is None or node.array is None:
            continue
        fits = before >= 0 and same_encoding(moved.user_data.bytes(before), node.user_data)
        for part in parts:
            if id_ in part.chunks and id_ not in part.updated:
                index = part.chunks[id_].table().index
                if not (fits and within(index, node.array.num_chunks).all()):
                    raise _failed(
                        f"one changed the grid or the encoding of `{node.path}`, another wrote chunks"
                    )
    if out.deleted or out.moves or len(parts) > 1:
        require_groups(base, base, out)
    return out


def require_groups(start: NodeTable, base: NodeTable, merged: ChangeSet) -> None:
    """Raise ``SessionStateError`` (``merge-failed``) if a new node would be below a group that is deleted.

    ``merged`` is relative to ``base``. ``start`` has the groups that the writers have seen. A writer may
    store a node below no group.
    """
    if not merged.created:
        return
    new = [path for path, node in merged.nodes.items() if node is not None and node.id in merged.created]
    if lost := parents(new) & _groups(start) - _groups(merged.apply(base)) - {"/"}:
        raise _failed(f"a new node would be below `{min(lost)}`, which is not a group")


def _groups(nodes: NodeTable) -> set[str]:
    return set(nodes.select_nodes(~nodes.is_array).paths_list())


def merge_fork(base: NodeTable, mine: ChangeSet, more: ChangeSet) -> None:
    """Add the changes of one fork to ``mine``, in place. The cost depends only on the size of ``more``."""
    _add_nodes(base, mine, more, set())
    for id_, chunk_changes in more.chunks.items():
        if chunk_changes:
            _add_chunks(mine, id_, chunk_changes.path, chunk_changes.table())


def _add_nodes(base: NodeTable, out: ChangeSet, fork: ChangeSet, duplicate_groups: set[bytes]) -> None:
    if fork.moves:
        moves = composed_moves(out.moves, fork.moves)
        if lost := misplaced(base, moves):
            raise _failed(f"after the moves of all forks, two nodes would be at `{lost}`, or it has no group")
        out.moves = moves
    for path, node in fork.nodes.items():
        if node is not None and node.id in duplicate_groups:
            continue
        if node is None:
            if base.find_node(path) >= 0:
                out.nodes[path] = None
            else:
                out.nodes.pop(path, None)
        else:
            out.nodes[path] = node
    out.created |= fork.created - duplicate_groups
    ours = fork.deleted.keys() & out.created
    out.created -= ours
    out.deleted.update((id_, kind) for id_, kind in fork.deleted.items() if id_ not in ours)
    out.updated |= fork.updated - out.created - duplicate_groups
    out.updated -= fork.deleted.keys()
    for part in (out.chunks, out.ready):
        for id_ in fork.deleted.keys() & part.keys():
            del part[id_]
    out.ready.update(fork.ready)


def _add_chunks(out: ChangeSet, id_: bytes, path: str, table: ChunkTable) -> None:
    chunk_changes = out.chunks.get(id_)
    if id_ in out.created:
        # A new array has no references to delete.
        stored = table.stored()
        if len(stored) < len(table):
            if chunk_changes is not None:
                stored = ChunkTable.merge_tables([chunk_changes.table(), table]).stored()
            table = stored
            chunk_changes = None
            out.chunks.pop(id_, None)
    if not len(table):
        return
    if chunk_changes is None:
        chunk_changes = out.chunks[id_] = ChunkChanges(path, table.ndim)
    chunk_changes.path = path
    chunk_changes.add_table(table)


def check_forks(
    forks: Sequence[ChangeSet],
    session_changes: ForkGenerations = _NOTHING,
    forked_at: Sequence[int] | None = None,
) -> set[bytes]:
    """Check that forks can be merged. Return the ids of groups that an earlier fork has created too.

    ``session_changes`` has the changes of the session, and ``forked_at`` the generation of each fork. A fork
    must not change what the session changed since. Raises the errors of ``merge_forks``.
    """
    since = [0] * len(forks) if forked_at is None else forked_at
    oldest = min(since, default=0)
    unseen = [moves for generation, moves in session_changes.moves if generation >= oldest]
    if path := moved_twice([changes.moves for changes in forks], unseen):
        raise _failed(f"two forks, or the session and a fork, moved the node `{path}`")
    _check_chunks(forks, session_changes, since)
    _check_deleted(forks, session_changes, since)
    return _check_nodes(forks, session_changes, since)


def _check_nodes(
    forks: Sequence[ChangeSet], session_changes: ForkGenerations, since: Sequence[int]
) -> set[bytes]:
    duplicate_groups: set[bytes] = set()
    changed_nodes: dict[str, Node | None] = {}
    for changes, generation in zip(forks, since, strict=True):
        for path, node in changes.nodes.items():
            at, earlier = session_changes.nodes.get(path, (-1, None))
            if path in changed_nodes:
                earlier = changed_nodes[path]
            elif at < generation:
                changed_nodes[path] = node
                continue
            if not _same(earlier, node):
                raise _failed(f"two forks, or the session and a fork, changed the node `{path}` differently")
            changed_nodes.setdefault(path, earlier)
            if node is not None and earlier is not None and earlier.id != node.id:
                duplicate_groups.add(node.id)
    return duplicate_groups


def _check_deleted(
    forks: Sequence[ChangeSet], session_changes: ForkGenerations, since: Sequence[int]
) -> None:
    touched: dict[bytes, set[int]] = {}
    for number, changes in enumerate(forks):
        for id_ in chain(changes.chunks, changes.updated):
            touched.setdefault(id_, set()).add(number)
    for number, (changes, generation) in enumerate(zip(forks, since, strict=True)):
        mine = changes.chunks.keys() | changes.updated
        lost = [id_ for id_ in changes.deleted.keys() & touched.keys() if touched[id_] != {number}]
        lost += [
            id_
            for id_ in changes.deleted.keys() & session_changes.touched.keys()
            if session_changes.touched[id_] >= generation
        ]
        lost += [
            id_ for id_ in mine & session_changes.deleted.keys() if session_changes.deleted[id_] >= generation
        ]
        if lost:
            raise _failed(
                f"one fork deleted a node that another one wrote to (node id {id_to_text(lost[0])})"
            )


def _same(one: Node | None, other: Node | None) -> bool:
    if one is None or other is None:
        return one is other
    both_groups = one.array is None and other.array is None
    return one.user_data == other.user_data and (one.id == other.id or both_groups)


def _check_chunks(forks: Sequence[ChangeSet], session_changes: ForkGenerations, since: Sequence[int]) -> None:
    for id_ in set(chain.from_iterable(changes.chunks for changes in forks)):
        chunk_changes = [
            (changes.chunks[id_], generation)
            for changes, generation in zip(forks, since, strict=True)
            if changes.chunks.get(id_)
        ]
        if not chunk_changes:
            continue
        tables = [edit.table() for edit, _ in chunk_changes]
        twice = differing(tables)
        if not len(twice) and id_ in session_changes.chunks:
            # Forks of the same generation are looked up together.
            generations = [generation for _, generation in chunk_changes]
            for generation in set(generations):
                together = [table for table, at in zip(tables, generations, strict=True) if at == generation]
                late = session_changes.chunks[id_].differing(ChunkTable.merge_tables(together), generation)
                twice = np.concatenate((twice, late))
        if len(twice):
            path = chunk_changes[0][0].path
            raise _failed(
                f"more than one fork, or a fork and the session, wrote {len(twice)} chunk(s) of `{path}`; "
                f"the first is {tuple(twice[0].tolist())}"
            )


def differing(tables: Sequence[ChunkTable]) -> U32:
    """Return the coordinates, (k, ndim), for which several tables have different references."""
    twice = ChunkTable.duplicates(tables)
    if not len(twice):
        return twice
    last = ChunkTable.merge_tables(tables)
    expected = last.find_chunks(twice)
    wrong = np.zeros(len(twice), np.bool_)
    for table in tables:
        rows = table.find_chunks(twice)
        present = np.flatnonzero(rows >= 0)
        wrong[present] |= ~table.same(rows[present], last, expected[present])
    return twice[wrong]


def _failed(detail: str) -> SessionStateError:
    return SessionStateError(
        f"cannot merge: {detail}. Nothing was merged. Let each fork change its own nodes and chunks",
        ErrorKind.MERGE_FAILED,
    )
