"""Encodes change sets for the way from a task to the driver, and for staged results.

A change set is a small JSON header (ids, paths, counts), the changed nodes as a file of a snapshot, and one
zstd frame with the columns of all references. A column of numbers is stored as differences from the row
before, byte by byte: first the lowest byte of all rows, then the next byte. So zstd sees what repeats, and
only random values (lengths, chunk ids) take space:

- a coordinate is a difference from the chunk before;
- sources are numbered in the order of their first use;
- an offset is the gap after the chunk before in the same source. If several arrays take turns in a file, as
  the variables of a record do, the rows are in the order of the file.

Staged results lie in a storage to which others may write. So decoding builds nothing but columns, checks all
of them, and bounds the memory by the size of the message.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.format.chunk_table import ChunkKind, ChunkTable, ForeignObjects, ascending, stack
from frazil.format.columns import (
    I64,
    MAX_COPIED_BYTES,
    U32,
    U64,
    Ragged,
    decode_text,
    distinct_rows,
    row_keys,
)
from frazil.format.envelope import reading
from frazil.format.ids import INITIAL_SNAPSHOT_ID, NODE_ID_BYTES, OBJECT_ID_BYTES, id_keys
from frazil.format.snapshot import ManifestFiles, NodeTable, Snapshot, decode_snapshot, encode_snapshot
from frazil.format.transaction_log import Move

_NAME: Final = "a change set"
_LENGTH: Final = struct.Struct("<Q")
_MOST_DIMENSIONS: Final = 1 << 10
#: The most bytes of columns of a message: this number, or this number for each byte of the message.
_FREE_BYTES: Final = 1 << 28
_MOST_RATIO: Final = 1000


def encode(changes: ChangeSet) -> bytes:
    """Return a change set as bytes. ``decode`` returns the same nodes, chunk changes and references."""
    nodes = [node for node in changes.nodes.values() if node is not None]
    file = b""
    if nodes:
        table = NodeTable.from_nodes(nodes)
        file = encode_snapshot(Snapshot(INITIAL_SNAPSHOT_ID, 0, "", {}, table, ManifestFiles.empty()))
    arrays = sorted(changes.chunks.items(), key=lambda item: (item[1].ndim, item[0]))  # by rank
    tables = [edits.table() for _, edits in arrays]
    columns, sources = _columns(tables)
    header = {
        "gone": [path for path, node in changes.nodes.items() if node is None],
        "created": [id_.hex() for id_ in sorted(changes.created)],
        "updated": [id_.hex() for id_ in sorted(changes.updated)],
        "deleted": [[id_.hex(), is_array] for id_, is_array in changes.deleted.items()],
        "moves": [
            [id_.hex(), move.source, move.target, move.is_array] for id_, move in changes.moves.items()
        ],
        "arrays": [
            [id_.hex(), edits.path, edits.ndim, len(table)]
            for (id_, edits), table in zip(arrays, tables, strict=True)
        ],
        "sources": sources,
    }
    text = json.dumps(header).encode()
    return joined([text, zlib.crc32(text).to_bytes(4), file, _compressed(columns)])


def decode(data: bytes) -> ChangeSet:
    """Return the change set that ``encode`` encoded, or raise ``FormatError`` for other bytes."""
    with reading(_NAME, KeyError, AttributeError, zstandard.ZstdError):
        text, checksum, file, frame = split(data, 4)
        if zlib.crc32(text).to_bytes(4) != checksum:
            raise FormatError("the checksum of the header does not fit")
        header = json.loads(text)
        changes = ChangeSet(created=set(_ids(header["created"])), updated=set(_ids(header["updated"])))
        if file:
            table = decode_snapshot(memoryview(file), _NAME).nodes
            changes.nodes.update(
                zip(table.paths_list(), map(table.exact().node, range(len(table))), strict=True)
            )
        changes.nodes.update(dict.fromkeys(map(_text, header["gone"])))
        changes.deleted.update((_id(id_), bool(is_array)) for id_, is_array in header["deleted"])
        for id_, source, target, is_array in header["moves"]:
            changes.moves[_id(id_)] = Move(_text(source), _text(target), _id(id_), bool(is_array))
        arrays = [(_id(id_), _text(path), int(ndim), int(n)) for id_, path, ndim, n in header["arrays"]]
        for (id_, path, ndim, _), part in zip(arrays, _tables(arrays, header["sources"], frame), strict=True):
            changes.chunks[id_] = ChunkChanges(path, ndim, () if part is None else (part,))
        return changes


def _id(text: str) -> bytes:
    id_ = bytes.fromhex(text)
    if len(id_) != NODE_ID_BYTES:
        raise FormatError(f"expected the id of a node, got {text:.40}")
    return id_


def _ids(texts: Iterable[str]) -> list[bytes]:
    return list(map(_id, texts))


def _text(value: str) -> str:
    value.encode()  # JSON may contain halves of characters
    return value


# Columns


def _columns(tables: Sequence[ChunkTable]) -> tuple[list[Any], list[int]]:
    filled = [table for table in tables if len(table)]
    if not filled:
        return [], [0, 0, 0]
    whole = stack(filled, np.zeros((0, 0), np.uint32))
    source, orders = _by_appearance(whole, len(filled) > 1)
    ids = whole.chunk_ids[orders[ChunkKind.NATIVE]]
    foreign = whole.foreign.take(orders[ChunkKind.VIRTUAL])
    inline = whole.inline.take(orders[ChunkKind.INLINE])
    rows: list[NDArray[Any]] = [whole.kind, source, whole.offset, whole.length]
    owner = np.repeat(np.arange(len(filled), dtype=np.uint32), list(map(len, filled)))
    if len(filled) > 1:
        order = np.lexsort((whole.offset, source, whole.kind))
        back = np.argsort(owner[order], kind="stable")
        if np.array_equal(order[back], np.arange(len(order))):  # each array is in the order of its bytes
            owner, *rows = (column[order] for column in (owner, *rows))
    kind, source, offset, length = rows
    columns: list[Any] = [_planes(owner), kind, _planes(_steps(source))]
    columns += [_planes(_gaps(kind, source, offset, length)), _planes(length)]
    for ndim in sorted(set(map(attrgetter("ndim"), filled))):
        index = np.concatenate([table.index for table in filled if table.ndim == ndim])
        columns += [_planes(_steps(column)) for column in index.T]
    columns += [np.ascontiguousarray(ids), _planes(foreign.modified)]
    for texts in (foreign.locations, foreign.etags, inline):
        columns += [_planes(texts.lengths.astype(np.uint32)), texts.compact().values]
    return columns, [len(ids), len(foreign), len(inline)]


def _by_appearance(table: ChunkTable, has_repeated: bool) -> tuple[U32, dict[int, Any]]:
    """Return the sources in the order of their first use, and for each kind the rows of these sources."""
    source = table.source.copy()
    orders: dict[int, Any] = {}
    for kind in (ChunkKind.NATIVE, ChunkKind.VIRTUAL, ChunkKind.INLINE):
        rows = np.flatnonzero(table.kind == kind)
        mine = source[rows].astype(np.int64)
        if has_repeated and len(rows) and kind != ChunkKind.INLINE:
            mine = _first_rows(table.chunk_ids if kind == ChunkKind.NATIVE else table.foreign)[mine]
        steps = np.diff(mine, prepend=-1)
        if ((steps == 0) | (steps == 1)).all():
            source[rows], orders[kind] = mine, slice(int(mine[-1]) + 1 if len(mine) else 0)
            continue
        used, first, number = np.unique(mine, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        source[rows], orders[kind] = rank[number], used[order]
    return source, orders


def _first_rows(sources: NDArray[np.uint8] | ForeignObjects) -> I64:
    """Return for each row the first row that is equal: several arrays may name the same files."""
    if isinstance(sources, ForeignObjects):
        texts = (distinct_rows(rows)[1] for rows in (sources.locations, sources.etags))
        keys = row_keys(np.column_stack((*texts, sources.modified)))
    else:
        keys = id_keys(sources)
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    rows: I64 = first[number]
    return rows


def _tables(
    arrays: Sequence[tuple[bytes, str, int, int]], sources: Sequence[int], frame: bytes
) -> list[ChunkTable | None]:
    columns = _Columns(frame)
    total = sum(count for *_, count in arrays)
    ranks, filled = [ndim for *_, ndim, _ in arrays], [count for *_, count in arrays if count]
    if min((count for *_, count in arrays), default=0) < 0 or ranks != sorted(ranks):
        raise FormatError("expected arrays in the order of their ranks, with counts from 0")
    if min(ranks, default=0) < 0 or max(ranks, default=0) > _MOST_DIMENSIONS:
        raise FormatError(f"expected arrays of 0 to {_MOST_DIMENSIONS} dimensions, got others")
    owner, kind = columns.take(total, "<u4"), columns.take(total, "u1")
    source = np.cumsum(columns.take(total, "<u4"), dtype=np.uint32)
    gaps, length = columns.take(total, "<u8"), columns.take(total, "<u8")
    if total and (owner.max() >= len(filled) or np.bincount(owner, minlength=len(filled)).tolist() != filled):
        raise FormatError("the references do not fit the counts of the arrays")
    index: dict[int, U32] = {}
    for ndim in dict.fromkeys(ndim for *_, ndim, count in arrays if count):
        rows = sum(count for *_, rank, count in arrays if rank == ndim)
        index[ndim] = np.empty((rows, ndim), np.uint32)
        for axis in range(ndim):
            np.cumsum(columns.take(rows, "<u4"), dtype=np.uint32, out=index[ndim][:, axis])
    if total and int(kind.max()) > ChunkKind.INLINE:
        raise FormatError(f"references of kind {kind.max()}")
    num_ids, num_foreign, num_inline = map(int, sources)
    ids = columns.take(num_ids * OBJECT_ID_BYTES, "u1").reshape(num_ids, OBJECT_ID_BYTES)
    modified = columns.take(num_foreign, "<u4")
    locations, etags, inline = (columns.rows(number) for number in (num_foreign, num_foreign, num_inline))
    columns.finish()
    for texts in (locations, etags):
        if not decode_text(texts.values.tobytes()).isascii():
            texts.texts()
    if (source >= np.array([1, num_ids, num_foreign, num_inline])[kind]).any():
        raise FormatError("a reference to a source that the message does not have")
    offset = _offsets(kind, source, gaps, length)
    if (np.diff(owner.astype(np.int64)) < 0).any():  # arrays take turns
        back = np.argsort(owner, kind="stable")
        kind, source, offset, length = kind[back], source[back], offset[back], length[back]
    has_no_range = (kind == ChunkKind.ABSENT) | (kind == ChunkKind.INLINE)
    offset[has_no_range], length[has_no_range] = 0, 0
    length[kind == ChunkKind.INLINE] = inline.lengths[source[kind == ChunkKind.INLINE]]
    out: list[ChunkTable | None] = []
    start, firsts, foreign = 0, dict.fromkeys(index, 0), ForeignObjects(locations, etags, modified)
    for *_, ndim, count in arrays:
        if not count:
            out.append(None)
            continue
        coords = index[ndim][firsts[ndim] : firsts[ndim] + count]
        if not ascending(coords):
            raise FormatError("chunk coordinates must be in ascending order, got others")
        part = slice(start, start + count)
        out.append(
            ChunkTable(coords, kind[part], source[part], offset[part], length[part], ids, foreign, inline)
        )
        start, firsts[ndim] = start + count, firsts[ndim] + count
    return out


def _steps(values: NDArray[Any]) -> NDArray[Any]:
    return np.diff(values, prepend=values.dtype.type(0))  # modulo the size of the type


def _gaps(kind: NDArray[np.uint8], source: U32, offset: U64, length: U64) -> U64:
    is_next = (source[1:] == source[:-1]) & (kind[1:] == kind[:-1])
    gaps = offset.copy()
    gaps[1:] -= np.where(is_next, offset[:-1] + length[:-1], np.uint64(0))
    return gaps


def _offsets(kind: NDArray[np.uint8], source: U32, gaps: U64, length: U64) -> U64:
    """Undo ``_gaps``: add up the ends, and subtract them where another source begins."""
    if not len(gaps):
        return gaps
    is_new = (source[1:] != source[:-1]) | (kind[1:] != kind[:-1])
    new: I64 = np.flatnonzero(np.concatenate(([True], is_new)))
    gaps[1:] += length[:-1]
    gaps[new[1:]] -= length[new[1:] - 1]
    ends = np.cumsum(gaps, dtype=np.uint64)
    before = np.concatenate((np.zeros(1, np.uint64), ends[new[1:] - 1]))
    offsets: U64 = ends - np.repeat(before, np.diff(new, append=len(gaps)))
    return offsets


def _planes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the first byte of all numbers, then the second, and so on."""
    whole = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(whole.view(np.uint8).reshape(len(whole), whole.itemsize).T)


class _Columns:
    """The columns of a frame, one after the other. Raises ``FormatError`` for too few or too many bytes."""

    def __init__(self, frame: bytes) -> None:
        most = min(max(_FREE_BYTES, _MOST_RATIO * len(frame)), MAX_COPIED_BYTES)
        size = zstandard.frame_content_size(frame) if frame else 0
        if not 0 <= size <= most:
            raise FormatError(f"expected at most {most} bytes, got {size}")
        # Memory grows with the decompressed bytes, not with the size that the frame declares.
        payload = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size) if frame else b""
        self._bytes = np.frombuffer(payload, np.uint8)
        self._at = 0

    def take(self, count: int, dtype: str) -> NDArray[Any]:
        """Return the next ``count`` numbers."""
        width = np.dtype(dtype).itemsize
        stop = self._at + width * count
        if count < 0 or stop > len(self._bytes):
            raise FormatError(
                f"expected {count} numbers of {width} bytes, got {len(self._bytes) - self._at} bytes"
            )
        planes = self._bytes[self._at : stop].reshape(width, count)
        self._at = stop
        numbers = np.zeros((count, width), np.uint8)
        for number, plane in enumerate(planes):
            if plane.any():  # the higher bytes are mostly zeros
                numbers[:, number] = plane
        return numbers.reshape(-1).view(dtype)

    def rows(self, count: int) -> Ragged:
        """Return the next ``count`` rows of bytes."""
        lengths = self.take(count, "<u4").astype(np.int64)
        return Ragged.from_lengths(self.take(int(lengths.sum()), "u1"), lengths)

    def finish(self) -> None:
        """Raise ``FormatError`` if there are more bytes."""
        if self._at != len(self._bytes):
            raise FormatError(f"expected {self._at} bytes of columns, got {len(self._bytes)}")


def _compressed(columns: Sequence[Any]) -> bytes:
    size = sum(each.nbytes for each in columns)
    if size > MAX_COPIED_BYTES:
        raise InvalidInputError(
            f"the changes of a task must have at most {MAX_COPIED_BYTES} bytes of references and inline "
            f"chunks, got {size}. Divide the work into smaller tasks",
            ErrorKind.NOT_ALLOWED,
        )
    if not size:
        return b""
    stream = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj(size=size)
    frame = b"".join([*(stream.compress(each.data) for each in columns if each.nbytes), stream.flush()])
    if size > max(_FREE_BYTES, _MOST_RATIO * len(frame)):
        # Such columns are equal numbers or equal inline chunks. A skippable frame lets readers accept them.
        padding = size // _MOST_RATIO
        frame += b"\x50\x2a\x4d\x18" + padding.to_bytes(4, "little") + bytes(padding)
    return frame


# Several parts as one


def joined(parts: Sequence[bytes]) -> bytes:
    """Return parts as one: the length of each part, then all parts."""
    return b"".join([*map(_LENGTH.pack, map(len, parts)), *parts])


def split(data: bytes, count: int) -> list[bytes]:
    """Return the parts of ``joined``, or raise ``FormatError`` if there are not ``count`` parts."""
    start = _LENGTH.size * count
    if len(data) < start:
        raise FormatError(f"expected {count} parts, got {len(data)} bytes", ErrorKind.INVALID_FILE_FORMAT)
    out = []
    for (size,) in _LENGTH.iter_unpack(data[:start]):
        out.append(data[start : start + size])
        start += size
    if start != len(data):
        raise FormatError(f"expected {start} bytes, got {len(data)}", ErrorKind.INVALID_FILE_FORMAT)
    return out
