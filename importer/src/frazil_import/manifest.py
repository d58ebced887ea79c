"""Manifest files and transaction logs of the older formats, read as columns.

    M0-M5    version, flags, {[node, index]: payload}
    M6       version, flags, {node: {index: payload}}
    M7, M8   (version, flags,) id, {node: {index: payload}}
    D        {"chunks": {"[node,index]": payload}}
    payload  {"Inline": bytes} | {"Ref": [id, offset, length]} | {"Virtual": [location, offset, length, ...]}
    logs     (version,) new groups, new arrays, deleted groups, deleted arrays, updated attributes, updated
             metadata, {node: [index, ...]}; new nodes are also among the updated nodes

M0 to M2 write a location as {"Absolute": url}. From M3, it is the url, and a checksum follows the length.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, Final

import numpy as np

from frazil.errors import FormatError
from frazil.format.chunk_table import ChunkKind, ChunkTable, VirtualObjects, in_order
from frazil.format.columns import I64, U8, U32, Ragged, distinct_rows
from frazil.format.envelope import FileType
from frazil.format.ids import (
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    id_from_text,
    id_list,
    id_matrix,
    ids_from_characters,
)
from frazil_import.generations import (
    DRAFT,
    DRAFT_ID_BYTES,
    FolderLayout,
    NodeId,
    OldLog,
    OldManifest,
    decoding,
    mapping,
    node_id,
    payload,
    variant,
)
from frazil_import.tokens import NIL, Tokens

#: Possible numbers of fields of the outermost array. The last field contains the references.
MANIFEST_FIELDS: Final = frozenset({2, 3, 4})
_FIELDS_WITHOUT_ID: Final = 3
_MAX_INDEX: Final = (1 << 32) - 1
_CHARACTERS: Final = {OBJECT_ID_BYTES: 20, NODE_ID_BYTES: 13}


def short_id(id_: bytes) -> bytes:
    """Return an id of 12 bytes for an id of the draft with 16 bytes: the beginning of its SHA-256."""
    return id_ if len(id_) == OBJECT_ID_BYTES else hashlib.sha256(id_).digest()[:OBJECT_ID_BYTES]


def decode_old_manifest(data: Any, name: str, layout: FolderLayout) -> OldManifest:
    """Read a manifest of an older format. Raise ``FormatError`` with ``name`` for other bytes."""
    with decoding(name):
        body = payload(data, FileType.MANIFEST)
        if layout is DRAFT and body[:1] in (b"{", b" ", b"\n"):
            return _draft(mapping(mapping(json.loads(body))["chunks"]))
        tokens = Tokens(body)
        if not tokens.of_kind("array", 0) or int(tokens.members[0]) not in MANIFEST_FIELDS:
            raise FormatError("expected a manifest of 2, 3 or 4 fields")
        *others, chunks = tokens.children(0).tolist()
        id_ = None if int(tokens.members[0]) == _FIELDS_WITHOUT_ID else _own_id(tokens, others[-1])
        flags = others[1:2]  # the second of three or four fields
        has_flags = bool((tokens.members[flags] > 0).any())
        return OldManifest(id_, _tables(tokens, *_entries(tokens, chunks)), {}, has_flags)


def _own_id(tokens: Tokens, at: int) -> bytes:
    """Return the id of the manifest, [bytes, []]."""
    inside = np.array([at + 1])
    if not tokens.of_kind("array", at) or not tokens.of_kind("bytes", inside).all():
        raise FormatError("expected the id of the manifest")
    return id_list(tokens.fixed(inside, OBJECT_ID_BYTES))[0]


def _entries(tokens: Tokens, chunks: int) -> tuple[list[NodeId], I64, I64, I64]:
    """Return the nodes, and for each reference its node's number and its index and payload tokens."""
    if not tokens.of_kind("map", chunks):
        raise FormatError("expected a map of references")
    children = tokens.children(chunks)
    keys, values = children[::2], children[1::2]
    if not len(keys):
        return [], keys, keys, keys
    if not (tokens.of_kind("array", keys) & (tokens.members[keys] == 2)).all():
        raise FormatError("expected references by node")
    if not tokens.of_kind("bytes", keys + 1).all():
        nodes, codes = _nodes(tokens, keys + 1)
        return nodes, codes, keys + 2, values
    ids: list[NodeId] = [*id_list(tokens.fixed(keys + 1, NODE_ID_BYTES))]
    if not tokens.of_kind("map", values).all():
        raise FormatError("expected a map of references for each node")
    inner = tokens.children_of_each(values)
    counts = np.array([len(each) // 2 for each in inner])
    every = np.concatenate(inner)
    return ids, np.repeat(np.arange(len(ids)), counts), every[::2], every[1::2]


def _nodes(tokens: Tokens, at: I64) -> tuple[list[NodeId], I64]:
    """Return the distinct nodes, and for each token the number of its node."""
    if tokens.of_kind("text", at).all():
        ids = _from_text(tokens.fixed(at, _CHARACTERS[NODE_ID_BYTES]), NODE_ID_BYTES)
        rows, codes = np.unique(ids.view("V8").reshape(-1), return_inverse=True)
        return [bytes(row) for row in rows.tolist()], codes.astype(np.int64)
    numbers, codes = np.unique(tokens.numbers(at), return_inverse=True)
    return list(map(node_id, numbers.tolist())), codes.astype(np.int64)


def _tables(
    tokens: Tokens, nodes: list[NodeId], node: I64, index: I64, value: I64
) -> dict[tuple[NodeId, int], ChunkTable]:
    if not len(node):
        return {}
    if not (
        tokens.of_kind("array", index).all()
        and (tokens.of_kind("map", value) & (tokens.members[value] == 2)).all()
    ):
        raise FormatError("expected an index and a payload for each reference")
    ranks = tokens.members[index]
    columns = _payloads(tokens, value + 1, value + 2)
    out: dict[tuple[NodeId, int], ChunkTable] = {}
    for rank in np.unique(ranks).tolist():
        rows = np.flatnonzero(ranks == rank)
        # The numbers of an index are the tokens right after its head.
        if (value[rows] != index[rows] + 1 + rank).any():
            raise FormatError("expected chunk coordinates that are numbers")
        places = (index[rows][:, None] + 1 + np.arange(rank)).reshape(-1)
        coordinates = tokens.numbers(places)
        if coordinates.size and coordinates.max() > _MAX_INDEX:
            raise FormatError(f"chunk coordinates must have 32 bits, got {coordinates.max()}")
        whole = replace(
            columns.select_chunks(rows), index=coordinates.astype(np.uint32).reshape(len(rows), rank)
        )
        order = np.argsort(node[rows], kind="stable")
        counts = np.bincount(node[rows], minlength=len(nodes))
        ends = np.cumsum(counts)
        for number_, count, end in zip(range(len(nodes)), counts.tolist(), ends.tolist(), strict=True):
            if count:
                out[nodes[number_], rank] = whole.select_chunks(order[end - count : end]).sorted()
    return out


def _payloads(tokens: Tokens, tags: I64, bodies: I64) -> ChunkTable:
    """Return all references of a file, without their coordinates."""
    count = len(tags)
    kind, source = np.zeros(count, np.uint8), np.zeros(count, np.uint32)
    offset, length = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    chunk_ids, blobs = np.zeros((0, OBJECT_ID_BYTES), np.uint8), Ragged.empty()
    foreign = VirtualObjects(blobs, blobs, np.zeros(0, np.uint32))
    inline, native, virtual = (
        np.flatnonzero(tokens.says(tags, word)) for word in ("Inline", "Ref", "Virtual")
    )
    if len(inline) + len(native) + len(virtual) != count:
        raise FormatError("expected payloads that are Inline, Ref or Virtual")
    kind[inline], kind[native], kind[virtual] = ChunkKind.INLINE, ChunkKind.NATIVE, ChunkKind.VIRTUAL
    if len(inline):
        blobs = tokens.content(bodies[inline]).compact()
        source[inline], length[inline] = np.arange(len(inline)), blobs.lengths
    if len(native):
        ids, numbers = _ids(tokens, bodies[native])
        distinct, source[native] = np.unique(ids.view("V12").reshape(-1), return_inverse=True)
        chunk_ids = distinct.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
        offset[native], length[native] = tokens.numbers(numbers), tokens.numbers(numbers + 1)
    if len(virtual):
        foreign, source[virtual], numbers = _foreign(tokens, bodies[virtual])
        offset[virtual], length[virtual] = tokens.numbers(numbers), tokens.numbers(numbers + 1)
    none = np.zeros((count, 0), np.uint32)
    return ChunkTable(none, kind, source, offset, length, chunk_ids, foreign, blobs)


def _structs(tokens: Tokens, body: I64, *members: int) -> I64:
    """Return ``body`` if all of its tokens are arrays with one of these numbers of members."""
    if not (tokens.of_kind("array", body) & np.isin(tokens.members[body], members)).all():
        raise FormatError("expected the parts of a reference")
    return body


def _ids(tokens: Tokens, body: I64) -> tuple[U8, I64]:
    """Return the chunk ids of native references, and the tokens after the ids."""
    first = _structs(tokens, body, 3) + 1
    if tokens.of_kind("text", first).all():
        return _from_text(tokens.fixed(first, _CHARACTERS[OBJECT_ID_BYTES]), OBJECT_ID_BYTES), first + 1
    if not (tokens.of_kind("array", first) & (tokens.members[first] == 2)).all():
        raise FormatError("expected a chunk's id")
    return tokens.fixed(first + 1, OBJECT_ID_BYTES), first + 3


def _foreign(tokens: Tokens, body: I64) -> tuple[VirtualObjects, U32, I64]:
    """Return the objects of virtual references, each reference's object, and the tokens of the offsets."""
    at = _structs(tokens, body, 3, 4) + 1
    named = tokens.of_kind("map", at)
    if not (tokens.says(at[named] + 1, "Absolute") & (tokens.members[at[named]] == 2)).all():
        raise FormatError("expected an absolute location")
    at = at + 2 * named
    if not tokens.of_kind("text", at).all():
        raise FormatError("expected a location that is text")
    locations, codes = distinct_rows(tokens.content(at))
    etags, modified = _checksums(tokens, np.where(tokens.members[body] == 4, at + 3, -1))
    return *VirtualObjects.combined(locations, codes, *distinct_rows(etags), modified), at + 1


def _checksums(tokens: Tokens, at: I64) -> tuple[Ragged, I64]:
    """Return etags (or empty) and times (or 0); ``at`` is -1 for references without a checksum."""
    etags, modified = Ragged.empty(len(at)), np.zeros(len(at), np.int64)
    rows = np.flatnonzero(at >= 0)
    rows = rows[tokens.code[at[rows]] != NIL]
    if not len(rows):
        return etags, modified
    tags, values = at[rows] + 1, at[rows] + 2
    is_etag, is_time = tokens.says(tags, "ETag"), tokens.says(tags, "LastModified")
    if not (tokens.of_kind("map", at[rows]) & (is_etag | is_time)).all():
        raise FormatError("expected a checksum that is ETag or LastModified")
    times = tokens.numbers(values[is_time])
    if times.size and times.max() > _MAX_INDEX:
        raise FormatError("a modification time must have 32 bits, got more")
    modified[rows[is_time]] = times
    etag_bytes = tokens.content(values[is_etag])
    starts, lengths = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    starts[rows[is_etag]], lengths[rows[is_etag]] = etag_bytes.starts, etag_bytes.lengths
    return Ragged(etag_bytes.values, starts, lengths), modified


def _from_text(characters: U8, size: int) -> U8:
    """Return ids of shape (n, size) from texts of shape (n, characters)."""
    ids, are_ids = ids_from_characters(characters, size)
    if not are_ids.all():
        raise FormatError("expected ids in Crockford base32 that end in zero bits")
    return ids


def _draft(chunks: dict[str, Any]) -> OldManifest:
    """Return the references of the draft's JSON, read value by value: no writer of it ever existed."""
    names: dict[bytes, bytes] = {}
    references_of: dict[tuple[NodeId, int], dict[tuple[int, ...], Any]] = {}
    for key, value in chunks.items():
        node, index = json.loads(key)
        coordinates = tuple(index)
        if not all(type(at) is int and 0 <= at <= _MAX_INDEX for at in coordinates):
            raise FormatError(f"expected a key of node and chunk coordinates, got {key!r:.80}")
        references_of.setdefault((node_id(node), len(coordinates)), {})[coordinates] = value
    return OldManifest(
        None,
        {key: _draft_table(key[1], references, names) for key, references in references_of.items()},
        names,
    )


def _draft_table(rank: int, references: dict[tuple[int, ...], Any], names: dict[bytes, bytes]) -> ChunkTable:
    parts = []
    for coordinates, value in references.items():
        index = np.array([coordinates], np.uint32).reshape(1, rank)
        kind, content = variant(value)
        if kind == "Inline":
            parts.append(ChunkTable.from_inline(index, [bytes(content)]))
            continue
        span = [content["offset"]], [content["length"]]
        if kind == "Ref":
            id_ = bytes(content["id"])
            if len(id_) != DRAFT_ID_BYTES:
                raise FormatError(f"expected a chunk id of {DRAFT_ID_BYTES} bytes, got {len(id_)}")
            names[short_id(id_)] = id_
            parts.append(ChunkTable.from_native(index, id_matrix([short_id(id_)]), [0], *span))
        elif kind == "Virtual":
            parts.append(ChunkTable.from_virtual(index, [str(content["location"])], *span))
        else:
            raise FormatError(f"expected a payload, got {kind!r:.80}")
    return ChunkTable.merge_tables(parts)


#: Number of fields -> position of the first list.
LOG_FIELDS: Final = {8: 1, 7: 0}
_LISTS: Final = 6


def decode_old_log(data: Any, name: str) -> OldLog:
    """Read a log of an older format. Raise ``FormatError`` with ``name`` for other bytes."""
    with decoding(name):
        tokens = Tokens(payload(data, FileType.TRANSACTION_LOG))
        first = LOG_FIELDS.get(int(tokens.members[0])) if tokens.of_kind("array", 0) else None
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
    if not tokens.of_kind("array", field):
        raise FormatError("expected a list of nodes")
    return frozenset(_node_ids(tokens, tokens.children(field)))


def _node_ids(tokens: Tokens, at: I64) -> list[bytes]:
    wrapped = tokens.of_kind("array", at)
    rows = tokens.content(at + wrapped).blobs()
    return [
        row if is_bytes and len(row) == NODE_ID_BYTES else id_from_text(row.decode(), NODE_ID_BYTES)
        for row, is_bytes in zip(rows, wrapped.tolist(), strict=True)
    ]


def _chunks(tokens: Tokens, field: int) -> dict[NodeId, U32]:
    if not tokens.of_kind("map", field):
        raise FormatError("expected the changed chunks of each node")
    children = tokens.children(field)
    keys, values = children[::2], children[1::2]
    if not (tokens.of_kind("array", values)).all():
        raise FormatError("expected a list of changed chunks")
    coordinates = [_coordinates(tokens, at) for at in tokens.children_of_each(values)]
    return dict(zip(_node_ids(tokens, keys), in_order(coordinates), strict=True))


def _coordinates(tokens: Tokens, at: I64) -> U32:
    if not len(at):
        return np.zeros((0, 0), np.uint32)
    ranks = tokens.members[at]
    rank = int(ranks[0])
    if not tokens.of_kind("array", at).all() or (ranks != rank).any() or (np.diff(at) != rank + 1).any():
        raise FormatError("expected chunk coordinates of one rank")
    numbers = tokens.numbers((at[:, None] + 1 + np.arange(rank)).reshape(-1))
    if numbers.size and numbers.max() > _MAX_INDEX:
        raise FormatError(f"chunk coordinates must have 32 bits, got {numbers.max()}")
    return np.unique(numbers.astype(np.uint32).reshape(len(at), rank), axis=0)
