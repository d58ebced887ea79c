"""Manifests: the references of the chunks of each array, as columns, and the search for single references.

A written file has, front to back: the manifest, its arrays, a vector of references for each array, the
references of each shape (native, virtual, ...) as columns in groups, which also have the locations, etags and
inline chunks of their references. If this would repeat too many bytes, these come once, at the end.

The format allows locations as zstd frames with a common dictionary. Plain locations, which are shared and
compressed with the whole file, are nearly always smaller. So the dictionary is only written if a sample shows
that it helps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import batched, pairwise, repeat
from struct import Struct, unpack_from
from threading import Lock
from typing import Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError
from frazil.format.chunk_table import (
    ChunkCoordinates,
    ChunkKind,
    ChunkRef,
    ChunkTable,
    InlineRef,
    NativeRef,
    VirtualObjects,
    VirtualRef,
    by_rank,
    read_coordinates,
    stack,
    unsorted_arrays,
    write_coordinates,
)
from frazil.format.columns import I64, U8, U32, Ragged, distinct_rows, number, some_repeat
from frazil.format.envelope import (
    MAX_PAYLOAD_BYTES,
    FileType,
    Violation,
    collect,
    decode_one,
    reading,
    seal,
    unsorted,
)
from frazil.format.flatbuffer import (
    NUL,
    Buffer,
    GroupTexts,
    OffsetVectors,
    TableColumns,
    TableLayout,
    Tables,
    TableWriter,
    open_tables,
)
from frazil.format.ids import id_list

__all__ = ["ChunkKind", "ChunkRef", "ChunkTable", "InlineRef", "NativeRef", "VirtualObjects", "VirtualRef"]

#: Readers refuse locations that decompress to more bytes.
MAX_LOCATION_BYTES: Final = 1024
_LOCATIONS_AT_ONCE: Final = 1 << 12

# Slots of the tables, in the order of the schema.
_ID, _ARRAYS, _DICTIONARY, _ALGORITHM = 0, 1, 2, 3
_NODE_ID, _REFS = 0, 1
_INDEX, _INLINE, _OFFSET, _LENGTH, _CHUNK_ID, _LOCATION, _ETAG, _MODIFIED, _COMPRESSED = range(9)
_ID_BYTES: Final = 12
_ZSTD_DICTIONARY = 1
_REQUIRED: Final = "manifest-required"
#: Up to this number of locations that are smaller than any dictionary need none. Training one takes 20 ms.
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


_DICTIONARY_LAYOUT: Final = {_ID: "V12", _ARRAYS: "u4", _DICTIONARY: "u4", _ALGORITHM: "u1"}
_MANIFEST_WITH_DICTIONARY: Final = TableLayout(_DICTIONARY_LAYOUT, 5)
_MANIFEST: Final = TableLayout({_ID: "V12", _ARRAYS: "u4", _ALGORITHM: "u1"}, 5)
_ARRAY: Final = TableLayout({_NODE_ID: "V8", _REFS: "u4"}, 3)

_RANGE: Final = ((_OFFSET, "u8"), (_LENGTH, "u8"))
#: The shapes of a ChunkRef: its kind, and for virtual references the checksum in the higher bits.
_WITH_ETAG, _WITH_MODIFIED = 4, 8
_SHAPES: Final[dict[int, tuple[tuple[int, str], ...]]] = {
    ChunkKind.NATIVE: (*_RANGE, (_CHUNK_ID, "V12")),
    ChunkKind.VIRTUAL: (*_RANGE, (_LOCATION, "u4")),
    ChunkKind.VIRTUAL | _WITH_ETAG: (*_RANGE, (_LOCATION, "u4"), (_ETAG, "u4")),
    ChunkKind.VIRTUAL | _WITH_MODIFIED: (*_RANGE, (_LOCATION, "u4"), (_MODIFIED, "u4")),
    ChunkKind.INLINE: ((_INLINE, "u4"),),
}


#: Texts or bytes by slot: distinct rows, the row of each source (None for its own number), NULs after each.
type _Texts = dict[int, tuple[Ragged, NDArray[Any] | None, int]]


def encode_manifest(
    manifest: Manifest, *, level: int = 3, locations: LocationCompression | None = None, spec_version: int = 2
) -> bytes:
    """Return the file of a manifest.

    A manifest cannot store deletions, so they are left out, as are arrays without references. Locations are
    compressed with a dictionary if ``locations`` allows it and the file becomes smaller (never in spec
    version 1).
    """
    tables = {node: table.stored() for node, table in sorted(manifest.arrays.items())}
    tables = {node: table for node, table in tables.items() if len(table)}
    arrays = list(tables.values())
    whole = stack(arrays, np.zeros((0, 0), np.uint32)) if arrays else ChunkTable.empty(0)
    foreign = whole.foreign
    if len(foreign) <= _MANY_ROWS or some_repeat(foreign.locations):
        strings, location_of = distinct_rows(foreign.locations)
    else:
        strings, location_of = foreign.locations.compact(), np.arange(len(foreign), dtype=np.uint32)
    columns = (strings, foreign.etags, whole.inline)
    if (100 + sum([int(rows.lengths.max(initial=0)) for rows in columns])) * len(whole) > MAX_PAYLOAD_BYTES:
        virtual = whole.source[whole.kind == ChunkKind.VIRTUAL]
        inline = whole.source[whole.kind == ChunkKind.INLINE]
        # About 100 bytes for each reference: table, vtable, coordinates, place in the vector.
        apparent = 100 * len(whole) + int(strings.lengths[location_of][virtual].sum())
        apparent += int(foreign.etags.lengths[virtual].sum()) + int(whole.inline.lengths[inline].sum())
        if apparent > MAX_PAYLOAD_BYTES:  # before the writer allocates memory for them
            raise FormatError(
                f"a manifest must have at most {MAX_PAYLOAD_BYTES} bytes, got {len(whole)} references with "
                f"{apparent} bytes. Split the references over more manifests",
                ErrorKind.SERIALIZATION,
            )
    compression = _compress_locations(strings, whole, locations if spec_version > 1 else None)

    writer = TableWriter(_MANIFEST_WITH_DICTIONARY if compression else _MANIFEST)
    root: dict[int, int | bytes] = {_ID: manifest.id}
    root[_ALGORITHM] = _ZSTD_DICTIONARY if compression else 0
    entries, (root[_ARRAYS],) = writer.table_vectors(_ARRAY, [len(arrays)])
    entries.fields[f"f{_NODE_ID}"] = np.frombuffer(b"".join(tables), "V8")
    refs = OffsetVectors(writer, list(map(len, arrays)))
    entries.link(_REFS, refs.positions)
    texts: _Texts = {_LOCATION: (strings, location_of, NUL), _INLINE: (whole.inline, None, 0)}
    if compression:
        root[_DICTIONARY] = writer.vector(compression[0])
        texts[_COMPRESSED] = compression[1], location_of, 0
    if foreign.etags.lengths.any():
        texts[_ETAG] = (*distinct_rows(foreign.etags), NUL)
    left = list(_write_refs(writer, refs, arrays, whole, texts))
    for slot, (rows, _, end) in texts.items():
        if own := [(codes, tables_of) for at, codes, tables_of in left if at == slot]:
            targets = writer.vectors(rows, end).astype(np.uint32)
            for codes, tables_of in own:
                tables_of.link(slot, targets[codes])
    return seal(writer.finish(root), FileType.MANIFEST, spec_version=spec_version, level=level)


def _write_refs(
    writer: TableWriter,
    vectors: OffsetVectors,
    arrays: Sequence[ChunkTable],
    whole: ChunkTable,
    texts: _Texts,
) -> Iterator[tuple[int, U32, TableColumns]]:
    """Write all references. Yield the slots, rows and tables of texts that are not in their groups."""
    if not arrays:
        return
    foreign, shapes = whole.foreign, whole.kind
    flags = np.where(foreign.etags.lengths > 0, _WITH_ETAG, np.where(foreign.modified > 0, _WITH_MODIFIED, 0))
    if flags.any():
        virtual = whole.kind == ChunkKind.VIRTUAL
        shapes = shapes.copy()
        shapes[virtual] |= flags.astype(np.uint8)[whole.source[virtual]]
    is_one_shape = bool((shapes == shapes[0]).all())
    for _, rows, index in by_rank([table.index for table in arrays]):
        own = shapes[rows]
        for shape in [int(shapes[0])] if is_one_shape else np.unique(own).tolist():
            part: I64 | slice = slice(None)
            if not (is_one_shape or (own == shape).all()):
                part = np.flatnonzero(own == shape)
            chosen = part if isinstance(rows, slice) else rows[part]
            fields = dict(_SHAPES[shape])
            if _LOCATION in fields and _COMPRESSED in texts:
                fields[_COMPRESSED] = fields.pop(_LOCATION)
            source = whole.source[chosen]
            codes = {
                slot: source if code_of is None else code_of[source]
                for slot, (_, code_of, _) in texts.items()
                if slot in fields
            }
            grouped = {
                slot: group
                for slot, each in codes.items()
                if (group := GroupTexts.of(texts[slot][0], each, texts[slot][2])) is not None
            }
            columns = write_coordinates(writer, tuple(fields.items()), _INDEX, index[part], grouped)
            if _OFFSET in fields:
                columns.fill(f"f{_OFFSET}", whole.offset[chosen])
                columns.fill(f"f{_LENGTH}", whole.length[chosen])
            if _CHUNK_ID in fields:
                ids = np.ascontiguousarray(whole.chunk_ids).view("V12")[:, 0]
                columns.fill(f"f{_CHUNK_ID}", ids[source])
            if _MODIFIED in fields:
                columns.fill(f"f{_MODIFIED}", foreign.modified[source])
            vectors.lead(columns.positions, chosen)
            for slot in codes.keys() - grouped.keys():
                yield slot, codes[slot], columns


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
        # The table of the search has 2**f entries: the default is slower, and no better for so few samples.
        dictionary = zstandard.train_dictionary(
            config.max_dictionary_bytes, samples, d=8, f=14, steps=4, level=config.level
        )
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
    size, stretches = len(_packed([dictionary])), (blobs[:100], blobs[:1000], blobs[:10_000])
    # The more locations there are, the better they compress without a dictionary. So most answers are fast.
    return all(
        (len(_packed(some)) - len(_packed(map(compress, some)))) * (len(blobs) / len(some)) > size
        for some in stretches
    )


def _packed(texts: Iterable[bytes]) -> bytes:
    """Return some texts about as they are in a compressed file."""
    return zstandard.ZstdCompressor(level=3).compress(b"\0\0\0\0".join(texts))


@dataclass(frozen=True, slots=True, eq=False)
class ArrayTables(Mapping[bytes, ChunkTable]):
    """The tables of a manifest that was read. Each is cut from the common columns at its first use."""

    rows: Mapping[bytes, int]
    starts: I64  # the first reference of each part of the coordinates
    coords: ChunkCoordinates
    whole: ChunkTable  # all references in the order of the parts, without coordinates
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
            row = self.rows[node_id]
            first, stop = self.coords.firsts[row : row + 2].tolist()
            table, *others = map(self._cut, range(first, stop))
            if others:
                table = replace(table, others=tuple(others))
            self.cache[node_id] = table
        return table

    def _cut(self, part: int) -> ChunkTable:
        coords, whole = self.coords, self.whole
        count, ndim, first = int(coords.counts[part]), int(coords.ndims[part]), int(coords.starts[part])
        rows = slice(int(self.starts[part]), int(self.starts[part]) + count)
        index = coords.numbers[first : first + count * ndim].reshape(count, ndim)
        columns = whole.kind[rows], whole.source[rows], whole.offset[rows], whole.length[rows]
        table = ChunkTable(index, *columns, whole.chunk_ids, whole.foreign, whole.inline)
        return table.sorted(takes_first=True)  # as the reference reads two references of one chunk


def decode_manifest(data: Any, name: str, broken: list[Violation] | None = None) -> Manifest:
    """Read a manifest. Raise ``FormatError`` with ``name`` for other bytes.

    The chunk id has priority, then the compressed location, the location, and the inline bytes. ``broken``
    gets the broken rules that readers do not need.
    """
    return decode_one(decode_manifests, data, name, broken)


def decode_manifests(files: Sequence[Any], broken: list[Violation] | None = None) -> list[Manifest]:
    """Read manifests, whose tables share their sources. ``broken`` gets the broken rules of one manifest.

    Raises ``FormatError`` also if there are several files, and some chunks are not native.
    """
    return _manifests(open_tables(FileType.MANIFEST, *files), broken)


def _manifests(root: Tables, broken: list[Violation] | None = None) -> list[Manifest]:
    """Return the manifest of each file."""
    arrays, refs, counts = read_references(root)
    if len(root) > 1 and not refs.all_have(_CHUNK_ID):
        raise FormatError("manifests with other than native chunks are read one by one")
    rows = _rows_of_arrays(arrays)
    coords = read_coordinates(refs, _INDEX, counts)
    refs = refs if coords.order is None else refs.take(coords.order)
    starts = np.cumsum(coords.counts) - coords.counts
    whole = read_columns(root, refs)
    tables = [ArrayTables(each, starts, coords, whole) for each in rows]
    collect(broken, _violations(root, refs, tables[0]))
    return list(map(Manifest, id_list(root.structs(_ID, _ID_BYTES)), tables))


def _violations(root: Tables, refs: Tables, tables: ArrayTables) -> Iterator[Violation]:
    """Yield the broken rules that readers do not need."""
    nodes, coords = list(tables.rows), tables.coords
    array_of = np.repeat(np.arange(len(nodes)), np.diff(coords.firsts))
    owners = np.repeat(array_of, coords.counts)
    yield from unsorted("arrays-sorted", "arrays", nodes)
    for part in unsorted_arrays(coords.parts()):
        node = nodes[array_of[part]]
        yield Violation("refs-sorted", "references must be sorted by coordinates, each once", node)
    has_id, is_inline = refs.present(_CHUNK_ID).astype(np.uint8), refs.present(_INLINE)
    kinds = has_id + is_inline + (refs.present(_LOCATION) | refs.present(_COMPRESSED))
    both = refs.present(_ETAG) & refs.present(_MODIFIED)
    over = tables.whole.offset + tables.whole.length < tables.whole.offset
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
    locations = tables.whole.foreign.locations
    for location in map(locations.bytes, range(len(locations))):  # damaged files share bytes: one at a time
        if b":" not in location or location.decode(errors="replace").encode() != location:
            yield Violation("ref-location", f"a location must be a URL in UTF-8, got {location[:80]!r}")
            return


def _rows_of_arrays(arrays: Tables) -> list[dict[bytes, int]]:
    """Return the numbers of the arrays of each file by their node ids."""
    ids = id_list(arrays.structs(_NODE_ID, 8))
    rows = [
        dict(zip(ids[low:high], range(low, high), strict=True))
        for low, high in pairwise(arrays.edges().tolist())
    ]
    if (count := sum(map(len, rows))) != len(ids):
        text = f"{len(ids)} arrays must have different node ids, got {count} ids"
        raise FormatError(text, check="arrays-sorted")
    return rows


def read_references(root: Tables) -> tuple[Tables, Tables, I64]:
    """Return the arrays, all references, and the number of references of each array.

    Without a required vector, an array would have fill values instead of its chunks.
    """
    arrays = _read_arrays(root)
    refs, counts = arrays.children(_REFS)
    refs.require("chunk reference", _REQUIRED, index=_INDEX)
    return arrays, refs, counts


def _read_arrays(root: Tables) -> Tables:
    root.require("manifest", _REQUIRED, id=_ID, arrays=_ARRAYS)
    arrays, _ = root.children(_ARRAYS)
    arrays.require("array of a manifest", _REQUIRED, node_id=_NODE_ID, refs=_REFS)
    return arrays


def read_columns(root: Tables, refs: Tables) -> ChunkTable:
    """Return all references, without their coordinates."""
    count = len(refs)
    kind, source = np.full(count, ChunkKind.INLINE, np.uint8), np.zeros(count, np.uint32)
    ids, inline = np.zeros((0, _ID_BYTES), np.uint8), Ragged.empty()
    foreign = VirtualObjects(inline, inline, np.zeros(0, np.uint32))
    offset, length = refs.scalars(_OFFSET, "<u8"), refs.scalars(_LENGTH, "<u8")
    native = refs.present(_CHUNK_ID)
    virtual = (refs.present(_COMPRESSED) | refs.present(_LOCATION)) & ~native
    for mask, each in (
        (native, ChunkKind.NATIVE),
        (virtual, ChunkKind.VIRTUAL),
        (~(native | virtual), ChunkKind.INLINE),
    ):
        if not mask.any():
            continue
        rows: slice | NDArray[np.bool_] = slice(None) if mask.all() else mask
        some = refs if isinstance(rows, slice) else refs.take(rows)
        kind[rows] = each
        if each == ChunkKind.NATIVE:
            ids, source[rows] = read_chunk_ids(some)
        elif each == ChunkKind.VIRTUAL:
            foreign, source[rows] = _read_foreign(root, some)
        elif some.all_have(_INLINE):
            inline, source[rows] = _shared_rows(some, _INLINE)
            offset, length = np.array(offset), np.array(length)
            offset[rows], length[rows] = 0, inline.lengths[source[rows]]
        else:
            raise FormatError("a reference must be native, virtual or inline, got none", check="ref-kind")
    none = np.zeros((count, 0), np.uint32)
    return ChunkTable(none, kind, source, offset, length, ids, foreign, inline)


def read_chunk_ids(refs: Tables) -> tuple[U8, NDArray[Any]]:
    """Return the ids of chunk files, and for each reference the number of its id.

    References of different files do not share an id.
    """
    ids = refs.structs(_CHUNK_ID, _ID_BYTES)
    # Only equal neighbours, as in a pack, share an id. Finding all equal ids would take longer than it saves.
    words = ids.view(np.uint32)
    new = np.ones(len(ids), np.bool_)
    np.not_equal(words[1:, 0], words[:-1, 0], out=new[1:])
    if new.all():
        return ids, np.arange(len(ids))
    for column in words.T[1:]:
        new[1:] |= column[1:] != column[:-1]
    firsts = refs.edges()[:-1]
    new[firsts[firsts < len(new)]] = True
    return ids[new], np.cumsum(new) - 1


def _read_foreign(root: Tables, refs: Tables) -> tuple[VirtualObjects, NDArray[Any]]:
    compressed = refs.present(_COMPRESSED)
    if compressed.any():
        packed, packed_codes = _shared_rows(refs.take(compressed), _COMPRESSED)
        plain, plain_codes = _shared_rows(refs.take(~compressed), _LOCATION)
        locations = Ragged.concat([_decompress_locations(root, packed), plain])
        codes = np.zeros(len(refs), np.uint32)
        codes[compressed], codes[~compressed] = packed_codes, plain_codes + np.uint32(len(packed))
    else:
        locations, codes = _shared_rows(refs, _LOCATION)
    has_etag, has_modified = refs.present(_ETAG).any(), refs.present(_MODIFIED).any()
    if not has_etag and not has_modified:
        n = len(locations)
        return VirtualObjects(locations, Ragged.empty(n), np.zeros(n, np.uint32)), codes
    modified = refs.scalars(_MODIFIED, "<u4").astype(np.int64)
    return VirtualObjects.combined(locations, codes, *_shared_rows(refs, _ETAG), modified)


def _shared_rows(tables: Tables, slot: int) -> tuple[Ragged, NDArray[np.uint32]]:
    """Return the distinct strings or byte vectors of a field, and for each table the number of its value.

    An absent field is an empty row. The rows do not reference the buffer, unless a damaged file makes them
    overlap so much that they would be larger than the buffer.
    """
    distinct, codes = number(tables.targets(slot))
    starts, lengths = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
    # An absent field has the target 0, where no vector can be.
    real = distinct > 0
    starts[real], lengths[real] = tables.buffer.vectors(distinct[real], 1)
    rows = Ragged(tables.buffer.bytes, starts, lengths)
    if int(rows.lengths.sum()) > tables.buffer.size:
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
        raise FormatError(f"location compression {algorithm}, expected 0 or 1", check="location-compression")
    dictionary = root.vectors(_DICTIONARY).bytes(0)
    if not dictionary:
        raise FormatError("compressed locations need a dictionary, got none", check="location-dictionary")
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


#: Writers use a few vtables. The cache forgets all of them when it has this number.
_MAX_VTABLES: Final = 64
#: After this number of searches the columns are decoded.
MAX_SEARCHES: Final = 4096
_I4: Final = Struct("<i")
_U4: Final = Struct("<I")

Coords = tuple[int, ...]


class ReferenceSearch:
    """A search in the references of one array, a vector from ``start`` that is sorted by coordinates.

    A search is an attempt: it returns None for each reference that it does not find or does not understand.
    Then the columns of the manifest decide, with all their checks.
    """

    __slots__ = ("_buffer", "_count", "_distances", "_ends", "_start")

    def __init__(self, payload: Any, start: int, count: int) -> None:
        self._buffer = Buffer(payload)
        self._start = start
        self._count = count
        #: The distance of the coordinates from the start of a table, by the position of its vtable.
        self._distances: dict[int, int] = {}
        self._ends: tuple[Coords, Coords] | None = None

    def find_ref(self, coords: Coords) -> ChunkRef | None:
        """Return the reference at ``coords``, or None if only the columns can tell."""
        ndim, count = len(coords), self._count
        if not count:
            return None
        if self._ends is None or len(self._ends[0]) != ndim:
            self._ends = self._coords(0, ndim), self._coords(count - 1, ndim)
        first, last = self._ends
        if not first <= coords <= last:
            return None
        # The first guess is the place where a dense array has the chunk. A binary search follows.
        start = stop = target = 0
        for least, most, at in zip(first, last, coords, strict=True):
            size = max(least, most) + 1
            start, stop, target = start * size + least, stop * size + most, target * size + min(at, size - 1)
        span = stop - start
        row = min(count - 1, max(0, (target - start) * (count - 1) // span)) if span else 0
        low, high = 0, count
        while low < high and (stored := self._coords(row, ndim)) != coords:
            low, high = (row + 1, high) if stored < coords else (low, row)
            row = (low + high) // 2
        if low >= high:
            return None
        # Neighbours in a wrong order show a damaged file, or one with several references of a chunk.
        if row and self._coords(row - 1, ndim) >= coords:
            return None
        if row + 1 < count and self._coords(row + 1, ndim) <= coords:
            return None
        return self._ref(self._table(row))

    def _table(self, row: int) -> int:
        """Return the position of the table of a reference."""
        place = self._start + 4 * row
        return place + self._buffer.integer(place, _U4)

    def _coords(self, row: int, ndim: int) -> Coords:
        buffer, table = self._buffer, self._table(row)
        vtable = table - buffer.integer(table, _I4)
        distance = self._distances.get(vtable)
        if distance is None:
            if len(self._distances) >= _MAX_VTABLES:
                self._distances.clear()
            distance = self._distances[vtable] = buffer.fields(vtable)[_INDEX]
        place = table + distance
        start, count = buffer.vector(place + buffer.integer(place, _U4), 4) if distance else (0, -1)
        if count != ndim:
            raise FormatError(f"a chunk must have {ndim} coordinates")
        return unpack_from(f"<{ndim}I", buffer.bytes, start)

    def _ref(self, table: int) -> ChunkRef | None:
        ref = Tables(self._buffer, np.array([table]))
        span = int(ref.scalars(_OFFSET, "<u8")[0]), int(ref.scalars(_LENGTH, "<u8")[0])
        if ref.all_have(_CHUNK_ID):
            return NativeRef(ref.structs(_CHUNK_ID, _ID_BYTES).tobytes(), *span)
        if ref.all_have(_COMPRESSED):
            return None
        if ref.all_have(_LOCATION):
            modified = int(ref.scalars(_MODIFIED, "<u4")[0])
            location, etag = (ref.vectors(slot).text(0) for slot in (_LOCATION, _ETAG))
            return VirtualRef(location, *span, etag or None, modified or None)
        return InlineRef(ref.vectors(_INLINE).bytes(0)) if ref.all_have(_INLINE) else None


@dataclass(slots=True, eq=False)
class LazyTables(Mapping[bytes, ChunkTable]):
    """The tables of a manifest. Each use except ``search`` decodes the columns. Threads may share it."""

    name: str  # The name of the file, for errors
    #: The search in each array, by node id. Empty when there are columns
    searches: dict[bytes, ReferenceSearch]
    payload: U8 | None  # The decompressed file; None when there are columns
    columns: Mapping[bytes, ChunkTable] | None = None  # The decoded tables, or None
    _number: int = 0
    _locks: dict[int, Lock] = field(default_factory=dict)

    def search(self, node_id: bytes, coords: Coords) -> ChunkRef | None:
        """Return the reference of one chunk, or None if only the columns can tell."""
        search = self.searches.get(node_id)
        if search is None or self._number >= MAX_SEARCHES:
            return None
        self._number += 1
        try:
            return search.find_ref(coords)
        except FormatError:
            return None  # the columns raise the error, with the name of the file

    def decode(self) -> Mapping[bytes, ChunkTable]:
        """Return the columns. The first call decodes them, and drops the payload."""
        if self.columns is None:
            # A forked child must not wait for a thread that only its parent has.
            with self._locks.setdefault(os.getpid(), Lock()):
                if self.columns is None:
                    with reading(self.name):
                        self.columns = _manifests(Buffer(self.payload).root())[0].arrays
                    self.searches, self.payload = {}, None
        return self.columns

    def __len__(self) -> int:
        return len(self.decode())

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.decode())

    def __getitem__(self, node_id: bytes) -> ChunkTable:
        return self.decode()[node_id]


def find_ref(manifest: Manifest, node_id: bytes, coords: Coords) -> ChunkRef | None:
    """Return the reference of one chunk of a manifest, or None if the array or the chunk has none."""
    arrays = manifest.arrays
    ref = arrays.search(node_id, coords) if isinstance(arrays, LazyTables) else None
    table = arrays.get(node_id) if ref is None else None
    table = None if table is None else table.of_rank(len(coords))
    row = -1 if table is None else table.find_chunk(coords)
    return ref if table is None or row < 0 else table.ref(row)


def open_manifest(data: Any, name: str) -> Manifest:
    """Read the ids of the arrays of a manifest. The references are searched or decoded when they are needed.

    The columns are decoded when a caller asks for all references of an array, when a search has no result, or
    after ``MAX_SEARCHES``. Errors in the references are raised when they are read.
    """
    with reading(name):
        root = open_tables(FileType.MANIFEST, data)
        arrays = _read_arrays(root)
        starts, counts = [column.tolist() for column in arrays.places(_REFS, 4)]
        payload = root.buffer.bytes
        searches = {
            node: ReferenceSearch(payload, starts[row], counts[row])
            for node, row in _rows_of_arrays(arrays)[0].items()
        }
        return Manifest(root.structs(_ID, _ID_BYTES).tobytes(), LazyTables(name, searches, payload))
