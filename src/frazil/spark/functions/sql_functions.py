"""Functions of SQL, each of which returns a table: rows, tables about a repository, and its upkeep.

    SELECT time, max(tas) FROM frazil_rows('climate', tag => 'v1', where => 'lat > 0') GROUP BY time
    SELECT * FROM frazil_chunks('s3://bucket/ice', options => 'tag=v1,array=tas')
    SELECT * FROM frazil_tag('climate', 'v2')

The first argument is the path. Options of the data source are named arguments, with ``_`` instead of ``-``,
and the argument ``options`` has several of them as ``name=value``, separated by commas.

A Python function declares a function of upkeep: its name, and its parameters after the `Call`, with their
types and defaults. Those that delete make a dry run, unless the caller sets ``dry_run => false``. Spark may
evaluate a function more than once: a task is retried, a DataFrame gets a second action, a speculative copy of
a task runs beside it. So a function has two parts:

    pin    when Spark analyzes the statement, once: the state of the repository that the work starts from
    work   when Spark evaluates it: the work from this state, or the result if the work is done already

The pin makes the second evaluation harmless. A branch moves only from the pinned tip, a tag is created only
at the pinned snapshot, and a commit has the id of the call in its metadata. ``frazil_rows`` pins its version.
One task reads all its rows, one Python object for each value; the data source reads by many tasks.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf, udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from frazil.display import suggest
from frazil.errors import AlreadyExistsError, ConflictError, ErrorKind, FormatError, InvalidInputError
from frazil.format.ids import id_from_text
from frazil.jobs.engine import Local
from frazil.pipeline.publishing import publish as publish_branch
from frazil.pipeline.publishing.branches import create_tag_once, rollback_target
from frazil.pipeline.replication import copy_repository
from frazil.repository.catalog.ancestry import is_in_history
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.handle.repository import Repository, context_of
from frazil.spark.runtime.errors import causes_only
from frazil.spark.tables import repository_tables
from frazil.spark.tables.data_source_reader import GridReader, schema_of_rows
from frazil.spark.tables.options import (
    PLACE_OPTIONS,
    ROWS,
    VERSION_OPTIONS,
    Profiles,
    Use,
    advice,
    canonical,
    open_session_at,
    repository_at,
    snapshot_named,
    storage_at,
    timestamp,
    use_of_table,
)
from frazil.spark.tables.repository_tables import SCHEMAS, columns
from frazil.spark.tables.schemas import to_arrow_schema, to_spark

type Pin = Mapping[str, str]
type Rows = Iterator[Mapping[str, Any]]
type Values = Mapping[str, Any]

_USE: Final = Use("a function", PLACE_OPTIONS - frozenset(VERSION_OPTIONS))


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function: the repository, the profiles of the session, and the pin."""

    repo: Repository
    profiles: Profiles
    pin: Pin = field(default_factory=dict)


def _time(name: str, value: Any) -> datetime | None:
    if isinstance(value, str):
        return timestamp(value, name)
    # Spark gives a TIMESTAMP as a time of this process's zone, without the zone.
    return value.astimezone(UTC) if isinstance(value, datetime) else None


#: Type of a parameter -> what a value must be, and the conversion of a value of SQL; None for a wrong one.
_KINDS: Final[Mapping[Any, tuple[str, Callable[[str, Any], Any]]]] = {
    str: ("text", lambda name, value: value if isinstance(value, str) else None),
    bool: ("true or false", lambda name, value: {"true": True, "false": False}.get(str(value).lower())),
    datetime: ("a TIMESTAMP, or a time in ISO 8601", _time),
}


@dataclass(frozen=True)
class UpkeepFunction:
    """A function: see the module.

    Attributes:
        work: The Python function. It returns rows as dictionaries.
        schema: The columns of the rows.
        pin: The state that the work starts from: a function of the repository and the values of the
            arguments. The default is nothing.
    """

    work: Callable[..., Rows]
    schema: pa.Schema
    pin: Callable[..., Pin] = lambda repo, **values: {}

    @property
    def name(self) -> str:
        """The name in SQL."""
        return f"frazil_{self.work.__name__}"

    @cached_property
    def arguments(self) -> dict[str, inspect.Parameter]:
        """The arguments after the path."""
        _, *declared = inspect.signature(self.work, eval_str=True).parameters.items()
        return dict(declared)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments, in the order of a call without names."""
        return ("path", *self.arguments)

    def split(self, given: Values) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the options of the location, and the values of the arguments that have one.

        Raises ``InvalidInputError`` for unknown arguments, and for values of a wrong kind.
        """
        options = {name: each for name, each in given.items() if name not in self.arguments}
        known = {*_USE.options, "options"}
        unknown = [name for name in canonical(dict.fromkeys(options, "")) if name not in known]
        if unknown:
            names = [*self.parameters, "options"]
            raise _invalid(
                f"An argument of {self.name} must be one of {', '.join(names)}, or an option of the storage, "
                f"got {unknown[0]}{suggest(unknown[0], names)}"
            )
        values = {
            name: _converted(self.arguments[name], each)
            for name, each in given.items()
            if name in self.arguments and each is not None
        }
        return options_of_call(options, _USE), values

    def with_defaults(self, values: Values) -> dict[str, Any]:
        """Return the values of all arguments. Raise ``InvalidInputError`` for a missing one."""
        defaults = {name: each.default for name, each in self.arguments.items()}
        whole = {**defaults, **values}
        for name, value in whole.items():
            if value is inspect.Parameter.empty:
                raise _invalid(f"{self.name} must have the argument {name}, got none")
        return whole


def _converted(parameter: inspect.Parameter, value: Any) -> Any:
    """Return a value of SQL as a value of Python. Raise ``InvalidInputError`` for one of another kind."""
    kind = parameter.annotation if parameter.annotation in _KINDS else str  # `str | None`
    expected, convert = _KINDS[kind]
    converted = convert(parameter.name, value)
    if converted is None:
        raise _invalid(f"The argument {parameter.name} must be {expected}, got {value!r}")
    return converted


@dataclass
class UpkeepAnalysis(AnalyzeResult):
    """The columns of a function, and the state that its work starts from."""

    pin: Pin = field(default_factory=dict)


def upkeep_udtf(function: UpkeepFunction, profiles: Profiles) -> Any:
    """Return a function of SQL, for the registration with Spark."""
    times = [name for name, each in function.arguments.items() if each.annotation is datetime]
    schema = to_spark(function.schema)

    @causes_only
    class Upkeep:
        """One function: ``analyze`` runs on the driver, ``eval`` in a task."""

        def __init__(self, analysis: UpkeepAnalysis) -> None:
            self._pin = analysis.pin

        @staticmethod
        def analyze(*args: AnalyzeArgument, **kwargs: AnalyzeArgument) -> UpkeepAnalysis:
            given = constants(function.name, function.parameters, args, kwargs, variable=times)
            # Values of expressions are not known yet.
            unset = dict.fromkeys(
                bound(function.name, function.parameters, args, kwargs).keys() - given.keys()
            )
            call, values = called(function, profiles, given, unset)
            return UpkeepAnalysis(schema, pin=function.pin(call.repo, **values))

        def eval(self, *args: Any, **kwargs: Any) -> Iterator[tuple[Any, ...]]:
            given = bound(function.name, function.parameters, args, kwargs)
            call, values = called(function, profiles, given)
            for row in function.work(replace(call, pin=self._pin), **values):
                yield tuple(row[name] for name in function.schema.names)

    Upkeep.__name__ = Upkeep.__qualname__ = function.name
    return udtf(Upkeep)


def called(
    function: UpkeepFunction, profiles: Profiles, given: Values, unset: Values | None = None
) -> tuple[Call, dict[str, Any]]:
    """Return a call without its pin, and the values of all arguments."""
    options, values = function.split(given)
    all_values = function.with_defaults({**(unset or {}), **values})
    return Call(repository_at(profiles.resolve(options)), profiles), all_values


def bound[T](
    name: str, parameters: Sequence[str], args: Sequence[T], kwargs: Mapping[str, T]
) -> dict[str, T]:
    """Return the arguments of a call by their names.

    Raises ``InvalidInputError`` for too many arguments, and for two of one name.
    """
    if len(args) > len(parameters):
        raise InvalidInputError(
            f"{name} takes at most {len(parameters)} arguments without a name ({', '.join(parameters)}), got "
            f"{len(args)}",
            ErrorKind.INVALID_ARGUMENT,
        )
    positional = dict(zip(parameters, args, strict=False))
    named = {each.lower(): value for each, value in kwargs.items()}
    twice = sorted(positional.keys() & named.keys())
    if twice:
        raise InvalidInputError(
            f"{name} takes the argument {twice[0]} once, got it with and without its name",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    return positional | named


def constants(
    name: str,
    parameters: Sequence[str],
    args: Sequence[AnalyzeArgument],
    kwargs: Mapping[str, AnalyzeArgument],
    variable: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the values of the arguments of a call, without those of ``variable`` that are not constant.

    Raises ``InvalidInputError`` for other arguments that are not constant, as Spark knows their values later.
    """
    arguments = bound(name, parameters, args, kwargs)
    for each, argument in arguments.items():
        if not argument.isConstantExpression and each not in variable:
            raise InvalidInputError(
                f"The argument {each} of {name} must be a constant, got an expression. Write a literal",
                ErrorKind.INVALID_ARGUMENT,
            )
    return {each: argument.value for each, argument in arguments.items() if argument.isConstantExpression}


def options_of_call(arguments: Mapping[str, Any], use: Use) -> dict[str, str]:
    """Return the options of a call: named arguments, and those in the argument ``options``.

    Raises ``InvalidInputError`` for an unknown option (``invalid-argument``), and for an option that is set
    twice (``conflicting-arguments``).
    """
    named = {name.lower(): _text(value) for name, value in arguments.items() if value is not None}
    options = canonical({name: value for name, value in named.items() if name != "options"})
    more = parse_options(named.get("options"), use)
    twice = sorted(options.keys() & more.keys())
    if twice:
        raise InvalidInputError(
            f"An option must be set once, got `{twice[0]}` as an argument and in the argument options",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    _require_options(options, use)
    return options | more


def parse_options(text: str | None, use: Use) -> dict[str, str]:
    """Return options as text."""
    parts = [each.partition("=") for each in (text or "").split(",") if each.strip()]
    without = [name.strip() for name, equal, _ in parts if not equal]
    if without:
        raise InvalidInputError(
            f"An option must be name=value, got `{without[0]}`", ErrorKind.INVALID_ARGUMENT
        )
    options = canonical({name.strip().lower(): value.strip() for name, _, value in parts})
    _require_options(options, use)
    return options


def _require_options(options: Mapping[str, str], use: Use) -> None:
    unknown = [name for name in options if name not in use.options]
    if unknown:
        raise InvalidInputError("; ".join(advice(name, use) for name in unknown), ErrorKind.INVALID_ARGUMENT)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _invalid(text: str) -> InvalidInputError:
    return InvalidInputError(text, ErrorKind.INVALID_ARGUMENT)


#: The key of the id of a call in the metadata of its commit.
CALL: Final = "frazil.sql.call"
_TARGET: Final = Use("the target of a copy", PLACE_OPTIONS)


def expire(
    call: Call,
    older_than: datetime,
    dry_run: bool = True,
    delete_branches: bool = False,
    delete_tags: bool = False,
) -> Rows:
    """Remove old versions. A second evaluation has no versions to remove."""
    refs: dict[str, Any] = {
        "delete_expired_branches": delete_branches,
        "delete_expired_tags": delete_tags,
    }
    plan = call.repo.upkeep.expire(older_than, **refs)
    try:
        report = plan.report
    except FormatError:
        if dry_run:
            raise
        for id_ in sorted(plan.apply()):  # spec version 1 has no report
            yield {"kind": "version", "name": id_, "message": None, "removed": True}
        return
    messages = {each.id: each.message for each in report.removed}
    names = messages if dry_run else sorted(plan.apply())
    rows = [("version", id_, messages.get(id_)) for id_ in names]
    rows += [("branch", name, None) for name in report.deleted_branches]
    rows += [("tag", name, None) for name in report.deleted_tags]
    for kind, name, message in rows:
        yield {"kind": kind, "name": name, "message": message, "removed": not dry_run}


#: The columns of a garbage collection, which are attributes of its summary.
_COLLECTED: Final = (
    "bytes_deleted",
    "chunks_deleted",
    "manifests_deleted",
    "snapshots_deleted",
    "attributes_deleted",
    "transaction_logs_deleted",
    "backups_deleted",
    "objects_failed_to_delete",
    "leases_respected",
)


def collect(call: Call, older_than: datetime, dry_run: bool = True) -> Rows:
    """Delete files. A second evaluation has no files to delete."""
    plan = call.repo.upkeep.collect(older_than)
    summary = plan.report if dry_run else plan.apply()
    yield {"dry_run": dry_run, **{name: getattr(summary, name) for name in _COLLECTED}}


_MERGED: Final = ("new_files", "bytes_moved", "bytes_freed", "manifests", "new_manifests")


def compact(
    call: Call, branch: str = "main", dry_run: bool = False, message: str = "Merge chunk files"
) -> Rows:
    """Merge chunk files. A second evaluation has no files to merge, and makes no commit."""
    plan = call.repo.upkeep.compact(message, branch=branch)
    report = plan.report if dry_run else plan.apply()
    numbers = {name: getattr(report, name) for name in _MERGED}
    files = len(report.files)
    yield {"dry_run": dry_run, "files": files, **numbers, "snapshot_id": report.snapshots.get(branch)}


def rewrite_manifests(call: Call, branch: str = "main", message: str = "Rewrite the manifests") -> Rows:
    """Rewrite the manifests, unless a commit after the pinned tip has the id of this call."""
    snapshot_id = _commit_of_call(call, branch)
    done_before = snapshot_id is not None
    if snapshot_id is None:
        metadata = {CALL: call.pin["call"]}
        snapshot_id = call.repo.rewrite_manifests(message, branch=branch, metadata=metadata)
    yield {"branch": branch, "snapshot_id": snapshot_id, "done_before": done_before}


def _commit_of_call(call: Call, branch: str) -> str | None:
    for commit in call.repo.ancestry(branch=branch):
        if commit.metadata.get(CALL) == call.pin["call"]:
            return commit.id
        if commit.id == call.pin["tip"]:
            return None
    return None


def copy(call: Call, target: str, target_options: str = "") -> Rows:
    """Copy the repository. A second evaluation copies the objects that the target lacks."""
    options = parse_options(target_options, _TARGET)
    storage = storage_at(call.profiles.resolve({**options, "path": target}))
    copied = copy_repository(call.repo, storage, engine=Local())
    yield {"objects": copied.objects, "bytes": copied.bytes, "existing": copied.existing}


def verify(call: Call, level: str = "metadata") -> Rows:
    """Return the findings of a verification, which changes nothing."""
    for row in call.repo.upkeep.verify(level).rows():  # type: ignore[arg-type]  # the method checks the level
        coordinates = row["coordinates"]
        yield {**row, "coordinates": None if coordinates is None else [int(each) for each in coordinates]}


def tag(call: Call, name: str, version: str = "main") -> Rows:
    """Create the tag, or find it at the pinned snapshot."""
    snapshot_id = call.pin["snapshot_id"]
    done_before = False
    try:
        call.repo.create_tag(name, snapshot_id)
    except AlreadyExistsError:
        if name not in call.repo.list_tags() or call.repo.lookup_tag(name) != snapshot_id:
            raise
        done_before = True
    yield {"tag": name, "snapshot_id": snapshot_id, "done_before": done_before}


def reset(call: Call, branch: str, to: str) -> Rows:
    """Move the branch from the pinned tip, unless it has moved already."""
    tip, target = call.pin["tip"], call.pin["snapshot_id"]
    is_moved = not _has(call.repo, branch, tip) and _has(call.repo, branch, target)
    done_before = tip == target or is_moved  # even if others have committed since
    if not done_before:
        call.repo.reset_branch(branch, target, from_snapshot_id=tip)
    yield {
        "branch": branch,
        "previous_snapshot_id": tip,
        "snapshot_id": target,
        "done_before": done_before,
    }


def publish(call: Call, branch: str, onto: str = "main", tag: str | None = None) -> Rows:
    """Publish the pinned tip, unless the other branch has it already."""
    repo, snapshot_id = call.repo, call.pin["snapshot_id"]
    done_before = _has(repo, onto, snapshot_id)
    if not done_before and repo.lookup_branch(branch) != snapshot_id:
        raise ConflictError(
            snapshot_id,
            repo.lookup_branch(branch),
            f"`{branch}` must have the tip that it had when Spark analyzed the statement ({snapshot_id}), "
            f"got {repo.lookup_branch(branch)}. Run the statement again to publish the new commits",
            ErrorKind.BRANCH_UPDATE_CONFLICT,
        )
    if not done_before:
        publish_branch(repo, branch, onto, tag=tag)
    create_tag_once(repo, tag, snapshot_id)
    yield {"branch": onto, "snapshot_id": snapshot_id, "tag": tag, "done_before": done_before}


def _has(repo: Repository, branch: str, snapshot_id: str) -> bool:
    info = context_of(repo).catalog.repo_info()
    return is_in_history(info, id_from_text(snapshot_id), branch_tip(info, branch))


_NUMBERS: Final = ", ".join(f"{name} number" for name in _COLLECTED)
_MERGED_NUMBERS: Final = ", ".join(f"{name} number" for name in ("files", *_MERGED))
_FINDING: Final = (
    "severity, check, key, path, coordinates numbers, detail, action, arrays texts, branches texts, "
    "tags texts, snapshots number"
)
UPKEEP: Final[tuple[UpkeepFunction, ...]] = (
    UpkeepFunction(expire, columns("kind, name, message, removed flag")),
    UpkeepFunction(collect, columns(f"dry_run flag, {_NUMBERS}")),
    UpkeepFunction(compact, columns(f"dry_run flag, {_MERGED_NUMBERS}, snapshot_id")),
    UpkeepFunction(
        rewrite_manifests,
        columns("branch, snapshot_id, done_before flag"),
        lambda repo, *, branch, **others: {"tip": repo.lookup_branch(branch), "call": uuid.uuid4().hex},
    ),
    UpkeepFunction(
        reset,
        columns("branch, previous_snapshot_id, snapshot_id, done_before flag"),
        lambda repo, *, branch, to: {
            "tip": repo.lookup_branch(branch),
            "snapshot_id": rollback_target(repo, branch, to),
        },
    ),
    UpkeepFunction(
        tag,
        columns("tag, snapshot_id, done_before flag"),
        lambda repo, *, version, **others: {"snapshot_id": snapshot_named(repo, version)},
    ),
    UpkeepFunction(
        publish,
        columns("branch, snapshot_id, tag, done_before flag"),
        lambda repo, *, branch, **others: {"snapshot_id": repo.lookup_branch(branch)},
    ),
    UpkeepFunction(copy, columns("objects number, bytes number, existing number")),
    UpkeepFunction(verify, columns(_FINDING)),
)


#: The positional arguments.
_POSITIONAL: Final = ("path", "options")


@dataclass
class RowsAnalysis(AnalyzeResult):
    """The columns of a call, and its options with the id of the snapshot."""

    options: Mapping[str, str] = field(default_factory=dict)


def rows_function(profiles: Profiles) -> Any:
    """Return the function, for the registration with Spark."""

    @causes_only
    class Rows:
        """The rows of one version."""

        def __init__(self, analysis: RowsAnalysis) -> None:
            self._analysis = analysis

        @staticmethod
        def analyze(*args: AnalyzeArgument, **kwargs: AnalyzeArgument) -> RowsAnalysis:
            values = constants("frazil_rows", _POSITIONAL, args, kwargs)
            options = profiles.resolve(options_of_call(values, Use("frazil_rows", ROWS.options)))
            session = open_session_at(options)
            version = {"snapshot-id": session.snapshot_id}
            pinned = {name: each for name, each in options.items() if name not in VERSION_OPTIONS} | version
            return RowsAnalysis(to_spark(schema_of_rows(session, options)), options=pinned)

        def eval(self, *args: Any, **kwargs: Any) -> Iterator[tuple[Any, ...]]:
            options = self._analysis.options
            session = open_session_at(options)
            reader = GridReader(session, options, to_arrow_schema(self._analysis.schema))
            for partition in reader.partitions():
                for batch in reader.read(partition):
                    yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    return udtf(Rows)


def table_function(table: str, profiles: Profiles) -> Any:
    """Return the function for one of the tables, for the registration with Spark."""
    use = use_of_table(table)

    @causes_only
    class Function:
        """One of the tables. Its arguments come as columns of one row."""

        def eval(
            self, path: pa.Array | None = None, options: pa.Array | None = None, **named: pa.Array
        ) -> Iterator[pa.Table]:
            columns = {"path": path, "options": options, **named}
            values = {name: each[0].as_py() for name, each in columns.items() if each is not None}
            query = profiles.resolve(options_of_call(values, use))
            yield repository_tables.table(repository_at(query), query | {"table": table})

    Function.__name__ = Function.__qualname__ = f"frazil_{table}"
    return arrow_udtf(Function, returnType=to_spark(repository_tables.SCHEMAS[table]))


def register_functions(spark: SparkSession, profiles: Profiles) -> None:
    """Register ``frazil_rows``, the tables about a repository, and the functions for upkeep."""
    functions = {
        "frazil_rows": rows_function(profiles),
        **{f"frazil_{table}": table_function(table, profiles) for table in SCHEMAS},
        **{each.name: upkeep_udtf(each, profiles) for each in UPKEEP},
    }
    for name, function in functions.items():
        spark.udtf.register(name, function)
