"""Queries as sqlglot parses them: views of the engine instead of names of the catalog, conditions of scans.

A condition of WHERE goes to the scan of a table if it is a conjunct that names only columns of this table. It
only leaves out rows that the engine leaves out too: ``>`` becomes ``>=``, because an engine may compare a
number of 32 bits with 64 bits, and conditions that null can meet stay where a join makes nulls.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from frazil.errors import InvalidInputError
from frazil.sql.clauses import require_clauses
from frazil.sql.engine import SqlEngine
from frazil.sql.names import Lookup, TablePlace

# Frazil handles the statements that sqlglot keeps as text.
logging.getLogger("sqlglot").addFilter(lambda record: "Falling back" not in record.getMessage())

#: What sqlglot does not know -> the same in words that it knows.
_SPELLINGS: Final = {
    r"^\s*REPLACE\s+TABLE\b": "CREATE OR REPLACE TABLE",
    r"^\s*RESTORE\s+TABLE\s+(\S+)\s+TO\b": r"INSERT OVERWRITE \1 SELECT * FROM \1",
}

#: The function for the changed rows of a table, as in Delta.
CHANGES: Final = "table_changes"
_RENAMED: Final[dict[type[exp.Expr], str]] = {
    exp.GT: ">=",
    exp.GTE: ">=",
    exp.LT: "<=",
    exp.LTE: "<=",
    exp.EQ: "=",
}
_TURNED: Final = {">=": "<=", "<=": ">=", "=": "="}
_INNER: Final = ("", "INNER", "CROSS")


def parse(text: str, dialect: str) -> list[exp.Expr]:
    """Return the statements of a text. Raise ``InvalidInputError`` (``invalid-argument``) for a wrong one."""
    for pattern, known in _SPELLINGS.items():
        text = re.sub(pattern, known, text, flags=re.IGNORECASE)
    try:
        statements = sqlglot.parse(text, read=dialect)
    except SqlglotError as error:
        word, _, rest = text.strip().partition(" ")
        if word.upper() == "SHOW":
            return [exp.Command(this="SHOW", expression=exp.Literal.string(rest.rstrip("; ")))]
        details = (getattr(error, "errors", None) or [{}])[0]
        place = f" at `{details['highlight']}`, line {details['line']}" if "highlight" in details else ""
        raise InvalidInputError(
            f"A statement must be SQL that Frazil knows, got {details.get('description') or error}{place}"
        ) from None
    return [each for each in statements if each is not None]


def parts_of(table: exp.Table) -> list[str]:
    """Return the parts of the name of a table."""
    return [each.name for each in table.parts if isinstance(each, exp.Identifier)]


def tables_in(tree: exp.Expr) -> Iterator[exp.Table]:
    """Yield the tables of a statement, without the names of its common table expressions."""
    for table in list(tree.find_all(exp.Table)):
        names, above = set[str](), table.parent
        while above is not None and len(table.parts) == 1:
            with_ = above.args.get("with_")
            names.update(each.alias.lower() for each in (with_.expressions if with_ else ()))
            above = above.parent
        if table.name.lower() not in names:
            yield table


def with_expressions(query: exp.Expr, tree: exp.Expr) -> None:
    """Give a query the common table expressions of its statement, before its own."""
    outer, own = tree.args.get("with_"), query.args.get("with_")
    if outer is None:
        return
    outer = outer.copy()
    if own is not None:
        outer.set("recursive", outer.recursive or own.recursive)
        outer.set("expressions", [*outer.expressions, *own.expressions])
    query.set("with_", outer)


def conditions_on(table: exp.Table) -> list[exp.Expr]:
    """Return the conjuncts of WHERE that name only columns of a table of this FROM, without qualifiers."""
    clause = table.parent
    select = None if clause is None else clause.parent
    if not isinstance(select, exp.Select) or not isinstance(clause, exp.From | exp.Join):
        return []
    where, joins = select.args.get("where"), select.args.get("joins") or []
    if where is None or table.args.get("pivots") or table.args.get("sample") or select.args.get("laterals"):
        return []
    is_outer = any(each.side or each.kind not in _INNER for each in joins)
    name, chosen = table.alias_or_name.lower(), []
    for each in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        columns = list(each.find_all(exp.Column))
        qualifiers = {column.table.lower() for column in columns}
        if each.find(exp.Query) or not qualifiers or not qualifiers <= ({name} if joins else {name, ""}):
            continue
        if not (is_outer and each.find(exp.Is)):
            plain = each.copy()
            for column in list(plain.find_all(exp.Column)):
                for part in ("table", "db", "catalog"):
                    column.set(part, None)
            chosen.append(plain)
    return chosen


def condition_text(condition: exp.Expr) -> str | None:
    """Return a condition in the language of Frazil, perhaps a wider one; None for another one."""
    match condition:
        case exp.Paren():
            return condition_text(condition.this)
        case exp.And() | exp.Or():
            both = [condition_text(each) for each in (condition.left, condition.right)]
            if isinstance(condition, exp.And) and None in both:
                return next(filter(None, both), None)
            return None if None in both else f"({both[0]} {condition.key.upper()} {both[1]})"
        case exp.Between(this=exp.Column() as column) if not condition.args.get("symmetric"):
            low, high = _literal(condition.args["low"]), _literal(condition.args["high"])
            return low and high and f"{_name(column)} BETWEEN {low} AND {high}"
        case exp.In(this=exp.Column() as column) if condition.expressions:
            values = list(map(_literal, condition.expressions))
            return None if None in values else f"{_name(column)} IN ({', '.join(map(str, values))})"
        case exp.Is(this=exp.Column() as column, expression=exp.Null()):
            return f"{_name(column)} IS NULL"
        case exp.Not(this=exp.Is(this=exp.Column() as column, expression=exp.Null())):
            return f"{_name(column)} IS NOT NULL"
    sign = _RENAMED.get(type(condition))
    if sign is None or not isinstance(condition, exp.Binary):
        return None
    left, right = condition.left, condition.right
    if not isinstance(left, exp.Column):
        left, right, sign = right, left, _TURNED[sign]
    value = _literal(right)
    return f"{_name(left)} {sign} {value}" if isinstance(left, exp.Column) and value else None


def _name(column: exp.Expr) -> str:
    return f"`{column.name}`"


def _literal(value: exp.Expr) -> str | None:
    """Return a number, a text or a time as the language of conditions has it; None for another value."""
    match value:
        case exp.Paren():
            return _literal(value.this)
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return f"-{number.this}"
        case exp.Literal():
            return f"'{value.this.replace("'", "''")}'" if value.is_string else str(value.this)
        case exp.Cast(this=exp.Literal(is_string=True) as text) if value.is_type(
            "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "DATE"
        ):
            return f"TIMESTAMP '{text.this}'"
        case exp.Cast(this=exp.Literal(is_string=False) as number) if value.is_type(
            "DOUBLE", "BIGINT", "INT"
        ):
            return str(number.this)
    return None


class StatementViews:
    """The views of one statement. ``read`` are the tables that it reads."""

    def __init__(self, engine: SqlEngine, lookup: Lookup) -> None:
        self.engine, self.lookup = engine, lookup
        self.read: list[TablePlace] = []

    def find(self, table: exp.Expr, *, new: bool = False, writes: bool = False) -> TablePlace | None:
        """Return the table of the catalog that a name means, if any."""
        if not isinstance(table, exp.Table):
            return None
        parts = parts_of(table)
        if not parts or len(parts) != len(table.parts):
            return None
        return self.lookup.find(parts, new=new, writes=writes, **self._version(table))

    def value(self, value: exp.Expr) -> Any:
        """Return the value of an expression without columns."""
        return self.engine.rows(exp.select(value.copy()).sql(self.engine.dialect))[0][0]

    def micros(self, value: exp.Expr) -> int:
        """Return a time as microseconds since 1970."""
        return int(self.value(exp.UnixMicros(this=exp.cast(value.copy(), exp.DType.TIMESTAMPTZ))))

    def _version(self, table: exp.Table) -> dict[str, Any]:
        clause = table.args.get("version")
        if clause is None:
            return {}
        value = clause.expression
        if clause.this == "VERSION":
            return {"at": value.name}
        return {"as_of": self.micros(value)}

    def bind(self, tree: exp.Expr, *, keeps_names: bool = True) -> bool:
        """Put views instead of names into a statement. Return whether the statement has changed.

        Without ``keeps_names`` the views have names of their own, even if the engine keeps those of the user:
        a later statement registers those again, for other rows.
        """
        bound: list[tuple[exp.Table, str]] = []
        replaced: dict[tuple[str, ...], str] = {}
        tables = list(tables_in(tree))
        counts = Counter(each.name.lower() for each in tables)
        for table in tables:
            if isinstance(table.this, exp.Anonymous) and table.this.name.lower() == CHANGES:
                bound.append((table, self._bind_changes(table.this.expressions)))
                continue
            place = self.find(table)
            if place is None:
                continue
            require_clauses(table, place.name)
            conditions = conditions_on(table)
            self.read.append(place)
            if (
                keeps_names
                and self.engine.keeps_names
                and len(parts_of(table)) == 1
                and not table.args.get("version")
            ):
                several = counts[table.name.lower()] > 1  # one view for all of them
                self.engine.register(table.name, place, [] if several else conditions)
                continue
            key = "|".join(
                [place.name, place.version.snapshot_id, *(each.sql("spark") for each in conditions)]
            )
            view = f"frazil_{hashlib.sha256(key.encode()).hexdigest()[:12]}"
            self.engine.register(view, place, conditions)
            parts = tuple(each.lower() for each in parts_of(table))
            if not table.alias:
                replaced[parts] = parts_of(table)[-1]
            bound.append((table, view))
        for column in list(tree.find_all(exp.Column)):
            parts = tuple(each.name.lower() for each in column.parts[:-1])
            if len(parts) > 1 and parts in replaced:
                column.set("db", None)
                column.set("catalog", None)
        for table, view in bound:
            alias = table.args.get("alias")
            if not alias:
                name = parts_of(table)[-1] if parts_of(table) else CHANGES
                alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
            fresh = exp.Table(this=exp.to_identifier(view, quoted=True), alias=alias.copy())
            for each in ("joins", "pivots", "sample"):
                fresh.set(each, table.args.get(each))
            table.replace(fresh)
        return bool(bound)

    def _bind_changes(self, arguments: Sequence[exp.Expr]) -> str:
        """Register the changed rows of ``table_changes(table, start[, end])``, and return their view."""
        if len(arguments) not in (2, 3):
            raise InvalidInputError(
                f"{CHANGES} must have a table, the version before the first change, and perhaps the last "
                f"version, got {len(arguments)} arguments"
            )
        parts = exp.to_table(arguments[0].name, dialect=self.engine.dialect)
        place = self.find(parts)
        if place is None:
            raise InvalidInputError(f"{CHANGES} must have a table of the catalog, got `{arguments[0].name}`")
        repository = self.lookup.names.repository(parts_of(parts)[0]) or str(self.lookup.names.current)
        ids = [self.lookup.version(repository, at=each.name).snapshot_id for each in arguments[1:]]
        end = ids[1] if len(ids) > 1 else place.version.snapshot_id
        view = f"frazil_changes_{ids[0]}_{end}".lower()
        self.engine.register_changes(view, place, ids[0], end)
        return view

    def bound_text(self, tree: exp.Expr) -> str:
        """Return a query with views, for the engine."""
        tree = tree.copy()
        self.bind(tree)
        return str(tree.sql(self.engine.dialect))
