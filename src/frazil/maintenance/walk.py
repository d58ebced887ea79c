"""Reads the metadata of many versions: each file once, several at a time, in limited memory.

``manifests_of`` and ``chunks_of`` are pieces of work. A worker in any process can do one with a storage and
an id, and returns columns.
"""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from frazil.errors import ErrorKind, StorageError
from frazil.format.columns import U8, U64, Ragged
from frazil.format.ids import id_list, id_matrix
from frazil.format.manifest import ChunkFiles
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.digests import DIGEST_BYTES, distinct_digests, id_digests
from frazil.maintenance.side_by_side import side_by_side
from frazil.maintenance.walk_columns import ManifestChunks, SnapshotManifests, each_once
from frazil.repository.catalog.files import (
    MANIFEST_CHUNK_FILES,
    SNAPSHOT_MANIFESTS,
    FileKind,
    HasId,
    small_parts,
)
from frazil.storage.base import Storage

#: Bytes of a decoded reference, for limits of memory.
_REFERENCE_BYTES: Final = 64
#: Number of manifests that are collected before duplicates are removed.
_GATHERED: Final = 1 << 15
#: The place of the number of a manifest above the bits of a digest, and these bits.
_OWNER: Final = np.uint64(8 * DIGEST_BYTES)
_DIGEST: Final = np.uint64((1 << 8 * DIGEST_BYTES) - 1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of concurrent reads: snapshots, bytes of manifests compressed and decoded, and requests."""

    snapshots: int = 50
    compressed_bytes: int = 512 << 20
    decoded_bytes: int = 4 << 30
    fetches: int = 500


def manifests_of(storage: Storage, snapshot: bytes) -> ManifestFiles:
    """Return the manifests of one snapshot: those in its list, and those that its nodes use."""
    return SNAPSHOT_MANIFESTS.read(storage, snapshot).files


def chunks_of(storage: Storage, manifest: bytes) -> U64:
    """Return the digests of the chunk files that one manifest refers to, sorted, uint64 (k,)."""
    return _digests(MANIFEST_CHUNK_FILES.read(storage, manifest))


def _digests(files: ChunkFiles) -> U64:
    return distinct_digests(id_digests(files.chunk_ids))


def _chunks(files: Sequence[ChunkFiles]) -> ManifestChunks:
    """Return the digests of a few manifests. One sort of all of them is faster than one for each."""
    if len(files) == 1:
        return ManifestChunks.of(files[0].id, _digests(files[0]))
    owners = np.repeat(np.arange(len(files), dtype=np.uint64), [len(each.chunk_ids) for each in files])
    digests = id_digests(np.concatenate([each.chunk_ids for each in files]))
    digests |= owners << _OWNER
    numbers = distinct_digests(digests)
    counts = np.bincount((numbers >> _OWNER).astype(np.int64), minlength=len(files))
    numbers &= _DIGEST
    return ManifestChunks(id_matrix([each.id for each in files]), Ragged.from_lengths(numbers, counts))


def over_manifests[R](manifests: ManifestFiles, work: Callable[[bytes], R], bounds: Bounds) -> Iterator[R]:
    """Call ``work`` for every manifest, with as many calls at a time as the bounds allow."""
    compressed = manifests.size_bytes / bounds.compressed_bytes
    decoded = (manifests.num_chunk_refs * float(_REFERENCE_BYTES)) / bounds.decoded_bytes
    weights = dict(zip(id_list(manifests.ids), np.maximum(compressed, decoded).tolist(), strict=True))
    return side_by_side(weights, work, bounds.fetches, weight=weights.__getitem__)


def read_manifests[T: HasId](
    storage: Storage, kind: FileKind[T], manifests: ManifestFiles, bounds: Bounds
) -> Iterator[list[T]]:
    """Yield the decoded content of every manifest. Small manifests are decoded together.

    Threads fetch the files, and the thread of the caller decodes them: several threads that decode wait for
    each other, because most steps need the lock of the interpreter. A local storage needs no threads.
    """

    def fetch(id_: bytes) -> tuple[bytes, Buffer]:
        return id_, storage.get(kind.key(id_))

    ids = id_list(manifests.ids)
    files = map(fetch, ids) if storage.is_local else over_manifests(manifests, fetch, bounds)
    for part in small_parts(files):
        yield from kind.decoded_together(part)


class Walk(Protocol):
    """Reads the metadata of many versions, in this process or in many."""

    def snapshots(self, storage: Storage, ids: U8, optional: U8) -> Iterator[SnapshotManifests]:
        """Return the manifests of snapshots, in parts."""

    def chunks(self, storage: Storage, manifests: ManifestFiles) -> Iterator[ManifestChunks]:
        """Return the digests of the chunk files of manifests, in parts."""


@dataclass(frozen=True, slots=True)
class LocalWalk:
    """Reads the metadata in this process, within bounds."""

    bounds: Bounds

    def snapshots(self, storage: Storage, ids: U8, optional: U8) -> Iterator[SnapshotManifests]:
        """Return the same as ``Walk.snapshots``, a few snapshots in each part."""
        needed = [(id_, False) for id_ in id_list(ids)]
        items = [*needed, *((id_, True) for id_ in id_list(optional))]

        def fetch(item: tuple[bytes, bool]) -> tuple[bytes, Buffer | None]:
            id_, may_miss = item
            try:
                return id_, storage.get(SNAPSHOT_MANIFESTS.key(id_))
            except StorageError as error:
                if not may_miss or error.kind != ErrorKind.OBJECT_NOT_FOUND:
                    raise
                return id_, None

        # Only this thread decodes. See ``read_manifests``.
        files = map(fetch, items) if storage.is_local else side_by_side(items, fetch, self.bounds.snapshots)
        present = ((id_, data) for id_, data in files if data is not None)
        for part in small_parts(present):
            for tables in SNAPSHOT_MANIFESTS.decoded_together(part):
                yield SnapshotManifests.of_many([each.id for each in tables], [each.files for each in tables])

    def chunks(self, storage: Storage, manifests: ManifestFiles) -> Iterator[ManifestChunks]:
        """Return the same as ``Walk.chunks``, a few manifests in each part."""
        for files in read_manifests(storage, MANIFEST_CHUNK_FILES, manifests, self.bounds):
            yield _chunks(files)


def all_manifests(storage: Storage, snapshots: U8, walk: Walk) -> ManifestFiles:
    """Return each manifest of many snapshots once."""
    files, parts, waiting = ManifestFiles.empty(), list[ManifestFiles](), 0
    for part in walk.snapshots(storage, snapshots, snapshots[:0]):
        parts.append(part.files)
        waiting += len(part.files)
        if waiting > max(len(files), _GATHERED):
            files, parts, waiting = each_once([files, *parts]), [], 0
    return each_once([files, *parts])
