"""Statistics of chunks: columns beside the references of an array.

A row belongs to a reference, so it goes wherever the reference goes: into forks, merges, shifts and copies.
A reference of another chunk has a row of its own, or none. A row says what the elements of the chunk are that
the array has; ``extent`` is their shape, because an array that has grown or shrunk has others.
"""

from __future__ import annotations

from collections.abc import Buffer, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: The number of 32-bit digits of the exact sums of integers, and of the sums of their squares.
SUM_DIGITS: Final = 3
SQUARE_DIGITS: Final = 5

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


def row_dtype(kind: str, ndim: int) -> np.dtype[Any]:
    """Return the type of the rows for elements of a kind (``f``, ``i`` or ``u``).

    ``known``: whether the chunk has statistics. ``nan`` and ``missing``: the numbers of elements that are NaN
    or NaT, and of others that mean a missing value. The other columns are those of the remaining elements.
    """
    counts = [("known", "?"), ("nan", "<u8"), ("missing", "<u8")]
    return np.dtype([*counts, *_NUMBERS[kind], ("extent", "<u4", (ndim,))])


@dataclass(frozen=True, slots=True, eq=False)
class ChunkStatistics:
    """The statistics of n references.

    Attributes:
        context: What the elements mean, 16 bytes: rows of another context are not compared.
        rows: An array of ``row_dtype``, shape (n, tiles): a tile for each inner chunk of a shard, in C order.
    """

    context: bytes
    rows: NDArray[Any]

    def take(self, rows: NDArray[Any] | slice) -> ChunkStatistics:
        """Return some of the rows."""
        return replace(self, rows=self.rows[rows])

    @property
    def kind(self) -> str:
        """The kind of the elements: ``f``, ``i`` or ``u``."""
        return self.rows.dtype["minimum"].base.kind

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
        same = self.context == other.context and self.rows.dtype == other.rows.dtype
        return same and self.rows.shape[1] == other.rows.shape[1]

    @staticmethod
    def concat(parts: Sequence[ChunkStatistics | None], counts: Sequence[int]) -> ChunkStatistics | None:
        """Return the rows of all parts, one after the other. The context of the last part counts.

        Parts that are None, or have another context, get ``counts`` rows that are not known.
        """
        last = next((part for part in reversed(parts) if part is not None), None)
        if last is None:
            return None
        blank = partial(np.zeros, dtype=last.rows.dtype)
        return replace(
            last,
            rows=np.concatenate(
                [
                    part.rows
                    if part is not None and part.has_shape_of(last)
                    else blank((count, last.rows.shape[1]))
                    for part, count in zip(parts, counts, strict=True)
                ]
            ),
        )
