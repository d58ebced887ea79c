"""The columns of a survey: objects of a folder, manifests of versions, files of manifests, uses by arrays.

Digests are sets of files and of ranges in limited memory. A digest of an id has 48 bits. Two ids may have
the same digest: then a garbage collection treats them as the same file, and spares it. It never deletes a
file because of a digest. A digest of a range has 64 bits. With a billion ranges, one repository in forty has
two ranges with the same digest, and misses one in its statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import batched
from operator import attrgetter, methodcaller
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U8, U32, U64, Ragged
from frazil.format.ids import (
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    id_keys,
    id_matrix,
    ids_among,
    ids_from_text,
    ids_to_text,
)
from frazil.format.joined_files import ChunkRanges
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.storage.base import Storage

#: The number of objects of a listing that are in memory as objects of Python, with 500 bytes each.
_BATCH: Final = 1024


def no_ids() -> U8:
    """Return no ids, uint8 (0, 12)."""
    return np.zeros((0, OBJECT_ID_BYTES), np.uint8)


#: Returns which of the ids, (n, 12), are among others. bool (n,).
among: Final = ids_among


def distinct(parts: Sequence[U8]) -> U8:
    """Return each id once, sorted: of files, or of nodes."""
    # Not `np.unique`, which imports masked arrays.
    ids = np.concatenate(parts) if parts else no_ids()
    keys = np.sort(id_keys(ids))
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    out: U8 = keys.view(np.uint8).reshape(-1, ids.shape[1])
    return out


# Objects of a folder


class ObjectColumns(Protocol):
    """Objects that can be deleted: their keys, and their sizes in bytes, int64."""

    @property
    def sizes(self) -> I64:
        """Sizes in bytes, int64 (n,)."""

    @property
    def modified(self) -> I64:
        """Times of the last modification, int64 (n,), microseconds since 1970."""

    def keys(self) -> list[str]:
        """Return the keys of the objects."""

    def part(self, start: int, stop: int) -> Self:
        """Return the rows from ``start`` to ``stop``."""


@dataclass(frozen=True, slots=True, eq=False)
class ObjectListing:
    """Objects of one folder whose names are ids, n rows, sorted by id.

    Sizes are in bytes. ``modified`` is in microseconds since 1970, by the storage's clock.
    """

    folder: str
    ids: U8
    sizes: I64
    modified: I64

    def __len__(self) -> int:
        return len(self.sizes)

    def select_files(self, rows: NDArray[np.bool_] | I64 | slice) -> ObjectListing:
        """Return a part of the objects."""
        return ObjectListing(self.folder, self.ids[rows], self.sizes[rows], self.modified[rows])

    def part(self, start: int, stop: int) -> ObjectListing:
        """Return some of the objects, which share the columns."""
        return self.select_files(slice(start, stop))

    def keys(self) -> list[str]:
        """Return the keys of the objects."""
        return [f"{self.folder}/{name}" for name in ids_to_text(self.ids)]

    def find_sizes(self, ids: U8) -> tuple[I64, NDArray[np.bool_]]:
        """Return the size of each file, 0 for a missing one, and which files are listed."""
        is_listed = among(ids, self.ids)
        sizes = np.zeros(len(ids), np.int64)
        sizes[is_listed] = self.sizes[id_keys(self.ids).searchsorted(id_keys(ids[is_listed]))]
        return sizes, is_listed


def list_objects(
    storage: Storage, folder: str, before: int | None = None, *, others: Callable[[list[str]], object] = len
) -> ObjectListing:
    """Return the objects in ``folder``. With ``before``, only objects that were modified before this time."""
    nothing = np.zeros(0, np.int64)
    parts = [ObjectListing(folder, no_ids(), nothing, nothing)]
    for objects in batched(storage.list(folder), _BATCH):
        names = [each.key[len(folder) + 1 :] for each in objects]
        ids, named = ids_from_text(names)
        if not named.all():
            others([names[row] for row in np.flatnonzero(~named).tolist()])
        sizes = np.fromiter(map(attrgetter("size"), objects), np.int64, len(objects))[named]
        modified = microseconds(map(attrgetter("modified"), objects), len(objects))[named]
        part = ObjectListing(folder, ids, sizes, modified)
        parts.append(part if before is None else part.select_files(part.modified < before))
    ids, sizes, modified = joined_columns(parts, "ids", "sizes", "modified")
    return ObjectListing(folder, ids, sizes, modified).select_files(np.argsort(id_keys(ids), kind="stable"))


def joined_columns(parts: Sequence[object], *names: str) -> list[Any]:
    """Return columns of several tables, one after the other."""
    return [np.concatenate([getattr(part, name) for part in parts]) for name in names]


def microseconds(times: Iterable[datetime], count: int = -1) -> I64:
    """Return times as microseconds since 1970."""
    seconds = np.fromiter(map(datetime.timestamp, times), np.float64, count)
    return np.rint(seconds * 1e6).astype(np.int64)


# Manifests of versions


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotManifests:
    """The manifests of s snapshots.

    ``ids`` are those of the snapshots. ``files`` has each manifest once, sorted by id. ``rows`` are the rows
    in ``files`` for each snapshot, uint32.
    """

    ids: U8
    files: ManifestFiles
    rows: Ragged

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def empty(cls) -> SnapshotManifests:
        """Return a table without snapshots."""
        return cls(no_ids(), ManifestFiles.empty(), Ragged.empty(0, np.uint32))

    @classmethod
    def of_many(cls, snapshots: list[bytes], files: Sequence[ManifestFiles]) -> SnapshotManifests:
        """Return the table of some snapshots."""
        once, numbers = ManifestFiles.numbered([ManifestFiles.empty(), *files])
        lengths = np.array(list(map(len, files)), np.int64)
        return cls(id_matrix(snapshots), once, Ragged.from_lengths(numbers, lengths))

    @staticmethod
    def concat(parts: Sequence[SnapshotManifests]) -> SnapshotManifests:
        """Return one table for several tables."""
        if len(parts) == 1:
            return parts[0]
        whole = SnapshotManifests.empty()
        files, numbers = ManifestFiles.numbered([whole.files, *(part.files for part in parts)])
        rows = [whole.rows]
        start = 0
        for part in parts:
            places = numbers[start : start + len(part.files)]
            start += len(part.files)
            rows.append(Ragged.from_lengths(places[part.rows.compact().values], part.rows.lengths))
        return SnapshotManifests(
            np.concatenate([whole.ids, *(part.ids for part in parts)]), files, Ragged.concat(rows)
        )

    def select(self, keep: NDArray[np.bool_]) -> SnapshotManifests:
        """Return some of the snapshots, with only their manifests."""
        if keep.all():
            return self
        rows = self.rows.take(keep).compact()
        used, places = np.unique(rows.values, return_inverse=True)
        files = self.files.select_manifests(used.astype(np.int64))
        return SnapshotManifests(
            self.ids[keep], files, Ragged.from_lengths(places.astype(np.uint32), rows.lengths)
        )

    def users(self, manifests: U8) -> U8:
        """Return the ids of the snapshots that have one of the manifests, in their order."""
        used = among(self.files.ids, manifests)[self.rows.compact().values]
        owners = np.repeat(np.arange(len(self)), self.rows.lengths)
        users: U8 = self.ids[np.unique(owners[used])]
        return users


@dataclass(frozen=True, slots=True, eq=False)
class ManifestUses:
    """The uses of manifests by arrays of versions, k rows, sorted by manifest.

    ``extents`` has pairs (from, to), uint32. ``snapshots`` has one snapshot with each use, (k, 12).
    """

    manifests: U8
    nodes: U8
    extents: Ragged
    snapshots: U8

    @staticmethod
    def of(snapshot: Snapshot) -> ManifestUses:
        """Return the uses of one snapshot."""
        nodes = snapshot.nodes.whole()
        owners = np.repeat(np.arange(len(nodes)), nodes.manifests.lengths)
        ids = nodes.manifests.compact().values.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
        extents = Ragged.from_lengths(nodes.extents.compact().values, 2 * nodes.array_length.lengths[owners])
        snapshots = np.tile(np.frombuffer(snapshot.id, np.uint8), (len(owners), 1))
        return ManifestUses.union([ManifestUses(ids, nodes.ids[owners], extents, snapshots)])

    @staticmethod
    def union(parts: Sequence[ManifestUses]) -> ManifestUses:
        """Return each pair of manifest and array once, with its first extents."""
        manifests = np.concatenate([no_ids(), *(part.manifests for part in parts)])
        no_nodes = np.zeros((0, NODE_ID_BYTES), np.uint8)
        nodes = np.concatenate([no_nodes, *(part.nodes for part in parts)])
        extents = Ragged.concat([Ragged.empty(0, np.uint32), *(part.extents for part in parts)])
        snapshots = np.concatenate([no_ids(), *(part.snapshots for part in parts)])
        _, first = np.unique(id_keys(np.concatenate([manifests, nodes], axis=1)), return_index=True)
        return ManifestUses(manifests[first], nodes[first], extents.take(first), snapshots[first])

    def rows_of(self, manifest: bytes) -> list[int]:
        """Return the rows of a manifest."""
        keys = id_keys(self.manifests)
        key = np.frombuffer(manifest, keys.dtype)
        return list(range(*(int(keys.searchsorted(key, side)[0]) for side in ("left", "right"))))

    def snapshots_of(self, manifest: bytes) -> dict[bytes, bytes]:
        """Return the arrays that refer to a manifest, each with a snapshot that has it."""
        return {self.nodes[row].tobytes(): self.snapshots[row].tobytes() for row in self.rows_of(manifest)}

    def boxes_of(self, manifest: bytes) -> list[tuple[bytes, U32]]:
        """Return the arrays that refer to a manifest, with the box of each, (ndim, 2)."""
        rows = self.rows_of(manifest)
        return [(self.nodes[row].tobytes(), self.extents.row(row).reshape(-1, 2)) for row in rows]


# Chunk files of manifests


@dataclass(frozen=True, slots=True, eq=False)
class ManifestChunks:
    """The chunk files of m manifests: for each manifest the digests of its files, sorted, uint64."""

    ids: U8
    digests: Ragged

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def empty(cls) -> ManifestChunks:
        """Return a table without manifests."""
        return cls(no_ids(), Ragged.empty(0, np.uint64))

    @staticmethod
    def concat(parts: Iterable[ManifestChunks], expected: int = 0) -> ManifestChunks:
        """Return one table for several tables."""
        # Memory that was never written takes no space.
        values, held = np.empty(expected, np.uint64), 0
        ids, lengths = [no_ids()], [np.zeros(0, np.int64)]
        for part in parts:
            digests = part.digests.compact()
            stop = held + len(digests.values)
            if stop > len(values):
                values = np.concatenate([values[:held], np.empty(stop, np.uint64)])
            values[held:stop] = digests.values
            held = stop
            ids.append(part.ids)
            lengths.append(digests.lengths)
        return ManifestChunks(
            np.concatenate(ids), Ragged.from_lengths(values[:held], np.concatenate(lengths))
        )

    def select(self, keep: NDArray[np.bool_]) -> ManifestChunks:
        """Return some of the manifests."""
        return self if keep.all() else ManifestChunks(self.ids[keep], self.digests.take(keep).compact())


@dataclass(frozen=True, slots=True, eq=False)
class FileUses:
    """The chunk files that references use, k rows, sorted by id: the end of the last used byte of each."""

    ids: U8
    ends: U64

    def __len__(self) -> int:
        return len(self.ids)

    @staticmethod
    def of(tables: Iterable[ChunkTable | ChunkRanges]) -> FileUses:
        """Return the uses by the references of some tables, such as those of a manifest."""
        pairs = [(table, *ends_of(table, ChunkKind.NATIVE, len(table.chunk_ids))) for table in tables]
        return FileUses.union([FileUses(table.chunk_ids[used], ends) for table, used, ends in pairs])

    @staticmethod
    def union(parts: Sequence[FileUses]) -> FileUses:
        """Return each file once, with its largest end."""
        ids = np.concatenate([no_ids(), *(part.ids for part in parts)])
        ends = np.concatenate([np.zeros(0, np.uint64), *(part.ends for part in parts)])
        once, code = np.unique(id_keys(ids), return_inverse=True)
        most = np.zeros(len(once), np.uint64)
        np.maximum.at(most, code, ends)
        return FileUses(once.view(np.uint8).reshape(-1, OBJECT_ID_BYTES), most)

    def select_files(self, rows: NDArray[np.bool_]) -> FileUses:
        """Return some of the files."""
        return FileUses(self.ids[rows], self.ends[rows])


def ends_of(table: ChunkTable | ChunkRanges, kind: ChunkKind, count: int) -> tuple[I64, U64]:
    """Return the used sources of a kind, and the end of the last used byte of each."""
    rows = table.kind == kind
    ends = np.zeros(count, np.uint64)
    source = table.source[rows]
    np.maximum.at(ends, source, table.offset[rows] + table.length[rows])
    used = np.zeros(count, bool)
    used[source] = True
    return np.flatnonzero(used), ends[used]


# Digests of ids and ranges

DIGEST_BYTES: Final = 6

#: The number of first bits of a digest that are compared before the whole digest.
_START_BITS: Final = 20

_HALF: Final = np.uint64(32)
_DROPPED_BITS: Final = np.uint64(64 - 8 * DIGEST_BYTES)
_MIX: Final = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))
_STEPS: Final = ((np.uint64(30), _MIX[1]), (np.uint64(27), _MIX[2]))

#: The number of parts of a block of ranges, by the first bits of the digests. Equal digests are in the same
#: part, so each part is sorted by itself. One sort of all ranges would need several copies of the columns.
_PARTS: Final = 64
_SHIFT: Final = np.uint64(58)
#: The number of ranges of a block, and of ranges that wait until repetitions are removed.
_BLOCK: Final = 1 << 17
_GATHERED: Final = 1 << 23
_LARGEST_SHORT: Final = np.iinfo(np.uint32).max


def _mixed(one: U64, other: U64) -> U64:
    """Return a number for each pair of numbers (the last steps of splitmix64)."""
    out = one * _MIX[0]
    out += other
    for shift, factor in _STEPS:
        out ^= out >> shift
        out *= factor
    out ^= out >> np.uint64(31)
    return out


def _words(ids: U8) -> tuple[U64, U64]:
    """Return the first 8 and the last 4 bytes of ids as numbers."""
    parts = np.ascontiguousarray(ids).view("<u4").reshape(len(ids), OBJECT_ID_BYTES // 4)
    first = parts[:, 1].astype(np.uint64)
    first <<= _HALF
    first |= parts[:, 0]
    return first, parts[:, 2].astype(np.uint64)


def id_digests(ids: U8) -> U64:
    """Return the digests of ids."""
    digests: U64 = _mixed(*_words(ids))
    digests >>= _DROPPED_BITS
    return digests


def distinct_digests(digests: U64) -> U64:
    """Return each number once, sorted. ``np.unique`` uses a hash table, which takes three times as long."""
    numbers: U64 = np.sort(digests)
    new = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=new[1:])
    return numbers if new.all() else numbers[new]


def _starts(digests: U64) -> I64:
    return (digests >> np.uint64(8 * DIGEST_BYTES - _START_BITS)).view(np.int64)


class Marks:
    """Marks on the files of a list, by the digests of their ids. Memory: 17 bytes for each, and 1 MiB."""

    __slots__ = ("_digests", "_marked", "_order", "_starts")

    def __init__(self, ids: U8) -> None:
        digests = id_digests(ids)
        self._order: I64 = np.argsort(digests, kind="stable")
        self._digests = digests[self._order]
        self._marked: NDArray[np.bool_] = np.zeros(len(ids), bool)
        #: The first bits that digests of the files have: most digests of others fail this fast test.
        self._starts: NDArray[np.bool_] = np.zeros(1 << _START_BITS, bool)
        self._starts[_starts(digests)] = True

    def __len__(self) -> int:
        return len(self._digests)

    def mark(self, digests: U64) -> None:
        """Mark the files with these digests."""
        if len(self._digests) < len(self._starts):
            digests = digests[self._starts[_starts(digests)]]
        if len(self._digests) and len(digests):
            places = np.minimum(np.searchsorted(self._digests, digests), len(self._digests) - 1)
            self._marked[places[self._digests[places] == digests]] = True

    def rows(self) -> NDArray[np.bool_]:
        """Return which files are marked. Of files with equal digests, all are marked or none."""
        marked = self._marked
        starts = np.flatnonzero(np.append(True, self._digests[1:] != self._digests[:-1]))
        if 0 < len(starts) < len(marked):
            runs = np.logical_or.reduceat(marked, starts)
            marked = np.repeat(runs, np.diff(np.append(starts, len(marked))))
        rows = np.empty(len(marked), bool)
        rows[self._order] = marked
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges of chunk files or foreign objects: digests, uint64 (k,), and lengths, uint32 or uint64."""

    digests: U64
    lengths: NDArray[Any]

    def __len__(self) -> int:
        return len(self.digests)

    @classmethod
    def of(cls, digests: U64, lengths: U64) -> Ranges:
        """Return ranges with short lengths where possible."""
        is_short = not len(lengths) or int(lengths.max()) <= _LARGEST_SHORT
        return cls(digests, lengths.astype(np.uint32) if is_short else lengths)

    @classmethod
    def concat(cls, parts: Sequence[Ranges]) -> Ranges:
        """Return the ranges of all parts."""
        digests = [np.zeros(0, np.uint64), *(part.digests for part in parts)]
        lengths = [np.zeros(0, np.uint32), *(part.lengths for part in parts)]
        return cls(np.concatenate(digests), np.concatenate(lengths))

    def distinct(self) -> Ranges:
        """Return each range once."""
        # A sort of numbers is three times as fast as their order, and most manifests share no ranges.
        numbers = np.sort(self.digests)
        if not (numbers[1:] == numbers[:-1]).any():
            return self
        order = np.argsort(self.digests)
        numbers = self.digests[order]
        first = order[np.append(True, numbers[1:] != numbers[:-1])]
        return Ranges(self.digests[first], self.lengths[first])

    def split(self) -> list[Ranges]:
        """Return the parts of a block, by the first bits of the digests."""
        numbers = (self.digests >> _SHIFT).astype(np.uint8)
        order = np.argsort(numbers, kind="stable")
        digests, lengths = self.digests[order], self.lengths[order]
        stops = np.cumsum(np.bincount(numbers, minlength=_PARTS)).tolist()
        rows = map(slice, [0, *stops[:-1]], stops)
        return [Ranges(digests[part], lengths[part]) for part in rows]


class DistinctRanges:
    """Sums up the lengths of distinct ranges. Memory: 12 bytes for each distinct one."""

    __slots__ = ("_blocks", "_gathered", "_held", "_settled", "_waiting")

    def __init__(self) -> None:
        self._gathered: list[Ranges] = []
        self._waiting = 0
        self._blocks: list[list[Ranges]] = []
        self._held = 0
        self._settled = 0

    def add(self, ranges: Ranges) -> None:
        """Add ranges."""
        self._gathered.append(ranges)
        self._waiting += len(ranges)
        if self._waiting >= _BLOCK:
            self._pack()
            if self._held > max(2 * self._settled, _GATHERED):
                self._blocks = [[part.distinct() for part in self._parts()]]
                self._held = self._settled = sum(map(len, self._blocks[0]))

    def length(self) -> int:
        """Return the total length of the distinct ranges."""
        self._pack()
        return sum(int(part.distinct().lengths.sum(dtype=np.uint64)) for part in self._parts())

    def _pack(self) -> None:
        block = Ranges.concat(self._gathered)
        self._gathered, self._waiting = [], 0
        self._blocks.append(block.split())
        self._held += len(block)

    def _parts(self) -> map[Ranges]:
        return map(Ranges.concat, zip(*self._blocks, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class RangeSums:
    """The content of some manifests: ranges of chunk files, ranges of foreign objects, and inline bytes."""

    native: Ranges
    virtual: Ranges
    inline: int

    @classmethod
    def of(cls, tables: Sequence[ChunkRanges]) -> RangeSums:
        """Return the content of some tables of references."""
        hashed, digest = partial(blake2b, digest_size=OBJECT_ID_BYTES), methodcaller("digest")
        locations = [b"".join(map(digest, map(hashed, table.locations.blobs()))) for table in tables]
        ids = [np.frombuffer(each, np.uint8).reshape(-1, OBJECT_ID_BYTES) for each in locations]
        return cls(
            _ranges(tables, ChunkKind.NATIVE, [table.chunk_ids for table in tables]),
            _ranges(tables, ChunkKind.VIRTUAL, ids),
            sum(int(table.length[table.kind == ChunkKind.INLINE].sum()) for table in tables),
        )


def _ranges(tables: Sequence[ChunkRanges], kind: ChunkKind, ids: Sequence[U8]) -> Ranges:
    rows = [table.kind == kind for table in tables]
    pairs = [(table, np.s_[:] if at.all() else at) for table, at in zip(tables, rows, strict=True)]
    firsts = np.cumsum([0, *map(len, ids)]).astype(np.uint32)
    sources = [table.source[at] + first for (table, at), first in zip(pairs, firsts, strict=False)]
    offset, length = (
        _joined([getattr(table, name)[at] for table, at in pairs]) for name in ("offset", "length")
    )
    numbers = _mixed(*_words(_joined(ids)))[_joined(sources)]
    return Ranges.of(_mixed(_mixed(numbers, offset), length), length)


def _joined(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
