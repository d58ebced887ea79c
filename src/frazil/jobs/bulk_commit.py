"""Commits of very many references: executors write the manifests, and the driver commits them.

    first stage     a task that changed many references of an array stages them in the storage of the
                    repository, divided into boxes of the chunk grid, and sends only their location
    driver          counts the references; if there are few, it reads them back and merges them as usual,
                    otherwise there is a
    second stage    a task gets some boxes: it reads their staged references, and the existing manifests of
                    the array there, checks that no two tasks set the same chunk, and writes the manifests
    driver          gets an id, a box and a size for each manifest, and commits

The driver then holds some hundred bytes for each million references. The exception is the transaction log,
which names each chunk that was set or deleted in an existing array. For an array that the same commit
creates, it names no chunks: no other session can have changed it, and readers list the array as new.

The staged references are deleted at the end. The files of a task that ran twice, or of a job that died, are
garbage: nothing refers to them.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet, ChunkChanges, PreparedManifests
from frazil.changes.manifests import SPLIT_REFS, UNSPLIT_REFS, ManifestRewrite, distribute, plan_rewrite
from frazil.changes.merge import differing
from frazil.changes.node_changes import rows_of
from frazil.errors import ErrorKind, FormatError, InvalidInputError, SessionStateError
from frazil.format.columns import U32
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_matrix
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node
from frazil.jobs import wire
from frazil.jobs.engine import Engine
from frazil.jobs.task_results import (
    SENT_REFERENCES,
    Corner,
    Result,
    Segment,
    delete_segments,
    read_segments,
    stage_tables,
)
from frazil.repository.catalog.context import Context
from frazil.repository.ids import object_id_series
from frazil.repository.session.commit_files import Uploads, num_refs, put_manifests, split_of, uploading
from frazil.repository.session.session import ForkSession, Session, state_of
from frazil.repository.session.workspace import Workspace


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


#: With more references, the executors write the manifests: then an array has several manifests to distribute.
#: The driver merges and commits two million references in two seconds with half a gigabyte, about the cost of
#: the start of a second stage. Ten million references would cost five times as much.
MANIFESTS_ON_EXECUTORS_ABOVE: Final = UNSPLIT_REFS

#: The driver buffers up to this many references before it stages them.
_WAITING_REFERENCES: Final = 1 << 20
#: The limit of a flatbuffer, in bytes. A chunk in a transaction log takes 16 bytes, and 4 for each dimension.
_LOG_BYTES: Final = (1 << 31) - (1 << 24)
_LOG_ENTRY: Final = 16


@dataclass(slots=True)
class TaskChanges:
    """The changes of the tasks of a round, each in a fork of ``base``, before the merge into ``session``.

    ``place`` is the folder of staged references. With ``keeps`` they stay after the merge.
    """

    session: Session
    base: ForkSession
    place: str
    above: int = MANIFESTS_ON_EXECUTORS_ABOVE
    keeps: bool = False
    changes: list[ChangeSet] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    refs: int = 0
    _ends: int | None = None
    _waiting: int = 0

    @property
    def is_big(self) -> bool:
        """Whether there are so many references that the executors write the manifests."""
        return self.refs > self.above

    def add_result(self, result: Result) -> Result:
        """Add the changes of a task, and return the result without them."""
        if not all(each.key.startswith(f"{self.place}/") for each in result.segments):
            raise FormatError("a task staged references in another folder", ErrorKind.INVALID_FILE_FORMAT)
        if self.session.workspace.reads is not None:
            self.session.workspace.reads.add(result.reads)
        self.changes.append(result.changes)
        self.segments += result.segments
        self._ends = result.ends if self._ends is None else min(self._ends, result.ends)
        waiting = sum(len(edits.table()) for edits in result.changes.chunks.values() if edits)
        self._waiting += waiting
        self.refs += waiting + sum(map(attrgetter("count"), result.segments))
        if self.is_big and self._waiting > _WAITING_REFERENCES:
            self._stage_waiting(SENT_REFERENCES)
        return replace(result, changes=ChangeSet(), segments=())

    def finish(self, engine: Engine) -> None:
        """Merge all changes into the session."""
        workspace = self.session.workspace
        storage = workspace.context.storage
        try:
            if not self.is_big:
                self.session.merge(
                    *map(self._fork, chain(self.changes, read_segments(storage, self.segments)))
                )
                return
            self._stage_waiting(SENT_REFERENCES)
            self.session.merge(*map(self._fork, self.changes))
            workspace.adopt_manifests(_write_manifests(workspace, self.segments, self.place, engine))
        finally:
            if not self.keeps:
                delete_segments(storage, self.segments)

    def _fork(self, changes: ChangeSet) -> ForkSession:
        fork = self.base.fork()
        fork.workspace.changes = changes
        if self._ends is not None:
            state_of(fork).expires_at = min(state_of(fork).expires_at, self._ends)
        return fork

    def _stage_waiting(self, least: int) -> None:
        """Stage the collected references of arrays with at least ``least``, or with staged references."""
        staged_arrays = set(map(attrgetter("node_id"), self.segments))
        counts: dict[bytes, int] = {}
        for id_, edits in chain.from_iterable(changes.chunks.items() for changes in self.changes):
            if edits:
                counts[id_] = counts.get(id_, 0) + len(edits.table())
        context = self.session.workspace.context
        nodes = {node.id: node for changes in self.changes for node in changes.nodes.values() if node}
        parts: list[tuple[Node, ChunkTable]] = []
        for id_, count in counts.items():
            if count < least and id_ not in staged_arrays:
                continue
            tables: list[ChunkTable] = []
            for changes in self.changes:
                waiting = changes.chunks.get(id_)
                if waiting:
                    tables.append(waiting.table())
                    changes.chunks[id_] = ChunkChanges(waiting.path, waiting.ndim)
                    path = waiting.path
            _require_once(path, tables)
            node = nodes.get(id_) or self.session.workspace.require_array(path)
            parts.append((node, ChunkTable.merge_tables(tables)))
        if parts:
            self.segments += stage_tables(context, self.place, parts)
        self._waiting = 0


def _require_once(path: str, tables: Sequence[ChunkTable]) -> None:
    duplicates = differing(tables)
    if len(duplicates):
        raise duplicate_chunks(path, len(duplicates), first_corner(duplicates))


# The second stage


def _write_manifests(
    workspace: Workspace, segments: Sequence[Segment], place: str, engine: Engine
) -> dict[bytes, PreparedManifests]:
    context = workspace.context
    by_array: dict[bytes, list[Segment]] = {}
    for segment in segments:
        by_array.setdefault(segment.node_id, []).append(segment)
    own = workspace.own_changes()
    nodes = workspace.node_table()
    rows = rows_of(nodes, id_matrix(list(by_array), NODE_ID_BYTES))
    arrays = dict(zip(by_array, map(nodes.node, rows.tolist()), strict=True))
    files = _files(workspace, own)
    unchanged: dict[bytes, Sequence[ManifestRef]] = {}
    boxes: list[Box] = []
    before: list[Segment] = []
    for id_, own_segments in by_array.items():
        node = arrays[id_]
        edits = own.chunks.get(id_)
        under = stage_tables(context, place, [(node, edits.table())]) if edits else []
        before += under
        refs = _count(files, node) + sum(map(attrgetter("count"), [*own_segments, *under]))
        split = split_of(context, node, refs)
        unchanged[id_], more = boxes_of(node, split, own_segments, under, is_logged=id_ not in own.created)
        boxes += more
    _require_log(boxes)
    try:
        stored = write_boxes(context, boxes, engine)
    finally:
        delete_segments(context.storage, before)
    return {id_: _ready(arrays[id_], unchanged[id_], stored, files, own) for id_ in by_array}


def _count(files: ManifestFiles, node: Node) -> int:
    assert node.array is not None
    return num_refs(files, node.array)


def _files(workspace: Workspace, own: ChangeSet) -> ManifestFiles:
    """Return the sizes of all present manifests of the arrays."""
    return _join_files([workspace.snapshot.manifests, *map(attrgetter("files"), own.ready.values())])


def _join_files(parts: Sequence[ManifestFiles]) -> ManifestFiles:
    return ManifestFiles(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.size_bytes for part in parts]),
        np.concatenate([part.num_chunk_refs for part in parts]),
    )


def _require_log(boxes: Iterable[Box]) -> None:
    size = sum(box.count * (_LOG_ENTRY + 4 * len(box.split)) for box in boxes if box.is_logged)
    if size > _LOG_BYTES:
        raise InvalidInputError(
            f"the transaction log must have at most {_LOG_BYTES} bytes, got {size}: it names every chunk "
            "that is set in an existing array. Commit in parts, or write new arrays",
            ErrorKind.NOT_ALLOWED,
        )


def _ready(
    node: Node,
    unchanged: Sequence[ManifestRef],
    stored: Iterable[BoxManifests],
    files: ManifestFiles,
    own: ChangeSet,
) -> PreparedManifests:
    results = [each for each in stored if each.node_id == node.id]
    manifests = (*unchanged, *chain.from_iterable(each.manifests for each in results))
    rows = np.isin(id_keys(files.ids), id_keys(id_matrix([ref.id for ref in unchanged])))
    all_files = _join_files([files.select_manifests(rows), *(each.files for each in results)])
    index = None
    if node.id not in own.created:
        before = own.ready.get(node.id)
        index = _union([each.index for each in results], None if before is None else before.index)
    return PreparedManifests(node.path, manifests, all_files, index)


def _union(encoded: Sequence[bytes | None], before: U32 | None) -> U32:
    """Return the coordinates of all boxes, sorted."""
    tables = [] if before is None else [ChunkTable.from_absent(before)]
    for each in encoded:
        if each is not None:
            tables += [edits.table() for edits in wire.decode(each).chunks.values()]
    return ChunkTable.merge_tables(tables).index
