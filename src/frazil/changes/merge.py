"""Merging the work of forks into the session that they came from.

The merge is a union. Whatever two forks both did to one thing is an error: last-writer-wins would
silently drop half of a chunk that two workers each wrote a part of.
"""

from __future__ import annotations

from itertools import chain

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_edits import ChunkEdits
from frazil.changes.moves import composed, misplaced, moved_twice
from frazil.errors import ErrorKind, SessionStateError
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node, NodeTable


def merge_forks(base: NodeTable, mine: ChangeSet, forks: list[ChangeSet]) -> ChangeSet:
    """``mine`` with everything that the forks did, which had seen it. ``base`` is what ``mine`` is relative
    to.

    A group that several forks made, with the same document (as parents of their arrays, say), is one.

    Raises ``SessionStateError`` (``merge-failed``) and changes nothing if two forks set or deleted the same
    chunk, wrote different metadata to one node, or one deleted what another wrote to.
    """
    twins = check_forks(forks, [])
    out = mine.copy()
    for fork in forks:
        out.moves = composed(out.moves, fork.moves)
        for path, node in fork.nodes.items():
            if node is not None and node.id in twins:
                continue
            if node is None:
                if base.find(path) >= 0:
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
        for id_ in fork.deleted.keys() & out.chunks.keys():
            del out.chunks[id_]
    for id_ in set(chain.from_iterable(fork.chunks for fork in forks)):
        edits = [fork.chunks[id_] for fork in forks if fork.chunks.get(id_)]
        if edits:
            known = [out.chunks[id_].table()] if id_ in out.chunks else []
            table = ChunkTable.merge([*known, *(edit.table() for edit in edits)])
            # An array that nobody else has yet has nothing to delete.
            table = table.stored() if id_ in out.created else table
            if len(table):
                out.chunks[id_] = ChunkEdits(edits[0].path, edits[0].ndim, (table,))
            else:
                out.chunks.pop(id_, None)
    if lost := misplaced(base, out.moves):
        raise _failed(f"after the moves of all, `{lost}` would be two nodes, or below no group")
    return out


def check_forks(forks: list[ChangeSet], unseen: list[ChangeSet]) -> set[bytes]:
    """Ids of groups that an earlier fork made as well, under another id.

    ``unseen`` is what the session changed and merged since the forks were made, oldest first: they did not
    see it, so they may not touch the same things. Raises as ``merge_forks`` does.
    """
    if path := moved_twice([changes.moves for changes in forks], [changes.moves for changes in unseen]):
        raise _failed(f"two forks, or the session and a fork, moved the node `{path}`")
    _check_chunks(forks, unseen)
    return _check_nodes(forks, unseen)


def _check_nodes(forks: list[ChangeSet], unseen: list[ChangeSet]) -> set[bytes]:
    twins: set[bytes] = set()
    written: dict[str, Node | None] = {}
    for changes in unseen:
        written.update(changes.nodes)
    for changes in forks:
        for path, node in changes.nodes.items():
            if path in written and not _same(written[path], node):
                raise _failed(f"two forks, or the session and a fork, changed the node `{path}` differently")
            known = written.setdefault(path, node)
            if node is not None and known is not None and known.id != node.id:
                twins.add(node.id)
    # One number for all that the forks did not see: these may do to one another what they like.
    numbered = [*((-1, changes) for changes in unseen), *enumerate(forks)]
    touched: dict[bytes, set[int]] = {}
    for number, changes in numbered:
        for id_ in chain(changes.chunks, changes.updated):
            touched.setdefault(id_, set()).add(number)
    for number, changes in numbered:
        for id_ in changes.deleted.keys() & touched.keys():
            if touched[id_] != {number}:
                raise _failed(f"a node was deleted here and written to there (node id {id_.hex()})")
    return twins


def _same(one: Node | None, other: Node | None) -> bool:
    if one is None or other is None:
        return one is other
    both_groups = one.array is None and other.array is None
    return one.user_data == other.user_data and (one.id == other.id or both_groups)


def _check_chunks(forks: list[ChangeSet], unseen: list[ChangeSet]) -> None:
    for id_ in set(chain.from_iterable(changes.chunks for changes in forks)):
        edits = [changes.chunks[id_] for changes in forks if changes.chunks.get(id_)]
        earlier = [changes.chunks[id_].table() for changes in unseen if changes.chunks.get(id_)]
        tables = [edit.table() for edit in edits]
        if earlier:
            tables.append(ChunkTable.merge(earlier))
        if len(tables) > 1:
            twice = ChunkTable.duplicates(tables)
            if len(twice):
                raise _failed(
                    f"{len(twice)} chunk(s) of `{edits[0].path}` were written by more than one fork, or "
                    f"since the fork; the first is {tuple(twice[0].tolist())}: align work with the grid"
                )


def _failed(detail: str) -> SessionStateError:
    return SessionStateError(f"cannot merge: {detail}", ErrorKind.MERGE_FAILED)
