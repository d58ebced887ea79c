"""How many bytes the arrays of a version take."""

from __future__ import annotations

from typing import Any

import numpy as np

from frazil.cli.documents import below, node_at
from frazil.cli.opening import Opened
from frazil.format.chunk_table import ChunkKind
from frazil.maintenance.statistics import ArraySizes, array_sizes


def sizes_below(version: Opened, everything: bool) -> list[dict[str, Any]]:
    """Return the number of chunks and bytes of each array at and below the path of a version.

    Arrays in hidden groups count only with ``everything``.
    """
    nodes = version.workspace
    node_at(nodes, version.path)
    snapshot = version.workspace.snapshot
    hidden = len(version.path.rstrip("/"))
    rows = np.flatnonzero(snapshot.nodes.is_array).tolist()
    paths = snapshot.nodes.paths_list()
    arrays = [
        (snapshot.nodes.node(row), None)
        for row in rows
        if below(paths[row], version.path) and (everything or "/." not in paths[row][hidden:])
    ]
    return [_sizes(each) for each in array_sizes(version.context, arrays)]


def _sizes(sizes: ArraySizes) -> dict[str, Any]:
    """Return the number of chunks of an array, and their bytes by kind."""
    kinds = ("native", ChunkKind.NATIVE), ("inline", ChunkKind.INLINE), ("virtual", ChunkKind.VIRTUAL)
    return {
        "path": sizes.node.path,
        "chunks": int(sizes.counts.sum()),
        "bytes": int(sizes.bytes.sum()),
        **{name: int(sizes.bytes[kind].sum()) for name, kind in kinds},
    }
