"""Rows become chunks.

Every writer of rows ends in `write_rows`: helpers, the data source, streams. It has to get all rows of each
unit that it writes (see ``write_layout``). A chunk that these rows do not fill is read first, and written
with the new values.
"""

from __future__ import annotations

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
    """Return the commit message for rows, if the user gives none.

    >>> message_of(1, ["time", "pr"], "/x", "append")
    'Write 1 row to `/x` (time, pr), mode append'
    """
    names = ", ".join([*columns[:_NAMED], *(["..."] if len(columns) > _NAMED else [])])
    return f"Write {counted(count, 'row')} to `/{group.strip('/')}` ({names}), mode {mode}"


def write_rows(
    session: Session,
    layout: Layout,
    rows: pa.Table,
    *,
    cleared: Sequence[NDArray[np.bool_]] | None = None,
    units: NDArray[np.int64] | None = None,
) -> Outcome:
    """Write the rows to the arrays of the layout, through a session or a fork.

    With ``cleared``, which has positions along each dimension (bool (size,)), all cells at these positions
    without a row get the fill value; ``units`` (k, ndim) are then the units to write. Raises
    ``InvalidInputError`` for missing coordinates, for two rows of one cell, and for values that an array
    cannot hold.
    """
    positions = layout.require_positions(rows)
    cells = np.zeros(len(rows), np.int64)
    for at, size in zip(positions, layout.shape, strict=True):
        cells = cells * size + at
    _once(layout, rows, cells)
    number, _ = unit_numbers(layout, positions)
    order = np.argsort(number, kind="stable")
    numbers, starts = np.unique(number[order], return_index=True)
    members = dict(zip(numbers.tolist(), np.split(order, starts[1:]) if len(numbers) else [], strict=True))
    wanted = numbers
    if units is not None and layout.units:
        wanted = np.union1d(numbers, np.ravel_multi_index(tuple(units.T), layout.units))
    nobody = np.zeros(0, np.int64)
    arrays = [array_at(session, each.path, "r+") for each in layout.variables]
    values = [encode(rows[each.name], each.decoder, each.dtype, each.name) for each in layout.variables]
    stored_bytes = 0
    for unit in wanted.tolist():
        mine = members.get(unit, nobody)
        region, local = _where(layout, unit, positions, mine)
        for variable, array, column in zip(layout.variables, arrays, values, strict=True):
            block = _block(
                array,
                [region[axis] for axis in variable.axes],
                len(mine),
                [None if cleared is None else cleared[axis][region[axis]] for axis in variable.axes],
            )
            if len(mine):
                block[tuple(local[axis] for axis in variable.axes)] = column[mine]
            array[tuple(region[axis] for axis in variable.axes)] = block
            stored_bytes += block.nbytes
    return Outcome(rows=len(rows), chunks=len(wanted) * len(arrays), bytes_written=stored_bytes)


def unit_numbers(layout: Layout, positions: Positions) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the unit of each row, and which rows have one, because all of their coordinates exist."""
    rows = len(positions[0]) if positions else 0
    number, has_unit = np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    for at, step, count in zip(positions, layout.unit, layout.units, strict=True):
        number = number * count + at // step
        has_unit &= at >= 0
    return number, has_unit


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


def _block(
    array: zarr.Array[Any],
    region: Sequence[slice],
    rows: int,
    cleared: Sequence[NDArray[np.bool_] | None],
) -> NDArray[Any]:
    """Return the values of a region before the rows are written: empty, the existing ones, or fill values."""
    shape = tuple(each.stop - each.start for each in region)
    size = int(np.prod(shape, dtype=np.int64))
    masks = [each for each in cleared if each is not None]
    if rows == size:
        return np.empty(shape, array.dtype)
    if masks and all(mask.all() for mask in masks):
        return _filled(array, shape)
    block = np.array(array[tuple(region)])
    if masks:
        block[np.ix_(*masks)] = _filled(array, ())[()]
    return block


def _filled(array: zarr.Array[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return np.full(shape, array.fill_value, array.dtype)


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
