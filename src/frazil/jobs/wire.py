"""Change sets as they cross from an executor to the driver: columns, small.

A message is one zstd frame (with its checksum) around one Arrow batch, which has a row for each column::

    name: utf8    width: uint8, bytes for each number    values: large_binary

Numbers take as few bytes as the largest of the column needs, and lie byte by byte (all low bytes, then all
second bytes, ...): what is the same everywhere is gone after compression, what is random costs what it has
to. Before that, columns are made small:

    coordinates     number of the chunk in the array's box, as the step from the chunk before: 0 in a row
    source          step from the chunk before, in the order of first appearance: 0 or 1
    offset          step from the end of the chunk before, if that is in the same source: 0 in a row
    order           where chunks of several arrays take turns in a source: whose turn it is. "Before" is then
                    before in the source, and not in the array
    length          as it is

Rows are in the order of their kinds for this. A virtual reference takes what its length is random, a native
one in a chunk file of its own the 12 random bytes of the id, one in a pack nearly nothing.

Nodes travel in the format's own codec, as a snapshot does.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zstandard
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges
from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.format.chunk_table import ChunkKind, ChunkTable, ForeignObjects, stack
from frazil.format.columns import (
    I64,
    MAX_COPIED_BYTES,
    U8,
    U32,
    U64,
    Ragged,
    decode_text,
    distinct_rows,
    row_keys,
)
from frazil.format.coordinates import ascending
from frazil.format.envelope import reading
from frazil.format.ids import INITIAL_SNAPSHOT_ID, NODE_ID_BYTES, OBJECT_ID_BYTES, id_keys, id_list
from frazil.format.snapshot import (
    ManifestFiles,
    NodeTable,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
)
from frazil.format.transaction_log import Move

_NAME: Final = "a change set"
_SCHEMA: Final = pa.schema([("name", pa.utf8()), ("width", pa.uint8()), ("values", pa.large_binary())])
_LEVEL: Final = 3
#: Numbers of chunks are int64; sums of two stay in range.
_MOST_CHUNKS: Final = 1 << 62
_MOST_DIMENSIONS: Final = 1 << 10
_SOURCES: Final = {
    ChunkKind.NATIVE: "native",
    ChunkKind.VIRTUAL: "virtual",
    ChunkKind.INLINE: "inline",
}


def encode(changes: ChangeSet) -> bytes:
    """A change set as bytes. ``decode`` gives it back: the same nodes, edits and references.

    Raises ``InvalidInputError`` (``not-allowed``) for one of more than 2 GiB before compression.

    >>> len(encode(ChangeSet())) < 1000, decode(encode(ChangeSet())) == ChangeSet()
    (True, True)
    """
    out = _Columns()
    _put_nodes(out, changes)
    _put_chunks(out, changes.chunks)
    return out.sealed()


def decode(data: bytes) -> ChangeSet:
    """The change set that ``encode`` made bytes of; ``FormatError`` for all other bytes."""
    with reading(_NAME):
        columns = _open(data)
        changes = ChangeSet()
        _take_nodes(columns, changes)
        _take_chunks(columns, changes.chunks)
        return changes


# Columns


class _Columns:
    """Columns by name, on their way out."""

    def __init__(self) -> None:
        self._columns: dict[str, tuple[int, Any]] = {}

    def raw(self, name: str, values: Any) -> None:
        if len(values):
            self._columns[name] = (1, values)

    def numbers(self, name: str, values: NDArray[Any], least: int = 0) -> None:
        """Numbers that are not negative, of at least so many bytes each."""
        if not len(values):
            return
        whole = np.ascontiguousarray(values).astype(np.uint64, copy=False)
        width = max(least, (int(whole.max()).bit_length() + 7) // 8)
        planes = np.ascontiguousarray(whole.view(np.uint8).reshape(len(whole), 8)[:, :width].T)
        self._columns[name] = (width, planes.reshape(-1))

    def steps(self, name: str, values: I64) -> None:
        """Small numbers, perhaps negative."""
        self.numbers(name, ((values << 1) ^ (values >> 63)).view(np.uint64))

    def rows(self, name: str, rows: Ragged) -> None:
        """Rows of bytes."""
        self.numbers(f"{name} lengths", rows.lengths, least=1)
        self.raw(name, rows.compact().values)

    def sealed(self) -> bytes:
        names, pairs = list(self._columns), self._columns.values()
        size = sum(len(values) for _, values in pairs)
        if size > MAX_COPIED_BYTES:
            raise InvalidInputError(
                f"a task changed {size} bytes of references and inline chunks, at most {MAX_COPIED_BYTES} "
                "can be sent: give each task less to do",
                ErrorKind.NOT_ALLOWED,
            )
        widths = [width for width, _ in pairs]
        values = [memoryview(values) for _, values in pairs]
        columns = [
            pa.array(each, kind) for each, kind in zip((names, widths, values), _SCHEMA.types, strict=True)
        ]
        message = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA).serialize()
        return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(message)


_NOTHING: Final = (0, np.zeros(0, np.uint8))
_NO_ROWS: Final = Ragged.empty()


class _Read:
    """Columns by name, as they came in."""

    def __init__(self, columns: Mapping[str, tuple[int, U8]]) -> None:
        self._columns = columns

    def has(self, names: frozenset[str]) -> bool:
        """Whether one of these is there."""
        return not names.isdisjoint(self._columns)

    def raw(self, name: str, width: int = 1) -> U8:
        values = self._columns.get(name, _NOTHING)[1]
        if len(values) % width:
            raise FormatError(f"{name}: {len(values)} bytes, expected a multiple of {width}")
        return values

    def ids(self, name: str, size: int) -> U8:
        return self.raw(name, size).reshape(-1, size)

    def numbers(self, name: str, count: int) -> U64:
        width, values = self._columns.get(name, _NOTHING)
        if width > 8 or len(values) != width * count:
            raise FormatError(f"{name}: {len(values)} bytes, expected {count} numbers of {width} bytes")
        if not width:
            return np.zeros(count, np.uint64)
        wide = np.zeros((count, 8), np.uint8)
        wide[:, :width] = values.reshape(width, count).T
        return wide.view(np.uint64)[:, 0]

    def steps(self, name: str, count: int) -> I64:
        folded = self.numbers(name, count)
        steps: I64 = ((folded >> np.uint64(1)) ^ -(folded & np.uint64(1))).view(np.int64)
        return steps

    def count(self, name: str) -> int:
        """How many numbers of at least one byte there are."""
        width, values = self._columns.get(name, _NOTHING)
        return len(values) // max(width, 1)

    def rows(self, name: str) -> Ragged:
        values = self.raw(name)
        count = self.count(f"{name} lengths")
        if not count and not len(values):
            return _NO_ROWS
        lengths = self.numbers(f"{name} lengths", count)
        if (count and int(lengths.max()) > len(values)) or int(lengths.sum()) != len(values):
            raise FormatError(f"{name}: {count} rows do not make {len(values)} bytes")
        return Ragged.from_lengths(values, lengths)


def _open(data: bytes) -> _Read:
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_COPIED_BYTES + (1 << 20):
            raise FormatError(f"{size} bytes, at most {MAX_COPIED_BYTES} expected")
        # Memory grows with what is there, whatever the frame says of its size.
        payload = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), _SCHEMA)
        batch.validate(full=True)
        names, widths, values = batch.columns
        if names.null_count or widths.null_count or values.null_count:
            raise FormatError("a column without name or values")
        _, places, content = values.buffers()
        stops = np.frombuffer(places, np.int64)[values.offset : values.offset + len(values) + 1].tolist()
        every = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
        parts = map(every.__getitem__, map(slice, stops[:-1], stops[1:]))
        pairs = zip(widths.to_pylist(), parts, strict=True)
        return _Read(dict(zip(names.to_pylist(), pairs, strict=True)))
    except (zstandard.ZstdError, pa.ArrowException, OSError) as error:
        raise FormatError(f"neither Arrow nor zstd: {error}") from error


# Nodes


def _require_text(rows: Ragged) -> None:
    """``FormatError`` if rows that lie one after the other are not UTF-8, each of them."""
    if not decode_text(rows.values.tobytes()).isascii():
        rows.texts()


def _put_nodes(out: _Columns, changes: ChangeSet) -> None:
    nodes = [node for node in changes.nodes.values() if node is not None]
    if nodes:
        table = NodeTable.from_nodes(nodes)
        out.raw(
            "nodes", encode_snapshot(Snapshot(INITIAL_SNAPSHOT_ID, 0, "", {}, table, ManifestFiles.empty()))
        )
    out.rows("gone", Ragged.of_text([path for path, node in changes.nodes.items() if node is None]))
    out.raw("created", b"".join(sorted(changes.created)))
    out.raw("updated", b"".join(sorted(changes.updated)))
    out.raw("deleted", b"".join(changes.deleted))
    out.raw("deleted arrays", bytes(changes.deleted.values()))
    moves = list(changes.moves.values())
    out.raw("moved", b"".join(changes.moves))
    out.raw("moved arrays", bytes(map(attrgetter("is_array"), moves)))
    out.rows("moved from", Ragged.of_text(map(attrgetter("source"), moves)))
    out.rows("moved to", Ragged.of_text(map(attrgetter("target"), moves)))


#: Most tasks change no nodes. Not all names are here: none of the others comes without one of these.
_OF_NODES: Final = frozenset({"nodes", "gone", "gone lengths", "created", "updated", "deleted", "moved"})


def _take_nodes(columns: _Read, changes: ChangeSet) -> None:
    if not columns.has(_OF_NODES):
        return
    file = columns.raw("nodes")
    if len(file):
        table = decode_snapshot(memoryview(file), _NAME).nodes
        changes.nodes.update(zip(table.paths_list(), map(table.exact().node, range(len(table))), strict=True))
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


def _flags(columns: _Read, name: str) -> list[bool]:
    flags: list[bool] = columns.raw(name).astype(np.bool_).tolist()
    return flags


# Chunks


def _put_chunks(out: _Columns, chunks: Mapping[bytes, ChunkChanges]) -> None:
    if not chunks:
        return
    arrays = sorted(chunks.items(), key=_rank)  # those of one rank side by side
    edits = [edit for _, edit in arrays]
    tables = [edit.table() for edit in edits]
    counts = np.fromiter(map(len, tables), np.int64, len(tables))
    out.raw("arrays", b"".join(id_ for id_, _ in arrays))
    out.rows("paths", Ragged.of_text([edit.path for edit in edits]))
    ranks = np.fromiter(map(attrgetter("ndim"), edits), np.int64, len(edits))
    out.numbers("ranks", ranks)
    out.numbers("counts", counts)
    for rank in np.unique(ranks).tolist():
        some = np.flatnonzero((ranks == rank) & (counts > 0)).tolist()
        if some:
            index = np.concatenate([tables[at].index for at in some])
            _put_coordinates(out, f"{rank}", index, counts[some])
    filled = [table for table in tables if len(table)]
    if filled:
        owner = np.repeat(np.arange(len(counts)), counts)
        _put_references(out, stack(filled, np.zeros((len(owner), 0), np.uint32)).prune(), owner)


def _rank(item: tuple[bytes, ChunkChanges]) -> tuple[int, bytes]:
    return item[1].ndim, item[0]


def _put_coordinates(out: _Columns, name: str, index: U32, counts: I64) -> None:
    """Those of all arrays of one rank, each of which has some."""
    starts = np.cumsum(counts) - counts
    limits = np.maximum.reduceat(index, starts, axis=0).astype(np.int64) + 1
    if float(np.prod(limits.astype(np.float64), axis=1).max()) > _MOST_CHUNKS:
        for axis, column in enumerate(index.T):
            out.numbers(f"{name} axis {axis}", np.diff(column, prepend=np.uint32(0)))
        return
    numbers = np.zeros(len(index), np.int64)
    for column, limit in zip(index.T, limits.T, strict=True):
        numbers *= limit if len(limit) == 1 else np.repeat(limit, counts)
        numbers += column
    steps = np.diff(numbers, prepend=0) - 1
    steps[starts] = 0
    out.numbers(f"{name} limits", limits.reshape(-1), least=1)
    out.numbers(f"{name} first", numbers[starts])
    out.numbers(f"{name} steps", steps)


def _take_coordinates(columns: _Read, name: str, rank: int, counts: I64) -> U32:
    total, starts = int(counts.sum()), np.cumsum(counts) - counts
    index = np.empty((total, rank), np.uint32)
    size = columns.count(f"{name} limits")
    if rank and not size:
        for axis in range(rank):
            steps = columns.numbers(f"{name} axis {axis}", total).astype(np.uint32)
            np.cumsum(steps, dtype=np.uint32, out=index[:, axis])
        owners = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
        if not ascending(np.column_stack((owners, index))):
            raise FormatError("chunk coordinates out of order")
        return index
    limits = columns.numbers(f"{name} limits", len(counts) * rank).reshape(len(counts), rank).astype(np.int64)
    room = np.prod(limits.astype(np.float64), axis=1)
    if size and (int(limits.min()) < 1 or int(limits.max()) > 1 << 32 or float(room.max()) > _MOST_CHUNKS):
        raise FormatError("chunk coordinates out of bounds")
    numbers = columns.numbers(f"{name} steps", total).view(np.int64)
    first = columns.numbers(f"{name} first", len(counts)).view(np.int64)
    numbers += 1
    numbers[starts] = first
    if len(counts) > 1:
        numbers[starts[1:]] -= first[:-1] + np.add.reduceat(numbers, starts)[:-1] - numbers[starts[:-1]]
    np.cumsum(numbers, out=numbers)
    rises = numbers[1:] > numbers[:-1]
    rises[starts[1:] - 1] = True
    if (
        int(first.min()) < 0
        or not rises.all()
        or (numbers[starts + counts - 1] >= np.prod(limits, axis=1)).any()
    ):
        raise FormatError("chunk coordinates out of order or out of bounds")
    for axis in range(rank - 1, 0, -1):
        limit: Any = limits[0, axis] if len(counts) == 1 else np.repeat(limits[:, axis], counts)
        above = numbers // limit
        index[:, axis] = numbers - above * limit
        numbers = above
    if rank:
        index[:, 0] = numbers
    return index


def _put_references(out: _Columns, table: ChunkTable, owner: I64) -> None:
    out.raw("kinds", table.kind)
    chunk_ids, foreign, inline = table.chunk_ids, table.foreign, table.inline
    for kind, name in _SOURCES.items():
        rows = np.flatnonzero(table.kind == kind)
        if not len(rows):
            continue
        chosen: Any = slice(None) if len(rows) == len(table) else rows
        source = table.source[chosen].astype(np.int64)
        if name != "inline" and _are_several(owner[chosen]):
            source = _once(chunk_ids if name == "native" else foreign, source)
        order, source = _by_appearance(source)
        out.steps(f"{name} source", np.diff(source, prepend=0))
        if kind == ChunkKind.NATIVE:
            out.raw("chunk ids", np.ascontiguousarray(chunk_ids[order]).reshape(-1))
        elif kind == ChunkKind.VIRTUAL:
            objects = foreign.take(order)
            out.rows("locations", objects.locations)
            out.rows("etags", objects.etags)
            out.numbers("modified", objects.modified)
        else:
            out.rows("inline", inline.take(order))
            continue
        offset, length = table.offset[chosen], table.length[chosen]
        turns, gap = _gaps(owner[chosen], source, offset, length)
        out.numbers(f"{name} order", turns, least=1)
        out.steps(f"{name} offset", gap.view(np.int64))
        out.numbers(f"{name} length", length)


def _gaps(owner: I64, source: I64, offset: U64, length: U64) -> tuple[I64, U64]:
    """Whose turn it is, if that is told, and the steps between chunks, in this order."""
    nothing, gap = np.zeros(0, np.int64), _steps_from(source, offset, length)
    if not _are_several(owner) or 8 * np.count_nonzero(gap) < len(gap):
        return nothing, gap
    order = np.lexsort((offset, source))
    turns = owner[order]
    if not np.array_equal(_taking_turns(turns, owner, source), order):
        return nothing, gap  # the chunks of an array are not in the order of its rows
    merged = _steps_from(source[order], offset[order], length[order])
    return (turns, merged) if np.count_nonzero(merged) < np.count_nonzero(gap) else (nothing, gap)


def _are_several(owner: I64) -> bool:
    return bool(owner[0] != owner[-1])  # they ascend


def _steps_from(source: I64, offset: U64, length: U64) -> U64:
    gap = offset.copy()
    gap[1:] -= np.where(source[1:] == source[:-1], offset[:-1] + length[:-1], np.uint64(0))
    return gap


def _taking_turns(turns: I64, owner: I64, source: I64) -> I64:
    """Rows, one source after the other, so that their owners are ``turns``, and those of one owner in a
    source in the order that they have. ``FormatError`` if there is none.
    """
    rows = np.argsort(source, kind="stable")  # those of an owner are side by side
    places = np.lexsort((turns, source[rows]))
    if not np.array_equal(turns[places], owner[rows]):
        raise FormatError("chunks of several arrays that do not take turns")
    order = np.empty_like(rows)
    order[places] = rows
    return order


def _by_appearance(source: I64) -> tuple[Any, I64]:
    """Sources in the order in which rows have them first, and for each row its number among those."""
    steps = np.diff(source, prepend=-1)
    if ((steps == 0) | (steps == 1)).all():
        return slice(None), source
    used, first, number = np.unique(source, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return used[order], rank[number]


def _once(sources: U8 | ForeignObjects, source: I64) -> I64:
    """Numbers of sources, the first one's for those that are equal: each array has brought its own."""
    if isinstance(sources, ForeignObjects):
        texts = (distinct_rows(rows)[1] for rows in (sources.locations, sources.etags))
        keys = row_keys(np.column_stack((*texts, sources.modified)))
    else:
        keys = id_keys(sources)
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    once: I64 = first[number[source]]
    return once


def _take_chunks(columns: _Read, chunks: dict[bytes, ChunkChanges]) -> None:
    ids = id_list(columns.ids("arrays", NODE_ID_BYTES))
    if not ids:
        return
    paths = columns.rows("paths").texts()
    ranks = columns.numbers("ranks", len(ids)).view(np.int64)
    counts = columns.numbers("counts", len(ids)).view(np.int64)
    kind = columns.raw("kinds")
    if (counts < 0).any() or counts.sum() != len(kind) or (counts > len(kind)).any():
        raise FormatError(f"{len(kind)} references, expected {counts.sum()}")
    if (ranks < 0).any() or (np.diff(ranks) < 0).any() or int(ranks.max()) > _MOST_DIMENSIONS:
        raise FormatError(f"arrays of {ranks.max()} dimensions, or out of order")
    owner = np.repeat(np.arange(len(counts)), counts)
    source, offset, length, sources = _take_references(columns, kind, owner)
    stop = 0
    ends = np.cumsum(counts)
    for rank in dict.fromkeys(ranks.tolist()):
        some = np.flatnonzero(ranks == rank)
        start, stop = stop, int(ends[some[-1]])
        filled = counts[some][counts[some] > 0]
        index = _take_coordinates(columns, f"{rank}", rank, filled) if len(filled) else None
        for at in some.tolist():
            high = int(ends[at])
            rows = slice(high - int(counts[at]), high)
            edits = chunks[ids[at]] = ChunkChanges(paths[at], rank)
            if index is not None and rows.start < rows.stop:
                coords = index[rows.start - start : rows.stop - start]
                part = coords, kind[rows], source[rows], offset[rows], length[rows]
                edits.set_table(ChunkTable(*part, *sources))


def _take_references(
    columns: _Read, kind: U8, owner: I64
) -> tuple[U32, U64, U64, tuple[U8, ForeignObjects, Ragged]]:
    total = len(kind)
    if total and int(kind.max()) > ChunkKind.INLINE:
        raise FormatError(f"references of kind {kind.max()}")
    chunk_ids = columns.ids("chunk ids", OBJECT_ID_BYTES)
    locations, etags, inline = columns.rows("locations"), columns.rows("etags"), columns.rows("inline")
    modified = columns.numbers("modified", len(locations)).astype(np.uint32)
    if len(etags) != len(locations):
        raise FormatError(f"{len(etags)} etags for {len(locations)} locations")
    _require_text(locations)
    _require_text(etags)
    foreign = ForeignObjects(locations, etags, modified)
    source = np.zeros(total, np.uint32)
    offset, length = np.zeros((2, total), np.uint64)
    known = (len(chunk_ids), len(foreign), len(inline))
    for (each, name), limit in zip(_SOURCES.items(), known, strict=True):
        rows = np.flatnonzero(kind == each)
        if not len(rows):
            continue
        chosen: Any = slice(None) if len(rows) == total else rows
        mine = np.cumsum(columns.steps(f"{name} source", len(rows)))
        if int(mine.min()) < 0 or int(mine.max()) >= limit:
            raise FormatError(f"a reference to {name} source {mine.max()} of {limit}")
        source[chosen] = mine
        if each == ChunkKind.INLINE:
            length[chosen] = inline.lengths[mine]
            continue
        size = columns.numbers(f"{name} length", len(rows))
        moves = columns.steps(f"{name} offset", len(rows)).view(np.uint64)
        length[chosen] = size
        if columns.count(f"{name} order"):
            turns = columns.numbers(f"{name} order", len(rows)).view(np.int64)
            order = _taking_turns(turns, owner[chosen], mine)
            starts = np.empty_like(size)
            starts[order] = _added_up(moves, mine[order], size[order])
            offset[chosen] = starts
        else:
            offset[chosen] = _added_up(moves, mine, size)
    return source, offset, length, (chunk_ids, foreign, inline)


def _added_up(moves: U64, source: I64, size: U64) -> U64:
    """Offsets from the steps between chunks, which may be changed."""
    # Ends are added up, and taken away again where another source begins.
    moves[1:] += size[:-1]
    new = np.flatnonzero(np.diff(source, prepend=-1))
    moves[new[1:]] -= size[new[1:] - 1]
    ends = np.cumsum(moves, dtype=np.uint64)
    before = np.concatenate((np.zeros(1, np.uint64), ends[new[1:] - 1]))
    offsets: U64 = ends - np.repeat(before, np.diff(new, append=len(size)))
    return offsets
