"""Transaction logs: the nodes and chunks that one commit touches.

Specification: *Transaction Log Files*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, starmap
from typing import Any, Final

import numpy as np

from frazil.errors import ErrorKind, FormatError
from frazil.format.chunk_table import by_rank, in_order, read_coordinates, unsorted_arrays, write_coordinates
from frazil.format.columns import U8, U32, Ragged, ranges, windows
from frazil.format.envelope import FileType, Violation, collect, decode_one, seal, unsorted
from frazil.format.flatbuffer import NUL, OffsetVectors, TableLayout, Tables, TableWriter, open_tables
from frazil.format.ids import INITIAL_SNAPSHOT_ID, NODE_ID_BYTES, distinct_ids, id_keys, id_list

# Slots of the tables, in the order of the schema.
_ID, _CHUNK_LISTS, _MOVES = 0, 7, 8
_ID_LIST_SLOTS: Final = {
    1: "new_groups",
    2: "new_arrays",
    3: "deleted_groups",
    4: "deleted_arrays",
    5: "updated_arrays",
    6: "updated_groups",
}
#: The names of the lists of node ids in a ``TransactionLog``.
ID_LISTS: Final = tuple(_ID_LIST_SLOTS.values())
_NODE_ID, _CHUNKS = 0, 1
_COORDS = 0
_FROM, _TO, _MOVED_ID, _MOVED_TYPE = range(4)
_REQUIRED: Final = "log-required"


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
    #: Of a log that was read: coordinates with other numbers of dimensions than those in ``updated_chunks``
    odd_chunks: Mapping[bytes, Sequence[U32]] = field(default_factory=dict)

    def chunks_of(self, node: bytes, ndim: int) -> U32:
        """Return the updated chunks of an array with ``ndim`` dimensions. Other coordinates are no chunks."""
        nothing = np.zeros((0, ndim), np.uint32)
        own = (self.updated_chunks.get(node, nothing), *self.odd_chunks.get(node, ()))
        return next((each for each in own if each.shape[1] == ndim), nothing)


def empty_log(id_: bytes) -> TransactionLog:
    """Return a log without changes, such as the log of the initial snapshot."""
    nothing = np.zeros((0, NODE_ID_BYTES), np.uint8)
    lists = dict.fromkeys(_ID_LIST_SLOTS.values(), nothing)
    return TransactionLog(id_, **lists, updated_chunks={}, moves=(), odd_chunks={})


_LOG: Final = TableLayout({_ID: "V12", **dict.fromkeys((*_ID_LIST_SLOTS, _CHUNK_LISTS, _MOVES), "u4")}, 10)
_ARRAY: Final = TableLayout({_NODE_ID: "V8", _CHUNKS: "u4"}, 2)
_MOVE: Final = TableLayout({_FROM: "u4", _TO: "u4", _MOVED_ID: "V8", _MOVED_TYPE: "u1"}, 4)


def encode_transaction_log(log: TransactionLog, *, level: int = 3, spec_version: int = 2) -> bytes:
    """Return the file of a log. Ids, arrays, coordinates and moves are sorted if needed."""
    if spec_version == 1 and log.moves:
        raise FormatError("spec version 1 cannot move nodes", ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION)
    writer = TableWriter(_LOG)
    root: dict[int, int | bytes] = {_ID: log.id}
    for slot, name in _ID_LIST_SLOTS.items():
        ids = getattr(log, name)
        if len(ids) > 1:
            ids = distinct_ids(ids)
        root[slot] = writer.vector(ids) if len(ids) else writer.no_elements()
    if nodes := sorted(log.updated_chunks):
        arrays = in_order(list(map(log.updated_chunks.__getitem__, nodes)))
        entries, (root[_CHUNK_LISTS],) = writer.table_vectors(_ARRAY, [len(arrays)])
        entries.fields[f"f{_NODE_ID}"] = np.frombuffer(b"".join(nodes), "V8")
        vectors = OffsetVectors(writer, list(map(len, arrays)))
        entries.link(_CHUNKS, vectors.positions)
        for _, rows, index in by_rank(arrays):
            vectors.lead(write_coordinates(writer, (), _COORDS, index).positions, rows)
    else:
        root[_CHUNK_LISTS] = writer.no_elements()
    if moves := sorted(log.moves, key=lambda move: move.target.split("/")):
        records, (root[_MOVES],) = writer.table_vectors(_MOVE, [len(moves)])
        records.fields[f"f{_MOVED_ID}"] = np.frombuffer(b"".join(move.node_id for move in moves), "V8")
        records.fields[f"f{_MOVED_TYPE}"] = [move.is_array for move in moves]
        records.link(_FROM, writer.vectors(Ragged.of_text([move.source for move in moves]), NUL))
        records.link(_TO, writer.vectors(Ragged.of_text([move.target for move in moves]), NUL))
    else:
        root[_MOVES] = writer.no_elements()
    parts = writer.finish(root)
    return seal(parts, FileType.TRANSACTION_LOG, spec_version=spec_version, level=level)


def decode_transaction_log(data: Any, name: str, broken: list[Violation] | None = None) -> TransactionLog:
    """Read a log of spec version 1 or 2. Raise ``FormatError`` with ``name`` for other bytes.

    ``broken`` gets the broken rules that readers do not need.
    """
    return decode_one(decode_transaction_logs, data, name, broken)


def decode_transaction_logs(
    files: Sequence[Any], broken: list[Violation] | None = None
) -> list[TransactionLog]:
    """Read logs. ``broken`` gets the broken rules of one log that readers do not need."""
    root = open_tables(FileType.TRANSACTION_LOG, *files)
    slots = {name: slot for slot, name in _ID_LIST_SLOTS.items()}
    # Without one of the lists, a rebase would not see a conflict.
    root.require("transaction log", _REQUIRED, id=_ID, **slots, updated_chunks=_CHUNK_LISTS)
    lists = [_read_ids(root, slot, broken) for slot in slots.values()]
    id_lists = (dict(zip(slots, ids, strict=True)) for ids in zip(*lists, strict=True))
    columns = _read_chunks(root, broken), _read_moves(root)
    logs = [
        TransactionLog(id_, **ids, updated_chunks=updated, odd_chunks=odd, moves=moves)
        for id_, ids, (updated, odd), moves in zip(
            id_list(root.structs(_ID, 12)), id_lists, *columns, strict=True
        )
    ]
    collect(broken, _violations(logs[0]))
    return logs


def _read_ids(root: Tables, slot: int, broken: list[Violation] | None) -> list[U8]:
    """Return the ids of nodes in a list of each log, sorted, each once."""
    starts, counts = root.places(slot, NODE_ID_BYTES, copied=True)
    if not counts.any():
        return [np.zeros((0, NODE_ID_BYTES), np.uint8)] * len(counts)
    words = windows(root.buffer.bytes, NODE_ID_BYTES)[ranges(starts, counts, NODE_ID_BYTES)]
    numbers, ends = words.view(">u8").astype(np.uint64), np.cumsum(counts)
    ascends = numbers[1:] > numbers[:-1]
    ascends[ends[(ends > 0) & (ends < len(numbers))] - 1] = True
    matrix = words.view(np.uint8).reshape(-1, NODE_ID_BYTES)
    lists = list(map(matrix.__getitem__, map(slice, (ends - counts).tolist(), ends.tolist())))
    if ascends.all():
        return lists
    collect(broken, unsorted("log-ids-sorted", _ID_LIST_SLOTS[slot], numbers))
    return [distinct_ids(ids) for ids in lists]


def _read_moves(root: Tables) -> list[tuple[Move, ...]]:
    """Return the moves of each log."""
    moves, _ = root.children(_MOVES)
    if not len(moves):
        return [()] * len(root)
    # A group is the default type, and writers may leave it out.
    moves.require("move", "move-fields", **{"from": _FROM, "to": _TO, "node_id": _MOVED_ID})
    is_array = (moves.scalars(_MOVED_TYPE, "u1") == 1).tolist()
    ids = id_list(moves.structs(_MOVED_ID, NODE_ID_BYTES))
    every = tuple(map(Move, moves.vectors(_FROM).texts(), moves.vectors(_TO).texts(), ids, is_array))
    return list(map(every.__getitem__, starmap(slice, pairwise(moves.edges().tolist()))))


def _read_chunks(
    root: Tables, broken: list[Violation] | None
) -> list[tuple[dict[bytes, U32], dict[bytes, Sequence[U32]]]]:
    """Return the updated chunks of each log, and those with other numbers of dimensions."""
    arrays, _ = root.children(_CHUNK_LISTS)
    if not len(arrays):
        return [({}, {}) for _ in range(len(root))]
    arrays.require("array of a transaction log", _REQUIRED, node_id=_NODE_ID, chunks=_CHUNKS)
    chunks, counts = arrays.children(_CHUNKS)
    chunks.require("updated chunk", _REQUIRED, coords=_COORDS)
    coords = read_coordinates(chunks, _COORDS, counts)
    nodes, parts = id_list(arrays.structs(_NODE_ID, 8)), coords.parts()
    firsts = coords.firsts.tolist()
    array_of = np.repeat(np.arange(len(nodes)), np.diff(coords.firsts))
    ranks = "all coordinates of an array must have as many numbers as it has dimensions"
    rule = "coordinates must be sorted, each once"
    collect(
        broken,
        unsorted("log-chunks-sorted", "arrays with updated chunks", nodes),
        (Violation("log-coords-sorted", rule, nodes[array_of[part]]) for part in unsorted_arrays(parts)),
        (Violation("log-coords-rank", ranks, nodes[row]) for row in coords.odd_arrays()),
    )
    lists = in_order(parts)
    updated = list(map(lists.__getitem__, firsts[:-1]))
    odd = coords.odd_arrays()
    return [
        (
            dict(zip(nodes[low:high], updated[low:high], strict=True)),
            {nodes[row]: lists[firsts[row] + 1 : firsts[row + 1]] for row in odd if low <= row < high},
        )
        for low, high in pairwise(arrays.edges().tolist())
    ]


def _violations(log: TransactionLog) -> Iterator[Violation]:
    """Yield the broken rules that readers do not need, without those of lists and of updated chunks."""
    changes = [name for name in ID_LISTS if len(getattr(log, name))]
    changes += [name for name in ("updated_chunks", "moves") if getattr(log, name)]
    if log.id == INITIAL_SNAPSHOT_ID and changes:
        detail = f"the log of the initial snapshot must be empty, got {', '.join(changes)}"
        yield Violation("log-initial", detail)
    for kind in ("groups", "arrays"):
        own = [getattr(log, f"{change}_{kind}") for change in ("new", "deleted", "updated")]
        distinct, counts = np.unique(id_keys(np.concatenate(own)), return_counts=True)
        if (counts > 1).any():
            detail = f"{np.count_nonzero(counts > 1)} {kind} are in several lists"
            yield Violation("log-nodes-once", detail, distinct[counts > 1][:1].view(np.uint8).tobytes())
    moves = log.moves
    targets = [move.target.split("/") for move in moves]
    if any(one >= two for one, two in pairwise(targets)):
        yield Violation("moves-sorted", "moves must be sorted by the field `to`, each once")
    same = [move.source for move in moves if move.source == move.target]
    if same:
        yield Violation("move-identity", f"a move must change the path, got {same[0]!r} twice")
    if len({move.node_id for move in moves}) < len(moves):
        yield Violation("moves-collapsed", "a node must have at most one move, got more")
