"""What a statement needs of an engine of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from sqlglot import exp

from frazil.arrow.row_jobs import RowSource
from frazil.sql.names import TablePlace


class SqlEngine(Protocol):
    """An engine that runs queries over views. Its *frames* are the results that a user gets."""

    #: The name of its SQL in sqlglot.
    dialect: str
    #: Whether views may have the names that the user types, because no other session sees them.
    keeps_names: bool
    #: Its errors that say less than those of Frazil about a text that is not in its SQL.
    syntax_errors: tuple[type[Exception], ...]

    def register(self, view: str, place: TablePlace, conditions: Sequence[exp.Expr]) -> None:
        """Make the rows of a table a view. The query applies the conditions again, which name columns."""

    def register_changes(self, view: str, place: TablePlace, start: str, end: str) -> None:
        """Make the changed rows between two snapshots a view."""

    def run(self, text: str) -> Any:
        """Run a text of SQL, and return its frame."""

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run a query, and return its rows."""

    def columns(self, text: str) -> list[str]:
        """Return the names of the columns of a query."""

    def source(self, text: str) -> AbstractContextManager[RowSource]:
        """Enter a context with the rows of a query, for a job that writes them."""

    def create_view(self, name: str, text: str, *, replace: bool) -> None:
        """Make a query a view of the session."""

    def frame(self, rows: pa.Table) -> Any:
        """Return rows as a frame."""

    def end_statement(self) -> None:
        """Remove the views that no frame needs."""
