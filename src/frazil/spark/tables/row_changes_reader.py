"""The table ``row_changes`` in the data source: its versions, its columns and its reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, override

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import datasource as spark

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.handle.repository import Repository
from frazil.spark.tables import location
from frazil.spark.tables.data_source_reader import require_columns, selection_of, split_of
from frazil.spark.tables.decoding import Decoder
from frazil.spark.tables.grid import Column, Grid
from frazil.spark.tables.location import Options
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.repository_schemas import TIME
from frazil.spark.tables.row_changes import (
    BEFORE,
    CHANGE,
    SNAPSHOT_ID,
    WRITTEN_AT,
    ChangeColumn,
    ChangeRequest,
    ChangeTask,
    Comparison,
    TableVersion,
    change_batches,
    is_number,
    plan_changes,
)


class RowChangesTable:
    """The versions that the options name, and the columns of the changes between them.

    Attributes:
        columns: All columns of the table.
        schema: Those that the option ``columns`` names, after ``change``; by default all.
    """

    def __init__(self, repo: Repository, options: Options) -> None:
        self._repo, self._options = repo, dict(options)
        if options.get("include-missing", "fill") != "fill":
            raise InvalidInputError(
                "The table row_changes must be read with include-missing=fill, got "
                f"{options['include-missing']!r}. Leave out the option",
                ErrorKind.INVALID_ARGUMENT,
            )
        after = (
            repo.readonly_session(snapshot_id=location.snapshot_named(repo, options["end"]))
            if "end" in options
            else location.session_at(repo, options)
        )
        self._end = after.snapshot_id
        self._start = (
            location.snapshot_named(repo, options["start"])
            if "start" in options
            else repo.lookup_snapshot(self._end).parent_id or self._end
        )
        where = options.get("where", ())
        self._after = TableVersion.of(after, selection_of(options), where)
        self._before = self._version(self._start)
        self.columns = _columns(self._before, self._after)
        grid = self.grid
        names = [CHANGE, *location.listed(options, "columns")]
        chosen = [grid.column(name) for name in dict.fromkeys(names)] if len(names) > 1 else grid.columns
        self.schema = pa.schema([pa.field(each.name, each.type) for each in chosen])

    @property
    def grid(self) -> Grid:
        """The columns as those of a grid without dimensions."""
        return Grid(
            (), (), tuple(Column(each.name, None, (), Decoder(each.type)) for each in self.columns), ()
        )

    def plans(self, schema: pa.Schema) -> list[tuple[Comparison, list[ChangeTask]]]:
        """Return the comparisons and their tasks, for the columns and types of a schema."""
        rows = self._after.grid
        request = ChangeRequest(
            self.columns,
            schema,
            {each.name: each.type for each in rows.columns},
            tuple(each.name for each in rows.columns if each.name not in rows.dims),
            split_of(self._options),
        )
        plans, before = [], self._before
        for id_ in self._later_versions():
            after = self._after if id_ == self._end else self._version(id_)
            commit = (id_, self._repo.lookup_snapshot(id_).written_at)
            plans += plan_changes(before, after, request, commit)
            before = after
        return plans

    def _later_versions(self) -> list[str]:
        """Return the ids of the versions that are compared, each with the one before, from ``start``."""
        if location.flag(self._options, "net-changes", True) or self._start == self._end:
            return [self._end]
        ancestry = self._repo.ancestry(snapshot_id=self._end)
        newer = list(takewhile(lambda each: each.id != self._start, ancestry))
        if newer[-1].parent_id != self._start:
            raise InvalidInputError(
                "Option `start` must be a version in the history of `end` with net-changes=false, got "
                f"{self._start}, which is not in the history of {self._end}. Leave out net-changes to "
                "compare the two versions",
                ErrorKind.INVALID_ARGUMENT,
            )
        return [each.id for each in reversed(newer)]

    def _version(self, id_: str) -> TableVersion | None:
        session = self._repo.readonly_session(snapshot_id=id_)
        where = self._options.get("where", ())
        return TableVersion.of(session, selection_of(self._options), where, self._after.grid)


def _columns(before: TableVersion | None, after: TableVersion) -> tuple[ChangeColumn, ...]:
    """Return the columns of the table: the change, the row, its earlier values, and the commit."""
    rows, earlier = [], []
    for each in after.grid.columns:
        old = None if before is None else before.find(each.name)
        old_type = each.type if old is None else old.type
        rows.append(ChangeColumn(each.name, _common_type(old_type, each.type), each.name))
        if each.name not in after.grid.dims:
            earlier.append(ChangeColumn(BEFORE + each.name, old_type, each.name, True))
    commit = (ChangeColumn(SNAPSHOT_ID, pa.string()), ChangeColumn(WRITTEN_AT, TIME))
    columns = (ChangeColumn(CHANGE, pa.string()), *rows, *earlier, *commit)
    added = {each.name.lower() for each in columns if each not in rows}
    for each in rows:
        if each.name.lower() in added:
            raise InvalidInputError(
                f"The columns of the table row_changes must not have the name {each.name}, got an array of "
                "this name. Choose other arrays with the option variables",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
    return columns


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for numbers of two types; for other types ``other``."""
    if one == other or not (is_number(one) and is_number(other)):
        return other
    return pa.from_numpy_dtype(np.promote_types(one.to_pandas_dtype(), other.to_pandas_dtype()))


@causes_only
class RowChangesReader(spark.DataSourceReader):
    """The reader of the rows that differ between two versions."""

    def __init__(self, table: RowChangesTable, schema: pa.Schema) -> None:
        require_columns(table.grid, schema)
        plans = table.plans(schema)
        self._comparisons = [comparison for comparison, _ in plans]
        self._tasks = [(number, task) for number, (_, tasks) in enumerate(plans) for task in tasks]

    @override
    def partitions(self) -> Sequence[spark.InputPartition]:
        # Spark requires at least one partition.
        tasks: list[Any] = [*self._tasks] or [None]
        return list(map(spark.InputPartition, tasks))

    @override
    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            number, task = partition.value
            yield from change_batches(self._comparisons[number], task)

    def __reduce__(self) -> tuple[Any, ...]:
        # The pickle for the tasks does not include the tasks.
        return (_of_tasks, (self._comparisons,))


def _of_tasks(comparisons: list[Comparison]) -> RowChangesReader:
    reader = RowChangesReader.__new__(RowChangesReader)
    reader._comparisons, reader._tasks = comparisons, []
    return reader
