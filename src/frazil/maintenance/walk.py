"""Reads the metadata of many versions: each file once, several at a time, in limited memory.

``manifests_of`` and ``chunks_of`` are pieces of work. A worker in any process can do one with a storage and
an id, and returns columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from frazil.errors import ErrorKind, StorageError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, id_list
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.listing import distinct
from frazil.repository.catalog.files import MANIFEST_CHUNK_FILES, SNAPSHOT
from frazil.storage.base import Storage
from frazil.threads import SIZES, Purpose, thread_pool

#: Bytes of a decoded reference, for limits of memory.
_REFERENCE_BYTES: Final = 64
#: Number of ids that are collected before duplicates are removed.
_GATHERED: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of concurrent reads: snapshots, bytes of manifests compressed and decoded, and requests."""

    snapshots: int = 50
    compressed_bytes: int = 512 << 20
    decoded_bytes: int = 4 << 30
    fetches: int = 500


def side_by_side[T, R](
    items: Iterable[T],
    work: Callable[[T], R],
    threads: int,
    weight: Callable[[T], float] = lambda item: 0.0,
) -> Iterator[R]:
    """Do the same as ``map``, on threads and in order.

    At most ``threads`` items run or wait at a time, and the sum of their weights is at most 1. An item with a
    larger weight runs alone.
    """
    with thread_pool(Purpose.COLLECTION_STEPS, min(threads, SIZES[Purpose.COLLECTION_STEPS])) as pool:
        running: deque[tuple[Future[R], float]] = deque()
        load = 0.0
        try:
            for item in items:
                heavy = weight(item)
                while running and (len(running) >= threads or load + heavy > 1):
                    done, lighter = running.popleft()
                    load -= lighter
                    yield done.result()
                running.append((pool.submit(work, item), heavy))
                load += heavy
            while running:
                yield running.popleft()[0].result()
        finally:
            for waiting, _ in running:
                waiting.cancel()


def manifests_of(storage: Storage, snapshot: bytes) -> ManifestFiles:
    """Return the manifests of one snapshot: those in its list, and those that its nodes use.

    Raises:
        StorageError: ``object-not-found`` if the file is missing.
        FormatError: The file is damaged.
    """
    decoded = SNAPSHOT.read(storage, snapshot)
    files = decoded.manifests
    unlisted = distinct([decoded.nodes.manifest_ids()])
    unlisted = unlisted[~np.isin(id_keys(unlisted), id_keys(files.ids))]
    if not len(unlisted):
        return files
    nothing = np.zeros(len(unlisted), np.int64)
    return ManifestFiles(
        np.concatenate([files.ids, unlisted]),
        np.concatenate([files.size_bytes, nothing.astype(np.uint64)]),
        np.concatenate([files.num_chunk_refs, nothing.astype(np.uint32)]),
    )


def all_manifests(storage: Storage, snapshots: U8, optional: U8, bounds: Bounds) -> ManifestFiles:
    """Return each manifest of many snapshots once. Files of ``optional`` snapshots may be missing."""

    def read(id_: bytes) -> ManifestFiles:
        return manifests_of(storage, id_)

    def read_optional(id_: bytes) -> ManifestFiles:
        try:
            return read(id_)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return ManifestFiles.empty()

    distinct_files = ManifestFiles.empty()
    parts: list[ManifestFiles] = []
    for ids, work in ((snapshots, read), (optional, read_optional)):
        for files in side_by_side(id_list(ids), work, bounds.snapshots):
            parts.append(files)
            if sum(map(len, parts)) > max(len(distinct_files), 100_000):
                distinct_files, parts = each_once([distinct_files, *parts]), []
    return each_once([distinct_files, *parts])


def each_once(parts: Sequence[ManifestFiles]) -> ManifestFiles:
    """Return each manifest of several tables once.

    Args:
        parts: Tables of manifests.

    Returns:
        One table, sorted by id.

    Examples:
        >>> len(each_once([ManifestFiles.empty()]))
        0
    """
    ids = np.concatenate([part.ids for part in parts])
    _, first = np.unique(id_keys(ids), return_index=True)
    return ManifestFiles(
        ids[first],
        np.concatenate([part.size_bytes for part in parts])[first],
        np.concatenate([part.num_chunk_refs for part in parts])[first],
    )


def chunks_of(storage: Storage, manifest: bytes) -> U8:
    """Return the chunk files that one manifest refers to, uint8 (k, 12).

    Raises:
        IcechunkError: The manifest cannot be read. To skip it would make its chunks garbage.
    """
    return distinct([MANIFEST_CHUNK_FILES.read(storage, manifest).chunk_ids])


def over_manifests[R](manifests: ManifestFiles, work: Callable[[bytes], R], bounds: Bounds) -> Iterator[R]:
    """Call ``work`` for every manifest, with as many calls at a time as the bounds allow."""
    compressed = manifests.size_bytes / bounds.compressed_bytes
    decoded = (manifests.num_chunk_refs * float(_REFERENCE_BYTES)) / bounds.decoded_bytes
    weights = dict(zip(id_list(manifests.ids), np.maximum(compressed, decoded).tolist(), strict=True))
    return side_by_side(weights, work, bounds.fetches, weights.__getitem__)


def all_chunks(storage: Storage, manifests: ManifestFiles, bounds: Bounds) -> U8:
    """Return each chunk file of many manifests once, sorted, uint8 (k, 12)."""
    distinct_ids, parts, gathered = np.zeros((0, OBJECT_ID_BYTES), np.uint8), list[U8](), 0
    for ids in over_manifests(manifests, lambda id_: chunks_of(storage, id_), bounds):
        parts.append(ids)
        gathered += len(ids)
        if gathered > max(len(distinct_ids), _GATHERED):
            distinct_ids, parts, gathered = distinct([distinct_ids, *parts]), [], 0
    return distinct([distinct_ids, *parts])


class Walk(Protocol):
    """Reads the metadata of many versions, in this process or in many.

    Examples:
        >>> from frazil.storage import in_memory_storage
        >>> walk, storage = LocalWalk(Bounds()), in_memory_storage()
        >>> no_ids = np.zeros((0, OBJECT_ID_BYTES), np.uint8)
        >>> files = walk.manifests(storage, no_ids, no_ids)
        >>> walk.chunks(storage, files).shape
        (0, 12)
    """

    def manifests(self, storage: Storage, snapshots: U8, optional: U8) -> ManifestFiles:
        """Return the same as ``all_manifests``.

        Args:
            storage: Storage of the repository.
            snapshots: Ids of snapshots, uint8 (n, 12).
            optional: Ids of snapshots whose files may be missing, uint8 (n, 12).

        Returns:
            Each manifest once.
        """

    def chunks(self, storage: Storage, manifests: ManifestFiles) -> U8:
        """Return the same as ``all_chunks``.

        Args:
            storage: Storage of the repository.
            manifests: Table of manifests.

        Returns:
            Ids of chunk files, uint8 (k, 12).
        """


@dataclass(frozen=True, slots=True)
class LocalWalk:
    """Reads the metadata in this process, within bounds."""

    bounds: Bounds

    def manifests(self, storage: Storage, snapshots: U8, optional: U8) -> ManifestFiles:
        """Return the same as ``all_manifests``, read by this process."""
        return all_manifests(storage, snapshots, optional, self.bounds)

    def chunks(self, storage: Storage, manifests: ManifestFiles) -> U8:
        """Return the same as ``all_chunks``, read by this process."""
        return all_chunks(storage, manifests, self.bounds)
