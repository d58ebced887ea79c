"""Commands about the history of a repository: log, show, refs, status, ops, watch, bisect."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice, repeat, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from frazil.cli import arguments as args
from frazil.cli.command import Output, argument, option, picked, table, verb
from frazil.cli.opening import (
    SHORT,
    OpenTarget,
    clock,
    diff_document,
    diff_lines,
    refs_of_snapshots,
    version_document,
    version_line,
)
from frazil.display import counted
from frazil.extras import needs
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.presentation import history_infos, snapshot_infos
from frazil.repository.catalog.repo_changes import require_snapshot
from frazil.repository.catalog.version_info import Diff, SnapshotInfo
from frazil.repository.clock import from_datetime, to_datetime
from frazil.repository.target import MAIN, Target

if TYPE_CHECKING:
    from frazil.repository.catalog.presentation import Update


@verb("log")
def log(
    output: Output,
    target: args.AnyTarget,
    number: args.Number,
    since: args.Time,
    patch: Annotated[bool, option("-p", "--patch")],
    graph: bool,
) -> None:
    """Show the versions that lead to a version, newest first: id, time in UTC, branches and tags, message.

    With a path, only versions that changed this node, or a node below it. This reads one transaction log for
    each version, and so does --patch.

    Args:
        number: Show at most N versions.
        since: Only versions from TIME on: 2026-11-01, 7d, 12h.
        patch: Also show which nodes and chunks each version changed.
        graph: Draw all branches, or the history of @VERSION.

    Examples:
        frazil log ice                    the versions of `main`
        frazil log ice@dev -n 5           the newest five versions of a branch
        frazil log ice --graph            all branches as a graph
        frazil log ice:era5/t --patch     the versions that changed an array, with what they changed
        frazil log ice --since 7d --json  the versions of the last seven days, for programs
    """
    version = OpenTarget(target)
    if graph:
        if patch or since is not None or target.path is not None:
            raise click.UsageError("--graph shows whole histories. Leave out --patch, --since and the path")
        _draw(output, version, number)
        return
    documents = islice(_documents(version, since, patch or target.path is not None), number)
    output.emit(documents, _log_lines(output, documents, patch), pages=True)


def _log_lines(output: Output, documents: Iterator[dict[str, Any]], patch: bool) -> Iterator[str]:
    for document in documents:
        line = version_line(output, document)
        yield line if output.has_colours else output.cut(line)
        if patch:
            yield from (f"    {each}" for each in diff_lines(output, document["changes"]))


def _documents(version: OpenTarget, since: datetime | None, changes: bool) -> Iterator[dict[str, Any]]:
    """Yield the documents of versions, newest first; with ``changes`` only those that changed the path."""
    refs = refs_of_snapshots(version.info)
    versions: Iterator[tuple[SnapshotInfo, dict[str, Any]]]
    if changes:
        from frazil.history.versions import version_changes
        from frazil.repository.catalog.presentation import diff

        nothing, path = Diff(), version.path
        versions = (
            (snapshot_infos([entry])[0], diff_document(nothing if each is None else diff(each), path))
            for entry, each in version_changes(version.context, version.info, version.raw_id)
        )
    else:
        versions = zip(history_infos(version.info, version.raw_id), repeat({}))
    if since is not None:
        versions = takewhile(lambda each: each[0].written_at >= since, versions)
    for info, changed in versions:
        if changes and version.path != "/" and not any(changed.values()):
            continue
        document = version_document(info, refs.get(info.id, ()))
        yield {**document, "changes": changed} if changes else document


def _draw(output: Output, version: OpenTarget, number: int | None) -> None:
    from frazil.handle.version_history import ancestry_graph

    is_whole = version.target.version is None
    branches, tip = (version.info.branches, None) if is_whole else ({}, version.raw_id)
    graph = ancestry_graph(version.info, branches, tip, plain=not output.has_colours)
    graph = replace(graph, dots=graph.dots[:number])
    names = ("id", "time", "branches", "tags", "message")
    rows = [{"lane": dot.lane, **picked(dot.label, *names)} for dot in graph.dots]
    output.emit(rows, map(str.rstrip, str(graph).splitlines()), pages=True)


@verb("show")
def show(output: Output, target: args.AnyTarget, chunks: bool) -> None:
    """Show one version: its whole id, parent, time in UTC, branches and tags, metadata, message, and changes.

    The changes are the nodes that differ from its parent. With a path, only changes of this node and the
    nodes below it.

    Args:
        chunks: Also print the indices of changed chunks.

    Examples:
        frazil show ice                  the newest version of `main`
        frazil show ice@v1 --chunks      a tag, with the indices of all changed chunks
        frazil show ice@main~2:era5      the changes of a group, two versions ago
    """
    version = OpenTarget(target)
    info = version.repo.lookup_snapshot(version.id)
    document = version_document(info, refs_of_snapshots(version.info).get(info.id, ()))
    if info.parent_id is not None:
        diff = version.repo.diff(from_snapshot_id=info.parent_id, to_snapshot_id=info.id)
        document["changes"] = diff_document(diff, version.path)
    output.emit(document, _show_lines(output, document, chunks), pages=True)


def _show_lines(output: Output, document: dict[str, Any], chunks: bool) -> Iterator[str]:
    yield f"version  {output.paint(document['id'], 'id')}"
    yield f"parent   {document['parent'] or 'none: the first version'}"
    yield f"time     {clock(document['time'])} UTC"
    for title, kind in (("branches", "branch"), ("tags", "tag")):
        if document[title]:
            yield f"{title:<8} {', '.join(output.paint(name, kind) for name in document[title])}"
    for name, value in document["metadata"].items():
        if name == "frazil_job":
            yield f"job      {value.get('name')} {value.get('id', '')[:SHORT]}"
        elif not name.startswith(("__", "frazil")):  # --json has the records of programs, too
            yield f"{name}: {json.dumps(value, ensure_ascii=False)}"
    yield ""
    yield from (f"    {line}" for line in document["message"].splitlines() or [""])
    if any(document.get("changes", {}).values()):
        yield ""
        yield from diff_lines(output, document["changes"], chunks=chunks)


@verb("refs")
def refs(output: Output, target: args.Location) -> None:
    """List the branches and the tags: kind, name, the version that each of them names, and its time.

    Examples:
        frazil refs ice          all branches and tags
        frazil refs ice --json   the same for programs
    """
    documents = _ref_documents(OpenTarget(target).info)
    rows = table((each["kind"], each["name"], each["id"][:SHORT], clock(each["time"])) for each in documents)
    lines = (output.paint(line, each["kind"]) for each, line in zip(documents, rows, strict=True))
    output.emit(documents, lines, pages=True)


def _ref_documents(info: RepoInfo) -> list[dict[str, Any]]:
    """Return branches and tags in the form that JSON has, by kind and name."""
    return [
        {
            "kind": kind,
            "name": name,
            "id": id_to_text(names[name]),
            "time": to_datetime(entry.flushed_at),
            "message": entry.message,
        }
        for kind, names in (("branch", info.branches), ("tag", info.tags))
        for name in sorted(names)
        for entry in [info.snapshots.entry(require_snapshot(info, names[name]))]
    ]


@verb("status")
def status(output: Output, target: args.Location) -> None:
    """Show whether the repository accepts changes, the tip of each branch, and the leases of running work.

    Sessions with forks, and jobs, have leases.

    Examples:
        frazil status ice          the state of a repository
        frazil status ice --json   the same for programs
    """
    from frazil.repository.catalog.collection_guard import leases
    from frazil.repository.catalog.presentation import repo_status

    context = OpenTarget(target).context
    info = context.catalog.repo_info()
    state = repo_status(info.status)
    branches = [each for each in _ref_documents(info) if each["kind"] == "branch"]
    held: list[dict[str, Any]] = [
        {"id": each.id, "holder": each.holder()}
        | picked(each, since="taken_at", ends="ends_at", stale="is_stale")
        for each in (lease.info for lease in leases(context.storage))
    ]
    document = {
        "status": state.availability.name,
        "reason": state.limited_availability_reason,
        "spec_version": int(context.spec_version),
        "branches": branches,
        "leases": held,
    }
    reason = f": {state.limited_availability_reason}" if state.limited_availability_reason else ""
    lines = [f"{state.availability.name.replace('_', '-')}{reason}, spec version {context.spec_version:d}"]
    rows = table(
        (each["name"], each["id"][:SHORT], clock(each["time"]), each["message"].partition("\n")[0])
        for each in branches
    )
    lines += [output.cut(f"  {line}") for line in rows]
    for each in held:
        stale = ", stale: its process has ended (`frazil lease --stale`)" if each["stale"] else ""
        lines.append(f"lease {each['id']}: {each['holder']}, until {clock(each['ends'])}{stale}")
    output.emit(document, lines)


_WORD_BEGIN: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=C)(?=Ran)")


@verb("ops")
def ops(output: Output, target: args.Location, number: args.Number, since: args.Time) -> None:
    """Show the ops log, newest first: time in UTC, kind, and details such as branch and version.

    It has every change of the repository: commits, branches, tags, configuration, status, collections,
    expirations.

    Args:
        number: Show at most N updates.
        since: Only updates from TIME on: 2026-11-01, 7d, 12h.

    Examples:
        frazil ops ice -n 20        the newest twenty updates
        frazil ops ice --since 1d   the updates of the last day
        frazil ops ice --json       for programs
    """
    updates: Iterator[Update] = iter(OpenTarget(target).repo.ops_log())
    if since is not None:
        updates = takewhile(lambda each: each.updated_at >= since, updates)
    documents = map(update_document, islice(updates, number))
    output.emit(documents, (output.cut(_update_line(each)) for each in documents), pages=True)


def update_document(update: Update) -> dict[str, Any]:
    """Return one update in the form that JSON has; a status is its availability and its reason."""
    kind = _WORD_BEGIN.sub("-", type(update.kind).__name__).lower()
    details = {each.name: getattr(update.kind, each.name) for each in fields(update.kind)}
    for name, value in details.items():
        if hasattr(value, "availability"):
            reason = value.limited_availability_reason
            details[name] = f"{value.availability.name}{f': {reason}' if reason else ''}"
        elif isinstance(value, Enum):
            details[name] = value.name
    return {"time": update.updated_at, "update": kind, **details}


def _update_line(document: dict[str, Any]) -> str:
    details = [
        f"{name.replace('_snap_id', '')} {value[:SHORT] if name.endswith('_snap_id') else value}"
        for name, value in document.items()
        if name not in ("time", "update")
    ]
    return f"{clock(document['time'])}  {document['update']:<21}  {', '.join(details)}".rstrip()


@verb("watch")
def watch(
    output: Output,
    target: args.BranchTarget,
    cursor: str | None,
    since: args.Time,
    interval: Annotated[
        timedelta, option(default="5s", metavar="TIME", callback=args.converted(args.duration))
    ],
    timeout: Annotated[timedelta | None, option(metavar="TIME", callback=args.converted(args.duration))],
) -> None:
    """Print a line for each new version of a branch, until Ctrl-C: id, time in UTC, kind of change, message.

    Every version comes exactly once. With --json each line is a JSON object with a cursor, from which a later
    call continues.

    Args:
        cursor: Continue after the version with this cursor (only new versions).
        since: Also the versions from TIME on: 2026-11-01, 7d.
        interval: The pause between looks (5s).
        timeout: End if no version comes for this time.

    Examples:
        frazil watch ice@dev                     new versions, until Ctrl-C
        frazil watch ice --since 1d --timeout 0s  the versions of the last day, and no wait
        frazil watch ice --timeout 5m --json      for programs
    """
    opened = OpenTarget(target)
    repo = opened.repo
    branch = (target.version or MAIN) if cursor else opened.branch
    if since is not None and cursor is None:
        # The newest update before the time, or the oldest one
        updates = [each.updated_at for each in repo.ops_log()]
        cursor = str(from_datetime(next((each for each in updates if each < since), updates[-1])))
    for version in repo.history.watch(branch, cursor=cursor, interval=interval, timeout=timeout):
        message = "" if version.snapshot_id is None else repo.lookup_snapshot(version.snapshot_id).message
        document = {"branch": branch, **picked(version, "kind", id="snapshot_id", time="updated_at")}
        document |= {"message": message, "cursor": version.cursor}
        id_ = (version.snapshot_id or "deleted")[:SHORT]
        line = f"{output.paint(f'{id_:<8}', 'id')}  {clock(version.updated_at)}  {version.kind:<7}  "
        output.emit_now(document, line + message.partition("\n")[0])


@verb("bisect")
def bisect(
    output: Output,
    target: args.AnyTarget,
    good: args.Version,
    program: Annotated[
        tuple[str, ...], argument(nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM...]")
    ],
    rules: args.Rules,
) -> None:
    """Find the first version that fails a check, between the version GOOD, which passes, and that of TARGET.

    The version of TARGET (default: `main`) fails. The search is binary. The check is a file of rules
    (--rules, as for `frazil.pipeline.validate`), or a program behind `--`: the exit status 0 means good, 1 to
    127 bad. In its arguments, {} stands for the location with the version to check.

    With a path, versions whose commit did not change this node are not checked.

    Args:
        rules: A file with rules.

    Examples:
        frazil bisect ice v1 --rules rules.yaml          with rules
        frazil bisect ice:era5/t v1 -- python check.py {}
                                                         with a program, for one array
    """
    if (rules is None) == (not program):
        raise click.UsageError("name either --rules FILE or a program behind `--`")
    opened = OpenTarget(target)
    check: Any
    if rules is None:
        check = _program_check(output, target, program)
    else:
        from frazil.pipeline import RuleCheck

        check = RuleCheck(opened.repo, rules_of(rules))
    ends = [opened.source(text) for text in (good, target.version or MAIN)]
    report = opened.repo.history.bisect(check, good=ends[0], bad=ends[1], path=target.path)
    document: dict[str, Any] = {"first_bad": report.first_bad.id, "last_good": report.last_good.id}
    document["message"] = report.first_bad.message
    document |= picked(report, "versions", "skipped")
    document["checks"] = [{"id": id_, "good": is_good} for id_, is_good in report.checks]
    lines = []
    for name, each in (("first bad", report.first_bad), ("last good", report.last_good)):
        line = f"{name}  {output.paint(each.id[:SHORT], 'id')}  {clock(each.written_at)}  {each.message}"
        lines.append(line.partition("\n")[0])
    checks = f"{counted(len(report.checks), 'check')} of {counted(report.versions, 'version')}"
    output.emit(document, [*lines, checks])


def rules_of(path: str) -> Any:
    """Return the rules of a file."""
    with needs("--rules", extra="pipeline"):
        from frazil.pipeline import rules_from

    return rules_from(Path(path))


def _program_check(output: Output, target: Target, program: tuple[str, ...]) -> Callable[[Any], bool]:
    """Return a check that runs a program."""
    import subprocess

    def check(session: Any) -> bool:
        text = str(replace(target, version=session.snapshot_id))
        arguments = [each.replace("{}", text) for each in program]
        try:
            # what the program prints is no part of the result
            run = subprocess.run(arguments, stdout=2, env={**os.environ, "FRAZIL_TARGET": text}, check=False)
        except OSError as error:
            raise click.UsageError(f"the program {program[0]} does not start: {error.strerror}") from error
        if not 0 <= run.returncode < 128:  # a signal ended it, or it could not start
            raise click.ClickException(f"the program gave no answer for {text}: status {run.returncode}")
        if output.is_terminal:
            click.echo(f"{session.snapshot_id[:SHORT]} is {'bad' if run.returncode else 'good'}", err=True)
        return run.returncode == 0

    return check
