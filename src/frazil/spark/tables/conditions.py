"""Conditions on columns, in Python as tuples, in options as SQL (`frazil.answers.conditions`).

    [("lat", ">=", 80.0), ("name", "in", ("a", "b")), ("tas", "is not", None)]
    lat >= 80 AND name IN ('a', 'b') AND (tas IS NOT NULL OR tas > 3)

All conditions must hold, and each is on one column. A row stays if all of its conditions are true. As in
Spark, NaN equals NaN and is larger than every other number. A number is compared in the type of the column:
0.1 is the number that float32 has for it. Times of other calendars are compared as times, and with LIKE as
text. Values without an exact comparison, such as a number with a text, are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.answers.conditions import (
    OPERATORS,
    SPELLINGS,
    Junction,
    Predicate,
    ValueComparison,
    ValueRanges,
    parse,
)
from frazil.arrow.grid import Column, Grid, Values
from frazil.cf_times import Mask
from frazil.errors import InvalidInputError

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
        return np.dtype("M8[us]" if pa.types.is_timestamp(column.type) else "m8[us]")
    return column.decoder.coding.number_dtype
