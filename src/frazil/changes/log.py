"""The transaction log of a change set."""

from __future__ import annotations

from collections.abc import Iterable

from frazil.changes.change_set import ChangeSet
from frazil.changes.moves import steps
from frazil.format.columns import U8
from frazil.format.ids import NODE_ID_BYTES, id_matrix
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


def _sorted(ids: Iterable[bytes]) -> U8:
    return id_matrix(sorted(ids), NODE_ID_BYTES)
