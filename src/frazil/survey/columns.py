"""The columns of a survey: objects of a folder, manifests of versions, files of manifests, uses by arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import batched
from operator import attrgetter
from typing import Final, Protocol, Self

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
    """Return each id once, sorted."""
    # Not `np.unique`, which imports masked arrays.
    keys = np.sort(id_keys(np.concatenate([no_ids(), *parts])))
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    ids: U8 = keys.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    return ids


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
    ids, sizes, modified = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "sizes", "modified")
    )
    return ObjectListing(folder, ids, sizes, modified).select_files(np.argsort(id_keys(ids), kind="stable"))


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
