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
import warnings
from collections.abc import MutableMapping
from typing import ClassVar, override

from pyspark.sql import SparkSession
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.spark.functions.registration import register_functions
from frazil.spark.runtime.session import get_spark
from frazil.spark.streams.change_feed import FEED, SCHEMA
from frazil.spark.streams.sink import RowsWriter, stream_writer
from frazil.spark.streams.source import FeedReader, RefusedReader, stream_reader
from frazil.spark.tables import location, repository_tables
from frazil.spark.tables.data_source_reader import GridReader, MetadataReader, schema_of_rows
from frazil.spark.tables.data_source_writer import TableWriter
from frazil.spark.tables.location import SECRET, Options
from frazil.spark.tables.options import READ, SINK, STREAM, TABLE_OPTIONS, WRITE, Use, options_of
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.profiles import Profiles
from frazil.spark.tables.repository_schemas import ROW_CHANGES
from frazil.spark.tables.row_changes_reader import RowChangesReader, RowChangesTable
from frazil.spark.tables.schemas import to_arrow_schema, to_spark


@causes_only
class FrazilDataSource(spark.DataSource):
    """The data source ``frazil``; docs/sql.md lists its options.

    A subclass with a ``handle``, a pickled repository, does not need a path. A subclass with ``profiles``
    does not read the profile file of its process.
    """

    handle: ClassVar[bytes | None] = None
    profiles: ClassVar[Profiles] = Profiles()

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
        named = options_of(self.options, READ)
        stored = {name: value for name, value in named.items() if name not in SECRET}
        if "provider" in self.options and len(stored) < len(named):
            lost = ", ".join(sorted(named.keys() - stored.keys()))
            warnings.warn(
                f"A table of Spark's catalog does not keep the secret options {lost}. Set them in the "
                "environment of the processes, or in a profile",
                UserWarning,
                stacklevel=2,
            )
        is_located = not named.keys().isdisjoint({"path", "profile"})
        metadata = {TABLE_OPTIONS: json.dumps(stored)} if is_located else None
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
        options = self._options(READ, schema)
        if options.get("table") == FEED:
            raise InvalidInputError(
                f"The table {FEED} must be read as a stream, got a batch query. Use spark.readStream, or the "
                "table changes",
                ErrorKind.INVALID_ARGUMENT,
            )
        if options.get("table") == ROW_CHANGES:
            changes = RowChangesTable(self._repository(options), {**options, **self._versions})
            return RowChangesReader(changes, to_arrow_schema(schema))
        if "table" in options:
            return MetadataReader(self._repository(options), options, to_arrow_schema(schema))
        session = self._session or self._session_at(options)
        return GridReader(session, options, to_arrow_schema(schema))

    @override
    def writer(self, schema: StructType, overwrite: bool) -> spark.DataSourceWriter:
        options = self._options(WRITE, schema)
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
        try:
            options = self._options(STREAM, schema)
            return stream_reader(self._repository(options), options, schema)
        except IcechunkError as error:
            return RefusedReader(error)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> RowsWriter:
        options = self._options(SINK, schema)
        return stream_writer(self._repository(options), options, schema, overwrite)

    def _options(self, use: Use, schema: StructType) -> dict[str, str]:
        return self.profiles.resolve(options_of(self.options, use, schema))

    def _repository(self, options: Options) -> Repository:
        if self.handle is not None:
            repo: Repository = pickle.loads(self.handle)
            return repo
        return location.repository_at(options)

    def _session_at(self, options: Options) -> Session:
        if self.handle is not None:
            return location.session_at(self._repository(options), options)
        return location.open_session_at(options)


def register(spark: SparkSession | None = None) -> None:
    """Register the data source ``frazil`` and its SQL functions with a Spark session.

    Where Frazil is installed beside Spark's Python, ``format("frazil")`` also works without this call. The
    functions ``frazil_rows(...)``, ``frazil_snapshots(...)`` and others need it.

    The call reads the profiles of Spark's configuration (``spark.frazil.profile.NAME.OPTION``) and of the
    profile file. After a change of profiles, call it again.

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
    profiles = Profiles.of_configuration(spark.conf.getAll)
    spark.dataSource.register(_with_profiles(profiles))
    register_functions(spark, profiles)


def _with_profiles(named: Profiles) -> type[FrazilDataSource]:
    class WithProfiles(FrazilDataSource):
        """The data source with profiles. It is pickled by value, and its profiles with it."""

    WithProfiles.profiles = named
    return WithProfiles


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
