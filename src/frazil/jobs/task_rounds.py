"""Rounds of tasks: an engine runs the items of a job, and the results are merged into the session of the job.

Tasks stage many references of an array, divided into boxes of the chunk grid. If there are very many, a
second stage of tasks writes the manifests from them. The driver then holds some hundred bytes for each
million references, but for the transaction log, which names each changed chunk of an array that existed
before.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from operator import attrgetter
from typing import Any, Final

import numpy as np

from frazil import host
from frazil.changes.change_set import ChangeSet, ChunkChanges, PreparedManifests
from frazil.changes.diff import rows_of
from frazil.changes.manifests import SPLIT_REFS, distribute, plan_rewrite
from frazil.changes.merge import differing
from frazil.changes.reads import NOTHING_READ, ReadSet, joined_reads
from frazil.display import some_of
from frazil.errors import ErrorKind, FormatError, InvalidInputError, SessionStateError
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_matrix, id_to_text
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node
from frazil.jobs.engine import Engine, attempt
from frazil.jobs.job import Metrics, Tasks, Work
from frazil.jobs.progress import Progress
from frazil.jobs.staging import StagedRound, Staging
from frazil.jobs.task_failures import sendable, shared_value
from frazil.jobs.task_results import (
    SENT_REFERENCES,
    Corner,
    Outcome,
    Segment,
    TaskResult,
    decode_changes,
    decode_result,
    delete_segments,
    encode_changes,
    encode_result,
    read_segments,
    stage_references,
    stage_tables,
)
from frazil.repository.catalog.collection_guard import STAGING
from frazil.repository.catalog.context import Context
from frazil.repository.ids import new_object_id, object_id_series
from frazil.repository.paths import absolute
from frazil.repository.session.commit_files import (
    Uploads,
    manifest_files,
    num_refs,
    put_manifests,
    split_of,
    uploading,
    with_prepared_files,
)
from frazil.repository.session.session import ForkSession, Session, state_of
from frazil.storage.checks import TRAFFIC
from frazil.zarr_store.arrays import counted_values

_NUMBER: Final = struct.Struct("<Q")
#: The driver buffers up to this many references before it stages them.
_WAITING_REFERENCES: Final = 1 << 20
#: The limit of a flatbuffer, in bytes. A chunk in a transaction log takes 16 bytes, and 4 for each dimension.
_LOG_BYTES: Final = (1 << 31) - (1 << 24)
_LOG_ENTRY: Final = 16


@dataclass(frozen=True, slots=True)
class RoundInput:
    """The value that all tasks of a round share. ``references`` is the folder for staged references."""

    base: ForkSession
    work: Work
    shared: Any
    staged: StagedRound | None
    references: str


@dataclass(slots=True)
class Rounds:
    """The rounds of one job. ``reads`` are the paths on which the plans of its rounds depend."""

    session: Session
    staging: Staging | None
    engine: Engine
    progress: Progress | None
    manifests_on_executors_above: int
    number: int = 0
    reads: ReadSet = NOTHING_READ
    totals: Counter[str] = field(default_factory=Counter)
    task_seconds: float = 0.0
    longest: float = 0.0

    def on_driver[**P, R](self, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result of a step of the job in this process, and count the values that it writes."""
        with counted_values() as counts:
            result = step(*args, **kwargs)
        self.totals["bytes_written"] += counts.written
        return result

    def run(self, prepare: Callable[..., Any], work: Work, *args: Any) -> list[Any]:
        """Run the work for all items of ``prepare(session, *args)``, and return the values of the tasks."""
        session, staged = self.session, None
        generation = state_of(session).generation
        tasks = self.on_driver(prepare, session, *args)
        if not isinstance(tasks, Tasks):
            raise InvalidInputError(f"`prepare` must return Tasks, got {type(tasks).__name__}")
        self.reads = joined_reads([self.reads, ReadSet(trees=frozenset(map(absolute, tasks.reads)))])
        items = [sendable(item, f"item {number}") for number, item in enumerate(tasks.items)]
        self.totals["tasks"] += len(items)
        if self.progress is not None:
            self.progress.expect(len(items))
        if not items and self.staging is None:
            return []  # a fork would cost a lease in the storage
        place = f"{STAGING}/{id_to_text(new_object_id())}"
        if self.staging is not None:
            if state_of(session).generation != generation:
                raise SessionStateError(
                    "`prepare` forked its session, but then the job cannot be resumed. Run the job with an "
                    "engine that is not `resumable`, or write with the session itself"
                )
            staged = self.staging.stage_round(self.number, session, items)
            place = f"{staged.folder.key}/references"  # a later run may need them until the commit
        self.number += 1
        common = RoundInput(session.fork(), work, tasks.shared, staged, place)
        changes = TaskChanges(
            session, common.base, place, self.manifests_on_executors_above, keeps=staged is not None
        )
        values: dict[int, Any] = {}
        for number, result in () if staged is None else staged.results(work.__module__):
            if number < len(items):
                values[number] = self._add_result(number, result, changes)
        missing = [number for number in range(len(items)) if number not in values]
        parts = {"work": work, "shared": tasks.shared}
        shared = sendable(common, "the work function or the shared value", parts)
        messages = [_NUMBER.pack(number) + items[number] for number in missing]
        for number, data in zip(missing, self.engine.run(run_task, messages, shared), strict=True):
            self.totals["returned"] += len(data)
            values[number] = self._add_result(number, decode_result(data), changes)
        changes.finish(self.engine)
        return [values[number] for number in range(len(items))]

    def _add_result(self, number: int, result: TaskResult, changes: TaskChanges) -> Any:
        """Add the changes and the metrics of a task, and return its value."""
        changes.add_result(number, result)
        outcome, stored = result.outcome, result.stored
        self.longest = max(self.longest, result.seconds)
        self.task_seconds += result.seconds
        self.totals.update(
            retries=result.retries,
            resumed=int(result.staged),
            rows=outcome.rows,
            chunks=outcome.chunks,
            bytes_read=outcome.bytes_read or 0,
            bytes_written=outcome.bytes_written or 0,
            requests=stored.requests,
            stored_bytes_read=stored.bytes_read,
            stored_bytes_written=stored.bytes_written,
        )
        if self.progress is not None:
            self.progress.advance(
                rows=outcome.rows,
                chunks=outcome.chunks,
                bytes=outcome.bytes_written or 0,
                resumed=result.staged,
            )
        return outcome.value

    def metrics(self, seconds: float) -> Metrics:
        """Return the metrics of the job, including the requests of the driver."""
        driver = TRAFFIC.take_counts()
        self.totals.update(
            requests=driver.requests,
            stored_bytes_read=driver.bytes_read,
            stored_bytes_written=driver.bytes_written,
        )
        return Metrics(
            **self.totals,
            seconds=round(seconds, 3),
            task_seconds=round(self.task_seconds, 3),
            longest_task_seconds=round(self.longest, 3),
        )


def task_number(message: bytes) -> int:
    """Return the number of the task of a message for ``run_task``."""
    (number,) = _NUMBER.unpack_from(message)
    return int(number)


@dataclass(slots=True)
class TaskChanges:
    """The changes of the tasks of a round, each in a fork of ``base``, before the merge into ``session``.

    ``numbers`` are those of the tasks of ``changes``. ``place`` is the folder of staged references. With
    ``keeps`` they stay after the merge. With more than ``above`` references, the executors write the
    manifests.
    """

    session: Session
    base: ForkSession
    place: str
    above: int
    keeps: bool
    changes: list[ChangeSet] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    refs: int = 0
    _segment_numbers: list[int] = field(default_factory=list)
    _ends: int | None = None
    _waiting: int = 0

    def add_result(self, number: int, result: TaskResult) -> None:
        """Add the changes of a task."""
        if not all(each.key.startswith(f"{self.place}/") for each in result.segments):
            raise FormatError("a task staged references in another folder", ErrorKind.INVALID_FILE_FORMAT)
        if self.session.workspace.reads is not None:
            self.session.workspace.reads.add(result.reads)
        self.changes.append(result.changes)
        self.numbers.append(number)
        self.segments += result.segments
        self._segment_numbers += [number] * len(result.segments)
        self._ends = result.ends if self._ends is None else min(self._ends, result.ends)
        waiting = sum(len(edits.table()) for edits in result.changes.chunks.values() if edits)
        self._waiting += waiting
        self.refs += waiting + sum(map(attrgetter("count"), result.segments))
        if self.refs > self.above and self._waiting > _WAITING_REFERENCES:
            self._stage_waiting()

    def finish(self, engine: Engine) -> None:
        """Merge all changes into the session."""
        workspace = self.session.workspace
        storage = workspace.context.storage
        is_big = self.refs > self.above
        try:
            if is_big:
                self._stage_waiting()
            forks: list[ForkSession] = []
            parts = self.changes if is_big else [*self.changes, *read_segments(storage, self.segments)]
            for changes in parts:
                fork = self.base.fork()
                fork.workspace.changes = changes
                if self._ends is not None:
                    state_of(fork).expires_at = min(state_of(fork).expires_at, self._ends)
                forks.append(fork)
            try:
                self.session.merge(*forks)
            except SessionStateError as error:
                if error.kind == ErrorKind.MERGE_FAILED:
                    _require_each_once(parts, [*self.numbers, *self._segment_numbers])
                raise
            if is_big:
                workspace.adopt_manifests(_write_manifests(self.session, self.segments, self.place, engine))
        finally:
            if not self.keeps:
                delete_segments(storage, self.segments)

    def _stage_waiting(self) -> None:
        """Stage the collected references of arrays with many of them, or with staged references."""
        staged_arrays = set(map(attrgetter("node_id"), self.segments))
        counts: Counter[bytes] = Counter()
        for id_, edits in chain.from_iterable(changes.chunks.items() for changes in self.changes):
            if edits:
                counts[id_] += len(edits.table())
        nodes = {node.id: node for changes in self.changes for node in changes.nodes.values() if node}
        parts: list[tuple[Node, ChunkTable]] = []
        for id_, count in counts.items():
            if count < SENT_REFERENCES and id_ not in staged_arrays:
                continue
            tables: list[ChunkTable] = []
            numbers: list[int] = []
            for number, changes in zip(self.numbers, self.changes, strict=True):
                waiting = changes.chunks.get(id_)
                if waiting:
                    tables.append(waiting.table())
                    numbers.append(number)
                    changes.chunks[id_] = ChunkChanges(waiting.path, waiting.ndim)
                    path = waiting.path
            _require_once(path, tables, numbers)
            node = nodes.get(id_) or self.session.workspace.require_array(path)
            parts.append((node, ChunkTable.merge_tables(tables)))
        if parts:
            self.segments += stage_tables(self.session.workspace.context, self.place, parts)
        self._waiting = 0


def _require_each_once(parts: Sequence[ChangeSet], numbers: Sequence[int]) -> None:
    """Raise ``SessionStateError`` for chunks that several tasks wrote. ``numbers`` are the tasks of parts."""
    for id_ in dict.fromkeys(chain.from_iterable(changes.chunks for changes in parts)):
        edits = [
            (edits, number)
            for changes, number in zip(parts, numbers, strict=True)
            if (edits := changes.chunks.get(id_))
        ]
        if edits:
            _require_once(edits[0][0].path, [each.table() for each, _ in edits], [each for _, each in edits])


def _require_once(path: str, tables: Sequence[ChunkTable], numbers: Sequence[int] = ()) -> None:
    """Raise ``SessionStateError`` for chunks that several tasks wrote. ``numbers`` are those of the tasks."""
    duplicates = differing(tables)
    if len(duplicates):
        writers = sorted(
            number
            for table, number in zip(tables, numbers, strict=False)
            if table.find_chunks(duplicates[:1])[0] >= 0
        )
        by = f", of the tasks {some_of(map(str, writers))} (from 0)" if writers else ""
        raise SessionStateError(
            f"cannot merge: {len(duplicates)} chunk(s) of `{path}` were written by more than one task; the "
            f"first is {tuple(duplicates[0].tolist())}{by}. Align the items of work with the chunk grid",
            ErrorKind.MERGE_FAILED,
        )


# On executors


#: Why the session of a task that has ended refuses changes, and what to do.
AFTER_TASK: Final = ("the task of this session has ended", "Make all changes before the end of the task")


def run_task(shared: bytes, message: bytes) -> bytes:
    """Run one task: one item, in its own fork."""
    started = host.monotonic_seconds()
    common: RoundInput = shared_value(shared)
    staged, work = common.staged, common.work
    number = task_number(message)
    # Another task of the same partition may have failed, or this result may have been lost after staging.
    if attempt() and staged is not None and (data := staged.get_result(number, work.__module__)) is not None:
        return data
    fork = common.base.fork()  # not `base`, which this process uses for the next task
    with counted_values() as counts:
        outcome = work(fork, common.shared, pickle.loads(message[_NUMBER.size :]))
    if not isinstance(outcome, Outcome):
        raise TypeError(f"the work function of a job must return an Outcome, got {type(outcome).__name__}")
    read, written = outcome.bytes_read, outcome.bytes_written
    outcome = replace(
        outcome,
        bytes_read=counts.read if read is None else read,
        bytes_written=counts.written if written is None else written,
    )
    data = encode_work(fork, outcome, common.references, started)
    if staged is not None and not staged.put_result(number, data):
        # Another driver was first. All drivers must merge one result: later rounds are staged by any of them.
        return staged.get_result(number, work.__module__) or data
    return data


def encode_work(fork: ForkSession, outcome: Outcome, place: str, started: float) -> bytes:
    """End the session of a task, and return its result. Many references are staged in ``place``."""
    fork.workspace.end(*AFTER_TASK)  # no later changes, such as those of a thread that still runs
    fork.workspace.writer.flush()  # the result must refer only to durable chunks
    seconds = round(host.monotonic_seconds() - started, 6)
    changes, segments = stage_references(fork, place)
    tracker = fork.workspace.reads
    result = TaskResult(
        changes,
        outcome,
        ends=state_of(fork).ends(),
        retries=attempt(),
        seconds=seconds,
        stored=TRAFFIC.take_counts(),
        segments=segments,
        reads=NOTHING_READ if tracker is None else tracker.reads(),
    )
    return encode_result(result)


# The second stage


@dataclass(frozen=True, slots=True, eq=False)
class ManifestBox:
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


def _write_manifests(
    session: Session, segments: Sequence[Segment], place: str, engine: Engine
) -> dict[bytes, PreparedManifests]:
    """Write the manifests of all arrays with staged references, in tasks of the engine."""
    workspace = session.workspace
    context, own, nodes = workspace.context, workspace.own_changes(), workspace.node_table()
    by_array: dict[bytes, list[Segment]] = {}
    for segment in segments:
        by_array.setdefault(segment.node_id, []).append(segment)
    rows = rows_of(nodes, id_matrix(list(by_array), NODE_ID_BYTES))
    arrays = dict(zip(by_array, map(nodes.node, rows.tolist()), strict=True))
    files = with_prepared_files(workspace.snapshot.manifests, own)
    unchanged: dict[bytes, Sequence[ManifestRef]] = {}
    boxes: list[ManifestBox] = []
    before: list[Segment] = []
    for id_, own_segments in by_array.items():
        node = arrays[id_]
        assert node.array is not None
        edits = own.chunks.get(id_)
        under = stage_tables(context, place, [(node, edits.table())]) if edits else []
        before += under
        refs = num_refs(files, node.array) + sum(map(attrgetter("count"), [*own_segments, *under]))
        split = split_of(context, node, refs)
        unchanged[id_], more = _boxes(node, split, own_segments, under, is_logged=id_ not in own.created)
        boxes += more
    size = sum(box.count * (_LOG_ENTRY + 4 * len(box.split)) for box in boxes if box.is_logged)
    if size > _LOG_BYTES:
        raise InvalidInputError(
            f"the transaction log must have at most {_LOG_BYTES} bytes, got {size}: it names every chunk "
            "that is set in an existing array. Commit in parts, or write new arrays",
            ErrorKind.NOT_ALLOWED,
        )
    # The weight of an old manifest is mostly the cost of reading it.
    weights = np.cumsum([box.count + len(box.old) * SPLIT_REFS // 4 for box in boxes])
    cuts = (np.flatnonzero(np.diff(weights // SPLIT_REFS)) + 1).tolist()
    tasks = [
        pickle.dumps(tuple(boxes[start:stop]))
        for start, stop in zip([0, *cuts], [*cuts, len(boxes)], strict=True)
    ]
    stored: dict[bytes, list[BoxManifests]] = {id_: [] for id_ in by_array}
    try:
        for result in map(pickle.loads, engine.run(write_manifests, tasks, pickle.dumps(context))):
            if isinstance(result, SessionStateError):
                raise result
            for each in result:
                stored[each.node_id].append(each)
    finally:
        delete_segments(context.storage, before)
    return {id_: _prepared(arrays[id_], unchanged[id_], stored[id_], files, own) for id_ in by_array}


def _boxes(
    node: Node, split: Corner, segments: Sequence[Segment], under: Collection[Segment], *, is_logged: bool
) -> tuple[Sequence[ManifestRef], list[ManifestBox]]:
    """Return the manifests of an array that stay, and the boxes to be written, with all their references."""
    assert node.array is not None
    num_chunks = node.array.num_chunks

    def numbers(low: Corner, high: Corner) -> Iterable[Corner]:  # of the boxes between two corners, inclusive
        axes = zip(low, high, split, strict=True)
        return product(*(range(first // size, last // size + 1) for first, last, size in axes))

    content: dict[Corner, tuple[list[Segment], list[Segment], list[ManifestRef]]] = {}
    under = frozenset(under)
    for segment in (*segments, *under):
        for at in numbers(segment.low, segment.high):
            mine, below, _ = content.setdefault(at, ([], [], []))
            (below if segment in under else mine).append(segment)
    touched = np.array(list(content), np.int64).reshape(len(content), len(split)) * np.array(split)
    rewrite = plan_rewrite(node.array, ChunkTable.from_absent(touched), split)
    for ref in rewrite.read:
        first, end = ref.extents.astype(np.int64).T
        last = np.minimum(end, num_chunks) - 1
        for at in numbers(tuple(first.tolist()), tuple(last.tolist())):
            content.setdefault(at, ([], [], []))[2].append(ref)
    node = replace(node, array=replace(node.array, manifests=()))
    boxes = []
    for at, (mine, below, old) in sorted(content.items()):
        low = tuple(number * size for number, size in zip(at, split, strict=True))
        high = tuple(min(a + size, n) for a, size, n in zip(low, split, num_chunks, strict=True))
        boxes.append(ManifestBox(node, split, low, high, tuple(mine), tuple(below), tuple(old), is_logged))
    return rewrite.unchanged, boxes


def _prepared(
    node: Node,
    unchanged: Sequence[ManifestRef],
    stored: Sequence[BoxManifests],
    files: ManifestFiles,
    own: ChangeSet,
) -> PreparedManifests:
    """Return all manifests of an array, and the coordinates for the log."""
    rows = np.isin(id_keys(files.ids), id_keys(id_matrix([ref.id for ref in unchanged])))
    all_files = ManifestFiles.union([files.select_manifests(rows), *(each.files for each in stored)])
    index = None
    if node.id not in own.created:
        before = own.ready.get(node.id)
        tables: list[ChunkTable] = []
        if before is not None and before.index is not None:
            tables.append(ChunkTable.from_absent(before.index))
        for each in stored:
            if each.index is not None:
                tables += [edits.table() for edits in decode_changes(each.index).chunks.values()]
        index = ChunkTable.merge_tables(tables).index
    manifests = (*unchanged, *chain.from_iterable(each.manifests for each in stored))
    return PreparedManifests(node.path, manifests, all_files, index)


def write_manifests(shared: bytes, task: bytes) -> bytes:
    """Run one task of the second stage on an executor: write the manifests of some boxes."""
    context: Context = shared_value(shared)
    boxes: tuple[ManifestBox, ...] = pickle.loads(task)
    ids = object_id_series()
    try:
        with uploading(context.storage) as uploads:  # files of many boxes are flushed together
            return pickle.dumps([_write_box(context, uploads, box, ids) for box in boxes])
    except SessionStateError as error:
        if error.kind != ErrorKind.MERGE_FAILED:
            raise
        return pickle.dumps(error)  # another attempt would find the same chunks


def _write_box(context: Context, uploads: Uploads, box: ManifestBox, ids: Iterator[bytes]) -> BoxManifests:
    node, array = box.node, box.node.array
    assert array is not None
    limits = np.array(box.low, np.int64), np.array(box.high, np.int64)

    def within(table: ChunkTable) -> ChunkTable:
        inside = ((table.index >= limits[0]) & (table.index < limits[1])).all(axis=1)
        return table if inside.all() else table.select_chunks(inside)

    nothing = ChunkTable.empty(len(box.split))
    under, tables = (
        [within(changes.chunks[node.id].table()) for changes in read_segments(context.storage, segments)]
        for segments in (box.under, box.segments)
    )
    _require_once(node.path, [*tables, nothing])
    edits = ChunkTable.merge_tables([*under, *tables, nothing])
    manifests = context.assets.manifests([ref.id for ref in box.old], 4)
    if context.settings.statistics or edits.statistics is not None:
        manifests = list(map(context.assets.with_statistics, manifests))
    arrays = [each.arrays[node.id] for each in manifests if node.id in each.arrays]
    old = [within(each.of_rank(len(box.split))) for each in arrays]
    split_tables = distribute(array, old, edits, box.split)
    stored = put_manifests(context, uploads, [(node.id, split_tables)], ids)
    files = manifest_files(stored)
    index = None
    if box.is_logged:
        coords = ChunkChanges(node.path, edits.ndim, (ChunkTable.from_absent(edits.index),))
        index = encode_changes(ChangeSet(chunks={node.id: coords}))
    return BoxManifests(node.id, tuple(each.ref for each in stored), files, index)
