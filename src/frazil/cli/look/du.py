"""How many bytes the arrays of a version take."""

from __future__ import annotations

from typing import Any

import numpy as np

from frazil.cli.documents import below, node_at
from frazil.cli.opening import Opened
from frazil.format.chunk_table import ChunkKind
from frazil.repository.session.workspace import Workspace


def sizes_below(version: Opened, everything: bool) -> list[dict[str, Any]]:
    """Return the number of chunks and bytes of each array at and below the path of a version.

    Arrays in hidden groups count only with ``everything``.
    """
    workspace = version.workspace
    node_at(workspace.nodes, version.path)
    nodes = workspace.nodes.node_table()
    arrays = np.array(nodes.paths_list(), object)[nodes.is_array].tolist()
    inside = [path for path in arrays if below(path, version.path)]
    hidden = len(version.path.rstrip("/"))
    return [_sizes(workspace, path) for path in inside if everything or "/." not in path[hidden:]]


def _sizes(workspace: Workspace, path: str) -> dict[str, Any]:
    """Return the number of chunks of an array, and their bytes by kind."""
    references = workspace.chunks.ref_table(path)
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
