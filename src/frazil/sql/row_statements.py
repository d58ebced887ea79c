"""Statements that change rows. Each is a query whose rows are written in one commit.

A row is a cell of the grid of a table. A cell without any value does not exist for INSERT and for MERGE: both
can add it. A deleted row is such a cell. UPDATE and DELETE choose from the rows that SELECT returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from sqlglot import exp

from frazil.arguments import misfit
from frazil.arrow.grid import Grid
from frazil.arrow.row_jobs import job_of
from frazil.arrow.target_arrays import WriteOptions
from frazil.arrow.write_layout import ABSENT, require_distinct_names
from frazil.cf import missing_element_of
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.job import Job, JobResult
from frazil.jobs.job_run import run_job
from frazil.sql.clauses import refused, require_clauses
from frazil.sql.names import TablePlace
from frazil.sql.queries import StatementViews, with_expressions
from frazil.zarr_store.arrays import array_at

_SOURCE: Final = "frazil_source"
_NEW: Final = "frazil_new"
_CLAUSE: Final = "frazil_clause"
_IN_TARGET, _IN_SOURCE = "frazil_in_target", "frazil_in_source"
#: Arrow type -> the type in SQL.
SQL_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP",
    pa.duration("us"): "INTERVAL DAY TO SECOND",
}


def sql_type(kind: pa.DataType) -> exp.DataType:
    """Return the type of a column in SQL."""
    return exp.DataType.build(SQL_TYPES.get(kind, str(kind)), dialect="spark")


@dataclass(frozen=True, slots=True)
class RowTable:
    """The target of a statement: its place, and its columns."""

    place: TablePlace
    grid: Grid

    @staticmethod
    def of(place: TablePlace) -> RowTable:
        """Return the columns of a table that rows can be written to."""
        place.target()
        return RowTable(place, place.grid())

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [each.name for each in self.grid.columns]

    @property
    def variables(self) -> list[str]:
        """The columns with values of cells: those with all dimensions."""
        every, dims = self.grid.columns, self.grid.dims
        return [each.name for each in every if len(each.axes) == len(dims) and each.name not in dims]

    def writable(self) -> pa.Schema:
        """The columns that a statement can write."""
        return self.grid.schema([*self.grid.dims, *self.variables])

    def column(self, name: str) -> str:
        """Return a column that a statement can write."""
        column = self.grid.column(name)
        if column.name not in self.variables and column.name not in self.grid.dims:
            raise misfit(
                f"A statement must write columns with all dimensions of `{self.place.name}` "
                f"({', '.join(self.grid.dims)}), got {column.name}. Name the other columns"
            )
        return column.name

    def cast(self, value: exp.Expr, name: str) -> exp.Expr:
        """Return a value as the type of a column, with its name."""
        typed = exp.Cast(this=value, to=sql_type(self.grid.column(name).type))
        return exp.alias_(typed, name, quoted=True)

    def has_values(self, table: str) -> exp.Expr:
        """Return the condition that a cell has a value."""
        data = [each for each in self.variables if not self.grid.column(each).is_key] or self.variables
        return exp.or_(*(self._has_value(name, table) for name in data))

    def _has_value(self, name: str, table: str) -> exp.Expr:
        column = exp.column(name, table, quoted=True)
        is_there = _is_null(column, False)
        if pa.types.is_floating(self.grid.column(name).type):
            is_there = exp.and_(is_there, exp.Not(this=exp.IsNan(this=column.copy())))
        return is_there

    def require_missing_values(self, verb: str) -> None:
        """Raise ``InvalidInputError`` for a variable whose cells cannot be without a value."""
        session = self.place.session
        for name in self.variables:
            path = self.grid.column(name).path
            array = array_at(session, str(path))
            dtype = np.dtype(array.dtype)
            if missing_element_of(array.attrs.asdict(), dtype) is None:
                raise InvalidInputError(
                    f"{verb} must leave cells without values, got {name} of `{self.place.name}`, which has "
                    "no missing value. Give the array an attribute _FillValue",
                    ErrorKind.NOT_ALLOWED,
                )


def write(
    views: StatementViews,
    place: TablePlace,
    query: exp.Expr,
    options: WriteOptions,
    message: str,
    prepared: Callable[[Job], Job] = lambda job: job,
) -> JobResult:
    """Write the rows of a query, in one commit on the version that the query reads."""
    text = views.bound_text(query)
    target = place.target()
    # Versions of other repositories and branches cannot change: only these are checked.
    read = [each for each in views.read if each.metadata is None and each.version.repo is place.version.repo]
    inputs = [each.input() for each in read if each.version.branch == target.branch]
    distinct = {(each.snapshot, each.paths): each for each in inputs if each.paths}
    with views.engine.source(text) as source:
        job, engine = job_of(source, target, options, message=message, inputs=list(distinct.values()))
        return run_job(prepared(job), engine)


def _target(views: StatementViews, tree: exp.Expr, named: exp.Expr) -> RowTable | None:
    """Return the target of a statement; None if it is no table of the catalog."""
    place = views.find(named, writes=True)
    if place is None:
        return None
    require_clauses(tree, place.name)
    expressions = tree.args["with_"].expressions if tree.args.get("with_") else ()
    aliases = {each.alias.lower() for each in expressions if not isinstance(tree, exp.Insert)}
    if not named.args.get("db") and named.name.lower() in aliases:
        raise misfit(
            f"A common table expression must have another name than the table that a statement changes, got "
            f"`{named.name}` for both. Rename the expression"
        )
    return RowTable.of(place)


def _alias(name: str, columns: Sequence[str] = ()) -> exp.TableAlias:
    names = [exp.to_identifier(each, quoted=True) for each in columns]
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True), columns=names)


def _aliased(query: exp.Expr, name: str, columns: Sequence[str] = ()) -> exp.Subquery:
    """Return a query as a table, perhaps with names of its columns."""
    return exp.Subquery(this=query, alias=_alias(name, columns))


def _is_null(value: exp.Expr, null: bool = True) -> exp.Expr:
    """Return the condition that a value is null, or is not."""
    condition = exp.Is(this=value.copy(), expression=exp.Null())
    return condition if null else exp.Not(this=condition)


def insert(views: StatementViews, tree: exp.Insert) -> JobResult | None:
    """Insert rows; or replace all rows, those of partitions, or those that meet a condition."""
    named = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    table = _target(views, tree, named)
    if table is None:
        return None
    place = table.place
    query = tree.expression or exp.select("*").from_(tree.args["source"])
    if isinstance(query, exp.Values):
        query = exp.select("*").from_(exp.Values(expressions=query.expressions, alias=_alias(_SOURCE)))
    with_expressions(query, tree)
    partition = named.args.get("partition")
    parts = [] if partition is None else partition.expressions
    fixed = {_dimension(table, each.this): each.expression for each in parts if isinstance(each, exp.EQ)}
    dynamic = [_dimension(table, each) for each in parts if not isinstance(each, exp.EQ)]
    given = views.engine.columns(views.bound_text(query))
    columns = [each for each in table.names if each not in fixed and each not in dynamic] + dynamic
    if isinstance(tree.this, exp.Schema):
        columns = [each.name for each in tree.this.expressions]
    elif tree.args.get("by_name"):
        columns = given
    columns = list(map(table.column, columns))
    require_distinct_names(columns)
    if len(given) != len(columns):
        raise misfit(
            f"INSERT must have a value for each column of `{place.name}` ({', '.join(columns)}), got "
            f"{len(given)} columns. Name the columns after the table"
        )
    source = _aliased(query, _SOURCE, columns)
    values = {each: exp.column(each, _SOURCE, quoted=True) for each in columns} | fixed
    rows = exp.select(*(table.cast(each.copy(), name) for name, each in values.items())).from_(source)
    where = tree.args.get("where") or None  # the oldest sqlglot has False
    if not tree.args.get("overwrite") and where is None:
        rows = rows.select(exp.alias_(exp.true(), ABSENT))
        return write(views, place, rows, WriteOptions(), f"INSERT INTO `{place.name}`")
    if where is not None:
        _require_rows(views, rows, where)
    conditions = [] if where is None else [where]
    conditions += [exp.column(name, quoted=True).eq(each.copy()) for name, each in fixed.items()]
    if dynamic:
        some = exp.select(*(exp.column(each, _SOURCE, quoted=True) for each in dynamic)).from_(source.copy())
        keys = [exp.column(each, quoted=True) for each in dynamic]
        key = keys[0] if len(keys) == 1 else exp.Tuple(expressions=keys)
        conditions.append(exp.In(this=key, query=exp.Subquery(this=some)))
    table.require_missing_values("INSERT OVERWRITE")
    cleared = _cleared(table, named, exp.and_(*conditions) if conditions else None, rows)
    both = exp.union(_padded(table, rows), cleared, distinct=False)
    return write(views, place, both, WriteOptions(), f"INSERT OVERWRITE `{place.name}`")


def _dimension(table: RowTable, column: exp.Expr) -> str:
    name = table.grid.column(column.name).name
    if name not in table.grid.dims:
        raise misfit(f"PARTITION must name dimensions ({', '.join(table.grid.dims)}), got {name}")
    return name


def _require_rows(views: StatementViews, rows: exp.Select, where: exp.Expr) -> None:
    """Raise ``InvalidInputError`` if rows do not meet the condition of the rows that they replace."""
    others = exp.select(exp.Count(this=exp.Star())).from_(_aliased(rows.copy(), _SOURCE))
    others = others.where(exp.Not(this=exp.func("COALESCE", exp.Paren(this=where.copy()), exp.false())))
    count = views.engine.rows(views.bound_text(others))[0][0]
    if count:
        raise misfit(f"The rows must meet the condition of REPLACE WHERE, got {count} rows that do not")


def _padded(table: RowTable, rows: exp.Select) -> exp.Select:
    """Return rows with all columns, in the order of the table. Columns that the rows lack are null."""
    found = {each.alias: each for each in rows.expressions}
    every = [*table.grid.dims, *table.variables]
    values = [found[each].copy() if each in found else table.cast(exp.Null(), each) for each in every]
    return rows.select(*values, append=False)


def _cleared(
    table: RowTable, named: exp.Expr, condition: exp.Expr | None, rows: exp.Select | None = None
) -> exp.Select:
    """Return a row of nulls for each cell with a value that meets a condition, and that has no new row."""
    name = named.alias_or_name
    target = exp.Table(this=named.this.copy(), db=_copied(named, "db"), catalog=_copied(named, "catalog"))
    target.set("alias", _alias(name))
    dims = [exp.column(each, name, quoted=True) for each in table.grid.dims]
    nulls = [table.cast(exp.Null(), each) for each in table.variables]
    select = exp.select(*(table.cast(each, each.name) for each in dims), *nulls).from_(target)
    select = select.where(exp.Paren(this=table.has_values(name)))
    if condition is not None:
        condition = condition.copy()
        for column in () if condition.find(exp.Query) else list(condition.find_all(exp.Column)):
            if not column.table:
                column.set("table", exp.to_identifier(name, quoted=True))
        select = select.where(exp.Paren(this=condition))
    if rows is not None:
        pairs = ((each, exp.column(each.name, _NEW, quoted=True)) for each in dims)
        equal = [each.copy().eq(new) for each, new in pairs]
        select = select.join(_aliased(rows.copy(), _NEW), on=exp.and_(*equal), join_type="left anti")
    return select


def _copied(table: exp.Expr, part: str) -> exp.Expr | None:
    return table.args[part].copy() if table.args.get(part) is not None else None


def update(views: StatementViews, tree: exp.Update) -> JobResult | None:
    """Write the new values of some columns of rows."""
    table = _target(views, tree, tree.this)
    if table is None:
        return None
    place = table.place
    name = tree.this.alias_or_name
    values = _assignments(table, tree)
    changed = [table.cast(each, column) for column, each in values.items()]
    dims = [table.cast(exp.column(each, name, quoted=True), each) for each in table.grid.dims]
    query = exp.select(*dims, *changed).from_(tree.this.copy())
    if tree.args.get("from_") is not None:
        query = query.join(tree.args["from_"].this.copy(), join_type="cross")
    if tree.args.get("where") is not None:
        query = query.where(tree.args["where"].this.copy())
    with_expressions(query, tree)
    return write(views, place, query, WriteOptions("insert"), f"UPDATE `{place.name}`")


def _value(value: exp.Expr) -> exp.Expr:
    """Return a value of SET. DEFAULT is null: a cell without a value."""
    is_default = isinstance(value, exp.Column | exp.Var) and value.name.upper() == "DEFAULT"
    return exp.Null() if is_default else value.copy()


def _assignments(table: RowTable, tree: exp.Update) -> dict[str, exp.Expr]:
    """Return the values of SET by column, also of ``SET (a, b) = (1, 2)``."""
    pairs = list[tuple[exp.Expr, exp.Expr]]()
    for each in tree.expressions:
        names, values = (
            side.expressions if isinstance(side, exp.Tuple) else [side]
            for side in (each.this, each.expression)
        )
        if len(names) != len(values):
            raise misfit(f"SET must have a value for each column, got `{each.sql()}`")
        pairs += zip(names, values, strict=True)
    columns = [table.column(name.name) for name, _ in pairs]
    require_distinct_names(columns)
    for column in columns:
        if column in table.grid.dims:
            raise misfit(
                f"SET must name variables, got the dimension {column} of `{table.place.name}`: a label "
                "belongs to many cells. Insert rows with the new labels, and delete the old rows"
            )
    return dict(zip(columns, (_value(value) for _, value in pairs), strict=True))


def delete(views: StatementViews, tree: exp.Delete) -> JobResult | None:
    """Make the cells of rows cells without values."""
    table = _target(views, tree, tree.this)
    if table is None:
        return None
    place = table.place
    table.require_missing_values("DELETE")
    where = tree.args.get("where")
    query = _cleared(table, tree.this, None if where is None else where.this)
    with_expressions(query, tree)
    return write(views, place, query, WriteOptions("insert"), f"DELETE FROM `{place.name}`")


def truncate(views: StatementViews, tree: exp.TruncateTable) -> JobResult | None:
    """Make all cells of a table cells without values."""
    if _target(views, tree, tree.expressions[0]) is None:
        return None
    if len(tree.expressions) > 1:
        raise refused("TRUNCATE must name one table, got several. Type a statement for each of them")
    return delete(views, exp.Delete(this=tree.expressions[0]))


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause of MERGE of a kind of ``_SIDES``: ``values`` by column, none for DELETE and DO NOTHING."""

    kind: str
    condition: exp.Expr | None
    values: Mapping[str, exp.Expr]
    deletes: bool

    @property
    def writes(self) -> bool:
        """Whether it changes its rows; false for DO NOTHING."""
        return self.deletes or bool(self.values)


#: Kind of a clause -> the actions that it can have.
_ACTIONS: Final = {
    "matched": ("UPDATE", "DELETE", "DO NOTHING"),
    "new": ("INSERT", "DO NOTHING"),
    "gone": ("UPDATE", "DELETE", "DO NOTHING"),
}
#: Kind of a clause -> whether its rows are in the target and in the source.
_SIDES: Final = {"matched": (True, True), "new": (False, True), "gone": (True, False)}
_JOINS: Final = {(False, False): "inner", (True, False): "right", (False, True): "left", (True, True): "full"}
_MERGED: Final = "frazil_merged"


def merge(views: StatementViews, tree: exp.Merge) -> JobResult | None:
    """Write the rows of the clauses of MERGE.

    An inner query joins target and source, and computes the number of the first clause that holds, with the
    values of all clauses. The outer query chooses the values of that clause.
    """
    table = _target(views, tree, tree.this)
    if table is None:
        return None
    place = table.place
    target, source = tree.this.alias_or_name, tree.args["using"].alias_or_name
    whens = tree.args["whens"].expressions
    given: list[str] = []
    if any(_is_star(each.args["then"]) for each in whens):
        every = exp.select("*").from_(tree.args["using"].copy())
        lower = {each.lower(): each for each in views.engine.columns(views.bound_text(every))}
        given = [lower[each.lower()] for each in table.names if each.lower() in lower]
    clauses = [_clause(table, each, given, source) for each in whens]
    kinds = {each.kind for each in clauses}
    deletes = any(each.deletes for each in clauses)
    if not any(each.writes for each in clauses):
        raise misfit("MERGE must have a clause that writes, got only DO NOTHING")
    if deletes:
        table.require_missing_values("DELETE")

    case = exp.Case()
    inner: list[exp.Expr] = [exp.column(each, target, quoted=True) for each in table.names]
    for number, clause in enumerate(clauses):
        flags = zip(_SIDES[clause.kind], ((_IN_TARGET, target), (_IN_SOURCE, source)), strict=True)
        condition = exp.and_(*(_is_null(exp.column(*flag, quoted=True), not there) for there, flag in flags))
        if clause.condition is not None:
            condition = exp.and_(condition, clause.condition.copy())
        case = case.when(condition, exp.Literal.number(number) if clause.writes else exp.Null())
        inner += [exp.alias_(each, f"{name}_{number}", quoted=True) for name, each in clause.values.items()]
    joined = exp.select(exp.alias_(case, _CLAUSE), *inner)
    joined = joined.from_(_flagged(tree.this, _IN_TARGET, target, table.has_values(target)))
    right = _flagged(tree.args["using"], _IN_SOURCE, source)
    side = _JOINS["new" in kinds, "gone" in kinds]
    joined = joined.join(right, on=_on(tree, target, source), join_type=side)

    dims = table.grid.dims
    changed = {name for each in clauses for name in each.values}
    variables = [each for each in table.variables if deletes or each in changed]
    columns: list[exp.Expr] = [_merged_column(table, name, clauses) for name in (*dims, *variables)]
    number_of = exp.column(_CLAUSE, _MERGED, quoted=True)
    new = [exp.Literal.number(number) for number, each in enumerate(clauses) if each.kind == "new"]
    columns.append(exp.alias_(number_of.isin(*new) if new else exp.false(), ABSENT))
    query = exp.select(*columns).from_(_aliased(joined, _MERGED)).where(_is_null(number_of, False))
    with_expressions(query, tree)
    return write(views, place, query, WriteOptions(), f"MERGE INTO `{place.name}`")


def _on(tree: exp.Merge, target: str, source: str) -> exp.Expr:
    """Return the condition of ON, or the equalities of USING."""
    if tree.args.get("on"):
        on: exp.Expr = tree.args["on"].copy()
        return on
    names = [each.name for each in tree.args["using_cond"]]
    pairs = ([exp.column(name, each, quoted=True) for each in (target, source)] for name in names)
    return exp.and_(*(left.eq(right) for left, right in pairs))


def _clause(table: RowTable, when: exp.When, given: Sequence[str], source: str) -> _Clause:
    kind = "matched" if when.args.get("matched") else "gone" if when.args.get("source") else "new"
    then, values = when.args["then"], dict[str, exp.Expr]()
    if then.args.get("where"):
        raise refused(
            f"A clause of MERGE must have its condition before THEN, got {then.args['where'].sql()}"
        )
    action = then.name.upper() if isinstance(then, exp.Var) else then.key.upper()
    if action not in _ACTIONS[kind]:
        raise misfit(
            f"{when.sql().partition(' THEN ')[0]} must have {' or '.join(_ACTIONS[kind])}, got {action}"
        )
    if _is_star(then):
        is_update = isinstance(then, exp.Update)
        names = {each: table.column(each) for each in given}
        values = {
            name: exp.column(each, source, quoted=True)
            for each, name in names.items()
            if not (is_update and name in table.grid.dims)
        }
    elif isinstance(then, exp.Update):
        values = _assignments(table, then)
    elif isinstance(then, exp.Insert):
        columns = (
            table.names if then.this is None else [table.column(each.name) for each in then.this.expressions]
        )
        require_distinct_names(columns)
        expressions = then.expression.expressions if then.expression else ()
        if len(expressions) != len(columns):
            raise misfit(
                f"INSERT must have a value for each of the columns {', '.join(columns)}, got "
                f"{len(expressions)} values"
            )
        values = {name: _value(each) for name, each in zip(columns, expressions, strict=True)}
    missing = [each for each in table.grid.dims if action == "INSERT" and each not in values]
    if missing:
        raise misfit(
            f"INSERT must have a value for each dimension of `{table.place.name}`, got none for "
            f"{', '.join(missing)}"
        )
    return _Clause(kind, when.args.get("condition"), values, action == "DELETE")


def _is_star(then: exp.Expr) -> bool:
    """Return whether an action takes all columns by name: ``SET *``, ``INSERT *``, ``INSERT BY NAME``."""
    if isinstance(then, exp.Update):
        return not then.expressions or isinstance(then.expressions[0], exp.Star)
    if not isinstance(then, exp.Insert):
        return False
    columns = then.this.expressions if isinstance(then.this, exp.Tuple) else ()
    by_name = len(columns) == 1 and isinstance(columns[0], exp.Alias)  # sqlglot reads BY NAME as `BY AS NAME`
    return by_name or isinstance(then.this, exp.Star) or (then.this is None and not then.expression)


def _merged_column(table: RowTable, name: str, clauses: Sequence[_Clause]) -> exp.Expr:
    """Return the value of a column: that of the clause of a row, or the one that the row has."""
    case = exp.Case(this=exp.column(_CLAUSE, _MERGED, quoted=True))
    for number, clause in enumerate(clauses):
        value: exp.Expr = exp.Null()
        if name in clause.values:
            value = exp.column(f"{name}_{number}", _MERGED, quoted=True)
        elif clause.values or name in table.grid.dims:  # the columns of new rows are null
            value = exp.column(name, _MERGED, quoted=True)
        case = case.when(exp.Literal.number(number), value)
    return table.cast(case, name)


def _flagged(table: exp.Expr, flag: str, alias: str, where: exp.Expr | None = None) -> exp.Subquery:
    """Return the rows of a table with one more column, which is true, as a table."""
    select = exp.select("*", exp.alias_(exp.true(), flag, quoted=True)).from_(table.copy())
    return _aliased(select if where is None else select.where(where), alias)
