"""Arrow schemas and Spark schemas, for the types that columns have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import types as spark

from frazil.arguments import misfit
from frazil.errors import InvalidInputError

_SPARK: Final[dict[pa.DataType, spark.DataType]] = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.timestamp("us", "UTC"): spark.TimestampType(),
    pa.timestamp("us"): spark.TimestampNTZType(),
    pa.date32(): spark.DateType(),
    pa.duration("us"): spark.DayTimeIntervalType(),
}
_ARROW: Final = {other: arrow for arrow, other in _SPARK.items()}
#: Names of types in SQL, in lower case.
_NAMED: Final = {
    name: arrow for arrow, kind in _SPARK.items() for name in (kind.simpleString(), kind.typeName())
}


def to_spark_type(arrow: pa.DataType) -> spark.DataType:
    """Return the type of a column in Spark."""
    if pa.types.is_list(arrow):
        return spark.ArrayType(to_spark_type(arrow.value_type))
    return _SPARK[arrow]


def to_spark(schema: pa.Schema, metadata: Mapping[str, Any] | None = None) -> spark.StructType:
    """Return the schema in Spark, with ``metadata`` at each of its columns."""
    fields = ((field.name, to_spark_type(field.type), field.nullable) for field in schema)
    return spark.StructType([spark.StructField(*field, dict(metadata or {})) for field in fields])


def to_arrow_type(column: spark.DataType, name: str) -> pa.DataType:
    """Return the Arrow type. Raise ``InvalidInputError`` for a type that a column cannot have."""
    if isinstance(column, spark.ArrayType):
        return pa.list_(to_arrow_type(column.elementType, name))
    arrow = _ARROW.get(column)
    if arrow is None and isinstance(column, spark.StringType):
        return pa.string()  # with a collation, or a length
    if isinstance(column, spark.DayTimeIntervalType):
        return pa.duration("us")  # of hours only, ...
    if arrow is None:
        raise misfit(f"The column {name} must have a simple type, got {column.simpleString()}")
    return arrow


def to_arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the schema of batches for Spark."""
    return pa.schema([pa.field(each.name, to_arrow_type(each.dataType, each.name)) for each in schema.fields])


def without_zones(schema: pa.Schema) -> pa.Schema:
    """Return the schema with times in UTC that have no time zone."""
    is_time = pa.types.is_timestamp
    return pa.schema([each.with_type(pa.timestamp("us")) if is_time(each.type) else each for each in schema])


def can_become(stored: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a column can be read as another type: values of one kind, or their text.

    A number can be read as another number, also a narrower one: a value that does not fit is an error of its
    task. A number cannot be read as a time or a truth value, even where Arrow has a conversion. A time cannot
    be read as a date, which would lose the hours without an error.
    """
    has_text = not pa.types.is_nested(stored) and not pa.types.is_duration(stored)
    if stored == target or (has_text and pa.types.is_string(target)):
        return True
    return any(is_one(stored) and is_one(target) for is_one in (is_number, _is_text, pa.types.is_timestamp))


def is_number(column: pa.DataType) -> bool:
    """Return whether a column has numbers."""
    return bool(pa.types.is_integer(column) or pa.types.is_floating(column))


def _is_text(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_binary(column))


def declared_schema(columns: Sequence[str]) -> pa.Schema | None:
    """Return the schema of columns with types, such as ``lat DOUBLE``; None if no column has a type."""
    pairs = [each.rpartition(" ") for each in columns]
    types = [_NAMED.get(kind.lower()) if name else None for name, _, kind in pairs]
    if not any(types):
        return None
    if not all(types):
        wrong = columns[types.index(None)]
        raise InvalidInputError(
            f"Option `columns` must have a type for each column, or for none, got `{wrong}`. The types are "
            f"{', '.join(sorted({kind.simpleString() for kind in _SPARK.values()}))}"
        )
    return pa.schema([pa.field(name.strip(), each) for (name, _, _), each in zip(pairs, types, strict=True)])
