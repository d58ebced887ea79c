"""Rows within rows, for snapshots and the repo info.

A list for each of n rows (such as the metadata items of snapshots or the dimension names of arrays) is a
``Ragged`` of row numbers into the columns of the list's elements. So taking and joining rows moves numbers
and no elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from frazil.errors import FormatError
from frazil.format.columns import I64, MAX_COPIED_BYTES, Ragged, with_row

_WORD: Final = 8
_SMALL: Final = 64
_LARGE: Final = 1 << 16


class HasFields(Protocol):
    """Tables of one file or of many files."""

    def all_have(self, slot: int) -> bool:
        """Return whether all tables have the field."""

    def children(self, slot: int) -> tuple[Self, I64]:
        """Return all tables of a vector of tables, and the number of the tables of each parent."""


def require(tables: HasFields, what: str, check: str, **slots: int) -> None:
    """Raise ``FormatError`` for the rule ``check`` if one of the tables lacks a field of the schema."""
    for name, slot in slots.items():
        if not tables.all_have(slot):
            raise FormatError(f"{what} lacks the required field `{name}`", check=check)


def unshared(rows: Ragged, what: str) -> Ragged:
    """Return the same rows if the file contains all their bytes."""
    if rows.total() > len(rows.values):
        raise FormatError(f"{what} have {rows.total()} bytes in total in {len(rows.values)} bytes")
    return rows


def writable(rows: Ragged) -> Ragged:
    """Return the same rows. Raise ``FormatError`` if they make a file that is too large for readers."""
    if rows.total() * rows.values.dtype.itemsize > MAX_COPIED_BYTES:
        raise FormatError(f"rows have {rows.total()} elements in total, which is too many for one file")
    return rows


def numbered(counts: NDArray[Any]) -> Ragged:
    """Return the row numbers of elements that lie one parent after the other.

    >>> [numbered(np.array([2, 0, 1])).row(i).tolist() for i in range(3)]
    [[0, 1], [], [2]]
    """
    return Ragged.from_lengths(np.arange(int(np.sum(counts)), dtype=np.int64), counts)


def insert_row(rows: Ragged, at: int, values: NDArray[Any]) -> Ragged:
    """Return the rows with one more row before row ``at``. The values of other rows are not moved.

    Rows that were read from a large file, which has many other values, first leave these values behind.
    """
    if len(rows.values) > _LARGE and len(rows.values) > 2 * rows.total():
        rows = rows.compact()
    joined = np.concatenate([rows.values, values.astype(rows.values.dtype)]) if len(values) else rows.values
    start = len(rows.values) if len(values) else 0
    return Ragged(joined, with_row(rows.starts, at, start), with_row(rows.lengths, at, len(values)))


def set_rows(rows: Ragged, at: I64, others: Ragged) -> Ragged:
    """Return the rows with other rows at the places ``at``. The values of the other places are not moved.

    Values that no row has any more are left behind when they are more than half of all.
    """
    if len(rows.values) > 2 * rows.total() + _LARGE:
        rows = rows.compact()
    starts, lengths = rows.starts.copy(), rows.lengths.copy()
    starts[at], lengths[at] = others.starts + len(rows.values), others.lengths
    values = np.concatenate([rows.values, others.values]) if len(others.values) else rows.values
    return Ragged(values, starts, lengths)


def set_row(rows: Ragged, at: int, values: NDArray[Any]) -> Ragged:
    """Return the rows with other values in row ``at``."""
    starts, lengths = rows.starts.copy(), rows.lengths.copy()
    starts[at], lengths[at] = len(rows.values), len(values)
    return Ragged(np.concatenate([rows.values, values.astype(rows.values.dtype)]), starts, lengths)


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
    """Return whether rows of bytes are strictly ascending.

    The function compares neighbours eight bytes at a time, and continues only with those that are equal so
    far. So the work is limited by the number of bytes.

    >>> ascending(Ragged.of_text(["/a", "/a-b", "/a/b"])), ascending(Ragged.of_text(["/a", "/a"]))
    (True, False)
    """
    size = len(rows.values)
    if len(rows) < _SMALL or size < _WORD:
        blobs = rows.blobs()
        return all(map(bytes.__lt__, blobs, blobs[1:]))
    windows = sliding_window_view(rows.values, _WORD)

    def words(starts: I64, left: I64) -> NDArray[np.uint64]:
        places = np.minimum(starts, size - _WORD)
        read = windows[places].view(">u8")[:, 0].astype(np.uint64)
        # Zeros follow the end of a row. A word that would leave the buffer is read earlier and shifted.
        rows = np.flatnonzero((left < _WORD) | (starts != places))
        if len(rows):
            shifted = read[rows] << (8 * np.minimum(starts[rows] - places[rows], 7)).astype(np.uint64)
            unwanted = (8 * np.clip(_WORD - left[rows], 0, 7)).astype(np.uint64)
            read[rows] = np.where(left[rows] > 0, (shifted >> unwanted) << unwanted, 0)
        return read

    first = words(rows.starts, rows.lengths)
    a, b = first[:-1], first[1:]
    live = np.arange(len(rows) - 1)
    done = _WORD
    while True:
        if (a > b).any():
            return False
        live = live[a == b]
        left_a, left_b = rows.lengths[live] - done, rows.lengths[live + 1] - done
        over = (left_a <= 0) | (left_b <= 0)
        if (left_a >= left_b)[over].any():
            return False
        live, left_a, left_b = live[~over], left_a[~over], left_b[~over]
        if not len(live):
            return True
        a = words(rows.starts[live] + done, left_a)
        b = words(rows.starts[live + 1] + done, left_b)
        done += _WORD


def rows_where(mask: NDArray[np.bool_]) -> tuple[I64 | slice, int]:
    """Return the rows that a mask selects, and their number. A slice selects all rows without a copy."""
    count = int(np.count_nonzero(mask))
    return (slice(None), count) if count == len(mask) else (np.flatnonzero(mask), count)


def structs(ids: NDArray[np.uint8]) -> NDArray[Any]:
    """Return ids of shape (n, size) as n structs of bytes, as a table stores them."""
    out: NDArray[Any] = np.ascontiguousarray(ids).view(f"V{ids.shape[1]}").reshape(-1)
    return out
