"""Statistics of chunks: columns beside the references of an array.

A row belongs to a reference, so it goes wherever the reference goes: into forks, merges, shifts and copies.
A reference of another chunk has a row of its own, or none. A row says what the elements of the chunk are that
the array has; ``extent`` is their shape, because an array that has grown or shrunk has others.
"""

from __future__ import annotations

from collections.abc import Buffer, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: The number of 32-bit digits of the exact sums of integers, and of the sums of their squares.
SUM_DIGITS: Final = 3
SQUARE_DIGITS: Final = 5
_ONES: Final = 0xFF

#: The types of the extremes and the sums of each kind of elements: floating-point, signed, unsigned.
_NUMBERS: Final[Mapping[str, tuple[tuple[Any, ...], ...]]] = {
    "f": (("minimum", "<f8"), ("maximum", "<f8"), ("sum", "<f8"), ("squares", "<f8")),
    **{
        kind: (
            ("minimum", f"<{kind}8"),
            ("maximum", f"<{kind}8"),
            ("sum", "<u4", (SUM_DIGITS,)),
            ("squares", "<u4", (SQUARE_DIGITS,)),
        )
        for kind in "iu"
    },
}


#: The columns that all rows have. Rows of other versions of Frazil may have more columns.
REQUIRED: Final = frozenset({"known", "nan", "missing", "minimum", "maximum", "sum", "squares", "extent"})
_MOST_COLUMNS: Final = 100


def row_dtype(kind: str, ndim: int) -> np.dtype[Any]:
    """Return the type of the rows for elements of a kind (``f``, ``i`` or ``u``).

    ``known``: whether the chunk has statistics. ``nan`` and ``missing``: the numbers of elements that are NaN
    or NaT, and of others that mean a missing value. The other columns are those of the remaining elements.

    A column that is not in ``REQUIRED`` is absent from some rows: see `absent_rows`.
    """
    counts = [("known", "?"), ("nan", "<u8"), ("missing", "<u8")]
    return np.dtype([*counts, *_NUMBERS[kind], ("extent", "<u4", (ndim,))])


def row_columns(dtype: np.dtype[Any]) -> list[list[Any]]:
    """Return the name, the type and the shape of each column, as JSON has them."""
    return [[name, dtype[name].base.str, list(dtype[name].shape)] for name in dtype.names or ()]


def row_dtype_of(columns: Sequence[Sequence[Any]]) -> np.dtype[Any]:
    """Return the type of rows with columns that `row_columns` returned. Raises ``ValueError`` for others.

    The required columns must be those of ``row_dtype``. Other columns can have any name and plain type.
    """
    try:
        if len(columns) > _MOST_COLUMNS:
            raise ValueError(f"it has {len(columns)} columns")
        dtype = np.dtype([(name, base, tuple(shape)) for name, base, shape in columns])
    except TypeError as error:
        raise ValueError(f"its columns have no type: {error}") from error
    names = set(dtype.names or ())
    if not names >= REQUIRED or dtype["minimum"].kind not in _NUMBERS:
        raise ValueError(f"it must have the columns {', '.join(sorted(REQUIRED))}, got others")
    others = [dtype[name] for name in names - REQUIRED]
    if not all(each.base.kind in "iufSV" and not each.base.names and each.itemsize > 0 for each in others):
        raise ValueError("it must have numbers or bytes in its columns, got others")
    own = row_dtype(dtype["minimum"].kind, prod(dtype["extent"].shape))
    if any(dtype[name] != own[name] for name in REQUIRED):
        raise ValueError("it has required columns of other types")
    return dtype


def blank_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return rows that are not known, and lack all columns that are not required."""
    rows = np.zeros(shape, dtype)
    for name in set(dtype.names or ()) - REQUIRED:
        base = dtype[name].base
        rows[name] = np.frombuffer(b"\xff" * base.itemsize, base)[0]
    return rows


def absent_rows(rows: NDArray[Any], name: str) -> NDArray[np.bool_]:
    """Return which rows lack a column: the rows that are not known, and those with only bits that are 1."""
    if name in REQUIRED:
        return np.asarray(~rows["known"])
    if name not in (rows.dtype.names or ()):
        return np.ones(rows.shape, np.bool_)
    column = np.ascontiguousarray(rows[name]).reshape(*rows.shape, -1).view(np.uint8)
    return np.asarray(~rows["known"] | (column == _ONES).all(axis=-1))


def rows_as(rows: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return rows with the columns of another type. Columns that they do not have are absent."""
    if rows.dtype == dtype:
        return rows
    out = blank_rows(rows.shape, dtype)
    for name in dtype.names or ():
        if name in (rows.dtype.names or ()) and rows.dtype[name] == dtype[name]:
            out[name] = rows[name]
    return out


@dataclass(frozen=True, slots=True, eq=False)
class ChunkStatistics:
    """The statistics of n references.

    Attributes:
        context: What the elements mean, 16 bytes: rows of another context are not compared.
        rows: An array of shape (n, tiles): a tile for each inner chunk of a shard, in C order. Its type has
            the columns of ``row_dtype``, or those that another version of Frazil has stored.
    """

    context: bytes
    rows: NDArray[Any]

    @property
    def kind(self) -> str:
        """The kind of the elements: ``f``, ``i`` or ``u``."""
        return self.rows.dtype["minimum"].kind

    def take(self, rows: NDArray[Any] | slice) -> ChunkStatistics:
        """Return some of the rows."""
        return replace(self, rows=self.rows[rows])

    def put(self, at: Any, rows: NDArray[Any]) -> ChunkStatistics:
        """Return the statistics with other rows at some places. They have the columns of both."""
        dtype = _union(self.rows.dtype, rows.dtype)
        out = self.rows.copy() if self.rows.dtype == dtype else rows_as(self.rows, dtype)
        out[at] = rows_as(rows, dtype)
        return replace(self, rows=out)

    def columns(self) -> NDArray[np.uint8]:
        """Return the bytes of the columns, one column after the other."""
        parts = (np.ascontiguousarray(self.rows[name]).reshape(-1) for name in self.rows.dtype.names or ())
        return np.concatenate([part.view(np.uint8) for part in parts])

    @staticmethod
    def of_columns(context: bytes, rows: NDArray[Any], columns: Buffer) -> ChunkStatistics:
        """Return the statistics with the bytes of ``columns``. The array ``rows`` becomes theirs."""
        first = 0
        for name in rows.dtype.names or ():
            base = rows.dtype[name].base
            column = np.frombuffer(columns, np.uint8 if base.kind == "b" else base, rows[name].size, first)
            rows[name] = column.reshape(rows[name].shape)
            first += column.nbytes
        return ChunkStatistics(context, rows)

    def has_shape_of(self, other: ChunkStatistics) -> bool:
        """Return whether the rows of both can be in one column."""
        one, two = self.rows.dtype, other.rows.dtype
        same = self.context == other.context and all(one[name] == two[name] for name in REQUIRED)
        return same and self.rows.shape[1] == other.rows.shape[1]

    @staticmethod
    def concat(parts: Sequence[ChunkStatistics | None], counts: Sequence[int]) -> ChunkStatistics | None:
        """Return the rows of all parts, one after the other. The context of the last part counts.

        Parts that are None, or have another context, get ``counts`` rows that are not known.
        """
        last = next((part for part in reversed(parts) if part is not None), None)
        if last is None:
            return None
        like = [part if part is not None and part.has_shape_of(last) else None for part in parts]
        dtype = reduce(_union, (part.rows.dtype for part in like if part is not None))
        rows = [
            blank_rows((count, last.rows.shape[1]), dtype) if part is None else rows_as(part.rows, dtype)
            for part, count in zip(like, counts, strict=True)
        ]
        return replace(last, rows=np.concatenate(rows))


def _union(one: np.dtype[Any], two: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type with the columns of both types. A column of another type is that of the second one."""
    if one == two:
        return one
    columns = {name: (name, each, shape) for dtype in (one, two) for name, each, shape in row_columns(dtype)}
    return row_dtype_of(list(columns.values()))
