"""Manifests: the references of the chunks of each array.

*Layout of a written file*, front to back:

    Manifest ── arrays ── ArrayManifest, one for each array ── refs, one vector for each array
    records     ChunkRef tables, grouped by shape (native, virtual, ...), with coordinates in their tails
    strings     each distinct location and etag once, shared by offset; then the inline chunks

*Location compression.* The format allows locations as zstd frames with a common dictionary. Plain locations,
which are stored once, shared, and compressed with the whole file, are nearly always smaller. So the
dictionary is only written if a sample shows that it helps.

Specification: *Chunk Manifest Files*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched, repeat
from typing import Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError
from frazil.format.chunk_table import (
    ChunkKind,
    ChunkRef,
    ChunkTable,
    ForeignObjects,
    InlineRef,
    NativeRef,
    VirtualRef,
    by_rank,
    coordinates_layout,
    joined,
    put_coordinates,
    read_coordinates,
    stack,
    unsorted_arrays,
)
from frazil.format.columns import (
    I64,
    U8,
    U32,
    U64,
    HasFields,
    Ragged,
    distinct_rows,
    number,
    require,
    some_repeat,
)
from frazil.format.envelope import (
    MAX_PAYLOAD_BYTES,
    FileType,
    Violation,
    collect,
    open_envelope,
    reading,
    seal,
    unsorted,
)
from frazil.format.flatbuffer import Buffer, Layout, OffsetVectors, Tables, Writer, link

__all__ = [
    "ArrayTables",
    "ChunkFiles",
    "ChunkKind",
    "ChunkRanges",
    "ChunkRef",
    "ChunkTable",
    "ForeignObjects",
    "InlineRef",
    "LocationCompression",
    "Manifest",
    "NativeRef",
    "VirtualRef",
    "decode_chunk_files",
    "decode_chunk_ranges",
    "decode_manifest",
    "encode_manifest",
    "stored_locations",
]

#: Readers refuse locations that decompress to more bytes.
MAX_LOCATION_BYTES: Final = 1024
_LOCATIONS_AT_ONCE: Final = 1 << 12

# Slots of the tables, in the order of the schema.
_ID, _ARRAYS, _DICTIONARY, _ALGORITHM = 0, 1, 2, 3
_NODE_ID, _REFS = 0, 1
_INDEX, _INLINE, _OFFSET, _LENGTH, _CHUNK_ID, _LOCATION, _ETAG, _MODIFIED, _COMPRESSED = range(9)
_ZSTD_DICTIONARY = 1
_REQUIRED: Final = "manifest-required"
#: Up to this number of locations without a dictionary that are smaller than any dictionary is worth need
#: none. Training one takes 20 ms.
_FEW_LOCATIONS: Final = 1000
_SMALLEST_DICTIONARY: Final = 400
#: With more rows, a sample shows whether rows repeat, before all of them are compared.
_MANY_ROWS = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """A manifest file: its id and the references of each array, by node id (8 bytes)."""

    id: bytes
    arrays: Mapping[bytes, ChunkTable]


@dataclass(frozen=True, slots=True)
class LocationCompression:
    """When and how locations are compressed with a dictionary, with the defaults of the format."""

    min_num_chunks: int = 1000
    max_training_samples: int = 100
    max_dictionary_bytes: int = 2048
    level: int = 3


# ---------------------------------------------------------------------------------------- writing

_MANIFEST: Final = Layout({_ID: "V12", _ARRAYS: "u4", _ALGORITHM: "u1"}, 5)
_MANIFEST_WITH_DICTIONARY: Final = Layout({_ID: "V12", _ARRAYS: "u4", _DICTIONARY: "u4", _ALGORITHM: "u1"}, 5)
_ARRAY: Final = Layout({_NODE_ID: "V8", _REFS: "u4"}, 3)

_RANGE: Final = {_OFFSET: "u8", _LENGTH: "u8"}
#: The shapes of a ChunkRef: its kind, and for virtual references the checksum in the higher bits.
_WITH_ETAG, _WITH_MODIFIED = 4, 8
_SHAPES: Final[dict[int, dict[int, str]]] = {
    ChunkKind.NATIVE: {**_RANGE, _CHUNK_ID: "V12"},
    ChunkKind.VIRTUAL: {**_RANGE, _LOCATION: "u4"},
    ChunkKind.VIRTUAL | _WITH_ETAG: {**_RANGE, _LOCATION: "u4", _ETAG: "u4"},
    ChunkKind.VIRTUAL | _WITH_MODIFIED: {**_RANGE, _LOCATION: "u4", _MODIFIED: "u4"},
    ChunkKind.INLINE: {_INLINE: "u4"},
}


def _layout(shape: int, ndim: int, compressed: bool) -> Layout:
    fields = dict(_SHAPES[shape])
    if compressed and _LOCATION in fields:
        fields[_COMPRESSED] = fields.pop(_LOCATION)
    return coordinates_layout(tuple(fields.items()), 10, _INDEX, ndim)


def encode_manifest(
    manifest: Manifest,
    *,
    level: int = 3,
    locations: LocationCompression | None = None,
    spec_version: int = 2,
) -> bytes:
    """Return the file of a manifest.

    A manifest cannot store deletions, so they are left out, as are arrays without references. Locations are
    compressed with a dictionary if ``locations`` allows it and the file becomes smaller (never in spec
    version 1).
    """
    tables = {node: table.stored() for node, table in sorted(manifest.arrays.items())}
    tables = {node: table for node, table in tables.items() if len(table)}
    payload = _layout_manifest(manifest.id, tables, locations if spec_version > 1 else None)
    return seal(payload, FileType.MANIFEST, spec_version=spec_version, level=level)


def _layout_manifest(
    id_: bytes, tables: Mapping[bytes, ChunkTable], config: LocationCompression | None
) -> list[U8]:
    arrays = list(tables.values())
    whole = stack(arrays, np.zeros((0, 0), np.uint32)) if arrays else ChunkTable.empty(0)
    counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
    strings, location_of = _shared(whole.foreign.locations)
    _check_size(whole, location_of, strings)
    compression = _compress_locations(strings, whole, config)

    writer = Writer()
    layout = _MANIFEST_WITH_DICTIONARY if compression else _MANIFEST
    root = writer.table(layout)
    root.put(_ID, id_)
    root.put(_ALGORITHM, _ZSTD_DICTIONARY if compression else 0)
    entries = writer.offset_vectors([len(arrays)])
    root.link(_ARRAYS, int(entries.positions[0]))
    records, positions = writer.tables(_ARRAY, len(arrays))
    entries.fill(positions)
    records[f"f{_NODE_ID}"] = np.frombuffer(b"".join(tables), "V8")
    refs = writer.offset_vectors(counts)
    link(records, _ARRAY, _REFS, positions, refs.positions)
    groups = list(_write_refs(writer, refs, arrays, whole, bool(compression)))
    if compression:
        root.link(_DICTIONARY, writer.vector(compression[0]))
        strings_at = writer.vectors(compression[1])
    else:
        strings_at = writer.strings(strings)
    _link_sources(groups, _COMPRESSED if compression else _LOCATION, strings_at[location_of])
    if any(_ETAG in group.layout.offsets for group in groups):
        etags, etag_of = distinct_rows(whole.foreign.etags)
        _link_sources(groups, _ETAG, writer.strings(etags)[etag_of])
    if any(_INLINE in group.layout.offsets for group in groups):
        _link_sources(groups, _INLINE, writer.vectors(whole.inline))
    return writer.finish(root.position)


def _shared(rows: Ragged) -> tuple[Ragged, U32]:
    """Return each distinct row once, and the number of each row's value; of many distinct rows, all rows."""
    if len(rows) <= _MANY_ROWS or some_repeat(rows):
        return distinct_rows(rows)
    return rows.compact(), np.arange(len(rows), dtype=np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """References of one shape and one number of dimensions."""

    source: U32
    layout: Layout
    records: NDArray[Any]
    positions: I64


def _write_refs(
    writer: Writer, vectors: OffsetVectors, arrays: Sequence[ChunkTable], whole: ChunkTable, compressed: bool
) -> Iterator[_Group]:
    """Write the records of all references, without the sources that they lead to."""
    if not arrays:
        return
    shapes = _shapes(whole)
    ndims = np.fromiter((table.ndim for table in arrays), np.int64, len(arrays))
    counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
    for ndim, members, rows in by_rank(ndims, counts):
        index = joined([arrays[member].index for member in members])
        own = shapes if isinstance(shapes, int) or isinstance(rows, slice) else shapes[rows]
        present = [own] if isinstance(own, int) else np.unique(own).tolist()
        for shape in present:
            part: I64 | slice = slice(None)
            if len(present) > 1:
                part = np.flatnonzero(own == shape)
            chosen = part if isinstance(rows, slice) else rows[part]
            layout = _layout(shape, ndim, compressed)
            coords = index[part]
            records, positions = writer.tables(layout, len(coords))
            put_coordinates(records, layout, _INDEX, coords)
            source = whole.source[chosen]
            if _OFFSET in layout.offsets:
                records[f"f{_OFFSET}"] = whole.offset[chosen]
                records[f"f{_LENGTH}"] = whole.length[chosen]
            if _CHUNK_ID in layout.offsets:
                records[f"f{_CHUNK_ID}"] = np.ascontiguousarray(whole.chunk_ids).view("V12")[:, 0][source]
            if _MODIFIED in layout.offsets:
                records[f"f{_MODIFIED}"] = whole.foreign.modified[source]
            vectors.lead(chosen, positions)
            yield _Group(source, layout, records, positions)


def _shapes(whole: ChunkTable) -> int | U8:
    """Return the key of ``_SHAPES`` for each reference, or one number if all have the same shape."""
    foreign = whole.foreign
    flags = np.where(foreign.etags.lengths > 0, _WITH_ETAG, np.where(foreign.modified > 0, _WITH_MODIFIED, 0))
    shapes = whole.kind
    if flags.any():
        virtual = whole.kind == ChunkKind.VIRTUAL
        shapes = shapes.copy()
        shapes[virtual] |= flags.astype(np.uint8)[whole.source[virtual]]
    return int(shapes[0]) if (shapes == shapes[0]).all() else shapes


def _link_sources(groups: Sequence[_Group], slot: int, targets: I64) -> None:
    for group in groups:
        if slot in group.layout.offsets:
            link(group.records, group.layout, slot, group.positions, targets[group.source])


def _check_size(whole: ChunkTable, location_of: NDArray[np.uint32], strings: Ragged) -> None:
    longest = [int(rows.lengths.max(initial=0)) for rows in (strings, whole.foreign.etags, whole.inline)]
    if (100 + sum(longest)) * len(whole) <= MAX_PAYLOAD_BYTES:
        return
    virtual = whole.source[whole.kind == ChunkKind.VIRTUAL]
    inline = whole.source[whole.kind == ChunkKind.INLINE]
    # About 100 bytes for each reference: table, vtable, coordinates, place in the vector.
    apparent = 100 * len(whole) + int(strings.lengths[location_of][virtual].sum())
    apparent += int(whole.foreign.etags.lengths[virtual].sum()) + int(whole.inline.lengths[inline].sum())
    if apparent > MAX_PAYLOAD_BYTES:
        raise FormatError(
            f"a manifest must have at most {MAX_PAYLOAD_BYTES} bytes, got {len(whole)} references with "
            f"{apparent} bytes. Split the references over more manifests",
            ErrorKind.SERIALIZATION,
        )


def _compress_locations(
    strings: Ragged, whole: ChunkTable, config: LocationCompression | None
) -> tuple[U8, Ragged] | None:
    """Return the dictionary and the compressed locations, if they make the file smaller."""
    if config is None or np.count_nonzero(whole.kind == ChunkKind.VIRTUAL) < config.min_num_chunks:
        return None
    if not len(strings) or int(strings.lengths.max()) > MAX_LOCATION_BYTES:
        return None
    if int(strings.lengths.sum()) <= config.max_dictionary_bytes:
        return None  # the dictionary would be larger than the locations
    blobs = strings.blobs()
    if len(blobs) <= _FEW_LOCATIONS and len(_packed(blobs)) < _SMALLEST_DICTIONARY:
        return None
    step = max(1, len(blobs) // config.max_training_samples)
    samples: list[Any] = blobs[::step][: config.max_training_samples]
    # Training needs several times more text than the size of the dictionary.
    samples *= 1 + 10 * config.max_dictionary_bytes // max(1, sum(map(len, samples)))
    try:
        dictionary = zstandard.train_dictionary(config.max_dictionary_bytes, samples, level=config.level)
    except zstandard.ZstdError:
        return None  # too few or too short samples
    compress = zstandard.ZstdCompressor(
        level=config.level, dict_data=dictionary, write_content_size=False
    ).compress
    if not _dictionary_helps(blobs, compress, dictionary.as_bytes()):
        return None
    return np.frombuffer(dictionary.as_bytes(), np.uint8), Ragged.of_bytes(list(map(compress, blobs)))


def _dictionary_helps(blobs: list[bytes], compress: Callable[[bytes], bytes], dictionary: bytes) -> bool:
    """Return whether a sample of locations takes less space in the compressed file with the dictionary."""
    stretch = blobs[:10_000]
    saved = len(_packed(stretch)) - len(_packed(map(compress, stretch)))
    return saved * (len(blobs) / len(stretch)) > len(_packed([dictionary]))


def _packed(texts: Iterable[bytes]) -> bytes:
    """Return some texts about as they are in a compressed file."""
    return zstandard.ZstdCompressor(level=3).compress(b"\0\0\0\0".join(texts))


# ---------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True, eq=False)
class ArrayTables(Mapping[bytes, ChunkTable]):
    """The tables of a manifest that was read. Each is cut from the common columns at its first use."""

    rows: Mapping[bytes, int]
    starts: I64
    counts: I64
    ndims: I64
    coords: U32  # coordinates of all references, one array after the other
    coord_starts: I64
    kind: U8
    source: U32
    offset: U64
    length: U64
    chunk_ids: U8
    foreign: ForeignObjects
    inline: Ragged
    cache: dict[bytes, ChunkTable] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.rows)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self.rows

    def __getitem__(self, node_id: bytes) -> ChunkTable:
        # Cached, so that a table computes its search keys only once.
        table = self.cache.get(node_id)
        if table is None:
            table = self.cache[node_id] = self._make(self.rows[node_id])
        return table

    def _make(self, row: int) -> ChunkTable:
        start, count, ndim = int(self.starts[row]), int(self.counts[row]), int(self.ndims[row])
        part, first = slice(start, start + count), int(self.coord_starts[row])
        table = ChunkTable(
            self.coords[first : first + count * ndim].reshape(count, ndim),
            self.kind[part],
            self.source[part],
            self.offset[part],
            self.length[part],
            self.chunk_ids,
            self.foreign,
            self.inline,
        )
        return table.sorted()


def decode_manifest(data: Any, name: str, broken: list[Violation] | None = None) -> Manifest:
    """Read a manifest. Raise ``FormatError`` with ``name`` for other bytes.

    References need not be sorted in the file. If a reference has several of the fields that determine its
    kind, the chunk id has priority, then the compressed location, the location, and the inline bytes.
    ``broken`` gets the broken rules that readers do not need.
    """
    with reading(name):
        return manifest_of_payload(open_envelope(data, FileType.MANIFEST)[1], broken)


def manifest_of_payload(payload: Any, broken: list[Violation] | None = None) -> Manifest:
    """Return the manifest of the decompressed bytes of a file."""
    root = Buffer(payload).root()
    arrays, refs, counts = read_references(root)
    rows = _rows_of_arrays(arrays)
    coords, ndims, coord_starts = read_coordinates(refs, _INDEX, counts, "ref-rank")
    kind, source, ids, foreign, inline = _read_sources(root, refs)
    offset, length = _read_ranges(refs, kind, source, inline)
    starts = np.cumsum(counts) - counts
    tables = ArrayTables(
        rows,
        starts,
        counts,
        ndims,
        coords,
        coord_starts,
        kind,
        source,
        offset,
        length,
        ids,
        foreign,
        inline,
    )
    collect(broken, _violations(root, refs, tables))
    return Manifest(root.structs(_ID, 12).tobytes(), tables)


def _violations(root: Tables, refs: Tables, tables: ArrayTables) -> Iterator[Violation]:
    """Yield the broken rules that readers do not need."""
    nodes = list(tables.rows)
    owners = np.repeat(np.arange(len(nodes)), tables.counts)
    yield from unsorted("arrays-sorted", "arrays", nodes)
    for row in unsorted_arrays(tables.coords, tables.ndims, tables.coord_starts, tables.counts):
        yield Violation("refs-sorted", "references must be sorted by coordinates, each once", nodes[row])
    has_id, is_inline = refs.present(_CHUNK_ID).astype(np.uint8), refs.present(_INLINE)
    kinds = has_id + is_inline + (refs.present(_LOCATION) | refs.present(_COMPRESSED))
    both = refs.present(_ETAG) & refs.present(_MODIFIED)
    over = tables.offset + tables.length < tables.offset
    for check, rule, wrong in (
        ("ref-kind", "a reference must be only one of inline, native and virtual", kinds != 1),
        ("ref-checksum", "a reference must have an etag or a time", both),
        ("ref-range", "a range must end before byte 2^64", over),
    ):
        if wrong.any():
            detail = f"{rule}, got {np.count_nonzero(wrong)} other references"
            yield Violation(check, detail, nodes[owners[np.argmax(wrong)]])
    algorithm = int(root.scalars(_ALGORITHM, "u1", 1)[0])
    if algorithm not in (0, _ZSTD_DICTIONARY):
        yield Violation("location-compression", f"the compression must be 0 or 1, got {algorithm}")
    locations = tables.foreign.locations
    for location in map(locations.bytes, range(len(locations))):  # damaged files share bytes: one at a time
        if b":" not in location or location.decode(errors="replace").encode() != location:
            yield Violation("ref-location", f"a location must be a URL in UTF-8, got {location[:80]!r}")
            return


def array_vectors(buffer: Buffer) -> tuple[bytes, dict[bytes, tuple[int, int]]]:
    """Return the id of a manifest, and the vector of references of each array.

    A vector is the position of its first element, and the number of its elements.
    """
    root = buffer.root()
    arrays = _read_arrays(root)
    starts, counts = arrays.places(_REFS, 4)
    vectors = list(zip(starts.tolist(), counts.tolist(), strict=True))
    rows = _rows_of_arrays(arrays)
    return root.structs(_ID, 12).tobytes(), {node: vectors[row] for node, row in rows.items()}


def _rows_of_arrays(arrays: Tables) -> dict[bytes, int]:
    """Return the number of each array by its node id."""
    node_ids = Ragged.from_lengths(arrays.structs(_NODE_ID, 8).reshape(-1), np.full(len(arrays), 8))
    rows = dict(zip(node_ids.blobs(), range(len(arrays)), strict=True))
    if len(rows) != len(arrays):
        text = f"{len(arrays)} arrays must have different node ids, got {len(rows)} ids"
        raise FormatError(text, check="arrays-sorted")
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRanges:
    """The id of a manifest, and the ranges of its n references without their arrays and coordinates.

    Attributes:
        id: The id of the manifest.
        kind: The ``ChunkKind`` of each reference, uint8 (n,).
        source: The row of each reference in ``chunk_ids`` or ``locations``, uint32 (n,).
        offset: uint64 (n,), bytes. 0 for inline chunks.
        length: uint64 (n,), bytes.
        chunk_ids: Ids of chunk files, uint8 (k, 12), with repetitions.
        locations: Locations of foreign objects, with repetitions.
    """

    id: bytes
    kind: U8
    source: U32
    offset: U64
    length: U64
    chunk_ids: U8
    locations: Ragged


def decode_chunk_ranges(data: Any, name: str) -> ChunkRanges:
    """Read only the ranges of the chunks, faster than ``decode_manifest``."""
    with reading(name):
        root = Buffer(open_envelope(data, FileType.MANIFEST)[1]).root()
        _, refs, _ = read_references(root)
        kind, source, ids, foreign, inline = _read_sources(root, refs)
        offset, length = _read_ranges(refs, kind, source, inline)
        id_ = root.structs(_ID, 12).tobytes()
        return ChunkRanges(id_, kind, source, offset, length, ids, foreign.locations)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkFiles:
    """The id of a manifest, and the ids of its chunk files, uint8 (k, 12), with repetitions."""

    id: bytes
    chunk_ids: U8


def decode_chunk_files(data: Any, name: str) -> ChunkFiles:
    """Read only the ids of the chunk files, much faster than ``decode_manifest``."""
    with reading(name):
        root = Buffer(open_envelope(data, FileType.MANIFEST)[1]).root()
        _, refs, _ = read_references(root)
        chunk_ids = _read_ids(_some(refs, refs.present(_CHUNK_ID)))[0]
        return ChunkFiles(root.structs(_ID, 12).tobytes(), chunk_ids)


def read_references[T: HasFields](root: T) -> tuple[T, T, I64]:
    """Return the arrays, all references, and the number of references of each array.

    Without a required vector, an array would have fill values instead of its chunks.
    """
    arrays = _read_arrays(root)
    refs, counts = arrays.children(_REFS)
    require(refs, "chunk reference", _REQUIRED, index=_INDEX)
    return arrays, refs, counts


def _read_arrays[T: HasFields](root: T) -> T:
    require(root, "manifest", _REQUIRED, id=_ID, arrays=_ARRAYS)
    arrays, _ = root.children(_ARRAYS)
    require(arrays, "array of a manifest", _REQUIRED, node_id=_NODE_ID, refs=_REFS)
    return arrays


def stored_locations(data: Any, name: str) -> tuple[bool, int | None, int]:
    """Return how a manifest's file stores locations."""
    with reading(name):
        root = Buffer(open_envelope(data, FileType.MANIFEST)[1]).root()
        refs, _ = root.children(_ARRAYS)[0].children(_REFS)
        has = bool(root.present(_DICTIONARY)[0])
        return (
            int(root.scalars(_ALGORITHM, "u1", _ZSTD_DICTIONARY)[0]) == _ZSTD_DICTIONARY,
            len(root.vectors(_DICTIONARY).bytes(0)) if has else None,
            int(np.count_nonzero(refs.present(_COMPRESSED))),
        )


def _read_sources(root: Tables, refs: Tables) -> tuple[U8, U32, U8, ForeignObjects, Ragged]:
    """Return the kinds and sources of all references, and the values that the sources number."""
    if len(refs) and refs.all_have(_CHUNK_ID):
        ids, codes = _read_ids(refs)
        kinds = np.full(len(refs), ChunkKind.NATIVE, np.uint8)
        none = ForeignObjects(Ragged.empty(), Ragged.empty(), np.zeros(0, np.uint32))
        return kinds, codes.astype(np.uint32), ids, none, Ragged.empty()
    native = refs.present(_CHUNK_ID)
    virtual = (refs.present(_COMPRESSED) | refs.present(_LOCATION)) & ~native
    inline = ~native & ~virtual
    kind = np.full(len(refs), ChunkKind.INLINE, np.uint8)
    kind[native], kind[virtual] = ChunkKind.NATIVE, ChunkKind.VIRTUAL
    source = np.zeros(len(refs), np.uint32)
    ids, source[native] = _read_ids(_some(refs, native))
    foreign, source[virtual] = _read_foreign(root, _some(refs, virtual))
    blobs, source[inline] = _read_inline(_some(refs, inline))
    return kind, source, ids, foreign, blobs


def _read_ranges(refs: Tables, kind: U8, source: U32, inline: Ragged) -> tuple[U64, U64]:
    """Return the offset and the length of each reference in bytes."""
    offset, length = refs.scalars(_OFFSET, "<u8"), refs.scalars(_LENGTH, "<u8")
    is_inline = kind == ChunkKind.INLINE
    if is_inline.any():
        offset = np.where(is_inline, np.uint64(0), offset)
        # Only inline references: the sources of other kinds may exceed the inline rows.
        sizes = inline.lengths.astype(np.uint64)
        length = np.array(length)
        length[is_inline] = sizes[source[is_inline]]
    return offset, length


def _some(tables: Tables, rows: NDArray[np.bool_]) -> Tables:
    return tables if rows.all() else tables.take(rows)


def _read_ids(refs: Tables) -> tuple[U8, NDArray[Any]]:
    ids = refs.structs(_CHUNK_ID, 12)
    # Only equal neighbours, as in a pack, share an id. Finding all equal ids would take longer than it saves.
    words = ids.view(np.uint32)
    new = np.ones(len(ids), np.bool_)
    np.not_equal(words[1:, 0], words[:-1, 0], out=new[1:])
    if new.all():
        return ids, np.arange(len(ids))
    for column in words.T[1:]:
        new[1:] |= column[1:] != column[:-1]
    return ids[new], np.cumsum(new) - 1


def _read_foreign(root: Tables, refs: Tables) -> tuple[ForeignObjects, NDArray[Any]]:
    compressed = refs.present(_COMPRESSED)
    if compressed.any():
        packed, packed_codes = _shared_rows(refs.take(compressed), _COMPRESSED)
        plain, plain_codes = _shared_rows(refs.take(~compressed), _LOCATION)
        locations = Ragged.concat([_decompress_locations(root, packed), plain])
        codes = np.zeros(len(refs), np.int64)
        codes[compressed], codes[~compressed] = packed_codes, plain_codes.astype(np.int64) + len(packed)
    else:
        locations, location_codes = _shared_rows(refs, _LOCATION)
        codes = location_codes.astype(np.int64)
    has_etag, has_modified = refs.present(_ETAG).any(), refs.present(_MODIFIED).any()
    if not has_etag and not has_modified:
        n = len(locations)
        return ForeignObjects(locations, Ragged.empty(n), np.zeros(n, np.uint32)), codes
    etags, etag_codes = _shared_rows(refs, _ETAG)
    times, time_codes = number(refs.scalars(_MODIFIED, "<u4").astype(np.int64))
    combined, etag_part = number(codes * max(1, len(etags)) + etag_codes)
    triples, result = number(etag_part.astype(np.int64) * max(1, len(times)) + time_codes)
    pairs, time_rows = np.divmod(triples, max(1, len(times)))
    location_rows, etag_rows = np.divmod(combined[pairs], max(1, len(etags)))
    foreign = ForeignObjects(
        locations.take(location_rows), etags.take(etag_rows), times.astype(np.uint32)[time_rows]
    )
    return foreign, result


def _read_inline(refs: Tables) -> tuple[Ragged, NDArray[Any]]:
    if not refs.present(_INLINE).all():
        raise FormatError("a chunk reference must be native, virtual or inline, got none", check="ref-kind")
    return _shared_rows(refs, _INLINE)


def _shared_rows(tables: Tables, slot: int) -> tuple[Ragged, NDArray[np.uint32]]:
    """Return the distinct strings or byte vectors of a field, and for each table the number of its value.

    An absent field is an empty row. Files of other writers may repeat a string instead of sharing it. The
    rows do not reference the buffer, unless a damaged file makes them overlap so much that they would be
    larger than the buffer.
    """
    targets, _ = tables.targets(slot)
    distinct, codes = number(targets)
    starts, lengths = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
    # An absent field has the target 0, where no vector can be.
    real = distinct > 0
    starts[real], lengths[real] = tables.buffer.vectors(distinct[real], 1)
    rows = Ragged(tables.buffer.bytes, starts, lengths)
    if rows.total() > tables.buffer.size:
        return rows, codes
    if some_repeat(rows):
        rows, places = distinct_rows(rows)
        return rows, places[codes]
    return rows.compact(), codes


def _decompress_locations(root: Tables, packed: Ragged) -> Ragged:
    """Decompress locations that are stored as zstd frames, each of at most ``MAX_LOCATION_BYTES``."""
    algorithm = int(root.scalars(_ALGORITHM, "u1", 1)[0])
    if algorithm == 0:
        return packed
    if algorithm != _ZSTD_DICTIONARY:
        text = f"location compression {algorithm}, expected 0 or 1"
        raise FormatError(text, check="location-compression")
    dictionary = root.vectors(_DICTIONARY).bytes(0)
    if not dictionary:
        text = "compressed locations need a dictionary, got none"
        raise FormatError(text, check="location-dictionary")
    blobs = packed.blobs()
    try:
        claimed = max(map(zstandard.frame_content_size, blobs))
        if claimed > MAX_LOCATION_BYTES:
            raise FormatError(f"a location must have at most {MAX_LOCATION_BYTES} bytes, got {claimed}")
        decompressor = zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(dictionary))
        locations: list[bytes] = []
        total = 0
        for some in batched(blobs, _LOCATIONS_AT_ONCE):
            locations += map(decompressor.decompress, some, repeat(MAX_LOCATION_BYTES))
            total += sum(map(len, locations[-len(some) :]))
            if total > MAX_PAYLOAD_BYTES:
                raise FormatError(
                    f"compressed locations: expected {MAX_PAYLOAD_BYTES} bytes at most, got more"
                )
        return Ragged.of_bytes(locations)
    except zstandard.ZstdError as error:
        raise FormatError(f"a compressed location cannot be read: {error}") from error
