"""Partial results from the statistics of whole chunks: a task reads only the other chunks of its item.

A chunk counts if the result retains no axis along which it has several elements, and if all its elements
belong to one group, or to none. So a mean of everything, of each step of chunks of one step, or of months at
whose ends chunks end, reads no chunk with statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.answers.kernels import Cells, Count, Extreme, Fields, Kernel, Partial, Sum, Variance
from frazil.answers.tiles import Box
from frazil.pipeline.reductions.known_chunks import KnownChunks, Mask, known_chunks
from frazil.pipeline.reductions.plan import Item, Reduction
from frazil.repository.session.session import Session

type Block = tuple[NDArray[np.int64], NDArray[np.int64]]

_DIGIT: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class KnownPart:
    """What statistics say about an item: a partial result for each measure, and the blocks left to read."""

    partials: tuple[Partial, ...]
    unread: tuple[tuple[Item, Block], ...]


def known_part(
    session: Session, reduction: Reduction, item: Item, blocks: Iterable[Block]
) -> KnownPart | None:
    """Return what statistics say about an item that is read in ``blocks``, or None if they say nothing."""
    kernels = [measure.kernel for measure in reduction.measures]
    if reduction.weights is not None or not all(type(kernel) in _FIELDS for kernel in kernels):
        return None
    spans = dict(zip(reduction.over, zip(item.over_start, item.over_stop, strict=True), strict=True))
    spans |= zip(reduction.retained, zip(item.retained_start, item.retained_stop, strict=True), strict=True)
    chunks = known_chunks(
        session, reduction.field, [spans[axis] for axis in range(len(spans))], skipna=reduction.skipna
    )
    if chunks is None:
        return None
    if any((np.subtract(*reversed(chunks.bounds[axis])) != 1).any() for axis in reduction.retained):
        return None
    order = (*reduction.over, *reduction.retained)
    low, high = (codes.transpose(order) for codes in _codes(reduction, item, chunks))
    is_known = chunks.is_known & _are_decided(chunks, kernels)
    is_unread = ~is_known
    turned = is_unread.transpose(order)  # a view
    turned |= low != high
    turned &= high >= 0
    if is_unread.all():
        return None
    unread = [
        _unread(reduction, item, box)
        for start, stop in blocks
        for box in chunks.boxes_to_read(is_unread, _region(reduction, spans, start, stop))
    ]
    is_used = is_known & ~is_unread
    rows = math.prod(is_used.shape[axis] for axis in reduction.over)
    codes = np.broadcast_to(low, turned.shape).reshape(rows, -1)[:, 0] if rows else np.zeros(0, np.int64)
    folded = _Folded.of(chunks, is_used, codes, order, len(reduction.over))
    partials = tuple(Partial(folded.cells.groups, _FIELDS[type(each)](each, folded)) for each in kernels)
    return KnownPart(partials, tuple(unread))


def known_moments(chunks: KnownChunks, is_used: Mask) -> Partial:
    """Return the count, the mean and the variance of the values of some chunks, as one group."""
    codes, order = np.zeros(is_used.size, np.int64), tuple(range(is_used.ndim))
    folded = _Folded.of(chunks, is_used, codes, order, is_used.ndim)
    return Partial(folded.cells.groups, _variance(None, folded))


def _codes(reduction: Reduction, item: Item, chunks: KnownChunks) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the smallest and the largest group in each chunk, with all axes. Other items' groups are -1."""
    ndim, grouping = len(chunks.bounds), reduction.grouping
    if grouping is None:
        zero = np.zeros((1,) * ndim, np.int64)
        return zero, zero
    axes = reduction.label_axes
    bounds = [chunks.bounds[axis] for axis in axes]
    codes = grouping.codes[tuple(slice(int(starts[0]), int(ends[-1])) for starts, ends in bounds)]
    low = high = np.where((codes >= item.groups[0]) & (codes < item.groups[1]), codes, -1)
    for axis, (starts, _) in enumerate(bounds):
        low = np.minimum.reduceat(low, starts - starts[0], axis=axis)
        high = np.maximum.reduceat(high, starts - starts[0], axis=axis)
    turn = sorted(range(len(axes)), key=axes.__getitem__)
    shape = [len(chunks.bounds[axis][0]) if axis in axes else 1 for axis in range(ndim)]
    return low.transpose(turn).reshape(shape), high.transpose(turn).reshape(shape)


def _are_decided(chunks: KnownChunks, kernels: Iterable[Kernel]) -> Mask:
    """Return the chunks whose extremes say whether all values are not zero, if a kernel asks this."""
    asks = any(isinstance(each, Extreme) and each.are_truths and not each.largest for each in kernels)
    is_open = np.asarray((chunks.low < 0) & (chunks.high > 0))
    return ~is_open if asks else np.ones_like(is_open)


def _region(
    reduction: Reduction, spans: Mapping[int, tuple[int, int]], start: NDArray[Any], stop: NDArray[Any]
) -> list[tuple[int, int]]:
    region = {
        **spans,
        **dict(zip(reduction.over, zip(start.tolist(), stop.tolist(), strict=True), strict=True)),
    }
    return [region[axis] for axis in range(len(region))]


def _unread(reduction: Reduction, item: Item, box: Box) -> tuple[Item, Block]:
    """Return an item with the part of its retained axes that a box has, and the reduced axes of the box."""
    (low, high), corners = (
        [tuple(box[axis][end] for axis in axes) for end in (0, 1)]
        for axes in (reduction.retained, reduction.over)
    )
    first, end = (np.array(corner, np.int64) for corner in corners)
    return replace(item, retained_start=low, retained_stop=high), (first, end)


@dataclass(frozen=True, slots=True, eq=False)
class _Folded:
    """Chunks as rows that are ordered by group, as `Cells` are: (chunks, *retained), with their statistics.

    A chunk that is not used has the count 0.
    """

    chunks: KnownChunks
    cells: Cells
    rows: Callable[[NDArray[Any]], NDArray[Any]]

    @staticmethod
    def of(
        chunks: KnownChunks, is_used: Mask, codes: NDArray[Any], order: tuple[int, ...], over: int
    ) -> _Folded:
        """Return chunks in the order of their groups. ``over`` is the number of reduced axes in ``order``."""
        retained = tuple(is_used.shape[axis] for axis in order[over:])
        used_rows = is_used.transpose(order).reshape(len(codes), -1).any(axis=1)
        ranked = np.argsort(codes, kind="stable")
        ranked = ranked[used_rows[ranked] & (codes[ranked] >= 0)]

        def rows(column: NDArray[Any]) -> NDArray[Any]:
            more = tuple(range(len(order), column.ndim))
            turned = column.transpose(*order, *more)
            return turned.reshape(len(codes), *retained, *(column.shape[axis] for axis in more))[ranked]

        groups, starts = np.unique(codes[ranked], return_index=True)
        cells = Cells(rows(is_used), groups.astype(np.int64), starts.astype(np.int64))
        return _Folded(chunks, cells, rows)

    def used(self, column: NDArray[Any], identity: Any = 0) -> NDArray[Any]:
        """Return the rows of a column, with ``identity`` for chunks that are not used."""
        rows, is_used = self.rows(column), self.cells.values
        return np.where(is_used.reshape(*is_used.shape, *[1] * (rows.ndim - is_used.ndim)), rows, identity)

    def added(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of a column in each group. Digits become integers of Python."""
        total = self.cells.fold(np.add, self.used(column))
        if total.ndim == self.cells.values.ndim:
            return total
        powers = np.array([1 << _DIGIT * place for place in range(total.shape[-1])], object)
        return np.asarray(total.astype(object) @ powers)

    def count(self) -> NDArray[Any]:
        """Return the number of values in each group."""
        return self.added(self.chunks.count)


def _count(kernel: Any, folded: _Folded) -> Fields:
    return (folded.count(),)


def _sum(kernel: Any, folded: _Folded) -> Fields:
    count, total = folded.count(), folded.added(folded.chunks.sum)
    dtype = np.dtype(kernel.dtype)
    if dtype.kind != "f":  # modulo 2**64, as numpy adds
        return count, (total & ((1 << 64) - 1)).astype(np.uint64).view(dtype)
    values = total.astype(np.float64) * folded.chunks.scale + count * folded.chunks.offset
    return count, values.astype(dtype)


def _variance(kernel: Any, folded: _Folded) -> Fields:
    chunks, count = folded.chunks, folded.count()
    total, squares = folded.added(chunks.sum), folded.added(chunks.squares)
    divisor = np.where(count == 0, 1, count)
    mean = (total / divisor).astype(np.float64)
    if total.dtype == object:  # exact, as the difference of large numbers must be
        distances = (squares * divisor - total * total) / divisor
    else:
        own = chunks.sum / np.where(chunks.count == 0, 1, chunks.count)
        distance = folded.rows(own) - folded.cells.spread(mean)
        distances = squares + folded.cells.fold(np.add, folded.used(chunks.count) * distance**2)
    unpacked = mean * chunks.scale + chunks.offset
    m2 = distances.astype(np.float64) * chunks.scale**2
    return count, count.astype(np.float64), np.where(count == 0, 0, unpacked), m2


def _extreme(kernel: Any, folded: _Folded) -> Fields:
    chunks = folded.chunks
    identity = kernel.identities[1][1]
    if not kernel.are_truths:
        column = np.where(chunks.count > 0, chunks.high if kernel.largest else chunks.low, identity)
    elif kernel.largest:  # NaN is not zero
        column = (chunks.nan > 0) | (chunks.low != 0) | (chunks.high != 0)
    else:
        column = (chunks.count == 0) | (chunks.low > 0) | (chunks.high < 0)
    values = folded.used(column, identity).astype(kernel.dtype)
    return folded.count(), folded.cells.fold(kernel.merge, values)


#: The fields of a partial result from statistics, for the kernels that can have them.
_FIELDS: Final[Mapping[type, Callable[[Any, _Folded], Fields]]] = {
    Count: _count,
    Sum: _sum,
    Variance: _variance,
    Extreme: _extreme,
}
