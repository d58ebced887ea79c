"""The reader of the table ``row_changes`` in the data source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, override

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import datasource as spark

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.spark.tables import location
from frazil.spark.tables.conditions import predicates
from frazil.spark.tables.data_source_reader import require_columns, schema_of_rows, selection_of, split_of
from frazil.spark.tables.group_grid import grid_of
from frazil.spark.tables.location import Options
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.row_changes import CHANGE, ChangeTask, RowChanges, change_batches
from frazil.spark.tables.row_changes_plan import (
    ChangeRequest,
    plan_deleted_rows,
    plan_row_changes,
)


def later_version(repo: Repository, options: Options) -> Session:
    """Return a session of the later version: the option ``end``, or the options of a version."""
    if "end" not in options:
        return location.session_at(repo, options)
    return repo.readonly_session(snapshot_id=location.snapshot_named(repo, options["end"]))


def schema_of_row_changes(session: Session, options: Options) -> pa.Schema:
    """Return the columns: ``change``, and those of the rows."""
    rows = schema_of_rows(session, options)
    if CHANGE in rows.names:
        raise InvalidInputError(
            f"The columns of the table row_changes must not have the name {CHANGE}, got an array of this "
            "name. Choose other arrays with the option variables",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return pa.schema([pa.field(CHANGE, pa.string()), *rows])


@causes_only
class RowChangesReader(spark.DataSourceReader):
    """The reader of the rows that differ from those of the version of the option ``start``."""

    def __init__(self, repo: Repository, after: Session, options: Options, schema: pa.Schema) -> None:
        start = options.get("start")
        if start is None:
            start = repo.lookup_snapshot(after.snapshot_id).parent_id or after.snapshot_id
        selection = selection_of(options)
        grid = grid_of(after, selection)
        rows = pa.schema([field for field in schema if field.name.lower() != CHANGE])
        require_columns(grid, rows)
        request = ChangeRequest(
            repo,
            repo.readonly_session(snapshot_id=location.snapshot_named(repo, start)),
            after,
            selection,
            tuple(predicates(grid, options.get("where", ()))),
            tuple(grid.column(name).name for name in rows.names),
            split_of(options),
        )
        self._schema = schema
        plan, self._tasks = plan_row_changes(request, grid)
        deleted = None if plan.earlier is None else plan_deleted_rows(request, options.get("where", ()))
        if deleted is not None:
            self._tasks += deleted[1]
        self._plans = (plan, None if deleted is None else deleted[0])

    @override
    def partitions(self) -> Sequence[spark.InputPartition]:
        # Spark requires at least one partition.
        tasks: list[Any] = [*self._tasks] or [None]
        return list(map(spark.InputPartition, tasks))

    @override
    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        task: ChangeTask | None = partition.value
        if task is None:
            return
        plan = self._plans[task.deletions]
        assert plan is not None
        for batch in change_batches(plan, task):
            by_name = {name.lower(): batch[name] for name in batch.schema.names}
            columns = [
                by_name[field.name.lower()].cast(field.type)
                if field.name.lower() in by_name
                else pa.nulls(len(batch), field.type)  # the earlier version does not have the column
                for field in self._schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def __reduce__(self) -> tuple[Any, ...]:
        # The pickle for the tasks does not include the tasks.
        return (_of_tasks, (self._plans, self._schema))


def _of_tasks(plans: tuple[RowChanges, RowChanges | None], schema: pa.Schema) -> RowChangesReader:
    reader = RowChangesReader.__new__(RowChangesReader)
    reader._plans, reader._tasks, reader._schema = plans, [], schema
    return reader
