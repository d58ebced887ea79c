"""A job: plan on the driver, work on the executors, commit once.

    prepare    driver: metadata of what will be written, and the items of work
    work       executors: one call for each item, with a fork of its own; any number of times
    phases     prepare and work again, with what was merged: for what does not fit in one round
    finish     driver: what needs the values of all items (coordinates, combined partial results)
    commit     driver: one version, with what was read and how in its metadata (lineage)

A job has an id: one that the user gives, or a hash of its name, its parameters, the digests of its inputs
and its target. A commit carries the id of its job, so that a job that was done already is found by it and not
done again:

    given      the commit is in the history of the branch: done
    derived    and what it wrote is still as it left it, else the job is done again under another id

Operations (`frazil.spark.rechunk`, ``ingest``, ...) are functions that make a ``Job`` and run it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.cloudpickle import dumps  # plain pickle cannot send what a notebook defines

from frazil.format.ids import id_to_text
from frazil.repository.clock import new_object_id
from frazil.repository.conflicts import ConflictDetector
from frazil.repository.session import ForkSession, Session
from frazil.spark.bulk import MANIFESTS_ON_EXECUTORS_ABOVE, Gathered, pack
from frazil.spark.engine import Engine, OnSpark
from frazil.spark.progress import Progress
from frazil.spark.session import get_spark
from frazil.spark.versions import Input, Target, Version, address, digest

#: Under this key of a commit's metadata is what is known of its job.
JOB: Final = "frazil_job"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call of ``work`` did, beside the changes in its fork.

    ``value`` is for ``finish``: small, anything that can be pickled. ``bytes_written`` before compression.
    """

    value: Any = None
    rows: int = 0
    chunks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class Tasks:
    """What there is to do. No two items may write to one chunk. ``shared`` goes to all of them."""

    items: Sequence[Any]
    shared: Any = None


#: ``(fork, shared, item) -> Outcome``: runs on an executor, perhaps more than once.
type Work = Callable[[ForkSession, Any, Any], Outcome]


@dataclass(frozen=True, slots=True)
class Phase:
    """One more round of work. Its session and its forks see all that was merged before; ``prepare`` also
    gets the values of the round before, and may delete what only that round needed in ``finish``.
    """

    prepare: Callable[[Session, list[Any]], Tasks]
    work: Work


@dataclass(frozen=True, slots=True)
class Job:
    """See the module. ``writes`` are the paths that it creates or changes; ``phases`` come after ``work``,
    and ``finish`` gets the values of the last.
    """

    name: str
    target: Target
    prepare: Callable[[Session], Tasks]
    work: Work
    finish: Callable[[Session, list[Any]], None] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    writes: tuple[str, ...] = ("/",)
    message: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    manifests_on_executors_above: int = MANIFESTS_ON_EXECUTORS_ABOVE
    phases: tuple[Phase, ...] = ()


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a job took. Bytes of values, before compression; ``returned`` is what the tasks sent back."""

    tasks: int = 0
    retries: int = 0
    rows: int = 0
    chunks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    requests: int = 0
    returned: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class JobResult:
    """What became of a job. ``done_before`` says that there was nothing left to do."""

    id: str
    version: Version
    metrics: Metrics
    done_before: bool = False
    values: tuple[Any, ...] = ()

    @property
    def snapshot_id(self) -> str:
        return self.version.snapshot_id


def default_engine() -> Engine:
    """The active Spark session, or a local one."""
    return OnSpark(get_spark())


def run_job(job: Job, engine: Engine | None = None, *, progress: Progress | None = None) -> JobResult:
    """Do what the job says, unless it was done, and commit it to the target's branch.

    Raises what ``prepare`` and ``finish`` raise, ``IcechunkError`` (``concurrency``) if a task fails for
    good, ``RebaseFailedError`` if somebody else changed the same arrays meanwhile. Nothing is committed then.
    """
    started = time.monotonic()
    id_, done = _known(job)
    repo, branch = job.target.repo, job.target.branch
    if done is not None:
        return JobResult(id_, Version(repo, done, branch), Metrics(), done_before=True)
    engine = engine or default_engine()
    session = repo.writable_session(branch)
    above = job.manifests_on_executors_above
    values, metrics = _round(session, job.prepare(session), job.work, engine, progress, Metrics(), above)
    for phase in job.phases:
        tasks = phase.prepare(session, values)
        values, metrics = _round(session, tasks, phase.work, engine, progress, metrics, above)
    if job.finish is not None:
        job.finish(session, values)
    if not session.has_uncommitted_changes:
        version = Version(repo, session.snapshot_id, branch)
        return JobResult(id_, version, metrics, done_before=True, values=tuple(values))
    metrics = replace(metrics, seconds=round(time.monotonic() - started, 3))
    snapshot_id = session.commit(
        job.message or job.name,
        {**job.metadata, JOB: lineage(job, id_, metrics)},
        rebase_with=ConflictDetector(),
    )
    return JobResult(id_, Version(repo, snapshot_id, branch), metrics, values=tuple(values))


def _round(
    session: Session,
    tasks: Tasks,
    work: Work,
    engine: Engine,
    progress: Progress | None,
    metrics: Metrics,
    above: int,
) -> tuple[list[Any], Metrics]:
    """Do all items and merge what they changed; their values."""
    base = session.fork()
    gathered = Gathered(session, base, f"staging/{id_to_text(new_object_id())}", above)
    shared = dumps((base, work, tasks.shared, gathered.place))  # type: ignore[no-untyped-call]
    values: list[Any] = []
    metrics = replace(metrics, tasks=metrics.tasks + len(tasks.items))
    for result in engine.run(run_task, list(map(dumps, tasks.items)), shared):
        changes, outcome = pickle.loads(result)
        gathered.add(changes)
        values.append(outcome.value)
        metrics = _added(metrics, outcome, len(result))
        if progress is not None:
            progress.advance(rows=outcome.rows, chunks=outcome.chunks, bytes=outcome.bytes_written)
    gathered.finish(engine)
    return values, metrics


def run_task(shared: bytes, task: bytes) -> bytes:
    """The task: one item, with a fork of its own."""
    base, work, common, place = _unpacked(shared)
    fork = base.fork()  # not `base`: this process keeps it for the next task
    outcome = work(fork, common, pickle.loads(task))
    return pickle.dumps((pack(fork, place), outcome))


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[ForkSession, Work, Any, str]:
    """Once in each process: snapshot and node table are read once, not for each task."""
    base: tuple[ForkSession, Work, Any, str] = pickle.loads(shared)
    return base


def _added(metrics: Metrics, outcome: Outcome, returned: int) -> Metrics:
    return replace(
        metrics,
        rows=metrics.rows + outcome.rows,
        chunks=metrics.chunks + outcome.chunks,
        bytes_read=metrics.bytes_read + outcome.bytes_read,
        bytes_written=metrics.bytes_written + outcome.bytes_written,
        returned=metrics.returned + returned,
    )


# Ids and lineage


def lineage(job: Job, id_: str, metrics: Metrics) -> dict[str, Any]:
    """What the metadata of the commit say of the job."""
    return {
        "id": id_,
        "name": job.name,
        "parameters": dict(job.parameters),
        "inputs": [each.as_json() for each in job.inputs],
        "metrics": {name: getattr(metrics, name) for name in Metrics.__slots__},
    }


def derived_id(job: Job, *salt: str) -> str:
    """A hash of all that decides the result of a job."""
    target = job.target
    said = {
        "name": job.name,
        "parameters": job.parameters,
        "inputs": [(each.repository, each.paths, each.digest) for each in job.inputs],
        "target": (address(target.repo.storage), target.branch, target.group),
        "salt": salt,
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:24]


def find_job(target: Target, id_: str) -> str | None:
    """The snapshot that a job made, if that is in the history of the branch."""
    for info in target.repo.ancestry(branch=target.branch):
        told = info.metadata.get(JOB)
        if isinstance(told, dict) and told.get("id") == id_:
            return info.id
    return None


def _known(job: Job) -> tuple[str, str | None]:
    """The id of a job, and the snapshot that it made if it is done."""
    if job.id is not None:
        return job.id, find_job(job.target, job.id)
    repo, branch = job.target.repo, job.target.branch
    id_ = derived_id(job)
    done = find_job(job.target, id_)
    if done is None:
        return id_, None
    now = repo.readonly_session(branch)
    if digest(now, job.writes) == digest(repo.readonly_session(snapshot_id=done), job.writes):
        return id_, done
    return derived_id(job, now.snapshot_id), None
