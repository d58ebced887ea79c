"""The nodes and the chunks at and below a path: the answers of the store's methods with a prefix.

A path can be a group, an array, or a part of the chunk grid of an array, such as ``t/c/0``.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from frazil.repository.paths import absolute
from frazil.repository.session.workspace import Workspace
from frazil.zarr_store.keys import Coords, parse_directory

if TYPE_CHECKING:
    from frazil.format.manifest import ChunkTable
    from frazil.format.snapshot import NodeTable


def directory_of(prefix: str) -> str:
    """Return the path that a prefix of keys names."""
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be str, got {type(prefix).__name__}")
    return absolute(prefix.strip("/"))


def read_below(workspace: Workspace, path: str) -> tuple[NodeTable, list[tuple[str, Coords]]]:
    """Return the result of ``_below``, and record it as a read."""
    nodes, chunks = _below(workspace, path)
    workspace.note_tree(path if len(nodes) or not chunks else chunks[0][0])
    return nodes, chunks


def _below(workspace: Workspace, path: str) -> tuple[NodeTable, list[tuple[str, Coords]]]:
    """Return nodes at and below a path, and their arrays with the first coordinates of the chunks there."""
    nodes = workspace.node_table()
    row, inside = nodes.find_node(path), nodes.below(path)
    own_row = [] if row < 0 else [row]
    subtree = nodes.select_nodes(np.r_[own_row, np.arange(len(nodes))[inside]].astype(np.int64))
    arrays = compress(subtree.paths_list(), subtree.is_array.tolist())
    chunks: list[tuple[str, Coords]] = [(array, ()) for array in arrays]
    directory = parse_directory(path) if row < 0 else None
    if directory is not None and workspace.is_array(directory[0]):
        chunks.append(directory)
    return subtree, chunks


def chunks_from(workspace: Workspace, path: str, start: Coords) -> ChunkTable:
    """Return the references of an array whose coordinates begin with ``start``."""
    table = workspace.ref_table(path)
    if len(start) > table.ndim:
        return table.select_chunks(slice(0))
    if not start:
        return table
    return table.select_chunks((table.index[:, : len(start)] == np.array(start, np.uint32)).all(axis=1))


def names_below(workspace: Workspace, path: str) -> list[str]:
    """Return the names directly below a path."""
    node = workspace.node(path)
    workspace.note_members(path)
    if node is not None:
        own = ["zarr.json"] if node.array is None else ["zarr.json", "c"]
        return list(dict.fromkeys(own + workspace.children(path)))
    names = workspace.children(path)
    directory = parse_directory(path)
    if directory is not None and workspace.is_array(directory[0]):
        array, start = directory
        workspace.note_tree(array)
        index = chunks_from(workspace, array, start).index
        if len(start) < index.shape[1]:
            names += map(str, np.unique(index[:, len(start)]).tolist())
    return names


def delete_below(workspace: Workspace, path: str) -> None:
    """Delete nodes at and below a path, or the chunks in a part of an array."""
    workspace.delete_node(path)
    nodes, chunks = _below(workspace, path)
    # Without a node at the path itself, the nodes below it have no common ancestor to delete.
    for below in nodes.paths_list():
        workspace.delete_node(below)
    for array, start in chunks if not len(nodes) else ():
        gone = chunks_from(workspace, array, start)
        if len(gone):
            workspace.delete_refs(array, gone.index)
