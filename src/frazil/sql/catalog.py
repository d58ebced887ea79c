"""The run of a text of SQL: each statement goes to its handler, and what names no table to the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from sqlglot import exp

from frazil.errors import InvalidInputError
from frazil.handle.repository import Repository
from frazil.jobs.job import JobResult
from frazil.sql import row_statements
from frazil.sql.engine import SqlEngine
from frazil.sql.names import Lookup, Namespace
from frazil.sql.queries import StatementViews, parse

#: A handler returns None if its statement names no table of the catalog.
type Handler = Callable[[StatementViews, Any], JobResult | pa.Table | None]

#: Kind of a statement -> its handler. Everything else is a query, or a statement of the engine.
STATEMENTS: Final[Mapping[type[exp.Expr], Handler]] = {
    exp.Insert: row_statements.insert,
    exp.Update: row_statements.update,
    exp.Delete: row_statements.delete,
    exp.Merge: row_statements.merge,
    exp.TruncateTable: row_statements.truncate,
}


def repositories_of(places: Mapping[str, Repository | str | PathLike[str]]) -> dict[str, Repository]:
    """Return the repositories of a catalog: those at places are opened."""
    return {
        name: each if isinstance(each, Repository) else Repository.open(each) for name, each in places.items()
    }


class StatementRunner:
    """Runs statements of SQL over the tables of some repositories."""

    def __init__(self, engine: SqlEngine, names: Namespace) -> None:
        self.engine, self.names = engine, names

    def run(self, text: str) -> Any:
        """Run the statements of a text one after the other, and return the frame of the last one.

        Each statement that writes is one commit. All of them are parsed before the first one runs.
        """
        try:
            statements = parse(text, self.engine.dialect)
        except InvalidInputError:
            if self._may_name_a_table(text):
                raise
            return self.engine.run(text)
        frame = None
        for each in statements:
            frame = self._run(each, text if len(statements) == 1 else each.sql(self.engine.dialect))
        return frame

    def _run(self, tree: exp.Expr, text: str) -> Any:
        views = StatementViews(self.engine, Lookup(self.names))
        try:
            handler = STATEMENTS.get(type(tree))
            result = None if handler is None else handler(views, tree)
            if isinstance(result, JobResult):
                rows = {"num_affected_rows": [result.metrics.rows], "snapshot_id": [result.snapshot_id]}
                return self.engine.frame(pa.table(rows))
            if result is not None:
                return self.engine.frame(result)
            return self.engine.run(tree.sql(self.engine.dialect) if views.bind(tree) else text)
        finally:
            self.engine.end_statement()

    def _may_name_a_table(self, text: str) -> bool:
        lower = text.lower()
        return self.names.current is not None or any(
            each.lower() in lower for each in self.names.repositories
        )
