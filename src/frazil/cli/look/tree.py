"""``frazil tree``: all groups and arrays of a version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from frazil.cli.command import target_argument, verb
from frazil.cli.nodes import all_option, node_at, node_document, shown, summary, workspace_of
from frazil.cli.opening import open_version
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.repository.session.workspace import Workspace

_DESCRIPTION: Final = "Show a group and all groups and arrays in it as a tree, with types and shapes."

_EXAMPLES: Final = """\
frazil tree ice             the whole version
frazil tree ice@dev:era5    a group of a branch
frazil tree ice --depth 1   only the members of the root"""


@verb("tree", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument()
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="Show at most N levels.")
@all_option
def command(output: Output, target: Target, depth: int | None, everything: bool) -> None:
    """Print the tree."""
    version = open_version(target)
    workspace = workspace_of(version)
    rows = list(_walk(workspace, version.path, (), depth, everything))
    output.emit([document for _, document in rows], (output.cut(line) for line in _lines(rows)), pages=True)


type Row = tuple[tuple[bool, ...], dict[str, Any]]


def _walk(
    workspace: Workspace, path: str, lasts: tuple[bool, ...], depth: int | None, everything: bool
) -> Iterator[Row]:
    """Yield a node and those below it, each with whether it and its groups are the last of their members."""
    node = node_at(workspace, path)
    yield lasts, node_document(node)
    if node.array is not None or depth == len(lasts):
        return
    names = shown(workspace.children(path), everything)
    for name in names:
        yield from _walk(
            workspace, f"{path.rstrip('/')}/{name}", (*lasts, name == names[-1]), depth, everything
        )


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    for lasts, document in rows:
        stem = "".join("    " if last else "│   " for last in lasts[:-1])
        branch = ("└── " if lasts[-1] else "├── ") if lasts else ""
        name = document["path"] if not lasts else document["path"].rpartition("/")[2]
        yield f"{stem}{branch}{name}  {summary(document)}".rstrip()
