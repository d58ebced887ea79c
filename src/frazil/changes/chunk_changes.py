"""The edits of one array: references that a session has set or deleted, and that no manifest has yet.

zarr sets chunks one by one. They are collected in a dict until columns are needed. Virtual references come in
tables with millions of rows, which stay tables. Later edits replace earlier edits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from frazil.format.columns import U32, Ragged, intern
from frazil.format.ids import id_matrix
from frazil.format.manifest import (
    ChunkKind,
    ChunkRef,
    ChunkTable,
    ForeignObjects,
    InlineRef,
    NativeRef,
    VirtualRef,
)

Coords = tuple[int, ...]
#: This number of tables of similar size is joined at a time. With more, reads look into more tables.
_JOINED: Final = 4


class ChunkChanges:
    """The edits of one array, newest last. None as a reference is a deletion."""

    __slots__ = ("_single", "_tables", "ndim", "path")

    def __init__(self, path: str, ndim: int, tables: tuple[ChunkTable, ...] = ()) -> None:
        self.path = path
        self.ndim = ndim
        self._tables = list(tables)
        self._single: dict[Coords, ChunkRef | None] = {}

    def __bool__(self) -> bool:
        return bool(self._single or self._tables)

    def set(self, coords: Coords, ref: ChunkRef | None) -> None:
        """Set one reference, or delete it."""
        self._single[coords] = ref

    def unset(self, coords: Coords) -> None:
        """Remove the edit of one chunk, in an array that no snapshot has yet."""
        self._single.pop(coords, None)
        if any(table.find_chunk(coords) >= 0 for table in self._tables):
            self._single[coords] = None

    def unset_many(self, index: U32) -> None:
        """Remove the edits of many chunks, in an array that no snapshot has yet."""
        table = self.table()
        rows = table.find_chunks(index)
        stays = np.ones(len(table), np.bool_)
        stays[rows[rows >= 0]] = False
        self._tables = [table.select_chunks(stays)]

    def set_table(self, table: ChunkTable) -> None:
        """Set many references."""
        self._columns()
        self._tables.append(table)

    def add_table(self, table: ChunkTable) -> None:
        """Set many references, if there are many tables.

        Tables of similar size are joined, so that there are few tables.
        """
        self.set_table(table)
        tables = self._tables
        while len(tables) >= _JOINED and len(tables[-_JOINED]) <= _JOINED * len(tables[-1]):
            tables[-_JOINED:] = [ChunkTable.merge_tables(tables[-_JOINED:])]

    def find_change(self, coords: Coords) -> tuple[bool, ChunkRef | None]:
        """Return whether there is an edit of this chunk, and its reference."""
        if coords in self._single:
            return True, self._single[coords]
        for table in reversed(self._tables):
            row = table.find_chunk(coords)
            if row >= 0:
                return True, None if table.kind[row] == ChunkKind.ABSENT else table.ref(row)
        return False, None

    def table(self) -> ChunkTable:
        """Return all edits as one table. Deletions are rows of the kind ``ABSENT``."""
        self._columns()
        if len(self._tables) != 1:
            self._tables = [
                ChunkTable.merge_tables(self._tables) if self._tables else ChunkTable.empty(self.ndim)
            ]
        return self._tables[0]

    def copy(self) -> ChunkChanges:
        """Return an independent copy."""
        return ChunkChanges(self.path, self.ndim, (self.table(),))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ChunkChanges, (self.path, self.ndim, (self.table().prune(),)))

    def _columns(self) -> None:
        if self._single:
            self._tables.append(table_of(self._single, self.ndim))
            self._single = {}


def table_of(refs: dict[Coords, ChunkRef | None], ndim: int) -> ChunkTable:
    """Return a table of single references."""
    order = sorted(refs)
    values = list(map(refs.__getitem__, order))
    index = np.array(order, np.uint32).reshape(len(order), ndim)
    classes = np.fromiter(map(_KIND_OF.__getitem__, map(type, values)), np.uint8, len(values))
    source = np.zeros(len(order), np.uint32)
    offset, length = np.zeros((2, len(order)), np.uint64)

    native = [ref for ref in values if isinstance(ref, NativeRef)]
    chunk_ids, source[classes == ChunkKind.NATIVE] = intern([ref.chunk_id for ref in native])
    virtual = [ref for ref in values if isinstance(ref, VirtualRef)]
    objects, source[classes == ChunkKind.VIRTUAL] = intern(
        [(ref.location, ref.etag or "", ref.modified or 0) for ref in virtual]
    )
    inline = [ref.data for ref in values if isinstance(ref, InlineRef)]
    source[classes == ChunkKind.INLINE] = np.arange(len(inline))
    length[classes == ChunkKind.INLINE] = list(map(len, inline))
    for kind, ranged in ((ChunkKind.NATIVE, native), (ChunkKind.VIRTUAL, virtual)):
        offset[classes == kind] = [ref.offset for ref in ranged]
        length[classes == kind] = [ref.length for ref in ranged]
    foreign = ForeignObjects(
        Ragged.of_text([location for location, _, _ in objects]),
        Ragged.of_text([etag for _, etag, _ in objects]),
        np.array([modified for _, _, modified in objects], np.uint32),
    )
    return ChunkTable(
        index, classes, source, offset, length, id_matrix(chunk_ids), foreign, Ragged.of_bytes(inline)
    )


_KIND_OF = {
    NativeRef: ChunkKind.NATIVE,
    VirtualRef: ChunkKind.VIRTUAL,
    InlineRef: ChunkKind.INLINE,
    type(None): ChunkKind.ABSENT,
}
