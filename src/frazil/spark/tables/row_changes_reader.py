"""The table ``row_changes`` in the data source: its versions, its columns and its reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise, takewhile
from typing import Any, override

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import datasource as spark

from frazil.cf import coding_of
from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.catalog.version_info import SnapshotInfo
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
    COMMIT_TIME,
    SNAPSHOT_ID,
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
        versions: The options ``start`` and ``end``, as snapshot ids.
        columns: All columns of the table.
        schema: Those that the option ``columns`` names, after ``change``; by default all.
    """

    def __init__(self, repo: Repository, options: Options) -> None:
        if options.get("include-missing", "fill") != "fill":
            raise InvalidInputError(
                "The table row_changes must be read with include-missing=fill, got "
                f"{options['include-missing']!r}. Leave out the option",
                ErrorKind.INVALID_ARGUMENT,
            )
        if "end" in options:
            session = repo.readonly_session(snapshot_id=location.snapshot_named(repo, options["end"]))
        else:
            session = location.session_at(repo, options)
        end = session.snapshot_id
        start = options.get("start") or repo.lookup_snapshot(end).parent_id or end
        start = location.snapshot_named(repo, start)
        self.versions = {"start": start, "end": end}
        is_net = location.flag(options, "net-changes", True) or start == end
        self._commits = [repo.lookup_snapshot(end)] if is_net else _commits(repo, start, end)
        self._split = split_of(options)
        selection, where = selection_of(options), options.get("where", ())
        last = TableVersion.of(session, selection, where)
        assert last is not None  # the method raises an error for the last version
        ids = [start, *(each.id for each in self._commits[:-1])]
        earlier = [repo.readonly_session(snapshot_id=each) for each in ids]
        self._tables = [*(TableVersion.of(each, selection, where, last.grid) for each in earlier), last]
        self.columns = _columns([each for each in self._tables if each is not None])
        names = location.listed(options, "columns")
        chosen = (
            [self.grid.column(each) for each in dict.fromkeys([CHANGE, *names])] if names else self.columns
        )
        self.schema = pa.schema([pa.field(each.name, each.type) for each in chosen])

    @property
    def grid(self) -> Grid:
        """The columns as those of a grid without dimensions."""
        coding = coding_of({}, object)  # no element is read
        columns = (Column(each.name, None, (), Decoder(each.type, coding)) for each in self.columns)
        return Grid((), (), tuple(columns), ())

    def plans(self, schema: pa.Schema) -> list[tuple[Comparison, list[ChangeTask]]]:
        """Return the comparisons and their tasks, for the columns and types of a schema."""
        request = ChangeRequest(self.columns, schema, self._split)
        pairs = zip(pairwise(self._tables), self._commits, strict=True)
        return [
            plan
            for (before, after), commit in pairs
            for plan in plan_changes(before, after, request, (commit.id, commit.written_at))
        ]


def _commits(repo: Repository, start: str, end: str) -> list[SnapshotInfo]:
    """Return the commits after a version up to another, oldest first."""
    newer = list(takewhile(lambda each: each.id != start, repo.ancestry(snapshot_id=end)))
    if newer[-1].parent_id != start:
        raise InvalidInputError(
            f"Option `start` must be a version in the history of `end` with net-changes=false, got {start}, "
            f"which is not in the history of {end}. Leave out net-changes to compare the two versions",
            ErrorKind.INVALID_ARGUMENT,
        )
    return newer[::-1]


def _columns(versions: list[TableVersion]) -> tuple[ChangeColumn, ...]:
    """Return the columns of the table: the change, the row, its earlier values, and the commit."""
    rows, earlier = [], []
    last = versions[-1].grid
    for name in [each.name for each in last.columns]:
        types = [each.grid.column(name).type for each in versions]
        rows.append(ChangeColumn(name, reduce(_common_type, types), name))
        if name not in last.dims:
            earlier.append(ChangeColumn(BEFORE + name, reduce(_common_type, types[:-1] or types), name, True))
    commit = (ChangeColumn(SNAPSHOT_ID, pa.string()), ChangeColumn(COMMIT_TIME, TIME))
    added = (ChangeColumn(CHANGE, pa.string()), *earlier, *commit)
    if taken := {each.name.lower() for each in added} & {each.name.lower() for each in rows}:
        raise InvalidInputError(
            f"The columns of the table row_changes must not have the name {min(taken)}, got an array of this "
            "name. Choose other arrays with the option variables",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return (added[0], *rows, *added[1:])


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
        return (_of_comparisons, (self._comparisons,))


def _of_comparisons(comparisons: list[Comparison]) -> RowChangesReader:
    reader = RowChangesReader.__new__(RowChangesReader)
    reader._comparisons, reader._tasks = comparisons, []
    return reader
