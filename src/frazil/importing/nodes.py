"""Nodes and transaction logs of an imported repository.

A log is computed from two versions, column by column: nodes by their ids, metadata by its bytes, and
references by their contents. Data that a commit wrote again without a change is not in such a log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.zarr_metadata import parse_node
from frazil.errors import FormatError, InvalidInputError
from frazil.format.chunk_table import ChunkKind, ChunkTable
from frazil.format.columns import U32, intern, row_keys
from frazil.format.ids import NODE_ID_BYTES, id_list, id_matrix
from frazil.format.older.elements import NodeId, OldLog, OldManifestRef, OldNode, OldSnapshot
from frazil.format.snapshot import ManifestRef, Node, NodeTable
from frazil.format.transaction_log import TransactionLog
from frazil.importing.manifests import Converted
from frazil.importing.source import new_node_id


def new_nodes(snapshot: OldSnapshot, name: str, manifests: Mapping[bytes, Sequence[Converted]]) -> NodeTable:
    """Return the nodes of a snapshot. ``manifests`` are by old id."""
    try:
        return NodeTable.from_nodes([_node(node, manifests) for node in snapshot.nodes])
    except InvalidInputError as error:
        raise FormatError(f"{name}: {error.message}") from error


def _node(node: OldNode, manifests: Mapping[bytes, Sequence[Converted]]) -> Node:
    id_ = new_node_id(node.id, node.path)
    document = json.dumps(node.document).encode()
    array = parse_node(document)
    if array is not None:
        refs = [
            ref
            for old in node.manifests or ()
            for converted in manifests.get(old.id, ())
            if (ref := _ref(old, converted, id_, len(array.shape))) is not None
        ]
        array = replace(array, manifests=tuple(refs))
    return Node(id_, node.path, document, array)


def _ref(old: OldManifestRef, converted: Converted, node: bytes, rank: int) -> ManifestRef | None:
    """Return the reference to a new manifest. None if it has no chunk of the array in the old extents."""
    box = converted.bounds.get((node, rank))
    if box is None:
        return None
    if old.extents is None:
        return ManifestRef(converted.id, box)
    first, end = (np.array(corner, np.int64) for corner in old.extents)
    low, high = np.maximum(box[:, 0], first), np.minimum(box[:, 1], end)
    if (low >= high).any():
        return None
    return ManifestRef(converted.id, np.stack((low, high), axis=1).astype(np.uint32))


#: From a node's id and the ids of its manifests to its references.
Tables = Callable[[bytes, Sequence[bytes]], ChunkTable | None]


def translated(old: OldLog, id_: bytes, before: NodeTable, after: NodeTable) -> TransactionLog:
    """Return the new form of an old log of the commit ``id_``."""
    arrays = {**_kinds(before), **_kinds(after)}
    ranks = {**_ranks(before), **_ranks(after)}
    updated = [node for node in _bytes(old.updated) if node in arrays]
    return TransactionLog(
        id_,
        new_groups=_ids(_bytes(old.new_groups)),
        new_arrays=_ids(_bytes(old.new_arrays)),
        deleted_groups=_ids(_bytes(old.deleted_groups)),
        deleted_arrays=_ids(_bytes(old.deleted_arrays)),
        updated_arrays=_ids(node for node in updated if arrays[node]),
        updated_groups=_ids(node for node in updated if not arrays[node]),
        updated_chunks={
            node: index
            for node, index in old.updated_chunks.items()
            if isinstance(node, bytes) and len(index) and ranks.get(node) == index.shape[1]
        },
    )


def worked_out(id_: bytes, before: NodeTable, after: NodeTable, tables: Tables) -> TransactionLog:
    """Return the log of a commit that changed ``before`` to ``after``."""
    old, new = _kinds(before), _kinds(after)
    added, gone = new.keys() - old.keys(), old.keys() - new.keys()
    documents = _documents(before)
    updated = [
        node for node, document in _documents(after).items() if documents.get(node, document) != document
    ]
    manifests_before, manifests_after = _manifests(before), _manifests(after)
    chunks = {
        node: changed
        for node, used in manifests_after.items()
        if used != (refs_before := manifests_before.get(node, []))
        if len(changed := changed_chunks(tables(node, refs_before), tables(node, used)))
    }
    return TransactionLog(
        id_,
        new_groups=_ids(node for node in added if not new[node]),
        new_arrays=_ids(node for node in added if new[node]),
        deleted_groups=_ids(node for node in gone if not old[node]),
        deleted_arrays=_ids(node for node in gone if old[node]),
        updated_arrays=_ids(node for node in updated if new[node]),
        updated_groups=_ids(node for node in updated if not new[node]),
        updated_chunks=chunks,
    )


def changed_chunks(before: ChunkTable | None, after: ChunkTable | None) -> U32:
    """Return sorted coordinates (k, ndim) of references that differ or are in only one of the tables."""
    if before is None or after is None or before.ndim != after.ndim or not len(before) or not len(after):
        # If the number of dimensions changed, only the later coordinates are valid.
        filled = [table.index for table in (after, before) if table is not None and len(table)]
        return filled[0] if filled else np.zeros((0, 0), np.uint32)
    rows = before.find_chunks(after.index)
    same = np.flatnonzero(rows >= 0)
    differs = _contents(before, rows[same], after, same)
    removed = np.ones(len(before), np.bool_)
    removed[rows[same]] = False
    index = np.concatenate([after.index[rows < 0], after.index[same[differs]], before.index[removed]])
    out: U32 = index[np.argsort(row_keys(index), kind="stable")] if index.shape[1] else index[:1]
    return out


def _contents(
    a: ChunkTable, a_rows: NDArray[np.int64], b: ChunkTable, b_rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which pairs of rows have different contents."""
    out: NDArray[np.bool_] = a.kind[a_rows] != b.kind[b_rows]
    for column in ("offset", "length"):
        out |= getattr(a, column)[a_rows] != getattr(b, column)[b_rows]
    a, b = a.prune(), b.prune()
    for kind, sources in _SOURCES.items():
        pairs = np.flatnonzero(~out & (b.kind[b_rows] == kind))
        if len(pairs):
            left, right = sources(a), sources(b)
            _, numbers = intern([*left, *right])
            ours, theirs = numbers[: len(left)], numbers[len(left) :]
            out[pairs] = ours[a.source[a_rows[pairs]]] != theirs[b.source[b_rows[pairs]]]
    return out


def _native(table: ChunkTable) -> list[Hashable]:
    return [*id_list(table.chunk_ids)]


def _inline(table: ChunkTable) -> list[Hashable]:
    return [*table.inline.blobs()]


def _foreign(table: ChunkTable) -> list[Hashable]:
    foreign = table.foreign
    columns = foreign.locations.blobs(), foreign.etags.blobs(), foreign.modified.tolist()
    return list(zip(*columns, strict=True))


_SOURCES: Final = {ChunkKind.NATIVE: _native, ChunkKind.VIRTUAL: _foreign, ChunkKind.INLINE: _inline}


def _kinds(nodes: NodeTable) -> dict[bytes, bool]:
    """Return for each node id whether the node is an array."""
    return dict(zip(*nodes.identities(np.arange(len(nodes))), strict=True))


def _documents(nodes: NodeTable) -> dict[bytes, bytes]:
    return dict(zip(id_list(nodes.ids), nodes.user_data.blobs(), strict=True))


def _ranks(nodes: NodeTable) -> dict[bytes, int]:
    return dict(zip(id_list(nodes.ids), nodes.array_length.lengths.tolist(), strict=True))


def _manifests(nodes: NodeTable) -> dict[bytes, list[bytes]]:
    """Return the ids of the manifests of each node id."""
    rows = nodes.manifests
    return dict(zip(id_list(nodes.ids), map(np.ndarray.tolist, map(rows.row, range(len(rows)))), strict=True))


def _bytes(ids: Iterable[NodeId]) -> list[bytes]:
    return [id_ for id_ in ids if isinstance(id_, bytes)]


def _ids(ids: Iterable[bytes]) -> NDArray[np.uint8]:
    return id_matrix(sorted(ids), NODE_ID_BYTES)
