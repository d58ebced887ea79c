"""Functions of SQL, each of which returns a table: rows, tables about a repository, and its upkeep.

    SELECT * FROM frazil_chunks('s3://bucket/ice', options => 'tag=v1,array=tas')
    SELECT * FROM frazil_tag('climate', 'v2')

The first argument is the path. Options of the data source are named arguments, with ``_`` instead of ``-``,
and the argument ``options`` has several of them as ``name=value``, separated by commas.

`frazil.sql.procedures` declares the functions of upkeep. ``frazil_rows`` pins its version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf, udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from frazil.arguments import conflicting
from frazil.errors import InvalidInputError
from frazil.spark.runtime.on_spark import causes_only
from frazil.spark.runtime.session import is_sail
from frazil.spark.tables import options as source_options
from frazil.spark.tables import repository_tables
from frazil.spark.tables.data_source_reader import GridReader, schema_of_rows
from frazil.spark.tables.repository_tables import SCHEMAS
from frazil.spark.tables.schemas import to_arrow_schema, to_spark, without_zones
from frazil.sql.procedures import UPKEEP, Pin, UpkeepCall, UpkeepFunction, Values, options_of_call


@dataclass
class Analysis(AnalyzeResult):
    """The columns of a function, and the state that its work starts from."""

    pin: Pin = field(default_factory=dict)


def without_analysis(cls: type) -> type:
    """Return the class for Sail (0.7), which does not bring the analysis to a task: the task repeats it.

    So the pin is the state when the task begins.
    """

    class OnSail(cls):  # type: ignore[misc]  # mypy knows no base from an argument
        """pyspark demands this constructor, where no analysis arrives."""

        def __init__(self) -> None:
            super().__init__(None)

    OnSail.__name__ = OnSail.__qualname__ = cls.__name__
    return OnSail


def upkeep_udtf(function: UpkeepFunction, profiles: source_options.Profiles, is_sail: bool = False) -> Any:
    """Return a function of SQL, for the registration with Spark."""
    times = [name for name, each in function.arguments.items() if each.annotation is datetime]
    schema = to_spark(function.schema)

    @causes_only
    class UpkeepTable:
        """One function: ``analyze`` runs on the driver, ``eval`` in a task."""

        def __init__(self, analysis: Analysis | None) -> None:
            self._pin = None if analysis is None else analysis.pin

        @staticmethod
        def analyze(*args: AnalyzeArgument, **kwargs: AnalyzeArgument) -> Analysis:
            every = bound(function.name, function.parameters, args, kwargs)
            inputs = constants(function.name, every, variable=times)
            # Values of expressions are not known yet.
            options, values = function.parse(inputs, every.keys() - inputs.keys())
            repo = source_options.repository_at(profiles.resolve(options))
            return Analysis(schema, pin=function.pin(repo, **values))

        def eval(self, *args: Any, **kwargs: Any) -> Iterator[tuple[Any, ...]]:
            inputs = bound(function.name, function.parameters, args, kwargs)
            options, values = function.parse(inputs)
            repo = source_options.repository_at(profiles.resolve(options))
            pin = function.pin(repo, **values) if self._pin is None else self._pin
            call = UpkeepCall(repo, profiles, pin)
            for row in function.work(call, **values):
                yield tuple(row[name] for name in function.schema.names)

    UpkeepTable.__name__ = UpkeepTable.__qualname__ = function.name
    return udtf(without_analysis(UpkeepTable) if is_sail else UpkeepTable)


def bound[T](
    name: str, parameters: Sequence[str], args: Sequence[T], kwargs: Mapping[str, T]
) -> dict[str, T]:
    """Return the arguments of a call by their names."""
    if len(args) > len(parameters):
        raise InvalidInputError(f"{name} takes {', '.join(parameters)} without names, got {len(args)}")
    positional = dict(zip(parameters, args, strict=False))
    named = {each.lower(): value for each, value in kwargs.items()}
    twice = sorted(positional.keys() & named.keys())
    if twice:
        raise conflicting(f"{name} takes the argument {twice[0]} once, got it with and without its name")
    return positional | named


def constants(
    name: str, arguments: Mapping[str, AnalyzeArgument], variable: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the values of arguments. Those of ``variable`` may be expressions, without a value yet."""
    for each, argument in arguments.items():
        if not argument.isConstantExpression and each not in variable:
            raise InvalidInputError(f"The argument {each} of {name} must be a literal, got an expression")
    return {each: argument.value for each, argument in arguments.items() if argument.isConstantExpression}


_ROW_ARGUMENTS: Final = ("path", "options")


def rows_function(profiles: source_options.Profiles, is_sail: bool = False) -> Any:
    """Return ``frazil_rows``, for the registration with Spark.

    Sail (0.7) cannot convert a ``TimestampType`` here. There the function gives times without a zone, in UTC.
    """

    def analysis_of(values: Values, has_part: bool) -> Analysis:
        options = profiles.resolve(
            options_of_call(values, source_options.Use("frazil_rows", source_options.ROWS.options))
        )
        if has_part and "partitions" not in options:
            raise InvalidInputError("frazil_rows must have the argument partitions with part, got none")
        session = source_options.open_session_at(options)
        version = {"snapshot-id": session.snapshot_id}
        pinned = {
            name: each for name, each in options.items() if name not in source_options.VERSION_OPTIONS
        } | version
        schema = schema_of_rows(session, options)
        return Analysis(to_spark(without_zones(schema) if is_sail else schema), pin=pinned)

    @causes_only
    class Rows:
        """The rows of one version, or of one of its tasks: the argument ``part`` may be a column."""

        def __init__(self, analysis: Analysis | None) -> None:
            self._analysis = analysis

        @staticmethod
        def analyze(*args: AnalyzeArgument, **kwargs: AnalyzeArgument) -> Analysis:
            arguments = bound("frazil_rows", _ROW_ARGUMENTS, args, kwargs)
            has_part = arguments.pop("part", None) is not None
            return analysis_of(constants("frazil_rows", arguments), has_part)

        def eval(self, *args: Any, part: int | None = None, **kwargs: Any) -> Iterator[tuple[Any, ...]]:
            if self._analysis is None:
                arguments = bound("frazil_rows", _ROW_ARGUMENTS, args, kwargs)
                self._analysis = analysis_of(arguments, part is not None)
            options = self._analysis.pin
            number = int(options.get("partitions", 0))
            if part is not None and not 0 <= part < number:
                raise InvalidInputError(f"The argument part must be from 0 to {number - 1}, got {part}")
            session = source_options.open_session_at(options)
            reader = GridReader(session, options, to_arrow_schema(self._analysis.schema))
            partitions = reader.partitions()
            for partition in partitions if part is None else partitions[part : part + 1]:
                for batch in reader.read(partition):
                    yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    return udtf(without_analysis(Rows) if is_sail else Rows)


def table_function(table: str, profiles: source_options.Profiles) -> Any:
    """Return the function for one of the tables, for the registration with Spark."""
    use = source_options.use_of_table(table)

    @causes_only
    class Function:
        """One of the tables. Its arguments come as columns of one row."""

        def eval(
            self, path: pa.Array | None = None, options: pa.Array | None = None, **named: pa.Array
        ) -> Iterator[pa.Table | pa.RecordBatch]:
            columns = {"path": path, "options": options, **named}
            values = {name: each[0].as_py() for name, each in columns.items() if each is not None}
            query = profiles.resolve(options_of_call(values, use))
            rows = repository_tables.table(source_options.repository_at(query), query | {"table": table})
            # Sail (0.7) fails without a batch, and a table without rows has none.
            yield rows if len(rows) else pa.RecordBatch.from_pylist([], rows.schema)

    Function.__name__ = Function.__qualname__ = f"frazil_{table}"
    return arrow_udtf(Function, returnType=to_spark(repository_tables.SCHEMAS[table]))


def register_functions(spark: SparkSession, profiles: source_options.Profiles) -> None:
    """Register ``frazil_rows``, the tables about a repository, and the functions for upkeep."""
    on_sail = is_sail(spark)
    functions = {
        "frazil_rows": rows_function(profiles, on_sail),
        **{f"frazil_{table}": table_function(table, profiles) for table in SCHEMAS},
        **{each.name: upkeep_udtf(each, profiles, on_sail) for each in UPKEEP},
    }
    for name, function in functions.items():
        spark.udtf.register(name, function)
