"""Arrow schemas and Spark schemas, for the types that columns have."""

from __future__ import annotations

from collections.abc import Mapping
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
    """The type of a column in Spark."""
    if pa.types.is_list(arrow):
        return ArrayType(to_spark_type(arrow.value_type))
    return _SPARK[arrow]


def to_spark(schema: pa.Schema, metadata: Mapping[str, Any] | None = None) -> StructType:
    """The schema in Spark, with ``metadata`` at each of its columns."""
    said = dict(metadata or {})
    return StructType(
        [StructField(field.name, to_spark_type(field.type), field.nullable, dict(said)) for field in schema]
    )


def to_arrow_type(spark: DataType, name: str) -> pa.DataType:
    """``InvalidInputError`` for a type that no column can have."""
    if isinstance(spark, ArrayType):
        return pa.list_(to_arrow_type(spark.elementType, name))
    found = _ARROW.get(spark)
    if found is None and isinstance(spark, StringType):
        return pa.string()  # with a collation, or a length
    if isinstance(spark, DayTimeIntervalType):
        return pa.duration("us")  # of hours only, ...
    if found is None:
        raise InvalidInputError(
            f"expected a simple type for the column {name}, found {spark.simpleString()}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return found


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """The schema of batches for Spark."""
    return pa.schema([pa.field(each.name, to_arrow_type(each.dataType, each.name)) for each in schema.fields])


def can_become(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column can be read as another type: there is a conversion, for some values at least.

    A number as another number, also a narrower one: a value that does not fit is an error of its task.

    >>> can_become(pa.float64(), pa.float32()), can_become(pa.string(), pa.binary())
    (True, True)
    >>> can_become(pa.bool_(), pa.timestamp("us"))
    False
    """
    try:
        pa.nulls(0, stored).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
