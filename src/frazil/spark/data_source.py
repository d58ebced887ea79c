"""The data source ``frazil`` of Spark, and functions that read rows and streams of an open repository.

Spark calls the classes of a data source in separate processes on the driver's machine, one after the
other. Each process gets a pickle of the object of the process before: ``schema`` finds the version and its
columns, ``reader`` compares them with the requested ones and plans the tasks, with the references of their
chunks. Executors read only these chunks.

``schema`` looks the version up once, and the pickle carries it along. For a table of the catalog, and for
a schema that the user passes, Spark does not call ``schema``; the version is then looked up during
planning. ``CREATE TABLE`` keeps the schema and forgets the options. So ``schema`` writes the options,
except secrets, into the metadata of the columns, where ``reader`` finds them. ``writer`` does not look there:
the columns of a query carry the metadata of the table that the rows come from.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, override

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from frazil.arguments import conflicting
from frazil.arrow.grid import Selection, grid_of
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, RepositoryNotFoundError
from frazil.handle.repository import Repository
from frazil.jobs.job import Source, Target, Version
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.session.session import Session
from frazil.spark.runtime.on_spark import causes_only
from frazil.spark.runtime.session import get_spark, is_connect, is_sail
from frazil.spark.streams.sink import RowsWriter
from frazil.spark.streams.source import FEED, SCHEMA, FeedReader, RefusedReader
from frazil.spark.tables import options as source_options
from frazil.spark.tables import repository_tables
from frazil.spark.tables import scan as scans
from frazil.spark.tables.data_source_reader import (
    GridReader,
    MetadataReader,
    PushedGridReader,
    RowChangesReader,
    RowChangesTable,
    scan_request,
    schema_of_rows,
)
from frazil.spark.tables.repository_tables import ROW_CHANGES
from frazil.spark.tables.schemas import Conditions, declared_schema, predicates, to_arrow_schema, to_spark
from frazil.spark.tables.write_table import SparkRowWriter

if TYPE_CHECKING:
    from frazil.spark.functions import sql_functions
    from frazil.spark.tables import jvm_table
else:
    # The processes of Spark that plan or read do not register functions.
    sql_functions = ModuleOnDemand("frazil.spark.functions.sql_functions")
    jvm_table = ModuleOnDemand("frazil.spark.tables.jvm_table")  # pyspark-client has no py4j


@causes_only
class FrazilDataSource(spark.DataSource):
    """The data source ``frazil``; docs/sql-reference.md lists its options.

    A subclass with a ``handle``, a pickled repository, does not need a path. A subclass with ``profiles``
    does not read the profile file of its process.
    """

    handle: ClassVar[bytes | None] = None
    profiles: ClassVar[source_options.Profiles] = source_options.Profiles()
    rows_reader: ClassVar[type[GridReader]] = GridReader

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._session: Session | None = None
        self._versions: dict[str, str] = {}

    @classmethod
    @override
    def name(cls) -> str:
        return "frazil"

    @override
    def schema(self) -> StructType:
        named = source_options.options_of(self.options, source_options.READ)
        declared = None if "table" in named else declared_schema(source_options.listed(named, "columns"))
        dropped = (
            source_options.SECRET | {"columns"} if declared else source_options.SECRET
        )  # the catalog has the declared columns
        stored = {name: value for name, value in named.items() if name not in dropped}
        lost = ", ".join(sorted(named.keys() & source_options.SECRET))
        if "provider" in self.options and lost:
            warnings.warn(
                f"A table of Spark's catalog does not keep the secret options {lost}. Set them in the "
                "environment of the processes, or in a profile",
                UserWarning,
                stacklevel=2,
            )
        # Only a table of the catalog forgets its options. Rows of other relations carry no metadata along.
        is_stored = "provider" in self.options and not named.keys().isdisjoint(source_options.LOCATION)
        metadata = {source_options.TABLE_OPTIONS: json.dumps(stored)} if is_stored else None
        if declared is not None:
            return to_spark(declared, metadata)
        options = self.profiles.resolve(named)
        if options.get("table") == FEED:
            return to_spark(SCHEMA, metadata)
        if options.get("table") == ROW_CHANGES:
            changes = RowChangesTable(self._repository(options), options)
            self._versions = changes.versions
            return to_spark(changes.schema, metadata)
        if "table" in options:
            return to_spark(repository_tables.schema_of(options["table"]), metadata)
        self._session = self._session_at(options)
        return to_spark(schema_of_rows(self._session, options), metadata)

    @override
    def reader(self, schema: StructType) -> spark.DataSourceReader:
        options = self._options(source_options.READ, schema)
        if self.handle is None and "path" not in options:
            raise InvalidInputError(
                "The repository of a table must be in Spark's catalog, got none: a table that was created "
                "with a list of columns or AS SELECT, or whose columns were altered, has no options. Type "
                "SELECT ... FROM t WITH (path = '...'), or drop the table and type CREATE TABLE t USING "
                "frazil OPTIONS (path '...')"
            )
        if options.get("table") == FEED:
            raise InvalidInputError(
                f"The table {FEED} must be a stream, got a query. Use spark.readStream or the table changes"
            )
        if options.get("table") == ROW_CHANGES:
            changes = RowChangesTable(self._repository(options), {**options, **self._versions})
            return RowChangesReader(changes, to_arrow_schema(schema))
        if "table" in options:
            return MetadataReader(self._repository(options), options, to_arrow_schema(schema))
        session = self._session or self._session_at(options)
        return self.rows_reader(session, options, to_arrow_schema(schema))

    @override
    def writer(self, schema: StructType, overwrite: bool) -> spark.DataSourceWriter:
        options = self._options(source_options.WRITE)
        return SparkRowWriter(self._repository_to_write(options), options, to_arrow_schema(schema), overwrite)

    @override
    def streamReader(self, schema: StructType) -> FeedReader:
        try:
            options = self._options(source_options.STREAM, schema)
            if (table := options.get("table")) != FEED:
                source = "rows of arrays" if table is None else f"the table {table}"
                raise InvalidInputError(
                    f"A stream must read commits, the table {FEED}, got {source}. Set the option "
                    f"table={FEED}, or read {source} with a batch query (spark.read)"
                )
            return FeedReader(self._repository(options), options, schema.names)
        except IcechunkError as error:
            return RefusedReader(error)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> RowsWriter:
        options = self._options(source_options.SINK)
        return RowsWriter(self._repository_to_write(options), options, schema.names, overwrite)

    def _options(self, use: source_options.Use, schema: StructType | None = None) -> dict[str, str]:
        return self.profiles.resolve(source_options.options_of(self.options, use, schema))

    def _repository(self, options: source_options.Options) -> Repository:
        if self.handle is not None:
            repo: Repository = pickle.loads(self.handle)
            return repo
        return source_options.repository_at(options)

    def _repository_to_write(self, options: source_options.Options) -> Repository:
        """Return the repository. The first write creates it, if the rows can create arrays."""
        if self.handle is None and "path" not in options:
            raise InvalidInputError(
                "The statement must name the repository that it writes, got none: Spark gives a writer the "
                "options of the statement only, and not those of the table. Type INSERT INTO t WITH (path = "
                "'...') SELECT ..., or DataFrame.writeTo('t').option('path', '...').append(); profile may "
                "replace path. CREATE TABLE ... AS SELECT cannot name it: write with "
                "DataFrame.write.format('frazil').option('path', '...'), then create the table"
            )
        try:
            return self._repository(options)
        except RepositoryNotFoundError as error:
            if "dims" not in options:
                advice = "With the option `dims`, the first write creates the repository"
                raise RepositoryNotFoundError(f"{error}. {advice}") from error
            return Repository.open_or_create(source_options.storage_at(options))

    def _session_at(self, options: source_options.Options) -> Session:
        if self.handle is not None:
            return source_options.session_at(self._repository(options), options)
        return source_options.open_session_at(options)


class SailDataSource(FrazilDataSource):
    """The data source for Sail, where the schemas are those of Arrow.

    Sail (0.7) cannot convert a ``TimestampType``, and gives a reader the Arrow schema of a query.
    """

    rows_reader = PushedGridReader

    @override
    def schema(self) -> pa.Schema:  # Sail takes it, pyspark does not
        return to_arrow_schema(super().schema())

    @override
    def reader(self, schema: pa.Schema) -> spark.DataSourceReader:
        return super().reader(from_arrow_schema(schema))

    @override
    def writer(self, schema: pa.Schema, overwrite: bool) -> spark.DataSourceWriter:
        return super().writer(from_arrow_schema(schema), overwrite)


def _source_for(spark: SparkSession) -> type[FrazilDataSource]:
    return SailDataSource if is_sail(spark) else FrazilDataSource


def register(
    spark: SparkSession | None = None, source: Source | None = None, *, view: str = "", **version: str
) -> list[str]:
    """Register the data source ``frazil`` and its SQL functions with a Spark session, and views of arrays.

    Where Frazil is installed for Spark's Python, ``format("frazil")`` also works without this call. The
    functions ``frazil_rows(...)``, ``frazil_snapshots(...)`` and others need it.

    The call reads the profiles of Spark's configuration (``spark.frazil.profile.NAME.OPTION``) and of the
    profile file. After a change of profiles, call it again.

    With a ``source``, each group that has arrays becomes a temporary view of its rows. A view is a `scan` (on
    Sail a `read`): its queries read only the columns and the chunks that they need. A view keeps the version
    of the call; call it again for the next version.

    Args:
        spark: The session. The default, None, is the session of `get_spark`.
        source: The `Repository` or the `Version` of the views. The default, None, makes no views.
        view: The name of the view of the root group. Other views have the path of their group behind it, with
            ``_`` for ``/`` and for characters that are not letters or digits: ``climate_air_daily``. Without
            it, the default, the views are ``root`` and ``air_daily``.
        **version: For a repository, the version to read: ``branch``, ``tag`` or ``snapshot_id``. The default
            is the branch ``main``.

    Returns:
        The names of the views. A group has no view if its arrays with the most dimensions are on several
        grids; the call warns about it.

    Raises:
        InvalidInputError: Two groups have one name (``conflicting-arguments``).

    Examples:
        >>> import frazil.spark, numpy as np, zarr
        >>> spark = frazil.spark.get_spark()
        >>> frazil.spark.register(spark)
        []
        >>> spark.catalog.functionExists("frazil_snapshots")
        True
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice-views"))
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="air/t", data=np.arange(4.0), dimension_names=["x"])
        >>> frazil.spark.register(spark, repo, view="climate")
        ['climate_air']
        >>> spark.sql("SELECT max(t) FROM climate_air WHERE x < 3").first()[0]
        2.0
    """
    spark = get_spark() if spark is None else spark
    named = source_options.Profiles.of_configuration(spark.conf.getAll)

    class WithProfiles(_source_for(spark)):  # type: ignore[misc]  # mypy knows no base from a call
        """The data source with profiles. It is pickled by value, and its profiles with it."""

    WithProfiles.profiles = named
    spark.dataSource.register(WithProfiles)
    sql_functions.register_functions(spark, named)
    return [] if source is None else _create_views(spark, Version.of(source, **version), view)


def _create_views(spark: SparkSession, at: Version, root: str) -> list[str]:
    """Create a view for each group that has arrays. Returns their names."""
    arrays = repository_tables.arrays(at.session())["path"].to_pylist()
    groups: dict[str, str] = {}
    for group in sorted({path.rpartition("/")[0] or "/" for path in arrays}):
        words = re.sub(r"\W", "_", group.strip("/"))
        name = "_".join(filter(None, (root, words))) or "root"
        if name in groups:
            raise conflicting(f"Groups must have different names of views, got {groups[name]} and {group}")
        groups[name] = group
    views = []
    for name, group in groups.items():
        try:
            if is_sail(spark):
                frame = read(spark, at, options={"group": group})
            else:
                frame = scan(spark, at, selection=Selection(group))
        except InvalidInputError as error:
            warnings.warn(f"The group {group} has no view: {error.problem}", UserWarning, stacklevel=3)
            continue
        frame.createOrReplaceTempView(name)
        views.append(name)
    return views


def register_repository(spark: SparkSession, repo: Repository, text: str = "") -> str:
    """Register a data source that knows this repository and needs no ``path``; return its name.

    Spark shows the name in the plan of a query, so it ends with the ``text``.
    """
    handle = pickle.dumps(repo)
    name = f"frazil_{hashlib.sha256(handle).hexdigest()[:12]}{text}"

    class Bound(_source_for(spark)):  # type: ignore[misc]
        """A data source for one repository. It is pickled by value, so no option holds the handle."""

        @classmethod
        def name(cls) -> str:
            return name

    Bound.handle = handle
    spark.dataSource.register(Bound)
    return name


_SELECTION: Final = Selection()
_SPLIT: Final = scans.Split()


def read(
    spark: SparkSession | None,
    source: Source,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    options: Mapping[str, str] | None = None,
    **version: str,
) -> DataFrame:
    """Return the rows of arrays as a DataFrame, with the options of the data source.

    Queries read only the columns and the chunks that they need, unless the session is one of Spark Connect.
    On Sail they read only such chunks. The version is looked up once, during the call. The credentials of the
    repository are not in the plan of the query.

    Args:
        spark: The session. The default, None, is the session of `get_spark`.
        source: The `Repository` or the `Version` to read.
        columns: The names of the columns, upper or lower case. The default, None, is all columns.
        where: Conditions in SQL that every row must meet, such as ``"lat >= 80 AND x IN (1, 2)"``: see
            `frazil.spark.tables.schemas`. The default, None, is all rows.
        options: Other options of the data source (docs/sql-reference.md), such as ``{"group": "/air"}``,
            except those of the place.
        **version: For a repository, the version to read: ``branch``, ``tag`` or ``snapshot_id``. The default
            is the branch ``main``.

    Returns:
        The DataFrame.

    Raises:
        InvalidInputError: A column does not exist (``node-not-found``).

    Examples:
        >>> import frazil.spark, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice"))
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
        >>> table = frazil.spark.read(frazil.spark.get_spark(), repo, where="t > 2")
        >>> table.columns
        ['x', 't']
    """
    spark = get_spark() if spark is None else spark
    at = Version.of(source, **version)
    text = _plan_text(at.repo, at.snapshot_id, where)
    table = source_options.canonical(options or {}).get("table")
    # Some tables about a repository have no version, such as its snapshots.
    of_table = source_options.TABLES.get(table or "")
    has_version = of_table is None or "snapshot-id" in of_table
    query = {"snapshot-id": at.snapshot_id} if has_version else {}
    query |= {**(options or {}), **({} if where is None else {"where": where})}
    if not is_connect(spark) and table is None:
        request = scan_request(at.session(), source_options.options_of(query, source_options.READ), columns)
        return jvm_table.frame_of_table(spark, request, register_repository(spark, at.repo), text)
    name = register_repository(spark, at.repo, f" {text}")
    reader = spark.read.format(name).options(**query)
    if columns is None:
        return reader.load()
    schema = reader.load().schema
    by_lower_case = {name.lower(): name for name in schema.names}
    unknown = [name for name in columns if name.lower() not in by_lower_case]
    if unknown:
        raise InvalidInputError(
            f"columns must be among {', '.join(schema.names)}, got {', '.join(unknown)}",
            ErrorKind.NODE_NOT_FOUND,
        )
    fields = [schema[by_lower_case[name.lower()]] for name in columns]
    return reader.schema(type(schema)(fields)).load()


def scan(
    spark: SparkSession | None,
    source: Source,
    *,
    columns: Sequence[str] | None = None,
    where: Conditions = (),
    selection: Selection = _SELECTION,
    split: scans.Split = _SPLIT,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    missing: str = "fill",
    batch_rows: int = 1 << 17,
) -> DataFrame:
    """Return the rows of arrays as a DataFrame that reads only the columns that a query names.

    The DataFrame has the same rows as that of `read`. Spark does not read chunks of columns that a query does
    not name, so ``count()`` reads none, nor chunks that the conditions of a query leave out. Through Spark
    Connect, only ``where`` leaves out chunks. The plan of a query (``explain()``) shows the place, the
    snapshot and ``where``.

    Args:
        spark: The session. The default, None, is the session of `get_spark`.
        source: The `Repository` or the `Version` to read.
        columns: The names of the columns. The default, None, is all columns.
        where: Conditions that every row must meet, as tuples (``[("lat", ">=", 80.0)]``) or in SQL: see
            `frazil.spark.tables.schemas`. The default is all rows.
        selection: A `Selection`: which arrays are the table, and how they are read. The default is the arrays
            of the root group that share the dimensions of the array with the most dimensions.
        split: A `Split`: how the blocks are distributed over tasks. The default is about 128 MiB of rows for
            each task.
        branch: The name of the branch to read. Without ``branch``, ``tag`` and ``snapshot_id`` it is
            ``main``.
        tag: The name of the tag to read.
        snapshot_id: The id of the snapshot to read.
        missing: The value of cells whose chunk is missing: ``"fill"`` (the fill value of the array, the
            default), ``"null"``, or ``"skip"`` (no row if no variable has a chunk).
        batch_rows: The most rows that Spark gets at a time. The default is 131072.

    Returns:
        The DataFrame.

    Raises:
        InvalidInputError: A column does not exist (``node-not-found``), or a condition cannot be evaluated
            exactly (``invalid-argument``).

    Examples:
        >>> import frazil.spark, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice-scan"))
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
        >>> table = frazil.spark.scan(frazil.spark.get_spark(), repo, where=[("t", ">", 2.0)])
        >>> [(row.x, row.t) for row in table.collect()]
        [(3, 3.0)]
    """
    spark = get_spark() if spark is None else spark
    at = Version.of(source, branch=branch, tag=tag, snapshot_id=snapshot_id)
    settings = {"missing": missing, "split": split, "batch_rows": batch_rows}
    request = _request(at.session(), columns, where, selection, **settings)
    text = _plan_text(at.repo, request.session.snapshot_id, where)
    if not is_connect(spark):
        return jvm_table.frame_of_table(spark, request, register_repository(spark, at.repo), text)
    return scans.frame_of_rows(spark, *request.plan(), text)


def _plan_text(repo: Repository, snapshot_id: str, where: Conditions | None) -> str:
    """Return what the plans of Spark show of a version."""
    return f"{repo.storage.label()} rows of {snapshot_id}" + (f" where {where}" if where else "")


def map_chunks(
    spark: SparkSession | None,
    source: Source,
    function: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]],
    schema: str,
    *,
    columns: Sequence[str] | None = None,
    where: Conditions = (),
    selection: Selection = _SELECTION,
    split: scans.Split = _SPLIT,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
) -> DataFrame:
    """Call a function for each block of arrays, and return a DataFrame with one row for each block.

    This is for sums, counts and extremes, which need no rows.

    Args:
        spark: The session. The default, None, is the session of `get_spark`.
        source: The `Repository` or the `Version` to read.
        function: The function. It gets a mapping of column names to masked numpy arrays of one shape; cells
            that a condition excludes, and null, are masked. It returns a value for each column of ``schema``.
        schema: The columns of the result, in the syntax of Spark: ``"total double, cells long"``.
        columns: The names of the columns that the function gets. The default, None, is all columns.
        where: Conditions on the cells, as in `scan`.
        selection: The `Selection`, as in `scan`.
        split: The `Split`, as in `scan`.
        branch: The name of the branch to read, by default ``main``.
        tag: The name of the tag to read.
        snapshot_id: The id of the snapshot to read.

    Returns:
        The DataFrame.

    Raises:
        InvalidInputError: As in `scan`.

    Examples:
        >>> import frazil.spark, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice-map"))
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
        >>> def total(block):
        ...     return {"total": float(block["t"].sum())}
        >>> table = frazil.spark.map_chunks(frazil.spark.get_spark(), repo, total, "total double")
        >>> table.groupBy().sum("total").first()[0]
        6.0
    """
    spark = get_spark() if spark is None else spark
    session = Version.of(source, branch=branch, tag=tag, snapshot_id=snapshot_id).session()
    plan, tasks = plan_rows(session, columns, where, selection, split=split)
    names = [each.split()[0] for each in schema.split(",")]

    def results_of(plan: scans.Scan, task: scans.ScanTask) -> Iterator[pa.RecordBatch]:
        results = [function(block) for block in scans.blocks_of(plan, task)]
        if results:
            yield pa.RecordBatch.from_pydict({name: [each[name] for each in results] for name in names})

    return scans.frame_of_tasks(spark, plan, tasks, results_of, schema)


def _request(
    session: Session, columns: Sequence[str] | None, where: Conditions, selection: Selection, **settings: Any
) -> scans.ScanRequest:
    grid = grid_of(session, selection)
    return scans.ScanRequest(session, grid, grid.schema(columns), predicates(grid, where), **settings)


def plan_rows(
    session: Session, columns: Sequence[str] | None, where: Conditions, selection: Selection, **settings: Any
) -> tuple[scans.Scan, list[scans.ScanTask]]:
    """Return the tasks of a scan, with the settings of `ScanRequest`."""
    return _request(session, columns, where, selection, **settings).plan()


def read_stream(
    repo: Repository,
    *,
    branch: str = "main",
    start: str = "earliest",
    since: datetime | None = None,
    spark: SparkSession | None = None,
    max_commits: int | None = None,
    max_rows: int | None = None,
    fail_on_data_loss: bool = True,
) -> DataFrame:
    """Return the commits of a branch as a stream, with one row for each changed chunk and node.

    docs/streaming.md describes the columns.

    Args:
        repo: The repository.
        branch: The name of the branch.
        start: Where a new query begins: ``"earliest"`` (the default), ``"latest"`` (with the next commit), or
            after a tag or a snapshot id.
        since: A time: a new query begins with the commits after it, and ``start`` is ignored. The default,
            None, uses ``start``.
        spark: The session. The default, None, is the session of `get_spark`.
        max_commits: The most commits of a batch. The default, None, sets no limit.
        max_rows: The most changed chunks of a batch, which always has at least one commit. The default, None,
            sets no limit.
        fail_on_data_loss: Whether the query fails if the branch was reset. With False, the query continues
            after the last commit that both histories have. The default is True.

    Returns:
        A streaming DataFrame.

    Examples:
        >>> import frazil.spark
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("stream"))
        >>> changes = frazil.spark.read_stream(repo, start="latest", spark=frazil.spark.get_spark())
        >>> changes.isStreaming, changes.columns[:2]
        (True, ['snapshot_id', 'parent_id'])
    """
    spark = spark or get_spark()
    values = {
        "table": FEED,
        "branch": branch,
        "stream-from": None if since is not None else start,
        "stream-from-timestamp": since and since.isoformat(),
        "stream-max-commits": max_commits,
        "stream-max-rows": max_rows,
        "stream-fail-on-data-loss": str(fail_on_data_loss).lower(),
    }
    texts = {name: str(value) for name, value in values.items() if value is not None}
    return spark.readStream.format(register_repository(spark, repo)).options(**texts).load()


def write_stream(
    rows: DataFrame,
    target: Target,
    *,
    mode: str = "upsert",
    dims: Sequence[str] | None = None,
    append_dim: str | None = None,
    chunks: Mapping[str, int] | None = None,
    duplicates: str = "error",
    app_id: str | None = None,
    message: str | None = None,
) -> DataStreamWriter:
    """Write a stream of rows with coordinates to arrays, with one commit for each micro-batch.

    Give the writer a trigger and a checkpoint, and start it. The rows of a batch must fit into the memory of
    the driver's machine: see `frazil.spark.streams.sink`.

    Args:
        rows: A streaming DataFrame.
        target: The `Target` of the rows.
        mode: How rows are written: ``"upsert"`` (the default), ``"append"``, ``"backfill"`` or ``"insert"``,
            see `write_table`.
        dims: The columns that are the dimensions of new arrays, see `write_table`.
        append_dim: The dimension along which the mode ``"append"`` adds rows. The default, None, is the first
            one.
        chunks: The chunk lengths of new arrays, by dimension.
        duplicates: What happens to two rows of one cell: ``"error"`` (the default) fails, with ``"last"`` the
            last row wins.
        app_id: A name for the query, instead of Spark's id. A query with a new checkpoint and the same name
            continues the older query. The default, None, is Spark's id.
        message: The message of the commits. The default, None, is a message that names the batch.

    Returns:
        The ``DataStreamWriter`` of Spark.

    Examples:
        >>> import frazil.spark
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice-sink"))
        >>> rates = frazil.spark.get_spark().readStream.format("rate").load()
        >>> rows = rates.selectExpr("value AS x", "value * 2 AS t")
        >>> writer = frazil.spark.write_stream(rows, frazil.spark.Target(repo), dims=["x"])
        >>> type(writer).__name__
        'DataStreamWriter'
        >>> query = writer.option("checkpointLocation", "checkpoint").start()  # doctest: +SKIP
    """
    values = {
        "branch": target.branch,
        "group": target.group,
        "write": mode,
        "dims": ",".join(dims) if dims else None,
        "append-dim": append_dim,
        "chunks": ",".join(map("{}={}".format, chunks, chunks.values())) if chunks else None,
        "duplicates": duplicates,
        "txnAppId": app_id,
        "message": message,
    }
    texts = {name: value for name, value in values.items() if value is not None}
    name = register_repository(rows.sparkSession, target.repo)
    return rows.writeStream.format(name).options(**texts)
