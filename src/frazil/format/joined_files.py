"""Many small files, whose tables are read together: numpy takes as long for ten rows as for a thousand.

The payloads of several files are one buffer, and the tables of all files are one column of positions. Every
position is compared with the bounds of its own file, so a damaged file cannot read the bytes of another one.
This reader raises an error of ``IRREGULAR`` for everything that it cannot read fast, damage included. Then
the caller decodes each file alone, with all rules and with errors that name the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from frazil.errors import FormatError
from frazil.format.chunk_table import cut, in_order
from frazil.format.columns import I64, U8, U32, U64, Ragged, ranges, require, windows
from frazil.format.envelope import FileType, open_envelope, reading, spec_version_of
from frazil.format.flatbuffer import Buffer
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_list, id_order, ids_among
from frazil.format.manifest import ChunkKind, read_chunk_ids, read_columns, read_references
from frazil.format.snapshot import ManifestFiles, read_manifest_files, require_fields
from frazil.format.transaction_log import (
    CHUNK_COORDS,
    CHUNK_LISTS,
    ID_LIST_SLOTS,
    LOG_ID,
    LOG_MOVES,
    TransactionLog,
    require_lists,
)

_ALIGNMENT: Final = 8
#: The largest number of changes of the vtable from one table to the next, for each file.
_CHANGES: Final = 64
#: More than the number of slots of any table of the schema.
_SLOTS: Final = 16
_U2: Final = np.dtype("<u2")
_I4: Final = np.dtype("<i4")
_U4: Final = np.dtype("<u4")


@dataclass(frozen=True, slots=True, eq=False)
class JoinedFiles:
    """Payloads of k files, one after the other."""

    buffer: Buffer  # The bytes
    starts: I64  # The start of each payload, int64 (k,)
    stops: I64  # The end of each payload, int64 (k,)

    @classmethod
    def of(cls, payloads: Iterable[Any]) -> JoinedFiles:
        """Join payloads."""
        joined, starts, stops = bytearray(), list[int](), list[int]()
        for payload in payloads:
            starts.append(len(joined))
            joined += payload
            stops.append(len(joined))
            joined += bytes(-len(joined) % _ALIGNMENT)
        return cls(Buffer(joined), np.array(starts, np.int64), np.array(stops, np.int64))

    def roots(self) -> JoinedTables:
        """Return the root table of each file."""
        rows = FileRows.of(np.arange(len(self.starts)))
        self.require_inside(self.starts, self.starts + 4, rows)
        return JoinedTables.at(self, self.starts + self.buffer.gather(self.starts, _U4), rows)

    def require_inside(self, positions: I64, ends: I64, rows: FileRows) -> None:
        """Raise ``FormatError`` unless all bytes from each position to its end are inside of its file."""
        if not len(positions):
            return
        lowest = np.minimum.reduceat(positions, rows.firsts)
        highest = np.maximum.reduceat(ends, rows.firsts)
        if (lowest < self.starts[rows.owners]).any() or (highest > self.stops[rows.owners]).any():
            raise FormatError("a table leads out of its file")


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """The files of n rows, which are in the order of their files."""

    files: I64  # The number of the file of each row, int64 (n,)
    firsts: I64  # The first row of each file that has rows, int64 (m,)
    owners: I64  # The numbers of these files, int64 (m,)

    @classmethod
    def of(cls, files: I64) -> FileRows:
        """Return the rows with these numbers of files."""
        is_first = np.ones(len(files), np.bool_)
        np.not_equal(files[1:], files[:-1], out=is_first[1:])
        firsts = np.flatnonzero(is_first)
        return cls(files, firsts, files[firsts])


@dataclass(frozen=True, slots=True, eq=False)
class JoinedTables:
    """n tables of one type, in the order of their files."""

    joined: JoinedFiles  # The files
    positions: I64  # The position of each table, int64 (n,)
    rows: FileRows  # The files of the tables
    shapes: I64  # The number of the shape of each table, int64 (n,)
    #: The distance of each field from the start of a table, 0 where it is absent, int64 (shapes, slots)
    distances: I64

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def at(cls, joined: JoinedFiles, positions: I64, rows: FileRows) -> JoinedTables:
        """Return the tables at positions. Raise ``FormatError`` for too many shapes."""
        joined.require_inside(positions, positions + 4, rows)
        vtables = positions - joined.buffer.gather(positions, _I4)
        # Most tables have the vtable of the table before.
        is_first = np.ones(len(vtables), np.bool_)
        np.not_equal(vtables[1:], vtables[:-1], out=is_first[1:])
        firsts = np.flatnonzero(is_first)
        if len(firsts) > _CHANGES * len(joined.starts):
            raise FormatError("the tables have too many shapes")
        starts, owners = vtables[firsts], FileRows.of(rows.files[firsts])
        joined.require_inside(starts, starts + 4, owners)
        sizes = joined.buffer.gather(starts, _U2).astype(np.int64) & ~1
        joined.require_inside(starts, starts + sizes, owners)
        data = joined.buffer.bytes
        numbers_by_shape: dict[bytes, int] = {}
        numbers = [
            numbers_by_shape.setdefault(data[start + 4 : start + size].tobytes(), len(numbers_by_shape))
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
        slots = max(_SLOTS, *(len(shape) // 2 for shape in numbers_by_shape), 0)
        distances = np.zeros((max(1, len(numbers_by_shape)), slots), np.int64)
        for shape, number in numbers_by_shape.items():
            distances[number, : len(shape) // 2] = np.frombuffer(shape, _U2)
        counts = np.diff(firsts, append=len(positions))
        return cls(joined, positions, rows, np.repeat(np.array(numbers, np.int64), counts), distances)

    def take(self, chosen: NDArray[np.bool_]) -> JoinedTables:
        """Return some of the tables."""
        rows = FileRows.of(self.rows.files[chosen])
        return JoinedTables(self.joined, self.positions[chosen], rows, self.shapes[chosen], self.distances)

    def present(self, slot: int) -> NDArray[np.bool_]:
        """Return which of the tables have the field."""
        present: NDArray[np.bool_] = (self.distances[:, slot] > 0)[self.shapes]
        return present

    def all_have(self, slot: int) -> bool:
        """Return whether all tables have the field."""
        return bool(self.distances[:, slot].all()) or bool(self.present(slot).all())

    def scalars(self, slot: int, dtype: DTypeLike) -> NDArray[Any]:
        """Return a field that all tables have, shape (n,)."""
        if not self.all_have(slot):
            raise FormatError(f"some tables lack the field in slot {slot}")
        kind, column = np.dtype(dtype), self.distances[:, slot]
        places: I64 = self.positions + (column[0] if len(column) == 1 else column[self.shapes])
        self.joined.require_inside(places, places + kind.itemsize, self.rows)
        return self.joined.buffer.gather(places, kind)

    def structs(self, slot: int, width: int) -> U8:
        """Return a struct of bytes that all tables have, shape (n, width)."""
        return self.scalars(slot, f"V{width}").view(np.uint8).reshape(len(self), width)

    def targets(self, slot: int) -> I64:
        """Return the targets of an offset field that all tables have."""
        distances = self.scalars(slot, _U4)
        column = self.distances[:, slot]
        targets: I64 = self.positions + column[self.shapes] + distances
        return targets

    def tables(self, slot: int) -> JoinedTables:
        """Return the table of a field that all tables have."""
        return JoinedTables.at(self.joined, self.targets(slot), self.rows)

    def children(self, slot: int) -> tuple[JoinedTables, I64]:
        """Return all tables of a vector of tables, and the number of the tables of each parent."""
        starts, counts = self.vectors(slot, 4)
        places = ranges(starts, counts, 4)
        positions = places + self.joined.buffer.gather(places, _U4)
        rows = FileRows.of(np.repeat(self.rows.files, counts))
        return JoinedTables.at(self.joined, positions, rows), counts

    def vectors(self, slot: int, width: int) -> tuple[I64, I64]:
        """Return the starts and the numbers of the elements, of ``width`` bytes, of a vector that all have.

        Raises ``FormatError`` if vectors share so many bytes that all of them are larger than the files.
        """
        starts = self.targets(slot)
        self.joined.require_inside(starts, starts + 4, self.rows)
        counts = self.joined.buffer.gather(starts, _U4).astype(np.int64)
        self.joined.require_inside(starts, starts + 4 + counts * width, self.rows)
        if int(counts.sum()) * width > self.joined.buffer.size:
            raise FormatError("tables share vectors")
        return starts + 4, counts


#: Errors of files that cannot be read together.
IRREGULAR: Final = (FormatError, ValueError, IndexError, OverflowError, MemoryError)


#: The largest payload of a log that is read together with others.
_JOINED_BYTES: Final = 1 << 19
_NODE_ID, _CHUNKS = 0, 1


def decode_logs_together(files: Sequence[Any]) -> list[TransactionLog] | None:
    """Read some small transaction logs together."""
    try:
        payloads = (open_envelope(data, FileType.TRANSACTION_LOG, _JOINED_BYTES)[1] for data in files)
        roots = JoinedFiles.of(payloads).roots()
        require_lists(roots)
        moved = roots.present(LOG_MOVES)
        if moved.any() and roots.take(moved).vectors(LOG_MOVES, 4)[1].any():
            return None  # they are rare
        names = list(ID_LIST_SLOTS.values())
        lists = zip(*(_ids(roots, slot) for slot in ID_LIST_SLOTS), strict=True)
        chunks = _updated_chunks(roots)
        ids = id_list(roots.structs(LOG_ID, OBJECT_ID_BYTES))
        return [
            TransactionLog(id_, **dict(zip(names, columns, strict=True)), updated_chunks=updated)
            for id_, columns, updated in zip(ids, lists, chunks, strict=True)
        ]
    except IRREGULAR:
        return None


def _ids(roots: JoinedTables, slot: int) -> list[U8]:
    """Return the ids of nodes in a list of each log. Raise ``FormatError`` unless they ascend in each log."""
    starts, counts = roots.vectors(slot, NODE_ID_BYTES)
    if not counts.any():
        return [np.zeros((0, NODE_ID_BYTES), np.uint8)] * len(counts)
    words = windows(roots.joined.buffer.bytes, NODE_ID_BYTES)[ranges(starts, counts, NODE_ID_BYTES)]
    ends = np.cumsum(counts)
    numbers = words.view(">u8").astype(np.uint64)
    ascends = numbers[1:] > numbers[:-1]
    inner = ends[:-1]
    ascends[inner[(inner > 0) & (inner < len(numbers))] - 1] = True
    if not ascends.all():
        raise FormatError("the ids of a log are not sorted")
    matrix = words.view(np.uint8).reshape(-1, NODE_ID_BYTES)
    return list(map(matrix.__getitem__, map(slice, (ends - counts).tolist(), ends.tolist())))


def _updated_chunks(roots: JoinedTables) -> list[dict[bytes, U32]]:
    """Return the coordinates of the chunks that each log names, by the id of the array."""
    arrays, counts = roots.children(CHUNK_LISTS)
    if not len(arrays):
        return [{} for _ in range(len(roots))]
    nodes = id_list(arrays.structs(_NODE_ID, NODE_ID_BYTES))
    chunks, sizes = arrays.children(_CHUNKS)
    starts, ndims = chunks.vectors(CHUNK_COORDS, 4)
    firsts = np.cumsum(sizes) - sizes
    ranks = np.zeros(len(sizes), np.int64)
    ranks[sizes > 0] = ndims[firsts[sizes > 0]]
    if not np.array_equal(np.repeat(ranks, sizes), ndims):
        raise FormatError("chunks of one array with coordinates of different rank")
    numbers = roots.joined.buffer.gather(ranges(starts, ndims, 4), "<u4")
    ends = np.cumsum(ranks * sizes)
    coordinates = in_order(cut(numbers, ends - ranks * sizes, sizes, ranks))
    bounds = pairwise(accumulate(counts.tolist(), initial=0))
    return [dict(zip(nodes[low:high], coordinates[low:high], strict=True)) for low, high in bounds]


# Slots of a manifest, and of its references.
_ID, _LISTS, _DICTIONARY, _ALGORITHM = range(4)
_WITH_DICTIONARY: Final = 1
_OFFSET, _LENGTH, _CHUNK_ID, _COMPRESSED = 2, 3, 4, 8


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRanges:
    """The id of a manifest, and the ranges of its n references without their arrays and coordinates."""

    id: bytes  # The id of the manifest
    kind: U8  # The ``ChunkKind`` of each reference, uint8 (n,)
    source: U32  # The row of each reference in ``chunk_ids`` or ``locations``, uint32 (n,)
    offset: U64  # uint64 (n,), bytes. 0 for inline chunks
    length: U64  # uint64 (n,), bytes
    chunk_ids: U8  # Ids of chunk files, uint8 (k, 12), with repetitions
    locations: Ragged  # Locations of foreign objects, with repetitions


def decode_chunk_ranges(data: Any, name: str) -> ChunkRanges:
    """Read only the ranges of the chunks, faster than ``decode_manifest``."""
    with reading(name):
        root = Buffer(open_envelope(data, FileType.MANIFEST)[1]).root()
        _, refs, _ = read_references(root)
        whole = read_columns(root, refs)
        columns = whole.kind, whole.source, whole.offset, whole.length, whole.chunk_ids
        return ChunkRanges(root.structs(_ID, OBJECT_ID_BYTES).tobytes(), *columns, whole.foreign.locations)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkFiles:
    """The id of a manifest, and the ids of its chunk files, uint8 (k, 12), with repetitions."""

    id: bytes
    chunk_ids: U8


def decode_chunk_files(data: Any, name: str) -> ChunkFiles:
    """Read only the ids of the chunk files, much faster than ``decode_manifest``."""
    with reading(name):
        root = Buffer(open_envelope(data, FileType.MANIFEST)[1]).root()
        _, refs, _ = read_references(root)
        chunk_ids = read_chunk_ids(refs.take(refs.present(_CHUNK_ID)))[0]
        return ChunkFiles(root.structs(_ID, OBJECT_ID_BYTES).tobytes(), chunk_ids)


def stored_locations(data: Any, name: str) -> tuple[bool, int | None, int]:
    """Return how a manifest's file stores locations."""
    with reading(name):
        root = Buffer(open_envelope(data, FileType.MANIFEST)[1]).root()
        refs, _ = root.children(_LISTS)[0].children(_LISTS)
        has = bool(root.present(_DICTIONARY)[0])
        return (
            int(root.scalars(_ALGORITHM, "u1", _WITH_DICTIONARY)[0]) == _WITH_DICTIONARY,
            len(root.vectors(_DICTIONARY).bytes(0)) if has else None,
            int(np.count_nonzero(refs.present(_COMPRESSED))),
        )


def decode_chunk_files_together(files: Sequence[Any]) -> list[ChunkFiles] | None:
    """Read the ids of the chunk files of some small manifests together."""
    try:
        manifests, refs = _references(files)
        native = refs if refs.all_have(_CHUNK_ID) else refs.take(refs.present(_CHUNK_ID))
        ids, new = _chunk_ids(native)
    except IRREGULAR:
        return None
    bounds = _bounds(native.rows.files[new], len(manifests))
    return list(map(ChunkFiles, manifests, map((ids if new.all() else ids[new]).__getitem__, bounds)))


def decode_chunk_ranges_together(files: Sequence[Any]) -> list[ChunkRanges] | None:
    """Read the ranges of the chunks of some small manifests together, if all chunks are native."""
    try:
        manifests, refs = _references(files)
        ids, new = _chunk_ids(refs)
        columns = []
        for slot in (_OFFSET, _LENGTH):
            present = refs.present(slot)
            values = np.zeros(len(refs), "<u8")
            some = refs if present.all() else refs.take(present)
            values[present] = some.scalars(slot, "<u8")
            columns.append(values)
    except IRREGULAR:
        return None
    (offset, length), kind = columns, np.full(len(refs), ChunkKind.NATIVE, np.uint8)
    source = (np.cumsum(new) - 1).astype(np.uint32)
    chosen, nothing = ids if new.all() else ids[new], Ragged.empty()
    of_refs = _bounds(refs.rows.files, len(manifests))
    of_ids = _bounds(refs.rows.files[new], len(manifests))
    out = []
    for id_, rows, own in zip(manifests, of_refs, of_ids, strict=True):
        own_source = source[rows] - np.uint32(own.start)
        out.append(ChunkRanges(id_, kind[rows], own_source, offset[rows], length[rows], chosen[own], nothing))
    return out


def _references(files: Sequence[Any]) -> tuple[list[bytes], JoinedTables]:
    """Return the ids of some manifests, and all their references."""
    payloads = (open_envelope(data, FileType.MANIFEST, _JOINED_BYTES)[1] for data in files)
    roots = JoinedFiles.of(payloads).roots()
    return id_list(roots.structs(_ID, OBJECT_ID_BYTES)), read_references(roots)[1]


def _chunk_ids(refs: JoinedTables) -> tuple[U8, NDArray[np.bool_]]:
    """Return the ids of chunk files, and which differ from the id before in the same manifest."""
    ids, files = refs.structs(_CHUNK_ID, OBJECT_ID_BYTES), refs.rows.files
    words = np.ascontiguousarray(ids).view(np.uint32)
    new = np.ones(len(ids), np.bool_)
    np.not_equal(words[1:, 0], words[:-1, 0], out=new[1:])
    if not new.all():
        for column in words.T[1:]:
            new[1:] |= column[1:] != column[:-1]
        new[1:] |= files[1:] != files[:-1]
    return ids, new


def _bounds(files: I64, count: int) -> list[slice]:
    """Return the rows of each of ``count`` files. ``files`` is sorted."""
    stops = np.searchsorted(files, np.arange(count), "right").tolist()
    return list(map(slice, [0, *stops[:-1]], stops))


_REQUIRED: Final = "snapshot-required"
_KIND, _DATA = 3, 4
_ARRAY: Final = 1
#: The spec version of snapshots that are read together.
_JOINED_VERSION: Final = 2
_FILE_BITS: Final = 6
#: The largest number of snapshots that are read together.
MOST_JOINED: Final = 1 << _FILE_BITS


@dataclass(frozen=True, slots=True, eq=False)
class ManifestsOfSnapshot:
    """The id of a snapshot, and its manifests, each once, sorted by id."""

    id: bytes
    files: ManifestFiles


def decode_manifests_of_snapshot(data: Any, name: str) -> ManifestsOfSnapshot:
    """Read only the manifests of a snapshot, much faster than ``decode_snapshot``."""
    with reading(name):
        header, payload = open_envelope(data, FileType.SNAPSHOT)
        root = Buffer(payload).root()
        require_fields(root)
        files = read_manifest_files(root, header.spec_version).sorted()
        nodes, _ = root.children(2)
        require(nodes, "node", _REQUIRED, node_type=_KIND, node_data=_DATA)
        arrays, _ = nodes.take(nodes.scalars(_KIND, np.uint8) == _ARRAY).tables(_DATA)
        require(arrays, "array", _REQUIRED, manifests=2)
        refs, _ = arrays.children(2)
        require(refs, "manifest reference", _REQUIRED, object_id=0)
        used = refs.structs(0, OBJECT_ID_BYTES)
        files = files.distinct()
        # Mostly, the arrays use each listed manifest once. Then a sort is enough, and no search is needed.
        is_listed = len(used) == len(files) and np.array_equal(used[id_order(used)], files.ids)
        unlisted = used[:0] if is_listed else used[~ids_among(used, files.ids)]
        if len(unlisted):
            unknown = ManifestFiles(
                np.concatenate([files.ids, unlisted]),
                np.append(files.size_bytes, np.zeros(len(unlisted), np.uint64)),
                np.append(files.num_chunk_refs, np.zeros(len(unlisted), np.uint32)),
            )
            files = unknown.sorted().distinct()
        return ManifestsOfSnapshot(root.structs(0, OBJECT_ID_BYTES).tobytes(), files)


def decode_manifests_of_snapshots(files: Sequence[Any]) -> list[ManifestsOfSnapshot] | None:
    """Read the manifests of some small snapshots together."""
    try:
        if any(spec_version_of(data) != _JOINED_VERSION for data in files):
            return None
        payloads = (open_envelope(data, FileType.SNAPSHOT, _JOINED_BYTES)[1] for data in files)
        roots = JoinedFiles.of(payloads).roots()
        require_fields(roots)
        listed, counts = roots.children(7)
        ids = listed.structs(0, OBJECT_ID_BYTES)
        sizes, references = listed.scalars(1, "<u8"), listed.scalars(2, "<u4")
        nodes, _ = roots.children(2)
        require(nodes, "node", _REQUIRED, node_data=_DATA)
        arrays = nodes.take(nodes.scalars(_KIND, np.uint8) == _ARRAY).tables(_DATA)
        refs, _ = arrays.children(2)
        if not _same_ids(ids, listed.rows.files, refs.structs(0, OBJECT_ID_BYTES), refs.rows.files):
            return None
    except IRREGULAR:
        return None
    table = ManifestFiles(ids, sizes, references)
    stops = np.cumsum(counts)
    names = map(bytes, roots.structs(0, OBJECT_ID_BYTES))
    bounds = zip(names, (stops - counts).tolist(), stops.tolist(), strict=True)
    return [
        ManifestsOfSnapshot(name, table.select_manifests(slice(start, stop))) for name, start, stop in bounds
    ]


def _same_ids(listed: U8, files: I64, used: U8, users: I64) -> bool:
    """Return whether all lists are sorted, and the arrays of each file use exactly its list."""
    keys = _keys(listed, files)
    if not (keys[1:] > keys[:-1]).all():
        return False
    order = np.argsort(_keys(used, users))
    used, users = used[order], users[order]
    if len(used) > len(listed):  # arrays share manifests
        new = np.ones(len(used), np.bool_)
        np.not_equal(users[1:], users[:-1], out=new[1:])
        new[1:] |= (used[1:] != used[:-1]).any(axis=1)
        used, users = used[new], users[new]
    return np.array_equal(users, files) and np.array_equal(used, listed)


def _keys(ids: U8, files: I64) -> U64:
    """Return numbers that sort by the file, then by the first 58 bits of the id."""
    words = ids.view(">u4").reshape(len(ids), 3)
    keys: U64 = words[:, 0].astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= words[:, 1]
    keys >>= np.uint64(_FILE_BITS)
    keys |= files.astype(np.uint64) << np.uint64(64 - _FILE_BITS)
    return keys
