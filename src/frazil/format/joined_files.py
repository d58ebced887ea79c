"""Tables of many small files, which are read together.

A function of numpy takes as long for ten rows as for a thousand, and upkeep reads thousands of files with few
rows. Here the payloads of several files are one buffer, and the tables of all files are one column of
positions. Every position is compared with the bounds of its own file, so a damaged file cannot read the bytes
of another one.

This reader accepts only what it can read fast. It raises an error of ``IRREGULAR`` for everything else,
damage included. Then the caller decodes each file alone, with all rules and with errors that name the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from frazil.errors import FormatError
from frazil.format.columns import I64, U8
from frazil.format.flatbuffer import Buffer, ranges_by

_ALIGNMENT: Final = 8
#: The largest number of changes of the vtable from one table to the next, for each file.
_CHANGES: Final = 64
_U2: Final = np.dtype("<u2")
_I4: Final = np.dtype("<i4")
_U4: Final = np.dtype("<u4")


@dataclass(frozen=True, slots=True, eq=False)
class JoinedFiles:
    """Payloads of k files, one after the other.

    Attributes:
        buffer: The bytes.
        starts: The start of each payload, int64 (k,).
        stops: The end of each payload, int64 (k,).
    """

    buffer: Buffer
    starts: I64
    stops: I64

    @classmethod
    def of(cls, payloads: Iterable[Any]) -> JoinedFiles:
        """Join payloads."""
        joined, starts, stops = bytearray(), list[int](), list[int]()
        for payload in payloads:
            starts.append(len(joined))
            joined += payload
            stops.append(len(joined))
            joined += bytes(-len(joined) % _ALIGNMENT)
        return cls(Buffer(joined), np.array(starts, np.int64), np.array(stops, np.int64))

    def roots(self) -> JoinedTables:
        """Return the root table of each file."""
        rows = FileRows.of(np.arange(len(self.starts)))
        self.require_inside(self.starts, self.starts + 4, rows)
        return JoinedTables.at(self, self.starts + self.buffer.gather(self.starts, _U4), rows)

    def require_inside(self, positions: I64, ends: I64, rows: FileRows) -> None:
        """Raise ``FormatError`` unless all bytes from each position to its end are inside of its file."""
        if not len(positions):
            return
        lowest = np.minimum.reduceat(positions, rows.firsts)
        highest = np.maximum.reduceat(ends, rows.firsts)
        if (lowest < self.starts[rows.owners]).any() or (highest > self.stops[rows.owners]).any():
            raise FormatError("a table leads out of its file")


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """The files of n rows, which are in the order of their files.

    Attributes:
        files: The number of the file of each row, int64 (n,).
        firsts: The first row of each file that has rows, int64 (m,).
        owners: The numbers of these files, int64 (m,).
    """

    files: I64
    firsts: I64
    owners: I64

    @classmethod
    def of(cls, files: I64) -> FileRows:
        """Return the rows with these numbers of files."""
        is_first = np.ones(len(files), np.bool_)
        np.not_equal(files[1:], files[:-1], out=is_first[1:])
        firsts = np.flatnonzero(is_first)
        return cls(files, firsts, files[firsts])


@dataclass(frozen=True, slots=True, eq=False)
class JoinedTables:
    """n tables of one type, in the order of their files.

    Attributes:
        joined: The files.
        positions: The position of each table, int64 (n,).
        rows: The files of the tables.
        shapes: The number of the shape of each table, int64 (n,).
        distances: The distance of each field from the start of a table, 0 where it is absent, int64
            (shapes, slots).
    """

    joined: JoinedFiles
    positions: I64
    rows: FileRows
    shapes: I64
    distances: I64

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def at(cls, joined: JoinedFiles, positions: I64, rows: FileRows) -> JoinedTables:
        """Return the tables at positions. Raise ``FormatError`` for too many shapes."""
        joined.require_inside(positions, positions + 4, rows)
        vtables = positions - joined.buffer.gather(positions, _I4)
        # Most tables have the vtable of the table before.
        is_first = np.ones(len(vtables), np.bool_)
        np.not_equal(vtables[1:], vtables[:-1], out=is_first[1:])
        firsts = np.flatnonzero(is_first)
        if len(firsts) > _CHANGES * len(joined.starts):
            raise FormatError("the tables have too many shapes")
        starts, owners = vtables[firsts], FileRows.of(rows.files[firsts])
        joined.require_inside(starts, starts + 4, owners)
        sizes = joined.buffer.gather(starts, _U2).astype(np.int64) & ~1
        joined.require_inside(starts, starts + sizes, owners)
        data = joined.buffer.bytes
        numbers_by_shape: dict[bytes, int] = {}
        numbers = [
            numbers_by_shape.setdefault(data[start + 4 : start + size].tobytes(), len(numbers_by_shape))
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
        distances = np.zeros(
            (max(1, len(numbers_by_shape)), 1 + max(map(len, numbers_by_shape), default=0) // 2), np.int64
        )
        for shape, number in numbers_by_shape.items():
            distances[number, : len(shape) // 2] = np.frombuffer(shape, _U2)
        counts = np.diff(firsts, append=len(positions))
        return cls(joined, positions, rows, np.repeat(np.array(numbers, np.int64), counts), distances)

    def take(self, chosen: NDArray[np.bool_]) -> JoinedTables:
        """Return some of the tables."""
        rows = FileRows.of(self.rows.files[chosen])
        return JoinedTables(self.joined, self.positions[chosen], rows, self.shapes[chosen], self.distances)

    def present(self, slot: int) -> NDArray[np.bool_]:
        """Return which of the tables have the field."""
        if slot >= self.distances.shape[1]:
            return np.zeros(len(self), np.bool_)
        present: NDArray[np.bool_] = (self.distances[:, slot] > 0)[self.shapes]
        return present

    def all_have(self, slot: int) -> bool:
        """Return whether all tables have the field."""
        if slot >= self.distances.shape[1] - 1:
            return not len(self)
        column = self.distances[:, slot]
        return bool(column.all()) or bool(column[self.shapes].all())

    def scalars(self, slot: int, dtype: DTypeLike) -> NDArray[Any]:
        """Return a field that all tables have, shape (n,)."""
        kind = np.dtype(dtype)
        return self.joined.buffer.gather(self._places(slot, kind.itemsize), kind)

    def structs(self, slot: int, width: int) -> U8:
        """Return a struct of bytes that all tables have, shape (n, width)."""
        return self.scalars(slot, f"V{width}").view(np.uint8).reshape(len(self), width)

    def tables(self, slot: int) -> JoinedTables:
        """Return the table of a field that all tables have."""
        return JoinedTables.at(self.joined, self._targets(slot), self.rows)

    def children(self, slot: int) -> tuple[JoinedTables, I64]:
        """Return all tables of a vector of tables, and the number of the tables of each parent."""
        starts, counts = self.vectors(slot, 4)
        places = ranges_by(starts, counts, 4)
        positions = places + self.joined.buffer.gather(places, _U4)
        rows = FileRows.of(np.repeat(self.rows.files, counts))
        return JoinedTables.at(self.joined, positions, rows), counts

    def vectors(self, slot: int, width: int) -> tuple[I64, I64]:
        """Return the starts and the numbers of the elements of a vector that all tables have.

        An element has ``width`` bytes. Raises ``FormatError`` if vectors share so many bytes that all of them
        together are larger than the files.
        """
        starts = self._targets(slot)
        self.joined.require_inside(starts, starts + 4, self.rows)
        counts = self.joined.buffer.gather(starts, _U4).astype(np.int64)
        self.joined.require_inside(starts, starts + 4 + counts * width, self.rows)
        if int(counts.sum()) * width > self.joined.buffer.size:
            raise FormatError("tables share vectors")
        return starts + 4, counts

    def _targets(self, slot: int) -> I64:
        places = self._places(slot, 4)
        targets: I64 = places + self.joined.buffer.gather(places, _U4)
        return targets

    def _places(self, slot: int, width: int) -> I64:
        if not self.all_have(slot):
            raise FormatError(f"some tables lack the field in slot {slot}")
        if not len(self):
            return self.positions
        column = self.distances[:, slot]
        places: I64 = self.positions + (column[0] if len(column) == 1 else column[self.shapes])
        self.joined.require_inside(places, places + width, self.rows)
        return places


#: Errors of files that cannot be read together.
IRREGULAR: Final = (FormatError, ValueError, IndexError, OverflowError, MemoryError)
