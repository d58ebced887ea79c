"""FlexBuffers, and the metadata of snapshots and of the repository, whose values are FlexBuffers.

A value is written after everything that it refers to, by the distance back: one width for all elements of a
vector, the smallest that fits all of them. After the last value follow its *packed type* (the type in the
upper six bits, log2 of the width of its target in the lower two) and the width of the root. The bytes of
metadata equal those of the reference implementation::

    6b 00           the key "k"
    01 03           keys: one, 3 bytes back
    01 01 01 f9 04  map: keys are 1 back and 1 wide; one value, -7; its type, INT
    02 24 01        root: 2 back, MAP, 1 wide
"""

from __future__ import annotations

import math
import struct
from collections.abc import Buffer, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from operator import contains
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError, InvalidMetadataError
from frazil.format import msgpack
from frazil.format.columns import I64, U8, Ragged, concat_numbered, insert_row, unshared, windows
from frazil.format.envelope import reading
from frazil.format.flatbuffer import NUL, TableLayout, Tables, TableWriter
from frazil.format.msgpack import unwritable, utf8

# Types of the specification. Vectors of 2, 3 and 4 elements have INT, UINT, FLOAT for each length.
NULL, INT, UINT, FLOAT, KEY, STRING = range(6)
INDIRECT_INT, INDIRECT_UINT, INDIRECT_FLOAT, MAP, VECTOR = range(6, 11)
VECTOR_INT, VECTOR_UINT, VECTOR_FLOAT, VECTOR_KEY, VECTOR_STRING = range(11, 16)
VECTOR_INT2, VECTOR_FLOAT4, BLOB, BOOL, VECTOR_BOOL = 16, 24, 25, 26, 36

#: The writer and the reader refuse deeper nesting.
MAX_DEPTH: Final = 128

_CODES: Final = {
    INT: {1: "b", 2: "h", 4: "i", 8: "q"},
    UINT: {1: "B", 2: "H", 4: "I", 8: "Q"},
    FLOAT: {2: "e", 4: "f", 8: "d"},
}
_MAX_FLOAT: Final = float(np.finfo(np.float32).max)


# ------------------------------------------------------------------------------------------ writing


class _Value(NamedTuple):
    """A value on its way into a vector: written inline, or written before and referred to."""

    type: int
    width: int  # log2 of the width: of the value itself if inline, otherwise of its target
    number: int | float  # the value if inline, otherwise the position of its target
    inline: bool

    def packed(self, width: int) -> int:
        """Return the packed type of the value in a vector whose elements have this width."""
        return self.type << 2 | (max(self.width, width) if self.inline else self.width)


def _width(number: int) -> int:
    """Return log2 of the number of bytes that an unsigned number needs."""
    return 0 if number < 1 << 8 else 1 if number < 1 << 16 else 2 if number < 1 << 32 else 3


class _ValueWriter:
    def __init__(self) -> None:
        self.out = bytearray()
        self.keys: dict[str, int] = {}

    def put(self, number: int | float, type: int, width: int) -> None:
        self.out += struct.pack("<" + _CODES[type][1 << width], number)

    def value(self, value: Any, depth: int) -> _Value:
        if isinstance(value, np.ndarray | np.bool_ | np.integer | np.floating):
            value = value.tolist()
        if value is None:
            return _Value(NULL, 0, 0, inline=True)
        if isinstance(value, bool):
            return _Value(BOOL, 0, int(value), inline=True)
        if isinstance(value, int):
            if 0 <= value < 1 << 64:
                return _Value(UINT, _width(value), value, inline=True)
            if -(1 << 63) <= value < 0:
                return _Value(INT, _width(2 * ~value), value, inline=True)
            raise unwritable(f"an integer of 64 bits, got {value}. Store text instead")
        if isinstance(value, float):
            if not math.isfinite(value):
                raise unwritable(f"a finite number, got {value}. Store None or text instead")
            is_short = abs(value) <= _MAX_FLOAT and struct.unpack("<f", struct.pack("<f", value))[0] == value
            return _Value(FLOAT, 2 if is_short else 3, value, inline=True)
        if isinstance(value, str):
            data = utf8(value)
            width = _width(len(data))
            self.out += bytes(-len(self.out) % (1 << width))
            self.put(len(data), UINT, width)
            self.out += data + b"\0"
            return _Value(STRING, width, len(self.out) - len(data) - 1, inline=False)
        if depth >= MAX_DEPTH:
            raise unwritable(f"at most {MAX_DEPTH} levels of nesting")
        if isinstance(value, Mapping):
            return self.map(value, depth)
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
            items = [self.value(item, depth + 1) for item in value]
            types = {item.type for item in items}
            only = types.pop() if len(types) == 1 else None
            if only == BOOL:
                return self.elements(VECTOR_BOOL, items, typed=True)
            if only not in (INT, UINT, FLOAT):
                return self.elements(VECTOR, items)
            if 2 <= len(items) <= 4:
                fixed = VECTOR_INT2 + (len(items) - 2) * 3 + (only - INT)
                return self.elements(fixed, items, typed=True, length=False)
            return self.elements(VECTOR_INT + (only - INT), items, typed=True)
        raise unwritable(
            f"None, bool, int, float, str, or a list or dict of these, as in JSON, got {type(value).__name__}"
        )

    def map(self, value: Mapping[Any, Any], depth: int) -> _Value:
        if not all(isinstance(name, str) for name in value):
            raise unwritable("a dict with keys of str")
        items: list[_Value] = []
        positions: list[_Value] = []
        for name in sorted(value, key=utf8):
            if name not in self.keys:
                if "\0" in name:
                    raise unwritable(f"keys without NUL, got {name!r}")
                self.keys[name] = len(self.out)
                self.out += utf8(name) + b"\0"
            positions.append(_Value(KEY, 0, self.keys[name], inline=False))
            items.append(self.value(value[name], depth + 1))
        return self.elements(MAP, items, keys=self.elements(VECTOR_KEY, positions, typed=True))

    def elements(
        self,
        type: int,
        items: list[_Value],
        *,
        typed: bool = False,
        length: bool = True,
        keys: _Value | None = None,
    ) -> _Value:
        """Write the prefix, elements and types of a vector or map, with one width for all elements."""
        prefix = (2 if keys else 0) + (1 if length else 0)
        width = _width(len(items)) if length else 0
        for index, item in enumerate(items, prefix):
            width = max(width, self.needed(item, index))
        if keys:
            width = max(width, self.needed(keys, 0))
        self.out += bytes(-len(self.out) % (1 << width))
        if keys:
            self.element(keys, width)
            self.put(1 << keys.width, UINT, width)
        if length:
            self.put(len(items), UINT, width)
        position = len(self.out)
        for item in items:
            self.element(item, width)
        if not typed:
            self.out += bytes(item.packed(width) for item in items)
        return _Value(type, width, position, inline=False)

    def needed(self, item: _Value, index: int) -> int:
        """Return the smallest width with which ``item`` fits at ``index`` of a vector that starts here."""
        if item.inline:
            return item.width
        for width in range(4):
            start = len(self.out) + -len(self.out) % (1 << width)
            if _width(start + (index << width) - int(item.number)) <= width:
                return width
        raise AssertionError("an offset within memory fits 8 bytes")

    def element(self, item: _Value, width: int) -> None:
        if item.inline:
            self.put(item.number, item.type if item.type in (INT, FLOAT) else UINT, width)
        else:
            self.put(len(self.out) - int(item.number), UINT, width)


def dumps(value: Any) -> bytes:
    """Encode a JSON-like value.

    JSON-like values are None, bool, int of 64 bits, finite float, str, sequences, and mappings with str keys.
    Numbers and arrays of numpy are encoded as those of Python.
    """
    writer = _ValueWriter()
    root = writer.value(value, 0)
    width = writer.needed(root, 0)
    writer.out += bytes(-len(writer.out) % (1 << width))
    writer.element(root, width)
    writer.out += bytes([root.packed(width), 1 << width])
    return bytes(writer.out)


# ------------------------------------------------------------------------------------------ reading


class _ValueReader:
    def __init__(self, data: Buffer, what: str) -> None:
        self.data = bytes(data)
        self.what = what
        # Every value takes at least one byte, and text is read once for each position. More work means that
        # offsets lead to the same values again and again.
        self.budget = 4 * len(self.data) + 64
        self.texts: dict[tuple[int, int], str] = {}

    def fail(self, expected: str) -> FormatError:
        return FormatError(f"{self.what}: damaged flexbuffer: expected {expected}")

    def spend(self, amount: int) -> None:
        self.budget -= amount
        if self.budget < 0:
            raise self.fail("values that do not contain each other again and again")

    def number(self, type: int, position: int, width: int) -> Any:
        code = _CODES[type].get(width)
        if code is None:
            raise self.fail(f"numbers of 1, 2, 4 or 8 bytes (floats from 2), got {width}")
        if position < 0 or position + width > len(self.data):
            raise self.fail(f"{width} bytes at {position}, got a buffer of {len(self.data)}")
        return struct.unpack_from("<" + code, self.data, position)[0]

    def target(self, position: int, width: int) -> int:
        start: int = position - self.number(UINT, position, width)
        if start < 0:
            raise self.fail(f"an offset within the buffer, got one to {start}")
        return start

    def length(self, position: int, width: int) -> int:
        """Return the length before a vector, string or blob, which is at most the remaining bytes."""
        n: int = self.number(UINT, position - width, width)
        if n > len(self.data) - position:
            raise self.fail(f"a length that fits the buffer, got {n} at {position}")
        return n

    def text(self, start: int, stop: int) -> str:
        text = self.texts.get((start, stop))
        if text is None:
            self.spend(stop - start)
            try:
                text = self.texts[start, stop] = self.data[start:stop].decode()
            except UnicodeDecodeError:
                raise self.fail(f"UTF-8 at {start}") from None
        return text

    def key(self, position: int) -> str:
        stop = self.data.find(b"\0", position)
        if stop < 0:
            raise self.fail(f"a key with its NUL at {position}")
        return self.text(position, stop)

    def value(self, position: int, width: int, packed: int, depth: int) -> Any:
        """Return the value at ``position`` (``width`` bytes wide there) of this packed type."""
        self.spend(1)
        kind, child = packed >> 2, 1 << (packed & 3)
        if kind == NULL:
            return None
        if kind in _CODES:
            return self.number(kind, position, width)
        if kind == BOOL:
            return self.number(UINT, position, width) != 0
        at = self.target(position, width)
        if kind == KEY:
            return self.key(at)
        if kind == STRING:
            return self.text(at, at + self.length(at, child))
        if kind == BLOB:
            n = self.length(at, child)
            self.spend(n)
            return self.data[at : at + n]
        if INDIRECT_INT <= kind <= INDIRECT_FLOAT:
            return self.number(kind - INDIRECT_INT + INT, at, child)
        if depth >= MAX_DEPTH:
            raise self.fail(f"at most {MAX_DEPTH} levels of nesting")
        if kind != MAP:
            return self.vector(kind, at, child, depth)
        keys = self.target(at - 3 * child, child)
        width = self.number(UINT, at - 2 * child, child)
        n = self.length(at, child)
        if self.length(keys, width) < n:
            raise self.fail(f"a map of {n} values must have {n} keys, got {self.length(keys, width)}")
        self.spend(n)
        names = [self.key(self.target(keys + i * width, width)) for i in range(n)]
        return dict(zip(names, self.untyped(at, child, n, depth), strict=True))

    def vector(self, type: int, at: int, width: int, depth: int) -> list[Any]:
        if VECTOR_INT2 <= type <= VECTOR_FLOAT4:
            n, kind = divmod(type - VECTOR_INT2, 3)
            return self.numbers(INT + kind, at, width, n + 2)
        n = self.length(at, width)
        if type == VECTOR:
            return self.untyped(at, width, n, depth)
        if VECTOR_INT <= type <= VECTOR_FLOAT:
            return self.numbers(type - VECTOR_INT + INT, at, width, n)
        if type == VECTOR_BOOL:
            return [number != 0 for number in self.numbers(UINT, at, width, n)]
        if type in (VECTOR_KEY, VECTOR_STRING):
            self.spend(n)
            targets = [self.target(at + i * width, width) for i in range(n)]
            if type == VECTOR_KEY:
                return [self.key(target) for target in targets]
            # Deprecated and ambiguous: the type does not define the width of the lengths. Here: one byte.
            return [self.text(target, target + self.length(target, 1)) for target in targets]
        raise self.fail(f"a known type, got {type}")

    def untyped(self, at: int, width: int, n: int, depth: int) -> list[Any]:
        types = self.data[at + n * width : at + n * width + n]
        if len(types) < n:
            raise self.fail(f"{n} types after the elements at {at}")
        return [self.value(at + i * width, width, packed, depth + 1) for i, packed in enumerate(types)]

    def numbers(self, type: int, at: int, width: int, n: int) -> list[Any]:
        code = _CODES[type].get(width)
        if code is None or at + n * width > len(self.data):
            raise self.fail(f"{n} numbers of {width} bytes at {at}")
        self.spend(n)
        return list(struct.unpack_from(f"<{n}{code}", self.data, at))


def loads(data: Buffer, what: str = "metadata value") -> Any:
    """Decode a flexbuffer to None, bool, int, float, str, list, dict (and bytes, for a blob).

    ``what`` names the bytes in errors.
    """
    reader = _ValueReader(data, what)
    size = len(reader.data)
    if size < 3:
        raise reader.fail(f"at least 3 bytes, got {size}")
    packed, width = reader.data[-2:]
    if width not in (1, 2, 4, 8):
        raise reader.fail(f"a root of 1, 2, 4 or 8 bytes, got {width}")
    return reader.value(size - 2 - width, width, packed, 0)


#: From this number of values on, values are decoded together.
_MANY: Final = 16
#: The bytes after the value: its packed type, and its width.
_END: Final = 2
_LETTERS: Final = {INT: "i", UINT: "u", FLOAT: "f", BOOL: "u"}


def load_values(values: Ragged) -> list[Any]:
    """Return the decoded values of rows of bytes."""
    count = len(values)
    if count < _MANY or int(values.lengths.min()) <= _END:
        return list(map(loads, values.blobs()))
    rows = values.compact()
    ends = rows.starts + rows.lengths - _END
    packed, widths = rows.values[ends], rows.values[ends + 1]
    parts: list[I64] = []
    items: list[Any] = []
    rest = np.ones(count, np.bool_)
    for code in np.unique(packed.astype(np.int64) << 8 | widths).tolist():
        kind, length_width, width = code >> 10, 1 << (code >> 8 & 3), code & 255
        letter = "u" if kind == STRING else _LETTERS.get(kind)
        if letter is None or width not in (1, 2, 4, 8) or (kind == FLOAT and width == 1):
            continue
        chosen = np.flatnonzero((packed == code >> 8) & (widths == width) & (rows.lengths >= width + _END))
        places = ends[chosen] - width
        numbers = _gather(rows.values, places, f"<{letter}{width}")
        decoded: list[Any] = (numbers != 0).tolist() if kind == BOOL else numbers.tolist()
        if kind == STRING:
            # A distance is compared as it is: as int64, a huge one would be negative.
            fits = (numbers <= places - rows.starts[chosen] - length_width) & (numbers > 0)
            chosen, places, numbers = chosen[fits], places[fits], numbers[fits]
            firsts = places - numbers.astype(np.int64)
            lengths = _gather(rows.values, firsts - length_width, f"<u{length_width}")
            inside = lengths <= places - firsts
            chosen = chosen[inside]
            decoded = Ragged(rows.values, firsts[inside], lengths[inside].astype(np.int64)).texts()
        parts.append(chosen)
        items += decoded
        rest[chosen] = False
    parts.append(np.flatnonzero(rest))
    items += map(loads, rows.take(parts[-1]).blobs())
    column, out = np.empty(count, object), np.empty(count, object)
    column[:] = items
    out[np.concatenate(parts)] = column
    in_order: list[Any] = out.tolist()
    return in_order


def _gather(data: U8, places: I64, dtype: str) -> NDArray[Any]:
    kind = np.dtype(dtype)
    numbers: NDArray[Any] = windows(data, kind.itemsize)[places].view(kind)
    return numbers


_ITEM: Final = TableLayout({0: "u4", 1: "u4"}, slots=2)
_LOADERS: Final[dict[int, Callable[[Ragged], list[Any]]]] = {
    1: lambda values: list(map(msgpack.loads_json, values.blobs())),
    2: load_values,
}
_DUMPERS: Final = {1: msgpack.dumps, 2: dumps}


@dataclass(frozen=True, slots=True, eq=False)
class MetadataColumn:
    """The metadata of n rows.

    ``rows`` contains numbers of items. An item is a row of ``names`` and of ``values`` (encoded).
    """

    rows: Ragged
    names: Ragged
    values: Ragged
    spec_version: int = 2
    source: str = "metadata"

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, rows: list[Mapping[str, Any]], spec_version: int = 2) -> MetadataColumn:
        """Create a column of encoded values, with items sorted by name."""
        if not all(map(isinstance, chain.from_iterable(rows), repeat(str))):
            wrong = next(name for row in rows for name in row if not isinstance(name, str))
            raise InvalidMetadataError(f"names of metadata must be str, got {wrong!r}")
        items = [(name, row[name]) for row in rows for name in sorted(row)]
        try:
            names = Ragged.of_text([name for name, _ in items])
        except UnicodeEncodeError as error:
            raise InvalidMetadataError(
                f"names of metadata must be text that UTF-8 can encode, got {error}"
            ) from None
        blobs = []
        for name, value in items:
            try:
                blobs.append(_DUMPERS[spec_version](value))
            except InvalidMetadataError as error:
                raise InvalidMetadataError(f"metadata `{name}`: {error.message}") from None
        counts = np.array(list(map(len, rows)), np.int64)
        numbers = Ragged.from_lengths(np.arange(len(items), dtype=np.int64), counts)
        return cls(numbers, names, Ragged.of_bytes(blobs), spec_version)

    def having(self, name: str, text: str = "") -> NDArray[np.bool_]:
        """Return which rows have an item of this name whose bytes contain ``text``. Nothing is decoded."""
        items = self.rows.compact().values
        is_match = np.array(list(map(name.encode().__eq__, self.names.take(items).blobs())), bool)
        if text:
            named = np.flatnonzero(is_match)
            blobs = self.values.take(items[named]).blobs()
            is_match[named] = list(map(contains, blobs, repeat(text.encode())))
        before = np.concatenate(([0], np.cumsum(is_match)))
        ends = np.cumsum(self.rows.lengths)
        has_item: NDArray[np.bool_] = before[ends] > before[ends - self.rows.lengths]
        return has_item

    def load(self, row: int) -> dict[str, Any]:
        """Return the decoded metadata of one row. Raise ``FormatError`` if a value is damaged."""
        with reading(self.source, check="metadata-values"):
            items = self.rows.row(row)
            unshared(self.names.take(items), "names of metadata")
            unshared(self.values.take(items), "metadata")
        return self.take(slice(row, row + 1)).load_all()[0]

    def is_shared(self) -> bool:
        """Return whether rows share bytes, and all rows together are larger than the file."""
        items = self.rows.compact().values
        names, values = self.names.take(items), self.values.take(items)
        return int(names.lengths.sum()) > len(names.values) or int(values.lengths.sum()) > len(values.values)

    def load_all(self) -> list[dict[str, Any]]:
        """Return the decoded metadata of every row.

        Do not use this method for rows that share bytes (``is_shared``).
        """
        with reading(self.source, check="metadata-values"):
            items = self.rows.compact().values
            names = self.names.take(items).texts()
            values = _LOADERS[self.spec_version](self.values.take(items))
            pairs = zip(names, values, strict=True)
            return list(map(dict, map(islice, repeat(pairs), self.rows.lengths.tolist())))

    def take(self, rows: Any) -> MetadataColumn:
        """Return some of the rows, which share the items."""
        return MetadataColumn(self.rows.take(rows), self.names, self.values, self.spec_version, self.source)

    def inserted(self, at: int, metadata: Mapping[str, Any]) -> MetadataColumn:
        """Return the column with the metadata of one more row before row ``at``."""
        names, values, numbers = self.names, self.values, np.zeros(0, np.int64)
        if metadata:
            more = MetadataColumn.of([metadata])
            numbers = np.arange(len(more.names)) + len(names)
            for row in range(len(more.names)):
                names = insert_row(names, len(names), more.names.row(row))
                values = insert_row(values, len(values), more.values.row(row))
        return MetadataColumn(insert_row(self.rows, at, numbers), names, values, 2, self.source)

    @staticmethod
    def concat(parts: list[MetadataColumn]) -> MetadataColumn:
        """Return the rows of all parts, one part after the other. All parts must have spec version 2."""
        return MetadataColumn(
            concat_numbered([part.rows for part in parts], [len(part.names) for part in parts]),
            Ragged.concat([part.names for part in parts]),
            Ragged.concat([part.values for part in parts]),
        )


def read_metadata(tables: Tables, slot: int, source: str, spec_version: int = 2) -> MetadataColumn:
    """Read the vectors of MetadataItem in a slot of n tables."""
    items, counts = tables.children(slot)
    items.require("metadata item", "metadata-values", name=0, value=1)
    numbers = Ragged.from_lengths(np.arange(len(items), dtype=np.int64), counts)
    return MetadataColumn(numbers, items.vectors(0), items.vectors(1), spec_version, source)


def write_metadata(writer: TableWriter, column: MetadataColumn) -> I64:
    """Write the items of n rows. Return the positions of their vectors."""
    items, vectors = writer.table_vectors(_ITEM, column.rows.lengths)
    flat = column.rows.compact().values
    if len(flat):
        items.link(0, writer.vectors(column.names.take(flat), NUL))
        items.link(1, writer.vectors(column.values.take(flat)))
    return vectors
