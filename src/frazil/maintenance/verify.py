"""Is everything there that the versions of a repository refer to?

    metadata    snapshots, transaction logs and manifests can be read, say what the snapshots say of them,
                and hold nothing outside of the arrays' extents
    exists      and every chunk file is long enough, and every foreign object, and in the state that the
                references remember
    checksum    and every byte can be read; of foreign objects in that state (the format has no checksums of
                chunks)

Pieces of work that a worker anywhere can do: ``check_snapshot``, then ``check_manifest``; for those manifests
that need files that are not there ``without_files``, which says who misses them; and ``read_rows`` for ranges
of a manifest's references. Nothing is written, and no problem is an error.
"""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from frazil.chunks.virtual import VirtualSources
from frazil.errors import ErrorKind, FormatError, IcechunkError, StorageError
from frazil.format.columns import I64, U8, U32, U64, Ragged
from frazil.format.ids import (
    INITIAL_SNAPSHOT_ID,
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    id_keys,
    id_list,
    id_to_text,
)
from frazil.format.keys import CHUNKS, chunk_key, manifest_key, snapshot_key, transaction_key
from frazil.format.manifest import ChunkKind, ChunkTable, Manifest, VirtualRef, decode_manifest
from frazil.format.snapshot import ManifestFiles, decode_snapshot
from frazil.format.transaction_log import decode_transaction_log
from frazil.maintenance.listing import Listed
from frazil.storage.base import Storage

type Level = Literal["metadata", "exists", "checksum"]

#: Bytes of one request, and of a gap between two chunks that is read with them.
_BLOCK: Final = 16 << 20
_GAP: Final = 1 << 18
_REQUESTS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """Something that is wrong.

    problem      ``unreadable``, ``size``, ``count`` or ``outside`` of metadata; ``missing`` or ``short`` of
                 chunk files; of foreign objects, and of bytes that could not be read, the kind of the error
    key          of the object in the repository, or the URL of the foreign one
    node         id of the array, empty for files of several
    coordinates  of the chunks that are lost, uint32 (k, ndim)
    detail       in words
    """

    problem: str
    key: str
    node: bytes = b""
    coordinates: U32 = field(default_factory=lambda: np.zeros((0, 0), np.uint32))
    detail: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """Which arrays refer to which manifests, k rows.

    manifests  uint8 (k, 12)
    nodes      uint8 (k, 8)
    extents    uint32 rows: pairs (from, to)
    """

    manifests: U8
    nodes: U8
    extents: Ragged

    @staticmethod
    def union(parts: Sequence[Uses]) -> Uses:
        """Each once; a manifest's first extents count."""
        nothing = np.zeros((0, OBJECT_ID_BYTES), np.uint8), np.zeros((0, NODE_ID_BYTES), np.uint8)
        manifests = np.concatenate([nothing[0], *(part.manifests for part in parts)])
        nodes = np.concatenate([nothing[1], *(part.nodes for part in parts)])
        extents = Ragged.concat([Ragged.empty(0, np.uint32), *(part.extents for part in parts)])
        _, first = np.unique(id_keys(np.concatenate([manifests, nodes], axis=1)), return_index=True)
        return Uses(manifests[first], nodes[first], extents.take(first))

    def of(self, manifest: bytes) -> list[tuple[bytes, U32]]:
        """Arrays that refer to a manifest, with the box of each. Rows are sorted by manifest."""
        keys = id_keys(self.manifests)
        wanted = np.frombuffer(manifest, keys.dtype)
        rows = slice(*(int(keys.searchsorted(wanted, side)[0]) for side in ("left", "right")))
        nodes = id_list(self.nodes[rows])
        boxes = [self.extents.row(row).reshape(-1, 2) for row in range(rows.start, rows.stop)]
        return list(zip(nodes, boxes, strict=True))


# Snapshots


def check_snapshot(storage: Storage, id_: bytes) -> tuple[list[Finding], ManifestFiles, Uses]:
    """What is wrong with a snapshot and its log; the manifests, and who uses them."""
    key, log = snapshot_key(id_), transaction_key(id_)
    found: list[Finding] = []
    try:
        decode_transaction_log(storage.get(log), log)
    except IcechunkError as error:
        # In spec version 1 the first snapshot has none.
        if id_ != INITIAL_SNAPSHOT_ID or error.kind != ErrorKind.OBJECT_NOT_FOUND:
            found.append(Finding("unreadable", log, detail=error.message))
    try:
        snapshot = decode_snapshot(storage.get(key), key)
        if snapshot.id != id_:
            raise FormatError(f"{key}: the file is that of snapshot {id_to_text(snapshot.id)}")
    except IcechunkError as error:
        return (
            [*found, Finding("unreadable", key, detail=error.message)],
            ManifestFiles.empty(),
            Uses.union([]),
        )
    nodes = snapshot.nodes
    counts = nodes.manifests.lengths
    owners = np.repeat(np.arange(len(nodes)), counts)
    ids = nodes.manifests.compact().values.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    sizes = 2 * nodes.array_length.lengths[owners]
    extents = Ragged.from_lengths(nodes.extents.compact().values, sizes)
    files = snapshot.manifests
    unlisted = ids[~np.isin(id_keys(ids), id_keys(files.ids))]
    found += [
        Finding("unreadable", manifest_key(each), detail=f"{key} does not list it")
        for each in id_list(np.unique(unlisted, axis=0))
    ]
    return found, files, Uses.union([Uses(ids, nodes.ids[owners], extents)])


# Manifests


@dataclass(frozen=True, slots=True, eq=False)
class Needed:
    """What a manifest needs: chunk files (k, 12), sorted, with the last byte of each that is used; bytes of
    all its references that are not inline, and how many references it has.
    """

    files: U8
    ends: U64
    size: int
    count: int


def check_manifest(
    storage: Storage,
    sources: VirtualSources,
    id_: bytes,
    listed: tuple[int, int],
    uses: Sequence[tuple[bytes, U32]],
    level: Level,
) -> tuple[list[Finding], Needed]:
    """``listed`` are the size and the number of references that a snapshot has of it. Foreign objects are
    asked for here.
    """
    key = manifest_key(id_)
    nothing = Needed(np.zeros((0, OBJECT_ID_BYTES), np.uint8), np.zeros(0, np.uint64), 0, 0)
    try:
        data = storage.get(key)
        manifest = decode_manifest(data, key)
        if manifest.id != id_:
            raise FormatError(f"{key}: the file is that of manifest {id_to_text(manifest.id)}")
    except IcechunkError as error:
        return [Finding("unreadable", key, detail=error.message)], nothing
    found: list[Finding] = []
    size, count = memoryview(data).nbytes, sum(map(len, manifest.arrays.values()))
    for problem, what, there in (("size", listed[0], size), ("count", listed[1], count)):
        if what != there:
            found.append(Finding(problem, key, detail=f"a snapshot says {what}, the file has {there}"))
    for node, box in uses:
        table = manifest.arrays.get(node)
        if table is None or len(box) != table.ndim:
            continue
        outside = ((table.index < box[:, 0]) | (table.index >= box[:, 1])).any(axis=1)
        if outside.any():
            found.append(Finding("outside", key, node, table.index[outside], "outside of the extents"))
    if level == "metadata":
        return found, nothing
    found += _foreign(manifest, sources)
    return found, _needed(manifest, count)


def _needed(manifest: Manifest, count: int) -> Needed:
    ids: list[U8] = [np.zeros((0, OBJECT_ID_BYTES), np.uint8)]
    ends: list[U64] = [np.zeros(0, np.uint64)]
    size = 0
    for table in manifest.arrays.values():
        size += int(table.length[table.kind != ChunkKind.INLINE].sum())
        used, last = _ends(table, ChunkKind.NATIVE, len(table.chunk_ids))
        ids.append(table.chunk_ids[used])
        ends.append(last)
    files, stops = np.concatenate(ids), np.concatenate(ends)
    distinct, code = np.unique(id_keys(files), return_inverse=True)
    most = np.zeros(len(distinct), np.uint64)
    np.maximum.at(most, code, stops)
    return Needed(distinct.view(np.uint8).reshape(-1, OBJECT_ID_BYTES), most, size, count)


def _ends(table: ChunkTable, kind: ChunkKind, count: int) -> tuple[I64, U64]:
    """Sources of a kind that are used, and where the last byte used of each ends."""
    rows = table.kind == kind
    ends = np.zeros(count, np.uint64)
    source = table.source[rows]
    np.maximum.at(ends, source, table.offset[rows] + table.length[rows])
    used = np.zeros(count, bool)
    used[source] = True
    return np.flatnonzero(used), ends[used]


def _foreign(manifest: Manifest, sources: VirtualSources) -> Iterator[Finding]:
    """Foreign objects that are not there, too short, or in another state: one byte of each is read."""

    def ask(ref: VirtualRef) -> IcechunkError | None:
        return _problem(lambda: sources.locate(ref).get(ref.offset, ref.offset + ref.length))

    for node, table in manifest.arrays.items():
        used, ends = _ends(table, ChunkKind.VIRTUAL, len(table.foreign))
        refs = [
            _virtual(table, row, max(end - 1, 0), 1) for row, end in zip(used, ends.tolist(), strict=True)
        ]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            answers = list(pool.map(ask, refs))
        for row, ref, error in zip(used.tolist(), refs, answers, strict=True):
            if error is not None:
                lost = (table.kind == ChunkKind.VIRTUAL) & (table.source == row)
                yield Finding(str(error.kind), ref.location, node, table.index[lost], error.message)


def _virtual(table: ChunkTable, row: int, offset: int, length: int) -> VirtualRef:
    foreign = table.foreign
    etag, modified = foreign.etags.text(row) or None, int(foreign.modified[row]) or None
    return VirtualRef(foreign.locations.text(row), offset, length, etag, modified)


def _problem(action: Callable[[], object]) -> IcechunkError | None:
    try:
        action()
    except IcechunkError as error:
        return error
    return None


# Chunk files


def absent(needed: Iterable[Needed], there: Listed) -> tuple[U8, U64]:
    """Chunk files that are missing or too short: ids (k, 12), sorted, and how many bytes there are."""
    ids: list[U8] = [np.zeros((0, OBJECT_ID_BYTES), np.uint8)]
    known = id_keys(there.ids)
    for each in needed:
        keys = id_keys(each.files)
        rows = np.minimum(known.searchsorted(keys), max(len(known) - 1, 0))
        same = known[rows] == keys if len(known) else np.zeros(len(keys), bool)
        sizes = np.zeros(len(keys), np.uint64)
        sizes[same] = there.sizes[rows[same]]
        ids.append(each.files[~same | (sizes < each.ends)])
    lost = np.unique(id_keys(np.concatenate(ids))).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    sizes = np.zeros(len(lost), np.uint64)
    rows = known.searchsorted(id_keys(lost))
    there_too = np.isin(id_keys(lost), known)
    sizes[there_too] = there.sizes[rows[there_too]]
    return lost, sizes


def without_files(storage: Storage, manifest: bytes, files: U8, sizes: U64) -> list[Finding]:
    """The chunks of a manifest that are lost with such files."""
    key = manifest_key(manifest)
    known = id_keys(files)
    found: list[Finding] = []
    for node, table in decode_manifest(storage.get(key), key).arrays.items():
        hit = np.flatnonzero(np.isin(id_keys(table.chunk_ids), known))
        for source in hit.tolist():
            at = int(known.searchsorted(id_keys(table.chunk_ids[source : source + 1]))[0])
            rows = (table.kind == ChunkKind.NATIVE) & (table.source == source)
            rows &= table.offset + table.length > sizes[at]
            if rows.any():
                problem = "short" if sizes[at] else "missing"
                name = f"{CHUNKS}/{id_to_text(table.chunk_ids[source].tobytes())}"
                detail = f"{int(sizes[at])} bytes are there"
                found.append(Finding(problem, name, node, table.index[rows], detail))
    return found


# Bytes


def read_rows(
    storage: Storage, sources: VirtualSources, manifest: bytes, start: int, stop: int
) -> tuple[list[Finding], int]:
    """Read all bytes of some references of a manifest, counted over its arrays in the order of their ids;
    what could not be read, and how many bytes were.
    """
    key = manifest_key(manifest)
    spans: list[_Span] = []
    first = 0
    for node, table in sorted(decode_manifest(storage.get(key), key).arrays.items()):
        part = table.take(slice(max(0, start - first), max(0, stop - first)))
        first += len(table)
        for name, rows, get in _objects(part, storage, sources):
            for low, high, inside in _ranges(part.offset[rows], part.length[rows]):
                spans.append(_Span(name, get, low, high, node, part.index[rows[inside]]))
    with ThreadPoolExecutor(_REQUESTS) as pool:
        answers = list(pool.map(_Span.problem, spans))
    found = [
        Finding(str(error.kind), span.name, span.node, span.index, error.message)
        for span, error in zip(spans, answers, strict=True)
        if error is not None
    ]
    done = [span.high - span.low for span, error in zip(spans, answers, strict=True) if error is None]
    return found, sum(done)


type _Get = Callable[[int, int], Buffer]


@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    """A range of an object to read at once, and the chunks in it."""

    name: str
    get: _Get
    low: int
    high: int
    node: bytes
    index: U32

    def problem(self) -> IcechunkError | None:
        return _problem(self._read)

    def _read(self) -> None:
        size = memoryview(self.get(self.low, self.high)).nbytes
        if size != self.high - self.low:
            raise StorageError(
                f"{self.name}: expected the bytes {self.low} to {self.high}, found {size} bytes",
                ErrorKind.INVALID_OBJECT_SIZE,
            )


def _objects(table: ChunkTable, storage: Storage, sources: VirtualSources) -> Iterator[tuple[str, I64, _Get]]:
    """The objects that hold chunks of a table: name, rows, and how a range is read."""
    for kind in (ChunkKind.NATIVE, ChunkKind.VIRTUAL):
        rows = np.flatnonzero(table.kind == kind)
        order = rows[np.argsort(table.source[rows], kind="stable")]
        cuts = np.flatnonzero(np.diff(table.source[order])) + 1
        for part in np.split(order, cuts) if len(order) else ():
            source = int(table.source[part[0]])
            if kind == ChunkKind.NATIVE:
                name = chunk_key(table.chunk_ids[source].tobytes())
                yield name, part, partial(storage.get, name)
            else:
                ref = _virtual(table, source, 0, 1)
                yield ref.location, part, partial(_get_foreign, sources, ref)


def _get_foreign(sources: VirtualSources, ref: VirtualRef, low: int, high: int) -> Buffer:
    return sources.locate(ref).get(low, high)


def _ranges(offset: U64, length: U64) -> Iterator[tuple[int, int, I64]]:
    """Ranges to read, each with the rows that lie in it: neighbours together, blocks of bounded size."""
    order = np.argsort(offset, kind="stable")
    low = offset[order].astype(np.int64)
    high = np.maximum.accumulate(low + length[order].astype(np.int64))
    if not len(order):
        return
    blocks = (high - low[0]) // _BLOCK
    new = np.flatnonzero((low[1:] > high[:-1] + _GAP) | (blocks[1:] != blocks[:-1])) + 1
    for rows in np.split(np.arange(len(order)), new):
        if high[rows[-1]] > low[rows[0]]:
            yield int(low[rows[0]]), int(high[rows[-1]]), order[rows]


def split_rows(count: int, size: int, most: int) -> list[tuple[int, int]]:
    """Ranges of ``count`` rows with about ``most`` of their ``size`` bytes in each."""
    parts = max(1, min(count, -(-size // most)))
    cuts: NDArray[np.int64] = np.linspace(0, count, parts + 1).astype(np.int64)
    return [
        (low, high) for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True) if high > low
    ]
