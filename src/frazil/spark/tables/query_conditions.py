"""Advice about the conditions of a query, which Spark evaluates after Frazil has read all rows.

Spark tells a data source the conditions if ``spark.sql.python.filterPushdown.enabled`` is true. The reader
does not use them (see `GridReader`). It counts the blocks that the same conditions would leave in the option
``where``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, Final, override

import numpy as np
from pyspark.sql import datasource as spark

from frazil.errors import InvalidInputError
from frazil.repository.session.session import Session
from frazil.spark.tables.conditions import predicates
from frazil.spark.tables.data_source_reader import GridReader
from frazil.spark.tables.grid import Grid
from frazil.spark.tables.predicates import Predicate
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.scan_blocks import matching_blocks

_OPERATORS: Final[Mapping[type[spark.Filter], str]] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "<=>",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.In: "IN",
}


class Advice:
    """The method ``pushFilters`` of a reader that takes no condition.

    Spark refuses to read with a reader that defines ``pushFilters`` if the setting above is false, as the
    conditions of such a reader would be lost. This reader loses none. So the attribute ``__func__``, which
    Spark compares, names the method that the reader inherits.
    """

    def __init__(self, advise: Callable[[list[spark.Filter]], str | None]) -> None:
        self.__func__ = spark.DataSourceReader.pushFilters
        self._advise = advise

    def __call__(self, filters: list[spark.Filter]) -> list[spark.Filter]:
        """Warn if the option ``where`` would skip data; return all conditions."""
        text = self._advise(filters)
        if text is not None:
            warnings.warn(text, UserWarning, stacklevel=2)
        return filters


@causes_only
class AdvisingReader(GridReader):
    """A reader of rows that warns if the option ``where`` would skip a part of the data."""

    @property
    @override
    def pushFilters(self) -> Advice:
        return Advice(lambda filters: advice(self._session, self._grid, self._where, filters))


def advice(
    session: Session, grid: Grid, where: list[Predicate], filters: Iterable[spark.Filter]
) -> str | None:
    """Return what the option ``where`` would save for the conditions of a query; None if it saves nothing."""
    useful: list[tuple[str, Predicate]] = []
    before = blocks = int(np.count_nonzero(matching_blocks(session, grid, where, {})))
    for condition in filter(None, map(condition_of, filters)):
        try:
            (predicate,) = predicates(grid, condition)
        except InvalidInputError:
            continue
        wanted = [*where, *(each for _, each in useful), predicate]
        left = int(np.count_nonzero(matching_blocks(session, grid, wanted, {})))
        if left < blocks:
            useful.append((condition, predicate))
            blocks = left
    if not useful:
        return None
    words = " AND ".join(condition for condition, _ in useful)
    return (
        f"This query reads {before} blocks of cells, and Spark removes rows afterwards. With the option "
        f'where="{words}", it reads {blocks}. See the section "Conditions" of docs/sql.md'
    )


def condition_of(condition: spark.Filter) -> str | None:
    """Return a condition of Spark as a text for the option ``where``; None for other conditions."""
    operator = _OPERATORS.get(type(condition))
    if operator is None:
        return None
    (name, *fields), value = condition.attribute, condition.value  # type: ignore[attr-defined]
    values = value if operator == "IN" else (value,)
    literals = [_literal(each) for each in values]
    if fields or None in literals:
        return None
    literal = f"({', '.join(map(str, literals))})" if operator == "IN" else literals[0]
    return f"{name if name.isidentifier() else f'`{name}`'} {operator} {literal}"


def _literal(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime | date):
        return f"TIMESTAMP '{value.isoformat(' ') if isinstance(value, datetime) else value.isoformat()}'"
    return None
