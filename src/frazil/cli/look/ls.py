"""``frazil ls``: the groups and arrays directly in a group."""

from __future__ import annotations

from typing import Any, Final

from frazil.cli.command import target_argument, verb
from frazil.cli.nodes import all_option, node_at, node_document, shown, summary, workspace_of
from frazil.cli.opening import open_version
from frazil.cli.output import Output, table
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
List the groups and arrays directly in a group, with type and shape. The path of an array lists this array."""

_EXAMPLES: Final = """\
frazil ls ice               the groups and arrays of the root
frazil ls ice@v1:era5       a group of a tag
frazil ls ice --json        with chunks, codecs and attributes"""


@verb("ls", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument()
@all_option
def command(output: Output, target: Target, everything: bool) -> None:
    """Print the members of the group."""
    version = open_version(target)
    nodes = workspace_of(version)
    node = node_at(nodes, version.path)
    if node.array is None:
        prefix = version.path.rstrip("/")
        members = [
            nodes.require_node(f"{prefix}/{name}") for name in shown(nodes.children(version.path), everything)
        ]
    else:
        members = [node]
    documents = list(map(node_document, members))
    output.emit(documents, map(output.cut, table(map(_row, documents))), pages=True)


def _row(document: dict[str, Any]) -> tuple[str, ...]:
    name = document["path"].rpartition("/")[2]
    return (name + "/", "group", "") if document["kind"] == "group" else (name, "array", summary(document))
