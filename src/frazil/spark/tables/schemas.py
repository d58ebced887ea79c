"""Arrow schemas and Spark schemas, for the types that columns have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from frazil.errors import ErrorKind, InvalidInputError

_SPARK: Final[dict[pa.DataType, DataType]] = {
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us", "UTC"): TimestampType(),
    pa.timestamp("us"): TimestampNTZType(),
    pa.date32(): DateType(),
    pa.duration("us"): DayTimeIntervalType(),
}
_ARROW: Final = {spark: arrow for arrow, spark in _SPARK.items()}


def to_spark_type(arrow: pa.DataType) -> DataType:
    """Return the type of a column in Spark."""
    if pa.types.is_list(arrow):
        return ArrayType(to_spark_type(arrow.value_type))
    return _SPARK[arrow]


def to_spark(schema: pa.Schema, metadata: Mapping[str, Any] | None = None) -> StructType:
    """Return the schema in Spark, with ``metadata`` at each of its columns."""
    column_metadata = dict(metadata or {})
    return StructType(
        [
            StructField(field.name, to_spark_type(field.type), field.nullable, dict(column_metadata))
            for field in schema
        ]
    )


def to_arrow_type(spark: DataType, name: str) -> pa.DataType:
    """Return the Arrow type. Raise ``InvalidInputError`` for a type that a column cannot have."""
    if isinstance(spark, ArrayType):
        return pa.list_(to_arrow_type(spark.elementType, name))
    arrow = _ARROW.get(spark)
    if arrow is None and isinstance(spark, StringType):
        return pa.string()  # with a collation, or a length
    if isinstance(spark, DayTimeIntervalType):
        return pa.duration("us")  # of hours only, ...
    if arrow is None:
        raise InvalidInputError(
            f"The column {name} must have a simple type, got {spark.simpleString()}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return arrow


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of batches for Spark."""
    return pa.schema([pa.field(each.name, to_arrow_type(each.dataType, each.name)) for each in schema.fields])


def can_become(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column can be read as another type: values of one kind, or their text.

    A number can be read as another number, also a narrower one: a value that does not fit is an error of its
    task. A number cannot be read as a time or a truth value, even where Arrow has a conversion. A time cannot
    be read as a date, which would lose the hours without an error.
    """
    if stored == wanted:
        return True
    return any(is_one(stored) and becomes(wanted) for is_one, becomes in _BECOMES)


def _is_number(column: pa.DataType) -> bool:
    return bool(pa.types.is_integer(column) or pa.types.is_floating(column))


def _is_text(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_binary(column))


def _has_text(column: pa.DataType) -> bool:
    return not pa.types.is_nested(column) and not pa.types.is_duration(column)


#: Types of columns, and the types that they can be read as.
_BECOMES: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...]] = (
    (_is_number, _is_number),
    (_is_text, _is_text),
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (_has_text, pa.types.is_string),
)
