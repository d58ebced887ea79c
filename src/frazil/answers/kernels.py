"""The kernels of reductions: how partial results are computed, merged and finished, by statistic.

A partial result comes from cells, or from the statistics of tiles: of chunks, or of inner chunks of shards.
It has one row for each group with cells. Variances are combined as by Chan, Golub and LeVeque (1979), with d
the difference of the means: M2 = M2a + M2b + d^2 * Wa * Wb / (Wa + Wb). Floats are added in float64; integers
are added exactly, modulo 2**64. A kernel for cells of the type ``object`` has exact results of integers, as
integers and fractions of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any, Final

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
        """Return a row for each group -> a row for each cell of it. One row can be broadcast."""
        if len(self.starts) == 1:
            return rows
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
    """Return the cells of a block from ``values`` (cells, *retained dimensions)."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """Statistics of tiles, ordered by group as `Cells` are.

    ``columns`` have one place for each tile, in a grid or in a list:

    - ``count``: the number of values; ``gaps``: the number of others, NaN and missing values;
    - ``low`` and ``high``: the smallest and the largest value; any number if there is none;
    - the columns of `frazil.format.chunk_statistics`: numbers before they are unpacked. Exact integers have
      digits along one axis more.

    The values of ``cells`` (tiles, *retained dimensions) are False for tiles that do not count. ``rows``
    returns a column in their order. ``count`` is the number of values of each group. ``scale`` and ``offset``
    unpack numbers.
    """

    columns: Mapping[str, Values]
    cells: Cells
    rows: Callable[[Values], Values]
    count: Values
    scale: float
    offset: float

    @staticmethod
    def of(
        columns: Mapping[str, Values],
        is_used: Mask,
        packing: tuple[float, float] = (1.0, 0.0),
        *,
        codes: Index | None = None,
        over: Sequence[int] | None = None,
    ) -> Tiles:
        """Return tiles in the order of their groups. A tile that is not used counts as one without values.

        ``codes`` are the groups of the places along the axes ``over``; None: one group. ``over`` None are all
        axes; the others are retained.
        """
        axes = range(is_used.ndim)
        over = tuple(axes) if over is None else tuple(over)
        order = (*over, *(axis for axis in axes if axis not in over))
        shape = tuple(is_used.shape[axis] for axis in order)
        shape = (prod(shape[: len(over)]), *shape[len(over) :])
        used = is_used.transpose(order).reshape(shape)
        ranked: Any = slice(None)
        groups = starts = np.zeros(min(1, shape[0]), np.int64)
        if codes is not None:
            ranked = np.argsort(codes, kind="stable")
            is_row = used.any(axis=tuple(range(1, used.ndim))) & (codes >= 0)
            ranked = ranked[is_row[ranked]]
            groups, starts = np.unique(codes[ranked], return_index=True)

        def rows(column: Values) -> Values:
            more = tuple(range(len(order), column.ndim))
            turned = column.transpose(*order, *more)
            return np.asarray(turned.reshape(*shape, *column.shape[len(order) :])[ranked])

        cells = Cells(used[ranked], groups.astype(np.int64), starts.astype(np.int64))
        tiles = Tiles(columns, cells, rows, cells.values, *packing)
        return replace(tiles, count=tiles.added("count"))

    def used(self, column: Values, identity: Any = 0) -> Values:
        """Return the rows of a column, with ``identity`` for tiles that are not used."""
        rows, is_used = self.rows(column), self.cells.values
        if is_used.all():
            return rows
        return np.where(is_used.reshape(*is_used.shape, *[1] * (rows.ndim - is_used.ndim)), rows, identity)

    def added(self, name: str) -> Values:
        """Return the sum of a column in each group. Digits become integers of Python."""
        total = self.cells.fold(np.add, self.used(self.columns[name]))
        if total.ndim == self.cells.values.ndim:
            return total
        powers = np.array([1 << _DIGIT * place for place in range(total.shape[-1])], object)
        return np.asarray(total.astype(object) @ powers)


@dataclass(slots=True)
class Partial:
    """The state of a statistic after some cells: a row of each of ``fields`` for each of ``groups``.

    ``groups`` are sorted and distinct.
    """

    groups: Index
    fields: Fields


_COUNT: Final = (np.int64, 0)
_DIGIT: Final = 32
#: Numerators and denominators -> fractions, element by element.
_fractions: Callable[..., Values] = np.frompyfunc(Fraction, 2, 1)


class Kernel:
    """One statistic, by partial results. The first field is the count of valid cells."""

    __slots__ = ()

    @property
    def takes_tiles(self) -> bool:
        """Whether the statistics of tiles can have the partial result."""
        return type(self).partial_of_tiles is not Kernel.partial_of_tiles

    @property
    def identities(self) -> tuple[tuple[DTypeLike, Any], ...]:
        """The data type of each field, and its value without any cell."""
        return (_COUNT,)

    @property
    def merge(self) -> np.ufunc:
        """The function that merges two values of all fields but the count."""
        return np.add

    def partial_of(self, cells: Cells) -> Partial:
        """Return the partial result of some cells."""
        raise NotImplementedError

    def is_open(self, columns: Mapping[str, Values]) -> Mask:
        """Return which tiles have statistics that leave their partial result open."""
        return np.zeros(columns["count"].shape, np.bool_)

    def partial_of_tiles(self, tiles: Tiles) -> Partial:
        """Return the partial result of tiles whose statistics do not leave it open."""
        raise NotImplementedError

    def merge_fields(self, a: Fields, b: Fields) -> Fields:
        """Return the fields of two partial results with the same groups, as one."""
        return (a[0] + b[0], *(self.merge(one, other) for one, other in zip(a[1:], b[1:], strict=True)))

    def finish_fields(self, fields: Fields) -> Values:
        """Return the values of the result."""
        raise NotImplementedError


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
    merged = kernel.merge_fields(tuple(field[rows] for field in total.fields), part.fields)
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


@dataclass(frozen=True, slots=True)
class Count(Kernel):
    """The number of cells that are not NaN. As in xarray, ``skipna=False`` does not change it."""

    def partial_of(self, cells: Cells) -> Partial:
        """Return the number of valid cells of each group."""
        if cells.valid is None and cells.values.dtype.kind == "f":
            return Partial(cells.groups, (cells.fold(np.add, ~np.isnan(cells.values), np.int64),))
        return Partial(cells.groups, (cells.count(),))

    def partial_of_tiles(self, tiles: Tiles) -> Partial:
        """Return the number of values of each group."""
        return Partial(tiles.cells.groups, (tiles.count,))

    def finish_fields(self, fields: Fields) -> Values:
        """Return the counts."""
        return fields[0]


@dataclass(frozen=True, slots=True)
class Sum(Kernel):
    """The sum, or the mean; with weights, of cells times weights."""

    dtype: Any
    mean: bool = False
    min_count: int | None = None
    weighted: bool = False

    @property
    def identities(self) -> tuple[tuple[DTypeLike, Any], ...]:
        """The fields: count, total, and with weights the weight."""
        weight: tuple[tuple[DTypeLike, Any], ...] = ((np.float64, 0),)
        return (_COUNT, (self.dtype, 0), *(weight if self.weighted else ()))

    def partial_of(self, cells: Cells) -> Partial:
        """Return count and total of each group, and with weights the weight."""
        values, valid, weights = cells.values, cells.valid, cells.weights
        count = cells.count()
        if valid is not None and not valid.all():
            values = np.where(valid, values, values.dtype.type(0))
        if weights is None:
            return Partial(cells.groups, (count, cells.fold(np.add, values, self.dtype)))
        weight = cells.fold(np.add, _broadcast(weights, valid, values.shape), np.float64)
        return Partial(cells.groups, (count, cells.fold(np.add, values * weights, self.dtype), weight))

    def partial_of_tiles(self, tiles: Tiles) -> Partial:
        """Return count and total of each group, from sums before unpacking."""
        count, total, dtype = tiles.count, tiles.added("sum"), np.dtype(self.dtype)
        if dtype.kind in "iu":  # modulo 2**64, as numpy adds
            total = (total & ((1 << 64) - 1)).astype(np.uint64).view(dtype)
        elif dtype.kind == "f":
            total = total.astype(dtype) * tiles.scale + count * tiles.offset
        return Partial(tiles.cells.groups, (count, total))

    def finish_fields(self, fields: Fields) -> Values:
        """Return the sums or the means; NaN where there are too few cells."""
        count, total = fields[:2]
        weight = fields[2] if self.weighted else count
        if not self.mean:
            return enough_cells(total, count, self.min_count)
        is_empty = weight == 0
        with np.errstate(invalid="ignore"):
            means = np.where(is_empty, np.nan, total / np.where(is_empty, 1, weight))
        return enough_cells(means, count, self.min_count)


@dataclass(frozen=True, slots=True)
class Variance(Kernel):
    """Variance or standard deviation. The sum of squares is divided by the weight minus ``ddof``."""

    root: bool = False
    ddof: int = 0
    min_count: int | None = None
    dtype: Any = np.float64

    @property
    def identities(self) -> tuple[tuple[DTypeLike, Any], ...]:
        """The fields: count, weight, mean, and sum of squared differences."""
        return (_COUNT, (self.dtype, 0), (self.dtype, 0), (self.dtype, 0))

    def partial_of(self, cells: Cells) -> Partial:
        """Return count, weight, mean and sum of squared differences of each group."""
        valid = None if cells.valid is None or cells.valid.all() else cells.valid
        values = cells.values.astype(np.float64)
        count = cells.count()
        weight, w = count.astype(np.float64), None
        if cells.weights is not None or valid is not None:
            weights = np.ones((1,) * values.ndim) if cells.weights is None else cells.weights
            w = _broadcast(weights, valid, values.shape)
            weight = cells.fold(np.add, w, np.float64)
        if valid is not None:
            values[~valid] = 0
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = cells.fold(np.add, values if w is None else values * w) / np.where(weight == 0, 1, weight)
            values -= cells.spread(mean)
            values *= values
            m2 = cells.fold(np.add, values if w is None else values * w)
        return Partial(cells.groups, (count, weight, mean, m2))

    def partial_of_tiles(self, tiles: Tiles) -> Partial:
        """Return the fields of each group, from sums and squares before unpacking."""
        count, total, squares = tiles.count, tiles.added("sum"), tiles.added("squares")
        divisor, dtype, groups = np.where(count == 0, 1, count), np.dtype(self.dtype), tiles.cells.groups
        if total.dtype.kind == "O":  # exact, as the difference of large numbers must be
            distances = squares * divisor - total * total
            if dtype.kind == "O":
                return Partial(
                    groups, (count, *map(_fractions, (count, total, distances), (1, divisor, divisor)))
                )
            mean, distances = (total / divisor).astype(dtype), distances / divisor
        else:
            mean, own = total / divisor, tiles.columns["count"]
            means = tiles.columns["sum"] / np.where(own == 0, 1, own)
            d = tiles.rows(means) - tiles.cells.spread(mean)
            distances = squares + tiles.cells.fold(np.add, tiles.used(own) * d**2)
        m2 = distances.astype(dtype) * tiles.scale**2
        mean = np.where(count == 0, 0, mean * tiles.scale + tiles.offset)
        return Partial(groups, (count, count.astype(dtype), mean, m2))

    def merge_fields(self, a: Fields, b: Fields) -> Fields:
        """Return the fields of both parts together, by the formula of the module."""
        (na, wa, ma, sa), (nb, wb, mb, sb) = a, b
        w = wa + wb
        with np.errstate(divide="ignore", invalid="ignore"):
            share = wb / np.where(w == 0, 1, w)
            d = mb - ma
            # A part without cells must not change the mean, not even an infinite one.
            mean = np.where(wb == 0, ma, np.where(wa == 0, mb, ma + d * share))
            m2 = np.where(wb == 0, sa, np.where(wa == 0, sb, sa + sb + d * d * wa * share))
        return (na + nb, w, mean, m2)

    def finish_fields(self, fields: Fields) -> Values:
        """Return the variances or standard deviations; NaN where there are too few cells."""
        count, weight, _, m2 = fields
        left = weight - self.ddof
        with np.errstate(invalid="ignore"):
            variance = np.where(left <= 0, np.nan, m2 / np.where(left <= 0, 1, left)).astype(np.float64)
            return enough_cells(np.sqrt(variance) if self.root else variance, count, self.min_count)


@dataclass(frozen=True, slots=True)
class Extreme(Kernel):
    """The smallest or largest cell, or of truth values: whether all cells, or any, are not zero.

    If NaN is not skipped, the result of a group with NaN is NaN. NaN counts as not zero.
    """

    dtype: Any
    largest: bool = False
    min_count: int | None = None
    are_truths: bool = False

    @property
    def identities(self) -> tuple[tuple[DTypeLike, Any], ...]:
        """The fields: count, and the worst value of the type."""
        return (_COUNT, (self.dtype, self._identity(np.dtype(self.dtype))))

    def _identity(self, dtype: np.dtype[Any]) -> Any:
        if dtype.kind in "fO":
            return -np.inf if self.largest else np.inf
        if dtype.kind == "b":
            return not self.largest
        return np.iinfo(dtype).min if self.largest else np.iinfo(dtype).max

    @property
    def merge(self) -> np.ufunc:
        """The function that returns the better of two values."""
        return np.maximum if self.largest else np.minimum

    def partial_of(self, cells: Cells) -> Partial:
        """Return count and extreme value of each group."""
        values = cells.values
        if self.are_truths:
            values = values != 0
        elif cells.valid is not None and not cells.valid.all():
            values = np.where(cells.valid, values, values.dtype.type(self._identity(values.dtype)))
        values = cells.fold(self.merge, values).astype(self.dtype, copy=False)
        return Partial(cells.groups, (cells.count(), values))

    def is_open(self, columns: Mapping[str, Values]) -> Mask:
        """Return which tiles may have a zero between their extremes, if the kernel asks for one."""
        asks = self.are_truths and not self.largest
        return np.asarray((columns["low"] < 0) & (columns["high"] > 0) & asks)

    def partial_of_tiles(self, tiles: Tiles) -> Partial:
        """Return count and extreme value of each group."""
        columns = tiles.columns
        low, high, has_values = columns["low"], columns["high"], columns["count"] > 0
        identity = self._identity(np.dtype(np.bool_ if self.are_truths else low.dtype))
        if not self.are_truths:
            column = np.where(has_values, high if self.largest else low, low.dtype.type(identity))
        elif self.largest:
            column = (columns["gaps"] > 0) | (has_values & ((low != 0) | (high != 0)))
        else:
            column = ~has_values | (low > 0) | (high < 0)
        values = tiles.cells.fold(self.merge, tiles.used(column, column.dtype.type(identity)))
        return Partial(tiles.cells.groups, (tiles.count, values.astype(self.dtype)))

    def finish_fields(self, fields: Fields) -> Values:
        """Return the extreme values; NaN where there are too few cells."""
        least = 0 if self.are_truths else max(1, self.min_count or 1)
        values = fields[1]
        if values.dtype.kind == "f":  # which of two zeros is smaller depends on their order
            values = values + values.dtype.type(0)
        return enough_cells(values, fields[0], least)


@dataclass(frozen=True, slots=True)
class FirstLast(Kernel):
    """The first or last valid cell."""

    dtype: Any
    last: bool = False

    @property
    def identities(self) -> tuple[tuple[DTypeLike, Any], ...]:
        """The fields: count, position and value."""
        no_position = -1 if self.last else np.iinfo(np.int64).max
        return (_COUNT, (np.int64, no_position), (self.dtype, 0))

    @property
    def merge(self) -> np.ufunc:
        """The function that returns the better of two positions."""
        return np.maximum if self.last else np.minimum

    def partial_of(self, cells: Cells) -> Partial:
        """Return count, position and value of the first or last valid cell of each group."""
        count, values = cells.count(), cells.values
        positions = np.arange(len(values)) if cells.positions is None else cells.positions
        rows = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
        no_position = self.identities[1][1]
        no_row = -1 if self.last else len(values)
        valid_rows = _broadcast(rows, cells.valid, values.shape, no_row)
        at = cells.fold(self.merge, valid_rows)
        inside = (at >= 0) & (at < len(values))
        at = np.where(inside, at, 0)
        return Partial(
            cells.groups,
            (count, np.where(inside, positions[at], no_position), np.take_along_axis(values, at, axis=0)),
        )

    def merge_fields(self, a: Fields, b: Fields) -> Fields:
        """Return the sums of both counts, and the earlier or later of both cells."""
        better = b[1] > a[1] if self.last else b[1] < a[1]
        return (a[0] + b[0], self.merge(a[1], b[1]), np.where(better, b[2], a[2]))

    def finish_fields(self, fields: Fields) -> Values:
        """Return the values; NaN where there are too few cells."""
        return enough_cells(fields[2], fields[0], 1)


def _broadcast(values: Values, valid: Mask | None, shape: tuple[int, ...], other: Any = 0) -> Values:
    """Return ``values`` in another shape, with ``other`` for cells that are not valid."""
    out = np.broadcast_to(values, shape)
    return out if valid is None else np.where(valid, out, other)


def accumulator(dtype: np.dtype[Any], weighted: bool = False) -> np.dtype[Any]:
    """Return the type in which a sum is added: float64, int64 or uint64; numbers of Python for ``object``."""
    if dtype.kind == "O":
        return dtype
    if dtype.kind == "f" or weighted:
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic.

    Attributes:
        kernel: The kernel for cells of a data type, whether they have weights, ``ddof`` and ``min_count``.
        dtype: The data type of the result, of that of the cells and whether they have weights.
        takes_weights: Whether cells can have weights.
        needs_cells: Whether a group without a cell has no value.
        has_units: Whether the result is a value, or a square of values. Counts and truths have no units, and
            no ``min_count``.
        is_composable: Whether the statistic of statistics of parts is a statistic of the whole.
        kinds: The kinds of other data types than real numbers that have the statistic in xarray.
    """

    kernel: Callable[[np.dtype[Any], bool, int, int | None], Kernel]
    dtype: Callable[[np.dtype[Any], bool], np.dtype[Any]]
    takes_weights: bool = False
    needs_cells: bool = True
    has_units: bool = True
    is_composable: bool = True
    kinds: str = ""


def _variance(root: bool) -> Statistic:
    return Statistic(
        lambda dtype, w, ddof, least: Variance(root, ddof, least, accumulator(dtype, True)),
        _float,
        takes_weights=True,
        is_composable=False,
        kinds="c",
    )


def _float(dtype: np.dtype[Any], weighted: bool) -> np.dtype[Any]:
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _same(dtype: np.dtype[Any], weighted: bool) -> np.dtype[Any]:
    return dtype


def _truth(dtype: np.dtype[Any], weighted: bool) -> np.dtype[Any]:
    return np.dtype(np.bool_)


#: All statistics with a kernel. ``quantile`` and ``median`` have their own: see `frazil.pipeline.quantile`.
STATISTICS: Final[dict[str, Statistic]] = {
    "count": Statistic(
        lambda *_: Count(),
        lambda *_: np.dtype(np.int64),
        takes_weights=True,
        has_units=False,
        is_composable=False,
        kinds="cMm",
    ),
    "sum": Statistic(
        lambda dtype, w, ddof, least: Sum(accumulator(dtype, w), False, least, w),
        lambda dtype, weighted: dtype if dtype.kind == "f" else accumulator(dtype, weighted),
        takes_weights=True,
        needs_cells=False,
        kinds="cm",
    ),
    "mean": Statistic(
        lambda dtype, w, ddof, least: Sum(accumulator(dtype, True), True, least, w),
        _float,
        takes_weights=True,
        kinds="cMm",
    ),
    "var": _variance(root=False),
    "std": _variance(root=True),
    "min": Statistic(lambda dtype, w, ddof, least: Extreme(dtype, False, least), _same, kinds="cMm"),
    "max": Statistic(lambda dtype, w, ddof, least: Extreme(dtype, True, least), _same, kinds="cMm"),
    "any": Statistic(lambda *_: Extreme(np.dtype("?"), True, None, True), _truth, has_units=False, kinds="c"),
    "all": Statistic(
        lambda *_: Extreme(np.dtype("?"), False, None, True), _truth, has_units=False, kinds="c"
    ),
    "first": Statistic(lambda dtype, w, ddof, least: FirstLast(dtype, False), _same),
    "last": Statistic(lambda dtype, w, ddof, least: FirstLast(dtype, True), _same),
}
WEIGHTED: Final = tuple(name for name, row in STATISTICS.items() if row.takes_weights)
