"""The functions of SQL that return rows of arrays and tables about a repository, and the registration of all.

    SELECT time, max(tas) FROM frazil_rows('climate', tag => 'v1', where => 'lat > 0') GROUP BY time
    SELECT path, sum(length) FROM frazil_chunks('s3://bucket/ice', tag => 'v1', array => 'tas') GROUP BY path

Spark calls ``analyze`` of ``frazil_rows`` once for a statement, in a process of the driver: the columns are
those of the version then, and every evaluation reads this version. One task reads all rows, one Python object
for each value, because Spark gives the arguments of a function to one task. The data source reads by many
tasks. There is a function for each table of `repository_tables`. Its arguments are the path and the options
of the data source for the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf, udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from frazil.spark.functions.declaration import constants, options_of_call, upkeep_udtf
from frazil.spark.functions.upkeep import UPKEEP
from frazil.spark.runtime.errors import causes_only
from frazil.spark.tables import repository_tables
from frazil.spark.tables.data_source_reader import GridReader, schema_of_rows
from frazil.spark.tables.options import (
    ROWS,
    VERSION_OPTIONS,
    Profiles,
    Use,
    open_session_at,
    repository_at,
    use_of_table,
)
from frazil.spark.tables.schemas import to_arrow_schema, to_spark
from frazil.spark.tables.snapshot_tables import SCHEMAS

#: The positional arguments.
_POSITIONAL: Final = ("path", "options")
_USE: Final = Use("frazil_rows", ROWS.options)


@dataclass
class RowsAnalysis(AnalyzeResult):
    """The columns of a call, and its options with the id of the snapshot."""

    options: Mapping[str, str] = field(default_factory=dict)


def rows_function(profiles: Profiles) -> Any:
    """Return the function, for the registration with Spark."""

    @causes_only
    class Rows:
        """The rows of one version."""

        def __init__(self, analysis: RowsAnalysis) -> None:
            self._analysis = analysis

        @staticmethod
        def analyze(*args: AnalyzeArgument, **kwargs: AnalyzeArgument) -> RowsAnalysis:
            values = constants("frazil_rows", _POSITIONAL, args, kwargs)
            options = profiles.resolve(options_of_call(values, _USE))
            session = open_session_at(options)
            version = {"snapshot-id": session.snapshot_id}
            pinned = {name: each for name, each in options.items() if name not in VERSION_OPTIONS} | version
            return RowsAnalysis(to_spark(schema_of_rows(session, options)), options=pinned)

        def eval(self, *args: Any, **kwargs: Any) -> Iterator[tuple[Any, ...]]:
            options = self._analysis.options
            session = open_session_at(options)
            reader = GridReader(session, options, to_arrow_schema(self._analysis.schema))
            for partition in reader.partitions():
                for batch in reader.read(partition):
                    yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    return udtf(Rows)


def table_function(table: str, profiles: Profiles) -> Any:
    """Return the function for one of the tables, for the registration with Spark."""
    use = use_of_table(table)

    @causes_only
    class Function:
        """One of the tables. Its arguments come as columns of one row."""

        def eval(
            self, path: pa.Array | None = None, options: pa.Array | None = None, **named: pa.Array
        ) -> Iterator[pa.Table]:
            columns = {"path": path, "options": options, **named}
            values = {name: each[0].as_py() for name, each in columns.items() if each is not None}
            query = profiles.resolve(options_of_call(values, use))
            yield repository_tables.table(repository_at(query), query | {"table": table})

    Function.__name__ = Function.__qualname__ = f"frazil_{table}"
    return arrow_udtf(Function, returnType=to_spark(repository_tables.SCHEMAS[table]))


def register_functions(spark: SparkSession, profiles: Profiles) -> None:
    """Register ``frazil_rows``, the tables about a repository, and the functions for upkeep."""
    functions = {
        "frazil_rows": rows_function(profiles),
        **{f"frazil_{table}": table_function(table, profiles) for table in SCHEMAS},
        **{each.name: upkeep_udtf(each, profiles) for each in UPKEEP},
    }
    for name, function in functions.items():
        spark.udtf.register(name, function)
