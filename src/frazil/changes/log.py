"""The transaction log of a change set, and the combination of several logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet
from frazil.changes.moves import composed_moves, logged_moves
from frazil.format.columns import U8, U32, row_keys
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_list, id_matrix
from frazil.format.transaction_log import ID_LISTS, TransactionLog


def transaction_log(changes: ChangeSet, id_: bytes) -> TransactionLog:
    """Return the transaction log of a commit of these changes. ``id_`` is its snapshot.

    Specification: *Transaction Log Files*.
    """
    now = [node for node in changes.nodes.values() if node is not None]
    arrays = {node.id for node in now if node.array is not None}
    groups = {node.id for node in now if node.array is None}
    gone_arrays = {id_ for id_, is_array in changes.deleted.items() if is_array}
    return TransactionLog(
        id=id_,
        new_groups=_sorted(changes.created & groups),
        new_arrays=_sorted(changes.created & arrays),
        deleted_groups=_sorted(changes.deleted.keys() - gone_arrays),
        deleted_arrays=_sorted(gone_arrays),
        updated_arrays=_sorted(changes.updated & arrays),
        updated_groups=_sorted(changes.updated & groups),
        updated_chunks=union_of_chunks([_chunks_of_prepared(changes), _chunks_of_changes(changes)]),
        moves=logged_moves(changes.moves),
    )


def _chunks_of_changes(changes: ChangeSet) -> dict[bytes, U32]:
    chunk_changes = sorted(changes.chunks.items())
    return {
        node_id: table.index for node_id, chunk_change in chunk_changes if len(table := chunk_change.table())
    }


def _chunks_of_prepared(changes: ChangeSet) -> dict[bytes, U32]:
    """Return the coordinates in prepared manifests, for arrays that existed before."""
    return {
        node_id: ready.index
        for node_id, ready in sorted(changes.ready.items())
        if ready.index is not None and len(ready.index)
    }


def union_of_logs(logs: Sequence[TransactionLog]) -> TransactionLog:
    """Return the union of logs, oldest first, under the id of the last log.

    The moves are in the order of the logs. A node can be in several lists.
    """

    def all_of(name: str) -> U8:
        ids = np.concatenate([getattr(log, name) for log in logs])
        return ids[np.unique(id_keys(ids), return_index=True)[1]]

    return TransactionLog(
        logs[-1].id,
        **{name: all_of(name) for name in ID_LISTS},
        updated_chunks=union_of_chunks([log.updated_chunks for log in logs]),
        moves=tuple(chain.from_iterable(log.moves for log in logs)),
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
        new, gone, updated = (
            [id_keys(getattr(log, f"{name}_{kind}")) for log in (first, then)] for name in _DONE
        )
        # A log of another implementation may have nodes that were created and deleted in the same commit.
        absent = np.intersect1d(np.union1d(*new), gone[1])
        absent = np.union1d(absent, np.intersect1d(new[0], gone[0]))
        returned = np.setdiff1d(np.intersect1d(gone[0], new[1]), new[0])
        elsewhere = np.union1d(absent, returned)
        new_ids = np.setdiff1d(np.union1d(*new), elsewhere)
        deleted = np.setdiff1d(np.union1d(*gone), elsewhere)
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
    """Return the union of two consecutive logs, with composed moves.

    A node can be in several lists, which show its changes. Files have the result of ``amended_log`` instead.
    """
    earlier, later = ({move.node_id: move for move in log.moves} for log in (first, then))
    return replace(union_of_logs([first, then]), moves=logged_moves(composed_moves(earlier, later)))


def union_of_chunks(parts: Sequence[Mapping[bytes, U32]]) -> dict[bytes, U32]:
    """Return the union of the coordinates of several logs, oldest first, by array.

    If the number of dimensions of an array has changed, only coordinates with the last number count.
    """
    chunks: dict[bytes, U32] = {}
    several: dict[bytes, list[U32]] = {}
    for part in parts:
        for id_ in chunks.keys() & part.keys():
            several.setdefault(id_, [chunks[id_]]).append(part[id_])
        chunks.update(part)
    chunks.update((id_, _union(columns)) for id_, columns in several.items())
    return chunks


def _union(columns: list[U32]) -> U32:
    every = np.concatenate([each for each in columns if each.shape[1] == columns[-1].shape[1]])
    _, first = np.unique(row_keys(every), return_index=True)
    return every[first]


def _sorted(ids: Iterable[bytes]) -> U8:
    return id_matrix(sorted(ids), NODE_ID_BYTES)
