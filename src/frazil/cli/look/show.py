"""``frazil show``: one version and what it changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import click

from frazil.cli.command import target_argument, verb
from frazil.cli.opening import open_version
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.versions import SHORT, clock, diff_document, diff_lines, refs_of_snapshots, version_document

_DESCRIPTION: Final = """\
Show one version: its whole id, parent, time in UTC, branches and tags, metadata and message, and the nodes
that it changed in comparison with its parent. With a path, only changes of this node and the nodes below
it."""

_EXAMPLES: Final = """\
frazil show ice                  the newest version of `main`
frazil show ice@v1 --chunks      a tag, with the indices of all changed chunks
frazil show ice@main~2:era5      the changes of a group, two versions ago"""


@verb("show", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument()
@click.option("--chunks", is_flag=True, help="Also print the indices of changed chunks.")
def command(output: Output, target: Target, chunks: bool) -> None:
    """Print the version and its changes."""
    version = open_version(target)
    refs = refs_of_snapshots(version.info)
    info = version.repo.lookup_snapshot(version.id)
    document = version_document(info, refs.get(info.id, ()))
    if info.parent_id is not None:
        diff = version.repo.diff(from_snapshot_id=info.parent_id, to_snapshot_id=info.id)
        document["changes"] = diff_document(diff, version.path)
    output.emit(document, _lines(output, document, chunks), pages=True)


def _lines(output: Output, document: dict[str, Any], chunks: bool) -> Iterator[str]:
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
