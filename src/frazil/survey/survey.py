"""The survey: which manifests versions have, and which chunk files and ranges manifests refer to.

A step reads some files and reduces them to columns at once, so the references of all manifests are never in
memory together. In this process, threads fetch the files. An engine gets the same steps as tasks: a piece is
a function of a module, from the context of a repository and an item to results. It uses only its arguments
and may run more than once.

The stored index makes a survey read only files that are new. Snapshots and manifests are immutable, so what
they refer to never changes. A collection stores it in one object under ``walks/``: for each snapshot its
manifests, and for each manifest the digests of its chunk files. A later survey reads this object and the
files that are not in it. The next collection stores a new object without files that are gone. Other
implementations ignore the folder. No decision needs the object: without it, a survey reads all files again.
Its bytes have a checksum, and an object that is damaged, too large, or of another version is ignored.

    0   8 bytes   magic
    8  16 bytes   BLAKE2b of the rest
   24  40 bytes   five numbers, uint64: snapshots, manifests of snapshots, their uses; manifests, digests
   64             the columns, as one zstd frame

The object has at most ``MOST_DIGESTS`` digests and ``MOST_USES`` uses of manifests, about 130 MB. Files that
do not fit are read by every survey.
"""

from __future__ import annotations

import functools
import logging
import pickle
from collections import deque
from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import batched, chain, islice
from typing import Any, Final, Protocol

import numpy as np
import zstandard
from numpy.typing import NDArray

from frazil.arguments import require_progress
from frazil.engines import Engine, EngineName, described, engine_of
from frazil.errors import StorageError
from frazil.format.columns import U8, U64, Ragged
from frazil.format.ids import OBJECT_ID_BYTES, id_list, id_matrix
from frazil.format.joined_files import ChunkRanges
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import ManifestFiles
from frazil.repository.catalog.assets import (
    MANIFEST_CHUNK_FILES,
    MANIFEST_CHUNK_RANGES,
    SNAPSHOT_MANIFESTS,
    FileKind,
    HasId,
    small_parts,
)
from frazil.repository.catalog.collection_guard import new_key
from frazil.repository.catalog.context import Context
from frazil.storage.base import Storage
from frazil.storage.checks import skip_damage, skip_missing
from frazil.survey.columns import (
    DIGEST_BYTES,
    FileUses,
    ManifestChunks,
    Marks,
    RangeSums,
    SnapshotManifests,
    among,
    distinct_digests,
    id_digests,
    no_ids,
)
from frazil.threads import SIZES, Purpose, thread_pool

#: A piece of work: from a context and an item to results.
type Piece = Callable[[Context, Any], Iterable[Any]]
#: Does a piece of work for all items in any process. Yields the results in the order of the items.
type Run = Callable[[Piece, Sequence[Any]], Iterator[Any]]

#: The number of items that run at the same time in one process.
_ITEMS: Final = 4
#: Limits of one item: references, manifests, and snapshots. Its work takes some time and fits into memory.
_REFS: Final = 1 << 20
_MANIFESTS: Final = 200
_SNAPSHOTS: Final = 200


def run_with(context: Context, engine: Engine | EngineName | None = None) -> Run:
    """Return the function that does pieces of work: by an engine, or on threads of this process."""
    if engine is None:
        return lambda piece, items: chain.from_iterable(
            side_by_side(items, lambda item: list(piece(context, item)), _ITEMS)
        )
    runner = engine_of(engine)

    def by_tasks(piece: Piece, items: Sequence[Any]) -> Iterator[Any]:
        results = runner.run(run_piece, list(map(pickle.dumps, items)), pickle.dumps((piece, context)))
        with described(f"frazil {piece.__name__}"):  # the engine reads it before the first result
            first = list(islice(results, 1))
        for result in chain(first, results):
            yield from pickle.loads(result)

    return by_tasks


def run_piece(shared: bytes, task: bytes) -> bytes:
    """Run one task: a piece with one item. The result is a pickled list."""
    piece, context = _unpacked(shared)
    return pickle.dumps(list(piece(context, pickle.loads(task))))


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[Piece, Context]:
    unpickled: tuple[Piece, Context] = pickle.loads(shared)
    return unpickled


def snapshot_batches[T](rows: Sequence[T], size: int = _SNAPSHOTS) -> list[Sequence[T]]:
    """Return rows in batches. Each row costs one or two requests."""
    return list(batched(rows, size))


def manifest_batches(manifests: ManifestFiles) -> list[ManifestFiles]:
    """Return manifests in batches with a limited number of references."""
    weights = np.maximum(manifests.num_chunk_refs.astype(np.int64), _REFS // _MANIFESTS)
    cuts = (np.flatnonzero(np.diff(np.cumsum(weights) // _REFS)) + 1).tolist()
    pairs = zip([0, *cuts], [*cuts, len(manifests)], strict=True)
    return [manifests.select_manifests(slice(low, high)) for low, high in pairs if high > low]


def side_by_side[T, R](
    items: Iterable[T],
    work: Callable[[T], R],
    threads: int,
    purpose: Purpose = Purpose.COLLECTION_STEPS,
    *,
    weight: Callable[[T], float] = lambda item: 0.0,
) -> Iterator[R]:
    """Do the same as ``map``, on threads and in order.

    At most ``threads`` items run or wait at a time, and their weights are at most 1 together.
    """
    with thread_pool(purpose, min(max(1, threads), SIZES[purpose])) as pool:
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


class Progress(Protocol):
    """The progress of upkeep: the number of steps, and each finished step, from the caller's thread."""

    def expect(self, tasks: int) -> None:
        """Announce steps."""

    def advance(self, *, bytes: int = 0) -> None:
        """Count one more finished step."""


class NoProgress:
    """Reports nothing."""

    def expect(self, tasks: int) -> None:
        """Ignore the steps."""

    def advance(self, *, bytes: int = 0) -> None:
        """Ignore the step."""


NO_PROGRESS: Final[Progress] = NoProgress()


def progress_of(progress: Progress | None) -> Progress:
    """Return the argument ``progress`` of a public function, or an object that reports nothing."""
    require_progress(progress, "expect", "advance")
    return NO_PROGRESS if progress is None else progress


_log = logging.getLogger(__name__)

INDEXES: Final = "walks"

_MAGIC: Final = b"FRAZWLK1"
_HASH_BYTES: Final = 16
_COUNTS: Final = 5
_BODY: Final = len(_MAGIC) + _HASH_BYTES
#: The bytes of a row of each column but the last one.
_WIDTHS: Final = (OBJECT_ID_BYTES, 4, 4, OBJECT_ID_BYTES, 8, 4, OBJECT_ID_BYTES, 4)
#: The largest numbers of digests, and of uses of manifests by snapshots, in the object.
MOST_DIGESTS: Final = 16 << 20
MOST_USES: Final = 8 << 20
_LEVEL: Final = 1
#: The number of rows that are compressed at a time.
_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class StoredIndex:
    """The manifests of snapshots, and the chunk files of manifests."""

    snapshots: SnapshotManifests = field(default_factory=SnapshotManifests.empty)
    manifests: ManifestChunks = field(default_factory=ManifestChunks.empty)

    def __len__(self) -> int:
        return len(self.snapshots) + len(self.manifests)


def read_index(storage: Storage) -> tuple[StoredIndex, list[str]]:
    """Return the stored index, and the keys of the objects under ``walks/``."""
    objects = sorted(storage.list(INDEXES), key=lambda info: (info.modified, info.key))
    keys = [info.key for info in objects]
    index = None
    with skip_missing():
        index = decode_index(storage.get(keys[-1])) if keys else StoredIndex()
    if index is None:
        _log.info("%s cannot be used: all metadata are read again", keys[-1])
    return index or StoredIndex(), keys


def store_index(storage: Storage, index: StoredIndex, replaced: list[str]) -> None:
    """Store an index in place of earlier objects. A failure of the storage has no effect."""
    with suppress(StorageError):  # the next survey reads more
        storage.put_parts(new_key(INDEXES), index_parts(index))
        storage.delete(replaced)


def index_parts(index: StoredIndex) -> list[bytes]:
    """Return the bytes of the object in several buffers, because all of them together may be large."""
    snapshots, manifests = index.snapshots, index.manifests
    snapshots = snapshots.select(np.cumsum(snapshots.rows.lengths) <= MOST_USES)
    manifests = manifests.select(np.cumsum(manifests.digests.lengths) <= MOST_DIGESTS)
    uses, digests = snapshots.rows.compact(), manifests.digests.compact()
    columns = [
        snapshots.ids,
        uses.lengths.astype("<u4"),
        uses.values.astype("<u4"),
        snapshots.files.ids,
        snapshots.files.size_bytes.astype("<u8"),
        snapshots.files.num_chunk_refs.astype("<u4"),
        manifests.ids,
        digests.lengths.astype("<u4"),
        digests.values.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :DIGEST_BYTES],
    ]
    counts = [len(snapshots), len(snapshots.files), len(uses.values), len(manifests), len(digests.values)]
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    # Blocks, because all columns together may be large.
    parts = [
        compressor.compress(column[start : start + _ROWS].tobytes())
        for column in columns
        for start in range(0, len(column), _ROWS)
    ]
    body = [np.array(counts, "<u8").tobytes(), *filter(None, parts), compressor.flush()]
    checksum = blake2b(digest_size=_HASH_BYTES)
    for part in body:
        checksum.update(part)
    return [_MAGIC, checksum.digest(), *body]


def decode_index(data: Buffer) -> StoredIndex | None:
    """Return the content of an object, or None if it cannot be used."""
    view = memoryview(data)
    body = view[_BODY:]
    checksum = blake2b(body, digest_size=_HASH_BYTES).digest()
    if bytes(view[:_BODY]) != _MAGIC + checksum or len(body) < 8 * _COUNTS:
        return None
    snapshots, files, uses, manifests, digests = np.frombuffer(body, "<u8", _COUNTS).tolist()
    if max(uses // MOST_USES, digests // MOST_DIGESTS, files // (1 << 32)) > 1:
        return None
    counts = (snapshots, snapshots, uses, files, files, files, manifests, manifests)
    sizes = [count * width for count, width in zip(counts, _WIDTHS, strict=True)]
    try:
        with zstandard.ZstdDecompressor().stream_reader(body[8 * _COUNTS :]) as stream:
            columns = [np.frombuffer(stream.read(size), np.uint8) for size in sizes]
            words = _digests(stream, digests)
            is_whole = list(map(len, columns)) == sizes and not stream.read(1)
    except (zstandard.ZstdError, MemoryError):
        return None
    if words is None or not is_whole:
        return None
    ids, listed, of_manifests = (columns[at].reshape(-1, OBJECT_ID_BYTES) for at in (0, 3, 6))
    lengths, rows, digest_counts = (columns[at].view("<u4") for at in (1, 2, 7))
    if lengths.sum() != uses or digest_counts.sum() != digests or (rows >= max(files, 1)).any():
        return None
    table = ManifestFiles(listed, columns[4].view("<u8"), columns[5].view("<u4"))
    return StoredIndex(
        SnapshotManifests(ids, table, Ragged.from_lengths(rows, lengths)),
        ManifestChunks(of_manifests, Ragged.from_lengths(words, digest_counts)),
    )


def _digests(stream: zstandard.ZstdDecompressionReader, count: int) -> U64 | None:
    """Read digests in blocks, because all of them may be large. Return None if the stream ends too early."""
    words = np.zeros((count, 4), "<u2")
    for start in range(0, count, _ROWS):
        rows = min(_ROWS, count - start)
        block = stream.read(rows * DIGEST_BYTES)
        if len(block) < rows * DIGEST_BYTES:
            return None
        words[start : start + rows, : DIGEST_BYTES // 2] = np.frombuffer(block, "<u2").reshape(rows, -1)
    return words.view("<u8").reshape(-1)


#: Bytes of a decoded reference, for limits of memory.
_REFERENCE_BYTES: Final = 64
#: The number of manifests that are gathered before duplicates are removed.
_GATHERED: Final = 1 << 15
#: The number of digests that are marked at a time.
_BLOCK: Final = 1 << 20
#: The number of references of small manifests that are one table for the functions of columns.
_JOINED: Final = 1 << 15
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


class Survey:
    """What the versions of a repository refer to. ``engine`` None is this process, in limited memory.

    ``progress`` counts the files that are read. ``is_incremental`` says whether the stored index is used.
    """

    def __init__(
        self,
        context: Context,
        engine: Engine | EngineName | None = None,
        *,
        bounds: Bounds | None = None,
        progress: Progress = NO_PROGRESS,
        is_incremental: bool = True,
    ) -> None:
        self._context = context
        self._is_local = engine is None
        self._bounds = bounds or Bounds()
        self._progress = progress
        self._is_incremental = is_incremental
        self._loaded: StoredIndex | None = None
        self._keys: list[str] = []
        self._is_new = False
        self._digests_held = self._uses_held = 0
        #: Does a piece of work for many items, by the engine or in this process.
        self.run: Final = run_with(context, engine)

    @property
    def _index(self) -> StoredIndex:
        if self._loaded is None:
            stored = read_index(self._context.storage) if self._is_incremental else (StoredIndex(), [])
            self._loaded, self._keys = stored
            self._is_new = len(self._keys) > 1
        return self._loaded

    # Versions to manifests

    def manifests(self, versions: U8, optional: U8 | None = None) -> ManifestFiles:
        """Return each manifest of versions once. The snapshots of ``optional`` may be missing."""
        optional = no_ids() if optional is None else optional
        stored = self._index.snapshots
        new, new_optional = (each[~among(each, stored.ids)] for each in (versions, optional))
        tables = list[SnapshotManifests]()
        files, parts, waiting = ManifestFiles.empty(), list[ManifestFiles](), 0
        for snapshots in self.read_versions(new, new_optional):
            if self._uses_held + int(snapshots.rows.lengths.sum()) <= MOST_USES:
                self._uses_held += int(snapshots.rows.lengths.sum())
                tables.append(snapshots)
                self._is_new = True
            else:
                parts.append(snapshots.files)
            waiting += len(snapshots.files)
            if waiting > max(len(files), _GATHERED):
                tables = [SnapshotManifests.concat(tables)]
                files, parts, waiting = ManifestFiles.union([files, tables[0].files, *parts]), [], 0
        fresh = SnapshotManifests.concat(tables)
        snapshots = SnapshotManifests.concat([stored, fresh]) if len(stored) else fresh
        self._loaded = StoredIndex(snapshots, self._index.manifests)
        ids = np.concatenate([versions, optional])
        return ManifestFiles.union([stored.select(among(stored.ids, ids)).files, files, fresh.files, *parts])

    def read_versions(
        self, versions: U8, optional: U8 | None = None, *, skips_damage: bool = False
    ) -> Iterator[SnapshotManifests]:
        """Yield the manifests of versions in parts, always from the files."""
        ids, others = id_list(versions), id_list(no_ids() if optional is None else optional)
        self._progress.expect(len(ids) + len(others))
        whole = ([*ids, *others], len(ids), skips_damage, self._bounds)
        return self._counted(
            self._steps(
                _read_versions,
                whole,
                lambda: [
                    (batch, needed * len(batch), skips_damage, Bounds())
                    for needed, rows in ((True, ids), (False, others))
                    for batch in snapshot_batches(rows)
                ],
            )
        )

    # Manifests to chunk files

    def mark_chunks(self, manifests: ManifestFiles, marks: Marks) -> None:
        """Mark the chunk files of manifests."""
        stored = self._index.manifests
        # The digests of one manifest are sorted, so a block of them is found fast.
        values = stored.select(among(stored.ids, manifests.ids)).digests.compact().values
        for start in range(0, len(values), _BLOCK):
            marks.mark(values[start : start + _BLOCK])
        new = manifests.select_manifests(np.flatnonzero(~among(manifests.ids, stored.ids)))
        if not len(new):
            return

        def held() -> Iterator[ManifestChunks]:
            """Mark the chunk files of new manifests. Yield those that are held for the next survey."""
            yield stored
            for chunks in self.chunk_digests(new):
                values = chunks.digests.compact().values
                marks.mark(values)
                if self._digests_held + len(values) <= MOST_DIGESTS:
                    self._digests_held += len(values)
                    self._is_new = True
                    yield chunks

        expected = int(new.num_chunk_refs.sum(dtype=np.uint64))
        expected = min(expected, MOST_DIGESTS - self._digests_held) + int(stored.digests.lengths.sum())
        self._loaded = StoredIndex(self._index.snapshots, ManifestChunks.concat(held(), expected))

    def chunk_digests(self, manifests: ManifestFiles) -> Iterator[ManifestChunks]:
        """Yield the digests of the chunk files of manifests in parts, always from the files."""
        self._progress.expect(len(manifests))
        return self._counted(self._of_manifests(_read_digests, manifests))

    def file_uses(
        self, manifests: ManifestFiles, *, skips_damage: bool = False
    ) -> Iterator[tuple[bytes, FileUses]]:
        """Yield each manifest with the chunk files that it uses, and the last used byte of each."""
        return self._of_manifests(_read_uses, manifests, skips_damage)

    def range_sums(self, manifests: ManifestFiles) -> Iterator[RangeSums]:
        """Yield the ranges of chunk files and foreign objects of manifests, in parts."""
        return self._of_manifests(_read_ranges, manifests)

    # The stored index

    def store(self, snapshots: U8, manifests: U8) -> None:
        """Store the index of these snapshots and manifests, if it differs from the stored index."""
        index = self._index
        alive = StoredIndex(
            index.snapshots.select(among(index.snapshots.ids, snapshots)),
            index.manifests.select(among(index.manifests.ids, manifests)),
        )
        if self._is_new or len(alive) < len(index):
            store_index(self._context.storage, alive, self._keys)

    # The steps

    def _steps(self, piece: Piece, whole: Any, batches: Callable[[], Sequence[Any]]) -> Iterator[Any]:
        """Do a piece with one item in this process, where it has many threads, or else as tasks."""
        return iter(piece(self._context, whole)) if self._is_local else self.run(piece, batches())

    def _of_manifests(
        self, piece: Piece, manifests: ManifestFiles, skips_damage: bool = False
    ) -> Iterator[Any]:
        return self._steps(
            piece,
            (manifests, skips_damage, self._bounds),
            lambda: [(batch, skips_damage, Bounds()) for batch in manifest_batches(manifests)],
        )

    def _counted[P: (SnapshotManifests, ManifestChunks)](self, parts: Iterator[P]) -> Iterator[P]:
        """Report each file of the parts as a finished step."""
        for part in parts:
            for _ in range(len(part)):
                self._progress.advance()
            yield part


def reachable(info: RepoInfo) -> NDArray[np.bool_]:
    """Return which snapshots a branch or tag leads to."""
    tips = id_matrix([*info.branches.values(), *info.tags.values()])
    return info.table.reachable(info.table.find_snapshots(tips))


# The one reader of files


def read_files[T: HasId](
    storage: Storage,
    kind: FileKind[T],
    ids: Sequence[bytes],
    threads: int,
    *,
    required: int | None = None,
    skips_damage: bool = False,
    weights: Sequence[float] | None = None,
) -> Iterator[list[T]]:
    """Yield the contents of files. Small files are decoded together.

    Files from the number ``required`` on may be missing. Threads fetch the files, and the thread of the
    caller decodes them, because most steps need the lock of the interpreter. A local storage needs no
    threads.
    """
    needed = len(ids) if required is None else required

    def fetch(row: int) -> tuple[bytes, Buffer | None]:
        may_miss = skips_damage or row >= needed
        data: Buffer | None = None
        with skip_missing() if may_miss else nullcontext():
            data = storage.get(kind.key(ids[row]))
        return ids[row], data

    rows = range(len(ids))
    weight: Callable[[int], float] = (lambda row: 0.0) if weights is None else weights.__getitem__
    files = map(fetch, rows) if storage.is_local else side_by_side(rows, fetch, threads, weight=weight)
    present = ((id_, data) for id_, data in files if data is not None)
    if skips_damage:
        for id_, data in present:
            with skip_damage():  # a verification has a finding for it
                yield [kind.decoded(data, id_)]
        return
    for part in small_parts(present):
        yield from kind.decoded_together(part)


def read_manifests[T: HasId](
    storage: Storage,
    kind: FileKind[T],
    manifests: ManifestFiles,
    bounds: Bounds,
    *,
    skips_damage: bool = False,
) -> Iterator[list[T]]:
    """Yield the contents of manifests, with as many requests at a time as the bounds allow."""
    compressed = manifests.size_bytes / bounds.compressed_bytes
    decoded = (manifests.num_chunk_refs * float(_REFERENCE_BYTES)) / bounds.decoded_bytes
    weights = np.maximum(compressed, decoded).tolist()
    ids = id_list(manifests.ids)
    return read_files(storage, kind, ids, bounds.fetches, weights=weights, skips_damage=skips_damage)


def _read_versions(context: Context, item: Any) -> Iterator[SnapshotManifests]:
    ids, required, skips_damage, bounds = item
    storage, threads = context.storage, bounds.snapshots
    for tables in read_files(
        storage, SNAPSHOT_MANIFESTS, ids, threads, required=required, skips_damage=skips_damage
    ):
        yield SnapshotManifests.of_many([each.id for each in tables], [each.files for each in tables])


def _read_digests(context: Context, item: Any) -> Iterator[ManifestChunks]:
    manifests, skips_damage, bounds = item
    for files in read_manifests(
        context.storage, MANIFEST_CHUNK_FILES, manifests, bounds, skips_damage=skips_damage
    ):
        ids = id_matrix([each.id for each in files])
        if len(files) == 1:
            digests = distinct_digests(id_digests(files[0].chunk_ids))
            yield ManifestChunks(ids, Ragged.from_lengths(digests, np.array([len(digests)])))
            continue
        # One sort of the digests of a few manifests is faster than one for each.
        owners = np.repeat(np.arange(len(files), dtype=np.uint64), [len(each.chunk_ids) for each in files])
        digests = id_digests(np.concatenate([each.chunk_ids for each in files])) | (owners << _OWNER)
        numbers = distinct_digests(digests)
        lengths = np.bincount((numbers >> _OWNER).astype(np.int64), minlength=len(files))
        yield ManifestChunks(ids, Ragged.from_lengths(numbers & _DIGEST, lengths))


def _read_uses(context: Context, item: Any) -> Iterator[tuple[bytes, FileUses]]:
    for each in chain.from_iterable(_read_tables(context, item)):
        yield each.id, FileUses.of([each])


def _read_ranges(context: Context, item: Any) -> Iterator[RangeSums]:
    return map(RangeSums.of, gathered(chain.from_iterable(_read_tables(context, item))))


def _read_tables(context: Context, item: Any) -> Iterator[list[ChunkRanges]]:
    manifests, skips_damage, bounds = item
    return read_manifests(
        context.storage, MANIFEST_CHUNK_RANGES, manifests, bounds, skips_damage=skips_damage
    )


def gathered(manifests: Iterable[ChunkRanges], references: int = _JOINED) -> Iterator[list[ChunkRanges]]:
    """Yield the tables of several manifests together, because functions of columns are slow for few rows."""
    waiting, count = list[ChunkRanges](), 0
    for manifest in manifests:
        waiting.append(manifest)
        count += len(manifest.kind)
        if count >= references:
            yield waiting
            waiting, count = [], 0
    if waiting:
        yield waiting
