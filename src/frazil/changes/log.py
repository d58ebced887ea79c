"""The transaction log of a change set, and of several logs together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.moves import steps
from frazil.format.columns import U8, U32, row_keys
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_matrix
from frazil.format.transaction_log import TransactionLog


def transaction_log(changes: ChangeSet, id_: bytes) -> TransactionLog:
    """What a commit of these changes as snapshot ``id_`` did."""
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
        updated_chunks={
            node_id: table.index
            for node_id, edits in sorted(changes.chunks.items())
            if len(table := edits.table())
        },
        moves=steps(changes.moves),
    )


def union(logs: Sequence[TransactionLog]) -> TransactionLog:
    """All that one of these logs has, under the id of the last; moves in the order of the logs.

    A node can then be both new and updated.
    """

    def all_of(name: str) -> U8:
        ids = np.concatenate([getattr(log, name) for log in logs])
        return ids[np.unique(id_keys(ids), return_index=True)[1]]

    chunks: dict[bytes, list[U32]] = {}
    for log in logs:
        for node, coords in log.updated_chunks.items():
            chunks.setdefault(node, []).append(coords)
    return TransactionLog(
        logs[-1].id,
        **{name: all_of(name) for name in _ID_LISTS},
        updated_chunks=dict(zip(chunks, map(_distinct, chunks.values()), strict=True)),
        moves=tuple(chain.from_iterable(log.moves for log in logs)),
    )


def _distinct(parts: list[U32]) -> U32:
    if len(parts) == 1:
        return parts[0]
    every = np.concatenate(parts)
    return every[np.unique(row_keys(every), return_index=True)[1]]


_ID_LISTS: Final = (
    "new_groups",
    "new_arrays",
    "deleted_groups",
    "deleted_arrays",
    "updated_arrays",
    "updated_groups",
)


def _sorted(ids: Iterable[bytes]) -> U8:
    return id_matrix(sorted(ids), NODE_ID_BYTES)
