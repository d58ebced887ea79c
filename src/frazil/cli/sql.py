"""The command `frazil sql`: an answer of DuckDB from the rows of groups."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np

from frazil.cli.arguments import RequiredTarget
from frazil.cli.command import argument, verb
from frazil.cli.documents import below, node_at
from frazil.cli.opening import OpenTarget
from frazil.cli.output import Output, table
from frazil.errors import InvalidInputError, NodeNotFoundError
from frazil.repository.paths import HIDDEN

if TYPE_CHECKING:
    from frazil.arrow import GridDataset

#: The table of the group at the path of the target.
_OF_TARGET = "t"


@verb("sql")
def sql(
    output: Output, target: RequiredTarget, query: Annotated[str, argument(metavar="QUERY")], csv: bool
) -> None:
    """Print the answer of DuckDB to a query in SQL.

    Each group is a table with a row for each cell of its arrays. Coordinates are columns too. The name of a
    table is the path of the group below the path of the target, such as air or "era5/surface". The group of
    the target, or of its array, is the table t. Chunks that no row of the answer needs are not read. Files
    are tables too: 'stations.csv', 'stations.parquet'.

    Args:
        csv: Print the result as CSV.

    Examples:
        frazil sql ice:era5 "select x, avg(t) from t group by x order by x"
        frazil sql ice@v1 "select * from era5 where time < 2 limit 3"
        frazil sql ice "select count(*) as cells from era5" --json
    """
    import duckdb

    version = OpenTarget(target)
    node_at(version.workspace, version.path)
    connection = duckdb.connect()
    datasets: dict[str, GridDataset] = {}
    refused: dict[str, InvalidInputError | NodeNotFoundError] = {}
    tables = _tables(version)
    for name, path in tables.items():
        if name.lower() in query.lower():
            try:
                datasets[name] = _dataset(version, path)
                connection.register(name, datasets[name])
            except (InvalidInputError, NodeNotFoundError) as error:  # the query may not need the table
                refused[name] = error
    try:
        _hand_over_bounds(connection, query, datasets)
        connection.execute(query)
        names = [each[0] for each in connection.description or ()]
        rows = connection.fetchall() if names else []
    except duckdb.Error as error:
        unreadable = [each for name, each in refused.items() if f"with name {name} " in str(error)]
        if unreadable:
            raise unreadable[0] from None
        is_table = isinstance(error, duckdb.CatalogException)
        advice = _tables_advice(version, tables, str(error)) if is_table else ""
        raise InvalidInputError(f"DuckDB: {str(error).splitlines()[0].rstrip('!')}{advice}") from error
    if csv and not output.as_json:
        _print_csv(names, rows)
        return
    documents = ({name: _plain(cell) for name, cell in zip(names, row, strict=True)} for row in rows)
    right = frozenset(at for at, cell in enumerate(rows[0] if rows else ()) if isinstance(cell, int | float))
    lines = table([tuple(names), *(tuple(map(_text, row)) for row in rows)], right=right)
    output.emit(documents, map(output.cut, lines), pages=True)


def _tables(version: OpenTarget) -> dict[str, str]:
    """Return the paths of the groups at and below the path of a version, by the names of their tables."""
    nodes = version.workspace.snapshot.nodes
    groups = nodes.select_nodes(~np.asarray(nodes.is_array)).paths_list()
    prefix = version.path.rstrip("/") + "/"
    inner = {path.removeprefix(prefix): path for path in groups if below(path, version.path)}
    tables = {name: path for name, path in inner.items() if path != version.path}
    return {**tables, _OF_TARGET: tables.get(_OF_TARGET, version.path)}


def _tables_advice(version: OpenTarget, tables: Mapping[str, str], message: str) -> str:
    """Return the names of the tables, and that a name which is no table is the name of a column."""
    names = ", ".join(name for name in tables if name.partition("/")[0] != HIDDEN)
    absent = re.search(r"with name (\S+) does not exist", message)
    node = version.workspace.node(f"{tables[_OF_TARGET].rstrip('/')}/{absent[1]}") if absent else None
    column = f", and {absent[1]} is a column of {_OF_TARGET}" if absent and node and node.array else ""
    return f". The tables are {names}{column}"


def _dataset(version: OpenTarget, path: str) -> GridDataset:
    from frazil.arrow import dataset

    return dataset(version.session(), path)


#: A bound of a column in a plan of DuckDB.
_NUMBER: Final = r"(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)"
_BOUND: Final = re.compile(rf"\((\w+) (?:>=? {_NUMBER}|BETWEEN {_NUMBER} AND {_NUMBER})\)")


def _hand_over_bounds(connection: Any, query: str, datasets: Mapping[str, GridDataset]) -> None:
    """Register the table of a query again, with the lower bounds of floating-point numbers as its filter.

    DuckDB keeps these bounds for itself, because NaN is larger than all numbers there. The filter leaves NaN,
    and DuckDB still applies the bounds, so the rows are the same. A query with several tables stays as it is.
    """
    import duckdb

    from frazil.arrow.grid_dataset import within_bounds

    statements = connection.extract_statements(query)
    if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
        return
    try:  # a connection that has the tables names none, and one without them refuses some joins
        lower = {each.lower() for each in duckdb.connect().get_table_names(query)}
    except duckdb.Error:
        return
    names = [each for each in datasets if each.lower() in lower]
    plan = json.loads(connection.execute(f"explain (format json) {query}").fetchone()[1])
    parents = [each for each in _with_parents(plan, {}) if each[0]["name"].strip().endswith("ARROW_SCAN")]
    if len(names) != 1 or len(parents) != 1:
        return
    text = str(parents[0][1].get("extra_info", {}).get("Expression", ""))
    bounds = (
        (column, float(above or low), float(high or "inf")) for column, above, low, high in _bounds(text)
    )
    connection.register(names[0], within_bounds(datasets[names[0]], bounds))


def _with_parents(nodes: list[dict[str, Any]], parent: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    for each in nodes:
        yield each, parent
        yield from _with_parents(each["children"], each)


def _bounds(text: str) -> list[tuple[str, ...]]:
    """Return the column and the numbers of the bounds that all rows of a filter in a plan must meet."""
    if match := _BOUND.fullmatch(text):
        return [match.groups()]
    if "'" in text or '"' in text:  # words with any characters
        return []
    # Without brackets of one pair around them, AND joins conditions that all must hold.
    inner, depth, bounds = text[1:-1], 0, list[tuple[str, ...]]()
    terms = [""]
    for token in re.split(r"([()]| AND )", inner):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token == " AND " and not depth:
            terms.append("")
        else:
            terms[-1] += token
    for each in map(_BOUND.fullmatch, terms):
        if each is not None:
            bounds.append(each.groups())
    return bounds


def _print_csv(names: list[str], rows: list[tuple[Any, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def _plain(cell: Any) -> Any:
    """Return a value for JSON. Times without a zone are in UTC."""
    is_naive = isinstance(cell, datetime) and cell.tzinfo is None
    return cell.replace(tzinfo=UTC) if is_naive else cell


def _text(cell: Any) -> str:
    return "null" if cell is None else str(cell)
