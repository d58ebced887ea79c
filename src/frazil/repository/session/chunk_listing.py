"""Listings of the chunks of arrays: references in batches, and the URLs of virtual chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import ids_to_text
from frazil.format.manifest import ChunkKind
from frazil.repository.paths import absolute
from frazil.repository.session.workspace import Workspace


def chunk_batches(workspace: Workspace, array_path: str, batch_size: int) -> Iterator[tuple[Any, ...]]:
    """Yield all references of an array in batches of columns.

    A group or a missing node has no batches. ``IcechunkStore.array_chunk_iterator`` describes a batch.
    """
    if batch_size < 1:
        raise InvalidInputError(
            f"batch_size must be at least 1, got {batch_size}", ErrorKind.INVALID_ARGUMENT
        )
    path = absolute(array_path)
    workspace.note_tree(path)
    node = workspace.node(path)
    if node is None or node.array is None:
        return
    table = workspace.ref_table(node.path)
    native = ids_to_text(table.chunk_ids)
    foreign = workspace.context.virtual.urls(table.foreign.locations.texts())
    names: dict[int, list[str]] = {ChunkKind.NATIVE: native, ChunkKind.VIRTUAL: foreign}
    for start in range(0, len(table), batch_size):
        part = table.select_chunks(slice(start, start + batch_size))
        locations = np.full(len(part), "", object)
        for kind, texts in names.items():
            rows = part.kind == kind
            locations[rows] = list(map(texts.__getitem__, part.source[rows].tolist()))
        inline = np.flatnonzero(part.kind == ChunkKind.INLINE)
        blobs = part.inline.take(part.source[inline]).blobs()
        inlined = dict(zip(inline.tolist(), blobs, strict=True))
        yield part.index, part.kind, locations.tolist(), part.offset, part.length, inlined


def virtual_chunk_locations(workspace: Workspace) -> list[str]:
    """Return the URLs of the virtual chunks of all arrays, repetitions included."""
    workspace.note_tree("/")
    nodes = workspace.node_table()
    arrays = np.array(nodes.paths_list(), object)[nodes.is_array].tolist()
    urls: list[str] = []
    for path in arrays:
        table = workspace.ref_table(path)
        rows = table.source[table.kind == ChunkKind.VIRTUAL]
        if len(rows):
            locations = workspace.context.virtual.urls(table.foreign.locations.texts())
            urls += np.array(locations, object)[rows].tolist()
    return urls
