"""References that a task stages in the storage instead of sending them to the driver.

A task that changed many references of an array writes them into one file, divided into boxes of the chunk
grid, and sends a `Segment` for each box.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_changes import ChunkChanges
from frazil.changes.manifests import in_boxes
from frazil.errors import StorageError
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node
from frazil.jobs import wire
from frazil.repository.catalog.context import Context
from frazil.repository.ids import new_object_id
from frazil.repository.session.manifest_files import split_of
from frazil.repository.session.session import ForkSession
from frazil.storage.base import Storage

#: A task sends fewer references of an array than this, and stages them otherwise.
SENT_REFERENCES: Final = 20_000
#: The largest number of boxes of a task. If there are more, the boxes become larger.
_BOXES: Final = 256

type Corner = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """Staged references of one array.

    They are the bytes from ``start`` to ``stop`` of the object ``key``. ``count`` is their number. ``low``
    and ``high`` (inclusive) are the corners of a box around their coordinates.
    """

    key: str
    start: int
    stop: int
    count: int
    low: Corner
    high: Corner
    node_id: bytes


def stage_references(fork: ForkSession, place: str) -> tuple[ChangeSet, tuple[Segment, ...]]:
    """Stage references of a fork. Returns its other changes, and the segments.

    ``place`` is a folder of the storage.
    """
    workspace = fork.workspace
    changes = workspace.own_changes()
    many = [id_ for id_, edits in changes.chunks.items() if len(edits.table()) >= SENT_REFERENCES]
    if not many:
        return changes, ()
    rest = changes.copy()
    parts: list[tuple[Node, ChunkTable]] = []
    for id_ in many:
        edits = changes.chunks[id_]
        parts.append((workspace.require_array(edits.path), edits.table()))
        rest.chunks[id_] = ChunkChanges(edits.path, edits.ndim)  # marks the array as written
    return rest, tuple(stage_tables(workspace.context, place, parts))


def stage_tables(context: Context, place: str, parts: Iterable[tuple[Node, ChunkTable]]) -> list[Segment]:
    """Write references into one file, divided into boxes, and return a segment for each box."""
    key = f"{place}/{id_to_text(new_object_id())}.chunks"
    blobs: list[bytes] = []
    segments: list[Segment] = []
    at = 0
    for node, table in parts:
        for part in _cut(context, node, table):
            edits = ChunkChanges(node.path, part.ndim, (part,))
            blobs.append(wire.encode(ChangeSet(chunks={node.id: edits})))
            box = part.bounds().astype(np.int64)
            low, high = tuple(box[:, 0].tolist()), tuple((box[:, 1] - 1).tolist())
            stop = at + len(blobs[-1])
            segments.append(Segment(key, at, stop, len(part), low, high, node.id))
            at = stop
    context.storage.put(key, b"".join(blobs))
    return segments


def _cut(context: Context, node: Node, table: ChunkTable) -> list[ChunkTable]:
    """Divide references into the boxes of the manifests, or larger boxes if there are too many."""
    assert node.array is not None
    split = split_of(context, node, math.prod(node.array.num_chunks))
    while len(parts := in_boxes(table, split)) > _BOXES:
        split = tuple(min(2 * size, 0xFFFF_FFFF) for size in split)
    return parts


def read_segments(storage: Storage, segments: Iterable[Segment]) -> Iterator[ChangeSet]:
    """Yield the references of each segment as a change set."""
    for segment in segments:
        yield wire.decode(bytes(storage.get(segment.key, segment.start, segment.stop)))


def delete_segments(storage: Storage, segments: Iterable[Segment]) -> None:
    """Delete the files of segments, and ignore errors of the storage: remaining files are garbage."""
    keys = list(dict.fromkeys(map(attrgetter("key"), segments)))
    if keys:
        with suppress(StorageError):
            storage.delete(keys)
