"""Partial results of reductions: cells of a block by group, and how partial results become one.

    partial_of       the cells of a block -> a partial result
    merge_fields     the fields of two partial results -> of one: in any order and any tree, up to rounding
    finish_fields    the fields of all cells -> values

A `Kernel` has these three for one statistic: see `frazil.pipeline.reductions.kernels`. A partial result has
one row for each group with cells; a reduction without groups has a single group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

type Values = NDArray[Any]
type Index = NDArray[np.int64]
type Mask = NDArray[np.bool_]
type Fields = tuple[Values, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of a block, ordered by group.

    ``values`` (cells, *retained dimensions) has one row for each cell. ``starts`` are the first rows of
    ``groups``, which are sorted. ``weights`` can be broadcast against the values. ``valid`` is False for
    cells that are ignored; None: no cells are ignored. ``positions`` (cells,) is the position of each cell in
    the order of the array.
    """

    values: Values
    groups: Index
    starts: Index
    weights: Values | None = None
    valid: Mask | None = None
    positions: Index | None = None

    def fold(self, ufunc: np.ufunc, values: Values, dtype: DTypeLike | None = None) -> Values:
        """Apply ``ufunc`` to the cells of each group: (groups, *retained)."""
        if len(self.starts) == 1:  # much faster than `reduceat`
            return np.asarray(ufunc.reduce(values, axis=0, dtype=dtype, keepdims=True))
        return np.asarray(ufunc.reduceat(values, self.starts, axis=0, dtype=dtype))

    def spread(self, rows: Values) -> Values:
        """Return a row for each group -> a row for each cell of it."""
        return np.repeat(rows, np.diff(self.starts, append=len(self.values)), axis=0)

    def count(self) -> Values:
        """Return the number of valid cells of each group."""
        if self.valid is not None:
            return self.fold(np.add, self.valid, np.int64)
        sizes = np.diff(self.starts, append=len(self.values))
        retained = self.values.shape[1:]
        return np.broadcast_to(sizes.reshape(-1, *[1] * len(retained)), (len(sizes), *retained)).copy()


def cells(
    values: Values,
    codes: Index | None = None,
    *,
    weights: Values | None = None,
    skipna: bool = True,
    positions: Index | None = None,
) -> Cells:
    """Return the cells of a block from ``values`` (cells, *retained dimensions).

    ``codes`` (cells,) are the groups, -1 for cells without one; None: all cells are in group 0.

    >>> block = cells(np.array([1.0, np.nan, 5.0]), np.array([7, 2, 7]))
    >>> block.groups, block.values, block.starts
    (array([2, 7]), array([nan,  1.,  5.]), array([0, 1]))
    """
    if codes is None:
        groups, starts = np.zeros(min(1, len(values)), np.int64), np.zeros(min(1, len(values)), np.int64)
    else:
        if not (np.diff(codes) >= 0).all() or codes.min(initial=0) < 0:
            order = np.argsort(codes, kind="stable")
            order = order[np.searchsorted(codes, 0, sorter=order) :]
            values, codes = values[order], codes[order]
            weights = None if weights is None else (weights if len(weights) == 1 else weights[order])
            positions = None if positions is None else positions[order]
        groups, starts = np.unique(codes, return_index=True)
    valid = ~np.isnan(values) if skipna and values.dtype.kind == "f" else None
    return Cells(values, groups.astype(np.int64), starts.astype(np.int64), weights, valid, positions)


@dataclass(slots=True)
class Partial:
    """The state of a statistic after some cells: a row of each of ``fields`` for each of ``groups``.

    ``groups`` are sorted and distinct.
    """

    groups: Index
    fields: Fields

    @property
    def nbytes(self) -> int:
        """Bytes of all fields."""
        return sum(each.nbytes for each in self.fields)


class Kernel(Protocol):
    """One statistic, by partial results."""

    @property
    def identities(self) -> tuple[tuple[DTypeLike, Any], ...]:
        """The data type of each field, and its value without any cell."""

    def partial_of(self, cells: Cells) -> Partial:
        """Return the partial result of some cells."""
        ...

    def merge_fields(self, a: Fields, b: Fields) -> Fields:
        """Return the fields of two partial results with the same groups, as one."""
        ...

    def finish_fields(self, fields: Fields) -> Values:
        """Return the values of the result."""
        ...


def empty_partial(kernel: Kernel, groups: Index, retained: tuple[int, ...]) -> Partial:
    """Return the partial result without any cell, for these groups."""
    shape = (len(groups), *retained)
    return Partial(groups, tuple(np.full(shape, value, dtype) for dtype, value in kernel.identities))


def combine_partials(kernel: Kernel, a: Partial, b: Partial) -> Partial:
    """Return two partial results as one, and change neither of them."""
    if np.array_equal(a.groups, b.groups):
        return Partial(a.groups, kernel.merge_fields(a.fields, b.fields))
    groups = np.union1d(a.groups, b.groups)
    total = empty_partial(kernel, groups, a.fields[0].shape[1:])
    for part in (a, b):
        absorb_partial(kernel, total, part)
    return total


def absorb_partial(kernel: Kernel, total: Partial, part: Partial) -> None:
    """Add ``part`` to ``total``, which has all groups of ``part``."""
    if not len(part.groups):
        return
    rows: Any = np.searchsorted(total.groups, part.groups)
    if rows[-1] - rows[0] == len(rows) - 1:  # no copies
        rows = slice(rows[0], rows[-1] + 1)
    merged = kernel.merge_fields(tuple(each[rows] for each in total.fields), part.fields)
    for into, values in zip(total.fields, merged, strict=True):
        into[rows] = values


def combine_tree(kernel: Kernel, parts: list[Partial]) -> Partial:
    """Combine many partial results as a tree: rounding grows with the logarithm of their number."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [combine_partials(kernel, a, b) for a, b in pairs] + parts[len(parts) & ~1 :]
    return parts[0]


def enough_cells(values: Values, count: Values, least: int | None) -> Values:
    """Return ``values`` with NaN where ``count`` is below ``least``."""
    if not least or (count >= least).all():
        return values
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    return np.where(count >= least, values, values.dtype.type(np.nan))
