"""Statements about tables: CREATE, ALTER and DROP, each of which is one commit, and DESCRIBE and SHOW.

A table is a group with arrays. Its dimensions are PRIMARY KEY, the property ``dims``, or PARTITIONED BY.
Other properties are attributes of the group, and comments are attributes ``comment``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr
from sqlglot import exp

from frazil.arguments import misfit, require_column_name
from frazil.arrow.target_arrays import WriteOptions, add_columns
from frazil.errors import AlreadyExistsError, NodeNotFoundError
from frazil.jobs.job import Job, JobResult, Tasks
from frazil.repository.session.session import Session
from frazil.sql.clauses import refused, require_clauses, require_nullable
from frazil.sql.names import COLUMN_ORDER, TablePlace, metadata_rows
from frazil.sql.queries import StatementViews, parts_of, with_expressions
from frazil.sql.row_statements import RowTable, sql_type, write
from frazil.storage.base import storage_label

type Result = JobResult | pa.Table | None
_COMMENT: Final = "comment"


def table_of(**columns: Sequence[Any]) -> pa.Table:
    """Return texts as a table."""
    return pa.table({name: pa.array(each, pa.string()) for name, each in columns.items()})


def done(place: TablePlace, snapshot_id: str) -> pa.Table:
    """Return the result of a change of a table."""
    return table_of(table=[place.name], snapshot_id=[snapshot_id])


@contextmanager
def _change(place: TablePlace, message: str, *, moves: bool = False) -> Iterator[Session]:
    """Enter a context with a session on the branch of a table, which is committed at the end."""
    target = place.target()
    open_session = target.repo.rearrange_session if moves else target.repo.writable_session
    session = open_session(target.branch)
    yield session
    if session.has_uncommitted_changes:
        session.commit(message)


def _path(place: TablePlace, name: str) -> str:
    return f"{place.group.rstrip('/')}/{name}"


def _delete_arrays(session: Session, place: TablePlace, names: Sequence[str]) -> None:
    for name in names:
        session.workspace.delete_node(_path(place, name))


def _set_attributes(session: Session, path: str, attributes: dict[str, Any]) -> None:
    if attributes:
        zarr.open(session.store, path=path.strip("/"), mode="r+", zarr_format=3).update_attributes(attributes)


def _properties(tree: exp.Expr) -> dict[str, str]:
    """Return the properties of a statement with ``key = 'value'``, and those with a meaning of their own."""
    found: dict[str, str] = {}
    for each in tree.find_all(exp.Property):
        match each:
            case exp.SchemaCommentProperty():
                found[_COMMENT] = each.name
            case exp.LocationProperty():
                raise refused(
                    "A table of the catalog is a group of its repository: leave out LOCATION, and name the "
                    "repository as the first part of the name"
                )
            case exp.PartitionedByProperty():
                names = [
                    one.name for one in each.this.expressions if isinstance(one, exp.Identifier | exp.Column)
                ]
                if len(names) < len(each.this.expressions):
                    raise refused("PARTITIONED BY must name dimensions: a grid has no transforms of them")
                found.setdefault("dims", ",".join(names))
            case exp.Property() if type(each) is exp.Property:
                name = each.this.name if isinstance(each.this, exp.Literal) else each.this.sql()
                found[name] = each.args["value"].name
    if "path" in found:
        raise refused("A table of the catalog is a group of its repository: leave out the option path")
    return found


def create(views: StatementViews, tree: exp.Create) -> Result:
    """Create a table, with or without the rows of a query; or a view of the session."""
    if tree.kind == "VIEW":
        return _create_view(views, tree)
    schema = tree.this if isinstance(tree.this, exp.Schema) else None
    place = views.find(tree.this if schema is None else schema.this, new=True)
    if place is None:
        return None
    if tree.kind != "TABLE":
        raise refused("A namespace is a group, which CREATE TABLE makes with its first table")
    require_clauses(tree, place.name)
    existing = place.arrays()
    if existing and tree.args.get("exists"):
        return done(place, place.version.snapshot_id)
    if existing and not tree.args.get("replace"):
        raise AlreadyExistsError(f"`{place.name}` must be a new table, got one with {', '.join(existing)}")
    properties = _properties(tree.args.get("properties") or exp.Properties(expressions=[]))
    columns = [each for each in schema.expressions if isinstance(each, exp.ColumnDef)] if schema else []
    query = tree.expression
    if query is None:
        query = _nulls(columns).where(exp.false())
    elif schema and any(isinstance(each, exp.ColumnDef | exp.Identifier) for each in schema.expressions):
        raise refused(
            f"CREATE TABLE of `{place.name}` must have columns or a query, got both. Name the columns in the "
            "query, and type CAST for their types"
        )
    else:
        with_expressions(query, tree)
        if any(each.args["no"] for each in tree.find_all(exp.WithDataProperty)):
            query = query.limit(0)
    order = views.engine.columns(views.bound_text(query))
    dims = _dims(views, schema, order, properties)
    require_nullable(columns, dims)
    chunks = {
        name.strip(): int(size)
        for name, _, size in (each.partition("=") for each in properties.pop("chunks", "").split(","))
        if name.strip()
    }
    comments = _comments(columns)

    def prepared(job: Job) -> Job:
        def prepare(session: Session) -> Tasks:
            _delete_arrays(session, place, existing)
            tasks = job.prepare(session)
            _set_attributes(session, place.group, {**properties, COLUMN_ORDER: order})
            for name, comment in comments.items():
                _set_attributes(session, _path(place, name), {_COMMENT: comment})
            return tasks

        return dataclasses.replace(job, prepare=prepare)

    options = WriteOptions(dims=dims, chunks=chunks or None)
    return write(views, place, query, options, f"CREATE TABLE `{place.name}`", prepared)


def _comments(columns: Iterable[exp.ColumnDef]) -> dict[str, str]:
    """Return the comments of columns by name."""
    return {
        each.name: one.kind.name
        for each in columns
        for one in each.constraints
        if isinstance(one.kind, exp.CommentColumnConstraint)
    }


def _nulls(columns: Sequence[exp.ColumnDef]) -> exp.Select:
    """Return a query with a null for each column."""
    nulls = [exp.cast(exp.Null(), each.args["kind"]) for each in columns]
    return exp.select(
        *(exp.alias_(each, of.name, quoted=True) for each, of in zip(nulls, columns, strict=True))
    )


def _dims(
    views: StatementViews, schema: exp.Schema | None, columns: Sequence[str], properties: dict[str, str]
) -> list[str]:
    """Return the dimensions of a new table, and take them from its properties."""
    given = [each.strip() for each in properties.pop("dims", "").split(",") if each.strip()]
    for each in schema.expressions if schema else ():
        key = each.find(exp.PrimaryKey)
        if key is not None:
            given = [one.name for one in key.expressions]
        elif isinstance(each, exp.ColumnDef) and each.find(exp.PrimaryKeyColumnConstraint):
            given = [each.name]
    if not given:
        tables = (each for each in views.read if each.metadata is None)
        given = max(
            ([dim for dim in each.grid().dims if dim in columns] for each in tables), key=len, default=[]
        )
    if not given:
        raise misfit(
            f"A new table must have dimensions, got the columns {', '.join(columns)} only. Type PRIMARY KEY "
            "(time, lat, lon) after the columns, or TBLPROPERTIES ('dims' = 'time,lat,lon')"
        )
    return given


def _create_view(views: StatementViews, tree: exp.Create) -> Result:
    query = tree.expression.copy()
    if not views.bind(query, keeps_names=False):
        return None
    properties = tree.args.get("properties")
    if properties is None or not properties.find(exp.TemporaryProperty):
        raise refused(
            "A view of tables of the catalog must be a view of the session: type CREATE TEMPORARY VIEW. "
            "Derived arrays (`frazil refresh`) are what a materialized view is for rows"
        )
    if isinstance(tree.this, exp.Schema) or tree.args.get("exists") or len(properties.expressions) > 1:
        raise refused(
            "CREATE TEMPORARY VIEW of tables of the catalog must have only a name and a query. Name the "
            "columns in the query, and leave out the rest"
        )
    name = parts_of(tree.this)[-1]
    text = query.sql(views.engine.dialect)
    views.engine.create_view(name, text, replace=bool(tree.args.get("replace")))
    return table_of(view=[name])


def drop(views: StatementViews, tree: exp.Drop) -> Result:
    """Delete the arrays of a table, and its group if nothing is left in it."""
    if tree.kind != "TABLE":
        return None
    try:
        place = views.find(tree.args["tables"][0], writes=True)
    except NodeNotFoundError:
        if tree.args.get("exists"):
            return table_of(table=[], snapshot_id=[])
        raise
    if place is None:
        return None
    require_clauses(tree, place.name)
    if len(tree.args["tables"]) > 1:
        raise refused("DROP TABLE must name one table, got several. Type a statement for each of them")
    if place.variables:
        raise refused(f"`{place.name}` is a column of a table: type ALTER TABLE ... DROP COLUMN")
    with _change(place, f"DROP TABLE `{place.name}`") as session:
        _delete_arrays(session, place, place.arrays())
        if place.group != "/" and not list(session.workspace.children(place.group)):
            session.workspace.delete_node(place.group)
    return done(place, session.snapshot_id)


def alter(views: StatementViews, tree: exp.Alter) -> Result:
    """Change the name, the columns or the properties of a table."""
    is_table = tree.args["kind"] == "TABLE"
    try:
        place = views.find(tree.this, writes=is_table)
    except NodeNotFoundError:
        if tree.args.get("exists"):
            return table_of(table=[], snapshot_id=[])
        raise
    if place is None:
        return None
    if not is_table:
        raise refused(
            f"ALTER {tree.args['kind']} must not name a table, got `{place.name}`. Type ALTER TABLE"
        )
    require_clauses(tree, place.name)
    if len(tree.args["actions"]) != 1 or type(tree.args["actions"][0]) not in _ACTIONS:
        raise refused(f"ALTER TABLE must have one change that Frazil knows, got `{tree.sql('spark')}`")
    action = tree.args["actions"][0]
    with _change(place, tree.sql("spark"), moves=isinstance(action, _MOVES)) as session:
        _ACTIONS[type(action)](views, place, session, action)
    return done(place, session.snapshot_id)


def _rename(views: StatementViews, place: TablePlace, session: Session, action: exp.AlterRename) -> None:
    parts = parts_of(action.this)
    path = f"{place.group.rpartition('/')[0]}/{parts[0]}"
    if len(parts) > 1:
        new = views.find(action.this, new=True)
        if new is None or new.version.repo is not place.version.repo:
            raise refused(f"RENAME TO must name the repository of `{place.name}`, got `{'.'.join(parts)}`")
        path = new.group
    session.move(place.group, path)


def _variable(place: TablePlace, name: str) -> str:
    """Return the path of a variable."""
    grid = place.grid()
    column = grid.column(name)
    if column.name in grid.dims:
        raise refused(f"{column.name} is a dimension of `{place.name}`, and arrays need it: name a variable")
    return str(column.path)


def _rename_column(
    views: StatementViews, place: TablePlace, session: Session, action: exp.RenameColumn
) -> None:
    name = action.args["to"].name
    require_column_name(name)
    session.move(_variable(place, action.this.name), _path(place, name))


def _add_columns(views: StatementViews, place: TablePlace, session: Session, action: exp.Expr) -> None:
    added = [action] if isinstance(action, exp.ColumnDef) else action.expressions
    if action.find(exp.PrimaryKey, exp.PrimaryKeyColumnConstraint):
        raise refused(f"`{place.name}` must keep its dimensions, got PRIMARY KEY. Leave it out")
    require_nullable(added)
    with views.engine.source(_nulls(added).sql(views.engine.dialect)) as source:
        fields = list(source.schema)
    table = RowTable.of(place)
    lower = {each.lower() for each in table.names}
    existing = {each.name for each in added if each.name.lower() in lower}
    for each in added:
        if each.name in existing and not each.args.get("exists"):
            raise AlreadyExistsError(f"`{place.name}` must not have the column, got {each.name}")
    new = [each for each in fields if each.name not in existing]
    add_columns(session, place.group, pa.schema([*table.writable(), *new]), {}, set)
    for name, text in _comments(each for each in added if each.name not in existing).items():
        _set_attributes(session, _path(place, name), {_COMMENT: text})


def _drop_column(views: StatementViews, place: TablePlace, session: Session, action: exp.Drop) -> None:
    if action.kind != "COLUMN":
        raise refused(f"DROP must be DROP COLUMN with one column, got `{action.sql('spark')}`")
    name = action.args["tables"][0].name
    if action.args.get("exists") and name.lower() not in {each.name.lower() for each in place.grid().columns}:
        return
    session.workspace.delete_node(_variable(place, name))


def _set_properties(views: StatementViews, place: TablePlace, session: Session, action: exp.Expr) -> None:
    _set_attributes(session, place.group, _properties(action))


def _comment_column(
    views: StatementViews, place: TablePlace, session: Session, action: exp.AlterColumn
) -> None:
    if action.args.get("comment") is None:
        raise refused("ALTER COLUMN must have a COMMENT: an array keeps its type")
    path = _path(place, place.grid().column(action.this.name).name)
    _set_attributes(session, path, {_COMMENT: action.args["comment"].name})


_MOVES: Final = (exp.AlterRename, exp.RenameColumn)
_ACTIONS: Final[Mapping[type[exp.Expr], Callable[[StatementViews, TablePlace, Session, Any], None]]] = {
    exp.AlterRename: _rename,
    exp.RenameColumn: _rename_column,
    exp.ColumnDef: _add_columns,
    exp.Schema: _add_columns,
    exp.Drop: _drop_column,
    exp.AlterSet: _set_properties,
    exp.AlterColumn: _comment_column,
}


def comment(views: StatementViews, tree: exp.Comment) -> Result:
    """Set the comment of a table."""
    place = views.find(tree.this, writes=True) if tree.args["kind"] == "TABLE" else None
    if place is None:
        return None
    with _change(place, tree.sql("spark")) as session:
        _set_attributes(session, place.group, {_COMMENT: tree.expression.name})
    return done(place, session.snapshot_id)


def describe(views: StatementViews, tree: exp.Describe) -> Result:
    """Return the columns of a table, and more about it; or its history."""
    place = views.find(tree.this) if isinstance(tree.this, exp.Table) else None
    if place is None or place.metadata is not None:
        return None
    style = str(tree.args.get("style") or "").upper()
    if style == "HISTORY":
        return metadata_rows(place, "history")
    grid, attributes = place.grid(), _attributes(place)
    rows = [
        (each.name, sql_type(each.type).sql("spark"), str(attributes[each.name].get(_COMMENT, "")))
        for each in grid.columns
    ]
    if style in ("EXTENDED", "FORMATTED"):
        rows += [("", "", ""), ("# Table", "", "")]
        sizes = ", ".join(f"{name} = {size}" for name, size in zip(grid.dims, grid.shape, strict=True))
        facts = {
            "Name": place.name,
            "Repository": storage_label(place.version.repo.storage),
            "Version": place.version.place(),
            "Group": place.group,
            "Dimensions": sizes,
            "Chunks": "; ".join(f"{each.name} {each.chunks}" for each in grid.columns if each.chunks),
            **{name: str(value) for name, value in attributes[""].items()},
        }
        rows += [(name, value, "") for name, value in facts.items()]
    names, types, comments = zip(*rows, strict=True)
    return table_of(col_name=names, data_type=types, comment=comments)


def _attributes(place: TablePlace) -> dict[str, dict[str, Any]]:
    """Return the attributes of the group, by the name "", and of the columns."""
    group = zarr.open_group(place.session.store, path=place.group.strip("/"), mode="r", zarr_format=3)
    own = {each.name: dict(group[each.name].attrs) if each.path else {} for each in place.grid().columns}
    return {"": dict(group.attrs), **own}


def _show_tables(views: StatementViews, name: list[str]) -> pa.Table:
    repository, path = views.lookup.namespace(name)
    tables = [each.rpartition(".") for each in views.lookup.tables(repository, path=path)]
    spaces, _, names = zip(*tables, strict=True) if tables else ((), (), ())
    return table_of(namespace=spaces, tableName=names)


def _show_namespaces(views: StatementViews, name: list[str]) -> pa.Table:
    repository, path = views.lookup.namespace(name)
    nodes = views.lookup.version(repository, **views.lookup.names.version).session().workspace.snapshot.nodes
    groups = nodes.select_nodes(~nodes.is_array).paths_list()
    inside = [each for each in groups if each.startswith(path.rstrip("/") + "/") and each != "/"]
    return table_of(
        namespace=[".".join([repository, *each.strip("/").split("/")]) for each in sorted(inside)]
    )


def _show_columns(views: StatementViews, name: list[str]) -> pa.Table:
    return table_of(col_name=[each.name for each in views.lookup.require(name).grid().columns])


def _show_properties(views: StatementViews, name: list[str]) -> pa.Table:
    attributes = _attributes(views.lookup.require(name))[""]
    attributes.pop(COLUMN_ORDER, None)
    return table_of(key=list(attributes), value=list(map(str, attributes.values())))


def _show_create(views: StatementViews, name: list[str]) -> pa.Table:
    """Return the statement that makes the table again, without its rows."""
    place = views.lookup.require(name)
    grid, attributes = place.grid(), _attributes(place)
    cells = RowTable(place, grid)
    made = [each for each in grid.columns if each.name in (*grid.dims, *cells.variables)]
    lines = [
        f"`{each.name}` {sql_type(each.type).sql('spark')}"
        + (
            f" COMMENT {_quoted(attributes[each.name][_COMMENT])}"
            if _COMMENT in attributes[each.name]
            else ""
        )
        for each in made
    ]
    lines.append(f"PRIMARY KEY ({', '.join(f'`{each}`' for each in grid.dims)})")
    first = grid.column(cells.variables[0])
    steps = {grid.dims[axis]: step for axis, step in zip(first.axes, first.chunks, strict=True)}
    properties = {"chunks": ",".join(f"{dim}={steps[dim]}" for dim in grid.dims), **attributes[""]}
    properties.pop(COLUMN_ORDER, None)
    pairs = ", ".join(f"{_quoted(each)} = {_quoted(value)}" for each, value in properties.items())
    text = ".".join(f"`{each}`" for each in name)
    return table_of(
        createtab_stmt=[f"CREATE TABLE {text} (\n  {',\n  '.join(lines)})\nTBLPROPERTIES ({pairs})"]
    )


def _quoted(value: Any) -> str:
    return exp.Literal.string(str(value)).sql("spark")


def _show_partitions(views: StatementViews, name: list[str]) -> pa.Table:
    raise refused(
        f"`{'.'.join(name)}` is a grid, which has no partitions: the table "
        f"{'.'.join(name)}.regions lists its chunks"
    )


_IN: Final = r"\s+(?:IN|FROM)\s+"
#: Beginning of a statement SHOW -> what shows it. The rest is a name.
SHOWN: Final[Mapping[str, Callable[[StatementViews, list[str]], pa.Table]]] = {
    rf"TABLES{_IN}": _show_tables,
    rf"(?:NAMESPACES|SCHEMAS|DATABASES){_IN}": _show_namespaces,
    rf"COLUMNS{_IN}": _show_columns,
    r"TBLPROPERTIES\s+": _show_properties,
    r"CREATE\s+TABLE\s+": _show_create,
    r"PARTITIONS\s+": _show_partitions,
}


def show(views: StatementViews, text: str) -> Result:
    """Return what a statement SHOW lists, if it names something of the catalog."""
    if re.fullmatch(r"CATALOGS\s*", text, re.IGNORECASE):
        return table_of(catalog=list(views.lookup.names.repositories))
    current = views.lookup.names.current
    if re.fullmatch(r"TABLES\s*", text, re.IGNORECASE) and current is not None:
        return _show_tables(views, [current, *filter(None, views.lookup.names.path.split("/"))])
    for pattern, handler in SHOWN.items():
        found = re.match(pattern, text, re.IGNORECASE)
        if found:
            name = parts_of(exp.to_table(text[found.end() :].strip(), dialect=views.engine.dialect))
            return handler(views, name) if views.lookup.knows(name) else None
    return None
