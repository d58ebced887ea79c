"""The operations of upkeep that SQL has: procedures of CALL, and functions of Spark.

A Python function declares an operation: its name, and its parameters after the `UpkeepCall`, with their
types and defaults. Spark may evaluate a function more than once. So the *pin* is the state of the repository
when Spark analyzes the statement, once, and the *work* starts from this state, or returns the result if the
work is done already: a branch moves only from the pinned tip, a tag is created only at the pinned snapshot,
and a commit has the id of the call in its metadata.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, cast

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil import pipeline
from frazil.arguments import conflicting
from frazil.display import suggest
from frazil.errors import AlreadyExistsError, ConflictError, ErrorKind, FormatError, InvalidInputError
from frazil.format.ids import id_from_text
from frazil.handle.repository import Repository, context_of
from frazil.jobs.engine import Threads
from frazil.jobs.job import Version
from frazil.maintenance.hold_backs import Hold
from frazil.maintenance.withdrawal.selection import DataSelection
from frazil.pipeline.publishing import publish as publish_branch
from frazil.pipeline.publishing.operation import create_tag_once, rollback_target
from frazil.pipeline.replication import copy_repository
from frazil.repository.catalog.ancestry import is_in_history
from frazil.repository.catalog.repo_changes import branch_tip
from frazil.repository.target import parse_index
from frazil.spark.tables import options as source_options
from frazil.spark.tables.repository_tables import columns

type Pin = Mapping[str, str]
type Rows = Iterator[Mapping[str, Any]]
type Values = Mapping[str, Any]

_USE: Final = source_options.Use(
    "a function", source_options.PLACE_OPTIONS - frozenset(source_options.VERSION_OPTIONS)
)


@dataclass(frozen=True, slots=True)
class UpkeepCall:
    """One call of a function: the repository, the profiles of the session, and the pin."""

    repo: Repository
    profiles: source_options.Profiles
    pin: Pin = field(default_factory=dict)


def _time(name: str, value: Any) -> datetime | None:
    if isinstance(value, str):
        return source_options.timestamp(value, name)
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
    """A function: see the module. ``pin`` gets the repository and the values of the arguments."""

    work: Callable[..., Rows]
    schema: pa.Schema
    pin: Callable[..., Pin]

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

    def parse(self, inputs: Values, unset: Iterable[str] = ()) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the options of the location, and the values of all arguments, None if they are ``unset``."""
        options = {name: each for name, each in inputs.items() if name not in self.arguments}
        known = {*_USE.options, "options"}
        unknown = [name for name in source_options.canonical(dict.fromkeys(options, "")) if name not in known]
        if unknown:
            names = [*self.parameters, "options"]
            raise InvalidInputError(
                f"An argument of {self.name} must be one of {', '.join(names)}, or an option of the storage, "
                f"got {unknown[0]}{suggest(unknown[0], names)}"
            )
        values = {name: each.default for name, each in self.arguments.items()} | dict.fromkeys(unset)
        for name, value in inputs.items():
            if name in self.arguments and value is not None:
                kind = self.arguments[name].annotation
                expected, convert = _KINDS[kind if kind in _KINDS else str]  # `str | None`
                values[name] = convert(name, value)
                if values[name] is None:
                    raise InvalidInputError(f"The argument {name} must be {expected}, got {value!r}")
        missing = [name for name, value in values.items() if value is inspect.Parameter.empty]
        if missing:
            raise InvalidInputError(f"{self.name} must have the argument {missing[0]}, got none")
        return options_of_call(options, _USE), values


def options_of_call(arguments: Mapping[str, Any], use: source_options.Use) -> dict[str, str]:
    """Return the options of a call: named arguments, and those in the argument ``options``."""
    named = {
        name.lower(): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in arguments.items()
        if value is not None
    }
    parts = [each.partition("=") for each in named.pop("options", "").split(",") if each.strip()]
    without = [name.strip() for name, equal, _ in parts if not equal]
    if without:
        raise InvalidInputError(f"An option must be name=value, got `{without[0]}`")
    options = source_options.canonical(named)
    more = source_options.canonical({name.strip().lower(): value.strip() for name, _, value in parts})
    twice = sorted(options.keys() & more.keys())
    if twice:
        raise conflicting(f"An option must be set once, got `{twice[0]}` as an argument and in `options`")
    unknown = [name for name in (*options, *more) if name not in use.options]
    if unknown:
        raise InvalidInputError("; ".join(source_options.advice(name, use) for name in unknown))
    return options | more


#: All functions of upkeep.
UPKEEP: Final[list[UpkeepFunction]] = []


def _declare[F: Callable[..., Rows]](
    schema: str, pin: Callable[..., Pin] = lambda repo, **values: {}
) -> Callable[[F], F]:
    """Return a decorator that declares a function of SQL, with its columns and its pin."""

    def declare(work: F) -> F:
        UPKEEP.append(UpkeepFunction(work, columns(schema), pin))
        return work

    return declare


#: The key of the id of a call in the metadata of its commit.
CALL: Final = "frazil.sql.call"


@_declare("kind, name, message, removed flag")
def expire(
    call: UpkeepCall,
    older_than: datetime,
    dry_run: bool = True,
    delete_branches: bool = False,
    delete_tags: bool = False,
) -> Rows:
    """Remove old versions. A second evaluation has no versions to remove."""
    plan = call.repo.upkeep.expire(
        older_than, delete_expired_branches=delete_branches, delete_expired_tags=delete_tags
    )
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
    *("bytes_deleted", "chunks_deleted", "manifests_deleted", "snapshots_deleted", "attributes_deleted"),
    *("transaction_logs_deleted", "backups_deleted", "objects_failed_to_delete", "leases_respected"),
)


@_declare(f"dry_run flag, {', '.join(f'{name} number' for name in _COLLECTED)}")
def collect(call: UpkeepCall, older_than: datetime, dry_run: bool = True) -> Rows:
    """Delete files. A second evaluation has no files to delete."""
    plan = call.repo.upkeep.collect(older_than)
    summary = plan.report if dry_run else plan.apply()
    yield {"dry_run": dry_run, **{name: getattr(summary, name) for name in _COLLECTED}}


_MERGED: Final = ("new_files", "bytes_moved", "bytes_freed", "manifests", "new_manifests")


@_declare(f"dry_run flag, {', '.join(f'{name} number' for name in ('files', *_MERGED))}, snapshot_id")
def compact(
    call: UpkeepCall, branch: str = "main", dry_run: bool = False, message: str = "Merge chunk files"
) -> Rows:
    """Merge chunk files. A second evaluation has no files to merge, and makes no commit."""
    plan = call.repo.upkeep.compact(message, branch=branch)
    report = plan.report if dry_run else plan.apply()
    numbers = {name: getattr(report, name) for name in _MERGED}
    files = len(report.files)
    yield {"dry_run": dry_run, "files": files, **numbers, "snapshot_id": report.snapshots.get(branch)}


#: The date is a text, because Sail (0.7) has no times in results of functions.
_HOLD_COLUMNS: Final = "name, branch, until, what texts, tag, snapshot_id"


def _hold_row(hold: Hold, **further: Any) -> Mapping[str, Any]:
    names = [each.split()[0] for each in _HOLD_COLUMNS.split(", ")]
    values = {name: getattr(hold, name) for name in names}
    return {**values, "until": hold.until.isoformat(), "what": [*hold.what], **further}


@_declare(_HOLD_COLUMNS)
def holds(call: UpkeepCall) -> Rows:
    """Return the hold-backs."""
    yield from map(_hold_row, call.repo.upkeep.holds())


@_declare(f"{_HOLD_COLUMNS}, visible texts, dry_run flag, done_before flag")
def hold(
    call: UpkeepCall,
    name: str,
    paths: str,
    until: datetime,
    box: str | None = None,
    branch: str = "main",
    dry_run: bool = False,
) -> Rows:
    """Hide data until a date. A second evaluation finds the same hold-back."""
    index = None if box is None else parse_index(box)
    data = {path.strip(): index for path in paths.split(",")}
    wanted = name, branch, until, DataSelection.of(data, (), follow=False).texts()
    existing = (
        each for each in call.repo.upkeep.holds() if (each.name, each.branch, each.until, each.what) == wanted
    )
    before = next(existing, None)
    plan = call.repo.upkeep.hold(data, until=until, name=name, branch=branch)
    after = before or (plan.report if dry_run else plan.apply())
    yield _hold_row(after, visible=[*after.visible], dry_run=dry_run, done_before=before is not None)


@_declare(
    "name, snapshot_id, done_before flag",
    lambda repo, *, name, **others: {
        "hold": next((each.snapshot_id for each in repo.upkeep.holds() if each.name == name), "")
    },
)
def end_hold(call: UpkeepCall, name: str, conflicts: str = "refuse") -> Rows:
    """End the pinned hold-back, unless it has ended."""
    done_before = bool(call.pin["hold"]) and all(each.name != name for each in call.repo.upkeep.holds())
    plan = call.repo.upkeep.end_hold(name, conflicts=cast("Any", conflicts))
    yield {"name": name, "snapshot_id": None if done_before else plan.apply(), "done_before": done_before}


_REFRESHED: Final = ("path", "operation", "state", "chunks", "of_chunks", "bytes_read", "reason")


@_declare(
    "path, operation, state, chunks number, of_chunks number, bytes_read number, reason, snapshot_id",
    lambda repo, *, branch, **others: {"tip": repo.lookup_branch(branch)},
)
def refresh(
    call: UpkeepCall,
    branch: str = "main",
    paths: str | None = None,
    mode: str = "auto",
    edits: str = "refuse",
    dry_run: bool = False,
) -> Rows:
    """Refresh derived arrays. A second evaluation has the same rows, and nothing to compute."""
    chosen = None if paths is None else [path.strip() for path in paths.split(",")]
    before = pipeline.derived(Version(call.repo, call.pin["tip"], branch), chosen)
    plan = pipeline.refresh(
        call.repo, chosen, branch=branch, mode=cast("Any", mode), edits=cast("Any", edits), engine=Threads()
    )
    snapshot_id = None if dry_run else plan.apply().version.snapshot_id
    for row in before.arrays:
        if row.state != "current":
            values = {name: getattr(row, name) for name in _REFRESHED}
            yield {**values, "state": str(row.state), "snapshot_id": snapshot_id}


@_declare(
    "branch, snapshot_id, done_before flag",
    lambda repo, *, branch, **others: {"tip": repo.lookup_branch(branch), "call": uuid.uuid4().hex},
)
def rewrite_manifests(call: UpkeepCall, branch: str = "main", message: str = "Rewrite the manifests") -> Rows:
    """Rewrite the manifests, unless a commit after the pinned tip has the id of this call."""
    newer = takewhile(lambda each: each.id != call.pin["tip"], call.repo.ancestry(branch=branch))
    snapshot_id = next((each.id for each in newer if each.metadata.get(CALL) == call.pin["call"]), None)
    done_before = snapshot_id is not None
    if snapshot_id is None:
        metadata = {CALL: call.pin["call"]}
        snapshot_id = call.repo.rewrite_manifests(message, branch=branch, metadata=metadata)
    yield {"branch": branch, "snapshot_id": snapshot_id, "done_before": done_before}


@_declare("objects number, bytes number, existing number")
def copy(call: UpkeepCall, target: str, target_options: str = "") -> Rows:
    """Copy the repository. A second evaluation copies the objects that the target lacks."""
    options = options_of_call(
        {"options": target_options}, source_options.Use("the target of a copy", source_options.PLACE_OPTIONS)
    )
    storage = source_options.storage_at(call.profiles.resolve({**options, "path": target}))
    copied = copy_repository(call.repo, storage, engine=Threads())
    yield {"objects": copied.objects, "bytes": copied.bytes, "existing": copied.existing}


@_declare(
    "severity, check, key, path, coordinates numbers, detail, action, arrays texts, branches texts, "
    "tags texts, snapshots number"
)
def verify(call: UpkeepCall, level: str = "metadata") -> Rows:
    """Return the findings of a verification, which changes nothing."""
    for row in call.repo.upkeep.verify(level).rows():  # type: ignore[arg-type]  # the method checks the level
        coordinates = row["coordinates"]
        yield {**row, "coordinates": None if coordinates is None else [int(each) for each in coordinates]}


@_declare(
    "tag, snapshot_id, done_before flag",
    lambda repo, *, version, **others: {"snapshot_id": source_options.snapshot_named(repo, version)},
)
def tag(call: UpkeepCall, name: str, version: str = "main") -> Rows:
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


@_declare(
    "branch, previous_snapshot_id, snapshot_id, done_before flag",
    lambda repo, *, branch, to: {
        "tip": repo.lookup_branch(branch),
        "snapshot_id": rollback_target(repo, branch, to),
    },
)
def reset(call: UpkeepCall, branch: str, to: str) -> Rows:
    """Move the branch from the pinned tip, unless it has moved already."""
    tip, target = call.pin["tip"], call.pin["snapshot_id"]
    is_moved = not _has(call.repo, branch, tip) and _has(call.repo, branch, target)
    done_before = tip == target or is_moved  # even if others have committed since
    if not done_before:
        call.repo.reset_branch(branch, target, from_snapshot_id=tip)
    ids = {"previous_snapshot_id": tip, "snapshot_id": target}
    yield {"branch": branch, **ids, "done_before": done_before}


@_declare(
    "branch, snapshot_id, tag, done_before flag",
    lambda repo, *, branch, **others: {"snapshot_id": repo.lookup_branch(branch)},
)
def publish(call: UpkeepCall, branch: str, onto: str = "main", tag: str | None = None) -> Rows:
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
