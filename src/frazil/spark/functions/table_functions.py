"""The tables about a repository as functions of SQL.

    SELECT message FROM frazil_snapshots('/data/ice')
    SELECT path, sum(length) FROM frazil_chunks('s3://bucket/ice', tag => 'v1', array => 'tas') GROUP BY path

There is a function for each table of `repository_tables`. Its arguments are the path and the options of the
data source for the table: see `arguments`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.functions import arrow_udtf

from frazil.spark.functions.arguments import options_of_call
from frazil.spark.tables import location, repository_tables
from frazil.spark.tables.options import use_of_table
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.profiles import Profiles
from frazil.spark.tables.schemas import to_spark


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
            yield repository_tables.table(location.repository_at(query), query | {"table": table})

    Function.__name__ = Function.__qualname__ = f"frazil_{table}"
    return arrow_udtf(Function, returnType=to_spark(repository_tables.SCHEMAS[table]))
