"""The manifests that executors write: one for each box of the chunk grid of an array."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges
from frazil.changes.manifests import SPLIT_REFS, ManifestRewrite, distribute, plan_rewrite
from frazil.changes.merge import differing
from frazil.errors import ErrorKind, SessionStateError
from frazil.format.columns import U32
from frazil.format.ids import id_matrix
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node
from frazil.jobs import wire
from frazil.jobs.engine import Engine
from frazil.jobs.segments import Corner, Segment, read_segments
from frazil.repository.catalog.context import Context
from frazil.repository.ids import object_id_series
from frazil.repository.session.manifest_files import put_manifests
from frazil.repository.session.uploads import Uploads, uploading


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """A manifest to be written, for the chunks of an array from ``low`` to ``high``, exclusive.

    References in ``segments`` replace those in ``under``, which replace those in ``old`` manifests.
    """

    node: Node
    split: Corner
    low: Corner
    high: Corner
    segments: tuple[Segment, ...]
    under: tuple[Segment, ...]
    old: tuple[ManifestRef, ...]
    is_logged: bool

    @property
    def count(self) -> int:
        """The number of staged references of the box."""
        return sum(map(attrgetter("count"), (*self.segments, *self.under)))


@dataclass(frozen=True, slots=True, eq=False)
class BoxManifests:
    """The written manifests of a box, their sizes and counts, and encoded coordinates for the log."""

    node_id: bytes
    manifests: tuple[ManifestRef, ...]
    files: ManifestFiles
    index: bytes | None
    duplicates: tuple[int, Corner] | None = None


# On the driver


def boxes_of(
    node: Node,
    split: Corner,
    segments: Sequence[Segment],
    under: Collection[Segment],
    *,
    is_logged: bool,
    everything: bool = False,
) -> tuple[Sequence[ManifestRef], list[Box]]:
    """Return the manifests of an array that stay, and the boxes to be written, with all their references."""
    assert node.array is not None
    num_chunks = node.array.num_chunks
    content: dict[Corner, tuple[list[Segment], list[Segment], list[ManifestRef]]] = {}
    under = frozenset(under)
    for segment in (*segments, *under):
        for at in _numbers(segment.low, segment.high, split):
            mine, below, _ = content.setdefault(at, ([], [], []))
            (below if segment in under else mine).append(segment)
    touched = np.array(list(content), np.int64).reshape(len(content), len(split)) * np.array(split)
    rewrite = ManifestRewrite((), node.array.manifests)
    if not everything:
        rewrite = plan_rewrite(node.array, ChunkTable.from_absent(touched), split)
    for ref in rewrite.read:
        low, high = ref.extents.astype(np.int64).T
        last = np.minimum(high, num_chunks) - 1
        for at in _numbers(tuple(low.tolist()), tuple(last.tolist()), split):
            content.setdefault(at, ([], [], []))[2].append(ref)
    node = replace(node, array=replace(node.array, manifests=()))
    boxes = []
    for at, (mine, below, old) in sorted(content.items()):
        low = tuple(number * size for number, size in zip(at, split, strict=True))
        high = tuple(min(a + size, n) for a, size, n in zip(low, split, num_chunks, strict=True))
        boxes.append(Box(node, split, low, high, tuple(mine), tuple(below), tuple(old), is_logged))
    return rewrite.unchanged, boxes


def _numbers(low: Corner, high: Corner, split: Corner) -> Iterable[Corner]:
    """Return the numbers of the boxes between two corners, inclusive."""
    return product(*(range(a // size, b // size + 1) for a, b, size in zip(low, high, split, strict=True)))


def write_boxes(context: Context, boxes: Sequence[Box], engine: Engine) -> list[BoxManifests]:
    """Write the manifests of boxes in tasks of the engine."""
    shared = pickle.dumps(context)
    weights = np.cumsum([box.count + sum(map(_weight, box.old)) for box in boxes])
    numbers = weights // SPLIT_REFS
    cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    tasks = [
        pickle.dumps(tuple(boxes[start:stop]))
        for start, stop in zip([0, *cuts], [*cuts, len(boxes)], strict=True)
    ]
    paths = {box.node.id: box.node.path for box in boxes}
    out: list[BoxManifests] = []
    for result in engine.run(write_manifests, tasks, shared):
        for stored in pickle.loads(result):
            if stored.duplicates is not None:
                raise duplicate_chunks(paths[stored.node_id], *stored.duplicates)
            out.append(stored)
    return out


def _weight(ref: ManifestRef) -> int:
    return SPLIT_REFS // 4  # mostly the cost of reading the manifest


def first_corner(coords: U32) -> Corner:
    """Return the coordinates of the first chunk."""
    return tuple(coords[0].tolist())


def duplicate_chunks(path: str, count: int, first: Corner) -> SessionStateError:
    """Return the error for chunks that several tasks wrote."""
    return SessionStateError(
        f"cannot merge: {count} chunk(s) of `{path}` were written by more than one task; the first is "
        f"{first}. Align the items of work with the chunk grid",
        ErrorKind.MERGE_FAILED,
    )


# On executors


def write_manifests(shared: bytes, task: bytes) -> bytes:
    """Run one task: write the manifests of some boxes."""
    context = _unpickled(shared)
    boxes: tuple[Box, ...] = pickle.loads(task)
    ids = object_id_series()
    with uploading(context.storage) as uploads:  # files of many boxes are flushed together
        results = [_write(context, uploads, box, ids) for box in boxes]
    return pickle.dumps(results)


@functools.lru_cache(maxsize=2)
def _unpickled(shared: bytes) -> Context:
    context: Context = pickle.loads(shared)
    return context


def _write(context: Context, uploads: Uploads, box: Box, ids: Iterator[bytes]) -> BoxManifests:
    node, array = box.node, box.node.array
    assert array is not None
    nothing = ChunkTable.empty(len(box.split))
    under, tables = (
        [
            _within(changes.chunks[node.id].table(), box)
            for changes in read_segments(context.storage, segments)
        ]
        for segments in (box.under, box.segments)
    )
    duplicates = differing([*tables, nothing])
    if len(duplicates):
        return BoxManifests(
            node.id, (), ManifestFiles.empty(), None, (len(duplicates), first_corner(duplicates))
        )
    edits = ChunkTable.merge_tables([*under, *tables, nothing])
    manifests = context.assets.manifests([ref.id for ref in box.old], 4)
    old = [_within(each.arrays[node.id], box) for each in manifests if node.id in each.arrays]
    tables = distribute(array, old, edits, box.split)
    manifests_stored = put_manifests(context, uploads, [(node.id, tables)], ids)
    files = ManifestFiles(
        id_matrix([each.ref.id for each in manifests_stored]),
        np.array([each.size for each in manifests_stored], np.uint64),
        np.array([each.num_refs for each in manifests_stored], np.uint32),
    )
    index = None
    if box.is_logged:
        coords = ChunkChanges(node.path, edits.ndim, (ChunkTable.from_absent(edits.index),))
        index = wire.encode(ChangeSet(chunks={node.id: coords}))
    return BoxManifests(node.id, tuple(each.ref for each in manifests_stored), files, index)


def _within(table: ChunkTable, box: Box) -> ChunkTable:
    low, high = np.array(box.low, np.int64), np.array(box.high, np.int64)
    inside: NDArray[np.bool_] = ((table.index >= low) & (table.index < high)).all(axis=1)
    return table if inside.all() else table.select_chunks(inside)
