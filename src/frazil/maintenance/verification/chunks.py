"""Checks of chunk files: existing, long enough, readable, fitting their checksums, decodable."""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import batched
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.answers.tiles import contradicted, rows_of_chunk
from frazil.arrays.element_statistics import meaning_of
from frazil.arrays.encoding import encoding_of
from frazil.chunks.virtual import VirtualSources
from frazil.errors import ErrorKind, FormatError, IcechunkError, StorageError
from frazil.format.chunk_statistics import ChunkStatistics
from frazil.format.chunk_trailer import (
    SINGLE_TRAILER_BYTES,
    ChunkTrailer,
    damaged_rows,
    decode_trailer,
    find_remains,
    is_marked,
    trailer_size,
)
from frazil.format.columns import I64, U8, U32, U64, intern
from frazil.format.ids import CHUNKS, chunk_key, id_keys, id_list, id_to_text, manifest_key
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.maintenance.verification.files import read_check, read_finding, virtual, virtual_check
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.assets import MANIFEST, with_read_statistics
from frazil.repository.catalog.context import Context
from frazil.repository.session.chunk_refs import claimed_bytes, proves_damage, require_plausible
from frazil.repository.session.session import reading
from frazil.repository.session.workspace import Workspace
from frazil.storage.base import Storage
from frazil.survey.columns import FileUses, ObjectListing
from frazil.threads import Purpose, map_bounded

#: Bytes of one request, and the longest gap between two chunks of the same request.
_BLOCK: Final = 16 << 20
_GAP: Final = 1 << 18
#: The number of bytes of the first request for a trailer. Trailers of up to 5,000 chunks fit.
_FIRST: Final = 1 << 16
#: The number of manifests whose files are compared with the listing at a time.
_COMPARED: Final = 100


# Missing and short files


#: Chunk files that are missing or short: their ids (k, 12), sorted, and sizes, -1 for a missing file.
type LostFiles = tuple[U8, I64]


def lost_files(required: Iterable[FileUses], listing: ObjectListing) -> LostFiles:
    """Return the required chunk files that are missing or short."""
    parts = [FileUses.union([])]
    for some in batched(required, _COMPARED):
        uses = FileUses.union(some)
        sizes, is_listed = listing.find_sizes(uses.ids)
        parts.append(uses.select_files(~is_listed | (sizes.astype(np.uint64) < uses.ends)))
    lost = FileUses.union(parts)
    sizes, is_listed = listing.find_sizes(lost.ids)
    return lost.ids, np.where(is_listed, sizes, -1)


def check_lost(
    context: Context, item: tuple[LostFiles, Iterable[bytes]]
) -> Iterator[tuple[bytes, list[Finding]]]:
    """Yield the findings for the chunks of manifests in missing or short files."""
    (ids, sizes), manifests = item
    file_keys = id_keys(ids)
    for manifest in manifests:
        findings = list[Finding]()
        try:
            for node, table in MANIFEST.read(context.storage, manifest).arrays.items():
                keys = id_keys(table.chunk_ids)
                for source in np.flatnonzero(np.isin(keys, file_keys)).tolist():
                    size = int(sizes[file_keys.searchsorted(keys[source])])
                    rows = (table.kind == ChunkKind.NATIVE) & (table.source == source)
                    rows &= table.offset + table.length > max(size, 0)
                    if rows.any():
                        check = "missing" if size < 0 else "short"
                        name = chunk_key(table.chunk_ids[source].tobytes())
                        detail = "the file does not exist" if size < 0 else f"the file has {size} bytes"
                        index, offsets = table.index[rows], table.offset[rows]
                        findings.append(Finding(check, name, node, index, detail, offsets=offsets))
        except IcechunkError as error:
            findings = [read_finding(error, manifest_key(manifest))]
        yield manifest, findings


# Recorded checksums


def stored_trailer(
    storage: Storage, id_: bytes, used: int, *, is_single: bool = False
) -> ChunkTrailer | None:
    """Read the trailer of a chunk file."""
    key = chunk_key(id_)
    # A range that begins at the end of the file is an error, so the range has the last used byte.
    start = max(used - 1, 0)
    end = memoryview(storage.get(key, start, start + _FIRST)).cast("B")
    if len(end) == _FIRST:
        info = storage.head(key)
        start = start if info is None else max(start, info.size - _FIRST)
        end = memoryview(storage.get(key, start)).cast("B")
    size = start + len(end)
    length = trailer_size(id_, end, size)
    if length > len(end):
        end = memoryview(storage.get(key, size - length)).cast("B")
    if not length and find_remains(id_, end):
        raise FormatError(f"{key}: the end of the trailer is damaged or cut off")
    trailer = decode_trailer(id_, end, size)
    more = size - used
    was_single = is_single and more == SINGLE_TRAILER_BYTES and not any(end[max(0, used - start) :])
    if not length and more > 0 and (is_marked(id_) or was_single):
        raise FormatError(f"{key}: the file must end with the checksums of its chunks, got other bytes")
    # A chunk may contain a copy of a chunk file.
    is_chunk = trailer is not None and trailer.id != id_ and trailer.size < used
    return None if is_chunk else trailer


@dataclass(slots=True, eq=False)
class FileSums:
    """The checksums of one chunk file, which several threads may use. They are read at the first use."""

    storage: Storage
    id: bytes
    used: int
    is_single: bool = False
    _lock: Lock = field(default_factory=Lock)
    _trailer: list[ChunkTrailer | FormatError | None] = field(default_factory=list)

    def trailer(self) -> ChunkTrailer | FormatError | None:
        """Return the trailer, or the error that describes its damage. Raises errors of the storage."""
        with self._lock:
            if not self._trailer:
                try:
                    trailer = stored_trailer(self.storage, self.id, self.used, is_single=self.is_single)
                    self._trailer.append(trailer)
                except FormatError as error:
                    self._trailer.append(error)
            return self._trailer[0]

    def compare(self, chunks: Chunks, start: int, data: Buffer) -> ReadResult:
        """Compare chunks with their checksums."""
        trailer = self.trailer()
        if trailer is None:
            return ReadResult()
        if isinstance(trailer, FormatError):
            damage = [Finding("checksum", chunks.name, detail=trailer.message)]
            blank = np.array(list(map(_is_blank, chunks.cut(start, data))), bool)
            if blank.any() and _is_blank(memoryview(self.storage.get(chunks.name, self.used - 1))[1:]):
                detail = "the chunks and the place of their checksums have only zeros"
                damage.append(chunks.finding("checksum", detail, blank))
            return ReadResult(tuple(damage))
        count = len(chunks.index)
        if trailer.id != self.id:
            detail = f"it has the bytes of {CHUNKS}/{id_to_text(trailer.id)}"
            return ReadResult((chunks.finding("exchanged", detail),), compared=count)
        rows = trailer.find_ranges(chunks.offset, chunks.length)
        findings: list[Finding] = []
        if (rows < 0).any():
            detail = "the references must point at whole chunks of the file, got other ranges"
            findings.append(chunks.finding("checksum", detail, rows < 0))
        damaged = np.isin(rows, damaged_rows(trailer, np.unique(rows[rows >= 0]), data, start))
        if damaged.any():
            detail = "the bytes differ from the checksum that the writer recorded"
            findings.append(chunks.finding("checksum", detail, damaged))
        return ReadResult(tuple(findings), compared=count)


def _is_blank(data: memoryview) -> bool:
    return not np.frombuffer(data, np.uint8).any()


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Chunks of one array in one object: coordinates (k, ndim), positions and lengths (k,)."""

    name: str
    node: bytes
    index: U32
    offset: U64
    length: U64
    statistics: ChunkStatistics | None = None

    @staticmethod
    def of(name: str, node: bytes, table: ChunkTable, rows: I64) -> Chunks:
        """Return some chunks of a table."""
        statistics = None if table.statistics is None else table.statistics.take(rows)
        return Chunks(name, node, table.index[rows], table.offset[rows], table.length[rows], statistics)

    def finding(self, check: str, detail: str, rows: NDArray[np.bool_] | slice = slice(None)) -> Finding:
        """Return a finding about some of the chunks, or about all of them."""
        return Finding(check, self.name, self.node, self.index[rows], detail, offsets=self.offset[rows])

    def row(self, number: int) -> ChunkStatistics | None:
        """Return the statistics of one chunk."""
        return None if self.statistics is None else self.statistics.take(slice(number, number + 1))

    def cut(self, start: int, data: Buffer) -> Iterator[memoryview]:
        """Yield the bytes of each chunk. ``data`` are the bytes of the object from ``start``."""
        view = memoryview(data).cast("B")
        for low, size in zip(self.offset.tolist(), self.length.tolist(), strict=True):
            yield view[low - start : low - start + size]


# Bytes


@dataclass(frozen=True, slots=True, eq=False)
class ReadRequest:
    """References of a manifest to read, counted over its arrays in the order of their ids."""

    manifest: bytes
    start: int
    stop: int
    snapshots: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The findings of chunks, and the numbers of read bytes, native chunks, and those with a checksum."""

    findings: tuple[Finding, ...] = ()
    size: int = 0
    native: int = 0
    compared: int = 0


#: The name of a check that a chunk fails, and the reason. Both are empty for a chunk that can be decoded.
type Verdict = tuple[str, str]
#: Decodes a chunk. The arguments are its coordinates, its bytes, and its statistics: one row, or None.
type Decode = Callable[[tuple[int, ...], Buffer, ChunkStatistics | None], Verdict]


def check_bytes(
    context: Context, item: tuple[None, Iterable[ReadRequest]]
) -> Iterator[tuple[bytes, ReadResult]]:
    """Read all bytes of some references, and compare them with recorded checksums."""
    decoder_of = lru_cache(maxsize=64)(partial(_decoder, context))
    for request in item[1]:
        yield request.manifest, _read(context, request, decoder_of)


def _decoder(context: Context, node: bytes, snapshot: bytes) -> Decode:
    """Return the decoder of an array, by its node id and a snapshot that has it."""
    nodes = context.assets.snapshot(snapshot).nodes
    row = id_list(nodes.ids).index(node)
    path, document = nodes.paths.text(row), nodes.user_data.bytes(row)
    decoder = reading(Workspace(context, snapshot)).store.chunk_decoder(path)
    meaning, encoding = meaning_of(document), encoding_of(document)

    def verdict(coords: tuple[int, ...], data: Buffer, statistics: ChunkStatistics | None) -> Verdict:
        claimed = claimed_bytes(data)
        try:
            if claimed is not None:
                require_plausible(f"{path} of {id_to_text(snapshot)}", document, data, claimed)
        except FormatError as refusal:
            return "undecodable", refusal.message
        try:
            elements = decoder.decoded(coords, data)
        except Exception as error:  # codecs raise errors of any class
            return _verdict(error)
        if statistics is not None and meaning is not None and encoding is not None:
            own = ChunkStatistics(meaning.context, rows_of_chunk(meaning, encoding, coords, elements)[None])
            if own.has_shape_of(statistics) and contradicted(statistics.rows, own.rows).any():
                return "statistics", "the statistics of the chunk are those of other elements"
        return "", ""

    return verdict


def _verdict(error: Exception) -> Verdict:
    """Return the check and the reason for an error of codecs. Only some errors prove damage."""
    text = error.message if isinstance(error, IcechunkError) else str(error)
    check = "undecodable" if proves_damage(error) else "codec-missing"
    return check, f"{type(error).__name__}: {text}".rstrip(" .:")


def _read(context: Context, request: ReadRequest, decoder_of: Callable[[bytes, bytes], Decode]) -> ReadResult:
    spans: list[_Span] = []
    findings: list[Finding] = []
    first = inline = native = 0
    key, storage = manifest_key(request.manifest), context.storage
    try:
        manifest = MANIFEST.read(storage, request.manifest)
        arrays = (with_read_statistics(storage, manifest) if request.snapshots else manifest).arrays
    except IcechunkError as error:
        return ReadResult((read_finding(error, key),))
    for node, table in sorted(arrays.items()):
        part = table.select_chunks(slice(max(0, request.start - first), max(0, request.stop - first)))
        first += len(table)
        decode: Decode | None = None
        if node in request.snapshots and len(part):
            try:
                decode = decoder_of(node, request.snapshots[node])
            except Exception as error:  # zarr refuses documents with errors of any class
                detail = f"the codecs of the array: {_verdict(error)[1]}"
                findings.append(Finding("codec-missing", key, node, detail=detail))
        if decode is not None:
            for row in np.flatnonzero(part.kind == ChunkKind.INLINE).tolist():
                data = part.inline.bytes(int(part.source[row]))
                inline += len(data)
                statistics = None if part.statistics is None else part.statistics.take(slice(row, row + 1))
                check, text = decode(tuple(part.index[row].tolist()), data, statistics)
                if check:
                    findings.append(Finding(check, key, node, part.index[row : row + 1], text))
        for name, rows, get in _objects(part, storage, context.virtual):
            sums = None
            if name.startswith(f"{CHUNKS}/"):
                is_single = not part.offset[rows].any() and len(set(part.length[rows].tolist())) == 1
                used = int((part.offset[rows] + part.length[rows]).max())
                sums = FileSums(storage, part.chunk_ids[part.source[rows[0]]].tobytes(), used, is_single)
                native += len(rows)
            for low, high, inside in _ranges(part.offset[rows], part.length[rows]):
                chunks = Chunks.of(name, node, part, rows[inside])
                spans.append(_Span(chunks, get, low, high, sums, decode))
    answers = list(map_bounded(Purpose.VERIFICATION_READS, _Span.check, spans))
    return ReadResult(
        (*findings, *(finding for each in answers for finding in each.findings)),
        inline + sum(each.size for each in answers),
        native,
        sum(each.compared for each in answers),
    )


type _Get = Callable[[int, int], Buffer]


@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    """A range of an object for one request, and the chunks in it."""

    chunks: Chunks
    get: _Get
    low: int
    high: int
    sums: FileSums | None
    decode: Decode | None

    def check(self) -> ReadResult:
        """Read the range, and check its chunks."""
        name = self.chunks.name
        try:
            data = memoryview(self.get(self.low, self.high)).cast("B")
            if data.nbytes != self.high - self.low:
                raise StorageError(
                    f"{name} must have the bytes {self.low} to {self.high}, got {data.nbytes} bytes",
                    ErrorKind.INVALID_OBJECT_SIZE,
                )
            result = ReadResult() if self.sums is None else self.sums.compare(self.chunks, self.low, data)
            findings = result.findings
        except IcechunkError as error:
            check = "short" if error.kind == ErrorKind.INVALID_BYTE_RANGE else read_check(error)
            check = check if self.sums is not None else virtual_check(error)
            return ReadResult((self.chunks.finding(check, error.message),))
        if not findings and self.decode is not None:
            findings = self._undecodable(data, self.decode)
        return ReadResult(findings, data.nbytes, 0, result.compared)

    def _undecodable(self, data: memoryview, decode: Decode) -> tuple[Finding, ...]:
        """Decode all chunks of the range. One finding has all chunks with the same error."""
        coordinates = map(tuple, self.chunks.index.tolist())
        rows = map(self.chunks.row, range(len(self.chunks.index)))
        verdicts, codes = intern(list(map(decode, coordinates, self.chunks.cut(self.low, data), rows)))
        return tuple(
            self.chunks.finding(check, text, codes == code)
            for code, (check, text) in enumerate(verdicts)
            if check
        )


def _objects(table: ChunkTable, storage: Storage, sources: VirtualSources) -> Iterator[tuple[str, I64, _Get]]:
    """Yield the objects that hold chunks of a table: name, rows, and a function that reads a range."""
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
                ref = virtual(table, source, 0, 1)
                yield (
                    ref.location,
                    part,
                    partial(lambda ref, low, high: sources.locate(ref).get(low, high), ref),
                )


def _ranges(offset: U64, length: U64) -> Iterator[tuple[int, int, I64]]:
    """Yield ranges to read, each with its rows. Neighbours are read together, in blocks of limited size."""
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
