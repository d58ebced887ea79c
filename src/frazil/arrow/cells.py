"""The cells of a grid: columns in memory, values for all cells of a region, ranges of boxes of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.answers.conditions import ValueRanges
from frazil.answers.ranges import Intervals, box_ranges, decoded_ranges
from frazil.answers.tiles import TileGrid, has_statistics
from frazil.arrays.array import Array
from frazil.arrays.encoding import encoding_of
from frazil.arrow.grid import Column, Grid, Values
from frazil.errors import InvalidInputError
from frazil.repository.session.session import Session

#: The types whose values have the order of their elements.
_ORDERED: Final = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean),
    *(pa.types.is_timestamp, pa.types.is_duration),
)


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


def finest_block(session: Session, grid: Grid, columns: Sequence[Column]) -> tuple[int, ...]:
    """Return the shape of the smallest blocks to read columns in: chunks, or inner chunks of shards."""
    block = [0] * len(grid.shape)
    for each in columns:
        assert each.path is not None
        encoding = encoding_of(session.workspace.require_array(each.path).user_data)
        lengths = each.chunks if encoding is None or each.instances else encoding.lengths
        for axis, length in zip(each.axes, lengths, strict=False):
            block[axis] = max(block[axis], length if isinstance(length, int) else int(np.diff(length).max()))
    return tuple(min(each or most, most) for each, most in zip(block, grid.block, strict=True))


def has_ranges(session: Session, column: Column) -> bool:
    """Return whether the statistics of chunks can have ranges of a column."""
    if column.path is None or column.instances is not None or not column.axes:
        return False
    is_ordered = any(is_type(column.type) for is_type in _ORDERED)
    return (
        is_ordered
        and _tile_grid(session, column) is not None
        and has_statistics(session.workspace, column.path)
    )


def _tile_grid(session: Session, column: Column) -> TileGrid | None:
    """Return the grid of the tiles of a column, if their statistics say something about its values."""
    assert column.path is not None
    document = session.workspace.require_array(column.path).user_data
    return TileGrid.of(column.path, document, column.decoder.coding)


def column_ranges(
    session: Session, column: Column, boxes: Sequence[Intervals], *, missing: str = "fill"
) -> ValueRanges | None:
    """Return the ranges of a column that ``has_ranges`` in boxes, or None if nothing is known.

    ``boxes`` are intervals along each dimension of the grid. The result has the shape of their product, with
    1 for dimensions that the column does not have. ``missing`` says what tiles without a chunk have: their
    fill value, or else null.
    """
    grid, coding, decoder = _tile_grid(session, column), column.decoder.coding, column.decoder
    own = [boxes[axis] for axis in column.axes]
    if grid is None or column.path is None or not all(len(starts) for starts, _ in own):
        return None
    session.workspace.note_tree(column.path)  # chunks that are left out decide about the rows, too
    raw = box_ranges(session.workspace, grid, coding, own, has_fill=missing == "fill")
    if not raw.is_known.any():
        return None

    def decode(elements: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        values = decoder.decode(elements)
        return values.data, values.null

    try:
        ranges = decoded_ranges(raw, coding, decode)
    except InvalidInputError:  # a time that is none, which a scan reports if it reads it
        return None
    wide = [len(starts) if axis in column.axes else 1 for axis, (starts, _) in enumerate(boxes)]
    order = np.argsort(column.axes)
    return ValueRanges(
        *(getattr(ranges, each.name).transpose(order).reshape(wide) for each in fields(ranges))
    )
