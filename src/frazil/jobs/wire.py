"""Encodes change sets for the way from an executor to the driver, as columns (`frazil.jobs.wire_columns`).

Coordinates and references are reduced to small numbers before they are compressed: see
`frazil.jobs.wire_coordinates` and `frazil.jobs.wire_references`. Nodes are encoded as in a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from operator import attrgetter
from typing import Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges
from frazil.errors import FormatError
from frazil.format.chunk_table import ChunkTable, stack
from frazil.format.columns import I64, Ragged
from frazil.format.envelope import reading
from frazil.format.ids import INITIAL_SNAPSHOT_ID, NODE_ID_BYTES, id_list
from frazil.format.snapshot import ManifestFiles, NodeTable, Snapshot, decode_snapshot, encode_snapshot
from frazil.format.transaction_log import Move
from frazil.jobs.wire_columns import ColumnReader, ColumnWriter, read_columns
from frazil.jobs.wire_coordinates import put_coordinates, read_coordinates
from frazil.jobs.wire_references import put_references, read_references

_NAME: Final = "a change set"
_MOST_DIMENSIONS: Final = 1 << 10
#: Memory for a node, for an array, for a reference without its coordinates, and for a coordinate.
_NODE_BYTES: Final = 100
_ARRAY_BYTES: Final = 500
_REFERENCE_BYTES: Final = 64
_COORDINATE_BYTES: Final = 4


def encode(changes: ChangeSet) -> bytes:
    """Return a change set as bytes. ``decode`` returns the same nodes, chunk changes and references.

    >>> len(encode(ChangeSet())) < 1000, decode(encode(ChangeSet())) == ChangeSet()
    (True, True)
    """
    out = ColumnWriter()
    _put_nodes(out, changes)
    _put_chunks(out, changes.chunks)
    return out.sealed()


def decode(data: bytes) -> ChangeSet:
    """Return the change set that ``encode`` encoded, or raise ``FormatError`` for other bytes."""
    with reading(_NAME):
        columns = read_columns(data)
        changes = ChangeSet()
        _read_nodes(columns, changes)
        _read_chunks(columns, changes.chunks)
        return changes


# Nodes


def _put_nodes(out: ColumnWriter, changes: ChangeSet) -> None:
    nodes = [node for node in changes.nodes.values() if node is not None]
    if nodes:
        table = NodeTable.from_nodes(nodes)
        out.raw(
            "nodes", encode_snapshot(Snapshot(INITIAL_SNAPSHOT_ID, 0, "", {}, table, ManifestFiles.empty()))
        )
    out.rows("gone", Ragged.of_text([path for path, node in changes.nodes.items() if node is None]))
    lists = changes.nodes, changes.created, changes.updated, changes.deleted, changes.moves
    out.needs_memory(_NODE_BYTES * sum(map(len, lists)))
    out.raw("created", b"".join(sorted(changes.created)))
    out.raw("updated", b"".join(sorted(changes.updated)))
    out.raw("deleted", b"".join(changes.deleted))
    out.raw("deleted arrays", bytes(changes.deleted.values()))
    moves = list(changes.moves.values())
    out.raw("moved", b"".join(changes.moves))
    out.raw("moved arrays", bytes(map(attrgetter("is_array"), moves)))
    out.rows("moved from", Ragged.of_text(map(attrgetter("source"), moves)))
    out.rows("moved to", Ragged.of_text(map(attrgetter("target"), moves)))


#: Columns of nodes, for a quick check: most tasks change no nodes. The other columns never occur alone.
_OF_NODES: Final = frozenset({"nodes", "gone", "gone lengths", "created", "updated", "deleted", "moved"})


def _read_nodes(columns: ColumnReader, changes: ChangeSet) -> None:
    if not columns.has(_OF_NODES):
        return
    file = columns.raw("nodes")
    if len(file):
        table = decode_snapshot(memoryview(file), _NAME).nodes
        changes.nodes.update(zip(table.paths_list(), map(table.exact().node, range(len(table))), strict=True))
    ids_of_nodes = sum(len(columns.raw(name)) for name in ("created", "updated", "deleted", "moved"))
    columns.require_memory(_NODE_BYTES * (columns.count("gone lengths") + ids_of_nodes // NODE_ID_BYTES))
    changes.nodes.update(dict.fromkeys(columns.rows("gone").texts()))
    changes.created.update(id_list(columns.ids("created", NODE_ID_BYTES)))
    changes.updated.update(id_list(columns.ids("updated", NODE_ID_BYTES)))
    changes.deleted.update(
        zip(
            id_list(columns.ids("deleted", NODE_ID_BYTES)),
            _flags(columns, "deleted arrays"),
            strict=True,
        )
    )
    ids = id_list(columns.ids("moved", NODE_ID_BYTES))
    places = columns.rows("moved from").texts(), columns.rows("moved to").texts()
    moved = zip(*places, ids, _flags(columns, "moved arrays"), strict=True)
    changes.moves.update(zip(ids, starmap(Move, moved), strict=True))


def _flags(columns: ColumnReader, name: str) -> list[bool]:
    flags: list[bool] = columns.raw(name).astype(np.bool_).tolist()
    return flags


# Chunks


def _put_chunks(out: ColumnWriter, chunks: Mapping[bytes, ChunkChanges]) -> None:
    if not chunks:
        return
    arrays = sorted(chunks.items(), key=_rank)  # arrays of one rank are neighbours
    edits = [edit for _, edit in arrays]
    tables = [edit.table() for edit in edits]
    counts = np.fromiter(map(len, tables), np.int64, len(tables))
    out.raw("arrays", b"".join(id_ for id_, _ in arrays))
    out.rows("paths", Ragged.of_text([edit.path for edit in edits]))
    ranks = np.fromiter(map(attrgetter("ndim"), edits), np.int64, len(edits))
    out.numbers("ranks", ranks)
    out.numbers("counts", counts)
    out.needs_memory(_memory(ranks, counts))
    for rank in np.unique(ranks).tolist():
        some = np.flatnonzero((ranks == rank) & (counts > 0)).tolist()
        if some:
            index = np.concatenate([tables[at].index for at in some])
            put_coordinates(out, f"{rank}", index, counts[some])
    filled = [table for table in tables if len(table)]
    if filled:
        owner = np.repeat(np.arange(len(counts)), counts)
        put_references(out, stack(filled, np.zeros((len(owner), 0), np.uint32)).prune(), owner)


def _memory(ranks: I64, counts: I64) -> int:
    """Return about how many bytes of memory the arrays and their references need."""
    return len(ranks) * _ARRAY_BYTES + int((counts * (_REFERENCE_BYTES + _COORDINATE_BYTES * ranks)).sum())


def _rank(item: tuple[bytes, ChunkChanges]) -> tuple[int, bytes]:
    return item[1].ndim, item[0]


def _read_chunks(columns: ColumnReader, chunks: dict[bytes, ChunkChanges]) -> None:
    ids = id_list(columns.ids("arrays", NODE_ID_BYTES))
    if not ids:
        return
    paths = columns.rows("paths").texts()
    ranks = columns.numbers("ranks", len(ids)).view(np.int64)
    counts = columns.numbers("counts", len(ids)).view(np.int64)
    kind = columns.raw("kinds")
    if (counts < 0).any() or counts.sum() != len(kind) or (counts > len(kind)).any():
        raise FormatError(f"expected {counts.sum()} references, got {len(kind)}")
    if (ranks < 0).any() or (np.diff(ranks) < 0).any() or int(ranks.max()) > _MOST_DIMENSIONS:
        raise FormatError(f"arrays of {ranks.max()} dimensions, or out of order")
    columns.require_memory(_memory(ranks, counts))
    owner = np.repeat(np.arange(len(counts)), counts)
    source, offset, length, sources = read_references(columns, kind, owner)
    stop = 0
    ends = np.cumsum(counts)
    for rank in dict.fromkeys(ranks.tolist()):
        some = np.flatnonzero(ranks == rank)
        start, stop = stop, int(ends[some[-1]])
        filled = counts[some][counts[some] > 0]
        index = read_coordinates(columns, f"{rank}", rank, filled) if len(filled) else None
        for at in some.tolist():
            high = int(ends[at])
            rows = slice(high - int(counts[at]), high)
            edits = chunks[ids[at]] = ChunkChanges(paths[at], rank)
            if index is not None and rows.start < rows.stop:
                coords = index[rows.start - start : rows.stop - start]
                part = coords, kind[rows], source[rows], offset[rows], length[rows]
                edits.set_table(ChunkTable(*part, *sources))
