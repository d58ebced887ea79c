"""FlatBuffers by columns: many tables of one vector are read, and written, at once.

*The binary format.* A *table* starts with an i32, the distance back to its *vtable*. The vtable consists of
u16s: its own size, the table's size, then for each field (*slot*) the field's distance from the table's
start, or 0 if the field is absent. Scalars and structs lie in the table. Strings, vectors and tables are
reached by a u32, the distance forward from its own position. A vector is a u32 count, then its elements. A
string is a vector of bytes with a NUL at the end.

*Reading.* ``Tables`` stores the positions of n tables as one array, and gathers a field of all of them with
numpy, whatever vtables the writer chose: every table may have its own. Absent fields have the default of the
schema. Each position is checked against the buffer before it is used; a wrong position raises
``FormatError``. Values that many tables share (one string, one vector) stay shared: rows of a ``Ragged`` may
overlap.

*Writing.* ``Layout`` is a vtable together with the numpy dtype of a table of that shape. ``Writer.tables``
reserves n tables as one structured array, which the caller fills and links. Everything is written front to
back, parents before children, because offsets point forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, pack_into
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from frazil.errors import ErrorKind, FormatError
from frazil.format.columns import I64, U8, U32, Ragged, copy_rows, ranges, windows

FILE_IDENTIFIER: Final = b"Ichk"
#: Readers refuse larger buffers.
MAX_BYTES: Final = 1 << 31

_U2: Final = np.dtype("<u2")
_I4: Final = np.dtype("<i4")
_U4: Final = np.dtype("<u4")

_READ_U2: Final = Struct("<H")
_READ_I4: Final = Struct("<i")
_READ_U4: Final = Struct("<I")

#: The codes of numbers for ``struct``.
_CODES: Final = {"u1": "<B", "u2": "<H", "u4": "<I", "i4": "<i", "u8": "<Q"}
_FEW_NUMBERS: Final = 8
#: A field of fewer tables is gathered without looking at their distances.
_FEW_TABLES: Final = 16
#: Shared vectors may be copied out up to this size, however small the file is.
_SMALL: Final = 1 << 20
_NO_ROWS: Final = np.zeros(0, np.int64)


class Buffer:
    """The bytes of a flatbuffer, which are read at many positions at once."""

    __slots__ = ("bytes", "size")

    def __init__(self, data: Any) -> None:
        self.bytes: U8 = np.frombuffer(data, np.uint8)
        self.size = len(self.bytes)

    def integer(self, position: int, kind: Struct) -> int:
        """Return the integer at one position."""
        if position < 0 or position + kind.size > self.size:
            raise FormatError(f"position {position} is outside of {self.size} bytes")
        value: int = kind.unpack_from(self.bytes, position)[0]
        return value

    def vector(self, position: int, width: int) -> tuple[int, int]:
        """Return the start of the elements of the vector at one position, and their count.

        An element has ``width`` bytes.
        """
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
        return distances

    def gather(self, positions: I64, dtype: DTypeLike) -> NDArray[Any]:
        """Return the little-endian scalar (or struct, as a void dtype) at each position."""
        kind = np.dtype(dtype)
        width = kind.itemsize
        n = len(positions)
        if n == 0:
            return np.zeros(0, kind)
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

    def spaced(self, first: int, step: int, count: int, dtype: DTypeLike) -> NDArray[Any]:
        """Return ``gather`` of ``count`` positions with the distance ``step`` from each to the next."""
        kind = np.dtype(dtype)
        last = first + step * (count - 1)
        low, high = min(first, last), max(first, last)
        if low < 0 or high + kind.itemsize > self.size:
            raise FormatError(f"position {low if low < 0 else high} is outside of {self.size} bytes")
        if count == 1:
            return np.frombuffer(self.bytes, kind, 1, first)
        values: NDArray[Any] = np.ndarray((count,), kind, self.bytes, first, (step,))
        return values.copy()

    def follow(self, positions: I64) -> I64:
        """Return the targets of the forward offsets at these positions."""
        targets: I64 = positions + self.gather(positions, _U4)
        return targets

    def vectors(self, positions: I64, width: int) -> tuple[I64, I64]:
        """Return the starts of the elements of vectors at these positions, and their counts.

        An element has ``width`` bytes.
        """
        counts = self.gather(positions, _U4).astype(np.int64)
        starts = positions + 4
        if len(starts) and int((starts + counts * width).max()) > self.size:
            raise FormatError(f"a vector ends after the {self.size} bytes of the buffer")
        return starts, counts

    def root(self) -> Tables:
        """Return the root table of the buffer."""
        return Tables(self, np.array([self.integer(0, _READ_U4)]))


class Tables:
    """n tables of one type, as their positions, with a method for each kind of field.

    ``slot`` is the number of the field.
    """

    __slots__ = ("_children", "_shared", "_step", "_vtable_sizes", "_vtables", "buffer", "positions")

    def __init__(self, buffer: Buffer, positions: I64) -> None:
        self.buffer = buffer
        self.positions = positions
        self._children: dict[int, tuple[Tables, I64]] = {}
        if len(positions) == 1:
            # Most files have one root and few arrays. Numbers are faster than arrays of one number.
            start = int(positions[0])
            self._step = 0
            self._vtables = self._vtable_sizes = _NO_ROWS
            self._shared: list[int] | None = buffer.fields(start - buffer.integer(start, _READ_I4))
            return
        if not len(positions):  # as in most lists of a transaction log
            self._step, self._shared = 0, None
            self._vtables = self._vtable_sizes = _NO_ROWS
            return
        self._step = _even_step(positions)
        vtables = positions - (
            buffer.spaced(int(positions[0]), self._step, len(positions), _I4)
            if self._step
            else buffer.gather(positions, _I4)
        )
        if np.count_nonzero(vtables == vtables[0]) == len(vtables):
            # The usual case: all tables share one vtable.
            vtables = vtables[:1]
        self._vtables = vtables
        self._vtable_sizes = buffer.gather(vtables, _U2)
        #: The fields of the shared vtable: their distances from the start of a table.
        self._shared = buffer.fields(int(vtables[0])) if len(vtables) == 1 else None

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: NDArray[Any] | slice) -> Tables:
        """Return some of the tables."""
        return Tables(self.buffer, self.positions[rows])

    def present(self, slot: int) -> NDArray[np.bool_]:
        """Return which of the tables have the field."""
        if self._shared is not None:
            return np.full(len(self), self._distance(self._shared, slot) > 0)
        return self._fields(slot) > 0

    def all_have(self, slot: int) -> bool:
        """Return whether all tables have the field."""
        shared = self._shared
        if shared is not None:
            return slot < len(shared) and shared[slot] > 0
        return not len(self) or bool((self._fields(slot) > 0).all())

    def scalars(self, slot: int, dtype: DTypeLike, default: int = 0) -> NDArray[Any]:
        """Return a scalar field, shape (n,), with ``default`` where it is absent."""
        if self.all_have(slot):
            return self._gather(slot, dtype)
        fields = self._fields(slot)
        has_field = fields > 0
        out = np.full(len(self), default, dtype)
        out[has_field] = self.buffer.gather(fields[has_field], dtype)
        return out

    def structs(self, slot: int, width: int) -> NDArray[np.uint8]:
        """Return a struct of bytes (an id), shape (n, width), with zeros where it is absent."""
        rows = self._gather(slot, f"V{width}") if self.all_have(slot) else self._some_structs(slot, width)
        return rows.view(np.uint8).reshape(len(rows), width)

    def _some_structs(self, slot: int, width: int) -> NDArray[Any]:
        fields = self._fields(slot)
        out = np.zeros(len(self), f"V{width}")
        out[fields > 0] = self.buffer.gather(fields[fields > 0], f"V{width}")
        return out

    def places(self, slot: int, width: int) -> tuple[I64, I64]:
        """Return the starts of the elements of vectors, and their counts. An element has ``width`` bytes."""
        return self._vectors(slot, width)

    def vectors(self, slot: int, dtype: DTypeLike = np.uint8) -> Ragged:
        """Return a string, or a vector of bytes or structs, as rows of bytes; empty rows where it is absent.

        ``dtype`` is the type of one element, a void type for structs. ``numbers`` reads vectors of numbers.
        """
        kind = np.dtype(dtype)
        starts, counts = self._vectors(slot, kind.itemsize)
        return Ragged(self.buffer.bytes, starts, counts * kind.itemsize)

    def numbers(self, slot: int, dtype: DTypeLike) -> Ragged:
        """Return a copied vector of scalars or structs as rows of ``dtype``; empty rows if it is absent."""
        kind = np.dtype(dtype)
        starts, counts = self._vectors(slot, kind.itemsize)
        self._check_expansion(counts, kind.itemsize)
        few = int(counts[0]) if len(counts) else 0
        if few <= _FEW_NUMBERS and (counts == few).all():
            matrix = np.empty((len(counts), few), kind)
            for place in range(few):
                matrix[:, place] = self.buffer.gather(starts + place * kind.itemsize, kind)
            return Ragged(matrix.reshape(-1), np.arange(len(counts)) * few, counts)
        values = np.empty(int(counts.sum()), kind)
        ends = np.cumsum(counts)
        copy_rows(
            values.view(np.uint8),
            (ends - counts) * kind.itemsize,
            self.buffer.bytes,
            starts,
            counts * kind.itemsize,
        )
        return Ragged(values, ends - counts, counts)

    def even_numbers(self, slot: int, dtype: DTypeLike) -> NDArray[Any] | None:
        """Return vectors of a few numbers as a matrix, if all of them are stored in the same way.

        This is so if the tables have equal distances from each other, and each vector has the same distance
        from its table, and the same length. ``numbers`` reads other vectors.
        """
        distance = 0 if self._shared is None else self._distance(self._shared, slot)
        if not (self._step and distance):
            return None
        first, step, n, kind = int(self.positions[0]) + distance, self._step, len(self), np.dtype(dtype)
        offsets = self.buffer.spaced(first, step, n, _U4)
        start = first + int(offsets[0])
        if np.count_nonzero(offsets == offsets[0]) < n:
            return None
        counts = self.buffer.spaced(start, step, n, _U4)
        few = int(counts[0])
        if few > _FEW_NUMBERS or np.count_nonzero(counts == few) < n:
            return None
        self._check_expansion(np.array([few * n]), kind.itemsize)
        matrix = np.empty((n, few), kind)
        for place in range(few):
            matrix[:, place] = self.buffer.spaced(start + 4 + place * kind.itemsize, step, n, kind)
        return matrix

    def children(self, slot: int) -> tuple[Tables, I64]:
        """Return all tables of a vector of tables, and the number of each parent's tables.

        The tables are in the order of their parents. They are cached, because many rules of a file read the
        same tables.
        """
        if slot not in self._children:
            self._children[slot] = self._read_children(slot)
        return self._children[slot]

    def _read_children(self, slot: int) -> tuple[Tables, I64]:
        if self._shared is not None and len(self) == 1:
            start, count = self._vector_of_one(self._shared, slot, 4)
            places = np.arange(start, start + 4 * count, 4, dtype=np.int64)
            offsets = np.frombuffer(self.buffer.bytes, _U4, count, start) if count else _NO_ROWS
            return Tables(self.buffer, places + offsets), np.array([count])
        starts, counts = self._vectors(slot, 4)
        self._check_expansion(counts, 4)
        return Tables(self.buffer, self.buffer.follow(ranges_by(starts, counts, 4))), counts

    def string_vectors(self, slot: int) -> tuple[Ragged, I64]:
        """Return all strings of a vector of strings, and the number of each parent's strings.

        The strings are in the order of their parents.
        """
        starts, counts = self._vectors(slot, 4)
        self._check_expansion(counts, 4)
        targets = self.buffer.follow(ranges_by(starts, counts, 4))
        return Ragged(self.buffer.bytes, *self.buffer.vectors(targets, 1)), counts

    def tables(self, slot: int) -> tuple[Tables, NDArray[np.bool_]]:
        """Return the present tables of a table field (or of a union), and which parents have one."""
        fields = self._fields(slot)
        has_field = fields > 0
        return Tables(self.buffer, self.buffer.follow(fields[has_field])), has_field

    def targets(self, slot: int) -> tuple[I64, NDArray[np.bool_]]:
        """Return the targets of an offset field, 0 where it is absent, and which fields are present."""
        fields = self._fields(slot)
        has_field = self.present(slot)
        if self.all_have(slot):
            return fields + self._gather(slot, _U4), has_field
        out = np.zeros(len(self), np.int64)
        out[has_field] = self.buffer.follow(fields[has_field])
        return out, has_field

    def _fields(self, slot: int) -> I64:
        """Return the position of the field in each table, 0 where it is absent."""
        if self._shared is not None:
            distance = self._distance(self._shared, slot)
            return self.positions + distance if distance else np.zeros(len(self), np.int64)
        if not len(self):
            return _NO_ROWS
        place = 4 + 2 * slot
        in_vtable = self._vtable_sizes >= place + 2
        distances = np.zeros(len(self._vtables), np.int64)
        distances[in_vtable] = self.buffer.gather(self._vtables[in_vtable] + place, _U2)
        if distances.all():
            return self.positions + distances
        return np.where(distances > 0, self.positions + distances, 0)

    def _gather(self, slot: int, dtype: DTypeLike) -> NDArray[Any]:
        """Return the values of a field that all tables have."""
        if self._shared is not None and (self._step or len(self) == 1):
            first = int(self.positions[0]) + self._distance(self._shared, slot)
            return self.buffer.spaced(first, self._step, len(self), dtype)
        return self.buffer.gather(self._fields(slot), dtype)

    @staticmethod
    def _distance(shared: list[int], slot: int) -> int:
        return shared[slot] if slot < len(shared) else 0

    def _vectors(self, slot: int, width: int) -> tuple[I64, I64]:
        if self._shared is not None and len(self) == 1:
            start, count = self._vector_of_one(self._shared, slot, width)
            return np.array([start]), np.array([count])
        if not len(self):
            return _NO_ROWS, _NO_ROWS
        targets, has_field = self.targets(slot)
        if self.all_have(slot):
            return self.buffer.vectors(targets, width)
        starts, counts = np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
        starts[has_field], counts[has_field] = self.buffer.vectors(targets[has_field], width)
        return starts, counts

    def _vector_of_one(self, shared: list[int], slot: int, width: int) -> tuple[int, int]:
        """Return the start and the number of the elements of the only table's vector, zeros without one."""
        distance = self._distance(shared, slot)
        if not distance:
            return 0, 0
        place = int(self.positions[0]) + distance
        return self.buffer.vector(place + self.buffer.integer(place, _READ_U4), width)

    def _check_expansion(self, counts: I64, width: int) -> None:
        # Vectors may be shared, but not so often that a small file becomes a huge column.
        if int(counts.sum()) * width > max(_SMALL, 4 * self.buffer.size):
            raise FormatError(f"vectors have {int(counts.sum())} elements in {self.buffer.size} bytes")


def _even_step(positions: I64) -> int:
    """Return the distance of each position to the next, or 0 if the distances differ or are few."""
    last = len(positions) - 1
    if last < _FEW_TABLES:
        return 0
    step = int(positions[1]) - int(positions[0])
    if int(positions[-1]) - int(positions[0]) != step * last:
        return 0
    is_even = np.count_nonzero(positions[1:] - positions[:-1] == step) == last
    return step if is_even else 0


def ranges_by(starts: I64, counts: I64, step: int) -> I64:
    """Return the positions of the elements of vectors, with elements of ``step`` bytes."""
    if len(starts) == 1:
        first, count = int(starts[0]), int(counts[0])
        return np.arange(first, first + count * step, step, dtype=np.int64)
    ends = np.cumsum(counts)
    positions = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    positions *= step
    positions += np.repeat(starts - (ends - counts) * step, counts)
    return positions


class Layout:
    """The shape of a table: which slots it stores, with which type, and where.

    ``fields`` maps a slot to a dtype: ``"u4"`` for numbers and for offsets, ``"V12"`` for structs of bytes.
    ``tail`` is stored after the table's own fields and belongs to no slot. It has room for a small vector
    right after its table, such as the coordinates of a chunk.
    """

    __slots__ = ("codes", "dtype", "offsets", "slots", "tail_offset", "vtable")

    def __init__(self, fields: Mapping[int, str], slots: int, tail: DTypeLike | None = None) -> None:
        kinds = {slot: np.dtype(kind).newbyteorder("<") for slot, kind in fields.items()}
        widths = {slot: 1 if kind.kind == "V" else kind.itemsize for slot, kind in kinds.items()}
        names, offsets = ["vtable"], [0]
        formats: list[np.dtype[Any]] = [_I4]
        end, alignment = 4, max([4, *widths.values()])
        for slot in _packed(widths):
            start = -(-end // widths[slot]) * widths[slot]
            names.append(f"f{slot}")
            formats.append(kinds[slot])
            offsets.append(start)
            end = start + kinds[slot].itemsize
        self.offsets: Final = {
            int(name[1:]): offset for name, offset in zip(names[1:], offsets[1:], strict=True)
        }
        table_end = end
        self.tail_offset: Final = -(-end // 4) * 4
        if tail is not None:
            names.append("tail")
            formats.append(np.dtype(tail))
            offsets.append(self.tail_offset)
            end = self.tail_offset + np.dtype(tail).itemsize
        size = -(-end // alignment) * alignment
        self.dtype: Final = np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
        )
        self.slots: Final = slots
        #: The code of each field for ``struct``.
        self.codes: Final = {
            slot: f"{kind.itemsize}s" if kind.kind == "V" else _CODES[kind.str[1:]]
            for slot, kind in kinds.items()
        }
        places = [self.offsets.get(slot, 0) for slot in range(slots)]
        self.vtable: Final = np.array([4 + 2 * slots, table_end, *places], _U2).tobytes()

    def place(self, slot: int) -> int:
        """Return the distance of a slot from the table's start."""
        return self.offsets[slot]


def _packed(widths: Mapping[int, int]) -> list[int]:
    """Return the slots from wide to narrow.

    Before slots of 8 bytes, one slot of 4 bytes fills the gap after the vtable's i32.
    """
    slots = sorted(widths, key=lambda slot: -widths[slot])
    if slots and widths[slots[0]] == 8:
        gap = [slot for slot in slots if widths[slot] == 4][:1]
        return gap + [slot for slot in slots if slot not in gap]
    return slots


class OffsetVectors:
    """Vectors of offsets, one after the other, whose elements are filled later."""

    __slots__ = ("_elements", "_start", "_words", "positions")

    def __init__(self, words: U32, start: int, counts: I64) -> None:
        firsts = np.cumsum(counts + 1) - counts - 1
        words[firsts] = counts
        self._words = words
        self._start = start
        self._elements = ranges(firsts + 1, counts) if len(counts) > 1 else slice(1, None)
        #: The position of each vector.
        self.positions = start + 4 * firsts

    def lead(self, rows: I64 | slice, targets: I64) -> None:
        """Let some of the elements, numbered through all vectors, lead to ``targets``."""
        if not len(targets):
            return
        if not isinstance(self._elements, slice):
            places = self._elements[rows]
        elif isinstance(rows, slice):
            elements = self._words[1:][rows]
            first = self._start + 4 * (1 + rows.indices(len(self._words) - 1)[0])
            step = 4 * (rows.step or 1)
            own = np.arange(first, first + step * len(elements), step, dtype=np.int64)
            np.subtract(targets, own, out=elements, casting="unsafe")  # without a column of distances
            return
        else:
            places = rows + 1
        distances = places * -4
        distances -= self._start
        distances += targets
        self._words[places] = distances

    def fill(self, targets: I64) -> None:
        """Let the elements of all vectors lead to ``targets``."""
        self.lead(slice(None), targets)


class Record:
    """One table, whose fields are set one after the other. A numpy record takes ten times as long."""

    __slots__ = ("_layout", "_part", "position")

    def __init__(self, layout: Layout, part: U8, position: int, vtable: int) -> None:
        self._layout = layout
        self._part = part
        #: The position of the table.
        self.position = position
        pack_into("<i", part, 0, position - vtable)

    def put(self, slot: int, value: int | bytes) -> None:
        """Set a number or a struct."""
        pack_into(self._layout.codes[slot], self._part, self._layout.offsets[slot], value)

    def link(self, slot: int, target: int) -> None:
        """Let an offset field lead to ``target``, a position after this table."""
        offset = self._layout.offsets[slot]
        pack_into("<I", self._part, offset, target - self.position - offset)


class Writer:
    """Writes a flatbuffer front to back.

    Every method returns positions (int64). Parts stay writable until ``finish``.
    """

    __slots__ = ("_empty", "_parts", "_root", "_vtables", "size")

    def __init__(self) -> None:
        self._empty = 0
        self._root = np.zeros(2, _U4)
        self._root[1] = int.from_bytes(FILE_IDENTIFIER, "little")
        self._parts: list[U8] = [self._root.view(np.uint8)]
        self._vtables: dict[bytes, int] = {}
        self.size = 8

    def reserve(self, size: int, alignment: int = 4) -> tuple[U8, int]:
        """Reserve ``size`` zero bytes at a multiple of ``alignment`` (a power of two from 4)."""
        gap = -self.size % alignment
        if self.size + gap + size > MAX_BYTES:
            raise FormatError(
                f"a flatbuffer must have at most {MAX_BYTES} bytes, got {self.size + gap + size}",
                ErrorKind.SERIALIZATION,
            )
        if gap:
            self._parts.append(np.zeros(gap, np.uint8))
        position = self.size + gap
        part = np.zeros(size + (-size % 4), np.uint8)
        self._parts.append(part)
        self.size = position + len(part)
        return part[:size], position

    def tables(self, layout: Layout, n: int) -> tuple[NDArray[Any], I64]:
        """Reserve n tables of one shape. Return their records, which the caller fills, and positions."""
        if not n:
            return np.zeros(0, layout.dtype), _NO_ROWS
        vtable = self._vtable(layout)
        size = layout.dtype.itemsize
        part, start = self.reserve(n * size, 8)
        records = part.view(layout.dtype)
        positions = np.arange(start, start + n * size, size, dtype=np.int64)
        np.subtract(positions, vtable, out=records["vtable"], casting="unsafe")
        return records, positions

    def table(self, layout: Layout) -> Record:
        """Reserve one table."""
        vtable = self._vtable(layout)
        part, position = self.reserve(layout.dtype.itemsize, 8)
        return Record(layout, part, position, vtable)

    def _vtable(self, layout: Layout) -> int:
        """Return the position of a vtable, which is written once."""
        vtable = self._vtables.get(layout.vtable)
        if vtable is None:
            part, vtable = self.reserve(len(layout.vtable))
            part[:] = np.frombuffer(layout.vtable, np.uint8)
            self._vtables[layout.vtable] = vtable
        return vtable

    def no_elements(self) -> int:
        """Return the position of a vector without elements. Only the root table may link to it."""
        if not self._empty:
            _, self._empty = self.reserve(4)
        return self._empty

    def vector(self, values: NDArray[Any], alignment: int = 4) -> int:
        """Write a vector of scalars or structs; ``alignment`` is 8 for elements with 64-bit numbers."""
        payload = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        part, position = self._vector_part(len(values), len(payload), alignment)
        part[4:] = payload
        return position

    def offset_vectors(self, counts: ArrayLike) -> OffsetVectors:
        """Reserve vectors of ``counts`` offsets."""
        sizes = np.asarray(counts, np.int64)
        part, start = self.reserve(4 * int(sizes.sum() + len(sizes)))
        return OffsetVectors(part.view(_U4), start, sizes)

    def strings(self, rows: Ragged) -> I64:
        """Write strings, each with a NUL at the end, which some readers need."""
        return self._ragged(rows, 1)

    def vectors(self, rows: Ragged) -> I64:
        """Write vectors of bytes, or of elements with 4-byte alignment."""
        return self._ragged(rows, 0)

    def string(self, text: str) -> int:
        """Write one string and return its position."""
        return self.bytes_vector(text.encode(), 1)

    def bytes_vector(self, data: bytes, terminator: int = 0) -> int:
        """Write one vector of bytes, with a number of NULs after it. Return its position."""
        size = len(data)
        part, position = self.reserve((4 + size + terminator + 3) // 4 * 4)
        pack_into(f"<I{size}s", part, 0, size, data)
        return position

    def finish(self, root: int) -> list[U8]:
        """Return the buffer, in parts that follow one another."""
        self._root[0] = root
        return self._parts

    def _vector_part(self, count: int, size: int, alignment: int) -> tuple[U8, int]:
        # The elements, which follow the four bytes of the count, must be aligned.
        if alignment > 4 and (self.size + 4) % alignment:
            self.reserve(4)
        part, position = self.reserve(4 + size)
        pack_into("<I", part, 0, count)
        return part, position

    def _ragged(self, rows: Ragged, terminator: int) -> I64:
        width = rows.values.dtype.itemsize
        if len(rows) < 2:
            return self._single_row(rows, terminator, width)
        sizes = rows.lengths * width
        strides = (4 + sizes + terminator + 3) // 4 * 4
        ends = strides.cumsum()
        part, position = self.reserve(int(ends[-1]))
        places = ends - strides
        part.view(_U4)[places >> 2] = rows.lengths
        source = np.ascontiguousarray(rows.values).view(np.uint8).reshape(-1)
        copy_rows(part, places + 4, source, rows.starts * width, sizes)
        return position + places

    def _single_row(self, rows: Ragged, terminator: int, width: int) -> I64:
        """Write no row, or one row: small files have many columns of one row."""
        if not len(rows):
            return np.zeros(0, np.int64)
        values = rows.row(0)
        size = len(values) * width
        part, position = self.reserve((4 + size + terminator + 3) // 4 * 4)
        pack_into("<I", part, 0, len(values))
        if size:
            part[4 : 4 + size] = np.ascontiguousarray(values).view(np.uint8)
        return np.array([position], np.int64)


def link(records: NDArray[Any], layout: Layout, slot: int, positions: ArrayLike, targets: ArrayLike) -> None:
    """Let an offset field of tables at ``positions`` lead to ``targets``."""
    distances = np.subtract(targets, positions, dtype=np.int64)
    distances -= layout.place(slot)
    records[f"f{slot}"] = distances
