"""The cells of a grid: columns in memory, and values of some dimensions for all cells of a region."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.arrays.array import Array
from frazil.arrow.grid import Column, Values
from frazil.repository.session.session import Session


def read_column(session: Session, column: Column) -> Values:
    """Return all values of a column along its own dimensions; those of instances repeated."""
    if column.path is None:
        return Values(np.arange(column.shape[0], dtype=np.int64))
    values = column.decoder.decode(np.asarray(Array(session, column.path)[...]))
    if column.instances is None:
        return values
    numbers = np.asarray(Array(session, column.instances.path)[...]).astype(np.int64)
    if column.instances.by_size:
        numbers = np.repeat(np.arange(len(numbers)), numbers)
    return values.take((numbers,))


def spread(values: Values, axes: tuple[int, ...], shape: tuple[int, ...]) -> Values:
    """Return the values of some dimensions for all cells of a shape, as one dimension."""
    data = broadcast(values.data, axes, shape).reshape(-1)
    return Values(data, None if values.null is None else broadcast(values.null, axes, shape).reshape(-1))


def broadcast(data: NDArray[Any], axes: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return values of some dimensions, in any order, for all cells of a shape."""
    wide = [1] * len(shape)
    for at, axis in enumerate(axes):
        wide[axis] = data.shape[at]
    return np.broadcast_to(data.transpose(np.argsort(axes)).reshape(wide), shape)
