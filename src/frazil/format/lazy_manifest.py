"""Manifests whose columns are decoded when they are needed.

A reader of one chunk needs one reference. Columns of all references cost more time than everything else: some
hundred calls of numpy for a small manifest, and a pass over all bytes for a large one. So ``open_manifest``
decompresses the file, reads the ids of the arrays, and searches (``frazil.format.manifest_search``) for
single references. It decodes the columns when a caller asks for all references of an array, when a search has
no result, or after ``MAX_SEARCHES``: then the columns cost less than further searches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from frazil.errors import FormatError
from frazil.format.chunk_table import ChunkRef, ChunkTable
from frazil.format.columns import U8
from frazil.format.envelope import FileType, open_envelope, reading
from frazil.format.flatbuffer import Buffer
from frazil.format.manifest import Manifest, array_vectors, manifest_of_payload
from frazil.format.manifest_search import Coords, ReferenceSearch

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
