"""References that a task stages in the storage instead of sending them.

A task that changed many references of an array puts them into one file, cut into boxes of the chunk grid, and
sends a `Segment` for each box.
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
from frazil.repository.clock import new_object_id
from frazil.repository.session.manifest_files import split_of
from frazil.repository.session.session import ForkSession
from frazil.storage.base import Storage

#: A task sends fewer references of an array than this, and stages more.
SENT_REFERENCES: Final = 20_000
#: A task stages into so many boxes at most: larger ones if need be.
_BOXES: Final = 256

type Corner = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """References of one array: bytes of an object in the storage, how many, and a box around their
    coordinates, the high corner inside.
    """

    key: str
    start: int
    stop: int
    count: int
    low: Corner
    high: Corner
    node_id: bytes


def stage_references(fork: ForkSession, place: str) -> tuple[ChangeSet, tuple[Segment, ...]]:
    """The changes of a fork, and the segments of the references that are not in them.

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
        parts.append((workspace.nodes.require_array(edits.path), edits.table()))
        rest.chunks[id_] = ChunkChanges(edits.path, edits.ndim)  # the array was written to
    return rest, tuple(stage_tables(workspace.context, place, parts))


def stage_tables(context: Context, place: str, parts: Iterable[tuple[Node, ChunkTable]]) -> list[Segment]:
    """Put references into one file, cut into boxes."""
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
    """By boxes that are not larger than those of the manifests, if there are not too many of them."""
    assert node.array is not None
    split = split_of(context, node, math.prod(node.array.num_chunks))
    while len(parts := in_boxes(table, split)) > _BOXES:
        split = tuple(min(2 * size, 0xFFFF_FFFF) for size in split)
    return parts


def read_segments(storage: Storage, segments: Iterable[Segment]) -> Iterator[ChangeSet]:
    for segment in segments:
        yield wire.decode(bytes(storage.get(segment.key, segment.start, segment.stop)))


def delete_segments(storage: Storage, segments: Iterable[Segment]) -> None:
    """Delete what was staged, as far as the storage lets us: the rest is garbage."""
    keys = list(dict.fromkeys(map(attrgetter("key"), segments)))
    if keys:
        with suppress(StorageError):
            storage.delete(keys)
