"""Single references of a manifest, whose columns are decoded when they are needed.

The references of an array are a vector, sorted by coordinates. The first guess is the place where a dense
array has the chunk. A binary search follows. Each step reads a few numbers, and checks that they are inside
of the buffer.

A search is an attempt: it returns None for each reference that it does not find or does not understand. The
columns of the manifest (``frazil.format.manifest.decode_manifest``) then decide, with all their checks. So
files with unsorted references and damaged files have the same results and errors as with columns.

A reader of one chunk needs one reference. Columns of all references cost more time than everything else: some
hundred calls of numpy for a small manifest, and a pass over all bytes for a large one. So ``open_manifest``
decompresses the file, reads the ids of the arrays, and searches for
single references. It decodes the columns when a caller asks for all references of an array, when a search has
no result, or after ``MAX_SEARCHES``: then the columns cost less than further searches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct, unpack_from
from threading import Lock
from typing import Any, Final

from frazil.errors import FormatError
from frazil.format.chunk_table import ChunkRef, ChunkTable, InlineRef, NativeRef, VirtualRef
from frazil.format.columns import U8, decode_text
from frazil.format.envelope import FileType, open_envelope, reading
from frazil.format.flatbuffer import Buffer
from frazil.format.manifest import Manifest, array_vectors, manifest_of_payload

# Slots of a reference, in the order of the schema.
_INDEX, _INLINE, _OFFSET, _LENGTH, _CHUNK_ID, _LOCATION, _ETAG, _MODIFIED, _COMPRESSED = range(9)
_ID_BYTES: Final = 12
#: Writers use a few vtables. The cache forgets all of them when it has this number.
_MAX_VTABLES: Final = 64
_I4: Final = Struct("<i")
_U4: Final = Struct("<I")
_U8: Final = Struct("<Q")

Coords = tuple[int, ...]


class ReferenceSearch:
    """A search in the references of one array.

    ``start`` is the position of the first element of their vector in ``payload``, and ``count`` is the number
    of elements.
    """

    __slots__ = ("_buffer", "_bytes", "_count", "_ends", "_start", "_vtables")

    def __init__(self, payload: Any, start: int, count: int) -> None:
        self._buffer = Buffer(payload)
        self._bytes = memoryview(payload)
        self._start = start
        self._count = count
        self._vtables: dict[int, list[int]] = {}
        self._ends: tuple[Coords, Coords] | None = None

    def find_ref(self, coords: Coords) -> ChunkRef | None:
        """Return the reference at ``coords``, or None if only the columns can tell."""
        row = self._find_row(coords)
        if row is None:
            return None
        # Neighbours in a wrong order show a damaged file, or one with several references of a chunk.
        if row and self._coords(row - 1, len(coords)) >= coords:
            return None
        if row + 1 < self._count and self._coords(row + 1, len(coords)) <= coords:
            return None
        return self._ref(self._table(row))

    def _find_row(self, coords: Coords) -> int | None:
        if not self._count:
            return None
        ndim = len(coords)
        if self._ends is None or len(self._ends[0]) != ndim:
            self._ends = self._coords(0, ndim), self._coords(self._count - 1, ndim)
        first, last = self._ends
        if not first <= coords <= last:
            return None
        low, high = 0, self._count
        row = _guess(first, last, coords, self._count)
        while low < high:
            stored = self._coords(row, ndim)
            if stored == coords:
                return row
            if stored < coords:
                low = row + 1
            else:
                high = row
            row = (low + high) // 2
        return None

    def _table(self, row: int) -> int:
        """Return the position of the table of a reference."""
        place = self._start + 4 * row
        return place + self._buffer.integer(place, _U4)

    def _coords(self, row: int, ndim: int) -> Coords:
        table = self._table(row)
        place = self._field(table, _INDEX)
        start, size = self._vector(place, 4) if place else (0, -1)
        if size != 4 * ndim:
            raise FormatError(f"a chunk must have {ndim} coordinates")
        return unpack_from(f"<{ndim}I", self._bytes, start)

    def _ref(self, table: int) -> ChunkRef | None:
        offset, length = self._number(table, _OFFSET, _U8), self._number(table, _LENGTH, _U8)
        place = self._field(table, _CHUNK_ID)
        if place:
            chunk_id = bytes(self._bytes[place : place + _ID_BYTES])
            return NativeRef(chunk_id, offset, length) if len(chunk_id) == _ID_BYTES else None
        if self._field(table, _COMPRESSED):
            return None
        location = self._blob(table, _LOCATION)
        if location is not None:
            etag = decode_text(self._blob(table, _ETAG) or b"")
            modified = self._number(table, _MODIFIED, _U4)
            return VirtualRef(decode_text(location), offset, length, etag or None, modified or None)
        inline = self._blob(table, _INLINE)
        return None if inline is None else InlineRef(inline)

    def _field(self, table: int, slot: int) -> int:
        """Return the position of a field, 0 if it is absent."""
        vtable = table - self._buffer.integer(table, _I4)
        fields = self._vtables.get(vtable)
        if fields is None:
            if len(self._vtables) >= _MAX_VTABLES:
                self._vtables.clear()
            fields = self._vtables[vtable] = self._buffer.fields(vtable)
        distance = fields[slot] if slot < len(fields) else 0
        return table + distance if distance else 0

    def _number(self, table: int, slot: int, kind: Struct) -> int:
        place = self._field(table, slot)
        return self._buffer.integer(place, kind) if place else 0

    def _vector(self, place: int, width: int) -> tuple[int, int]:
        """Return the start of a vector that a field leads to, and its size in bytes."""
        start, count = self._buffer.vector(place + self._buffer.integer(place, _U4), width)
        return start, count * width

    def _blob(self, table: int, slot: int) -> bytes | None:
        place = self._field(table, slot)
        if not place:
            return None
        start, size = self._vector(place, 1)
        return bytes(self._bytes[start : start + size])


def _guess(first: Sequence[int], last: Sequence[int], coords: Sequence[int], count: int) -> int:
    """Return the row of ``coords``, if all chunks from ``first`` to ``last`` of a box have references.

    >>> _guess((0, 0), (9, 99), (4, 7), 1000)
    407
    """
    start = stop = wanted = 0
    for low, high, at in zip(first, last, coords, strict=True):
        size = max(low, high) + 1
        start, stop, wanted = start * size + low, stop * size + high, wanted * size + min(at, size - 1)
    span = stop - start
    return min(count - 1, max(0, (wanted - start) * (count - 1) // span)) if span else 0


#: After this number of searches the columns are decoded.
MAX_SEARCHES: Final = 4096


@dataclass(slots=True, eq=False)
class LazyTables(Mapping[bytes, ChunkTable]):
    """The tables of a manifest. Each use except ``find_ref`` decodes the columns. Threads may share it.

    Attributes:
        name: The name of the file, for errors.
        searches: The search in each array, by node id. Empty when there are columns.
        payload: The decompressed file; None when there are columns.
        columns: The decoded tables, or None.
    """

    name: str
    searches: dict[bytes, ReferenceSearch]
    payload: U8 | None
    columns: Mapping[bytes, ChunkTable] | None = None
    _number: int = 0
    _locks: dict[int, Lock] = field(default_factory=dict)

    def find_ref(self, node_id: bytes, coords: Coords) -> ChunkRef | None:
        """Return the reference of one chunk, or None if the array or the chunk has none."""
        search = self.searches.get(node_id)
        if search is not None and self._number < MAX_SEARCHES:
            self._number += 1
            try:
                ref = search.find_ref(coords)
            except FormatError:
                ref = None  # the columns raise the error, with the name of the file
            if ref is not None:
                return ref
        return find_in_table(self.decode().get(node_id), coords)

    def decode(self) -> Mapping[bytes, ChunkTable]:
        """Return the columns. The first call decodes them, and drops the payload."""
        if self.columns is None:
            # A forked child must not wait for a thread that only its parent has.
            with self._locks.setdefault(os.getpid(), Lock()):
                if self.columns is None:
                    with reading(self.name):
                        self.columns = manifest_of_payload(self.payload).arrays
                    self.searches, self.payload = {}, None
        return self.columns

    def __len__(self) -> int:
        return len(self.decode())

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.decode())

    def __getitem__(self, node_id: bytes) -> ChunkTable:
        return self.decode()[node_id]


def find_in_table(table: ChunkTable | None, coords: Coords) -> ChunkRef | None:
    """Return the reference at ``coords`` of a table, or None if there is no table or no reference."""
    row = -1 if table is None else table.find_chunk(coords)
    return None if table is None or row < 0 else table.ref(row)


def find_ref(manifest: Manifest, node_id: bytes, coords: Coords) -> ChunkRef | None:
    """Return the reference of one chunk of a manifest, or None if the array or the chunk has none."""
    arrays = manifest.arrays
    if isinstance(arrays, LazyTables):
        return arrays.find_ref(node_id, coords)
    return find_in_table(arrays.get(node_id), coords)


def open_manifest(data: Any, name: str) -> Manifest:
    """Read a manifest, as ``decode_manifest``. The references are decoded when they are needed.

    Errors in the references are raised when they are read.
    """
    with reading(name):
        return lazy_manifest(Buffer(open_envelope(data, FileType.MANIFEST)[1]), name)


def lazy_manifest(buffer: Buffer, name: str) -> Manifest:
    """Return the manifest of a decompressed file, whose references are decoded when they are needed."""
    id_, vectors = array_vectors(buffer)
    searches = {node: ReferenceSearch(buffer.bytes, *vector) for node, vector in vectors.items()}
    return Manifest(id_, LazyTables(name, searches, buffer.bytes))
