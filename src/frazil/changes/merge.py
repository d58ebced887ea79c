"""Merging the work of forks into the session that they came from.

The merge is a union. Whatever two forks both did to one thing is an error: last-writer-wins would
silently drop half of a chunk that two workers each wrote a part of.
"""

from __future__ import annotations

from itertools import chain

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_edits import ChunkEdits
from frazil.errors import ErrorKind, SessionStateError
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node, NodeTable


def merge_forks(
    base: NodeTable, mine: ChangeSet, forks: list[ChangeSet], before: list[ChangeSet]
) -> ChangeSet:
    """``mine`` with everything that the forks did.

    ``base`` has the nodes of ``mine``'s snapshot. ``before`` are change sets merged earlier, after these
    forks were made: the forks did not see them, so they may not touch the same things.

    A group that several forks made, with the same document (as parents of their arrays, say), is one.

    Raises ``SessionStateError`` (``merge-failed``) and changes nothing if two forks set or deleted the same
    chunk, wrote different metadata to one node, or one deleted what another wrote to.
    """
    siblings = [*before, *forks]
    twins = _check_nodes(siblings)
    _check_chunks(siblings)
    out = mine.copy()
    for fork in forks:
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
            tables = [*known, *(edit.table() for edit in edits)]
            out.chunks[id_] = ChunkEdits(edits[0].path, edits[0].ndim, (ChunkTable.merge(tables),))
    return out


def _check_nodes(siblings: list[ChangeSet]) -> set[bytes]:
    """Ids of groups that an earlier sibling made as well, under another id."""
    twins: set[bytes] = set()
    written: dict[str, Node | None] = {}
    touched: dict[bytes, int] = {}
    for number, changes in enumerate(siblings):
        for path, node in changes.nodes.items():
            if path in written and not _same(written[path], node):
                raise _failed(f"two forks changed the node `{path}` in different ways")
            known = written.setdefault(path, node)
            if node is not None and known is not None and known.id != node.id:
                twins.add(node.id)
        for id_ in chain(changes.chunks, changes.updated):
            touched[id_] = number
    for number, changes in enumerate(siblings):
        for id_ in changes.deleted:
            if touched.get(id_, number) != number:
                raise _failed(f"one fork deleted a node that another fork wrote to (node id {id_.hex()})")
    return twins


def _same(one: Node | None, other: Node | None) -> bool:
    if one is None or other is None:
        return one is other
    both_groups = one.array is None and other.array is None
    return one.user_data == other.user_data and (one.id == other.id or both_groups)


def _check_chunks(siblings: list[ChangeSet]) -> None:
    for id_ in set(chain.from_iterable(changes.chunks for changes in siblings)):
        edits = [changes.chunks[id_] for changes in siblings if changes.chunks.get(id_)]
        if len(edits) > 1:
            twice = ChunkTable.duplicates([edit.table() for edit in edits])
            if len(twice):
                raise _failed(
                    f"{len(twice)} chunk(s) of `{edits[0].path}` were written by more than one fork, "
                    f"the first is {tuple(twice[0].tolist())}: align the work of forks with the chunk grid"
                )


def _failed(detail: str) -> SessionStateError:
    return SessionStateError(f"cannot merge: {detail}", ErrorKind.MERGE_FAILED)
