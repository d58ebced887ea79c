"""numpy's indexing: what an index selects from an array of a shape.

An index without arrays is a *box*: a slice with a positive step for each dimension. An index with arrays is a
set of *points*: coordinates that broadcast to the shape of the result, as numpy defines it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import InvalidIndexError
from frazil.format.columns import I64

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
            dimensions with negative steps, and adds the dimensions of ``None``. With an ellipsis, a single
            element stays an array.
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
    lengths = iter(shape)
    coordinates: list[I64] = []
    result = [1] * ndim
    for item, axis in zip(items, axes, strict=True):
        if item is None:
            continue
        values = _elements(item, next(lengths))
        if axis >= 0:
            result[axis] = len(values)
        coordinates.append(values.reshape([-1 if each == axis else 1 for each in range(ndim)]))
    return PointSelection(tuple(coordinates), tuple(result), end)


def _normalized(index: Any, shape: tuple[int, ...]) -> tuple[list[_Item], tuple[Any, ...]]:
    """Return an item for each dimension, with the items that are None, and the ellipsis if there is one."""
    items = list(index) if isinstance(index, tuple) else [index]
    items = [_item(each) for each in items]
    used = sum(_rank(each) for each in items)
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
            normalized += _of_mask(item, shape[axis : axis + item.ndim])
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


def _of_mask(mask: NDArray[np.bool_], shape: tuple[int, ...]) -> list[_Item]:
    if mask.shape != shape:
        raise InvalidIndexError(f"a boolean array must have the shape {shape}, got {mask.shape}")
    return list(mask.nonzero())


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
    result = [1] * ndim
    result[begin : begin + len(block)] = block
    coordinates: list[I64] = []
    axes, lengths = iter(free), iter(shape)
    for item in items:
        if item is None:
            next(axes)
        elif isinstance(item, slice):
            axis = next(axes)
            values = _elements(item, next(lengths))
            result[axis] = len(values)
            coordinates.append(values.reshape([-1 if each == axis else 1 for each in range(ndim)]))
        else:
            next(lengths)
            array = np.asarray(item, np.int64)
            after = ndim - begin - len(block)
            lead = (1,) * (begin + len(block) - array.ndim)
            coordinates.append(array.reshape(lead + array.shape + (1,) * after))
    return tuple(coordinates), tuple(result)
