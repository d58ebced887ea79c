"""The columns of tables: their types in Arrow and in Spark, and conditions on them.

Conditions are tuples in Python, and SQL in options (`frazil.answers.conditions`):

    [("lat", ">=", 80.0), ("name", "in", ("a", "b")), ("tas", "is not", None)]
    lat >= 80 AND name IN ('a', 'b') AND (tas IS NOT NULL OR tas > 3)

All conditions must hold, and each is on one column. A row stays if all of its conditions are true. As in
Spark, NaN equals NaN and is larger than every other number. A number is compared in the type of the column:
0.1 is the number that float32 has for it. Times of other calendars are compared as times, and with LIKE as
text. Values without an exact comparison, such as a number with a text, are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import datasource as filters
from pyspark.sql import types as spark

from frazil.answers.conditions import (
    OPERATORS,
    SPELLINGS,
    Junction,
    Predicate,
    ValueComparison,
    ValueRanges,
    joined,
    parse,
)
from frazil.arguments import misfit
from frazil.arrow.grid import Column, Grid, Values, is_number
from frazil.cf_times import Mask
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
    if pa.types.is_struct(arrow):
        return to_spark(pa.schema(list(arrow)))
    return _SPARK[arrow]


def to_spark(schema: pa.Schema, metadata: Mapping[str, Any] | None = None) -> spark.StructType:
    """Return the schema in Spark, with ``metadata`` at each of its columns."""
    fields = ((field.name, to_spark_type(field.type), field.nullable) for field in schema)
    return spark.StructType([spark.StructField(*field, dict(metadata or {})) for field in fields])


def to_arrow_type(column: spark.DataType, name: str) -> pa.DataType:
    """Return the Arrow type. Raise ``InvalidInputError`` for a type that a column cannot have."""
    if isinstance(column, spark.ArrayType):
        return pa.list_(to_arrow_type(column.elementType, name))
    if isinstance(column, spark.StructType):
        return pa.struct([(each.name, to_arrow_type(each.dataType, name)) for each in column.fields])
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
    if pa.types.is_date(stored):
        return bool(pa.types.is_timestamp(target))
    return any(is_one(stored) and is_one(target) for is_one in (is_number, _is_text, pa.types.is_timestamp))


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


#: ("lat", ">=", 80.0): column, comparison, value.
type Condition = tuple[str, str, Any]
type Conditions = str | Iterable[Condition]

_QUERY: Final = "Other conditions belong to the query: `df.where(...)`, or WHERE in SQL"


@dataclass(frozen=True, slots=True)
class ColumnCondition:
    """A condition on one column."""

    column: str
    predicate: Predicate

    def holds(self, values: Values) -> Mask:
        """Return where the condition is true, in the shape of the values."""
        return self.predicate.holds(values.data, values.null)

    def may_hold(self, ranges: ValueRanges) -> Mask:
        """Return where the condition can be true for a value of a box."""
        return self.predicate.may_hold(ranges)


def predicates(grid: Grid, conditions: Conditions) -> list[ColumnCondition]:
    """Return the conditions on columns of a grid, all of which a row must meet."""
    parts: Iterable[Predicate]
    if not isinstance(conditions, str):
        parts = map(_of_tuple, conditions)
    elif conditions.strip():
        try:
            condition = parse(conditions, has_columns=True)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error.problem}. {_QUERY}") from None
        parts = condition.parts if isinstance(condition, Junction) and condition.is_all else (condition,)
    else:
        parts = ()
    return [_on_column(grid, part) for part in parts]


#: A filter of Spark -> its comparison.
_FILTERS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
    "IsNull": "null",
    "IsNotNull": "null",
    "StringStartsWith": "starts",
    "StringEndsWith": "ends",
    "StringContains": "contains",
}


def filter_comparison(name: str, column: str, value: Any) -> ValueComparison | None:
    """Return the comparison of a filter of Spark; None for a filter that is not known."""
    op = _FILTERS.get(name)
    value = tuple(value) if op == "in" else value
    return None if op is None else ValueComparison(op, value, column, name == "IsNotNull")


#: More than the days from 1970 to every DATE.
_MOST_DAYS: Final = 1 << 22


def filter_predicate(each: filters.Filter, schema: pa.Schema) -> Predicate | None:
    """Return a condition that all rows of a filter of Sail meet; None if it is not known.

    Sail (0.7) gives NOT LIKE as LIKE, and has another order for NaN with a sign. Times are numbers: of
    microseconds, or of days if the query compares a part of a time. Small numbers are not clear.
    """
    is_negated = isinstance(each, filters.Not) and isinstance(each.child, filters.EqualTo)
    inner: Any = each.child if isinstance(each, filters.Not) and is_negated else each
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    kind, value = type(inner).__name__, cast("Any", getattr(inner, "value", None))
    if len(path) != 1 or path[0] not in schema.names or kind.startswith("String"):
        return None
    name = path[0]
    column = schema.field(name).type
    if pa.types.is_date(column) or pa.types.is_timestamp(column):
        unit: Literal["us", "D"] = "D" if pa.types.is_date(column) else "us"
        numbers = value if kind == "In" else [value]
        if unit == "us" and any(one is not None and abs(one) < _MOST_DAYS for one in numbers):
            return None
        times = [
            None if one is None else np.datetime64(one, unit) for one in (value if kind == "In" else [value])
        ]
        value = times if kind == "In" else times[0]
    known = filter_comparison(kind, name, value)
    if known is None:
        return None
    known = known.negation() if is_negated else known
    is_nan = ValueComparison("=", np.nan, name)
    return joined([known, is_nan], is_all=False) if pa.types.is_floating(column) else known


def pushed_conditions(
    grid: Grid, schema: pa.Schema, pushed: Iterable[Predicate | None]
) -> list[ColumnCondition]:
    """Return conditions that rows of the filters meet, for columns of a schema.

    Spark evaluates all filters again. So a filter that has no exact comparison here is left out.
    """
    types = {grid.column(field.name).name: field.type for field in schema}
    conditions = []
    for each in pushed:
        parts = each.parts if isinstance(each, Junction) and each.is_all else (each,)
        for part in parts:
            try:
                condition = None if part is None else _on_column(grid, part)
            except InvalidInputError:
                continue
            column = None if condition is None else grid.column(condition.column)
            # Spark compares the texts of times of other calendars.
            if condition is None or column is None or column.decoder.calendar is not None:
                continue
            if types.get(column.name) == column.type:
                conditions.append(condition)
    return conditions


def _of_tuple(condition: Condition) -> ValueComparison:
    name, text, value = condition
    spelling = text.lower()
    op, is_negated = SPELLINGS.get(spelling, (spelling, False))
    if op not in OPERATORS:
        names = ", ".join((*OPERATORS, *SPELLINGS))
        raise InvalidInputError(f"The comparison of a condition must be one of {names}, got {spelling!r}")
    return ValueComparison(op, tuple(value) if op == "in" else value, name, is_negated)


def _on_column(grid: Grid, condition: Predicate) -> ColumnCondition:
    columns = {
        column.name: column for each in condition.comparisons() for column in (grid.column(each.column),)
    }
    if len(columns) != 1:
        raise InvalidInputError(f"OR must join conditions on one column, got {', '.join(columns)}. {_QUERY}")
    (column,) = columns.values()
    condition = condition.each(lambda each: replace(each, column=column.name))
    dtype, calendar = _dtype(column), column.decoder.calendar
    return ColumnCondition(
        column.name, condition.typed(dtype, calendar, name=column.name, nan_is_largest=True)
    )


def _dtype(column: Column) -> np.dtype[Any]:
    """Return the type of the values of a column."""
    if pa.types.is_temporal(column.type):
        return np.dtype("m8[us]" if pa.types.is_duration(column.type) else "M8[us]")
    return column.decoder.coding.number_dtype
