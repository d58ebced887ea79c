"""The tables about a repository as functions of SQL.

    SELECT message FROM frazil_snapshots('/data/ice')
    SELECT path, sum(length) FROM frazil_chunks('s3://bucket/ice', options => 'tag=v1,array=tas') GROUP BY
    path

A function for each table of ``metadata``: its first argument is the path, the second the options of the data
source (``branch``, ``tag``, ``snapshot-id``, ``as-of-timestamp``, ``array``, ``slab``, ``start``, ``end``
and those of an object store) as ``name=value``, separated by commas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.tables import location, repository_tables
from frazil.spark.tables.options import Use, advice
from frazil.spark.tables.schemas import to_spark


def register_functions(spark: SparkSession) -> None:
    """Register ``frazil_snapshots`` and the other functions with a session."""
    for name in repository_tables.SCHEMAS:
        function: Any = arrow_udtf(_function(name), returnType=to_spark(repository_tables.SCHEMAS[name]))
        spark.udtf.register(f"frazil_{name}", function)


def _function(table: str) -> type[Any]:
    class Function:
        """One of the tables. Its arguments come as columns of one row."""

        def eval(self, path: pa.Array, options: pa.Array | None = None) -> Iterator[pa.Table]:
            query = parse_options(None if options is None else options[0].as_py())
            query |= {"path": path[0].as_py() or "", "table": table}
            yield repository_tables.table(location.repository_at(query), query)

    Function.__name__ = Function.__qualname__ = f"frazil_{table}"
    return Function


def parse_options(text: str | None) -> dict[str, str]:
    """Return options as text.

    >>> parse_options("tag=v1, array=tas")
    {'tag': 'v1', 'array': 'tas'}
    """
    parts = [each.partition("=") for each in (text or "").split(",") if each.strip()]
    pairs = [(name.strip().lower(), equal, value) for name, equal, value in parts]
    unknown = [
        advice(name, _USE) if equal else f"An option must be name=value, got `{name}`"
        for name, equal, _ in pairs
        if not equal or name not in _USE.options
    ]
    if unknown:
        raise InvalidInputError("; ".join(unknown), ErrorKind.INVALID_ARGUMENT)
    return {name: value.strip() for name, _, value in pairs}


_USE = Use("a function", location.PLACE_OPTIONS - {"path"} | {"array", "slab", "start", "end"})
