"""The manifests that a commit must write, and their content.

The chunk grid of an array is cut into boxes of ``split`` chunks along each dimension. The references of a box
share a manifest. A manifest stays if there is no change in its box. A commit must read a manifest if there is
a change in its box, or if the manifest crosses the boxes of another configuration. The commit then writes all
boxes that this manifest reaches. So the manifests of an array never overlap.

Specification: *Chunk Manifest Files*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.windows import Windows
from frazil.format.coordinates import box, keys, within
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import ArrayData, ManifestRef, ManifestRefs

#: The limits of a manifest that several arrays share: references of one array, and bytes of all chunks.
_SHARED_REFS: Final = 1000
_SHARED_BYTES: Final = 1 << 20

#: By default, an array with up to this number of references has one manifest. To read one chunk, a reader
#: reads a whole manifest: with this number of references it has 6 to 30 MB, and takes half a second.
UNSPLIT_REFS: Final = 2_000_000
#: A larger array has about this number of references in each manifest. A manifest takes a fifth of a second,
#: and a hundred million references are a hundred files.
SPLIT_REFS: Final = 1 << 20
#: The largest number of chunks along a dimension.
_WHOLE: Final = (1 << 32) - 1


#: The size of a box in chunks along each dimension, or windows by the number of references.
type Split = tuple[int, ...] | Windows


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRewrite:
    """A plan for the manifests of an array.

    The manifests in ``unchanged`` stay. The manifests in ``read`` are read, and merged with the edits into
    new manifests.
    """

    unchanged: Sequence[ManifestRef]
    read: Sequence[ManifestRef]


def plan_rewrite(array: ArrayData, changed: ChunkTable, split: tuple[int, ...]) -> ManifestRewrite:
    """Return which manifests of an array an update must read.

    ``changed`` has the edits, deletions included. ``split`` is the size of a box in chunks along each
    dimension.
    """
    if not array.manifests:
        return ManifestRewrite((), ())
    if not array.shape:
        return ManifestRewrite((), array.manifests) if len(changed) else ManifestRewrite(array.manifests, ())
    size = np.array(split, np.int64)
    refs = ManifestRefs.of(array.manifests, len(array.shape))
    extents = refs.extents.astype(np.int64)
    low, high = extents[:, :, 0] // size, (extents[:, :, 1] - 1) // size
    outside = (extents[:, :, 1] > np.array(array.num_chunks, np.int64)).any(axis=1)
    touched = np.unique(changed.index.astype(np.int64) // size, axis=0)
    read = outside | _meet(low, high, touched, touched)
    while True:
        # A manifest that is read touches every box that it reaches.
        reach = read | _meet(low, high, low[read], high[read])
        if (reach == read).all():
            break
        read = reach
    return ManifestRewrite(refs.select_refs(~read), refs.select_refs(read))


def _meet(
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    other_low: NDArray[np.int64],
    other_high: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return which of the boxes low..high (inclusive) overlap with one of the other boxes."""
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
    """Return the default size of boxes in chunks, for an array with ``refs`` references.

    Up to ``UNSPLIT_REFS`` references are one box. A larger array has boxes of about ``SPLIT_REFS`` references
    each. The boxes are slabs along the first dimension, and along the next dimension if one index of the
    first has too many references. Their sizes are powers of two. So when the array grows, boxes are cut in
    halves, and no manifest crosses several boxes.
    """
    if refs <= UNSPLIT_REFS:
        return (_WHOLE,) * len(num_chunks)
    return boxes_with(num_chunks, refs, SPLIT_REFS, range(len(num_chunks)))


def boxes_with(num_chunks: tuple[int, ...], refs: int, each: int, order: Iterable[int]) -> tuple[int, ...]:
    """Return the size of boxes that have about ``each`` references, in an array with ``refs`` references.

    ``order`` are the dimensions in the order in which they are split. The sizes are powers of two.
    """
    left = each / max(refs, 1)  # the part of the array in one manifest
    sizes = [_WHOLE] * len(num_chunks)
    for axis in order:
        if left >= 1:
            break
        along = left * num_chunks[axis]
        sizes[axis] = 1 << max(0, int(along).bit_length() - 1)
        left = min(along, 1.0)
    return tuple(sizes)


def distribute(
    array: ArrayData, old: list[ChunkTable], changed: ChunkTable, split: Split
) -> list[ChunkTable]:
    """Merge the references of the old manifests with the edits. Return a table for each non-empty box.

    Deleted references, and references outside of the grid of a smaller shape, are dropped.
    """
    table = ChunkTable.merge_tables([*old, changed]) if old else changed
    table = table.stored()
    if not len(table):
        return []
    if not array.shape:
        return [table.prune()]
    inside = within(table.index, array.num_chunks)
    if not inside.all():
        table = table.select_chunks(inside)
    return [part.prune() for part in in_boxes(table, split)]


def in_boxes(table: ChunkTable, split: Split) -> list[ChunkTable]:
    """Return the rows of each box that is not empty. The sources stay as they are."""
    if not len(table):
        return []
    if isinstance(split, Windows):
        parts = split.rows(table.index)
        return [table] if len(parts) == 1 else [table.select_chunks(_ascending(rows)) for rows in parts]
    low, high = table.bounds().T
    size = np.array(split, np.uint32)
    if (low // size == (high - 1) // size).all():
        return [table]
    boxes = table.index // size
    _, numbers = np.unique(keys(boxes, box(boxes)), return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    return [table.select_chunks(rows) for rows in np.split(order, cuts)]


def _ascending(rows: NDArray[np.int64] | slice) -> NDArray[np.int64] | slice:
    """Return row numbers in ascending order, as a slice if they follow each other: a slice copies nothing."""
    if isinstance(rows, slice):
        return rows
    low, high = int(rows.min()), int(rows.max())
    return slice(low, high + 1) if high - low + 1 == len(rows) else np.sort(rows)


def share(updates: list[tuple[bytes, list[ChunkTable]]]) -> list[dict[bytes, ChunkTable]]:
    """Return the content of each manifest file: tables by node id.

    Every table has its own file, except for small arrays whose chunks are all inline (coordinates, scalars).
    They share files, because a dataset has many of them, and a file costs a request. A later change of such
    an array leaves a few unused inline bytes in the shared file, but never an unused chunk file that garbage
    collection cannot delete.
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
    """Return the bytes of an array that can share a manifest, or None if it cannot."""
    if len(tables) != 1 or len(tables[0]) > _SHARED_REFS or (tables[0].kind != ChunkKind.INLINE).any():
        return None
    size = int(tables[0].length.sum())
    return size if size <= _SHARED_BYTES else None
