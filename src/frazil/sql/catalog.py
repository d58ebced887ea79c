"""The run of a text of SQL: each statement goes to its handler, and what names no table to the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from sqlglot import exp

from frazil.errors import InvalidInputError
from frazil.handle.addresses import virtual_access
from frazil.handle.repository import Repository
from frazil.jobs.job import JobResult
from frazil.sql import calls, row_statements, table_statements
from frazil.sql.clauses import refused
from frazil.sql.engine import SqlEngine
from frazil.sql.names import Lookup, Namespace
from frazil.sql.queries import StatementViews, parse
from frazil.sql.table_statements import Result
from frazil.storage.profiles import storage_of_location

#: A handler returns None if its statement names no table of the catalog.
type Handler = Callable[[StatementViews, Any], Result]


def _alter(views: StatementViews, tree: exp.Alter) -> Result:
    if isinstance(tree.args["actions"][0], exp.Command):
        return calls.change_ref(views, tree.sql(views.engine.dialect).partition(" ")[2])
    return table_statements.alter(views, tree)


#: Kind of a statement -> its handler. Everything else is a query, or a statement of the engine.
STATEMENTS: Final[Mapping[type[exp.Expr], Handler]] = {
    exp.Insert: row_statements.insert,
    exp.Update: row_statements.update,
    exp.Delete: row_statements.delete,
    exp.Merge: row_statements.merge,
    exp.TruncateTable: row_statements.truncate,
    exp.Create: table_statements.create,
    exp.Drop: table_statements.drop,
    exp.Alter: _alter,
    exp.Comment: table_statements.comment,
    exp.Describe: table_statements.describe,
    exp.Analyze: calls.analyze,
    exp.Use: calls.use,
    exp.Show: lambda views, tree: table_statements.show(views, tree.name),
}
#: First word of a statement that sqlglot keeps as text -> its handler, which gets the rest.
COMMANDS: Final[Mapping[str, Handler]] = {
    "SHOW": table_statements.show,
    "CALL": calls.call,
    "ALTER": calls.change_ref,
    "OPTIMIZE": calls.optimize,
    "VACUUM": calls.vacuum,
}
#: Statements of an engine that read tables of the catalog.
_READERS: Final = (exp.Query, exp.Describe, exp.Create, exp.Insert)
_EXPLAIN: Final = re.compile(
    r"\s*(EXTENDED|FORMATTED|COST|CODEGEN|ANALYZE|)\s+(.*)", re.IGNORECASE | re.DOTALL
)


def repositories_of(places: Mapping[str, Repository | str | PathLike[str]]) -> dict[str, Repository]:
    """Return the repositories of a catalog. A place is opened with what the environment allows."""
    return {name: each if isinstance(each, Repository) else _opened(each) for name, each in places.items()}


def _opened(place: str | PathLike[str]) -> Repository:
    storage = storage_of_location(fspath(place))
    return Repository.open(storage, authorize_virtual_chunk_access=virtual_access())


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
        except InvalidInputError as error:
            if self._names(text):
                raise
            try:
                return self.engine.run(text)
            except self.engine.syntax_errors:
                raise error from None
        frame = None
        for each in statements:
            frame = self._run(each, text if len(statements) == 1 else each.sql(self.engine.dialect))
        return frame

    def _run(self, tree: exp.Expr, text: str) -> Any:
        views = StatementViews(self.engine, Lookup(self.names))
        try:
            result = self._handled(views, tree)
            if isinstance(result, JobResult):
                rows = {"num_affected_rows": [result.metrics.rows], "snapshot_id": [result.snapshot_id]}
                result = pa.table(rows)
            if result is not None:
                return self.engine.frame(result)
            if isinstance(tree, exp.Command):
                return self._run_command(views, tree, text)
            is_bound = views.bind(tree)
            if is_bound and not isinstance(tree, _READERS):
                raise refused(f"Frazil has no statement {tree.key.upper()} for tables of the catalog")
            return self.engine.run(tree.sql(self.engine.dialect) if is_bound else text)
        finally:
            self.engine.end_statement()

    @staticmethod
    def _handled(views: StatementViews, tree: exp.Expr) -> Result:
        if isinstance(tree, exp.Command):
            handler = COMMANDS.get(str(tree.this).upper())
            rest = tree.expression.name if isinstance(tree.expression, exp.Expr) else str(tree.expression)
            return None if handler is None else handler(views, rest.strip())
        handler = STATEMENTS.get(type(tree))
        return None if handler is None else handler(views, tree)

    def _run_command(self, views: StatementViews, tree: exp.Command, text: str) -> Any:
        explained = _EXPLAIN.fullmatch(f" {tree.expression.name}") if tree.this.upper() == "EXPLAIN" else None
        if explained is not None:
            (inner,) = parse(explained[2], self.engine.dialect)
            if not views.bind(inner):
                return self.engine.run(text)
            if not isinstance(inner, exp.Query):
                raise refused("EXPLAIN must have a query of tables of the catalog, got another statement")
            return self.engine.run(f"EXPLAIN {explained[1]} {inner.sql(self.engine.dialect)}")
        if self._names(text):
            raise refused(f"Frazil has no such statement for tables of the catalog: {text.strip()}")
        return self.engine.run(text)

    def _names(self, text: str) -> bool:
        """Return whether a text that was not parsed may name a repository."""
        return any(
            re.search(rf"\b{re.escape(each)}\b", text, re.IGNORECASE) for each in self.names.repositories
        )
