"""The assignment of values to a selection of an array, as numpy defines it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr

from frazil.arrays.box_writing import BoxWriting
from frazil.arrays.encoding import encoding_of
from frazil.arrays.selection import BoxSelection, PointSelection
from frazil.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.format.columns import I64
    from frazil.repository.session.session import Session

#: The most points that are written together: each needs about 100 bytes of memory.
_MOST_POINTS: Final = 1 << 21


def assign(
    session: Session, path: str, document: bytes, selection: BoxSelection | PointSelection, value: Any
) -> None:
    """Write values to the selected elements."""
    session.require_writable()
    encoding = encoding_of(document)
    dtype = np.dtype(_zarr_array(session, path).dtype) if encoding is None else encoding.dtype
    values = _array_of(value, dtype)
    if isinstance(selection, PointSelection):
        _assign_points(session, path, selection, _broadcast(values, selection.shape))
        return
    box = box_values(values, selection)
    if not box.size:
        return
    writes_fill = bool(zarr.config.get("array.write_empty_chunks"))
    if encoding is not None:
        writing = BoxWriting(session.workspace, path, encoding, writes_fill=writes_fill)
        if writing.run(selection.slices, box):
            return
    # zarr converts all values at once, and takes no values of another shape.
    slices = tuple(each.as_slice() for each in selection.slices)
    _zarr_array(session, path).set_basic_selection(slices, box)


def box_values(values: NDArray[Any], selection: BoxSelection) -> NDArray[Any]:
    """Return the values of a box, with all its dimensions and in ascending order, without a copy."""
    counts = tuple(each.count for each in selection.slices)
    shape = np.broadcast_to(np.zeros((), np.bool_), counts)[selection.view].shape
    box = _broadcast(values, shape)
    axis = 0
    for item in selection.view:
        if item is Ellipsis:
            continue
        # None stands for a dimension of length 1 that the box does not have, and an integer for the opposite.
        inverse: Any = 0 if item is None else item if isinstance(item, slice) else None
        spot: tuple[Any, ...] = (*[slice(None)] * axis, inverse, ...)
        box = box[spot]
        axis += item is not None
    return box


def _array_of(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a value as an array. Arrays of other dtypes are converted later, part by part."""
    if np.isscalar(value) or not hasattr(value, "shape"):
        return np.asarray(value, dtype)
    return np.asarray(value)


def _broadcast(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    more = values.ndim - len(shape)
    if more > 0 and prod(values.shape[:more]) == 1:
        values = values.reshape(values.shape[more:])
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise InvalidInputError(
            f"values must have a shape that broadcasts to {shape}, got {values.shape}",
            ErrorKind.INVALID_ARGUMENT,
        ) from None


def _assign_points(session: Session, path: str, selection: PointSelection, values: NDArray[Any]) -> None:
    """Write points. Of equal points, the last value counts, as in numpy."""
    array = _zarr_array(session, path)
    coordinates = [np.broadcast_to(each, selection.shape).flat for each in selection.coordinates]
    for begin in range(0, prod(selection.shape), _MOST_POINTS):
        part = slice(begin, begin + _MOST_POINTS)
        columns = [each[part] for each in coordinates]
        rows = _last_of_equal(columns)
        array.set_coordinate_selection(tuple(each[rows] for each in columns), values.flat[part][rows])


def _last_of_equal(columns: list[I64]) -> I64:
    """Return the last row of each distinct point."""
    order = np.lexsort(columns)  # stable: equal points stay in the order of their rows
    ordered = [each[order] for each in columns]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = np.any([each[1:] != each[:-1] for each in ordered], axis=0)
    return order[is_last]


def _zarr_array(session: Session, path: str) -> zarr.Array[Any]:
    return zarr.open_array(session.store, path=path.strip("/"), mode="r+", zarr_format=3)
