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

from frazil.format.coordinates import box, keys
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import ArrayData, ManifestRef

#: Bounds of a manifest that several arrays share: references of one array, and bytes of all chunks.
_SHARED_REFS: Final = 1000
_SHARED_BYTES: Final = 1 << 20

#: Up to so many references an array has one manifest, unless the configuration says otherwise. A reader that
#: wants one chunk reads all of a manifest: this many take 6 to 30 MB and half a second.
UNSPLIT_REFS: Final = 2_000_000
#: Beyond, about so many in each: a manifest is read in a fifth of a second, and a hundred million references
#: are a hundred files.
SPLIT_REFS: Final = 1 << 20
#: No dimension has more chunks.
_WHOLE: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRewrite:
    """``unchanged`` manifests stay; those in ``read`` are read, and merged with the edits into new ones."""

    unchanged: tuple[ManifestRef, ...]
    read: tuple[ManifestRef, ...]


def plan_rewrite(array: ArrayData, changed: ChunkTable, split: tuple[int, ...]) -> ManifestRewrite:
    """Which of the array's manifests an update has to read.

    ``edits`` includes deletions; ``split`` is the size of a box, in chunks, along each dimension.
    """
    if not array.manifests:
        return ManifestRewrite((), ())
    if not array.shape:
        return ManifestRewrite((), array.manifests) if len(changed) else ManifestRewrite(array.manifests, ())
    size = np.array(split, np.int64)
    extents = np.stack([ref.extents for ref in array.manifests]).astype(np.int64)
    low, high = extents[:, :, 0] // size, (extents[:, :, 1] - 1) // size
    outside = (extents[:, :, 1] > np.array(array.num_chunks, np.int64)).any(axis=1)
    touched = np.unique(changed.index.astype(np.int64) // size, axis=0)
    read = outside | _meet(low, high, touched, touched)
    while True:
        # A manifest that is read touches every box it reaches.
        reach = read | _meet(low, high, low[read], high[read])
        if (reach == read).all():
            break
        read = reach
    refs = np.array(array.manifests, object)
    return ManifestRewrite(tuple(refs[~read]), tuple(refs[read]))


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


def auto_split(num_chunks: tuple[int, ...], refs: int) -> tuple[int, ...]:
    """The boxes of an array whose configuration says nothing, with so many references: all in one manifest up
    to ``UNSPLIT_REFS``, else about ``SPLIT_REFS`` in each.

    Slabs along the first dimension, or the next where one index is too much. Their sizes are powers of two:
    as the array fills, boxes become halves of those before, and no manifest crosses several.

    >>> auto_split((100_000, 10, 20), 20_000_000), auto_split((3, 3000, 5000), 45_000_000)
    ((4096, 4294967295, 4294967295), (1, 128, 4294967295))
    """
    if refs <= UNSPLIT_REFS:
        return (_WHOLE,) * len(num_chunks)
    left = SPLIT_REFS / refs  # of the array, in one manifest
    sizes: list[int] = []
    for count in num_chunks:
        if left >= 1:
            sizes.append(_WHOLE)
            continue
        along = 1 << max(0, int(left * count).bit_length() - 1)
        sizes.append(along)
        left = left * count if left * count < 1 else 1.0
    return tuple(sizes)


def distribute(
    array: ArrayData, old: list[ChunkTable], changed: ChunkTable, split: tuple[int, ...]
) -> list[ChunkTable]:
    """The references of the manifests that were read and of the edits, one table for each box that has any.

    Deleted references are gone, and so are those that a smaller shape left outside of the grid.
    """
    table = ChunkTable.merge_tables([*old, changed]) if old else changed
    table = table.stored()
    if not len(table):
        return []
    if not array.shape:
        return [table.prune()]
    inside = (table.index < np.array(array.num_chunks, np.uint64)).all(axis=1)
    if not inside.all():
        table = table.select_chunks(inside)
    return [part.prune() for part in in_boxes(table, split)]


def in_boxes(table: ChunkTable, split: tuple[int, ...]) -> list[ChunkTable]:
    """Return the rows of each box, for as many boxes as have some. Sources stay as they are."""
    if not len(table):
        return []
    boxes = table.index // np.array(split, np.uint32)
    if (boxes == boxes[0]).all():
        return [table]
    _, numbers = np.unique(keys(boxes, box(boxes)), return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    return [table.select_chunks(rows) for rows in np.split(order, cuts)]


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
    """Return bytes of the chunks of an array that may share a manifest, None if it may not."""
    if len(tables) != 1 or len(tables[0]) > _SHARED_REFS or (tables[0].kind != ChunkKind.INLINE).any():
        return None
    size = int(tables[0].length.sum())
    return size if size <= _SHARED_BYTES else None
