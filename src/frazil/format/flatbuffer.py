"""FlatBuffers by columns: many tables of one vector are read, and written, at once.

A *table* starts with an i32, the distance back to its *vtable*: u16s with its own size, the table's size,
and for each field (*slot*) the distance from the table's start, or 0 if the field is absent. Scalars and
structs lie in the table. Strings, vectors and tables are reached by a u32, the distance forward from its own
position. A vector is a u32 count, then its elements. A string is a vector of bytes with a NUL at the end.

Small files are read together, because numpy takes as long for ten rows as for a thousand. Their payloads are
one buffer, and the tables of all files are one column of positions. Every position is compared with the
bounds of its own file, so a damaged file cannot read the bytes of another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct, pack_into
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from frazil.errors import ErrorKind, FormatError
from frazil.format.columns import I64, U8, Ragged, copy_rows, number, ranges, windows
from frazil.format.envelope import MAX_PAYLOAD_BYTES, FileType, Piece, open_envelope

FILE_IDENTIFIER: Final = b"Ichk"
#: Readers refuse larger buffers.
MAX_BYTES: Final = 1 << 31
#: The number of NULs after a string, which some readers need.
NUL: Final = 1

_U2: Final = np.dtype("<u2")
_I4: Final = np.dtype("<i4")
_U4: Final = np.dtype("<u4")

_READ_U2: Final = Struct("<H")
_READ_I4: Final = Struct("<i")
_READ_U4: Final = Struct("<I")

#: The codes of numbers for ``struct``.
_CODES: Final = {"u1": "<B", "u2": "<H", "u4": "<I", "i4": "<i", "u8": "<Q"}
_FEW_NUMBERS: Final = 8
#: A field of up to this number of tables is gathered without looking at their distances.
_FEW_TABLES: Final = 16
#: Shared vectors may be copied out up to this size, however small the file is.
_SMALL: Final = 1 << 20
_NO_ROWS: Final = np.zeros(0, np.int64)
#: The distances of slots after the end of a vtable.
_ABSENT: Final = [0] * 64


#: The largest payload of a file that is read together with others.
_MAX_JOINED_BYTES: Final = 1 << 17
_ALIGNMENT: Final = 8

#: The start and the end of the file of each row, int64 (n,); None for the rows of one file.
type Bounds = tuple[I64, I64] | None


def _some(bounds: Bounds, rows: NDArray[Any] | slice) -> Bounds:
    return None if bounds is None else (bounds[0][rows], bounds[1][rows])


def _repeated(bounds: Bounds, counts: I64) -> Bounds:
    return None if bounds is None else (np.repeat(bounds[0], counts), np.repeat(bounds[1], counts))


class Grid(NamedTuple):
    """Positions at equal distances, in groups at equal distances. They are read without an index of rows."""

    first: int  # The first position
    step: int  # The distance from one position to the next one of its group
    length: int  # The number of positions
    size: int  # The number of positions of each group. The last group may have fewer
    stride: int  # The distance from one group to the next one

    @staticmethod
    def of(positions: I64) -> Grid | None:
        """Return two or more positions as a grid; None if their distances differ."""
        n, first = len(positions), int(positions[0])
        if not (step := int(positions[1]) - first):
            return None
        is_end = positions[1:] - positions[:-1] != step
        size = int(is_end.argmax()) + 1
        if not is_end[size - 1]:
            return Grid(first, step, n, n, 0)
        stride = int(positions[size]) - first
        return Grid(first, step, n, size, stride) if _repeats(positions, size, stride) else None

    @property
    def groups(self) -> int:
        """The number of groups."""
        return -(-self.length // self.size)

    def shift(self, distance: int, slope: int = 0) -> Grid:
        """Return positions that are ``distance`` further, and ``slope`` more for each one in its group."""
        return Grid(self.first + distance, self.step + slope, self.length, self.size, self.stride)

    def positions(self) -> I64:
        """Return the positions."""
        firsts = self.first + self.stride * np.arange(self.groups)
        return (firsts[:, None] + self.step * np.arange(self.size)).reshape(-1)[: self.length]


def _repeats(values: NDArray[Any], period: int, growth: int = 0) -> bool:
    """Return whether each value is that of ``period`` rows before, plus ``growth``."""
    return bool((values[period:] == values[:-period] + values.dtype.type(growth)).all())


class Buffer:
    """The bytes of one flatbuffer, or of several ones, which are read at many positions at once."""

    __slots__ = ("bytes", "files", "size")

    def __init__(self, data: Any, *others: Any) -> None:
        #: The start and the end of each flatbuffer, if there are several ones.
        self.files: Bounds = None
        if others:
            joined, edges = bytearray(), list[tuple[int, int]]()
            for payload in (data, *others):
                joined += bytes(-len(joined) % _ALIGNMENT)
                edges.append((len(joined), len(joined) + len(payload)))
                joined += payload
            data, self.files = joined, (*np.array(edges, np.int64).T,)
        self.bytes: U8 = np.frombuffer(data, np.uint8)
        self.size: Final = len(self.bytes)

    def integer(self, position: int, kind: Struct) -> int:
        """Return the integer at one position."""
        if position < 0 or position + kind.size > self.size:
            raise FormatError(f"position {position} is outside of {self.size} bytes")
        value: int = kind.unpack_from(self.bytes, position)[0]
        return value

    def vector(self, position: int, width: int) -> tuple[int, int]:
        """Return the start of the elements of one vector, of ``width`` bytes each, and their count."""
        count = self.integer(position, _READ_U4)
        if position + 4 + count * width > self.size:
            raise FormatError(f"a vector ends after the {self.size} bytes of the buffer")
        return position + 4, count

    def fields(self, vtable: int) -> list[int]:
        """Return the distance of each field from the start of a table, 0 where it is absent."""
        size = self.integer(vtable, _READ_U2) & ~1
        if vtable + size > self.size:
            raise FormatError(f"a vtable ends at {vtable + size}, after the {self.size} bytes of the buffer")
        distances: list[int] = self.bytes[vtable + 4 : vtable + size].view(_U2).tolist()
        return distances + _ABSENT

    def require_inside(self, positions: I64, sizes: I64 | int, bounds: Bounds) -> None:
        """Raise ``FormatError`` unless the bytes at each position are in the file of its row."""
        if bounds is not None and ((positions < bounds[0]).any() or (positions + sizes > bounds[1]).any()):
            raise FormatError("a table leads out of its file")

    def gather(self, positions: I64 | Grid, dtype: DTypeLike, bounds: Bounds = None) -> NDArray[Any]:
        """Return the little-endian scalar (or struct, as a void dtype) at each position."""
        kind = np.dtype(dtype)
        if isinstance(positions, Grid):
            first, step, length, size, stride = positions
            groups = positions.groups
            inner, outer = (size - 1) * step, (groups - 1) * stride
            low, high = first + min(inner, 0) + min(outer, 0), first + max(inner, 0) + max(outer, 0)
            if low < 0 or high + kind.itemsize > self.size:  # or only the last group, which may have fewer
                return self.gather(positions.positions(), dtype)
            cells: NDArray[Any] = np.ndarray((groups, size), kind, self.bytes, first, (stride, step))
            return cells.flatten()[:length]
        width, n = kind.itemsize, len(positions)
        if n == 0:
            return np.zeros(0, kind)
        if bounds is not None:
            self.require_inside(positions, width, bounds)
        low = high = int(positions[0])
        if n > 1:
            low, high = int(positions.min()), int(positions.max())
        if low < 0 or high + width > self.size:
            raise FormatError(f"position {low if low < 0 else high} is outside of {self.size} bytes")
        if n == 1:
            return np.frombuffer(self.bytes, kind, 1, low)
        shift = width.bit_length() - 1
        if width == 1 << shift and width <= 8 and not np.any(positions & (width - 1)):
            whole: NDArray[Any] = self.bytes[: self.size >> shift << shift].view(kind)
            aligned: NDArray[Any] = whole[positions >> shift]
            return aligned
        picked: NDArray[Any] = windows(self.bytes, width)[positions].view(kind)
        return picked

    def vectors(self, positions: I64, width: int, bounds: Bounds = None) -> tuple[I64, I64]:
        """Return ``vector`` of many positions."""
        counts = self.gather(positions, _U4, bounds).astype(np.int64)
        starts = positions + 4
        self.require_inside(starts, counts * width, bounds)
        if len(starts) and int((starts + counts * width).max()) > self.size:
            raise FormatError(f"a vector ends after the {self.size} bytes of the buffer")
        return starts, counts

    def root(self) -> Tables:
        """Return the root table of each flatbuffer."""
        if self.files is None:
            return Tables(self, np.array([self.integer(0, _READ_U4)]))
        starts = self.files[0]
        return Tables(self, starts + self.gather(starts, _U4, self.files), self.files)


def open_tables(file_type: FileType, *files: Any) -> Tables:
    """Return the root tables of the payloads of files."""
    most = MAX_PAYLOAD_BYTES if len(files) == 1 else _MAX_JOINED_BYTES
    return Buffer(*[open_envelope(data, file_type, most)[1] for data in files]).root()


class Tables:
    """n tables of one type, as their positions, with a method for each kind of field (``slot``).

    Every table may have its own vtable. Each position is compared with the bounds of its file before it is
    used. Values that many tables share stay shared: rows of a ``Ragged`` may overlap. The tables of several
    files are in the order of their files.
    """

    __slots__ = ("_children", "_grid", "_runs", "_shared", "_slopes", "bounds", "buffer", "positions")

    def __init__(self, buffer: Buffer, positions: I64, bounds: Bounds = None) -> None:
        self.buffer: Final = buffer
        self.positions: Final = positions
        self.bounds: Final = bounds
        self._children: dict[int, tuple[Tables, I64]] = {}
        #: The vtables of runs of tables, their sizes and bounds, and for each table the number of its vtable.
        self._runs: tuple[I64, NDArray[Any], Bounds, NDArray[Any]] = _NO_ROWS, _NO_ROWS, None, _NO_ROWS
        #: The fields of all tables, if they have one vtable, or vtables of the same content.
        self._shared: list[int] | None = None
        #: The distances of fields from tables grow by this from one table of a group to the next one.
        self._slopes: list[int] = _ABSENT
        #: The positions, if there is one table or if many tables have equal distances in groups.
        self._grid: Grid | None = None
        n = len(positions)
        if not n:  # as in most lists of a transaction log
            return
        first = int(positions[0])
        if n == 1 and bounds is None:
            # Most files have one root and few arrays. Numbers are faster than arrays of one number.
            self._grid = Grid(first, 1, 1, 1, 0)
            self._shared = buffer.fields(first - buffer.integer(first, _READ_I4))
            return
        self._grid = grid = Grid.of(positions) if n > _FEW_TABLES and bounds is None else None
        if grid is not None and 1 < grid.size < n and self._has_equal_groups(grid):
            return
        vtables = positions - buffer.gather(grid or positions, _I4, bounds)
        if bounds is None and np.count_nonzero(vtables == vtables[0]) == n:
            self._shared = buffer.fields(int(vtables[0]))
            return
        is_first = np.ones(n, np.bool_)
        np.not_equal(vtables[1:], vtables[:-1], out=is_first[1:])
        if bounds is not None:
            is_first[1:] |= bounds[0][1:] != bounds[0][:-1]
        firsts = np.flatnonzero(is_first)
        if bounds is None and len(firsts) > _FEW_TABLES:  # few vtables in turns
            distinct, codes = number(vtables)
            self._runs = distinct, buffer.gather(distinct, _U2), None, codes
            return
        starts, own = vtables[firsts], _some(bounds, firsts)
        sizes = buffer.gather(starts, _U2, own)
        self._runs = starts, sizes, own, np.cumsum(is_first) - 1
        if own is None:
            return
        buffer.require_inside(starts, sizes.astype(np.int64) & ~1, own)
        # Files of one writer have vtables of the same content.
        if sizes[0] and np.count_nonzero(sizes == sizes[0]) == len(sizes):
            contents = buffer.gather(starts, f"V{sizes[0]}", own)
            if np.count_nonzero(contents == contents[0]) == len(contents):
                self._shared = buffer.fields(int(starts[0]))

    def _has_equal_groups(self, grid: Grid) -> bool:
        """Set the fields and return True if all groups have vtables of equal content (``TableColumns``)."""
        buffer, size, stride = self.buffer, grid.size, grid.stride
        if size > _GROUP:  # each table of a group takes half a kilobyte of memory below
            return False
        distances = buffer.gather(grid, _I4)
        if not _repeats(distances, size):
            return False
        vtables = self.positions[:size] - distances[:size]
        width, low = buffer.integer(int(vtables[0]), _READ_U2) & ~1, int(vtables.min())
        span = int(vtables.max()) + width - low
        inside = 0 <= low <= buffer.size - span - stride * (grid.groups - 1)
        if not 6 <= width <= 4 + 2 * len(_ABSENT) or span > stride or not inside:
            return False
        # Each group has its vtables at the same distance.
        contents = buffer.gather(Grid(low, 1, grid.groups, 1, stride), f"V{span}")
        fields = windows(contents[:1].view(np.uint8), width)[vtables - low]
        numbers = fields.view(_U2).reshape(size, -1).astype(np.int64)
        slopes = numbers[1] - numbers[0]
        # Each field is in all tables or in none, and its distance grows evenly from table to table.
        is_other = numbers != numbers[0] + slopes * np.arange(size)[:, None]
        if is_other.any() or (contents != contents[0]).any():
            return False
        if slopes[0] or ((numbers[0] > 0) != (numbers[-1] > 0)).any():
            return False
        self._shared, self._slopes = ([*each[2:].tolist(), *_ABSENT] for each in (numbers[0], slopes))
        return True

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: NDArray[Any] | slice) -> Tables:
        """Return some of the tables."""
        return Tables(self.buffer, self.positions[rows], _some(self.bounds, rows))

    def edges(self) -> I64:
        """Return the first row of each file, and the number of rows."""
        if self.bounds is None or self.buffer.files is None:
            return np.array([0, len(self)])
        return np.append(np.searchsorted(self.bounds[0], self.buffer.files[0]), len(self))

    def require(self, what: str, check: str, **slots: int) -> None:
        """Raise ``FormatError`` for the rule ``check`` if one of the tables lacks a field of the schema."""
        for name, slot in slots.items():
            if not self.all_have(slot):
                raise FormatError(f"{what} lacks the required field `{name}`", check=check)

    def present(self, slot: int) -> NDArray[np.bool_]:
        """Return which of the tables have the field."""
        if self._shared is not None:
            return np.full(len(self), self._shared[slot] > 0)
        has_field: NDArray[np.bool_] = self._distances(slot) > 0
        if len(has_field) and (has_field.all() or not has_field.any()):
            return np.full(len(self), has_field[0])
        present: NDArray[np.bool_] = has_field[self._runs[3]]
        return present

    def all_have(self, slot: int) -> bool:
        """Return whether all tables have the field."""
        return self._shared[slot] > 0 if self._shared is not None else bool(self._distances(slot).all())

    def scalars(self, slot: int, dtype: DTypeLike, default: int = 0) -> NDArray[Any]:
        """Return a scalar (or struct) field, shape (n,), with ``default`` where it is absent."""
        grid, distance = self._grid, self._shared[slot] if self._shared is not None else 0
        if grid is not None and distance:
            return self.buffer.gather(grid.shift(distance, self._slopes[slot]), dtype)
        if distance:
            return self.buffer.gather(self.positions + distance, dtype, self.bounds)
        fields = self._fields(slot)
        has_field = fields > 0
        if has_field.all():
            return self.buffer.gather(fields, dtype, self.bounds)
        out = np.zeros(len(self), dtype)
        if default:
            out.fill(default)
        out[has_field] = self.buffer.gather(fields[has_field], dtype, _some(self.bounds, has_field))
        return out

    def structs(self, slot: int, width: int) -> NDArray[np.uint8]:
        """Return a struct of bytes (an id), shape (n, width), with zeros where it is absent."""
        return self.scalars(slot, f"V{width}").view(np.uint8).reshape(len(self), width)

    def targets(self, slot: int) -> I64:
        """Return the targets of an offset field, 0 where it is absent."""
        targets: I64 = self._fields(slot) + self.scalars(slot, _U4)
        return targets

    def places(self, slot: int, width: int, *, copied: bool = False) -> tuple[I64, I64]:
        """Return the starts of the elements of vectors, of ``width`` bytes each, and their counts.

        Vectors may be shared. If they are ``copied``, a small file must not become a huge column.
        """
        if self._shared is not None and self.bounds is None and len(self) == 1:
            start = count = 0
            if distance := self._shared[slot]:
                place = int(self.positions[0]) + distance
                start, count = self.buffer.vector(place + self.buffer.integer(place, _READ_U4), width)
            starts, counts = np.array([start]), np.array([count])
        else:
            targets = self.targets(slot)
            has_field = targets > 0
            if has_field.all():
                starts, counts = self.buffer.vectors(targets, width, self.bounds)
            else:
                starts, counts = np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
                bounds = _some(self.bounds, has_field)
                starts[has_field], counts[has_field] = self.buffer.vectors(targets[has_field], width, bounds)
        if copied and int(counts.sum()) * width > _SMALL:
            sizes = [self.buffer.size] if self.buffer.files is None else np.subtract(*self.buffer.files[::-1])
            totals = np.diff(np.append(0, np.cumsum(counts))[self.edges()])
            for total, size in zip(totals.tolist(), sizes, strict=True):
                if total * width > max(_SMALL, 4 * int(size)):
                    raise FormatError(f"vectors have {total} elements in {size} bytes")
        return starts, counts

    def vectors(self, slot: int, dtype: DTypeLike = np.uint8) -> Ragged:
        """Return a string, or a vector of bytes or structs, as rows of bytes; empty rows where it is absent.

        ``dtype`` is the type of one element, a void type for structs. ``numbers`` reads vectors of numbers.
        """
        width = np.dtype(dtype).itemsize
        starts, counts = self.places(slot, width)
        return Ragged(self.buffer.bytes, starts, counts * width)

    def numbers(self, slot: int, dtype: DTypeLike) -> Ragged:
        """Return a copied vector of scalars or structs as rows of ``dtype``; empty rows if it is absent."""
        kind = np.dtype(dtype)
        width = kind.itemsize
        starts, counts = self.places(slot, width, copied=True)
        few = int(counts[0]) if len(counts) else 0
        if few <= _FEW_NUMBERS and (counts == few).all():
            matrix = np.empty((len(counts), few), kind)
            for place in range(few):
                matrix[:, place] = self.buffer.gather(starts + place * width, kind)
            return Ragged(matrix.reshape(-1), np.arange(len(counts)) * few, counts)
        rows = Ragged.from_lengths(np.empty(int(counts.sum()), kind), counts)
        copy_rows(rows.values.view(np.uint8), rows.starts * width, self.buffer.bytes, starts, counts * width)
        return rows

    def even_numbers(self, slot: int, dtype: DTypeLike) -> NDArray[Any] | None:
        """Return vectors of a few numbers as a matrix, if all of them are stored in the same way.

        This is so if the tables have equal distances from each other in groups, all vectors have the same
        length, and all groups have the same distances to them. ``numbers`` reads other vectors.
        """
        grid, distance = self._grid, self._shared[slot] if self._shared is not None else 0
        if grid is None or grid.length == 1 or not distance:
            return None
        place, kind = grid.shift(distance, self._slopes[slot]), np.dtype(dtype)
        offsets = self.buffer.gather(place, _U4)
        slope = int(offsets[1]) - int(offsets[0])
        if (offsets[: grid.size] != int(offsets[0]) + slope * np.arange(grid.size)).any():
            return None
        if grid.size < grid.length and not _repeats(offsets, grid.size):
            return None
        place = place.shift(int(offsets[0]), slope)
        counts = self.buffer.gather(place, _U4)
        few = int(counts[0])
        # Vectors that overlap are left to ``numbers``, which limits the copies.
        width, group = 4 + few * kind.itemsize, (grid.size - 1) * abs(place.step)
        if few > _FEW_NUMBERS or width > abs(place.step) or np.count_nonzero(counts == few) < len(self):
            return None
        if grid.groups > 1 and group + width > abs(grid.stride):
            return None
        matrix = np.empty((len(self), few), kind)
        for column in range(few):
            matrix[:, column] = self.buffer.gather(place.shift(4 + column * kind.itemsize), kind)
        return matrix

    def children(self, slot: int) -> tuple[Tables, I64]:
        """Return all tables of a vector of tables, and the number of each parent's tables.

        The tables are in the order of their parents. They are cached, because many rules of a file read the
        same tables.
        """
        if slot not in self._children:
            starts, counts = self.places(slot, 4, copied=True)
            places = ranges(starts, counts, 4)
            offsets = (
                np.frombuffer(self.buffer.bytes, _U4, len(places), int(starts[0]))  # inside, see ``vector``
                if len(places) and len(starts) == 1
                else self.buffer.gather(places, _U4)
            )
            bounds = _repeated(self.bounds, counts)
            self._children[slot] = Tables(self.buffer, places + offsets, bounds), counts
        return self._children[slot]

    def string_vectors(self, slot: int) -> tuple[Ragged, I64]:
        """Return all strings of a vector of strings, in the order of parents, and each parent's number."""
        starts, counts = self.places(slot, 4, copied=True)
        places = ranges(starts, counts, 4)
        targets = places + self.buffer.gather(places, _U4)
        bounds = _repeated(self.bounds, counts)
        return Ragged(self.buffer.bytes, *self.buffer.vectors(targets, 1, bounds)), counts

    def tables(self, slot: int) -> tuple[Tables, NDArray[np.bool_]]:
        """Return the present tables of a table field (or of a union), and which parents have one."""
        targets = self.targets(slot)
        present = targets > 0
        return Tables(self.buffer, targets[present], _some(self.bounds, present)), present

    def _fields(self, slot: int) -> I64:
        """Return the position of the field in each table, 0 where it is absent."""
        if self._shared is not None:
            distance, slope = self._shared[slot], self._slopes[slot]
            if slope and self._grid is not None:
                return self._grid.shift(distance, slope).positions()
            return self.positions + distance if distance else np.zeros(len(self), np.int64)
        if not len(self):
            return _NO_ROWS
        distances = self._distances(slot)
        if not distances.any():
            return np.zeros(len(self), np.int64)
        fields: I64 = self.positions + distances[self._runs[3]]
        if not distances.all():
            fields[fields == self.positions] = 0
        return fields

    def _distances(self, slot: int) -> I64:
        """Return the distance of a field from its table by vtable, 0 where it is absent."""
        (vtables, sizes, bounds, _), place = self._runs, 4 + 2 * slot
        in_vtable = sizes >= place + 2
        distances = np.zeros(len(vtables), np.int64)
        own = _some(bounds, in_vtable)
        distances[in_vtable] = self.buffer.gather(vtables[in_vtable] + place, _U2, own)
        return distances


class TableLayout:
    """The shape of a table: which slots it stores, with which type, and where.

    ``fields`` maps a slot to a dtype: ``"u4"`` for numbers and for offsets, ``"V12"`` for structs of bytes.
    """

    __slots__ = ("codes", "dtype", "offsets", "vtable")

    def __init__(self, fields: Mapping[int, str], slots: int) -> None:
        kinds = {slot: np.dtype(kind).newbyteorder("<") for slot, kind in fields.items()}
        widths = {slot: 1 if kind.kind == "V" else kind.itemsize for slot, kind in kinds.items()}
        # From wide to narrow. Before slots of 8 bytes, one slot of 4 bytes fills the gap after the i32.
        order = sorted(widths, key=lambda slot: -widths[slot])
        if order and widths[order[0]] == 8:
            gap = [slot for slot in order if widths[slot] == 4][:1]
            order = gap + [slot for slot in order if slot not in gap]
        end = 4
        self.offsets: dict[int, int] = {}
        for slot in order:
            self.offsets[slot] = -(-end // widths[slot]) * widths[slot]
            end = self.offsets[slot] + kinds[slot].itemsize
        places = [self.offsets.get(slot, 0) for slot in range(slots)]
        self.vtable: Final = np.array([4 + 2 * slots, end, *places], _U2).tobytes()
        names = ["vtable", *(f"f{slot}" for slot in order)]
        formats = [_I4, *(kinds[slot] for slot in order)]
        offsets = [0, *self.offsets.values()]
        alignment = max([4, *widths.values()])
        size = -(-end // alignment) * alignment
        self.dtype: Final = np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
        )
        #: The code of each field for ``struct``.
        self.codes: Final = {
            slot: f"{kind.itemsize}s" if kind.kind == "V" else _CODES[kind.str[1:]]
            for slot, kind in kinds.items()
        }


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Tables of one shape that a ``TableWriter`` has reserved."""

    fields: NDArray[Any]  # A structured array, with the field ``f0`` for slot 0, which the caller fills
    positions: I64  # The position of each table
    layout: TableLayout  # Their shape

    def link(self, slot: int, targets: ArrayLike) -> None:
        """Let an offset field lead to ``targets``, positions after the tables."""
        distances = np.subtract(targets, self.positions, dtype=np.int64)
        distances -= self.layout.offsets[slot]
        self.fields[f"f{slot}"] = distances


#: The number of tables of a group. All distances in a group must be less than 64 KiB.
_GROUP: Final = 256


#: The texts of groups may have this number of bytes for each table more than without repetition.
_REPEATED: Final = 4


def _group_size(count: int) -> int:
    """Return the number of tables of each group of ``count`` tables. The last group may have fewer."""
    return -(-count // max(1, -(-count // _GROUP))) or 1


@dataclass(frozen=True, slots=True, eq=False)
class GroupTexts:
    """Texts or bytes of tables, stored again in each group that uses them.

    So all groups with texts of equal lengths have equal distances to them.
    """

    rows: Ragged  # The texts of all groups
    groups: I64  # The group of each text
    places: I64  # The distance of each text from the first one of its group
    table_places: NDArray[np.int32]  # The distance of the text of each table
    room: int  # The bytes of the texts of a group

    @staticmethod
    def of(rows: Ragged, codes: NDArray[Any], end: int) -> GroupTexts | None:
        """Return the texts of tables, ``end`` NULs after each; None if too many bytes would be repeated."""
        size, is_new = _group_size(len(codes)), np.ones(len(codes), np.bool_)
        np.not_equal(codes[1:], codes[:-1], out=is_new[1:])
        is_new[::size] = True
        firsts = np.flatnonzero(is_new)
        strides = (7 + rows.lengths + end) // 4 * 4
        sizes, groups = strides[codes[firsts]], firsts // size
        stops = np.cumsum(sizes)
        first_of = groups.searchsorted(np.arange(groups[-1] + 1))
        places = stops - sizes
        places -= places[first_of][groups]
        room = int((places + sizes).max())
        if room * len(first_of) > int(strides.sum()) * 5 // 4 + _REPEATED * len(codes):
            return None
        own = rows.take(codes[firsts])
        own_places = np.repeat(places.astype(np.int32), np.diff(firsts, append=len(codes)))
        return GroupTexts(own, groups, places, own_places, room)


NO_TEXTS: Final[Mapping[int, GroupTexts]] = {}


#: The type of each column of a group, its first position, and the distance from table to table.
type _Columns = Mapping[str, tuple[np.dtype[Any], int, int]]


@lru_cache(maxsize=64)
def _group_layout(
    fields: tuple[tuple[int, str], ...], size: int, is_only: bool, tail: int
) -> tuple[U8, _Columns]:
    """Return a group of tables without values and texts, but with all other distances, and its columns."""
    kinds = {f"f{slot}": np.dtype(kind).newbyteorder("<") for slot, kind in fields}
    has_one = all(kind.itemsize == 4 for kind in kinds.values())
    # One group has no other one with the same vtables, so its tables have one vtable, and their own fields.
    in_rows = is_only and not has_one
    slots = 1 + max(slot for slot, _ in fields)
    vtables = np.zeros((1 if has_one or in_rows else size, 2 + slots + slots % 2), _U2)
    end = start = vtables.nbytes + -vtables.nbytes % 8
    order = [("distances", _I4), *sorted(kinds.items(), key=lambda item: item[1].itemsize % 8)]
    places = dict[str, int]()
    for name, kind in (*order, ("tail", np.dtype(f"V{4 + 4 * tail}"))):
        places[name] = end = end + -end % (8 if kind.itemsize == 8 else 4)
        end += kind.itemsize * (1 if in_rows else size)
    row = end - start + -(end - start) % 8 if in_rows else 0
    end = max(end, start + row * size)
    columns = {name: (kind, places[name], row or kind.itemsize) for name, kind in order}
    columns["tail"] = _U4, places["tail"], row or 4 + 4 * tail
    content, numbers = np.zeros(end + -end % 8, np.uint8), np.arange(size)
    (_, table, step), (_, vector, tail_step) = columns["distances"], columns["tail"]
    for slot, _ in fields:
        _, place, own = columns[f"f{slot}"]
        vtables[:, 2 + slot] = place - table + (own - step) * numbers[: len(vtables)]
    vtables[:, 0], vtables[:, 1] = 4 + 2 * slots, row or vtables[:, 2:].max(axis=1) + 4
    content[: vtables.nbytes] = vtables.reshape(-1).view(np.uint8)
    vtable_step = vtables.strides[0] if len(vtables) > 1 else 0
    last = columns[f"f{fields[-1][0]}"]
    for (kind, place, own), values in (
        (columns["distances"], table + (step - vtable_step) * numbers),
        (last, vector - last[1] + (tail_step - last[2]) * numbers),
        (columns["tail"], tail),
    ):
        np.ndarray((size,), kind, content, place, (own,))[:] = values
    return content, columns


class TableColumns:
    """Tables of one shape whose fields are stored column by column, in groups.

    A table is only the distance to its vtable. The fields of a group follow its tables, each as a column.
    Then come small vectors of ``tail`` numbers (such as the coordinates of a chunk) for the last field, and
    texts. So bytes that are alike are together, and distances are the same in all groups. The vector of
    offsets to the tables has equal elements in a group. All this compresses well. Fields of 8 bytes have
    another distance from each table of a group, so each has its own vtable, the same in all groups.
    """

    __slots__ = ("_columns", "_count", "_part", "_size", "_start", "_stride")

    def __init__(
        self,
        writer: TableWriter,
        fields: tuple[tuple[int, str], ...],
        count: int,
        tail: int,
        texts: Mapping[int, GroupTexts] = NO_TEXTS,
    ) -> None:
        self._count, self._size = count, _group_size(count)
        groups = -(-count // self._size)
        content, self._columns = _group_layout(fields, self._size, groups == 1, tail)
        self._stride = len(content) + sum(each.room + -each.room % 8 for each in texts.values())
        self._part, self._start = writer.reserve(groups * self._stride, 8)
        self._part.reshape(groups, self._stride)[:, : len(content)] = content
        place = len(content)
        for slot, each in texts.items():
            write_rows(self._part, each.groups * self._stride + place + each.places, each.rows)
            _, field, step = self._columns[f"f{slot}"]
            distances = place - field - step * np.arange(self._size, dtype=np.int32)
            self.fill(f"f{slot}", each.table_places + np.resize(distances, count))
            place += each.room + -each.room % 8

    @property
    def positions(self) -> I64:
        """The position of each table."""
        return self._places("distances")

    def _places(self, name: str) -> I64:
        """Return the position of each element of a column."""
        _, place, step = self._columns[name]
        return Grid(self._start + place, step, self._count, self._size, self._stride).positions()

    def fill(self, name: str, values: ArrayLike, at: int = 0) -> None:
        """Store the values of a column: of a field, such as ``f0``, or of a number of the tail."""
        kind, place, step = self._columns[name]
        place += 4 + 4 * at if name == "tail" else 0
        rows, whole = np.asarray(values), self._count // self._size
        for first, groups, size in ((0, whole, self._size), (whole, 1, self._count % self._size)):
            if groups * size:
                shape, steps = (groups, size), (self._stride, step)
                cells = np.ndarray(shape, kind, self._part, place + first * self._stride, steps)
                start = first * self._size
                cells[:] = rows[start : start + groups * size].reshape(shape) if rows.ndim else rows

    def link(self, slot: int, targets: NDArray[Any]) -> None:
        """Let an offset field lead to ``targets``, positions after the tables."""
        distances = self._places(f"f{slot}")
        np.subtract(targets, distances, out=distances)
        self.fill(f"f{slot}", distances)


def write_rows(part: U8, places: I64, rows: Ragged) -> None:
    """Write vectors of bytes, or of elements with 4-byte alignment, at places in a part of a buffer."""
    width = rows.values.dtype.itemsize
    part.view(_U4)[places >> 2] = rows.lengths
    source = np.ascontiguousarray(rows.values).view(np.uint8).reshape(-1)
    copy_rows(part, places + 4, source, rows.starts * width, rows.lengths * width)


#: Offsets are computed in blocks of this number, which fit in the cache.
_BLOCK: Final = 1 << 16


class OffsetVectors:
    """Vectors of offsets, one after the other, whose elements are filled later."""

    __slots__ = ("_elements", "_start", "_words", "positions")

    def __init__(self, writer: TableWriter, counts: ArrayLike) -> None:
        sizes = np.asarray(counts, np.int64)
        part, self._start = writer.reserve(4 * int(sizes.sum() + len(sizes)))
        self._words = part.view(_U4)
        firsts = np.cumsum(sizes + 1) - sizes - 1
        self._words[firsts] = sizes
        self._elements = ranges(firsts + 1, sizes) if len(sizes) > 1 else slice(1, None)
        #: The position of each vector.
        self.positions: Final = self._start + 4 * firsts

    def lead(self, targets: I64, rows: I64 | slice = slice(None)) -> None:
        """Let the elements (some of them, numbered through all vectors) lead to ``targets``."""
        if not len(targets):
            return
        if not isinstance(self._elements, slice):
            places = self._elements[rows]
        elif isinstance(rows, slice):
            elements = self._words[1:][rows]
            first = self._start + 4 * (1 + rows.indices(len(self._words) - 1)[0])
            step = 4 * (rows.step or 1)
            for begin in range(0, len(elements), _BLOCK):  # without a column of distances
                part = elements[begin : begin + _BLOCK]
                own = np.arange(
                    first + step * begin, first + step * (begin + len(part)), step, dtype=np.int64
                )
                np.subtract(targets[begin : begin + _BLOCK], own, out=part, casting="unsafe")
            return
        else:
            places = rows + 1
        distances = places * -4
        distances -= self._start
        distances += targets
        self._words[places] = distances


class TableWriter:
    """Writes a flatbuffer front to back, beginning with its root table. Offsets lead forward.

    Every method returns positions (int64). Parts stay writable until ``finish``.
    """

    __slots__ = ("_empty", "_parts", "_root", "_vtables", "size")

    def __init__(self, root: TableLayout) -> None:
        self._empty = 0
        self._parts: list[Any] = [np.frombuffer(bytearray(b"\0\0\0\0" + FILE_IDENTIFIER), np.uint8)]
        self._vtables: dict[bytes, int] = {}
        self.size: int = 8
        self._root = self.tables(root, 1)

    @classmethod
    def section(cls, size: int) -> TableWriter:
        """Return a writer without a root table, for a part of a file that begins with ``size`` NULs."""
        writer = cls.__new__(cls)
        writer._empty, writer._parts, writer._vtables = 0, [np.zeros(size, np.uint8)], {}
        writer.size = size
        return writer

    def joined(self) -> bytes:
        """Return the bytes of a section."""
        return b"".join(self._parts)

    def append(self, *pieces: Piece) -> None:
        """Write pieces, after everything else."""
        self._parts += pieces
        self.size += sum(map(len, pieces))
        self._require_size(self.size)

    def _require_size(self, size: int) -> None:
        if size > MAX_BYTES:
            raise FormatError(
                f"a flatbuffer must have at most {MAX_BYTES} bytes, got {size}", ErrorKind.SERIALIZATION
            )

    def reserve(self, size: int, alignment: int = 4) -> tuple[U8, int]:
        """Reserve ``size`` zero bytes at a multiple of ``alignment`` (a power of two from 4)."""
        gap = -self.size % alignment
        self._require_size(self.size + gap + size)
        if gap:
            self._parts.append(np.zeros(gap, np.uint8))
        position = self.size + gap
        part = np.zeros(size + (-size % 4), np.uint8)
        self._parts.append(part)
        self.size = position + len(part)
        return part[:size], position

    def tables(self, layout: TableLayout, n: int) -> Records:
        """Reserve n tables of one shape, whose vtable is written once."""
        if not n:
            return Records(np.zeros(0, layout.dtype), _NO_ROWS, layout)
        vtable = self._vtables.get(layout.vtable)
        if vtable is None:
            part, vtable = self.reserve(len(layout.vtable))
            part[:] = np.frombuffer(layout.vtable, np.uint8)
            self._vtables[layout.vtable] = vtable
        size = layout.dtype.itemsize
        part, start = self.reserve(n * size, 8)
        records = part.view(layout.dtype)
        positions = np.arange(start, start + n * size, size, dtype=np.int64)
        np.subtract(positions, vtable, out=records["vtable"], casting="unsafe")
        return Records(records, positions, layout)

    def tables_by_shape(
        self, shapes: NDArray[Any], layouts: Mapping[Any, TableLayout], positions: I64
    ) -> Iterator[tuple[I64 | slice, Records]]:
        """Reserve a table for each of ``shapes``, the keys of ``layouts``, and set its position.

        Other shapes get no table.
        The tables of one shape follow one another. Yields their rows, a slice if these are all rows.
        """
        for shape in np.unique(shapes).tolist():
            if (layout := layouts.get(shape)) is None:
                continue
            chosen = shapes == shape
            rows = slice(None) if chosen.all() else np.flatnonzero(chosen)
            records = self.tables(layout, len(positions[rows]))
            positions[rows] = records.positions
            yield rows, records

    def table_vectors(self, layout: TableLayout, counts: ArrayLike) -> tuple[Records, I64]:
        """Reserve vectors of ``counts`` tables of one shape. Return the tables and the vectors' positions."""
        vectors = OffsetVectors(self, counts)
        records = self.tables(layout, int(np.asarray(counts).sum()))
        vectors.lead(records.positions)
        return records, vectors.positions

    def no_elements(self) -> int:
        """Return the position of a vector without elements. Only the root table may link to it."""
        if not self._empty:
            _, self._empty = self.reserve(4)
        return self._empty

    def vector(self, values: bytes | NDArray[Any], end: int = 0, alignment: int = 4) -> int:
        """Write one vector of bytes, scalars or structs, and ``end`` NULs after it.

        ``alignment`` is 8 for elements with 64-bit numbers.
        """
        is_text = isinstance(values, bytes)
        data: U8 = np.frombuffer(values, np.uint8) if is_text else np.ascontiguousarray(values).view(np.uint8)
        # The elements, which follow the four bytes of the count, must be aligned.
        if alignment > 4 and (self.size + 4) % alignment:
            self.reserve(4)
        part, position = self.reserve(4 + data.size + end)
        pack_into("<I", part, 0, len(values))
        part[4 : 4 + data.size] = data.reshape(-1)
        return position

    def vectors(self, rows: Ragged, end: int = 0) -> I64:
        """Write vectors of bytes, or of elements with 4-byte alignment, and ``end`` NULs after each."""
        if len(rows) < 2:  # small files have many columns of one row
            return np.array([self.vector(rows.row(0), end) for _ in range(len(rows))], np.int64)
        width = rows.values.dtype.itemsize
        sizes = rows.lengths * width
        strides = (4 + sizes + end + 3) // 4 * 4
        ends = strides.cumsum()
        part, position = self.reserve(int(ends[-1]))
        places = ends - strides
        write_rows(part, places, rows)
        return position + places

    def finish(self, fields: Mapping[int, int | bytes]) -> list[Any]:
        """Return the buffer, in parts that follow one another.

        ``fields`` are those of the root table. A value of four bytes is the target of an offset.
        """
        position, layout = int(self._root.positions[0]), self._root.layout
        root = self._root.fields.view(np.uint8)
        for slot, value in fields.items():
            at, code = layout.offsets[slot], layout.codes[slot]
            is_link = not isinstance(value, bytes) and code == _CODES["u4"]
            pack_into(code, root, at, int(value) - position - at if is_link else value)
        pack_into("<I", self._parts[0], 0, position)
        return self._parts
