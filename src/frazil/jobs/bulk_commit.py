"""Commits of very many references: the manifests are written by the executors, the driver puts them together.

    first stage     a task that changed many references of an array does not send them: it stages them in the
                    repository's storage, cut into boxes of the chunk grid, and sends where they are
    driver          counts. Up to a number of references it reads them back and goes on as always; beyond,
    second stage    a task takes some boxes: reads what was staged for them, and the manifests that the array
                    has there; no two may have set the same chunk; writes the manifests
    driver          gets an id, a box and a size for each, and commits

The driver then holds some hundred bytes for each million references, but for the transaction log: it names
each chunk that was set or deleted in an array that was there before. Of an array that the same commit
creates it names none, since nobody else can have changed it: readers list it as new.

What the first stage leaves behind is deleted in the end; what a task wrote that ran twice, or before the job
died, is referred to by nobody, and garbage.
"""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, product
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_edits import ChunkEdits
from frazil.changes.manifests import SPLIT_REFS, UNSPLIT_REFS, Rewrite, distribute, in_boxes, plan
from frazil.changes.merge import differing
from frazil.changes.node_edits import rows_of
from frazil.changes.prepared_manifests import Ready
from frazil.errors import ErrorKind, FormatError, InvalidInputError, SessionStateError, StorageError
from frazil.format.columns import U32
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_matrix, id_to_text
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node, Snapshot
from frazil.jobs import wire
from frazil.jobs.engine import Engine
from frazil.jobs.segments import Corner, Segment
from frazil.jobs.task_results import Result
from frazil.repository.catalog.context import Context
from frazil.repository.clock import new_object_id
from frazil.repository.session.interior import state_of
from frazil.repository.session.manifest_files import num_refs, put_manifests, split_of
from frazil.repository.session.session import ForkSession, Session
from frazil.repository.session.uploads import putting
from frazil.repository.session.workspace import Workspace
from frazil.storage.base import Storage

#: Beyond so many references the executors write the manifests: where an array gets several, and there is
#: something to share out. The driver merges and commits two millions in two seconds and half a gigabyte,
#: about what a second stage takes to start; ten millions would take five times as much.
MANIFESTS_ON_EXECUTORS_ABOVE: Final = UNSPLIT_REFS

#: A task sends fewer references of an array itself, and the driver waits for so many before it stages them.
_SENT: Final = 20_000
_GATHERED: Final = 1 << 20
#: A task stages into so many boxes at most: larger ones if need be.
_BOXES: Final = 256
#: A flatbuffer has no more bytes, and a chunk in a transaction log takes these and 4 for each dimension.
_LOG_BYTES: Final = (1 << 31) - (1 << 24)
_LOG_ENTRY: Final = 16

# On executors, first stage


def unloaded(fork: ForkSession, place: str) -> tuple[ChangeSet, tuple[Segment, ...]]:
    """The changes of a fork without the references of arrays with many, and where these are.

    ``place`` is a folder of the storage.
    """
    workspace = fork.workspace
    changes = workspace.own_changes()
    many = [id_ for id_, edits in changes.chunks.items() if len(edits.table()) >= _SENT]
    if not many:
        return changes, ()
    rest = changes.copy()
    parts: list[tuple[Node, ChunkTable]] = []
    for id_ in many:
        edits = changes.chunks[id_]
        parts.append((workspace.nodes.require_array(edits.path), edits.table()))
        rest.chunks[id_] = ChunkEdits(edits.path, edits.ndim)  # the array was written to
    return rest, tuple(stage(workspace.context, place, parts))


def stage(context: Context, place: str, parts: Iterable[tuple[Node, ChunkTable]]) -> list[Segment]:
    """Put references into one file, cut into boxes."""
    key = f"{place}/{id_to_text(new_object_id())}.chunks"
    blobs: list[bytes] = []
    segments: list[Segment] = []
    at = 0
    for node, table in parts:
        for part in _cut(context, node, table):
            edits = ChunkEdits(node.path, part.ndim, (part,))
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


# On the driver


@dataclass(slots=True)
class Gathered:
    """What tasks have done, each in a fork of ``base``, on its way into ``session``.

    ``place`` is a folder of the storage; with ``keeps`` what is in there stays.
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
        return self.refs > self.above

    def add(self, result: Result) -> Result:
        """Take what a task did; the rest of its result. Raises ``SessionStateError`` (``merge-failed``) as
        ``Session.merge`` does.
        """
        if not all(each.key.startswith(f"{self.place}/") for each in result.segments):
            raise FormatError("references staged in another place", ErrorKind.INVALID_FILE_FORMAT)
        if self.session.workspace.reads is not None:
            self.session.workspace.reads.add(result.reads)
        self.changes.append(result.changes)
        self.segments += result.segments
        self._ends = result.ends if self._ends is None else min(self._ends, result.ends)
        waiting = sum(len(edits.table()) for edits in result.changes.chunks.values() if edits)
        self._waiting += waiting
        self.refs += waiting + sum(map(attrgetter("count"), result.segments))
        if self.is_big and self._waiting > _GATHERED:
            self._stage_waiting(_SENT)
        return replace(result, changes=ChangeSet(), segments=())

    def finish(self, engine: Engine) -> None:
        """Merge all of it into the session.

        Raises ``SessionStateError`` (``merge-failed``) if two tasks set the same chunk, and
        ``InvalidInputError`` (``not-allowed``) for more chunks of arrays that were there before than a
        transaction log can have.
        """
        workspace = self.session.workspace
        storage = workspace.context.storage
        try:
            if not self.is_big:
                self.session.merge(*map(self._fork, chain(self.changes, _read(storage, self.segments))))
                return
            self._stage_waiting(_SENT)
            self.session.merge(*map(self._fork, self.changes))
            workspace.adopt_manifests(_second_stage(workspace, self.segments, self.place, engine))
        finally:
            if not self.keeps:
                clear(storage, self.segments)

    def _fork(self, changes: ChangeSet) -> ForkSession:
        fork = self.base.fork()
        fork.workspace.changes = changes
        if self._ends is not None:
            state_of(fork).expires_at = min(state_of(fork).expires_at, self._ends)
        return fork

    def _stage_waiting(self, least: int) -> None:
        """Take references out of what waits: of arrays with many, and of those that are staged already."""
        known = set(map(attrgetter("node_id"), self.segments))
        counts: dict[bytes, int] = {}
        for id_, edits in chain.from_iterable(changes.chunks.items() for changes in self.changes):
            if edits:
                counts[id_] = counts.get(id_, 0) + len(edits.table())
        context = self.session.workspace.context
        nodes = {node.id: node for changes in self.changes for node in changes.nodes.values() if node}
        parts: list[tuple[Node, ChunkTable]] = []
        for id_, count in counts.items():
            if count < least and id_ not in known:
                continue
            tables: list[ChunkTable] = []
            for changes in self.changes:
                waiting = changes.chunks.get(id_)
                if waiting:
                    tables.append(waiting.table())
                    changes.chunks[id_] = ChunkEdits(waiting.path, waiting.ndim)
                    path = waiting.path
            _require_once(path, tables)
            node = nodes.get(id_) or self.session.workspace.nodes.require_array(path)
            parts.append((node, ChunkTable.merge_tables(tables)))
        if parts:
            self.segments += stage(context, self.place, parts)
        self._waiting = 0


def clear(storage: Storage, segments: Iterable[Segment]) -> None:
    """Delete what was staged, as far as the storage lets us: the rest is garbage."""
    keys = list(dict.fromkeys(map(attrgetter("key"), segments)))
    if keys:
        with suppress(StorageError):
            storage.delete(keys)


def _require_once(path: str, tables: Sequence[ChunkTable]) -> None:
    twice = differing(tables)
    if len(twice):
        raise _written_twice(path, len(twice), _first(twice))


def _first(coords: U32) -> Corner:
    return tuple(coords[0].tolist())


def _written_twice(path: str, count: int, first: Corner) -> SessionStateError:
    return SessionStateError(
        f"cannot merge: {count} chunk(s) of `{path}` were written by more than one task; the first is "
        f"{first}: align work with the grid",
        ErrorKind.MERGE_FAILED,
    )


# The second stage


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """A manifest to be written: of the array's chunks from ``low`` up to and without ``high``. References in
    ``segments`` count before those ``under`` them, which count before those in ``old`` manifests.
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
        return sum(map(attrgetter("count"), (*self.segments, *self.under)))


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """What was written of a box: manifests, their sizes and counts; coordinates for the log, encoded."""

    node_id: bytes
    manifests: tuple[ManifestRef, ...]
    files: ManifestFiles
    index: bytes | None
    twice: tuple[int, Corner] | None = None


def _second_stage(
    workspace: Workspace, segments: Sequence[Segment], place: str, engine: Engine
) -> dict[bytes, Ready]:
    context = workspace.context
    by_array: dict[bytes, list[Segment]] = {}
    for segment in segments:
        by_array.setdefault(segment.node_id, []).append(segment)
    own = workspace.own_changes()
    nodes = workspace.nodes.node_table()
    rows = rows_of(nodes, id_matrix(list(by_array), NODE_ID_BYTES))
    arrays = dict(zip(by_array, map(nodes.node, rows.tolist()), strict=True))
    files = _files(workspace, own)
    kept: dict[bytes, tuple[ManifestRef, ...]] = {}
    boxes: list[Box] = []
    before: list[Segment] = []
    for id_, mine in by_array.items():
        node = arrays[id_]
        edits = own.chunks.get(id_)
        under = stage(context, place, [(node, edits.table())]) if edits else []
        before += under
        refs = _count(files, node) + sum(map(attrgetter("count"), [*mine, *under]))
        split = split_of(context, node, refs)
        kept[id_], more = _boxes(node, split, mine, under, is_logged=id_ not in own.created)
        boxes += more
    _require_log(boxes)
    try:
        stored = _run(context, boxes, engine)
    finally:
        clear(context.storage, before)
    return {id_: _ready(arrays[id_], kept[id_], stored, files, own) for id_ in by_array}


def rewritten(context: Context, parent: Snapshot, above: int, engine: Engine) -> dict[bytes, Ready]:
    """All manifests of arrays with more than ``above`` references written anew, as they are split now."""
    nodes, files = parent.nodes.exact(), parent.manifests
    arrays = map(nodes.node, np.flatnonzero(nodes.is_array).tolist())
    many: dict[bytes, Node] = {}
    boxes: list[Box] = []
    for node in arrays:
        refs = _count(files, node)
        if refs > above:
            many[node.id] = node
            split = split_of(context, node, refs)
            boxes += _boxes(node, split, (), (), is_logged=False, everything=True)[1]
    stored = _run(context, boxes, engine)
    own = ChangeSet(created=set(many))  # nothing for the log
    return {
        id_: replace(_ready(node, (), stored, files, own), index=np.zeros((0, 0), np.uint32))
        for id_, node in many.items()
    }


def _count(files: ManifestFiles, node: Node) -> int:
    assert node.array is not None
    return num_refs(files, node.array)


def _files(workspace: Workspace, own: ChangeSet) -> ManifestFiles:
    """Sizes of all manifests that the arrays have now."""
    return _joined([workspace.snapshot.manifests, *map(attrgetter("files"), own.ready.values())])


def _joined(parts: Sequence[ManifestFiles]) -> ManifestFiles:
    return ManifestFiles(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.size_bytes for part in parts]),
        np.concatenate([part.num_chunk_refs for part in parts]),
    )


def _boxes(
    node: Node,
    split: Corner,
    segments: Sequence[Segment],
    under: Collection[Segment],
    *,
    is_logged: bool,
    everything: bool = False,
) -> tuple[tuple[ManifestRef, ...], list[Box]]:
    """Manifests of the array that stay, and the boxes that are written anew with all that goes into them."""
    assert node.array is not None
    num_chunks = node.array.num_chunks
    content: dict[Corner, tuple[list[Segment], list[Segment], list[ManifestRef]]] = {}
    under = frozenset(under)
    for segment in (*segments, *under):
        for at in _numbers(segment.low, segment.high, split):
            mine, below, _ = content.setdefault(at, ([], [], []))
            (below if segment in under else mine).append(segment)
    touched = np.array(list(content), np.int64).reshape(len(content), len(split)) * np.array(split)
    rewrite = Rewrite((), node.array.manifests)
    if not everything:
        rewrite = plan(node.array, ChunkTable.from_absent(touched), split)
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
    """Numbers of the boxes between two corners, both inside."""
    return product(*(range(a // size, b // size + 1) for a, b, size in zip(low, high, split, strict=True)))


def _require_log(boxes: Iterable[Box]) -> None:
    size = sum(box.count * (_LOG_ENTRY + 4 * len(box.split)) for box in boxes if box.is_logged)
    if size > _LOG_BYTES:
        raise InvalidInputError(
            f"the transaction log would have {size} bytes, at most {_LOG_BYTES} are possible: it names every "
            "chunk that is set in an array that was there before. Commit in parts, or write new arrays",
            ErrorKind.NOT_ALLOWED,
        )


def _run(context: Context, boxes: Sequence[Box], engine: Engine) -> list[Stored]:
    shared = pickle.dumps(context)
    weights = np.cumsum([box.count + sum(map(_weight, box.old)) for box in boxes])
    numbers = weights // SPLIT_REFS
    cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    tasks = [
        pickle.dumps(tuple(boxes[start:stop]))
        for start, stop in zip([0, *cuts], [*cuts, len(boxes)], strict=True)
    ]
    paths = {box.node.id: box.node.path for box in boxes}
    out: list[Stored] = []
    for result in engine.run(write_manifests, tasks, shared):
        for stored in pickle.loads(result):
            if stored.twice is not None:
                raise _written_twice(paths[stored.node_id], *stored.twice)
            out.append(stored)
    return out


def _weight(ref: ManifestRef) -> int:
    return SPLIT_REFS // 4  # to read it, mostly


def _ready(
    node: Node, kept: tuple[ManifestRef, ...], stored: Iterable[Stored], files: ManifestFiles, own: ChangeSet
) -> Ready:
    mine = [each for each in stored if each.node_id == node.id]
    manifests = (*kept, *chain.from_iterable(each.manifests for each in mine))
    rows = np.isin(id_keys(files.ids), id_keys(id_matrix([ref.id for ref in kept])))
    all_files = _joined([files.select_manifests(rows), *(each.files for each in mine)])
    index = None
    if node.id not in own.created:
        before = own.ready.get(node.id)
        index = _union([each.index for each in mine], None if before is None else before.index)
    return Ready(node.path, manifests, all_files, index)


def _union(encoded: Sequence[bytes | None], before: U32 | None) -> U32:
    """Coordinates of all boxes, sorted."""
    tables = [] if before is None else [ChunkTable.from_absent(before)]
    for each in encoded:
        if each is not None:
            tables += [edits.table() for edits in wire.decode(each).chunks.values()]
    return ChunkTable.merge_tables(tables).index


# On executors, second stage


def write_manifests(shared: bytes, task: bytes) -> bytes:
    """The task: write the manifests of some boxes."""
    context = _unpacked(shared)
    boxes: tuple[Box, ...] = pickle.loads(task)
    return pickle.dumps([_write(context, box) for box in boxes])


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> Context:
    context: Context = pickle.loads(shared)
    return context


def _write(context: Context, box: Box) -> Stored:
    node, array = box.node, box.node.array
    assert array is not None
    nothing = ChunkTable.empty(len(box.split))
    under, tables = (
        [_within(changes.chunks[node.id].table(), box) for changes in _read(context.storage, segments)]
        for segments in (box.under, box.segments)
    )
    twice = differing([*tables, nothing])
    if len(twice):
        return Stored(node.id, (), ManifestFiles.empty(), None, (len(twice), _first(twice)))
    edits = ChunkTable.merge_tables([*under, *tables, nothing])
    manifests = context.assets.manifests([ref.id for ref in box.old], 4)
    old = [_within(each.arrays[node.id], box) for each in manifests if node.id in each.arrays]
    with putting(context.storage) as puts:
        written = put_manifests(context, puts, [(node.id, distribute(array, old, edits, box.split))])
    files = ManifestFiles(
        id_matrix([each.ref.id for each in written]),
        np.array([each.size for each in written], np.uint64),
        np.array([each.num_refs for each in written], np.uint32),
    )
    index = None
    if box.is_logged:
        coords = ChunkEdits(node.path, edits.ndim, (ChunkTable.from_absent(edits.index),))
        index = wire.encode(ChangeSet(chunks={node.id: coords}))
    return Stored(node.id, tuple(each.ref for each in written), files, index)


def _within(table: ChunkTable, box: Box) -> ChunkTable:
    low, high = np.array(box.low, np.int64), np.array(box.high, np.int64)
    inside: NDArray[np.bool_] = ((table.index >= low) & (table.index < high)).all(axis=1)
    return table if inside.all() else table.select_chunks(inside)


def _read(storage: Storage, segments: Iterable[Segment]) -> Iterator[ChangeSet]:
    for segment in segments:
        yield wire.decode(bytes(storage.get(segment.key, segment.start, segment.stop)))
