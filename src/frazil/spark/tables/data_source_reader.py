"""The readers of the data source: rows, changed rows, and tables about a repository."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise, takewhile
from typing import Any, ClassVar, Final, override

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import datasource as spark

from frazil.arguments import misfit
from frazil.arrow.grid import CALENDARS, Column, Decoder, Grid, Selection, grid_of, is_number
from frazil.arrow.write_layout import require_distinct_names
from frazil.cf import coding_of
from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.handle.repository import Repository
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.session.session import Session
from frazil.spark.runtime.on_spark import causes_only
from frazil.spark.tables import repository_tables
from frazil.spark.tables.options import Options, choice, count, flag, listed, session_at, snapshot_named
from frazil.spark.tables.repository_tables import TIME
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
    plan_changes,
)
from frazil.spark.tables.scan import MISSING, ScanRequest, ScanTask, Split, batches, cast
from frazil.spark.tables.schemas import can_become, filter_predicate, predicates, pushed_conditions


def selection_of(options: Options) -> Selection:
    """Return which arrays the options name, and how they are read."""
    variables = listed(options, "variables") or listed(options, "arrays")
    return Selection(
        options.get("group", "/"),
        tuple(variables),
        flag(options, "cf", True),
        choice(options, "calendar", CALENDARS),
        count(options, "block-rows") or Selection().block_rows,
    )


def schema_of_rows(session: Session, options: Options) -> pa.Schema:
    """Return the columns of the rows that the options choose."""
    return grid_of(session, selection_of(options)).schema(listed(options, "columns") or None)


def split_of(options: Options) -> Split:
    """Return how the options split rows into tasks."""
    return Split(count(options, "partitions"), count(options, "rows-per-partition"))


@causes_only
class TaskReader(spark.DataSourceReader):
    """A reader of tasks. Its pickle for the executors has what all tasks share, and no task."""

    def __init__(self, shared: Any, tasks: Sequence[Any]) -> None:
        self._shared, self._tasks = shared, tasks

    @override
    def partitions(self) -> Sequence[spark.InputPartition]:
        # Spark requires at least one partition.
        return list(map(spark.InputPartition, [*self._tasks] or [None]))

    @override
    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from self._batches(partition.value)

    def _batches(self, task: Any) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {"_shared": self._shared, "_tasks": ()}


def scan_request(
    session: Session, options: Options, columns: Sequence[str] | pa.Schema | None = None
) -> ScanRequest:
    """Return the rows that options choose. Without ``columns``, they have those of the option, or all."""
    grid = grid_of(session, selection_of(options))
    if isinstance(columns, pa.Schema):
        schema = columns
        require_columns(grid, schema)
    else:
        schema = grid.schema(columns if columns is not None else listed(options, "columns") or None)
    return ScanRequest(
        session,
        grid,
        schema,
        predicates(grid, options.get("where", ())),
        choice(options, "include-missing", MISSING),
        split_of(options),
        count(options, "batch-rows") or 1 << 17,
    )


class GridReader(TaskReader):
    """The reader of rows that meet the conditions of the option ``where``.

    It does not take conditions from the query. Spark (4.1 to 4.3) keeps the plan with the conditions of one
    query in the relation, and uses it again for other queries on the same DataFrame or view.
    """

    #: Spark pickles a reader before it asks for tasks, and hides an error of a plan in one of pickle.
    plans_at_once: ClassVar[bool] = True

    def __init__(self, session: Session, options: Options, schema: pa.Schema) -> None:
        self._request: ScanRequest | None = scan_request(session, options, schema)
        if self.plans_at_once:
            self.partitions()

    @override
    def partitions(self) -> Sequence[spark.InputPartition]:
        if self._request is not None:
            self._shared, self._tasks = self._request.plan()
            self._request = None
        return super().partitions()

    @override
    def _batches(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        return batches(self._shared, task)

    def __getstate__(self) -> dict[str, Any]:
        self.partitions()
        return super().__getstate__() | {"_request": None}


class PushedGridReader(GridReader):
    """The reader for Sail, which plans each place of a query. It leaves out rows that no filter needs."""

    plans_at_once = False

    @override
    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:
        request = self._request
        assert request is not None  # Sail pushes filters before it asks for tasks
        known = (filter_predicate(each, request.schema) for each in filters)
        pushed = pushed_conditions(request.grid, request.schema, known)
        self._request = replace(request, where=(*request.where, *pushed))
        return filters


def require_columns(grid: Grid, schema: pa.Schema) -> None:
    """Raise ``InvalidInputError`` for columns of Spark that do not fit the repository.

    The repository may lack a column, or have it with values of another kind, or the schema may name it twice.
    """
    columns = {each.name.lower(): each.name for each in grid.columns}
    unknown = [name for name in schema.names if name.lower() not in columns]
    if unknown:
        names = ", ".join(unknown)
        raise InvalidInputError(
            f"A column must be one of {', '.join(columns.values())}, got {names}"
            f"{suggest(unknown[0], list(columns.values()))}. Spark's catalog (or the given schema) has "
            f"{names}, and the repository does not. Drop the table and create it again, or pass another "
            "schema",
            ErrorKind.NODE_NOT_FOUND,
        )
    require_distinct_names([grid.column(name).name for name in schema.names])
    for field in schema:
        stored = grid.column(field.name).type
        if not can_become(stored, field.type):
            raise misfit(
                f"The column {field.name} must have the type {stored} in Spark's catalog, or in the given "
                f"schema, got {field.type}. Drop the table and create it again, or pass another schema"
            )


class MetadataReader(TaskReader):
    """The reader of a table about the repository, in one task."""

    def __init__(self, repo: Repository, options: Options, schema: pa.Schema) -> None:
        super().__init__((repo, dict(options), schema), [options["table"]])

    @override
    def _batches(self, task: str) -> Iterator[pa.RecordBatch]:
        repo, options, schema = self._shared
        table = repository_tables.table(repo, options)
        by_lower_case = {each.lower(): each for each in table.column_names}
        if unknown := [name for name in schema.names if name.lower() not in by_lower_case]:
            raise InvalidInputError(
                f"The columns must be those of the table {task} ({', '.join(table.column_names)}), got "
                f"{unknown[0]}",
                ErrorKind.NODE_NOT_FOUND,
            )
        columns = [cast(table[by_lower_case[field.name.lower()]], field) for field in schema]
        yield from pa.table(columns, schema=schema).to_batches(max_chunksize=1 << 17)


class RowChangesTable:
    """The versions that the options name, as snapshot ids, and the columns of the changes between them.

    The ``grid`` without dimensions has all columns, ``schema`` those of the option ``columns``.
    """

    def __init__(self, repo: Repository, options: Options) -> None:
        if options.get("include-missing", "fill") != "fill":
            raise InvalidInputError(
                f"The table row_changes must have include-missing=fill, got {options['include-missing']!r}"
            )
        if "end" in options:
            session = repo.readonly_session(snapshot_id=snapshot_named(repo, options["end"]))
        else:
            session = session_at(repo, options)
        end = session.snapshot_id
        start = options.get("start") or repo.lookup_snapshot(end).parent_id or end
        start = snapshot_named(repo, start)
        self.versions: Final = {"start": start, "end": end}
        is_net = flag(options, "net-changes", True) or start == end
        self._commits = [repo.lookup_snapshot(end)] if is_net else _commits(repo, start, end)
        self._split = split_of(options)
        selection, where = selection_of(options), options.get("where", ())
        last = TableVersion.of(session, selection, where)
        assert last is not None  # the method raises an error for the last version
        ids = [start, *(each.id for each in self._commits[:-1])]
        earlier = [repo.readonly_session(snapshot_id=each) for each in ids]
        self._tables = [*(TableVersion.of(each, selection, where, last.grid) for each in earlier), last]
        self._columns = _columns([each for each in self._tables if each is not None])
        coding = coding_of({}, object)  # no element is read
        columns = (Column(each.name, None, (), Decoder(each.type, coding)) for each in self._columns)
        self.grid: Final = Grid((), (), tuple(columns), ())
        names = listed(options, "columns")
        self.schema: Final = self.grid.schema(dict.fromkeys([CHANGE, *names]) if names else None)

    def plans(self, schema: pa.Schema) -> list[tuple[Comparison, list[ChangeTask]]]:
        """Return the comparisons and their tasks, for the columns and types of a schema."""
        request = ChangeRequest(self._columns, schema, self._split)
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
            f"which is not in the history of {end}. Leave out net-changes to compare the two versions"
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
        raise misfit(
            f"The columns of the table row_changes must not have the name {min(taken)}, got an array of this "
            "name. Choose other arrays with the option variables"
        )
    return (added[0], *rows, *added[1:])


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for numbers of two types; for other types ``other``."""
    if one == other or not (is_number(one) and is_number(other)):
        return other
    return pa.from_numpy_dtype(np.promote_types(one.to_pandas_dtype(), other.to_pandas_dtype()))


class RowChangesReader(TaskReader):
    """The reader of the rows that differ between two versions."""

    def __init__(self, table: RowChangesTable, schema: pa.Schema) -> None:
        require_columns(table.grid, schema)
        plans = table.plans(schema)
        tasks = [(number, task) for number, (_, tasks) in enumerate(plans) for task in tasks]
        super().__init__([comparison for comparison, _ in plans], tasks)

    @override
    def _batches(self, task: tuple[int, ChangeTask]) -> Iterator[pa.RecordBatch]:
        return change_batches(self._shared[task[0]], task[1])
