"""Checks of chunk files: existing, long enough, readable, and not exchanged if their names are hashes."""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.chunks.virtual import VirtualSources
from frazil.errors import ErrorKind, IcechunkError, MissingExtraError, StorageError
from frazil.format.columns import I64, U8, U64
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, id_to_text
from frazil.format.keys import CHUNKS, chunk_key, manifest_key
from frazil.format.manifest import ChunkKind, ChunkTable, VirtualRef
from frazil.maintenance.listing import Listed
from frazil.maintenance.verification.checksums import Chunks, Compared, FileSums
from frazil.maintenance.verification.file_checks import read_check, read_finding
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.manifests import Needed
from frazil.maintenance.verification.requests import virtual, virtual_check
from frazil.repository.catalog.files import MANIFEST
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

#: Bytes of one request, and the longest gap between two chunks of the same request.
_BLOCK: Final = 16 << 20
_GAP: Final = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class LostFiles:
    """Chunk files that are missing or short.

    ids        uint8 (k, 12), sorted
    sizes      uint64 (k,)  bytes that the files have
    is_listed  bool (k,)    whether the files exist
    """

    ids: U8
    sizes: U64
    is_listed: NDArray[np.bool_]


def absent(needed: Iterable[Needed], listed: Listed) -> LostFiles:
    """Return the needed chunk files that are missing or short."""
    ids: list[U8] = [np.zeros((0, OBJECT_ID_BYTES), np.uint8)]
    listed_keys = id_keys(listed.ids)
    for each in needed:
        keys = id_keys(each.files)
        rows = np.minimum(listed_keys.searchsorted(keys), max(len(listed_keys) - 1, 0))
        same = listed_keys[rows] == keys if len(listed_keys) else np.zeros(len(keys), bool)
        sizes = np.zeros(len(keys), np.uint64)
        sizes[same] = listed.sizes[rows[same]]
        ids.append(each.files[~same | (sizes < each.ends)])
    lost = np.unique(id_keys(np.concatenate(ids))).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    sizes = np.zeros(len(lost), np.uint64)
    rows = listed_keys.searchsorted(id_keys(lost))
    is_listed = np.isin(id_keys(lost), listed_keys)
    sizes[is_listed] = listed.sizes[rows[is_listed]]
    return LostFiles(lost, sizes, is_listed)


def without_files(storage: Storage, manifest: bytes, lost: LostFiles) -> list[Finding]:
    """Return findings for the chunks of a manifest in missing or short files."""
    file_keys, sizes = id_keys(lost.ids), lost.sizes
    findings: list[Finding] = []
    try:
        arrays = MANIFEST.read(storage, manifest).arrays
    except IcechunkError as error:
        return [read_finding(error, manifest_key(manifest))]
    for node, table in arrays.items():
        hit = np.flatnonzero(np.isin(id_keys(table.chunk_ids), file_keys))
        for source in hit.tolist():
            at = int(file_keys.searchsorted(id_keys(table.chunk_ids[source : source + 1]))[0])
            rows = (table.kind == ChunkKind.NATIVE) & (table.source == source)
            rows &= table.offset + table.length > sizes[at]
            if rows.any():
                check = "short" if lost.is_listed[at] else "missing"
                name = f"{CHUNKS}/{id_to_text(table.chunk_ids[source].tobytes())}"
                detail = f"the file has {int(sizes[at])} bytes"
                offsets = table.offset[rows]
                findings.append(Finding(check, name, node, table.index[rows], detail, offsets=offsets))
    return findings


# Bytes


@dataclass(frozen=True, slots=True, eq=False)
class ReadRequest:
    """References of a manifest to read, as an item of work.

    They are counted over the arrays of the manifest, in the order of their ids.

    is_hashed  whether files with one chunk may be named by the hash of their chunk
    snapshots  the arrays whose chunks are decoded, each with a snapshot that has it
    """

    manifest: bytes
    start: int
    stop: int
    is_hashed: bool = False
    snapshots: Mapping[bytes, bytes] = field(default_factory=dict)


#: Returns why a chunk cannot be decoded, or an empty text. The arguments are its coordinates and its bytes.
type Decode = Callable[[tuple[int, ...], Buffer], str]
#: Returns the decoder of an array, by its node id and a snapshot that has it.
type DecoderOf = Callable[[bytes, bytes], Decode]


def read_rows(
    storage: Storage, sources: VirtualSources, request: ReadRequest, decoder_of: DecoderOf
) -> ReadResult:
    """Read all bytes of some references of a manifest, and compare them with recorded checksums.

    If the request says so, the chunks are decoded, too.
    """
    spans: list[_Span] = []
    findings: list[Finding] = []
    first = read = native = 0
    try:
        arrays = MANIFEST.read(storage, request.manifest).arrays
    except IcechunkError as error:
        return ReadResult((read_finding(error, manifest_key(request.manifest)),))
    for node, table in sorted(arrays.items()):
        part = table.select_chunks(slice(max(0, request.start - first), max(0, request.stop - first)))
        first += len(table)
        decode: Decode | None = None
        if node in request.snapshots and len(part):
            try:
                decode = decoder_of(node, request.snapshots[node])
            except Exception as error:  # zarr refuses documents with errors of any class
                detail = f"the codecs of the array: {type(error).__name__}: {error}"
                check = "codec-missing" if isinstance(error, MissingExtraError) else "undecodable"
                findings.append(Finding(check, manifest_key(request.manifest), node, detail=detail))
        if decode is not None:
            findings += _inline_findings(manifest_key(request.manifest), node, part, decode)
            read += int(part.length[part.kind == ChunkKind.INLINE].sum())
        for name, rows, get in _objects(part, storage, sources):
            is_chunk = name.startswith(f"{CHUNKS}/")
            is_single = is_chunk and not part.offset[rows].any() and len(set(part.length[rows].tolist())) == 1
            hashed_in = storage if request.is_hashed and is_single else None
            sums = _sums(part, rows, storage, is_single=is_single)
            native += 0 if sums is None else len(rows)
            for low, high, inside in _ranges(part.offset[rows], part.length[rows]):
                at = rows[inside]
                chunks = Chunks(node, part.index[at], part.offset[at], part.length[at])
                spans.append(_Span(name, get, low, high, chunks, hashed_in, sums, decode))
    answers = list(map_bounded(Purpose.VERIFICATION_READS, _Span.check, spans))
    return ReadResult(
        (*findings, *(finding for each in answers for finding in each.findings)),
        read + sum(each.size for each in answers),
        native,
        sum(each.compared for each in answers),
    )


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of reading chunks.

    findings  what is wrong
    size      the number of read bytes
    native    the number of native chunks
    compared  the number of native chunks with a recorded checksum
    """

    findings: tuple[Finding, ...] = ()
    size: int = 0
    native: int = 0
    compared: int = 0


def _sums(table: ChunkTable, rows: I64, storage: Storage, *, is_single: bool) -> FileSums | None:
    """Return the checksums of the chunk file of some rows, or None for a foreign object."""
    if table.kind[rows[0]] != ChunkKind.NATIVE:
        return None
    used = int((table.offset[rows] + table.length[rows]).max())
    return FileSums(storage, table.chunk_ids[table.source[rows[0]]].tobytes(), used, is_single)


def _inline_findings(key: str, node: bytes, table: ChunkTable, decode: Decode) -> Iterator[Finding]:
    for row in np.flatnonzero(table.kind == ChunkKind.INLINE).tolist():
        coords = tuple(table.index[row].tolist())
        text = decode(coords, table.inline.bytes(int(table.source[row])))
        if text:
            yield Finding("undecodable", key, node, table.index[row : row + 1], text)


type _Get = Callable[[int, int], Buffer]


@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    """A range of an object for one request, and the chunks in it."""

    name: str
    get: _Get
    low: int
    high: int
    chunks: Chunks
    #: The storage of files that are named by the hash of their bytes, or None.
    hashed_in: Storage | None = None
    #: The checksums of the file, or None for a foreign object.
    sums: FileSums | None = None
    decode: Decode | None = None

    def check(self) -> ReadResult:
        """Read the range, and check its chunks."""
        try:
            data = memoryview(self.get(self.low, self.high)).cast("B")
            if data.nbytes != self.high - self.low:
                raise StorageError(
                    f"{self.name} must have the bytes {self.low} to {self.high}, got {data.nbytes} bytes",
                    ErrorKind.INVALID_OBJECT_SIZE,
                )
            compared = Compared() if self.sums is None else self.sums.compare(self.chunks, self.low, data)
            findings = compared.findings
            if not (findings or compared.count or self.low) and self.hashed_in is not None:
                findings = self._unlike_name(self.hashed_in, data)
        except IcechunkError as error:
            check = _native_check(error) if self.name.startswith(f"{CHUNKS}/") else virtual_check(error)
            return ReadResult((self.chunks.finding(check, self.name, error.message),))
        if not findings and self.decode is not None:
            findings = self._undecodable(data, self.decode)
        return ReadResult(findings, data.nbytes, 0, compared.count)

    def _unlike_name(self, storage: Storage, data: memoryview) -> tuple[Finding, ...]:
        """Return a finding if the hash of these bytes is the name of another file that has other bytes.

        A file with the bytes of another file is no finding: two writers have stored the same chunk.
        """
        other = chunk_key(sha256(data).digest()[:OBJECT_ID_BYTES])
        if other == self.name or storage.head(other) is None:
            return ()
        try:
            stored = np.frombuffer(storage.get(other, 0, len(data)), np.uint8)
        except IcechunkError:  # the check of the other file reports it
            return ()
        if np.array_equal(stored, np.frombuffer(data, np.uint8)):
            return ()
        detail = f"its name is the hash of the bytes of {self.name}, and it has other bytes"
        return (Finding("exchanged", other, detail=detail),)

    def _undecodable(self, data: memoryview, decode: Decode) -> tuple[Finding, ...]:
        """Decode all chunks of the range. One finding has all chunks with the same error."""
        chunks = self.chunks
        starts = chunks.offset.astype(np.int64) - self.low
        spans = zip(chunks.index.tolist(), starts.tolist(), chunks.length.tolist(), strict=True)
        texts = np.array(
            [decode(tuple(at), data[start : start + length]) for at, start, length in spans], object
        )
        return tuple(
            chunks.finding("undecodable", self.name, text, texts == text)
            for text in sorted(set(texts[texts != ""].tolist()))
        )


def _native_check(error: IcechunkError) -> str:
    return "short" if error.kind == ErrorKind.INVALID_BYTE_RANGE else read_check(error)


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
                yield ref.location, part, partial(_get_foreign, sources, ref)


def _get_foreign(sources: VirtualSources, ref: VirtualRef, low: int, high: int) -> Buffer:
    return sources.locate(ref).get(low, high)


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


def split_rows(count: int, size: int, most: int) -> list[tuple[int, int]]:
    """Return ranges of ``count`` rows with about ``most`` of their ``size`` bytes each."""
    parts = max(1, min(count, -(-size // most)))
    cuts: NDArray[np.int64] = np.linspace(0, count, parts + 1).astype(np.int64)
    return [
        (low, high) for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True) if high > low
    ]
