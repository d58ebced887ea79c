"""Groups of snapshots in a repo info, whose compressed bytes stay the same when snapshots are added.

The list of snapshots is sorted by random ids, and a snapshot names its parent by its place in the list. So
each new snapshot changes half of all places, and all of the file would be compressed again. In a long list,
only the places are written anew. The tables of the snapshots are in the order in which they were added, in
groups of ``ROWS``. All distances in a flatbuffer are relative, so a group does not change when the bytes
before it grow.

    offsets of all snapshots, in the order of the ids     stored
    the vtables of all groups                             stored
    each group    the tables, without their parents       compressed once
                  the parents                             stored
                  messages, metadata, pruned logs         compressed once

A table has its parent outside of its own bytes. The distance of a field in a vtable has 16 bits, and is the
same for all tables of the vtable. A table has 40 bytes and a parent 4. So there are ten vtables
(``CLASSES``): the parents of the first tables of each class follow one another, then those of the second
tables. The last group has fewer rows. It is made for each file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from frazil.errors import FormatError
from frazil.format.columns import I64, U8, U64, Ragged, insert_row, structs
from frazil.format.envelope import (
    PIECE_GAP,
    Piece,
    compressed_piece,
    opened_piece,
    stored_piece,
    stored_pieces,
)
from frazil.format.flatbuffer import NUL, TableWriter
from frazil.format.flexbuffer import MetadataColumn, write_metadata
from frazil.format.ids import OBJECT_ID_BYTES

#: The number of rows of a group, and of vtables with and without pruned logs.
ROWS: Final = 1000
CLASSES: Final = 10
#: From this number of snapshots on, the list is in groups.
LONG: Final = 4 * ROWS
_SPAN: Final = ROWS // CLASSES
_RECORD: Final = np.dtype(
    {
        "names": ["vtable", "message", "flushed", "metadata", "pruned", "id"],
        "formats": ["<i4", "<u4", "<u8", "<u4", "<u4", f"V{OBJECT_ID_BYTES}"],
        "offsets": [0, 4, 8, 16, 20, 24],
        "itemsize": 40,
    }
)
_STEP: Final = _RECORD.itemsize
_TABLES: Final = ROWS * _STEP
_PARENTS: Final = ROWS * 4
_IN_CLASS: Final = np.arange(ROWS) // _SPAN


def _vtables() -> bytes:
    """Return the vtables of the classes: first for tables without pruned logs, then for tables with them."""
    table = np.zeros((2, CLASSES, 8), "<u2")
    parents = _TABLES - np.arange(CLASSES) * (_SPAN * _STEP - 4)
    table[:, :, 0], table[:, :, 1], table[:, :, 3] = 16, parents + 4, parents
    table[:, :, 2], table[:, :, 4], table[:, :, 5], table[:, :, 6] = 24, 8, 4, 16
    table[1, :, 7] = 20
    return table.tobytes()


_VTABLES: Final = _vtables()
_VTABLE: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The columns of snapshots that never change, except their parents."""

    ids: U8
    flushed: U64
    messages: Ragged
    metadata: MetadataColumn
    pruned: Ragged

    def take(self, rows: I64) -> Rows:
        """Return some of the rows."""
        taken = self.messages.take(rows), self.metadata.take(rows), self.pruned.take(rows)
        return Rows(self.ids[rows], self.flushed[rows], *taken)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A group: where it starts, counted from the vtables, and its pieces except the parents."""

    start: int
    tables: Piece
    texts: Piece

    @property
    def stop(self) -> int:
        """Where the next group starts."""
        return self.start + len(self.tables) + _PARENTS + len(self.texts)


def _places(start: int) -> I64:
    """Return the places of the tables of a group that starts at ``start``."""
    return np.arange(start + PIECE_GAP, start + PIECE_GAP + _TABLES, _STEP)


def _new_group(start: int, rows: Rows) -> Group:
    count, texts = len(rows.ids), TableWriter.section(PIECE_GAP)
    tables = np.zeros(PIECE_GAP + _TABLES, np.uint8)
    records = tables[PIECE_GAP:].view(_RECORD)[:count]
    places = _places(start)[:count]
    has_pruned = rows.pruned.lengths > 0
    records["vtable"] = places - _VTABLE * (_IN_CLASS[:count] + CLASSES * has_pruned)
    records["id"], records["flushed"] = structs(rows.ids), rows.flushed
    section = start + len(tables) + _PARENTS
    columns: list[tuple[str, I64, Any]] = [
        ("message", texts.vectors(rows.messages, NUL), slice(None)),
        ("metadata", write_metadata(texts, rows.metadata), slice(None)),
        ("pruned", texts.vectors(rows.pruned.take(has_pruned)), has_pruned),
    ]
    for name, targets, own in columns:
        records[name][own] = section + targets - places[own] - _RECORD.fields[name][1]  # type: ignore[index]
    texts.reserve(-texts.size % 8)
    return Group(start, compressed_piece(tables.tobytes()), compressed_piece(texts.joined()))


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The full groups of a list of snapshots, and the slot of each row: its number in their order."""

    full: tuple[Group, ...]
    slots: I64

    @classmethod
    def by_time(cls, flushed: U64) -> Groups:
        """Return no groups, and slots in the order of times."""
        slots = np.empty(len(flushed), np.int64)
        slots[np.argsort(flushed, kind="stable")] = np.arange(len(flushed))
        return cls((), slots)

    def inserted(self, at: int) -> Groups:
        """Return the groups with a new row before row ``at``."""
        return replace(self, slots=insert_row(self.slots, at, len(self.slots)))

    def completed(self, rows: Rows) -> Groups:
        """Return the groups with those that have become full."""
        if len(self.full) == len(self.slots) // ROWS:
            return self
        return Groups((*self.full, *self._new(rows, len(self.slots) // ROWS)), self.slots)

    def _new(self, rows: Rows, stop: int) -> list[Group]:
        """Return the groups after the full ones, before group ``stop``."""
        first = len(self.full) * ROWS
        order = np.flatnonzero(self.slots >= first)
        order = order[np.argsort(self.slots[order])]
        groups: list[Group] = []
        start = self.full[-1].stop if self.full else len(_VTABLES)
        for row in range(0, stop * ROWS - first, ROWS):
            groups.append(_new_group(start, rows.take(order[row : row + ROWS])))
            start = groups[-1].stop
        return groups

    def write(self, writer: TableWriter, rows: Rows, parents: Any) -> int:
        """Write the vector of snapshots behind everything else. Return its position."""
        count = len(self.slots)
        groups = [*self.full, *self._new(rows, -(-count // ROWS))]
        position = writer.size + -(writer.size + 4 + 4 * count) % 8
        first = position + 4 + 4 * count
        starts = np.array([group.start for group in groups])
        words = np.zeros((first - writer.size) // 4, "<u4")
        words[-count - 1] = count
        targets = (starts[:, None] + _places(0)).reshape(-1).astype("<u4")
        words[-count:] = np.arange(4 * count, 0, -4, dtype=np.uint32)
        words[-count:] += targets[self.slots]
        by_slot = np.zeros(len(groups) * ROWS, "<i4")
        by_slot[self.slots] = parents
        stored = np.ascontiguousarray(by_slot.reshape(-1, CLASSES, _SPAN).transpose(0, 2, 1)).tobytes()
        writer.append(stored_piece(words.tobytes() + _VTABLES))
        for number, group in enumerate(groups):
            own = stored_piece(stored[number * _PARENTS : (number + 1) * _PARENTS])
            writer.append(group.tables, own, group.texts)
        return position


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The file of a list of snapshots, its payload, and the places of the tables. A pickled copy is None."""

    file: Any
    payload: Any
    places: I64

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    def groups(self) -> Groups | None:
        """Return the groups of the file. None if its writer chose another layout.

        The blocks of a group are taken only if they are those of its bytes in the payload.
        """
        return _find_groups(self.file, self.payload, self.places)


def _find_groups(file: Any, payload: Any, places: I64) -> Groups | None:
    count = len(places)
    if count < LONG:
        return None
    data = np.frombuffer(payload, np.uint8)
    first = int(places.min()) - PIECE_GAP - len(_VTABLES)
    if first < 0 or data[first : first + len(_VTABLES)].tobytes() != _VTABLES:
        return None
    groups: list[Group] = []
    start, pieces = len(_VTABLES), stored_pieces(file)
    try:
        for tables, texts in zip(pieces, pieces, strict=False):
            if len(groups) == count // ROWS:
                break
            # The parents, which are stored, follow the tables.
            group = Group(start, opened_piece(tables[:-1]), opened_piece(texts))
            if not _is_ours(group, data[first + start : first + group.stop]):
                return None
            groups.append(group)
            start = group.stop
    except FormatError:
        return None
    if len(groups) < count // ROWS:
        return None
    starts = np.array([*[group.start for group in groups], start])
    relative = places - first
    number = np.searchsorted(starts, relative, "right") - 1
    inside = relative - starts[number] - PIECE_GAP
    slots = number * ROWS + inside // _STEP
    is_free = np.ones(count, np.bool_)
    if (inside % _STEP).any() or inside.max() >= _TABLES or slots.max() >= count:
        return None
    is_free[slots] = False
    return None if is_free.any() else Groups(tuple(groups), slots)


def _is_ours(group: Group, payload: U8) -> bool:
    """Return whether a group has these bytes, and tables of the vtables of this module."""
    tables: Sequence[Any] = group.tables.data
    if len(tables) != PIECE_GAP + _TABLES or payload[: len(tables)].tobytes() != tables:
        return False
    if payload[len(tables) + _PARENTS :].tobytes() != group.texts.data:
        return False
    records = np.frombuffer(group.tables.data, _RECORD, offset=PIECE_GAP)
    vtables = _places(group.start) - records["vtable"] - _VTABLE * _IN_CLASS
    return bool(((vtables == 0) | (vtables == _VTABLE * CLASSES)).all())
