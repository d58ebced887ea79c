"""SQL of Spark over the tables of repositories: `Catalog`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from frazil.arrow.grid import Grid
from frazil.arrow.row_jobs import RowSource
from frazil.errors import InvalidInputError
from frazil.handle.repository import Repository
from frazil.spark.data_source import register_repository, scan
from frazil.spark.runtime.session import get_spark, is_connect
from frazil.spark.tables import repository_tables
from frazil.spark.tables.schemas import predicates, to_spark
from frazil.spark.tables.write_table import DataFrameRows
from frazil.sql.catalog import StatementRunner, repositories_of
from frazil.sql.names import Namespace, TablePlace, metadata_rows
from frazil.sql.queries import condition_text

_UTC: Final = frozenset({"utc", "etc/utc", "gmt", "z", "+00:00"})


class SparkSql:
    """Spark as the engine of a catalog."""

    dialect = "spark"
    keeps_names = False
    syntax_errors: tuple[type[Exception], ...] = (ParseException,)

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._views: list[str] = []

    def register(self, view: str, place: TablePlace, conditions: Sequence[exp.Expr]) -> None:
        """Make the rows of a table a view."""
        if place.metadata is not None:
            self._add(view, self.frame(metadata_rows(place, place.metadata)))
            return
        grid = place.grid()
        names = [each.name for each in grid.columns]
        where = " AND ".join(self._safe(grid, conditions))
        frame = scan(self._spark, place.version, columns=names, where=where, selection=place.selection)
        self._add(view, frame)

    def _safe(self, grid: Grid, conditions: Sequence[exp.Expr]) -> Iterator[str]:
        """Yield the conditions that a scan evaluates as Spark does. A time may be in another zone."""
        is_utc = str(self._spark.conf.get("spark.sql.session.timeZone")).lower() in _UTC
        for each in conditions:
            text = condition_text(each)
            has_text = any(one.is_string for one in each.find_all(exp.Literal))
            if text is None or (has_text and not is_utc):
                continue
            try:
                predicates(grid, text)
            except InvalidInputError:  # a condition of Spark only
                continue
            yield text

    def register_changes(self, view: str, place: TablePlace, start: str, end: str) -> None:
        """Make the changed rows between two snapshots a view."""
        name = register_repository(self._spark, place.version.repo)
        options = {"table": repository_tables.ROW_CHANGES, "start": start, "end": end, "group": place.group}
        options |= {"variables": ",".join(place.variables)} if place.variables else {}
        self._add(view, self._spark.read.format(name).options(**options).load())

    def _add(self, view: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(view)
        self._views.append(view)

    def run(self, text: str) -> DataFrame:
        """Run a text of SQL."""
        return self._spark.sql(text)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run a query, and return its rows."""
        return list(map(tuple, self._spark.sql(text).collect()))

    def columns(self, text: str) -> list[str]:
        """Return the names of the columns of a query."""
        return self._spark.sql(text).columns

    @contextmanager
    def source(self, text: str) -> Iterator[RowSource]:
        """Enter a context with the rows of a query. A cache would have a partition for each of a shuffle."""
        yield DataFrameRows(self._spark.sql(text))

    def create_view(self, name: str, text: str, *, replace: bool) -> None:
        """Make a query a temporary view."""
        frame = self._spark.sql(text)
        frame.createOrReplaceTempView(name) if replace else frame.createTempView(name)

    def frame(self, rows: pa.Table) -> DataFrame:
        """Return rows as a DataFrame."""
        return self._spark.createDataFrame(rows, to_spark(rows.schema))

    def end_statement(self) -> None:
        """Drop the views. Spark Connect needs them for each action of a DataFrame."""
        if not is_connect(self._spark):
            for each in self._views:
                self._spark.catalog.dropTempView(each)
        self._views.clear()


class Catalog:
    """The tables of some repositories, for SQL of Spark, Spark Connect and Sail.

    Args:
        spark: The session. None is the session of `get_spark`.
        repositories: The repositories by their name in SQL: each is a ``Repository``, or its URL, folder or
            profile.

    Raises:
        RepositoryNotFoundError: There is no repository at a place.

    Examples:
        >>> import frazil.spark, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice-sql"))
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="air/t", data=np.arange(4.0), dimension_names=["x"])
        >>> catalog = frazil.spark.Catalog(frazil.spark.get_spark(), {"ice": repo})
        >>> _ = catalog.sql("UPDATE ice.air SET t = t + 10 WHERE x > 1")
        >>> catalog.sql("SELECT sum(t) FROM ice.air").first()[0]
        26.0
    """

    def __init__(
        self, spark: SparkSession | None, repositories: Mapping[str, Repository | str | PathLike[str]]
    ) -> None:
        engine = SparkSql(get_spark() if spark is None else spark)
        self._runner = StatementRunner(engine, Namespace(repositories_of(repositories)))

    def sql(self, text: str) -> DataFrame:
        """Run one or more statements of SQL.

        Args:
            text: The statements, in the SQL of Spark, separated by semicolons. They run one after the other.

        Returns:
            The DataFrame of the last statement: the rows of a query, or what a statement has done.

        Raises:
            InvalidInputError: The statement is wrong, or a grid has no such operation.
            NodeNotFoundError: A name of the catalog means no table.
            ConflictError: Another writer has changed rows that the statement has read.
        """
        frame: DataFrame = self._runner.run(text)
        return frame
