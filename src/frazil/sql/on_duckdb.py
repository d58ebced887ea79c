"""DuckDB in this process as the engine of a catalog: `frazil sql`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from sqlglot import exp

from frazil.arrow.grid_dataset import BLOCK_ROWS, GridDataset, within_bounds
from frazil.arrow.row_jobs import RowSource
from frazil.arrow.write_layout import ArrowRows
from frazil.errors import InvalidInputError
from frazil.sql.names import TablePlace, metadata_rows
from frazil.sql.queries import CHANGES


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of an answer, and the names of its columns; none for a statement without rows."""

    names: list[str]
    rows: list[tuple[Any, ...]]


class DuckDbSql:
    """A connection to a database in memory. Its views have the names of the user, and the text stays."""

    dialect = "duckdb"
    keeps_names = True
    syntax_errors: tuple[type[Exception], ...] = (duckdb.ParserException, duckdb.CatalogException)

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")

    def register(self, view: str, place: TablePlace, conditions: Sequence[exp.Expr]) -> None:
        """Make the rows of a table a view.

        DuckDB keeps lower bounds of floating-point numbers for itself, because NaN is larger than all numbers
        there. The filter leaves NaN, and DuckDB still applies the bounds, so the rows are the same.
        """
        if place.metadata is not None:
            self._connection.register(view, metadata_rows(place, place.metadata))
            return
        rows = GridDataset(place.session, place.grid(block_rows=BLOCK_ROWS))
        self._connection.register(view, within_bounds(rows, filter(None, map(_bound, conditions))))

    def register_changes(self, view: str, place: TablePlace, start: str, end: str) -> None:
        """Raise ``InvalidInputError``: the comparison of rows is an operation of Spark."""
        raise InvalidInputError(
            f"{CHANGES} must run on Spark, got DuckDB. The table {place.name}.changes has the changed chunks"
        )

    def run(self, text: str) -> Answer:
        """Run a text of SQL."""
        cursor = self._connection.execute(text)
        names = [each[0] for each in cursor.description or ()]
        return Answer(names, cursor.fetchall() if names else [])

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run a query, and return its rows."""
        return self.run(text).rows

    def columns(self, text: str) -> list[str]:
        """Return the names of the columns of a query."""
        return [str(row[0]) for row in self.rows(f"DESCRIBE {text}")]

    @contextmanager
    def source(self, text: str) -> Iterator[RowSource]:
        """Enter a context with the rows of a query, in memory."""
        yield ArrowRows.of(self._connection.sql(text).to_arrow_table())

    def create_view(self, name: str, text: str, *, replace: bool) -> None:
        """Make a query a view of the connection."""
        name = exp.to_identifier(name, quoted=True).sql("duckdb")
        self._connection.execute(f"CREATE {'OR REPLACE ' if replace else ''}TEMPORARY VIEW {name} AS {text}")

    def frame(self, rows: pa.Table) -> Answer:
        """Return rows as an answer."""
        return Answer(rows.column_names, [tuple(each.values()) for each in rows.to_pylist()])

    def end_statement(self) -> None:
        """Nothing: the connection ends with its views."""


def _bound(condition: exp.Expr) -> tuple[str, float, float] | None:
    """Return the column and the numbers of a lower bound."""
    low: exp.Expr
    high: exp.Expr | None = None
    match condition:
        case exp.GT(this=exp.Column() as column) | exp.GTE(this=exp.Column() as column):
            low = condition.args["expression"]
        case exp.LT(expression=exp.Column() as column) | exp.LTE(expression=exp.Column() as column):
            low = condition.this
        case exp.Between(this=exp.Column() as column) if not condition.args.get("symmetric"):
            low, high = condition.args["low"], condition.args["high"]
        case _:
            return None
    try:
        return column.name, float(low.to_py()), math.inf if high is None else float(high.to_py())
    except (ValueError, TypeError):  # not a number
        return None
