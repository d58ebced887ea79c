"""Rebase a change set onto a newer snapshot.

Ours is the change set, theirs the commits since its base. A change of ours without a conflict stays as it is:
it applies to the node with the same id, at the path where theirs has that node. For each conflict a
``Choice`` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_edits import ChunkEdits
from frazil.changes.conflicts import Clash, ConflictType
from frazil.changes.node_alignment import Did, Meeting
from frazil.changes.node_edits import ancestors, in_both, parent_of, parents, rows_of
from frazil.changes.version_changes import Tables
from frazil.changes.zarr_metadata import parse_node, same_encoding
from frazil.format.ids import NODE_ID_BYTES, id_matrix
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node, NodeTable


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What becomes of a conflict: ours or theirs; chunk by chunk, where it is about chunks that both wrote.

    ours      whether ours stands; bool (k,) for the k chunks of a ``ChunkDoubleUpdate``
    chunks    other content for some of these chunks
    document  other metadata for a ``ZarrMetadataDoubleUpdate``
    """

    ours: bool | NDArray[np.bool_]
    chunks: ChunkTable | None = None
    document: bytes | None = None


def ours_can_stand(at: Meeting, clash: Clash) -> bool:
    """Whether ``Choice(True)`` can be carried out.

    A move cannot, nor a new node below an array; nor changes of a node that is gone, where another one is in
    its place; nor chunks of an array whose chunks are cut or encoded in another way now.
    """
    if clash.type is ConflictType.ChunksUpdatedInUpdatedArray and clash.ours is Did.WROTE:
        old = at.here.node(int(rows_of(at.here, _matrix([clash.node_id]))[0]))
        new = at.ground.node(int(rows_of(at.ground, _matrix([clash.node_id]))[0]))
        assert old.array is not None
        assert new.array is not None
        same_rank = len(old.array.shape) == len(new.array.shape)
        return same_rank and same_encoding(old.user_data, new.user_data)
    if clash.type is ConflictType.MoveOperationCannotBeRebased:
        return clash.ours is Did.DELETED
    if clash.theirs is Did.DELETED:
        above = clash.path if clash.ours is Did.CREATED else parent_of(clash.path)
        return at.ground.find_node(clash.path) < 0 and _revivable(at, above) is not None
    return clash.type is not ConflictType.NewNodeInInvalidGroup


def _revivable(at: Meeting, path: str) -> list[str] | None:
    """The groups that have to come back for ``path`` to be one again; None if that cannot be."""
    gone: list[str] = []
    while (row := at.ground.find_node(path)) < 0:
        old = at.here.find_node(path)
        if old < 0 or at.here.is_array[old]:
            return gone if path in at.our_groups() else None
        gone.append(path)
        if path == "/":
            return gone
        path = parent_of(path)
    return None if at.ground.is_array[row] else gone


@dataclass(frozen=True, slots=True, eq=False)
class _Rulings:
    """All decided conflicts of a rebase.

    undone     what ours does not do any more, because theirs stands: (what ours did, node id)
    forced     the conflicts in which ours stands
    documents  node id -> the ``zarr.json`` that replaces both
    """

    decided: Sequence[tuple[Clash, Choice]]
    undone: frozenset[tuple[Did, bytes]]
    forced: list[Clash]
    documents: dict[bytes, bytes]

    @classmethod
    def of(cls, decided: Sequence[tuple[Clash, Choice]]) -> _Rulings:
        undone = frozenset(
            (clash.ours, clash.node_id)
            for clash, choice in decided
            if choice.ours is False and clash.type is not ConflictType.ChunkDoubleUpdate
        )
        forced = [clash for clash, choice in decided if choice.ours is True]
        documents = {
            clash.node_id: choice.document for clash, choice in decided if choice.document is not None
        }
        return cls(decided, undone, forced, documents)

    def undone_ids(self, did: Did) -> set[bytes]:
        """Nodes to which ours does not do this any more."""
        return {id_ for what, id_ in self.undone if what is did}


def rebased(at: Meeting, decided: Sequence[tuple[Clash, Choice]], base_table: Tables) -> ChangeSet:
    """Ours, relative to the tip. Every conflict has to be decided.

    ``base_table`` gives the references that an array had in the base, by its path there.
    """
    if not decided and not _meet(at):
        return at.changes
    rulings = _Rulings.of(decided)
    out = ChangeSet(moves=at.moves)
    adopted, dropped, replaced = _at_taken_paths(at, rulings)
    out.deleted = _deletions(at, rulings) | replaced
    out.nodes.update(dict.fromkeys(_paths(at.ground, out.deleted).values()))
    out.nodes.update(adopted)
    out.updated.update(node.id for node in adopted.values())
    _create_nodes(at, out, dropped | _undone_creations(at, rulings))
    _update_nodes(at, out, rulings)
    for clash in rulings.forced:
        if clash.theirs is Did.DELETED:
            _revive(at, out, clash, base_table)
    _take_chunks(at, out, rulings)
    return out


def _at_taken_paths(at: Meeting, rulings: _Rulings) -> tuple[dict[str, Node], set[bytes], dict[bytes, bool]]:
    """For new nodes of ours that stand at paths where theirs has new nodes as well:

    groups of theirs that get the metadata of our group, by path; the ids of those groups of ours, which are
    not created then; and the nodes of theirs that ours replaces, id -> whether it is an array.
    """
    adopted: dict[str, Node] = {}
    dropped: set[bytes] = set()
    replaced: dict[bytes, bool] = {}
    for clash in rulings.forced:
        if clash.type is not ConflictType.NewNodeConflictsWithExistingNode:
            continue
        path = at.place(clash.path)
        mine, theirs = at.changes.nodes[clash.path], at.ground.node(at.ground.find_node(path))
        assert mine is not None
        if mine.array is None and theirs.array is None:
            adopted[path] = replace(theirs, user_data=mine.user_data)
            dropped.add(mine.id)
        else:
            replaced[theirs.id] = theirs.array is not None
            replaced.update(_below(at.ground, path))
    return adopted, dropped, replaced


def _undone_creations(at: Meeting, rulings: _Rulings) -> set[bytes]:
    """New nodes of ours that are not created: so it was decided, or a node that stays is at their path."""
    undeleted_paths = set(_paths(at.ground, rulings.undone_ids(Did.DELETED)).values())
    blocked = {id_ for id_, path in at.ours.created.items() if at.place(path) in undeleted_paths}
    return rulings.undone_ids(Did.CREATED) | blocked


def _create_nodes(at: Meeting, out: ChangeSet, dropped: set[bytes]) -> None:
    for id_ in at.changes.created - dropped:
        node = at.changes.nodes[at.ours.created[id_]]
        assert node is not None
        path = at.place(node.path)
        out.nodes[path] = node if path == node.path else replace(node, path=path)
        out.created.add(id_)


def is_whole(at: Meeting, changes: ChangeSet) -> bool:
    """Whether every node has a place of its own, in a group. Choices may be fine each, and not together."""
    nodes = changes.edited(at.ground)
    paths = nodes.paths_list()
    groups = set(compress(paths, (~nodes.is_array).tolist()))
    return len(set(paths)) == len(paths) and parents(paths) - {"/"} <= groups


def _meet(at: Meeting) -> bool:
    """Whether theirs did anything to a node of ours, or put it somewhere else."""
    theirs, ours = at.theirs, at.ours
    if not ours.arrays.isdisjoint(ours.updated):
        return True  # no log tells of manifests that were written anew
    touched = theirs.updated.keys() | theirs.chunks.keys() | theirs.deleted.keys() | theirs.moved.keys()
    mine = ours.updated.keys() | ours.deleted.keys() | (at.changes.chunks.keys() & theirs.moved.keys())
    return bool(at.places) or at.moves != at.changes.moves or not touched.isdisjoint(mine)


def _deletions(at: Meeting, rulings: _Rulings) -> dict[bytes, bool]:
    """The nodes that ours deletes, id -> whether it is an array.

    A node that theirs deleted as well is not among them, nor one whose deletion is undone, nor the groups
    above that. Of a group that is deleted although theirs put something into it, all nodes are.
    """
    ours, undeleted = at.ours.deleted, rulings.undone_ids(Did.DELETED)
    ids = list(ours)
    alive = (rows_of(at.ground, _matrix(ids)) >= 0).tolist()
    above = ancestors(map(ours.__getitem__, undeleted))
    spared = {id_ for id_ in ours if id_ in undeleted or ours[id_] in above} if undeleted else set()
    deleted = {id_: at.changes.deleted[id_] for id_ in compress(ids, alive) if id_ not in spared}
    for clash in rulings.forced:
        if clash.type is ConflictType.DeleteOfUpdatedGroup and clash.path not in at.our_groups():
            deleted.update(_below(at.ground, clash.path))
    return deleted


def _below(nodes: NodeTable, path: str) -> dict[bytes, bool]:
    """All nodes below a path: whether each is an array, by id."""
    below = nodes.below(path)
    return dict(zip(*nodes.identities(np.arange(below.start, below.stop)), strict=True))


def _update_nodes(at: Meeting, out: ChangeSet, rulings: _Rulings) -> None:
    for id_, path in _paths(at.ground, at.changes.updated).items():
        if (Did.UPDATED, id_) in rulings.undone:
            continue
        node, base = at.changes.nodes[at.ours.updated[id_]], at.here
        old, new = base.node(int(rows_of(base, _matrix([id_]))[0])), at.ground.node(at.ground.find_node(path))
        assert node is not None
        array = node.array
        document = rulings.documents.get(id_)
        if document is not None:
            node = replace(node, user_data=document, array=parse_node(document))
        if array is not None:
            # No manifests where the base has some: ours left all chunks behind.
            assert old.array is not None
            assert new.array is not None
            assert node.array is not None
            keeps = array.manifests or not old.array.manifests
            fits = len(node.array.shape) == len(new.array.shape)
            manifests = new.array.manifests if keeps and fits else ()
            node = replace(node, array=replace(node.array, manifests=manifests))
        out.nodes[path] = replace(node, path=path)
        out.updated.add(id_)


def _revive(at: Meeting, out: ChangeSet, clash: Clash, base_table: Tables) -> None:
    """Bring back a node that theirs deleted, as ours has it, and the groups above."""
    path = clash.path if clash.ours is Did.CREATED else parent_of(clash.path)
    nodes = [
        at.here.node(at.here.find_node(path)) for path in _revivable(at, path) or () if path not in out.nodes
    ]
    if clash.ours is not Did.CREATED:
        node = at.changes.node(at.here, clash.path)
        assert node is not None
        if node.array is not None:
            edits = at.changes.chunks.get(node.id)
            before, _ = at.ours.moved.get(node.id, (clash.path, None))
            tables = [base_table(before)] if node.array.manifests else []
            table = ChunkTable.merge_tables(
                [*tables, *([edits.table()] if edits else [])] or [ChunkTable.empty(len(node.array.shape))]
            )
            inside = (table.index < np.array(node.array.num_chunks, np.uint64)).all(axis=1)
            table = table.select_chunks(inside).stored()
            if len(table):
                out.chunks[node.id] = ChunkEdits(node.path, table.ndim, (table,))
            node = replace(node, array=replace(node.array, manifests=()))
        nodes.append(node)
    for node in nodes:
        out.nodes[node.path] = node
        out.created.add(node.id)


def _take_chunks(at: Meeting, out: ChangeSet, rulings: _Rulings) -> None:
    partly = {
        clash.node_id: (clash, choice)
        for clash, choice in rulings.decided
        if clash.type is ConflictType.ChunkDoubleUpdate
    }
    paths = {node.id: path for path, node in out.nodes.items() if node is not None}
    paths = _paths(at.ground, at.changes.chunks.keys() - paths.keys()) | paths
    for id_, edits in at.changes.chunks.items():
        if id_ not in paths or id_ in out.deleted or id_ in out.chunks or (Did.WROTE, id_) in rulings.undone:
            continue
        table = edits.table()
        path = paths[id_]
        if id_ in partly:
            table = _chosen(table, *partly[id_])
        if id_ in at.theirs.updated or id_ in at.changes.updated:
            node = out.node(at.ground, path)
            assert node is not None
            assert node.array is not None
            if len(node.array.shape) != edits.ndim:
                continue
            inside = (table.index < np.array(node.array.num_chunks, np.uint64)).all(axis=1)
            table = table if inside.all() else table.select_chunks(inside)
        same = path == edits.path and table is edits.table()
        out.chunks[id_] = edits if same else ChunkEdits(path, edits.ndim, (table,))


def _chosen(table: ChunkTable, clash: Clash, choice: Choice) -> ChunkTable:
    """Our references without those that gave way to theirs, and with those that replace both."""
    assert clash.chunks is not None
    theirs = clash.chunks[~np.broadcast_to(choice.ours, len(clash.chunks))]
    if len(theirs):
        table = table.select_chunks(~in_both(table.index, theirs))
    return table if choice.chunks is None else ChunkTable.merge_tables([table, choice.chunks])


def _paths(nodes: NodeTable, ids: Iterable[bytes]) -> dict[bytes, str]:
    """Paths of those of the nodes that are there."""
    wanted = list(ids)
    rows = rows_of(nodes, _matrix(wanted))
    return dict(
        zip(compress(wanted, (rows >= 0).tolist()), nodes.paths.take(rows[rows >= 0]).texts(), strict=True)
    )


def _matrix(ids: list[bytes]) -> NDArray[np.uint8]:
    return id_matrix(ids, NODE_ID_BYTES)
