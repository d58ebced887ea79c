"""Transaction logs of the older formats, from M2.

    M2-M7   version, and the fields of M8
    M8      new groups, new arrays, deleted groups, deleted arrays, updated attributes, updated metadata,
            {node: [index, ...]}

New nodes are also among the updated nodes. The later formats list them once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from frazil.errors import FormatError
from frazil.format.columns import I64, U32
from frazil.format.coordinates import in_order
from frazil.format.envelope import FileType
from frazil.format.ids import NODE_ID_BYTES, id_from_text
from frazil.format.older.elements import NodeId, OldLog, decoding
from frazil.format.older.files import payload
from frazil.format.older.tokens import Tokens

#: Number of fields -> position of the first list.
LOG_FIELDS: Final = {8: 1, 7: 0}
_LISTS: Final = 6
_MAX_INDEX: Final = (1 << 32) - 1


def decode_old_log(data: Any, name: str) -> OldLog:
    """Read a log of an older format. Raise ``FormatError`` with ``name`` for other bytes."""
    with decoding(name):
        tokens = Tokens(payload(data, FileType.TRANSACTION_LOG))
        first = LOG_FIELDS.get(int(tokens.members[0])) if tokens.is_array(0) else None
        if first is None:
            raise FormatError("expected a transaction log of 7 or 8 fields")
        fields = tokens.children(0)[first:]
        lists = [_listed_nodes(tokens, field) for field in fields[:_LISTS].tolist()]
        new_groups, new_arrays, deleted_groups, deleted_arrays, attributes, metadata = lists
        return OldLog(
            new_groups,
            new_arrays,
            deleted_groups,
            deleted_arrays,
            (attributes | metadata) - new_groups - new_arrays,
            _chunks(tokens, int(fields[_LISTS])),
        )


def _listed_nodes(tokens: Tokens, field: int) -> frozenset[NodeId]:
    if not tokens.is_array(field):
        raise FormatError("expected a list of nodes")
    return frozenset(_node_ids(tokens, tokens.children(field)))


def _node_ids(tokens: Tokens, at: I64) -> list[bytes]:
    wrapped = tokens.is_array(at)
    rows = tokens.content(at + wrapped).blobs()
    return [
        row if is_bytes and len(row) == NODE_ID_BYTES else id_from_text(row.decode(), NODE_ID_BYTES)
        for row, is_bytes in zip(rows, wrapped.tolist(), strict=True)
    ]


def _chunks(tokens: Tokens, field: int) -> dict[NodeId, U32]:
    if not tokens.is_map(field):
        raise FormatError("expected the changed chunks of each node")
    children = tokens.children(field)
    keys, values = children[::2], children[1::2]
    if not (tokens.is_array(values)).all():
        raise FormatError("expected a list of changed chunks")
    coordinates = [_coordinates(tokens, at) for at in tokens.children_of_each(values)]
    return dict(zip(_node_ids(tokens, keys), in_order(coordinates), strict=True))


def _coordinates(tokens: Tokens, at: I64) -> U32:
    if not len(at):
        return np.zeros((0, 0), np.uint32)
    ranks = tokens.members[at]
    rank = int(ranks[0])
    if not tokens.is_array(at).all() or (ranks != rank).any() or (np.diff(at) != rank + 1).any():
        raise FormatError("expected chunk coordinates of one rank")
    numbers = tokens.numbers((at[:, None] + 1 + np.arange(rank)).reshape(-1))
    if numbers.size and numbers.max() > _MAX_INDEX:
        raise FormatError(f"chunk coordinates must have 32 bits, got {numbers.max()}")
    return np.unique(numbers.astype(np.uint32).reshape(len(at), rank), axis=0)
