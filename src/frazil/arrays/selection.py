"""What an index selects from an array: the elements, as numpy defines it, and their pieces by chunk.

An index without arrays is a *box*: a slice with a positive step for each dimension. An index with arrays is a
set of *points*: coordinates that broadcast to the shape of the result. The chunks of a slice fall into few
*classes*, from which the same elements are taken, at most three for a step of 1. So a box has few *regions*,
selections in a chunk: all pieces of a region are decoded in one call.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from frazil.errors import InvalidIndexError
from frazil.format.columns import I64, U32

if TYPE_CHECKING:
    from frazil.arrays.encoding import Encoding


@dataclass(frozen=True, slots=True, eq=False)
class AxisChunks:
    """The chunks of one dimension that a selection touches, in ascending order.

    For each chunk: its number, the first selected element in it, their count (at least 1), the position of
    the first in the result, and the length of the chunk. ``step`` is the distance of selected elements.
    """

    number: I64
    first: I64
    count: I64
    target: I64
    length: I64
    step: int

    def classes(self) -> tuple[I64, I64]:
        """Return the class of each chunk, and a chunk (its row) for each class: equal in three columns."""
        columns = (self.first, self.count, self.length)
        k = len(self.number)
        if k == 1:
            return np.zeros(1, np.int64), np.zeros(1, np.int64)
        if not all((column[1 : k - 1] == column[1]).all() for column in columns):
            stacked = np.stack(columns, axis=1)
            _, rows, class_ = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
            return class_.reshape(-1), rows
        # The usual case, without a sort: the first, the middle and the last chunks.
        rows = np.unique([0, 1, k - 1])
        class_ = np.ones(k, np.int64)
        class_[0], class_[-1] = 0, len(rows) - 1
        values = [tuple([int(column[row]) for column in columns]) for row in rows.tolist()]
        distinct = list(dict.fromkeys(values))
        if len(distinct) == len(values):
            return class_, rows
        renumbered = np.array([distinct.index(value) for value in values])
        return renumbered[class_], rows[[values.index(value) for value in distinct]]


def chunks_of_slice(start: int, count: int, step: int, length: int | I64) -> AxisChunks:
    """Return the chunks of the elements ``start``, ``start + step``, ... (``count`` elements, at least 1)."""
    last = start + (count - 1) * step
    number = chunk_numbers(np.array([start, last]), length)
    if number[1] - number[0] < count:
        numbers = np.arange(number[0], number[1] + 1)
    else:  # more chunks than elements
        numbers = np.unique(chunk_numbers(start + step * np.arange(count), length))
    low, high = chunk_bounds(numbers, length)
    target = np.maximum(0, -((start - low) // step))
    end = np.minimum(count, -((start - high) // step))
    is_touched = end > target
    if not is_touched.all():
        numbers, low, high, target, end = (c[is_touched] for c in (numbers, low, high, target, end))
    return AxisChunks(numbers, start + target * step - low, end - target, target, high - low, step)


def chunk_numbers(elements: I64, length: int | I64) -> I64:
    """Return the number of the chunk of each element."""
    if isinstance(length, int):
        return elements // length
    return np.searchsorted(length, elements, "right") - 1


def chunk_bounds(numbers: I64, length: int | I64) -> tuple[I64, I64]:
    """Return the first element of each chunk, and the element after its last one."""
    if isinstance(length, int):
        low = numbers * length
        return low, low + length
    return length[numbers], length[numbers + 1]


#: One item of a normalized index.
type _Item = int | slice | NDArray[Any] | None


@dataclass(frozen=True, slots=True)
class AxisSlice:
    """A selection of one dimension: ``count`` elements from ``start``, with a positive step."""

    start: int
    count: int
    step: int

    def as_slice(self) -> slice:
        """Return the slice."""
        last = self.start + (self.count - 1) * self.step
        return slice(self.start, last + 1 if self.count else self.start, self.step)


@dataclass(frozen=True, slots=True)
class BoxSelection:
    """A selection without arrays.

    Attributes:
        slices: A slice for each dimension of the array.
        view: The index of the box that gives the result: it removes the dimensions of integers, reverses
            those with negative steps, and adds those of ``None``. With an ellipsis, one element is an array.
    """

    slices: tuple[AxisSlice, ...]
    view: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PointSelection:
    """A selection with arrays.

    Attributes:
        coordinates: The coordinates along each dimension of the array, int64. They broadcast to ``shape``.
        shape: The shape of the result.
        view: The index of the points that gives the result: it makes a single element a scalar.
    """

    coordinates: tuple[I64, ...]
    shape: tuple[int, ...]
    view: tuple[Any, ...]


def selection_of(index: Any, shape: tuple[int, ...]) -> BoxSelection | PointSelection:
    """Return what an index of numpy selects."""
    items, end = _normalized(index, shape)
    if any(isinstance(item, np.ndarray) for item in items):
        return PointSelection(*_points(items, shape), end)
    slices: list[AxisSlice] = []
    view: list[Any] = []
    for item in items:
        if item is None:
            view.append(None)
        elif isinstance(item, slice):
            taken = _axis_slice(item, shape[len(slices)])
            slices.append(taken[0])
            view.append(slice(None, None, -1) if taken[1] else slice(None))
        else:
            slices.append(AxisSlice(int(item), 1, 1))
            view.append(0)
    return BoxSelection(tuple(slices), (*view, *end))


def outer_selection(index: Any, shape: tuple[int, ...]) -> BoxSelection | PointSelection:
    """Return what an index selects if each array stands for its own dimension, as in ``numpy.ix_``."""
    items, end = _normalized(index, shape)
    arrays = [item for item in items if isinstance(item, np.ndarray)]
    if any(item.ndim != 1 for item in arrays):
        raise InvalidIndexError(
            "an array of an outer index must have one dimension, got more. Use numpy.ravel"
        )
    if len(arrays) < 2 and not any(isinstance(item, int) for item in items):
        return selection_of(index, shape)
    is_axis = [not isinstance(item, int) for item in items]
    axes = [sum(is_axis[:number]) if each else -1 for number, each in enumerate(is_axis)]
    ndim = sum(is_axis)
    selecting = [(item, axis) for item, axis in zip(items, axes, strict=True) if item is not None]
    coordinates = tuple(
        _elements(item, length).reshape([-1 if each == axis else 1 for each in range(ndim)])
        for (item, axis), length in zip(selecting, shape, strict=True)
    )
    return PointSelection(coordinates, _common_shape(coordinates, ndim), end)


def _normalized(index: Any, shape: tuple[int, ...]) -> tuple[list[_Item], tuple[Any, ...]]:
    """Return an item for each dimension, with the items that are None, and the ellipsis if there is one."""
    items = list(index) if isinstance(index, tuple) else [index]
    items = [_item(each) for each in items]
    used = sum([_rank(each) for each in items])
    if used > len(shape):
        raise InvalidIndexError(
            f"an index of {len(shape)} dimensions must have at most as many items, got {used}"
        )
    ellipses = [number for number, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise InvalidIndexError("an index must have at most one ellipsis (...), got more")
    at = ellipses[0] if ellipses else len(items)
    items[at : at + 1] = [slice(None)] * (len(shape) - used)
    normalized: list[_Item] = []
    axis = 0
    for item in items:
        if isinstance(item, np.ndarray) and item.dtype == bool:
            if item.shape != shape[axis : axis + item.ndim]:
                expected = shape[axis : axis + item.ndim]
                raise InvalidIndexError(f"a boolean array must have the shape {expected}, got {item.shape}")
            normalized += item.nonzero()
        elif isinstance(item, np.ndarray | int):
            normalized.append(_inside(item, shape[axis], axis))
        else:
            normalized.append(item)
        axis += _rank(item)
    return normalized, (Ellipsis,) if ellipses else ()


def _item(item: Any) -> _Item | EllipsisType:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if not isinstance(item, bool | np.bool_):
        try:
            return operator.index(item)
        except TypeError:
            pass
    array = np.asarray(item)
    if array.dtype == bool and not array.ndim:
        raise InvalidIndexError(f"an index must have boolean arrays of one or more dimensions, got {item!r}")
    if not array.size and array.dtype == np.float64 and not isinstance(item, np.ndarray):
        array = array.astype(np.int64)  # an empty list
    if array.dtype.kind not in "iub":
        raise InvalidIndexError(
            f"an index must have integers, slices, integer or boolean arrays, ... and None, got {item!r:.100}"
        )
    return array


def _rank(item: _Item | EllipsisType) -> int:
    """Return the number of dimensions that an item selects from."""
    if isinstance(item, np.ndarray) and item.dtype == bool:
        return item.ndim
    return 0 if item is None or item is Ellipsis else 1


def _inside(item: NDArray[Any] | int, length: int, axis: int) -> NDArray[Any] | int:
    """Return integers of a dimension, counted from its begin. Raise an error for integers outside."""
    low, high = (item, item) if isinstance(item, int) else (item.min(initial=0), item.max(initial=-1))
    if low < -length or high >= length:
        wrong = low if low < -length else high
        raise InvalidIndexError(
            f"an index of dimension {axis} must be from {-length} to {length - 1}, got {wrong}"
        )
    if isinstance(item, int):
        return item + length if item < 0 else item
    array = item.astype(np.int64)
    return np.where(array < 0, array + length, array) if low < 0 else array


def _axis_slice(item: slice, length: int) -> tuple[AxisSlice, bool]:
    """Return the elements of a slice in ascending order, and whether the result is reversed."""
    try:
        start, stop, step = item.indices(length)
    except (TypeError, ValueError) as error:
        raise InvalidIndexError(
            f"a slice must have integers and a step other than 0, got {item!r:.100}"
        ) from error
    count = len(range(start, stop, step))
    if step > 0:
        return AxisSlice(start, count, step), False
    return AxisSlice(start + (count - 1) * step if count else 0, count, -step), True


def _elements(item: _Item, length: int) -> I64:
    if isinstance(item, slice):
        _axis_slice(item, length)  # raises the error of an invalid slice
        return np.arange(*item.indices(length))
    return np.atleast_1d(np.asarray(item, np.int64))


def _points(items: Sequence[_Item], shape: tuple[int, ...]) -> tuple[tuple[I64, ...], tuple[int, ...]]:
    """Return the coordinates and the shape of an index with arrays, with the dimensions in numpy's order."""
    advanced = [number for number, item in enumerate(items) if isinstance(item, np.ndarray | int)]
    try:
        block = np.broadcast_shapes(*(np.asarray(items[number]).shape for number in advanced))
    except ValueError as error:
        raise InvalidIndexError(f"the arrays of an index must have shapes that broadcast: {error}") from error
    is_adjacent = advanced[-1] - advanced[0] + 1 == len(advanced)
    begin = advanced[0] if is_adjacent else 0
    others = len(items) - len(advanced)
    ndim = others + len(block)
    free = [axis for axis in range(ndim) if not begin <= axis < begin + len(block)]
    coordinates: list[I64] = []
    axes, lengths = iter(free), iter(shape)
    for item in items:
        if item is None:
            next(axes)
        elif isinstance(item, slice):
            axis = next(axes)
            values = _elements(item, next(lengths))
            coordinates.append(values.reshape([-1 if each == axis else 1 for each in range(ndim)]))
        else:
            next(lengths)
            array = np.asarray(item, np.int64)
            after = ndim - begin - len(block)
            lead = (1,) * (begin + len(block) - array.ndim)
            coordinates.append(array.reshape(lead + array.shape + (1,) * after))
    return tuple(coordinates), _common_shape(coordinates, ndim)


def _common_shape(coordinates: Sequence[I64], ndim: int) -> tuple[int, ...]:
    """Return the shape to which coordinates broadcast. A dimension of ``None`` has the length 1."""
    return np.broadcast_shapes((1,) * ndim, *(each.shape for each in coordinates))


@dataclass(frozen=True, slots=True)
class Region:
    """The selected elements of a chunk of a shape: slices, and their counts."""

    shape: tuple[int, ...]
    slices: tuple[slice, ...]
    counts: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the region is the chunk."""
        return self.shape == self.counts

    @property
    def is_dense(self) -> bool:
        """Whether the elements of the region follow each other in the chunk."""
        first, last = self.elements()
        return last - first == prod(self.counts)

    def elements(self) -> tuple[int, int]:
        """Return the first element of the region in the chunk, in C order, and the element after the last."""
        first = last = 0
        for length, each in zip(self.shape, self.slices, strict=True):
            first = first * length + each.start
            last = last * length + each.stop - 1
        return first, last + 1


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The pieces of a selection, m rows.

    ``index`` and ``target``, of shape (m, ndim), are the coordinates of the chunks and the first elements in
    the result. ``region`` has the number of the region of each piece.
    """

    index: U32
    target: I64
    region: I64
    regions: tuple[Region, ...]


def pieces_of_axes(axes: Sequence[AxisChunks]) -> Pieces:
    """Return the pieces of the box that the selections of all dimensions span. A scalar has one piece."""
    shape = tuple(len(axis.number) for axis in axes)
    m, ndim = prod(shape), len(axes)
    index, target = np.empty((m, ndim), np.uint32), np.empty((m, ndim), np.int64)
    region = np.zeros(shape, np.int64)
    regions = [Region((), (), ())]
    for d, axis in enumerate(axes):
        across = tuple(-1 if e == d else 1 for e in range(ndim))
        index.reshape(*shape, ndim)[..., d] = axis.number.reshape(across)
        target.reshape(*shape, ndim)[..., d] = axis.target.reshape(across)
        class_, rows = axis.classes()
        region *= len(rows)
        region += class_.reshape(across)
        columns = (axis.length[rows], axis.first[rows], axis.count[rows])
        classes = list(zip(*[column.tolist() for column in columns], strict=True))
        regions = [
            Region(
                (*each.shape, length),
                (*each.slices, slice(first, first + (count - 1) * axis.step + 1, axis.step)),
                (*each.counts, count),
            )
            for each in regions
            for length, first, count in classes
        ]
    return Pieces(index, target, region.reshape(m), tuple(regions))


def place_pieces(out: NDArray[Any], target: I64, counts: tuple[int, ...], values: NDArray[Any]) -> None:
    """Copy pieces of one shape to their places in the result."""
    if not counts:
        out[...] = values.reshape(())
        return
    if len(target) == 1:
        spot = tuple([slice(a, a + n) for a, n in zip(target[0].tolist(), counts, strict=True)])
        out[spot] = values[0] if values.ndim else values
        return
    low = target.min(axis=0)
    distance = target - low
    spacing = np.gcd.reduce(distance, axis=0)
    spacing[spacing == 0] = 1
    place = distance // spacing
    tiles = tuple((place.max(axis=0) + 1).tolist())
    ends = (low + distance.max(axis=0) + np.array(counts)).tolist()
    corner = out[tuple(map(slice, low.tolist(), ends))]
    strides = tuple([s * n for s, n in zip(corner.strides, spacing.tolist(), strict=True)]) + corner.strides
    grid = as_strided(corner, tiles + counts, strides)
    is_full = len(target) == prod(tiles)
    if is_full and (np.ravel_multi_index(tuple(place.T), tiles) == np.arange(len(target))).all():
        grid[...] = values.reshape(tiles + counts) if values.ndim else values
    else:
        grid[tuple(place.T)] = values


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """n points in m chunks.

    ``index`` and ``size`` are the coordinates and the number of elements of the chunks. ``chunk`` and
    ``element`` are the row of the chunk of each point, and its position in the decoded chunk.
    """

    index: U32
    size: I64
    chunk: I64
    element: I64


def points_of(encoding: Encoding, coordinates: tuple[I64, ...]) -> Points:
    """Return the chunks and places of points."""
    numbers = [
        chunk_numbers(each, length) for each, length in zip(coordinates, encoding.lengths, strict=True)
    ]
    num_chunks = [
        -(-n // each) if isinstance(each, int) else len(each) - 1
        for n, each in zip(encoding.shape, encoding.lengths, strict=True)
    ]
    if prod(num_chunks) < 1 << 62:
        key = numbers[0]
        for each, count in zip(numbers[1:], num_chunks[1:], strict=True):
            key = key * count + each
        _, first, chunk = np.unique(key, return_index=True, return_inverse=True)
        index = np.stack([each[first] for each in numbers], axis=1)
    else:
        index, first, chunk = np.unique(
            np.stack(numbers, axis=1), axis=0, return_index=True, return_inverse=True
        )
    element = np.zeros(len(chunk), np.int64)
    size = np.ones(len(index), np.int64)
    for axis in encoding.order:
        low, high = chunk_bounds(index[:, axis], encoding.lengths[axis])
        length = high - low
        element = element * (length[0] if isinstance(encoding.lengths[axis], int) else length[chunk])
        element += coordinates[axis] - low[chunk]
        size = size * length
    return Points(index.astype(np.uint32), size, chunk.reshape(-1), element)
