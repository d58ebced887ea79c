"""``frazil du``: how many bytes the arrays of a version take."""

from __future__ import annotations

from typing import Any, Final

import click
import numpy as np

from frazil.cli.command import target_argument, verb
from frazil.cli.nodes import all_option, node_at, workspace_of
from frazil.cli.opening import OpenVersion, open_version
from frazil.cli.output import Output, table
from frazil.cli.target import Target
from frazil.cli.versions import below
from frazil.format.chunk_table import ChunkKind
from frazil.jobs.progress import size
from frazil.repository.session.workspace import Workspace

_DESCRIPTION: Final = """\
Show how many chunks and bytes each array of a version has, the largest first. Chunks that several versions
share count for each version: `frazil stats` counts the bytes of the whole repository."""

_EXAMPLES: Final = """\
frazil du ice             all arrays of `main`
frazil du ice@v1:era5     the arrays of a group
frazil du ice -s          only the sum"""


@verb("du", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument()
@click.option("-s", "--summarize", is_flag=True, help="Only print the sum.")
@all_option
def command(output: Output, target: Target, summarize: bool, everything: bool) -> None:
    """Print the bytes of the arrays."""
    version = open_version(target)
    rows = sizes_below(version, everything)
    rows.sort(key=lambda row: (-row["bytes"], row["path"]))
    numbers = ("chunks", "bytes", "native", "inline", "virtual")
    total = {"path": version.path, **{name: sum(row[name] for row in rows) for name in numbers}}
    shown = [total] if summarize else [*rows, {**total, "path": "total"}]
    lines = table(
        ((size(row["bytes"]), f"{row['chunks']:,}", row["path"]) for row in shown), right=frozenset({0, 1})
    )
    output.emit({"arrays": [] if summarize else rows, "total": total}, lines, pages=True)


def sizes_below(version: OpenVersion, everything: bool) -> list[dict[str, Any]]:
    """Return the number of chunks and bytes of each array at and below the path of a version.

    Arrays in hidden groups count only with ``everything``.
    """
    workspace = workspace_of(version)
    node_at(workspace, version.path)
    nodes = workspace.node_table()
    arrays = np.array(nodes.paths_list(), object)[nodes.is_array].tolist()
    inside = [path for path in arrays if below(path, version.path)]
    hidden = len(version.path.rstrip("/"))
    return [_sizes(workspace, path) for path in inside if everything or "/." not in path[hidden:]]


def _sizes(workspace: Workspace, path: str) -> dict[str, Any]:
    """Return the number of chunks of an array, and their bytes by kind."""
    references = workspace.ref_table(path)
    lengths = np.bincount(references.kind, weights=references.length, minlength=max(ChunkKind) + 1).astype(
        int
    )
    native, inline, virtual = (
        int(lengths[kind]) for kind in (ChunkKind.NATIVE, ChunkKind.INLINE, ChunkKind.VIRTUAL)
    )
    return {
        "path": path,
        "chunks": len(references),
        "bytes": native + inline + virtual,
        "native": native,
        "inline": inline,
        "virtual": virtual,
    }
