"""The rows that are new, different or absent in a later version: the table ``row_changes``.

    driver   transaction logs -> changed chunks -> blocks; labels that the earlier version lacks -> blocks
    task     rows of a block -> the same labels in the earlier version -> rows that are new or have another
    value

Rows whose labels exist no longer are the new rows of the opposite comparison, from the later version to the
earlier one.

Rows are compared by their labels, the coordinates of all dimensions. So a label that was inserted in the
middle does not change the rows behind it, although their chunks change. A dimension without a coordinate has
the numbers of its cells as labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.arrays.zarr_arrays import array_at
from frazil.format.manifest import ChunkTable
from frazil.repository.session.session import Session
from frazil.spark.tables.batches import batches
from frazil.spark.tables.decoding import to_arrow
from frazil.spark.tables.grid import Column
from frazil.spark.tables.scan_plan import Scan, ScanTask
from frazil.spark.tables.version_slices import SharedVersion

#: The column with ``inserted``, ``updated`` or ``deleted``.
CHANGE: Final = "change"

type Positions = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """The rows of the earlier version.

    Attributes:
        shared: The version, with the arrays that are compared.
        labels: The labels along each dimension; a number is the size of a dimension without a coordinate.
        columns: The compared columns.
        dims: The dimensions of the grid, for the axes of the columns.
    """

    shared: SharedVersion
    labels: Mapping[str, pa.Array | int]
    columns: Mapping[str, Column]
    dims: tuple[str, ...]

    def find_positions(self, dim: str, labels: pa.Array) -> NDArray[np.int64]:
        """Return the positions of labels, -1 for those that this version does not have."""
        existing = self.labels[dim]
        if isinstance(existing, int):
            numbers = np.asarray(labels).astype(np.int64)
            return np.where(numbers < existing, numbers, -1)
        if existing.type != labels.type:
            return np.full(len(labels), -1)
        positions = pc.fill_null(pc.index_in(labels, value_set=existing), -1)
        return np.asarray(positions).astype(np.int64)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What all tasks of one comparison share.

    ``earlier`` is None if all rows are new. ``inserted`` is the word for new rows.
    """

    scan: Scan
    schema: pa.Schema
    compared: tuple[str, ...]
    earlier: EarlierVersion | None
    inserted: str = "inserted"


@dataclass(frozen=True, slots=True)
class ChangeTask:
    """The blocks of one task, and the references of the earlier version for their labels.

    ``deletions`` tells the tasks of the opposite comparison.
    """

    scan: ScanTask
    tables: Mapping[str, ChunkTable]
    deletions: bool = False


def change_batches(changes: RowChanges, task: ChangeTask) -> Iterator[pa.RecordBatch]:
    """Yield the changed rows of one task."""
    earlier = changes.earlier
    session = None if earlier is None else earlier.shared.session(task.tables)
    for batch in batches(changes.scan, task.scan):
        exists, differs = np.zeros(len(batch), np.bool_), np.zeros(len(batch), np.bool_)
        if earlier is not None and session is not None:
            exists, differs = _compare(changes.compared, earlier, session, batch)
        rows = np.flatnonzero(~exists | differs)
        if len(rows):
            kinds = pa.array((changes.inserted, "updated")).take(pa.array(exists[rows].astype(np.int8)))
            taken = batch.take(pa.array(rows))
            columns = {name: taken[name] for name in taken.schema.names} | {CHANGE: kinds}
            yield pa.RecordBatch.from_arrays(
                [columns[field.name].cast(field.type) for field in changes.schema], schema=changes.schema
            )


def _compare(
    compared: Sequence[str], earlier: EarlierVersion, session: Session, batch: pa.RecordBatch
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each row whether its labels exist in the earlier version, and whether a value differs."""
    positions = {dim: earlier.find_positions(dim, batch[dim]) for dim in earlier.dims}
    exists = reduce(np.logical_and, (each >= 0 for each in positions.values()))
    differs = np.zeros(len(batch), np.bool_)
    rows = np.flatnonzero(exists)
    if not len(rows):
        return exists, differs
    old = {dim: each[rows] for dim, each in positions.items()}
    for name in compared:
        now = batch[name].take(pa.array(rows))
        column = earlier.columns.get(name)
        before = (
            pa.nulls(len(rows), now.type) if column is None else _values(session, column, earlier.dims, old)
        )
        differs[rows] |= _differences(now, before)
    return exists, differs


def _values(session: Session, column: Column, dims: Sequence[str], positions: Positions) -> pa.Array:
    """Return the values of an array at positions along the dimensions."""
    assert column.path is not None
    along = [positions[dims[axis]] for axis in column.axes]
    low = [int(each.min()) for each in along]
    box = tuple(slice(start, int(each.max()) + 1) for start, each in zip(low, along, strict=True))
    raw: NDArray[Any] = np.asarray(array_at(session, column.path)[box])
    chosen = tuple(each - start for each, start in zip(along, low, strict=True))
    return to_arrow(column.decoder.decode(raw).take(chosen), column.type)


def _differences(now: pa.Array, before: pa.Array) -> NDArray[np.bool_]:
    """Return where values differ. Null equals null, and NaN equals NaN."""
    if now.type != before.type:
        try:
            before = before.cast(now.type, safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return np.ones(len(now), np.bool_)
    same = pc.fill_null(pc.equal(now, before), False)
    same = pc.or_(same, pc.and_(pc.is_null(now), pc.is_null(before)))
    if pa.types.is_floating(now.type):
        both_nan = pc.and_(pc.fill_null(pc.is_nan(now), False), pc.fill_null(pc.is_nan(before), False))
        same = pc.or_(same, both_nan)
    return ~np.asarray(same)
