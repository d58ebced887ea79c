"""The plan of the table ``row_changes``: the blocks that may have changed rows, and their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.errors import InvalidInputError, NodeNotFoundError
from frazil.format.ids import id_from_text
from frazil.format.manifest import ChunkTable
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.repository.session.differences import difference
from frazil.repository.session.session import Session
from frazil.spark.tables.conditions import Conditions, predicates
from frazil.spark.tables.decoding import to_arrow
from frazil.spark.tables.grid import Column, Grid, Selection
from frazil.spark.tables.group_grid import grid_of
from frazil.spark.tables.predicates import Mask, Predicate
from frazil.spark.tables.row_changes import CHANGE, ChangeTask, EarlierVersion, RowChanges
from frazil.spark.tables.scan_blocks import counts_of, read_column
from frazil.spark.tables.scan_plan import ScanRequest, ScanTask, Split, plan_blocks
from frazil.spark.tables.version_slices import SharedVersion, rows_in_box


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Which rows are compared: two versions of a repository, the arrays, and the columns of the result.

    With ``deletions``, ``before`` is the later version. The result has the rows of ``after`` whose labels
    ``before`` does not have.
    """

    repo: Repository
    before: Session
    after: Session
    selection: Selection
    where: tuple[Predicate, ...] = ()
    columns: tuple[str, ...] = ()
    split: Split = Split()  # noqa: RUF009  # a frozen value
    deletions: bool = False


def plan_row_changes(request: ChangeRequest, grid: Grid) -> tuple[RowChanges, list[ChangeTask]]:
    """Return the tasks that find the changed rows of the version ``after``, whose grid is ``grid``."""
    variables = [each for each in grid.columns if each.path is not None and not each.is_key]
    if request.deletions:
        variables = []
    compared = tuple(each.name for each in variables if each.instances is None)
    names = request.columns or tuple(each.name for each in grid.columns)
    needed = [each for each in grid.columns if each.name in {*grid.dims, *compared, *names}]
    earlier = _earlier(request, grid, compared)
    scanned = ScanRequest(
        schema=pa.schema([pa.field(each.name, each.type) for each in needed]),
        split=request.split,
        blocks=_changed_blocks(request, grid, variables, earlier),
    )
    scan, tasks = plan_blocks(request.after, grid, request.where, scanned)
    schema = pa.schema(
        [pa.field(CHANGE, pa.string()), *(pa.field(name, grid.column(name).type) for name in names)]
    )
    word = "deleted" if request.deletions else "inserted"
    changes = RowChanges(scan, schema, compared, earlier, word)
    if earlier is None:
        return changes, [ChangeTask(each, {}) for each in tasks]
    tables = {
        node.path: request.before.workspace.chunks.ref_table(node.path) for node in earlier.shared.nodes
    }
    positions = {dim: earlier.find_positions(dim, _labels(request.after, grid, dim)) for dim in grid.dims}
    return changes, [
        ChangeTask(each, _tables_of(each, grid, earlier, tables, positions), request.deletions)
        for each in tasks
    ]


def plan_deleted_rows(
    request: ChangeRequest, where: Conditions
) -> tuple[RowChanges, list[ChangeTask]] | None:
    """Return the tasks that find the rows whose labels the later version of ``request`` does not have.

    Columns that the earlier version lacks are not in these rows. A condition on such a column selects no row.
    None means that there are no rows.
    """
    selection = _existing_variables(request.before, request.selection)
    grid = grid_of(request.before, selection)
    try:
        conditions = predicates(grid, where)
    except InvalidInputError:
        return None
    opposite = replace(
        request,
        before=request.after,
        after=request.before,
        selection=selection,
        where=tuple(conditions),
        columns=tuple(each.name for each in grid.columns if each.name in request.columns),
        deletions=True,
    )
    plan, tasks = plan_row_changes(opposite, grid)
    return (plan, tasks) if tasks else None


def _earlier(request: ChangeRequest, grid: Grid, compared: Sequence[str]) -> EarlierVersion | None:
    """Return the earlier version; None if it has no rows with these dimensions."""
    try:
        before = grid_of(request.before, _existing_variables(request.before, request.selection))
    except (NodeNotFoundError, InvalidInputError):
        return None
    if set(before.dims) != set(grid.dims):
        return None
    labels: dict[str, pa.Array | int] = {}
    for axis, dim in enumerate(before.dims):
        has_labels = before.column(dim).path is not None
        labels[dim] = _labels(request.before, before, dim) if has_labels else before.shape[axis]
    columns = {each.name: each for each in before.columns if each.name in compared and each.path is not None}
    paths = sorted({each.path for each in columns.values() if each.path is not None})
    return EarlierVersion(SharedVersion.of(request.before, paths), labels, columns, before.dims)


def _existing_variables(session: Session, selection: Selection) -> Selection:
    """Return the selection without the variables that a version does not have."""
    folder = "/" + selection.group.strip("/")
    nodes = session.workspace.nodes
    existing = [
        name for name in selection.variables if nodes.node(f"{folder.rstrip('/')}/{name}") is not None
    ]
    return replace(selection, variables=tuple(existing))


def _labels(session: Session, grid: Grid, dim: str) -> pa.Array:
    column = grid.column(dim)
    return to_arrow(read_column(session, column), column.type)


def _changed_blocks(
    request: ChangeRequest, grid: Grid, variables: Sequence[Column], earlier: EarlierVersion | None
) -> Mask:
    """Return the blocks with a changed chunk, or with a label that the earlier version lacks."""
    every = np.ones(counts_of(grid), np.bool_)
    if earlier is None:
        return every
    blocks = ~every
    chunks = _changed_chunks(request) if variables else {}
    for each in variables:
        old = earlier.columns.get(each.name)
        if old is None or repr(old.decoder) != repr(each.decoder):
            return every  # a new array, or the same elements with another meaning
        blocks |= _blocks_of(
            grid, each, chunks.get(each.path or "", np.zeros((0, len(each.axes)), np.uint32))
        )
    for axis, dim in enumerate(grid.dims):
        fresh = earlier.find_positions(dim, _labels(request.after, grid, dim)) < 0
        starts = np.arange(0, grid.shape[axis], grid.block[axis])
        if len(starts):
            shape = [-1 if each == axis else 1 for each in range(len(grid.dims))]
            blocks |= np.logical_or.reduceat(fresh, starts).reshape(shape)
    return blocks


def _changed_chunks(request: ChangeRequest) -> Mapping[str, NDArray[np.uint32]]:
    context = context_of(request.repo)
    ids = [id_from_text(each.snapshot_id) for each in (request.before, request.after)]
    return difference(context, context.catalog.repo_info(), *ids).updated_chunks


def _blocks_of(grid: Grid, column: Column, index: NDArray[np.uint32]) -> Mask:
    """Return the blocks that chunks of a column are in, without a loop over the chunks of large arrays."""
    counts = counts_of(grid)
    blocks = np.zeros(counts, np.bool_)
    if not len(index):
        return blocks
    wide = index.astype(np.int64)
    first, last = [], []
    for axis, (count, block) in enumerate(zip(counts, grid.block, strict=True)):
        if axis not in column.axes:
            first.append(np.zeros(len(wide), np.int64))
            last.append(np.full(len(wide), count - 1))
            continue
        at = column.axes.index(axis)
        low = wide[:, at] * column.chunks[at]
        first.append(np.minimum(low // block, count - 1))
        last.append(np.minimum((low + column.chunks[at] - 1) // block, count - 1))
    spans = [int((high - low).max()) + 1 for low, high in zip(first, last, strict=True)]
    for shift in np.ndindex(*spans):
        blocks[
            tuple(np.minimum(low + by, high) for low, high, by in zip(first, last, shift, strict=True))
        ] = True
    return blocks


def _tables_of(
    task: ScanTask,
    grid: Grid,
    earlier: EarlierVersion,
    tables: Mapping[str, ChunkTable],
    positions: Mapping[str, NDArray[np.int64]],
) -> dict[str, ChunkTable]:
    """Return the references of the earlier version for the labels of a task."""
    low = task.blocks.min(axis=0) * grid.block
    high = np.minimum((task.blocks.max(axis=0) + 1) * grid.block, grid.shape)
    box: dict[str, tuple[int, int]] = {}
    for axis, dim in enumerate(grid.dims):
        along = positions[dim][int(low[axis]) : int(high[axis])]
        existing = along[along >= 0]
        box[dim] = (int(existing.min()), int(existing.max()) + 1) if len(existing) else (0, 0)
    out: dict[str, ChunkTable] = {}
    for column in earlier.columns.values():
        assert column.path is not None
        spans = [box[earlier.dims[axis]] for axis in column.axes]
        starts = [start // chunk for (start, _), chunk in zip(spans, column.chunks, strict=True)]
        stops = [-(-stop // chunk) for (_, stop), chunk in zip(spans, column.chunks, strict=True)]
        out[column.path] = rows_in_box(tables[column.path], starts, stops)
    return out
