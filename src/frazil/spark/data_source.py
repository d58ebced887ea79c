"""The data source ``frazil`` of Spark: ``spark.read.format("frazil")`` and its writers.

Spark calls these classes in separate processes on the driver's machine, one after the other. Each process
gets a pickle of the object of the process before:

    schema()        which version is read, and its columns
    reader()        the requested columns, compared with the existing ones
    partitions()    the tasks, with the references of their chunks
    read()          on the executors

``schema`` looks the version up once, and the pickle carries it along. For a table of the catalog, and for a
schema that the user passes, Spark does not call ``schema``; the version is then looked up during planning.

``CREATE TABLE`` keeps the schema and forgets the options. So ``schema`` writes the options, except secrets,
into the metadata of the columns, where ``reader`` and ``writer`` find them.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, override

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from frazil.display import suggest
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.spark.runtime.session import get_spark
from frazil.spark.streams.change_feed import FEED, SCHEMA
from frazil.spark.streams.sink import RowsWriter, stream_writer
from frazil.spark.streams.source import FeedReader, stream_reader
from frazil.spark.tables import location, repository_tables
from frazil.spark.tables.batches import batches
from frazil.spark.tables.conditions import predicates
from frazil.spark.tables.data_source_writer import TableWriter
from frazil.spark.tables.decoding import CALENDARS
from frazil.spark.tables.grid import Grid, Selection
from frazil.spark.tables.group_grid import grid_of
from frazil.spark.tables.location import SECRET, Options
from frazil.spark.tables.options import READ, STREAM, TABLE_OPTIONS, WRITE, options_of
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.scan_plan import MISSING, Scan, ScanTask, Split, plan_scan
from frazil.spark.tables.schemas import can_become, to_arrow_schema, to_spark
from frazil.spark.tables.sql_functions import register_functions
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


@causes_only
class FrazilDataSource(spark.DataSource):
    """The data source ``frazil``; docs/sql.md lists its options.

    A subclass with a ``handle``, a pickled repository, does not need a path.
    """

    handle: ClassVar[bytes | None] = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._session: Session | None = None

    @classmethod
    @override
    def name(cls) -> str:
        return "frazil"

    @override
    def schema(self) -> StructType:
        options = options_of(self.options, READ)
        stored = {name: value for name, value in options.items() if name not in SECRET}
        metadata = {TABLE_OPTIONS: json.dumps(stored)} if "path" in options else None
        if options.get("table") == FEED:
            return to_spark(SCHEMA, metadata)
        if "table" in options:
            return to_spark(repository_tables.schema_of(options["table"]), metadata)
        self._session = location.session_at(self._repository(options), options)
        grid = grid_of(self._session, selection_of(options))
        names = location.listed(options, "columns")
        chosen = (
            pa.schema([grid.schema.field(grid.column(name).name) for name in names]) if names else grid.schema
        )
        return to_spark(chosen, metadata)

    @override
    def reader(self, schema: StructType) -> spark.DataSourceReader:
        options = options_of(self.options, READ, schema)
        repo = self._repository(options)
        if options.get("table") == FEED:
            raise InvalidInputError(
                f"The table {FEED} must be read as a stream, got a batch query. Use spark.readStream, or the "
                "table changes",
                ErrorKind.INVALID_ARGUMENT,
            )
        if "table" in options:
            return MetadataReader(repo, options, to_arrow_schema(schema))
        session = self._session or location.session_at(repo, options)
        return GridReader(session, options, to_arrow_schema(schema))

    @override
    def writer(self, schema: StructType, overwrite: bool) -> spark.DataSourceWriter:
        options = options_of(self.options, WRITE, schema)
        if "path" not in options and self.handle is None:
            raise InvalidInputError(
                "Option `path` must be set to write, got none. Spark loses the path of a table if all "
                "columns of an INSERT have the names and types of the table: rename one of them (SELECT x "
                "AS a, ...), as columns go by position. CREATE TABLE ... AS SELECT never has the path: write "
                "with DataFrame.write.format('frazil').option('path', ...)",
                ErrorKind.INVALID_ARGUMENT,
            )
        return TableWriter(self._repository(options), options, to_arrow_schema(schema), overwrite)

    @override
    def streamReader(self, schema: StructType) -> FeedReader:
        options = options_of(self.options, STREAM, schema)
        return stream_reader(self._repository(options), options, schema)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> RowsWriter:
        options = options_of(self.options, WRITE, schema)
        return stream_writer(self._repository(options), options, schema, overwrite)

    def _repository(self, options: Options) -> Repository:
        if self.handle is not None:
            repo: Repository = pickle.loads(self.handle)
            return repo
        return location.repository_at(options)


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
        _require_columns(self._grid, schema)
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
                split=Split(
                    location.count(options, "partitions"), location.count(options, "rows-per-partition")
                ),
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


def _require_columns(grid: Grid, schema: pa.Schema) -> None:
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


def register(spark: SparkSession | None = None) -> None:
    """Register the data source ``frazil`` and its SQL functions with a Spark session.

    Where Frazil is installed beside Spark's Python, ``format("frazil")`` also works without this call. The
    functions ``frazil_snapshots(...)``, ``frazil_chunks(...)`` and others need it.

    Args:
        spark: The session. The default, None, is the session of `get_spark`.

    Examples:
        >>> import frazil.spark
        >>> spark = frazil.spark.get_spark()
        >>> frazil.spark.register(spark)
        >>> spark.catalog.functionExists("frazil_snapshots")
        True
        >>> spark.sql("SELECT message FROM frazil_snapshots('s3://bucket/ice')").show()  # doctest: +SKIP
    """
    spark = get_spark() if spark is None else spark
    spark.dataSource.register(FrazilDataSource)
    register_functions(spark)


def register_repository(spark: SparkSession, repo: Repository) -> str:
    """Register a data source that knows this repository and needs no ``path``; return its name."""
    handle = pickle.dumps(repo)
    name = f"frazil_{hashlib.sha256(handle).hexdigest()[:12]}"

    class Bound(FrazilDataSource):
        """A data source for one repository. It is pickled by value, so no option holds the handle."""

        @classmethod
        def name(cls) -> str:
            return name

    Bound.handle = handle
    spark.dataSource.register(Bound)
    return name
