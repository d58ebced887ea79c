"""``frazil log``: the versions of a branch, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice, repeat, takewhile
from typing import Any, Final

import click

from frazil.cli.command import target_argument, verb
from frazil.cli.opening import OpenVersion, open_version
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.times import TIME_AGO
from frazil.cli.versions import (
    diff_document,
    diff_lines,
    is_empty,
    refs_of_snapshots,
    version_document,
    version_line,
)
from frazil.lazy_names import value_of
from frazil.repository.catalog.snapshot_block import history_infos
from frazil.repository.catalog.snapshot_presentation import snapshot_infos
from frazil.repository.catalog.version_info import Diff, SnapshotInfo

_DESCRIPTION: Final = """\
Show the versions that lead to a version, newest first: id, time in UTC, branches and tags, message.

With a path, only versions that changed this node, or a node below it. This reads one transaction log for
each version, and so does --patch."""

_EXAMPLES: Final = """\
frazil log ice                    the versions of `main`
frazil log ice@dev -n 5           the newest five versions of a branch
frazil log ice --graph            all branches as a graph
frazil log ice:era5/t --patch     the versions that changed an array, with what they changed
frazil log ice --since 7d --json  the versions of the last seven days, for programs"""

_CHANGES: Final = "frazil.repository.history.version_changes:version_changes"
_DIFF: Final = "frazil.repository.catalog.presentation:diff"
_GRAPH: Final = "frazil.repository.handle.graph:ancestry_graph"


@verb("log", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument()
@click.option("-n", "--number", type=click.IntRange(min=1), metavar="N", help="Show at most N versions.")
@click.option(
    "--since", type=TIME_AGO, metavar="TIME", help="Only versions from TIME on: 2026-11-01, 7d, 12h."
)
@click.option("-p", "--patch", is_flag=True, help="Also show which nodes and chunks each version changed.")
@click.option("--graph", is_flag=True, help="Draw all branches, or the history of @VERSION.")
def command(
    output: Output, target: Target, number: int | None, since: datetime | None, patch: bool, graph: bool
) -> None:
    """Print the versions."""
    version = open_version(target)
    if graph:
        if patch or since is not None or target.path is not None:
            raise click.UsageError("--graph shows whole histories. Leave out --patch, --since and the path")
        _draw(output, version, number, target.version is None)
        return
    documents = islice(_documents(version, since, patch or target.path is not None), number)
    if output.as_json:
        output.emit(list(documents), ())
    else:
        output.emit(None, _lines(output, documents, patch), pages=True)


def _documents(version: OpenVersion, since: datetime | None, changes: bool) -> Iterator[dict[str, Any]]:
    """Yield the documents of versions, newest first; with ``changes`` only those that changed the path."""
    refs = refs_of_snapshots(version.info)
    versions = _changed_versions(version) if changes else _versions(version)
    if since is not None:
        versions = takewhile(lambda each: each[0].written_at >= since, versions)
    for info, changed in versions:
        if changes and version.path != "/" and is_empty(changed):
            continue
        document = version_document(info, refs.get(info.id, ()))
        yield {**document, "changes": changed} if changes else document


def _versions(version: OpenVersion) -> Iterator[tuple[SnapshotInfo, dict[str, Any]]]:
    return zip(history_infos(version.info, version.raw_id), repeat({}))


def _changed_versions(version: OpenVersion) -> Iterator[tuple[SnapshotInfo, dict[str, Any]]]:
    """Yield versions with the document of what they changed at and below the path of the target."""
    changes = value_of(_CHANGES)(version.context, version.info, version.raw_id)
    public = value_of(_DIFF)
    for entry, changed in changes:
        diff = Diff() if changed is None else public(changed)
        yield snapshot_infos([entry])[0], diff_document(diff, version.path)


def _lines(output: Output, documents: Iterator[dict[str, Any]], patch: bool) -> Iterator[str]:
    for document in documents:
        line = version_line(output, document)
        yield line if output.has_colours else output.cut(line)
        if patch:
            yield from (f"    {each}" for each in diff_lines(output, document["changes"]))


def _draw(output: Output, version: OpenVersion, number: int | None, everything: bool) -> None:
    plain = not output.has_colours
    branches, tip = (version.info.branches, None) if everything else ({}, version.raw_id)
    graph = value_of(_GRAPH)(version.info, branches, tip, plain=plain)
    graph = replace(graph, dots=graph.dots[:number])
    rows = [
        {
            "lane": dot.lane,
            "id": dot.label.id,
            "time": dot.label.time,
            "branches": list(dot.label.branches),
            "tags": list(dot.label.tags),
            "message": dot.label.message,
        }
        for dot in graph.dots
    ]
    output.emit(rows, map(str.rstrip, str(graph).splitlines()), pages=True)
