"""The job that gives arrays other chunks, shards or codecs.

The driver decides for each array how it is rewritten:

    no plan       its chunks are right already: in place they stay, elsewhere they are transferred
    one stage     tasks read blocks of the old array and write them to the new one
    two stages    tasks write an intermediate array, and other tasks read that: see `rechunk_plan`

The intermediate array is in no commit: the session that created it deletes it. Its chunks stay in the storage
until the next garbage collection.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import I64, cells, groups, sizes
from frazil.jobs.job import Job, Phase, Tasks
from frazil.jobs.job_result import JobResult
from frazil.jobs.job_run import run_job
from frazil.jobs.memory import Budget
from frazil.jobs.run_options import Run
from frazil.jobs.task_results import Outcome
from frazil.jobs.versions import Target, Version
from frazil.pipeline.transform.array_info import ArrayInfo, Json, Shape, open_array, with_companions
from frazil.pipeline.transform.chunk_transfer import (
    ChunkTransfer,
    fetch_chunks,
    transfer_chunks,
    whole_transfer,
)
from frazil.pipeline.transform.coordinate_guard import Labels, is_label, refuse_relabelling
from frazil.pipeline.transform.rechunk_plan import RechunkPlan, Stage, rechunk_plan
from frazil.pipeline.transform.targets import (
    create_array,
    is_in_place,
    require_distinct_paths,
    require_newest,
    target_or_source,
)
from frazil.repository.session.session import ForkSession, Session

#: The least number of bytes that a task copies: a balance of start-up costs and parallel work.
_LEAST_TASK: Final = 8_000_000
_MOST_TASK: Final = 256_000_000
_TASKS: Final = 32
#: The codecs of an old array that an intermediate array has: only serializers, as it is temporary.
_INTERMEDIATE_CODECS: Final = frozenset({"bytes", "vlen-utf8", "vlen-bytes"})


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One call: ``arrays`` of ``version``, which ``source`` reads, are rewritten.

    ``paths`` are those of the caller. ``layout_of(array, path)`` is the metadata of a result.
    """

    name: str
    version: Version
    source: Session
    paths: Sequence[str]
    arrays: list[ArrayInfo]
    layout_of: Callable[[ArrayInfo, str], ArrayInfo]
    parameters: Json


@dataclass(frozen=True, slots=True)
class _ArrayRewrite:
    """How one array is rewritten. Without a plan its chunks stay unchanged."""

    old: ArrayInfo
    new: ArrayInfo
    plan: RechunkPlan | None = None
    intermediate: ArrayInfo | None = None


@dataclass(frozen=True, slots=True)
class CopyItem:
    """The item of one task: blocks of the array ``source`` for the array ``path``. ``read`` are its cells.

    With ``from_fork``, the source is in the session of the job, not in the version that the job reads.
    """

    source: str
    path: str
    starts: I64
    stops: I64
    read: Shape
    itemsize: int
    from_fork: bool = False


@dataclass(frozen=True, slots=True)
class _RewriteJob:
    rewrite: Rewrite
    target: Target
    in_place: bool
    arrays: Sequence[_ArrayRewrite]

    @property
    def in_stages(self) -> list[tuple[_ArrayRewrite, RechunkPlan]]:
        """The arrays with a plan."""
        return [(each, each.plan) for each in self.arrays if each.plan is not None]

    @property
    def in_two_stages(self) -> list[tuple[_ArrayRewrite, RechunkPlan, ArrayInfo]]:
        """The arrays with an intermediate array."""
        pairs = self.in_stages
        return [(each, plan, each.intermediate) for each, plan in pairs if each.intermediate is not None]


def run_rewrite(rewrite: Rewrite, to: Target | None, run: Run) -> JobResult:
    """Run a rewrite as one job. Raise ``InvalidInputError`` for no arrays, and for too little ``max_mem``."""
    target, budget = target_or_source(rewrite.version, to), Budget.of(run.max_mem).size
    if not rewrite.arrays:
        raise InvalidInputError("paths must name at least one array, got none", ErrorKind.INVALID_ARGUMENT)
    work = _rewrite_job(rewrite, target, budget)
    require_distinct_paths([each.new for each in work.arrays])
    paths = [rewrite.paths] if isinstance(rewrite.paths, str) else list(rewrite.paths)
    inputs = [array.path for array in rewrite.arrays]
    second = Phase(functools.partial(_prepare_second_stage, work), copy_blocks)
    job = Job(
        rewrite.name,
        target,
        functools.partial(_prepare, work),
        copy_blocks,
        functools.partial(_delete_intermediates, work),
        {**rewrite.parameters, "paths": paths, "max_mem": budget},
        (rewrite.version.input(inputs),),
        tuple(each.new.path for each in work.arrays) or tuple(inputs),
        run.message,
        id=run.job_id,
        phases=(second,) if work.in_two_stages else (),
    )
    return run_job(job, run.engine, progress=run.progress)


def _rewrite_job(rewrite: Rewrite, target: Target, budget: int) -> _RewriteJob:
    in_place = is_in_place(rewrite.version, target)
    arrays = [_array_rewrite(rewrite, target, array, budget) for array in rewrite.arrays]
    if in_place:
        arrays = [each for each in arrays if each.plan is not None]
    else:
        paths = {array.path for array in rewrite.arrays}
        companions = with_companions(rewrite.source, rewrite.arrays)
        arrays += [
            _ArrayRewrite(array, replace(array, path=target.path(array.path)))
            for array in companions
            if array.path not in paths
        ]
    return _RewriteJob(rewrite, target, in_place, arrays)


def _array_rewrite(rewrite: Rewrite, target: Target, old: ArrayInfo, budget: int) -> _ArrayRewrite:
    new = rewrite.layout_of(old, target.path(old.path))
    if all(old.document[member] == new.document[member] for member in ("chunk_grid", "codecs")):
        return _ArrayRewrite(old, new)
    plan = rechunk_plan(old.shape, old.chunks, new.grid, old.itemsize, budget)
    if plan.intermediate is None:
        return _ArrayRewrite(old, new, plan)
    seed = f"{rewrite.version.snapshot_id} {old.path} {new.path}"
    name = f"frazil-between-{hashlib.sha256(seed.encode()).hexdigest()[:16]}"
    codecs = [each for each in old.codecs if each["name"] in _INTERMEDIATE_CODECS] or old.codecs
    intermediate = old.with_layout(target.path(name), chunks=plan.intermediate, codecs=codecs)
    return _ArrayRewrite(old, new, plan, intermediate)


def _prepare(work: _RewriteJob, session: Session) -> Tasks:
    rewrite, source = work.rewrite, work.rewrite.source
    if work.in_place:
        require_newest(source, session, rewrite.arrays)
    else:
        labels = [Labels(each.old, each.new) for each in work.arrays if is_label(each.old)]
        refuse_relabelling(session, source, labels, [each.new for each in work.arrays])
    for each in work.arrays:
        create_array(session, source, each.old, each.new)
    transfers = [whole_transfer(each.old, each.new) for each in work.arrays if each.plan is None]
    items: list[Any] = transfer_chunks(session, source, rewrite.version, work.target, transfers)
    for each, plan in work.in_stages:
        if each.intermediate is not None:
            create_array(session, source, each.intermediate, each.intermediate)
        output = each.intermediate or each.new
        items += _copy_items(each.old, output.path, plan.stages[0])
    return Tasks(items, source)


def _prepare_second_stage(work: _RewriteJob, session: Session, values: list[Any]) -> Tasks:
    items: list[CopyItem] = []
    for each, plan, intermediate in work.in_two_stages:
        items += _copy_items(intermediate, each.new.path, plan.stages[1], from_fork=True)
    return Tasks(items, work.rewrite.source)


def _delete_intermediates(work: _RewriteJob, session: Session, values: list[Any]) -> None:
    for _, _, intermediate in work.in_two_stages:
        session.workspace.delete_node(intermediate.path)


def _copy_items(old: ArrayInfo, path: str, stage: Stage, *, from_fork: bool = False) -> list[CopyItem]:
    """Return the items of one stage: neighbouring blocks together."""
    starts, stops = stage.blocks()
    per_task = min(max(stage.itemsize * math.prod(stage.shape) // _TASKS, _LEAST_TASK), _MOST_TASK)
    offsets = groups(sizes(starts, stops) * stage.itemsize, per_task).tolist()
    return [
        CopyItem(old.path, path, starts[low:high], stops[low:high], stage.read, stage.itemsize, from_fork)
        for low, high in pairwise(offsets)
    ]


def copy_blocks(fork: ForkSession, source: Session, item: CopyItem | ChunkTransfer) -> Outcome:
    """Read blocks and write them, one at a time, or fetch chunks: the task."""
    if isinstance(item, ChunkTransfer):
        return fetch_chunks(fork, source, item)
    old = open_array(fork if item.from_fork else source, item.source)
    new = open_array(fork, item.path, "r+")
    cell, shape = np.array(item.read, np.int64), np.array(old.shape, np.int64)
    for start, stop in zip(item.starts.tolist(), item.stops.tolist(), strict=True):
        region = tuple(map(slice, start, stop))
        new[region] = old[region]
    read = np.minimum(-(-item.stops // cell) * cell, shape) - item.starts // cell * cell
    chunks = [cells(lengths, new.chunks) for lengths in (item.stops - item.starts).tolist()]
    return Outcome(
        chunks=int(np.prod(chunks, axis=1).sum()),
        bytes_read=int(np.prod(read, axis=1).sum()) * item.itemsize,
        bytes_written=int(sizes(item.starts, item.stops).sum()) * item.itemsize,
    )
