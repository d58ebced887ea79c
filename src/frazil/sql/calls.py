"""Statements about versions and upkeep: CALL, ALTER TABLE ... BRANCH | TAG, OPTIMIZE, VACUUM, ANALYZE, USE.

CALL has the operations of `frazil.sql.procedures`, under their names and those of Iceberg. They are about a
repository with all its tables. The procedures of Iceberg name a table first, which tells the repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from sqlglot import exp

from frazil.errors import InvalidInputError
from frazil.handle.repository import Repository
from frazil.lazy_names import ModuleOnDemand
from frazil.spark.tables.options import Profiles
from frazil.sql.names import TablePlace
from frazil.sql.queries import StatementViews, parse, parts_of
from frazil.sql.table_statements import Result, table_of

if TYPE_CHECKING:
    from frazil.sql import procedures
else:  # they need the packages of pipelines, which other statements do without
    procedures = ModuleOnDemand("frazil.sql.procedures")

#: Procedure of Iceberg -> the operation, its arguments after the table by the names of the operation, and
#: arguments that it always has.
_ICEBERG: Final[Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Any]]]] = {
    "rollback_to_snapshot": ("reset", {"snapshot_id": "to"}, {"branch": "main"}),
    "set_current_snapshot": ("reset", {"snapshot_id": "to"}, {"branch": "main"}),
    "fast_forward": ("publish", {"branch": "onto", "to": "branch"}, {}),
    "expire_snapshots": ("expire", {"older_than": "older_than"}, {"dry_run": False}),
    "remove_orphan_files": (
        "collect",
        {"older_than": "older_than", "dry_run": "dry_run"},
        {"dry_run": False},
    ),
    "rewrite_data_files": ("compact", {}, {}),
    "rewrite_manifests": ("rewrite_manifests", {}, {}),
}


def _functions() -> dict[str, procedures.UpkeepFunction]:
    return {each.work.__name__: each for each in procedures.UPKEEP}


def rows_of(function: procedures.UpkeepFunction, repo: Repository, given: Mapping[str, Any]) -> pa.Table:
    """Run an operation, and return its rows."""
    _, values = function.parse(given)
    rows = list(
        function.work(procedures.UpkeepCall(repo, Profiles(), function.pin(repo, **values)), **values)
    )
    return pa.Table.from_pylist(rows, function.schema)


def call(views: StatementViews, text: str) -> Result:
    """Run CALL ``[repository.][system.]procedure(arguments)``."""
    (tree,) = parse(f"SELECT {text}", views.engine.dialect)
    function = tree.find(exp.Anonymous)
    if function is None:
        raise InvalidInputError(f"CALL must have a procedure with its arguments, got `{text}`")
    functions, first = _functions(), tree.find(exp.Identifier)
    name, arguments = function.name.lower(), list(function.expressions)
    renamed: Mapping[str, str] = {}
    always: Mapping[str, Any] = {}
    repository = None if first is None else views.lookup.names.repository(first.name)
    operation = name
    if name in _ICEBERG and (name not in functions or arguments):
        operation, renamed, always = _ICEBERG[name]
        named = [each for each in arguments if isinstance(each, exp.Kwarg) and each.name.lower() == "table"]
        table = named[0].expression if named else arguments[0] if arguments else None
        if table is None or not isinstance(table, exp.Literal):
            raise InvalidInputError(f"{name} must have a table first, such as 'ice.air', got none")
        arguments = [each for each in arguments if each is not table and each not in named]
        parts = parts_of(exp.to_table(table.name, dialect=views.engine.dialect))
        place = views.lookup.find(parts) or views.lookup.find([repository or "", *parts])
        if place is None:
            raise InvalidInputError(f"{name} must have a table of the catalog, got `{table.name}`")
        repo = place.version.repo
    else:
        repo = views.lookup.names.repositories[views.lookup.only(repository)]
    if operation not in functions:
        names = ", ".join(sorted({*functions, *_ICEBERG}))
        raise InvalidInputError(f"A procedure must be one of {names}, got `{name}`")
    parameters = list(renamed) or list(functions[operation].arguments)
    given = dict(always)
    for position, each in enumerate(arguments):
        if not isinstance(each, exp.Kwarg) and position >= len(parameters):
            raise InvalidInputError(f"{name} must have at most {len(parameters)} arguments, got more")
        key = each.this.name.lower() if isinstance(each, exp.Kwarg) else parameters[position]
        value = each.expression if isinstance(each, exp.Kwarg) else each
        key = renamed.get(key, key)
        is_time = "datetime" in str(getattr(functions[operation].arguments.get(key), "annotation", ""))
        given[key] = str(views.micros(value) // 1000) if is_time else views.value(value)
    return rows_of(functions[operation], repo, given)


_REF: Final = re.compile(
    r"TABLE\s+(?P<table>\S+)\s+(?P<verb>CREATE|DROP)\s+(?P<kind>BRANCH|TAG)\s+(?P<exists>IF\s+(?:NOT\s+)?EXISTS\s+)?"
    r"(?P<name>\S+?)(?:\s+AS\s+OF\s+VERSION\s+(?P<version>\S+))?\s*",
    re.IGNORECASE,
)


def change_ref(views: StatementViews, text: str) -> Result:
    """Create or drop a branch or a tag: ``ALTER TABLE t CREATE TAG v1 AS OF VERSION x``."""
    found = _REF.fullmatch(text)
    place = found and _place(views, found["table"])
    if not found or not place:
        return None
    repo, name = place.version.repo, found["name"].strip("`'\"")
    is_new, is_branch = found["verb"].upper() == "CREATE", found["kind"].upper() == "BRANCH"
    has = name in (repo.list_branches() if is_branch else repo.list_tags())
    if not (found["exists"] and has == is_new):
        version = place.version.snapshot_id
        if found["version"]:
            repository = views.lookup.only(None, place)
            version = views.lookup.version(repository, at=found["version"].strip("'\"")).snapshot_id
        if is_new:
            (repo.create_branch if is_branch else repo.create_tag)(name, version)
        else:
            (repo.delete_branch if is_branch else repo.delete_tag)(name)
    return table_of(name=[name], type=[found["kind"].lower()])


def _place(views: StatementViews, text: str) -> TablePlace | None:
    return views.find(exp.to_table(text, dialect=views.engine.dialect))


def optimize(views: StatementViews, text: str) -> Result:
    """Merge small chunk files of the repository of a table."""
    place = _place(views, text.split()[0])
    return None if place is None else rows_of(_functions()["compact"], place.version.repo, {})


_VACUUM: Final = re.compile(
    r"(?P<table>\S+)(?:\s+RETAIN\s+(?P<hours>\d+)\s+HOURS)?(?P<dry>\s+DRY\s+RUN)?\s*", re.IGNORECASE
)


def vacuum(views: StatementViews, text: str) -> Result:
    """Delete files that no version of the repository of a table needs, and that are old enough."""
    found = _VACUUM.fullmatch(text)
    place = found and _place(views, found["table"])
    if not found or not place:
        return None
    older_than = datetime.now(UTC) - timedelta(hours=int(found["hours"] or 168))
    given = {"older_than": older_than.isoformat(), "dry_run": bool(found["dry"])}
    return rows_of(_functions()["collect"], place.version.repo, given)


def analyze(views: StatementViews, tree: exp.Analyze) -> Result:
    """Store the statistics of the chunks of a table, which later scans use."""
    place = views.find(tree.args["tables"][0]) if tree.args.get("tables") else None
    if place is None:
        return None
    paths = list(place.input().paths)
    report = place.version.repo.upkeep.build_statistics(place.version.snapshot_id, paths)
    return table_of(table=[place.name], chunks_failed=[str(report.chunks_failed)])


def use(views: StatementViews, tree: exp.Use) -> Result:
    """Choose the namespace of names without a repository."""
    names, parts = views.lookup.names, parts_of(tree.this)
    if tree.this.alias and parts[0].upper() in ("NAMESPACE", "SCHEMA", "DATABASE", "CATALOG"):
        parts = [tree.this.alias]
    if names.repository(parts[0]) is None:
        names.current = None
        return None
    names.current, names.path = views.lookup.namespace(parts)
    return table_of(namespace=[".".join(parts)])
