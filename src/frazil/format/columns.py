"""Columns: the values of many rows in a few numpy arrays, without a Python object for each row.

A list for each of n rows (such as the metadata items of snapshots or the dimension names of arrays) is a
``Ragged`` of row numbers into the columns of the list's elements. So taking and joining rows moves numbers
and no elements.
"""

from __future__ import annotations

import builtins
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import ne
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

#: The largest size of a column when its rows are copied out: 2 GiB, the limit of readers for a whole file.
MAX_COPIED_BYTES = 1 << 31

#: The bytes of up to this number of rows are copied one by one, with fewer calls of numpy.
_FEW_ROWS = 4
_FEW_LENGTHS = 256
#: Rows of different lengths with up to this number of bytes in total are copied byte by byte.
_FEW_BYTES = 4096
#: From this number of texts on, all of them are decoded in one call.
_MANY_TEXTS = 16
_BLOCK = 1 << 22
_STEP = 1 << 16
_SAMPLE = 4096


def ranges(starts: I64, lengths: I64, step: int = 1) -> I64:
    """Return ``length`` numbers from each start, one range after the other."""
    if len(starts) == 1:
        first, count = int(starts[0]), int(lengths[0])
        return np.arange(first, first + count * step, step, dtype=np.int64)
    ends = np.cumsum(lengths)
    numbers = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    numbers *= step
    numbers += np.repeat(starts - (ends - lengths) * step, lengths)
    return numbers


def windows(data: U8, width: int) -> NDArray[Any]:
    """Return every sequence of ``width`` bytes as one item. The items overlap and are not copies."""
    return np.ndarray((max(0, len(data) - width + 1),), f"V{width}", data, 0, data.strides)


def copy_rows(dst: U8, dst_starts: I64, src: U8, src_starts: I64, lengths: I64) -> None:
    """Copy bytes row by row, without a Python loop over rows.

    Rows of equal length are copied together. If there are few bytes or too many different lengths, single
    bytes are copied by their index, in blocks.
    """
    if not len(lengths):
        return
    first = int(lengths[0])
    if np.count_nonzero(lengths == first) == len(lengths):
        if first:
            windows(dst, first)[dst_starts] = windows(src, first)[src_starts]
        return
    ends = lengths.cumsum()
    if ends[-1] <= _FEW_BYTES:
        dst[ranges(dst_starts, lengths)] = src[ranges(src_starts, lengths)]
        return
    rows = np.argsort(lengths, kind="stable")
    cuts = np.flatnonzero(np.diff(lengths[rows])) + 1
    if len(cuts) >= _FEW_LENGTHS:
        block = (ends - 1) // _BLOCK
        for part in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(block)) + 1):
            dst[ranges(dst_starts[part], lengths[part])] = src[ranges(src_starts[part], lengths[part])]
        return
    for group in np.split(rows, cuts):
        width = int(lengths[group[0]])
        if width:
            windows(dst, width)[dst_starts[group]] = windows(src, width)[src_starts[group]]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of varying length: row i is ``values[starts[i] : starts[i] + lengths[i]]``.

    Rows may lie anywhere in the values, overlap, or be the same. So a column that is read from a file points
    into the file's buffer, and a string that a million rows share exists once.
    """

    values: NDArray[Any]  # One-dimensional, of any dtype
    starts: I64  # int64 (n,)
    lengths: I64  # int64 (n,)

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def from_lengths(cls, values: NDArray[Any], lengths: NDArray[Any]) -> Ragged:
        """Create rows that lie one after the other in ``values``."""
        lengths = np.asarray(lengths, np.int64)
        return cls(values, lengths.cumsum() - lengths, lengths)

    @classmethod
    def of_bytes(cls, rows: Sequence[bytes]) -> Ragged:
        """Create rows of bytes."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls.from_lengths(np.frombuffer(b"".join(rows), np.uint8), lengths)

    @classmethod
    def of_text(cls, rows: Iterable[str]) -> Ragged:
        """Create rows of UTF-8 bytes."""
        rows = list(rows)
        text = "".join(rows)
        if not text.isascii():
            return cls.of_bytes(list(map(str.encode, rows)))
        # Each character is one byte, so all rows are encoded in one call.
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls.from_lengths(np.frombuffer(text.encode(), np.uint8), lengths)

    @classmethod
    def empty(cls, n: int = 0, dtype: Any = np.uint8) -> Ragged:
        """Create ``n`` rows without values."""
        return cls(np.zeros(0, dtype), np.zeros(n, np.int64), np.zeros(n, np.int64))

    def row(self, i: int) -> NDArray[Any]:
        """Return the values of one row."""
        start = int(self.starts[i])
        return self.values[start : start + int(self.lengths[i])]

    def bytes(self, i: int) -> builtins.bytes:
        """Return one row as bytes."""
        return self.row(i).tobytes()

    def text(self, i: int) -> str:
        """Return one row as text."""
        return decode_text(self.row(i).tobytes())

    def take(self, rows: NDArray[Any] | slice) -> Ragged:
        """Return some rows, which share the values."""
        return Ragged(self.values, self.starts[rows], self.lengths[rows])

    def compact(self) -> Ragged:
        """Return the same rows, one after the other in their own values."""
        if not len(self.values):
            return self
        total = int(self.lengths.sum())
        size = self.values.dtype.itemsize
        if total * size > MAX_COPIED_BYTES:
            raise FormatError(f"rows must have at most {MAX_COPIED_BYTES} bytes in total, got {total * size}")
        starts = self.lengths.cumsum() - self.lengths
        if total == len(self.values) and bool((starts == self.starts).all()):
            return self
        out = np.empty(total, self.values.dtype)
        if total:
            source = np.ascontiguousarray(self.values).view(np.uint8)
            copy_rows(out.view(np.uint8), starts * size, source, self.starts * size, self.lengths * size)
        return Ragged(out, starts, self.lengths)

    @staticmethod
    def concat(parts: Sequence[Ragged]) -> Ragged:
        """Return the rows of all parts, one part after the other."""
        compacted = [part.compact() for part in parts if len(part)] or [parts[0]]
        if len(compacted) == 1:
            return compacted[0]
        values = np.concatenate([part.values for part in compacted])
        return Ragged.from_lengths(values, np.concatenate([part.lengths for part in compacted]))

    def blobs(self) -> list[builtins.bytes]:
        """Return every row as bytes."""
        if len(self) <= _FEW_ROWS and self.lengths.sum() <= len(self.values):
            return [row.tobytes() for row in map(self.row, range(len(self)))]
        whole = self.compact()
        size = whole.values.dtype.itemsize
        width = int(whole.lengths[0]) * size if len(whole) else 0
        if width and (whole.lengths * size == width).all():
            items: list[builtins.bytes] = np.ascontiguousarray(whole.values).view(f"V{width}").tolist()
            return items
        data = whole.values.tobytes()
        starts, stops = whole.starts * size, (whole.starts + whole.lengths) * size
        return list(map(data.__getitem__, map(slice, starts.tolist(), stops.tolist())))

    def texts(self) -> list[str]:
        """Return every row as text. Raise ``FormatError`` if a row is not UTF-8."""
        try:
            count, total = len(self), int(self.lengths.sum())
            if count >= _MANY_TEXTS and self.values.dtype == np.uint8 and total + count <= MAX_COPIED_BYTES:
                # One text of all rows is split at NULs, unless a row contains a NUL.
                joined = np.zeros(total + count, np.uint8)
                starts = np.cumsum(self.lengths) - self.lengths + np.arange(count)
                copy_rows(joined, starts, self.values, self.starts, self.lengths)
                if np.count_nonzero(joined) == total:
                    return joined.tobytes().decode().split("\0")[:-1]
            return list(map(bytes.decode, self.blobs()))
        except UnicodeDecodeError as error:
            raise FormatError(f"text is not UTF-8: {error}", check="text-utf8") from error


def decode_text(data: bytes) -> str:
    """Return UTF-8 bytes as text. Raise ``FormatError`` if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"text is not UTF-8: {error}", check="text-utf8") from error


def intern[T: Hashable](texts: Sequence[T]) -> tuple[list[T], NDArray[np.uint32]]:
    """Return the distinct values in the order of first appearance, and the number of each row's value."""
    heads, lengths, sample = texts, None, texts[:_SAMPLE]
    if len(texts) > _STEP and 2 * sum(map(ne, sample, islice(sample, 1, None))) < _SAMPLE:
        # There are runs. A comparison of neighbours is much faster than a look-up of each value.
        changes = np.frombuffer(bytearray(map(ne, texts, islice(texts, 1, None))), np.bool_)
        starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
        heads = list(map(texts.__getitem__, starts.tolist()))
        lengths = np.diff(starts, append=len(texts))
    distinct = list(dict.fromkeys(heads))
    if len(distinct) == len(heads):
        codes = np.arange(len(heads), dtype=np.uint32)
    else:
        number = dict(zip(distinct, range(len(distinct)), strict=True))
        codes = np.fromiter(map(number.__getitem__, heads), np.uint32, len(heads))
    return distinct, codes if lengths is None else np.repeat(codes, lengths)


def distinct_rows(rows: Ragged) -> tuple[Ragged, U32]:
    """Return the distinct rows of bytes in the order of first appearance, and for each row its number."""
    distinct, codes = intern(rows.blobs())
    return rows.compact() if len(distinct) == len(rows) else Ragged.of_bytes(distinct), codes


def some_repeat(rows: Ragged) -> bool:
    """Return whether a sample of the rows contains equal rows, which is true if many rows are equal."""
    chosen = np.arange(len(rows))
    if len(rows) > _SAMPLE:
        chosen = np.random.default_rng(0).integers(0, len(rows), _SAMPLE)
        chosen = np.unique(chosen)
    blobs = rows.take(chosen).blobs()
    return len(set(blobs)) < len(blobs)


def number(values: I64) -> tuple[I64, NDArray[np.uint32]]:
    """Return the distinct values, ascending, and for each row the number of its value.

    The values must not be negative.
    """
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.uint32)
    steps = np.diff(values)
    if (steps >= 0).all():
        new = np.concatenate(([True], steps > 0))
        return values[new], np.cumsum(new, dtype=np.uint32) - np.uint32(1)
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > 8 * len(values) + _STEP:
        distinct, inverse = np.unique(values, return_inverse=True)
        return distinct, inverse.astype(np.uint32)
    # Values that are close together are marked in an array, which is faster than sorting them.
    places = values - low
    marks = np.zeros(span, np.bool_)
    marks[places] = True
    distinct = np.flatnonzero(marks)
    codes = np.empty(span, np.uint32)
    codes[distinct] = np.arange(len(distinct), dtype=np.uint32)
    return distinct + low, codes[places]


def rows_by_number(numbers: NDArray[Any]) -> list[I64]:
    """Return the rows of each distinct number."""
    if not len(numbers) or (numbers == numbers[0]).all():
        return [np.arange(len(numbers))] if len(numbers) else []
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def row_keys(matrix: NDArray[Any]) -> NDArray[np.bytes_]:
    """Return the rows of a matrix as fixed-width byte strings that sort and compare like the rows.

    Unsigned integers are converted to big-endian, so that the order of bytes is the numeric order.
    """
    big = np.ascontiguousarray(matrix, matrix.dtype.newbyteorder(">"))
    rows, width = len(big), big.shape[1] * big.dtype.itemsize
    if width == 0:
        return np.zeros(rows, "S1")
    keys: NDArray[np.bytes_] = big.view(np.uint8).reshape(rows, width).view(f"S{width}")[:, 0]
    return keys


_LARGE: Final = 1 << 16


def unshared(rows: Ragged, what: str) -> Ragged:
    """Return the same rows if the file contains all their bytes."""
    if (total := int(rows.lengths.sum())) > len(rows.values):
        raise FormatError(f"{what} have {total} bytes in total in {len(rows.values)} bytes")
    return rows


def insert_row[T: (NDArray[Any], Ragged)](column: T, at: int, row: Any) -> T:
    """Return a column with one more row before row ``at``. ``np.insert`` needs ten times as long.

    The values of other rows of a ``Ragged`` are not moved. Rows that were read from a large file, which has
    many other values, first leave these values behind.

    >>> insert_row(np.array([1, 2]), 1, 9).tolist()
    [1, 9, 2]
    """
    if isinstance(column, Ragged):
        if len(column.values) > _LARGE and len(column.values) > 2 * int(column.lengths.sum()):
            column = column.compact()
        values = np.concatenate([column.values, np.asarray(row, column.values.dtype)])
        start = len(column.values) if len(row) else 0
        return Ragged(values, insert_row(column.starts, at, start), insert_row(column.lengths, at, len(row)))
    out = np.empty((len(column) + 1, *column.shape[1:]), column.dtype)
    out[:at] = column[:at]
    out[at] = row
    out[at + 1 :] = column[at:]
    return out


def set_rows[T: (NDArray[Any], Ragged)](column: T, at: I64, others: T) -> T:
    """Return a column with other rows at the places ``at``. The values of the other places are not moved.

    Values that no row has any more are left behind when they are more than half of all.
    """
    if isinstance(column, Ragged) and isinstance(others, Ragged):
        if len(column.values) > 2 * int(column.lengths.sum()) + _LARGE:
            column = column.compact()
        starts, lengths = column.starts.copy(), column.lengths.copy()
        starts[at], lengths[at] = others.starts + len(column.values), others.lengths
        joined = [column.values, others.values]
        return Ragged(np.concatenate(joined) if len(others.values) else column.values, starts, lengths)
    out = column.copy()
    out[at] = others
    return out


def spread(rows: Ragged, to: NDArray[np.bool_]) -> Ragged:
    """Return the rows at the places where ``to`` is True, and empty rows elsewhere."""
    starts, lengths = np.zeros(len(to), np.int64), np.zeros(len(to), np.int64)
    starts[to], lengths[to] = rows.starts, rows.lengths
    return Ragged(rows.values, starts, lengths)


def concat_numbered(parts: Sequence[Ragged], sizes: Sequence[int]) -> Ragged:
    """Return the row numbers of all parts, whose elements (``sizes`` of them) are joined in the same order.

    Negative numbers mean "no element" and do not change.
    """
    shifts = np.cumsum([0, *sizes])[:-1].tolist()
    moved = [
        Ragged(np.where(part.values < 0, part.values, part.values + shift), part.starts, part.lengths)
        for part, shift in zip(parts, shifts, strict=True)
    ]
    return Ragged.concat(moved)


def take_rows[T: (NDArray[Any], Ragged)](column: T, rows: NDArray[Any] | slice) -> T:
    """Return some rows of a column of any kind."""
    return column.take(rows) if isinstance(column, Ragged) else column[rows]


def join_rows(columns: Sequence[Any]) -> Any:
    """Return the rows of several columns of one kind, one column after the other."""
    return Ragged.concat(columns) if isinstance(columns[0], Ragged) else np.concatenate(columns)


def ascending(rows: Ragged) -> bool:
    """Return whether rows of bytes are strictly ascending, False also for rows that are slow to compare.

    These are rows of very different lengths, and rows that only differ in NULs at their ends.
    """
    width = int(rows.lengths.max(initial=1))
    if len(rows) * width > 4 * len(rows.values):
        return False
    padded = np.zeros(len(rows) * width, np.uint8)
    copy_rows(padded, np.arange(len(rows)) * width, rows.values, rows.starts, rows.lengths)
    keys = padded.view(f"S{width}")
    return bool((keys[:-1] < keys[1:]).all())


def structs(ids: NDArray[np.uint8]) -> NDArray[Any]:
    """Return ids of shape (n, size) as n structs of bytes, as a table stores them."""
    out: NDArray[Any] = np.ascontiguousarray(ids).view(f"V{ids.shape[1]}").reshape(-1)
    return out
