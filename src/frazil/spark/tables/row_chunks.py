"""Rows become chunks: where the rows of a job come from, which task gets them, and how a task writes them.

Every writer of rows ends in `write_rows`: helpers, the data source, streams. It has to get all rows of
each unit that it writes (see `frazil.spark.tables.write_layout`). A chunk that these rows do not fill is
read first, and written with the new values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import zarr
from numpy.typing import NDArray

from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engine import Task
from frazil.jobs.task_results import Outcome
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.session.session import Session
from frazil.spark.tables.write_layout import Distinct, Layout, Positions, encode, normalize_zeros
from frazil.zarr_store.arrays import array_at


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which task writes which unit.

    ``ranks``    for each dimension, the number of each unit among those with rows; -1 for a unit without
    ``counts``   for each dimension, the number of units with rows
    ``groups``   the number of tasks
    """

    layout: Layout
    ranks: tuple[NDArray[np.int64], ...]
    counts: tuple[int, ...]
    groups: int

    @staticmethod
    def of(layout: Layout, touched: Sequence[NDArray[np.int64]], groups: int) -> Grouping:
        """Return a grouping of the units at ``touched``, positions along each dimension, and of the edges."""
        ranks = []
        for axis, (positions, step, count) in enumerate(zip(touched, layout.unit, layout.units, strict=True)):
            rank = np.full(count, -1, np.int64)
            units = np.union1d(positions // step, layout.edges[:, axis])
            rank[units] = np.arange(len(units))
            ranks.append(rank)
        counts = tuple(int(rank.max(initial=-1)) + 1 for rank in ranks)
        return Grouping(
            layout, tuple(ranks), counts, max(1, min(groups, int(np.prod(counts, dtype=np.int64))))
        )

    @property
    def total(self) -> int:
        """Number of units."""
        return int(np.prod(self.counts, dtype=np.int64))

    def group(self, rows: pa.Table) -> NDArray[np.int32]:
        """Return the task of each row."""
        positions = self.layout.require_positions(rows)
        units = [at // step for at, step in zip(positions, self.layout.unit, strict=True)]
        return self._groups_of(units, len(rows))

    def edges(self, group: int) -> NDArray[np.int64]:
        """Return those edges (k, ndim) of the layout that a task writes."""
        every = self.layout.edges
        return np.asarray(every[self._groups_of(list(every.T), len(every)) == group])

    def _groups_of(self, units: Sequence[NDArray[np.int64]], count: int) -> NDArray[np.int32]:
        """Return the task of each of ``count`` units, which have a coordinate along each dimension."""
        number = np.zeros(count, np.int64)
        for at, rank, size in zip(units, self.ranks, self.counts, strict=True):
            number = number * size + rank[at]
        return (number * self.groups // max(self.total, 1)).astype(np.int32)


if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types
else:
    pd = ModuleOnDemand("pandas")

#: The rows of the task that runs in this thread.
_CURRENT: ContextVar[pa.Table] = ContextVar("rows")


class RowSource(Protocol):
    """Rows that a job writes: in memory, or in a DataFrame."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """Return the distinct values of some columns."""

    def digest(self) -> int:
        """Return the `rows_digest` of all rows."""

    def run(
        self, grouping: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Call ``task`` for each group, with its rows as `current_rows`; results in order of messages.

        ``messages``: number of a group -> message of its task.
        """


def current_rows() -> pa.Table:
    """Return the rows of the task that runs in this thread."""
    return _CURRENT.get()


@contextmanager
def with_rows(rows: pa.Table) -> Iterator[None]:
    """Enter a context in which `current_rows` returns these rows."""
    token = _CURRENT.set(rows)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@dataclass(frozen=True, slots=True)
class InMemory:
    """Rows of an Arrow table. ``total`` is the digest of these rows and of rows that tasks have written."""

    table: pa.Table
    total: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.table.schema

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """Return the distinct values of some columns."""
        return {name: distinct_values([self.table[name]]) for name in dims}

    def digest(self) -> int:
        """Return the `rows_digest` of all rows."""
        return rows_digest(self.table) if self.total is None else self.total

    def run(
        self, grouping: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Call the task for each group in this process, and yield its results."""
        groups = grouping.group(self.table)
        order = np.argsort(groups, kind="stable")
        bounds = np.searchsorted(groups[order], np.arange(grouping.groups + 1))
        for number, message in messages.items():
            with with_rows(self.table.take(pa.array(order[bounds[number] : bounds[number + 1]]))):
                yield task(shared, message)


def distinct_values(columns: Sequence[Any]) -> pa.Array:
    """Return the distinct values of columns of one type."""
    return pc.unique(normalize_zeros(columns[0] if len(columns) == 1 else pa.chunked_array(columns)))


def rows_digest(rows: pa.Table) -> int:
    """Return the sum of the hashes of all rows, modulo 2**64: it does not depend on their order."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for column in rows.columns:
        hashes = hashes * np.uint64(1_000_003) + _hashes(column.combine_chunks())
    mixed: NDArray[np.uint64] = pd.util.hash_array(hashes)
    return int(mixed.sum(dtype=np.uint64))


def _hashes(column: pa.Array) -> NDArray[np.uint64]:
    """Return a hash of each value. All nulls have one hash."""
    if (
        pa.types.is_timestamp(column.type)
        or pa.types.is_time64(column.type)
        or pa.types.is_duration(column.type)
    ):
        column = column.view(pa.int64())
    elif not (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_boolean(column.type)
    ):
        is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
        column = column.cast(pa.binary() if is_bytes else pa.string())
    values = column.drop_null().to_numpy(zero_copy_only=False)
    hashes = np.zeros(len(column), np.uint64)
    hashes[column.is_valid().to_numpy(zero_copy_only=False)] = pd.util.hash_array(values)
    return hashes


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
