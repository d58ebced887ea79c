"""The assets of a repository: its files, decoded and cached.

All files except the repo info are immutable. The configuration limits the caches by counts of nodes and
references, which count as ``_NODE_BYTES`` and ``_REFERENCE_BYTES``. A read compares the id in a file with its
name, because a restore, a copy or a cache may put a file under the name of another file.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Buffer, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, partial
from itertools import batched
from threading import Lock, RLock
from typing import Any, Final, Protocol

import numpy as np

from frazil.errors import FormatError
from frazil.format.chunk_statistics import ChunkStatistics
from frazil.format.envelope import Violation, decode_one, reading
from frazil.format.flexbuffer import MetadataColumn
from frazil.format.ids import (
    id_to_text,
    manifest_key,
    snapshot_key,
    statistics_key,
    transaction_key,
    transaction_keys,
)
from frazil.format.joined_files import (
    MOST_JOINED,
    ChunkFiles,
    ChunkRanges,
    ManifestsOfSnapshot,
    decode_chunk_files,
    decode_chunk_ranges,
    decode_manifests_of_snapshots,
)
from frazil.format.manifest import Manifest, decode_manifest, decode_manifests, open_manifest
from frazil.format.snapshot import Snapshot, SnapshotEntry, decode_entry, decode_snapshot, open_snapshot
from frazil.format.statistics_file import decode_statistics
from frazil.format.transaction_log import TransactionLog, decode_transaction_log, decode_transaction_logs
from frazil.repository.catalog.repo_update import RepoInfoCache
from frazil.storage.base import Storage
from frazil.storage.checks import skip_missing
from frazil.threads import Purpose, map_bounded

_log: Final = logging.getLogger(__name__)


@cache
def _names(cls: Any) -> list[str]:
    return [each.name for each in fields(cls)]


def held_bytes(value: object) -> int:
    """Return the number of bytes of the arrays and texts in a value of dataclasses and mappings.

    Many columns are views of one decompressed file. The file counts once, as a whole. The overhead of Python
    objects is not counted, and neither are fields that are not decoded yet.
    """
    buffers: dict[int, int] = {}
    pending: list[Any] = [value]
    total = 0
    while pending:
        each = pending.pop()
        kind = each.__class__  # comparisons of classes, and of no subclasses, are fast
        if kind is np.ndarray:
            owner: Any = each  # the object that owns the memory
            while owner.__class__ is np.ndarray and owner.base is not None:
                owner = owner.base
            if isinstance(owner, memoryview):
                owner = owner.obj
            is_array = isinstance(owner, np.ndarray)
            buffers[id(owner)] = owner.nbytes if is_array else memoryview(owner).nbytes
        elif kind is str or kind is bytes:
            total += len(each)
        elif kind is int or each is None:
            continue
        elif is_dataclass(each):
            for name in _names(each.__class__):
                try:  # `suppress` takes much longer
                    pending.append(object.__getattribute__(each, name))
                except AttributeError:  # a field that is not decoded yet
                    continue
        elif isinstance(each, Mapping):
            first: Any = next(iter(each.values()), None)
            if is_dataclass(first) or isinstance(first, np.ndarray):
                pending += each.values()
            else:
                total += len(str(each))
    return total + sum(buffers.values())


#: The largest size of the files that are decoded together.
_BYTES_OF_A_PART: Final = 1 << 19


class HasId(Protocol):
    """The content of a file that contains its id."""

    @property
    def id(self) -> bytes:
        """The id, 12 bytes."""


@dataclass(frozen=True, slots=True)
class FileKind[T: HasId]:
    """The name, the keys and the decoder of a kind of files."""

    name: str
    key: Callable[[bytes], str]
    decode: Callable[..., T]
    #: Reads some small files together. Raises an error if they are damaged, or must be read one by one.
    decode_files: Callable[[Sequence[Any]], list[T]] | None = None

    @classmethod
    def of_parts(
        cls, name: str, key: Callable[[bytes], str], decode_files: Callable[[Sequence[Any]], list[T]]
    ) -> FileKind[T]:
        """Return the kind of files with a decoder of several files."""
        return cls(name, key, partial(decode_one, decode_files), decode_files)

    def read(self, storage: Storage, id_: bytes) -> T:
        """Return the decoded file with this id. Raises ``StorageError`` or ``FormatError``."""
        return self.decoded(storage.get(self.key(id_)), id_)

    def read_with_bytes(self, storage: Storage, id_: bytes) -> tuple[T, Buffer]:
        """Return the decoded file and its bytes. Raises the errors of ``read``."""
        data = storage.get(self.key(id_))
        return self.decoded(data, id_), data

    def decoded(self, data: Buffer, id_: bytes, *broken: list[Violation]) -> T:
        """Return the value of a file's bytes. Raises ``FormatError`` as ``read`` does."""
        key = self.key(id_)
        value = self.decode(data, key, *broken)
        require_id(key, self.name, id_, value.id)
        return value

    def decoded_together(self, files: Sequence[tuple[bytes, Buffer]]) -> Iterator[list[T]]:
        """Yield the values of some files with their ids, in order.

        All values are one list, if the files can be read together. Otherwise each value is a list of its own,
        so that the caller needs memory for one of them at a time. Raises ``FormatError`` as ``read`` does.
        """
        values = None
        if self.decode_files is not None and len(files) > 1:
            with suppress(FormatError), reading(self.name):
                values = self.decode_files([data for _, data in files])
        if values is not None and [value.id for value in values] == [id_ for id_, _ in files]:
            yield values
        elif self.decode_files is not None and len(files) > MOST_JOINED:
            # An unusual file costs its neighbours.
            for part in batched(files, len(files) // 4 + 1):
                yield from self.decoded_together(part)
        else:
            yield from ([self.decoded(data, id_)] for id_, data in files)


def small_parts(
    files: Iterable[tuple[bytes, Buffer]], most: int = MOST_JOINED
) -> Iterator[list[tuple[bytes, Buffer]]]:
    """Yield a few files at a time, for ``FileKind.decoded_together``. A file that is not small is alone."""
    part, size = list[tuple[bytes, Buffer]](), 0
    for id_, data in files:
        length = memoryview(data).nbytes
        if part and (size + length > _BYTES_OF_A_PART or len(part) == most):
            yield part
            part, size = [], 0
        part.append((id_, data))
        size += length
    if part:
        yield part


def require_id(key: str, name: str, expected: bytes, stored: bytes) -> None:
    """Raise ``FormatError`` if the file at ``key``, of kind ``name``, does not contain the expected id."""
    if stored != expected:
        raise FormatError(
            f"{key}: the file must contain the {name} {id_to_text(expected)}, got the id "
            f"{id_to_text(stored)}. The file has the name of another file. Restore it from a copy",
            check=f"{name.removeprefix('transaction ')}-id",
        )


SNAPSHOT: Final[FileKind[Snapshot]] = FileKind("snapshot", snapshot_key, decode_snapshot)
#: A decoder of snapshots that decodes all but the nodes when it is needed.
LATE_SNAPSHOT: Final[FileKind[Snapshot]] = FileKind("snapshot", snapshot_key, open_snapshot)
#: A decoder of snapshots that skips nodes and manifests.
SNAPSHOT_ENTRY: Final[FileKind[SnapshotEntry]] = FileKind("snapshot", snapshot_key, decode_entry)
#: A decoder of snapshots that only decodes their manifests.
SNAPSHOT_MANIFESTS: Final[FileKind[ManifestsOfSnapshot]] = FileKind.of_parts(
    "snapshot", snapshot_key, decode_manifests_of_snapshots
)
MANIFEST: Final[FileKind[Manifest]] = FileKind("manifest", manifest_key, decode_manifest, decode_manifests)
#: A decoder of manifests that decodes the references of a large manifest when they are needed.
LAZY_MANIFEST: Final[FileKind[Manifest]] = FileKind("manifest", manifest_key, open_manifest)
#: A decoder of manifests that only decodes the ids of the chunk files.
MANIFEST_CHUNK_FILES: Final[FileKind[ChunkFiles]] = FileKind.of_parts(
    "manifest", manifest_key, decode_chunk_files
)
#: A decoder of manifests that only decodes the ranges of the chunks.
MANIFEST_CHUNK_RANGES: Final[FileKind[ChunkRanges]] = FileKind.of_parts(
    "manifest", manifest_key, decode_chunk_ranges
)
TRANSACTION_LOG: Final[FileKind[TransactionLog]] = FileKind(
    "transaction log", transaction_key, decode_transaction_log, decode_transaction_logs
)


def read_statistics(storage: Storage, manifest: Manifest, id_: bytes) -> dict[bytes, ChunkStatistics]:
    """Return the statistics of the references of a manifest by node id; none without an intact file."""
    with skip_missing():
        data = storage.get(statistics_key(id_))
        try:
            return decode_statistics(data, id_, manifest.arrays)
        except Exception as error:  # damaged bytes may raise any error
            _log.warning("%s is ignored, and chunks are read instead: %s", statistics_key(id_), error)
    return {}


def with_read_statistics(storage: Storage, manifest: Manifest) -> Manifest:
    """Return a manifest whose references have their statistics, without a cache."""
    return _with_columns(manifest, read_statistics(storage, manifest, manifest.id))


def _with_columns(manifest: Manifest, statistics: Mapping[bytes, ChunkStatistics]) -> Manifest:
    if not statistics:
        return manifest
    columns = {id_: replace(table, statistics=statistics.get(id_)) for id_, table in manifest.arrays.items()}
    return Manifest(manifest.id, columns)


_NODE_BYTES: Final = 1024
_LEAST_SNAPSHOT: Final = 1_000 * _NODE_BYTES
_REFERENCE_BYTES: Final = 64
_LEAST_MANIFEST: Final = 2_000 * _REFERENCE_BYTES
#: The size of the cache of values that are computed from files.
_DERIVED_BYTES: Final = 128 << 20
#: The largest number of transaction logs that are decoded together.
_MOST_LOGS: Final = 1024


class DecodedCache[T]:
    """A cache of the values that were used last, up to a total weight: ``weigh`` of a value, or ``least``.

    The newest value always stays. If several threads request a value at the same time, it is decoded once.
    """

    def __init__(self, limit: int, least: int = 0, weigh: Callable[[T], int] = held_bytes) -> None:
        self._limit = limit
        self._least = least
        self._weigh = weigh
        self._values: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._total = 0
        self._lock = Lock()
        self._making: dict[tuple[int, bytes], Future[T]] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def get_or_make(self, key: bytes, make: Callable[[bytes], T]) -> T:
        """Return the cached value, or call ``make`` with the key for the value, and cache it."""
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
            value = make(key)
            self.store(key, value)
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

    def store(self, key: bytes, value: T) -> None:
        """Add a value, and remove the values that were not used for longest."""
        weight = max(self._weigh(value), self._least)
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
    """The snapshots, manifests and transaction logs by id."""

    def __init__(
        self, storage: Storage, limits: CacheLimits, repo_info_cache: RepoInfoCache | None = None
    ) -> None:
        self.storage = storage
        self.limits = limits
        self._snapshots = DecodedCache[Snapshot](limits.snapshot_nodes * _NODE_BYTES, _LEAST_SNAPSHOT)
        self._manifests = DecodedCache[Manifest](limits.chunk_refs * _REFERENCE_BYTES, _LEAST_MANIFEST)
        self._statistics = DecodedCache[dict[bytes, ChunkStatistics]](limits.chunk_refs * _REFERENCE_BYTES)
        #: What other rooms compute from these files, by a digest of the ids of the files.
        self.derived: DecodedCache[Any] = DecodedCache(_DERIVED_BYTES)
        self.repo_info_cache: Final = repo_info_cache or RepoInfoCache()
        #: A commit that is retried holds this lock. Otherwise the threads of one handle would make each
        #: other's commits late.
        self.retry_lock: Final = RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Assets, (self.storage, self.limits))

    def snapshot(self, id_: bytes) -> Snapshot:
        """Return a snapshot.

        Raises ``StorageError`` (``object-not-found``) if there is no such file. It does not raise a
        ``KeyError``, because for zarr a store that raises one is empty.
        """
        return self._snapshots.get_or_make(id_, partial(LATE_SNAPSHOT.read, self.storage))

    def forget_snapshot(self, id_: bytes) -> None:
        """Drop a snapshot from the cache, after an expiration in spec version 1 has rewritten its file."""
        self._snapshots.drop(id_)

    def manifest(self, id_: bytes) -> Manifest:
        """Return a manifest. Raises ``StorageError`` (``object-not-found``) if there is no such file."""
        return self._manifests.get_or_make(id_, partial(LAZY_MANIFEST.read, self.storage))

    def with_statistics(self, manifest: Manifest) -> Manifest:
        """Return a manifest whose references have their statistics, as far as a file has them."""
        statistics = self._statistics.get_or_make(
            manifest.id, partial(read_statistics, self.storage, manifest)
        )
        if not statistics:
            self._statistics.drop(manifest.id)  # another process may store them later
        return _with_columns(manifest, statistics)

    def forget_statistics(self, manifest_ids: Iterable[bytes]) -> None:
        """Drop the statistics of manifests from the cache, and all computed values, after a change."""
        for id_ in manifest_ids:
            self._statistics.drop(id_)
        self.derived = DecodedCache[Any](_DERIVED_BYTES)

    def store_written(self, snapshot: Snapshot, manifests: Iterable[Manifest]) -> None:
        """Put a snapshot and manifests that were just written into the cache."""
        metadata: dict[str, Any] = {}
        if snapshot.metadata:
            metadata = MetadataColumn.of([snapshot.metadata]).load(0)  # as a reader of the file gets it
        self._snapshots.store(snapshot.id, replace(snapshot, metadata=metadata))
        for manifest in manifests:
            arrays = {
                node_id: replace(table, statistics=None).compact()
                for node_id, table in manifest.arrays.items()
            }
            self._manifests.store(manifest.id, Manifest(manifest.id, arrays))

    def has_manifest(self, id_: bytes) -> bool:
        """Return whether the manifest is in the cache."""
        return id_ in self._manifests

    def manifests(self, ids: list[bytes], threads: int) -> list[Manifest]:
        """Return several manifests. Threads fetch them in parallel."""
        return map_bounded(Purpose.CATALOG_READS, self.manifest, ids, threads)

    def transaction_log(self, snapshot_id: bytes) -> TransactionLog:
        """Return the transaction log of a snapshot."""
        return TRANSACTION_LOG.read(self.storage, snapshot_id)

    def transaction_logs(self, snapshot_ids: Sequence[bytes]) -> list[TransactionLog | None]:
        """Return the transaction logs of many snapshots. A log that was deleted is None."""

        def fetch(id_: bytes) -> tuple[bytes, Buffer | None]:
            with skip_missing():
                return id_, self.storage.get(keys[id_])
            return id_, None

        ids = list(snapshot_ids)
        keys = dict(zip(ids, transaction_keys(ids), strict=True))
        is_threaded = not self.storage.is_local
        files = map_bounded(Purpose.CATALOG_READS, fetch, ids) if is_threaded else map(fetch, ids)
        by_id: dict[bytes, TransactionLog | None] = dict.fromkeys(ids)
        for part in small_parts(((id_, data) for id_, data in files if data is not None), _MOST_LOGS):
            for logs in TRANSACTION_LOG.decoded_together(part):
                by_id.update((log.id, log) for log in logs)
        return [by_id[id_] for id_ in ids]
