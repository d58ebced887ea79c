"""Arrays with other chunks, shards or codecs.

What is to be done with each array is decided on the driver:

    as it is    nothing, or its chunks are taken over without decoding (`transfer`)
    one stage   tasks read blocks of the old array and write them to the new one
    two stages  into an array between, and from that into the new one (see `plan`)

The array between is in no commit: it is deleted in the session that made it. Its chunks stay in the storage
until the next garbage collection.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from zarr.abc.codec import Codec

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import I64, cells, groups, parse_bytes, sizes
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import Job, Phase, Tasks, run_job
from frazil.jobs.job_result import JobResult
from frazil.jobs.progress import Progress
from frazil.jobs.task_results import Outcome
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    Json,
    Shape,
    codec_documents,
    companions,
    create,
    lengths,
    open_array,
    require_dimensions,
    require_once,
    require_unchanged,
    same_place,
    selected,
    target_of,
)
from frazil.pipeline.transform.block_job import take_over
from frazil.pipeline.transform.coordinate_guard import Labels, is_label, refuse_relabelling
from frazil.pipeline.transform.rechunk_plan import RechunkPlan, Stage, rechunk_plan
from frazil.pipeline.transform.transfer import Move, fetch, move_of
from frazil.repository.session.session import ForkSession, Session

#: A task takes so many bytes, block after block: enough to be worth a task, enough tasks to share.
_LEAST_TASK: Final = 8_000_000
_MOST_TASK: Final = 256_000_000
_TASKS: Final = 32


@takes_versions
def rechunk(
    source: Source,
    paths: Sequence[str],
    chunks: Sequence[int] | Mapping[str, int],
    *,
    shards: Sequence[int] | Mapping[str, int] | None = None,
    max_mem: int | str = "256MB",
    to: Target | None = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Give arrays other chunks, in one commit; in place, or somewhere else.

    ``paths`` are arrays, or groups for all that is below. ``chunks`` is a tuple for arrays of that many
    dimensions, or a mapping of dimension names, ``{"time": -1, "lat": 50}``: -1 is the whole axis, and what
    is not named keeps its length. ``shards`` likewise; without it the new arrays have none. ``max_mem``
    bounds the memory for the values of one task; if that is not enough for a block of the new chunks, the
    work is done in two stages. Data types, fill values, attributes and codecs stay; chunks that are not there
    are not there afterwards.

    Raises ``InvalidInputError`` for a shape that does not fit, for too little ``max_mem``, and for a
    rectilinear grid; ``NodeNotFoundError`` for a path where nothing is.

    >>> import frazil, zarr
    >>> from frazil.spark import Inline, rechunk
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="slices") as store:
    ...     array = zarr.create_array(store, name="t", shape=(8, 8), chunks=(1, 8), dtype="i4")
    ...     array[:] = 7
    >>> series = rechunk(repo, ["t"], (8, 1), engine=Inline())
    >>> zarr.open_array(series.version.session().store, path="t", mode="r").chunks
    (8, 1)
    """
    version = Version.of(source)
    session = version.session()
    arrays = selected(session, paths)
    if isinstance(chunks, Mapping):
        require_dimensions(list(chunks), arrays)

    def new(array: ArrayInfo, path: str) -> ArrayInfo:
        some = lengths(chunks, array, array.chunks, "chunks")
        return array.changed(path, chunks=some, shards=lengths(shards, array, None, "shards", inner=some))

    parameters = {"chunks": _said(chunks), "shards": _said(shards)}
    return _rewrite(
        "rechunk",
        version,
        session,
        paths,
        arrays,
        new,
        parameters,
        max_mem,
        to,
        engine,
        job_id,
        message,
        progress,
    )


@takes_versions
def recompress(
    source: Source,
    paths: Sequence[str],
    codecs: Sequence[Codec | Mapping[str, Any]] | None = None,
    *,
    shards: Sequence[int] | Mapping[str, int] | None = None,
    max_mem: int | str = "256MB",
    to: Target | None = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Store arrays with other codecs, in one commit; chunks keep their shape.

    ``codecs`` are zarr codecs, or their metadata: a whole chain, or without one that makes bytes of arrays
    only the compressors, ``[zarr.codecs.ZstdCodec(level=9)]``; None keeps them. The byte order stays unless
    the chain has a ``bytes`` codec that names another one (``BytesCodec()`` means little-endian). With
    ``shards`` the chunks are put into shards, without they are taken out. Otherwise as `rechunk`.
    """
    version = Version.of(source)
    session = version.session()
    arrays = selected(session, paths)

    def new(array: ArrayInfo, path: str) -> ArrayInfo:
        return array.changed(
            path,
            chunks=array.chunks,
            shards=lengths(shards, array, None, "shards", inner=array.chunks),
            codecs=codec_documents(codecs, array.codecs),
        )

    parameters = {"codecs": codec_documents(codecs, []), "shards": _said(shards)}
    return _rewrite(
        "recompress",
        version,
        session,
        paths,
        arrays,
        new,
        parameters,
        max_mem,
        to,
        engine,
        job_id,
        message,
        progress,
    )


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """An array on its way to another; without a plan it stays as it is."""

    old: ArrayInfo
    new: ArrayInfo
    plan: RechunkPlan | None
    between: ArrayInfo | None


@dataclass(frozen=True, slots=True)
class Copy:
    """One task: blocks of ``source`` to ``path``. ``fork`` says that it reads what the session has made."""

    source: str
    path: str
    starts: I64
    stops: I64
    read: Shape
    itemsize: int
    fork: bool = False


def _rewrite(
    name: str,
    version: Version,
    session: Session,
    paths: Sequence[str],
    arrays: list[ArrayInfo],
    make: Callable[[ArrayInfo, str], ArrayInfo],
    parameters: Json,
    max_mem: int | str,
    to: Target | None,
    engine: Engine | EngineName | None,
    job_id: str | None,
    message: str | None,
    progress: Progress | None,
) -> JobResult:
    target, budget = target_of(version, to), parse_bytes(max_mem)
    if not arrays:
        raise InvalidInputError("expected paths of arrays, found none", ErrorKind.NOT_ALLOWED)
    in_place = same_place(version, target)
    todo = [
        _planned(array, make(array, target.path(array.path)), version, target, budget) for array in arrays
    ]
    if in_place:
        todo = [each for each in todo if each.plan is not None]
    else:
        chosen = {array.path for array in arrays}
        more = [array for array in companions(session, arrays) if array.path not in chosen]
        todo += [
            _Rewritten(array, replace(array, path=target.path(array.path)), None, None) for array in more
        ]
    require_once([each.new for each in todo])
    as_they_are = [each for each in todo if each.plan is None]
    planned = [each for each in todo if each.plan is not None]
    two_stages = [each for each in planned if each.between is not None]

    def prepare(writing: Session) -> Tasks:
        if in_place:
            require_unchanged(session, writing, arrays)
        else:
            labels = [Labels(each.old, each.new) for each in todo if is_label(each.old)]
            refuse_relabelling(writing, session, labels, [each.new for each in todo])
        for each in todo:
            create(writing, session, each.old, each.new)
        moves = [move_of(each.old, each.new) for each in as_they_are]
        items: list[Any] = take_over(writing, session, version, target, moves)
        for each in planned:
            assert each.plan is not None
            aim = each.new
            if each.between is not None:
                create(writing, session, each.between, each.between)
                aim = each.between
            items += copies(each.old, aim.path, each.plan.stages[0])
        return Tasks(items, session)

    def second(writing: Session, values: list[Any]) -> Tasks:
        items: list[Copy] = []
        for each in two_stages:
            assert each.plan is not None
            assert each.between is not None
            items += copies(each.between, each.new.path, each.plan.stages[1], fork=True)
        return Tasks(items, session)

    def finish(writing: Session, values: list[Any]) -> None:
        for each in two_stages:
            assert each.between is not None
            writing.workspace.nodes.delete_node(each.between.path)

    job = Job(
        name,
        target,
        prepare,
        copy_blocks,
        finish,
        {**parameters, "paths": [paths] if isinstance(paths, str) else list(paths), "max_mem": budget},
        (version.input([array.path for array in arrays]),),
        tuple(each.new.path for each in todo) or tuple(array.path for array in arrays),
        message,
        id=job_id,
        phases=(Phase(second, copy_blocks),) if two_stages else (),
    )
    return run_job(job, engine, progress=progress)


def _planned(old: ArrayInfo, new: ArrayInfo, version: Version, target: Target, budget: int) -> _Rewritten:
    """What becomes of one array."""
    same = ("chunk_grid", "codecs")
    if all(old.document[member] == new.document[member] for member in same):
        return _Rewritten(old, new, None, None)
    plan = rechunk_plan(old.shape, old.chunks, new.grid, old.itemsize, budget)
    between = None
    if plan.between is not None:
        seed = f"{version.snapshot_id} {old.path} {new.path}"
        name = f"frazil-between-{hashlib.sha256(seed.encode()).hexdigest()[:16]}"
        codecs = [each for each in old.codecs if each["name"] in _KEPT]
        if not codecs:
            codecs = old.codecs
        between = old.changed(target.path(name), chunks=plan.between, codecs=codecs)
    return _Rewritten(old, new, plan, between)


#: Of the codecs, those that an array between has: what makes bytes of it. It does not stay for long.
_KEPT: Final = frozenset({"bytes", "vlen-utf8", "vlen-bytes"})


def copies(old: ArrayInfo, path: str, stage: Stage, *, fork: bool = False) -> list[Copy]:
    """The tasks of one stage: neighbouring blocks together."""
    starts, stops = stage.blocks()
    per_task = min(max(stage.itemsize * math.prod(stage.shape) // _TASKS, _LEAST_TASK), _MOST_TASK)
    offsets = groups(sizes(starts, stops) * stage.itemsize, per_task).tolist()
    return [
        Copy(old.path, path, starts[low:high], stops[low:high], stage.read, stage.itemsize, fork)
        for low, high in pairwise(offsets)
    ]


def copy_blocks(fork: ForkSession, source: Session, item: Copy | Move) -> Outcome:
    """Work: read blocks and write them, one at a time."""
    if isinstance(item, Move):
        return fetch(fork, source, item)
    old = open_array(fork if item.fork else source, item.source)
    new = open_array(fork, item.path, "r+")
    cell, shape = np.array(item.read, np.int64), np.array(old.shape, np.int64)
    for start, stop in zip(item.starts.tolist(), item.stops.tolist(), strict=True):
        region = tuple(map(slice, start, stop))
        new[region] = old[region]
    touched = np.minimum(-(-item.stops // cell) * cell, shape) - item.starts // cell * cell
    written = int(sizes(item.starts, item.stops).sum()) * item.itemsize
    return Outcome(
        chunks=int(
            np.prod([cells(each, new.chunks) for each in (item.stops - item.starts).tolist()], axis=1).sum()
        ),
        bytes_read=int(np.prod(touched, axis=1).sum()) * item.itemsize,
        bytes_written=written,
    )


def _said(shape: Sequence[int] | Mapping[str, int] | None) -> Any:
    """For the record."""
    if shape is None:
        return None
    if isinstance(shape, Mapping):
        return {str(dim): length for dim, length in shape.items()}
    return list(shape) if isinstance(shape, Sequence) else str(shape)
