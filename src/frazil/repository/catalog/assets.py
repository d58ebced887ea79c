"""The assets of a repository: its files, decoded and cached.

All files except the repo info are immutable. The last repo info is cached for the next read of the same
bytes.

The configuration limits the caches by counts: nodes of snapshots, references of manifests. Here the limit is
a number of bytes: ``_NODE_BYTES`` for a node, ``_REFERENCE_BYTES`` for a reference. The weight of a file is
the number of bytes in its arrays and texts. The small Python objects of a file need memory too, so the weight
of a file is at least that of ``_LEAST_NODES`` or ``_LEAST_REFERENCES``. For example, a handle that makes
small commits for weeks caches 500 snapshots and 7,500 manifests, in some tens of MiB.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Buffer, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Lock, RLock
from typing import Any, Final

from frazil.errors import ErrorKind, StorageError
from frazil.format.manifest import Manifest
from frazil.format.metadata_items import MetadataColumn
from frazil.format.snapshot import Snapshot
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.cache_weights import held_bytes
from frazil.repository.catalog.files import LAZY_MANIFEST, SNAPSHOT, TRANSACTION_LOG, small_parts
from frazil.repository.catalog.repo_info_file import RepoInfoCache
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

_NODE_BYTES: Final = 1024
_LEAST_NODES: Final = 1_000
_REFERENCE_BYTES: Final = 64
_LEAST_REFERENCES: Final = 2_000


class DecodedCache[T]:
    """A cache of the values that were used last, up to a total weight in bytes.

    The newest value always stays. If several threads request a value at the same time, it is decoded once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._total = 0
        self._lock = Lock()
        self._making: dict[tuple[int, bytes], Future[T]] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def get_or_make(self, key: bytes, make: Callable[[], tuple[T, int]]) -> T:
        """Return the cached value, or call ``make`` for the value and its weight in bytes, and cache it."""
        # A forked child must not wait for threads that only its parent has.
        job = (os.getpid(), key)
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
            others = self._making.get(job)
            mine = self._making.setdefault(job, Future())
        if others is not None:
            return others.result()
        try:
            value, weight = make()
            self.store(key, value, weight)
            mine.set_result(value)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._making[job]
        return value

    def drop(self, key: bytes) -> None:
        """Remove a value from the cache."""
        with self._lock:
            _, weight = self._values.pop(key, (None, 0))
            self._total -= weight

    def store(self, key: bytes, value: T, weight: int) -> None:
        """Add a value with its weight in bytes, and remove the values that were not used for longest."""
        with self._lock:
            if key not in self._values:
                self._values[key] = (value, weight)
                self._total += weight
            while self._total > self._limit and len(self._values) > 1:
                _, (_, freed) = self._values.popitem(last=False)
                self._total -= freed


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The sizes of the caches: nodes of snapshots, references of manifests."""

    snapshot_nodes: int = 500_000
    chunk_refs: int = 15_000_000


class Assets:
    """The snapshots, manifests and transaction logs by id.

    Threads may share it. A pickled copy starts with empty caches.
    """

    def __init__(
        self, storage: Storage, limits: CacheLimits, repo_info_cache: RepoInfoCache | None = None
    ) -> None:
        self.storage = storage
        self.limits = limits
        self._snapshots: DecodedCache[Snapshot] = DecodedCache(limits.snapshot_nodes * _NODE_BYTES)
        self._manifests: DecodedCache[Manifest] = DecodedCache(limits.chunk_refs * _REFERENCE_BYTES)
        self.repo_info_cache = repo_info_cache or RepoInfoCache()
        #: A commit that is retried holds this lock. Otherwise the threads of one handle would make each
        #: other's commits late.
        self.retry_lock = RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Assets, (self.storage, self.limits))

    def snapshot(self, id_: bytes) -> Snapshot:
        """Return a snapshot.

        Raises ``StorageError`` (``object-not-found``) if there is no such file. It does not raise a
        ``KeyError``, because for zarr a store that raises one is empty.
        """

        def fetch() -> tuple[Snapshot, int]:
            snapshot = SNAPSHOT.read(self.storage, id_)
            return snapshot, _weight_of_snapshot(snapshot)

        return self._snapshots.get_or_make(id_, fetch)

    def forget_snapshot(self, id_: bytes) -> None:
        """Drop a snapshot from the cache, after an expiration in spec version 1 has rewritten its file."""
        self._snapshots.drop(id_)

    def manifest(self, id_: bytes) -> Manifest:
        """Return a manifest. Raises ``StorageError`` (``object-not-found``) if there is no such file."""

        def fetch() -> tuple[Manifest, int]:
            manifest = LAZY_MANIFEST.read(self.storage, id_)
            return manifest, _weight_of_manifest(manifest)

        return self._manifests.get_or_make(id_, fetch)

    def store_snapshot(self, snapshot: Snapshot) -> None:
        """Put a snapshot that was just written into the cache."""
        metadata = MetadataColumn.of([snapshot.metadata]).load(0)  # as a reader of the file gets it
        as_read = replace(snapshot, metadata=metadata)
        self._snapshots.store(snapshot.id, as_read, _weight_of_snapshot(as_read))

    def store_manifest(self, manifest: Manifest) -> None:
        """Put a manifest that was just written into the cache."""
        arrays = {node_id: table.compact() for node_id, table in manifest.arrays.items()}
        compact = Manifest(manifest.id, arrays)
        self._manifests.store(manifest.id, compact, _weight_of_manifest(compact))

    def has_manifest(self, id_: bytes) -> bool:
        """Return whether the manifest is in the cache."""
        return id_ in self._manifests

    def manifests(self, ids: list[bytes], threads: int) -> list[Manifest]:
        """Return several manifests. Threads fetch them in parallel."""
        return map_bounded(Purpose.CATALOG_READS, self.manifest, ids, threads)

    def transaction_log(self, snapshot_id: bytes) -> TransactionLog:
        """Return the transaction log of a snapshot.

        Raises ``StorageError`` (``object-not-found``) if it was deleted or never existed.
        """
        return TRANSACTION_LOG.read(self.storage, snapshot_id)

    def transaction_logs(self, snapshot_ids: Sequence[bytes]) -> list[TransactionLog | None]:
        """Return the transaction logs of many snapshots. A log that was deleted is None.

        Threads fetch the files, unless the storage is local. Small logs are decoded together.
        """

        def fetch(id_: bytes) -> tuple[bytes, Buffer | None]:
            try:
                return id_, self.storage.get(TRANSACTION_LOG.key(id_))
            except StorageError as error:
                if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                    raise
                return id_, None

        ids = list(snapshot_ids)
        is_threaded = not self.storage.is_local
        files = map_bounded(Purpose.CATALOG_READS, fetch, ids) if is_threaded else map(fetch, ids)
        by_id: dict[bytes, TransactionLog | None] = dict.fromkeys(ids)
        for part in small_parts((id_, data) for id_, data in files if data is not None):
            for logs in TRANSACTION_LOG.decoded_together(part):
                by_id.update((log.id, log) for log in logs)
        return [by_id[id_] for id_ in ids]


def _weight_of_snapshot(snapshot: Snapshot) -> int:
    return max(held_bytes(snapshot), _LEAST_NODES * _NODE_BYTES)


def _weight_of_manifest(manifest: Manifest) -> int:
    return max(held_bytes(manifest), _LEAST_REFERENCES * _REFERENCE_BYTES)
