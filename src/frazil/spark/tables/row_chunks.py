"""Rows become chunks.

Every writer of rows ends in `write_rows`: helpers, the data source, streams. It has to get all rows of each
unit that it writes (see ``write_layout``). A chunk that these rows do not fill is read first, and written
with the new values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr
from numpy.typing import NDArray

from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.task_results import Outcome
from frazil.repository.session.session import Session
from frazil.spark.tables.encoding import encode
from frazil.spark.tables.write_layout import Layout, Positions
from frazil.zarr_store.arrays import array_at

#: The most columns that a message names.
_NAMED: Final = 8


def message_of(count: int, columns: Sequence[str], group: str, mode: str) -> str:
    """Return the commit message for rows, if the user gives none."""
    names = ", ".join([*columns[:_NAMED], *(["..."] if len(columns) > _NAMED else [])])
    return f"Write {counted(count, 'row')} to `/{group.strip('/')}` ({names}), mode {mode}"


def write_rows(
    session: Session, layout: Layout, rows: pa.Table, edges: NDArray[np.int64] | None = None
) -> Outcome:
    """Write the rows to the arrays of the layout, through a session or a fork.

    Cleared cells without a row get the missing element of their array. ``edges`` (k, ndim) are units that are
    written even if they have no row. Raises ``InvalidInputError`` for missing coordinates, for two rows of
    one cell, and for values that an array cannot hold.
    """
    positions = layout.require_positions(rows)
    cells = np.zeros(len(rows), np.int64)
    for at, size in zip(positions, layout.shape, strict=True):
        cells = cells * size + at
    _once(layout, rows, cells)
    number = np.zeros(len(rows), np.int64)
    for at, step, count in zip(positions, layout.unit, layout.units, strict=True):
        number = number * count + at // step
    order = np.argsort(number, kind="stable")
    numbers, starts = np.unique(number[order], return_index=True)
    members = dict(zip(numbers.tolist(), np.split(order, starts[1:]) if len(numbers) else [], strict=True))
    wanted = numbers
    if edges is not None and len(edges):
        wanted = np.union1d(numbers, np.ravel_multi_index(tuple(edges.T), layout.units))
    nobody = np.zeros(0, np.int64)
    arrays = [array_at(session, each.path, "r+") for each in layout.variables]
    values = [encode(rows[each.name], each.decoder, each.dtype, each.name) for each in layout.variables]
    stored_bytes = 0
    for unit in wanted.tolist():
        mine = members.get(unit, nobody)
        region, local = _where(layout, unit, positions, mine)
        cleared = _cleared(layout, region)
        for variable, array, column in zip(layout.variables, arrays, values, strict=True):
            own = tuple(region[axis] for axis in variable.axes)
            boxes = [tuple(box[axis] for axis in variable.axes) for box in cleared]
            block = _block(array, own, len(mine), boxes, variable.missing)
            if len(mine):
                block[tuple(local[axis] for axis in variable.axes)] = column[mine]
            array[own] = block
            stored_bytes += block.nbytes
    return Outcome(rows=len(rows), chunks=len(wanted) * len(arrays), bytes_written=stored_bytes)


def _where(
    layout: Layout, unit: int, positions: Positions, rows: NDArray[np.int64]
) -> tuple[list[slice], list[NDArray[np.int64]]]:
    """Return the region of a unit, and where in it its rows are."""
    corner = np.unravel_index(unit, layout.units) if layout.units else ()
    starts = [int(at) * step for at, step in zip(corner, layout.unit, strict=True)]
    region = [
        slice(start, min(start + step, size))
        for start, step, size in zip(starts, layout.unit, layout.shape, strict=True)
    ]
    return region, [at[rows] - start for at, start in zip(positions, starts, strict=True)]


def _cleared(layout: Layout, region: Sequence[slice]) -> list[list[slice]]:
    """Return the parts of the cleared boxes that are in a region, as positions in it."""
    parts = [
        [
            slice(max(start - own.start, 0), min(stop, own.stop) - own.start)
            for (start, stop), own in zip(box, region, strict=True)
        ]
        for box in layout.cleared
    ]
    return [part for part in parts if all(each.start < each.stop for each in part)]


def _block(
    array: zarr.Array[Any], region: tuple[slice, ...], rows: int, cleared: Sequence[Any], missing: Any
) -> NDArray[Any]:
    """Return the values of a region before the rows are written: empty, or the existing ones, cleared."""
    shape = tuple(each.stop - each.start for each in region)
    whole = tuple(slice(0, size) for size in shape)
    if rows == math.prod(shape):
        return np.empty(shape, array.dtype)
    if whole in cleared:
        return np.full(shape, missing, array.dtype)
    block = np.array(array[region])
    for box in cleared:
        block[box] = missing
    return block


def _once(layout: Layout, rows: pa.Table, cells: NDArray[np.int64]) -> None:
    """Raise ``InvalidInputError`` if two rows are about one cell."""
    order = np.argsort(cells, kind="stable")
    twice = np.flatnonzero(cells[order][1:] == cells[order][:-1])
    if len(twice):
        row = int(order[twice[0]])
        cell = ", ".join(f"{axis.name} = {rows[axis.name][row].as_py()!r}" for axis in layout.axes)
        raise InvalidInputError(
            f"Each cell must have one row, got {len(twice)} more, the first at {cell}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
