"""Transaction logs: the nodes and chunks that one commit touches.

Specification: *Transaction Log Files*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from frazil.errors import ErrorKind, FormatError
from frazil.format.columns import U8, U32, Ragged
from frazil.format.coordinates import (
    by_rank,
    coordinates_layout,
    cut,
    in_order,
    joined,
    put_coordinates,
    ranks,
    read_coordinates,
)
from frazil.format.envelope import FileType, open_envelope, reading, seal
from frazil.format.flatbuffer import Buffer, Layout, Tables, Writer, link
from frazil.format.ids import NODE_ID_BYTES, id_keys
from frazil.format.row_vectors import require

# Slots of the tables, in the order of the schema.
LOG_ID, CHUNK_LISTS, LOG_MOVES = 0, 7, 8
ID_LIST_SLOTS: Final = {
    1: "new_groups",
    2: "new_arrays",
    3: "deleted_groups",
    4: "deleted_arrays",
    5: "updated_arrays",
    6: "updated_groups",
}
#: The names of the lists of node ids in a ``TransactionLog``.
ID_LISTS: Final = tuple(ID_LIST_SLOTS.values())
_NODE_ID, _CHUNKS = 0, 1
CHUNK_COORDS = 0
_FROM, _TO, _MOVED_ID, _MOVED_TYPE = range(4)


@dataclass(frozen=True, slots=True)
class Move:
    """A node with a new path. ``is_array`` distinguishes arrays from groups."""

    source: str
    target: str
    node_id: bytes
    is_array: bool


@dataclass(frozen=True, slots=True, eq=False)
class TransactionLog:
    """The changes of one commit. The id columns are uint8 (k, 8), sorted, without repetition.

    ``updated_chunks`` maps a node id to the coordinates (uint32, (k, ndim), sorted) of all references of that
    array that were set or deleted. ``moves`` are sorted by target, segment by segment.
    """

    id: bytes
    new_groups: U8
    new_arrays: U8
    deleted_groups: U8
    deleted_arrays: U8
    updated_arrays: U8
    updated_groups: U8
    updated_chunks: Mapping[bytes, U32] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()


def empty_log(id_: bytes) -> TransactionLog:
    """Return a log without changes, such as the log of the initial snapshot."""
    nothing = np.zeros((0, NODE_ID_BYTES), np.uint8)
    return TransactionLog(id_, **dict.fromkeys(ID_LIST_SLOTS.values(), nothing), updated_chunks={}, moves=())


_LOG: Final = Layout({LOG_ID: "V12", **dict.fromkeys((*ID_LIST_SLOTS, CHUNK_LISTS, LOG_MOVES), "u4")}, 10)
_ARRAY: Final = Layout({_NODE_ID: "V8", _CHUNKS: "u4"}, 2)
_MOVE: Final = Layout({_FROM: "u4", _TO: "u4", _MOVED_ID: "V8", _MOVED_TYPE: "u1"}, 4)


def encode_transaction_log(log: TransactionLog, *, level: int = 3, spec_version: int = 2) -> bytes:
    """Return the file of a log. Ids, arrays, coordinates and moves are sorted if needed."""
    if spec_version == 1 and log.moves:
        raise FormatError("spec version 1 cannot move nodes", ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION)
    writer = Writer()
    root, root_at = writer.table(_LOG)
    root[f"f{LOG_ID}"] = np.void(log.id)
    for slot, name in ID_LIST_SLOTS.items():
        ids = _sorted_ids(getattr(log, name))
        link(root, _LOG, slot, root_at, writer.vector(ids))
    link(root, _LOG, CHUNK_LISTS, root_at, _write_chunks(writer, log.updated_chunks))
    moves = sorted(log.moves, key=lambda move: move.target.split("/"))
    link(root, _LOG, LOG_MOVES, root_at, _write_moves(writer, moves))
    return seal(writer.finish(root_at), FileType.TRANSACTION_LOG, spec_version=spec_version, level=level)


def _sorted_ids(ids: U8) -> U8:
    if len(ids) < 2:
        return ids
    return ids[np.unique(id_keys(ids), return_index=True)[1]]


def _write_chunks(writer: Writer, updated: Mapping[bytes, U32]) -> int:
    nodes = sorted(updated)
    arrays = in_order(list(map(updated.__getitem__, nodes)))
    counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
    entries = writer.offset_vectors([len(arrays)])
    records, positions = writer.tables(_ARRAY, len(arrays))
    entries.lead(slice(None), positions)
    records[f"f{_NODE_ID}"] = np.frombuffer(b"".join(nodes), "V8")
    vectors = writer.offset_vectors(counts)
    link(records, _ARRAY, _CHUNKS, positions, vectors.positions)

    for ndim, members, rows in by_rank(ranks(arrays), counts):
        coords = joined(list(map(arrays.__getitem__, members)))
        layout = coordinates_layout((), 1, CHUNK_COORDS, ndim)
        chunks, chunks_at = writer.tables(layout, len(coords))
        put_coordinates(chunks, layout, CHUNK_COORDS, coords)
        vectors.lead(rows, chunks_at)
    return int(entries.positions[0])


def _write_moves(writer: Writer, moves: list[Move]) -> int:
    entries = writer.offset_vectors([len(moves)])
    records, positions = writer.tables(_MOVE, len(moves))
    entries.lead(slice(None), positions)
    records[f"f{_MOVED_ID}"] = np.frombuffer(b"".join(move.node_id for move in moves), "V8")
    records[f"f{_MOVED_TYPE}"] = [move.is_array for move in moves]
    for slot, paths in ((_FROM, [move.source for move in moves]), (_TO, [move.target for move in moves])):
        link(records, _MOVE, slot, positions, writer.strings(Ragged.of_text(paths)))
    return int(entries.positions[0])


def decode_transaction_log(data: Any, name: str) -> TransactionLog:
    """Read a log of spec version 1 or 2. Raise ``FormatError`` with ``name`` for other bytes."""
    with reading(name):
        root = Buffer(open_envelope(data, FileType.TRANSACTION_LOG)[1]).root()
        # Without a list, a rebase would not see a conflict.
        require(root, "transaction log", LOG_ID, *ID_LIST_SLOTS, CHUNK_LISTS)
        lists = {name: _read_ids(root, slot) for slot, name in ID_LIST_SLOTS.items()}
        return TransactionLog(
            root.structs(LOG_ID, 12).tobytes(),
            **lists,
            updated_chunks=_read_chunks(root),
            moves=_read_moves(root.children(LOG_MOVES)[0]),
        )


def _read_ids(root: Tables, slot: int) -> U8:
    rows = root.vectors(slot, "V8")
    ids = rows.row(0).reshape(-1, NODE_ID_BYTES).copy()
    return _sorted_ids(ids)


def _read_chunks(root: Tables) -> dict[bytes, U32]:
    arrays, _ = root.children(CHUNK_LISTS)
    require(arrays, "array of a transaction log", _NODE_ID, _CHUNKS)
    chunks, counts = arrays.children(_CHUNKS)
    require(chunks, "updated chunk", CHUNK_COORDS)
    coords, ndims, starts = read_coordinates(chunks, CHUNK_COORDS, counts)
    nodes = Ragged.from_lengths(arrays.structs(_NODE_ID, 8).reshape(-1), np.full(len(arrays), 8)).blobs()
    return dict(zip(nodes, in_order(cut(coords, starts, counts, ndims)), strict=True))


def _read_moves(moves: Tables) -> tuple[Move, ...]:
    ids = Ragged.from_lengths(moves.structs(_MOVED_ID, 8).reshape(-1), np.full(len(moves), 8)).blobs()
    is_array = (moves.scalars(_MOVED_TYPE, "u1") == 1).tolist()
    return tuple(map(Move, moves.vectors(_FROM).texts(), moves.vectors(_TO).texts(), ids, is_array))
