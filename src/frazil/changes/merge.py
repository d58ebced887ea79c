"""Merging the work of forks into the session that they came from.

The merge is a union. Whatever two forks both did to one thing is an error: last-writer-wins would
silently drop half of a chunk that two workers each wrote a part of. The same reference is no error: it is the
same write, that came back twice, as with a fork that is merged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_edits import ChunkEdits
from frazil.changes.fork_generations import Seen
from frazil.changes.moves import composed, misplaced, moved_twice
from frazil.errors import ErrorKind, SessionStateError
from frazil.format.columns import U32
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node, NodeTable

_NOTHING = Seen()


def merge_forks(
    base: NodeTable, mine: ChangeSet, forks: list[ChangeSet], twins: set[bytes] | None = None
) -> ChangeSet:
    """``mine`` with everything that the forks did, which had seen it. ``base`` is what ``mine`` is relative
    to.

    A group that several forks made, with the same document (as parents of their arrays, say), is one.
    ``twins`` is what ``check_forks`` gave, if it was asked before.

    Raises ``SessionStateError`` (``merge-failed``) and changes nothing if two forks set or deleted the same
    chunk in different ways, wrote different metadata to one node, or one deleted what another wrote to.
    """
    twins = check_forks(forks) if twins is None else twins
    out = mine.copy()
    for fork in forks:
        _take_nodes(base, out, fork, twins)
    for id_ in set(chain.from_iterable(fork.chunks for fork in forks)):
        edits = [fork.chunks[id_] for fork in forks if fork.chunks.get(id_)]
        if edits:
            tables = [edit.table() for edit in edits]
            _take_chunks(out, id_, edits[0].path, ChunkTable.merge_tables(tables))
    return out


def absorb(base: NodeTable, mine: ChangeSet, more: ChangeSet) -> None:
    """What ``merge_forks`` does with one fork, in place: it costs what is in ``more``, not what there is."""
    _take_nodes(base, mine, more, set())
    for id_, edits in more.chunks.items():
        if edits:
            _take_chunks(mine, id_, edits.path, edits.table())


def _take_nodes(base: NodeTable, out: ChangeSet, fork: ChangeSet, twins: set[bytes]) -> None:
    if fork.moves:
        moves = composed(out.moves, fork.moves)
        if lost := misplaced(base, moves):
            raise _failed(f"after the moves of all forks, `{lost}` would be two nodes, or in no group")
        out.moves = moves
    for path, node in fork.nodes.items():
        if node is not None and node.id in twins:
            continue
        if node is None:
            if base.find_node(path) >= 0:
                out.nodes[path] = None
            else:
                out.nodes.pop(path, None)
        else:
            out.nodes[path] = node
    out.created |= fork.created - twins
    ours = fork.deleted.keys() & out.created
    out.created -= ours
    out.deleted.update((id_, kind) for id_, kind in fork.deleted.items() if id_ not in ours)
    out.updated |= fork.updated - out.created - twins
    out.updated -= fork.deleted.keys()
    for part in (out.chunks, out.ready):
        for id_ in fork.deleted.keys() & part.keys():
            del part[id_]
    out.ready.update(fork.ready)


def _take_chunks(out: ChangeSet, id_: bytes, path: str, table: ChunkTable) -> None:
    edits = out.chunks.get(id_)
    if id_ in out.created:
        # An array that nobody else has yet has nothing to delete.
        stored = table.stored()
        if len(stored) < len(table):
            table = stored if edits is None else ChunkTable.merge_tables([edits.table(), table]).stored()
            edits = None
            out.chunks.pop(id_, None)
    if not len(table):
        return
    if edits is None:
        edits = out.chunks[id_] = ChunkEdits(path, table.ndim)
    edits.path = path
    edits.add_table(table)


def check_forks(
    forks: Sequence[ChangeSet], seen: Seen = _NOTHING, made: Sequence[int] | None = None
) -> set[bytes]:
    """Ids of groups that an earlier fork made as well, under another id.

    ``seen`` is what the session changed and merged. What it did in the generation in which a fork was
    ``made``, or later, the fork has not seen, and may not touch. Raises as ``merge_forks`` does.
    """
    since = [0] * len(forks) if made is None else made
    unseen = list(seen.moves_since(min(since, default=0)))
    if path := moved_twice([changes.moves for changes in forks], unseen):
        raise _failed(f"two forks, or the session and a fork, moved the node `{path}`")
    _check_chunks(forks, seen, since)
    _check_deleted(forks, seen, since)
    return _check_nodes(forks, seen, since)


def _check_nodes(forks: Sequence[ChangeSet], seen: Seen, since: Sequence[int]) -> set[bytes]:
    twins: set[bytes] = set()
    changed_nodes: dict[str, Node | None] = {}
    for changes, made in zip(forks, since, strict=True):
        for path, node in changes.nodes.items():
            at, earlier = seen.nodes.get(path, (-1, None))
            if path in changed_nodes:
                earlier = changed_nodes[path]
            elif at < made:
                changed_nodes[path] = node
                continue
            if not _same(earlier, node):
                raise _failed(f"two forks, or the session and a fork, changed the node `{path}` differently")
            changed_nodes.setdefault(path, earlier)
            if node is not None and earlier is not None and earlier.id != node.id:
                twins.add(node.id)
    return twins


def _check_deleted(forks: Sequence[ChangeSet], seen: Seen, since: Sequence[int]) -> None:
    touched: dict[bytes, set[int]] = {}
    for number, changes in enumerate(forks):
        for id_ in chain(changes.chunks, changes.updated):
            touched.setdefault(id_, set()).add(number)
    for number, (changes, made) in enumerate(zip(forks, since, strict=True)):
        mine = changes.chunks.keys() | changes.updated
        lost = [id_ for id_ in changes.deleted.keys() & touched.keys() if touched[id_] != {number}]
        lost += [id_ for id_ in changes.deleted.keys() & seen.touched.keys() if seen.touched[id_] >= made]
        lost += [id_ for id_ in mine & seen.deleted.keys() if seen.deleted[id_] >= made]
        if lost:
            raise _failed(
                f"one fork deleted a node that another one wrote to (node id {id_to_text(lost[0])})"
            )


def _same(one: Node | None, other: Node | None) -> bool:
    if one is None or other is None:
        return one is other
    both_groups = one.array is None and other.array is None
    return one.user_data == other.user_data and (one.id == other.id or both_groups)


def _check_chunks(forks: Sequence[ChangeSet], seen: Seen, since: Sequence[int]) -> None:
    for id_ in set(chain.from_iterable(changes.chunks for changes in forks)):
        edits = [
            (changes.chunks[id_], made)
            for changes, made in zip(forks, since, strict=True)
            if changes.chunks.get(id_)
        ]
        if not edits:
            continue
        tables = [edit.table() for edit, _ in edits]
        twice = differing(tables)
        if not len(twice) and id_ in seen.chunks:
            # Forks made at the same time are looked up together.
            generations = [made for _, made in edits]
            for made in set(generations):
                together = [table for table, at in zip(tables, generations, strict=True) if at == made]
                twice = np.concatenate(
                    (twice, seen.chunks[id_].differing(ChunkTable.merge_tables(together), made))
                )
        if len(twice):
            raise _failed(
                f"{len(twice)} chunk(s) of `{edits[0][0].path}` were written by more than one fork, or "
                f"since the fork; the first is {tuple(twice[0].tolist())}"
            )


def differing(tables: Sequence[ChunkTable]) -> U32:
    """Coordinates (k, ndim) that several of the tables have, with different references."""
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
        f"cannot merge: {detail}. Nothing was merged: let each fork change nodes and write chunks of its own",
        ErrorKind.MERGE_FAILED,
    )
