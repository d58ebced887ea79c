"""The readers of the data source: rows of arrays, and tables about a repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, override

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import datasource as spark

from frazil.display import suggest
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.spark.tables import location, repository_tables
from frazil.spark.tables.batches import batches
from frazil.spark.tables.conditions import predicates
from frazil.spark.tables.decoding import CALENDARS
from frazil.spark.tables.grid import Grid, Selection
from frazil.spark.tables.group_grid import grid_of
from frazil.spark.tables.location import Options
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.scan_plan import MISSING, Scan, ScanTask, Split, plan_scan
from frazil.spark.tables.schemas import can_become
from frazil.spark.tables.write_layout import require_distinct_names


def selection_of(options: Options) -> Selection:
    """Return which arrays the options name, and how they are read."""
    variables = location.listed(options, "variables") or location.listed(options, "arrays")
    return Selection(
        options.get("group", "/"),
        tuple(variables),
        location.flag(options, "cf", True),
        location.choice(options, "calendar", CALENDARS),
        location.count(options, "block-rows") or Selection().block_rows,
    )


def schema_of_rows(session: Session, options: Options) -> pa.Schema:
    """Return the columns of the rows that the options choose."""
    grid = grid_of(session, selection_of(options))
    names = location.listed(options, "columns")
    if not names:
        return grid.schema
    return pa.schema([grid.schema.field(grid.column(name).name) for name in names])


def split_of(options: Options) -> Split:
    """Return how the options split rows into tasks."""
    return Split(location.count(options, "partitions"), location.count(options, "rows-per-partition"))


@causes_only
class GridReader(spark.DataSourceReader):
    """The reader of rows that meet the conditions of the option ``where``.

    It does not take conditions from the query. Spark (4.1 to 4.3) keeps the plan with the conditions of one
    query in the relation, and uses it again for other queries on the same DataFrame or view, and for other
    branches of a union. These queries would get the rows of the first query, and the data source could not
    detect it.
    """

    def __init__(self, session: Session, options: Options, schema: pa.Schema) -> None:
        self._session = session
        self._options = dict(options)
        self._schema = schema
        self._grid: Grid = grid_of(session, selection_of(options))
        require_columns(self._grid, schema)
        self._where = predicates(self._grid, options.get("where", ()))
        self._plan: tuple[Scan, list[ScanTask]] | None = None

    @override
    def partitions(self) -> Sequence[spark.InputPartition]:
        # Spark requires at least one partition.
        tasks: list[Any] = [*self._planned()[1]] or [None]
        return list(map(spark.InputPartition, tasks))

    @override
    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        task: ScanTask | None = partition.value
        if task is not None:
            yield from batches(self._planned()[0], task)

    def _planned(self) -> tuple[Scan, list[ScanTask]]:
        if self._plan is None:
            options = self._options
            self._plan = plan_scan(
                self._session,
                self._grid,
                self._where,
                schema=self._schema,
                missing=location.choice(options, "include-missing", MISSING),
                split=split_of(options),
                batch_rows=location.count(options, "batch-rows") or 1 << 17,
            )
        return self._plan

    def __reduce__(self) -> tuple[Any, ...]:
        # The pickle for the tasks does not include nodes and tables of the session.
        try:
            scan = self._planned()[0]
        except IcechunkError:
            # ``partitions``, which Spark calls next, raises it again. Here it would be an error of pickle.
            return (GridReader.__new__, (GridReader,))
        return (_of_tasks, (scan,))


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
            raise InvalidInputError(
                f"The column {field.name} must have the type {stored} in Spark's catalog, or in the given "
                f"schema, got {field.type}. Drop the table and create it again, or pass another schema",
                ErrorKind.INVALID_ARRAY_METADATA,
            )


def _of_tasks(scan: Scan) -> GridReader:
    reader = GridReader.__new__(GridReader)
    reader._plan = (scan, [])
    return reader


@causes_only
class MetadataReader(spark.DataSourceReader):
    """The reader of a table about the repository, in one task."""

    def __init__(self, repo: Repository, options: Options, schema: pa.Schema) -> None:
        self._repo = repo
        self._options = dict(options)
        self._schema = schema

    @override
    def partitions(self) -> Sequence[spark.InputPartition]:
        return [spark.InputPartition(None)]

    @override
    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        table = repository_tables.table(self._repo, self._options)
        columns = [_read_as(table, field, self._options["table"]) for field in self._schema]
        yield from pa.table(columns, schema=self._schema).to_batches(max_chunksize=1 << 17)


def _read_as(table: pa.Table, field: pa.Field, name: str) -> pa.ChunkedArray:
    """Return a column of a table as a field of the user's schema; upper and lower case do not matter."""
    names = [each for each in table.column_names if each.lower() == field.name.lower()]
    if not names:
        raise InvalidInputError(
            f"The columns must be those of the table {name} ({', '.join(table.column_names)}), got "
            f"{field.name}",
            ErrorKind.NODE_NOT_FOUND,
        )
    column = table[names[0]]
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"The column {field.name} must have values of {field.type}, got {column.type}: {error}",
            ErrorKind.INVALID_ARRAY_METADATA,
        ) from error
