"""Which manifests a commit has to write, and what goes into them.

The chunk grid of an array is cut into boxes of ``split`` chunks along each dimension; references of a box
share a manifest. A manifest is kept as it is when nothing in its box changed. One that a commit has to
read, because its box was touched or because it crosses the boxes of an older configuration, takes all boxes
that it reaches with it: so the manifests of an array never overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import ArrayData, ManifestRef

#: Bounds of a manifest that several arrays share: references of one array, and bytes of all chunks.
_SHARED_REFS: Final = 1000
_SHARED_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """``kept`` manifests stay; those in ``read`` are read, and merged with the edits into new ones."""

    kept: tuple[ManifestRef, ...]
    read: tuple[ManifestRef, ...]


def plan(array: ArrayData, edits: ChunkTable, split: tuple[int, ...]) -> Rewrite:
    """Which of the array's manifests an update has to read.

    ``edits`` includes deletions; ``split`` is the size of a box, in chunks, along each dimension.
    """
    if not array.manifests:
        return Rewrite((), ())
    if not array.shape:
        return Rewrite((), array.manifests) if len(edits) else Rewrite(array.manifests, ())
    size = np.array(split, np.int64)
    extents = np.stack([ref.extents for ref in array.manifests]).astype(np.int64)
    low, high = extents[:, :, 0] // size, (extents[:, :, 1] - 1) // size
    outside = (extents[:, :, 1] > np.array(array.num_chunks, np.int64)).any(axis=1)
    touched = np.unique(edits.index.astype(np.int64) // size, axis=0)
    read = outside | _meet(low, high, touched, touched)
    while True:
        # A manifest that is read touches every box it reaches.
        reach = read | _meet(low, high, low[read], high[read])
        if (reach == read).all():
            break
        read = reach
    refs = np.array(array.manifests, object)
    return Rewrite(tuple(refs[~read]), tuple(refs[read]))


def _meet(
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    other_low: NDArray[np.int64],
    other_high: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which of the boxes low..high (inclusive) meet one of the others."""
    out = np.zeros(len(low), bool)
    for start in range(0, len(other_low), 4096):
        part = slice(start, start + 4096)
        out |= (
            ((low[:, None] <= other_high[None, part]) & (other_low[None, part] <= high[:, None]))
            .all(axis=2)
            .any(axis=1)
        )
    return out


def distribute(
    array: ArrayData, old: list[ChunkTable], edits: ChunkTable, split: tuple[int, ...]
) -> list[ChunkTable]:
    """The references of the manifests that were read and of the edits, one table for each box that has any.

    Deleted references are gone, and so are those that a smaller shape left outside of the grid.
    """
    table = ChunkTable.merge([*old, edits]) if old else edits
    table = table.stored()
    if not len(table):
        return []
    if not array.shape:
        return [table.prune()]
    inside = (table.index < np.array(array.num_chunks, np.uint64)).all(axis=1)
    if not inside.all():
        table = table.take(inside)
    boxes = table.index // np.array(split, np.uint32)
    if not len(table):
        return []
    if (boxes == boxes[0]).all():
        return [table.prune()]
    _, numbers = np.unique(boxes, axis=0, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    return [table.take(rows).prune() for rows in np.split(order, cuts)]


def share(updates: list[tuple[bytes, list[ChunkTable]]]) -> list[dict[bytes, ChunkTable]]:
    """What goes into each manifest file: tables by node id.

    Every table has a file of its own, but for the small arrays whose chunks are all inline (coordinates,
    scalars): they share files, since a dataset has many of them and a file costs a request. A later change
    of one of them leaves only these few inline bytes behind, never a chunk file that nobody can collect.
    """
    alone: list[dict[bytes, ChunkTable]] = []
    shared: list[dict[bytes, ChunkTable]] = []
    room = 0
    for node_id, tables in updates:
        size = _inline_bytes(tables)
        if size is None:
            alone += [{node_id: table} for table in tables]
            continue
        if size > room:
            shared.append({})
            room = _SHARED_BYTES
        room -= size
        shared[-1][node_id] = tables[0]
    return alone + shared


def _inline_bytes(tables: list[ChunkTable]) -> int | None:
    """Bytes of the chunks of an array that may share a manifest, None if it may not."""
    if len(tables) != 1 or len(tables[0]) > _SHARED_REFS or (tables[0].kind != ChunkKind.INLINE).any():
        return None
    size = int(tables[0].length.sum())
    return size if size <= _SHARED_BYTES else None
