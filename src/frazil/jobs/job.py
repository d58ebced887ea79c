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
import itertools
import json
import logging
import pickle
import random
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from frazil.changes.reads import NOTHING_READ, ReadSet, joined_reads
from frazil.errors import (
    ConflictError,
    ErrorKind,
    IcechunkError,
    InvalidInputError,
    RebaseFailedError,
    SessionStateError,
    StaleReadError,
    TaskFailedError,
)
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.metadata_items import MetadataColumn
from frazil.jobs.alignment import warn_of_misalignment
from frazil.jobs.bulk_commit import MANIFESTS_ON_EXECUTORS_ABOVE, Gathered, unloaded
from frazil.jobs.engine import Engine, EngineName, attempt, described
from frazil.jobs.engines import engine_of
from frazil.jobs.inputs import live_inputs, of_job, reads_of, require_current
from frazil.jobs.job_result import JobResult, Metrics
from frazil.jobs.pickles import dumps
from frazil.jobs.progress import Progress
from frazil.jobs.staging import Begun, Folder, Round, Staging, Unusable
from frazil.jobs.task_results import Outcome, Result, decode_result, encode_result
from frazil.jobs.unpicklable import unsendable
from frazil.jobs.versions import Input, Target, Version, address, digest
from frazil.repository.catalog.history import mentioning
from frazil.repository.clock import new_object_id
from frazil.repository.handle.interior import context_of
from frazil.repository.paths import absolute
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.interior import state_of
from frazil.repository.session.read_set import ReadTracker
from frazil.repository.session.session import ForkSession, Session
from frazil.repository.session.staged_work import STAGING, clean_up, place_of
from frazil.storage.traffic import TRAFFIC

_log = logging.getLogger(__name__)

#: Under this key of a commit's metadata is what is known of its job.
JOB: Final = "frazil_job"

#: So often a job is begun anew because what is staged cannot be used.
_BEGINNINGS: Final = 3
#: What a staged job may have lost: to a garbage collection, or to time.
_LOST: Final = {ErrorKind.GARBAGE_COLLECTED, ErrorKind.SESSION_EXPIRED}


@dataclass(frozen=True, slots=True)
class Tasks:
    """What there is to do. No two items may write to one chunk. ``shared`` goes to all of them. ``reads`` are
    paths of nodes from which the plan was made: as inputs are, they are compared before each commit.
    """

    items: Sequence[Any]
    shared: Any = None
    reads: tuple[str, ...] = ()


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
    and ``finish`` gets the values of the last. With more than ``manifests_on_executors_above`` references in
    a round the executors write the manifests (`frazil.jobs.bulk_commit`). ``inputs`` are compared before each
    commit (`frazil.jobs.inputs`); with ``track_reads`` so is all that is read through the job's session and
    its forks.
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
    phases: tuple[Phase, ...] = ()
    manifests_on_executors_above: int = MANIFESTS_ON_EXECUTORS_ABOVE
    track_reads: bool = False


def run_job(
    job: Job, engine: Engine | EngineName | None = None, *, progress: Progress | None = None
) -> JobResult:
    """Do what the job says, unless it was done, and commit it to the target's branch.

    With an engine that is ``resumable`` (all but ``Inline()``), what tasks did is staged in the target's
    storage until the commit: a second run of the same job does what is missing. See `frazil.jobs.staging`.

    Raises what ``prepare`` and ``finish`` raise, ``TaskFailedError`` if a task fails for good (its kind is
    that of the task's error, else ``task-failed`` or ``worker-lost``), ``RebaseFailedError`` if somebody else
    changed the same arrays meanwhile, ``StaleReadError`` if somebody changed
    its inputs on the branch that it writes to (see ``run_again_if_stale``),
    ``InvalidInputError`` if the job's id is given and is that of a job with other parameters, or what it says
    of itself is nothing for the metadata of a commit. Nothing is committed then.
    """
    started = time.monotonic()
    repo, branch = job.target.repo, job.target.branch
    _require_told(job)
    TRAFFIC.take_counts()
    for _ in range(_BEGINNINGS):
        seen = repo.lookup_branch(branch)
        id_, done = _known(job, seen)
        if done is not None:
            return _done(job.target, id_, done)
        engine = engine_of(engine)
        staging = None
        try:
            if getattr(engine, "resumable", False):
                staging = Staging(repo, branch, id_, job.name, _digest(job, inputs=True))
            session = repo.writable_session(branch) if staging is None else staging.session
            if job.track_reads:
                session.workspace.reads = ReadTracker()
            if (done := find_job(job.target, id_, session.snapshot_id, until=seen)) is not None:
                return _done(job.target, id_, done)  # another driver was at it
            with _given_up(session) if staging is None else nullcontext(), described(_label(job, id_)):
                return _run(job, id_, session, staging, engine, progress, started)
        except Begun:
            continue
        except Unusable as error:
            _log.warning("job %s: what is staged cannot be used and is thrown away: %s", id_, error)
        except RebaseFailedError:
            if staging is not None:
                staging.throw_away()  # it would fail again
            raise
        except SessionStateError as error:
            if staging is not None and error.kind == ErrorKind.MERGE_FAILED:
                staging.throw_away()
                raise
            if staging is None or not staging.resumed or error.kind not in _LOST:
                _keep_work(staging)
                raise
            _log.warning("job %s: what was staged is lost, and done again: %s", id_, error)
        except Exception as error:
            # Whoever is first takes away what both have staged.
            if staging is not None and (done := find_job(job.target, id_, until=seen)) is not None:
                _log.info("job %s: another driver has committed it, and this one met %s", id_, error)
                return _done(job.target, id_, done)
            _keep_work(staging)
            if isinstance(error, TaskFailedError):
                raise error.with_traceback(None) from error.__cause__  # frames of jobs say nothing of it
            raise
        if staging is None:
            clean_up(repo.storage, place_of(branch, id_))
        else:
            staging.throw_away()
    raise ConflictError(
        message=f"the job `{id_}` was begun {_BEGINNINGS} times, and what it had staged was each time of "
        "no use: is it run by others at the same time?"
    )


def _require_told(job: Job) -> None:
    """That its commit can say what it has to: better known before the work than after.

    Raises ``InvalidInputError`` (``bad-metadata``).
    """
    told = {**job.metadata, JOB: {"id": job.id, "name": job.name, "parameters": dict(job.parameters)}}
    MetadataColumn.of([told], job.target.repo.spec_version)
    if job.id is not None and not (isinstance(job.id, str) and job.id):
        raise InvalidInputError(f"job_id: expected text, found {job.id!r}", ErrorKind.BAD_METADATA)
    for name in ("name", "message"):
        text = getattr(job, name) or ""
        if not isinstance(text, str) or text.encode(errors="replace").decode() != text:
            raise InvalidInputError(
                f"{name}: expected text that UTF-8 can encode, found {text!r:.80}", ErrorKind.BAD_METADATA
            )


def _label(job: Job, id_: str) -> str:
    """A job in a few words, for the user interface of Spark."""
    read = list(dict.fromkeys(path for each in job.inputs for path in each.paths))
    paths = f"{_few(read)} -> " if read else ""
    return f"frazil {job.name} {paths}{_few(job.writes)} ({id_})"


def _few(paths: Sequence[str]) -> str:
    more = [f"and {len(paths) - _PATHS_SHOWN} more"] if len(paths) > _PATHS_SHOWN else []
    return " ".join([*paths[:_PATHS_SHOWN], *more])


_PATHS_SHOWN: Final = 3


@contextmanager
def _given_up(session: Session) -> Iterator[None]:
    """A failure is the end of a session: its lease is to hold nothing back."""
    try:
        yield
    except Exception:
        if (lease := state_of(session).lease) is not None:
            lease.give_back(session.workspace.context.storage)
        raise


def _keep_work(staging: Staging | None) -> None:
    """What is staged stays after a failure, if it is of any use: its lease holds back garbage collections."""
    if staging is not None and not staging.has_work():
        staging.clean_up()


def _done(target: Target, id_: str, snapshot: str) -> JobResult:
    clean_up(target.repo.storage, place_of(target.branch, id_))  # the run that committed may have died since
    return JobResult(id_, Version(target.repo, snapshot, target.branch), Metrics(), done_before=True)


def _run(
    job: Job,
    id_: str,
    session: Session,
    staging: Staging | None,
    engine: Engine,
    progress: Progress | None,
    started: float,
) -> JobResult:
    repo, branch = job.target.repo, job.target.branch
    inputs = live_inputs(job.inputs, job.target)
    tally = _Tally()
    rounds = _Rounds(session, staging, engine, progress, tally, job.manifests_on_executors_above)
    values = rounds.run(functools.partial(_prepared, job, inputs), job.work)
    for phase in job.phases:
        values = rounds.run(functools.partial(_with_values, phase, values), phase.work)
    if job.finish is not None:
        job.finish(session, values)
    metrics = tally.metrics(time.monotonic() - started)
    if not session.has_uncommitted_changes:
        version = Version(repo, session.snapshot_id, branch)
        if staging is not None:
            staging.throw_away()
        return JobResult(id_, version, metrics, done_before=True, values=tuple(values))
    message, metadata = job.message or job.name, {**job.metadata, JOB: lineage(job, id_, metrics)}
    reads = joined_reads([reads_of(inputs), rounds.reads])
    snapshot_id, by_us = _commit(job, reads, id_, session, message, metadata)
    if staging is not None:
        staging.clean_up()
    version = Version(repo, snapshot_id, branch)
    return JobResult(id_, version, metrics, done_before=not by_us, values=tuple(values))


def _prepared(job: Job, inputs: Sequence[Input], session: Session) -> Tasks:
    """The tasks, if the inputs are what the session has: others may have committed before it was opened."""
    tasks = job.prepare(session)
    require_current(job.name, inputs, session)
    warn_of_misalignment(session, job.writes)
    return tasks


def _with_values(phase: Phase, values: list[Any], session: Session) -> Tasks:
    return phase.prepare(session, values)


def _commit(
    job: Job, reads: ReadSet, id_: str, session: Session, message: str, metadata: dict[str, Any]
) -> tuple[str, bool]:
    """Commit, on top of what others have committed; the snapshot, and whether we made it.

    Each rebase compares what was read, and looks whether the same job came first, run by another driver.
    """
    target, base = job.target, session.snapshot_id
    for tries in itertools.count():
        try:
            return session.commit(message, metadata, rebase_with=ConflictDetector(), rebase_tries=0), True
        except ConflictError as error:
            if error.kind != ErrorKind.COMMIT_CONFLICT:
                raise
        time.sleep(random.uniform(0, min(2.0**tries * 0.01, 2.0)))
        try:
            session.rebase(ConflictDetector(), reads=[reads])
        except RebaseFailedError as error:
            done = find_job(target, id_, target.repo.lookup_branch(target.branch), until=base)
            if done is not None:
                return done, False
            if isinstance(error, StaleReadError):
                raise of_job(job.name, error) from error
            raise
        done = find_job(target, id_, session.snapshot_id, until=base)
        if done is not None:
            return done, False
    raise AssertionError("no end")


@dataclass(slots=True)
class _Rounds:
    """Rounds of tasks, each with forks of the session as it is."""

    session: Session
    staging: Staging | None
    engine: Engine
    progress: Progress | None
    tally: _Tally
    above: int
    number: int = 0
    reads: ReadSet = NOTHING_READ

    def run(self, prepare: Callable[[Session], Tasks], work: Work) -> list[Any]:
        """Do all items that ``prepare`` gives and merge what they changed; their values."""
        session, staging = self.session, self.staging
        generation = state_of(session).generation
        tasks = prepare(session)
        if not isinstance(tasks, Tasks):
            raise InvalidInputError(
                f"`prepare` has to return Tasks, found {type(tasks).__name__}", ErrorKind.NOT_ALLOWED
            )
        plan = ReadSet(trees=frozenset(map(absolute, tasks.reads)))
        self.reads = joined_reads([self.reads, plan])
        items = [_sent(item, f"item {number}") for number, item in enumerate(tasks.items)]
        self.tally.tasks += len(items)
        if self.progress is not None:
            self.progress.expect(len(items))
        results: list[Result | None] = [None] * len(items)
        place = None
        if staging is not None:
            if state_of(session).generation != generation:
                raise SessionStateError(
                    "`prepare` forked its session: then a job cannot be resumed. Run it with an engine "
                    "that is not `resumable`, or write with the session itself",
                    ErrorKind.NOT_ALLOWED,
                )
            place = staging.round(self.number, session, items)
        self.number += 1
        base = session.fork()
        # A run that goes on from here may need what is in there, until the commit.
        bulk = Folder(session.workspace.context.storage, f"{STAGING}/{id_to_text(new_object_id())}")
        if place is not None:
            bulk = place.folder.below("references")
        gathered = Gathered(session, base, bulk.key, self.above, keeps=place is not None)
        if place is not None:
            for number, result in place.results(work.__module__):
                if number < len(items):
                    results[number] = gathered.add(result)
                    self._done(result)
        missing = [number for number, result in enumerate(results) if result is None]
        parts = {"work": work, "shared": tasks.shared}
        everything = (base, work, tasks.shared, place, bulk.key)
        shared = _sent(everything, "the work, or what it shares,", parts)
        messages = [_NUMBER.pack(number) + items[number] for number in missing]
        for number, data in zip(missing, self.engine.run(run_task, messages, shared), strict=True):
            results[number] = result = gathered.add(decode_result(data))
            self.tally.returned += len(data)
            self._done(result)
        whole = [result for result in results if result is not None]
        gathered.finish(self.engine)
        return [result.outcome.value for result in whole]

    def _done(self, result: Result) -> None:
        self.tally.add(result)
        outcome = result.outcome
        if self.progress is not None:
            self.progress.advance(
                rows=outcome.rows,
                chunks=outcome.chunks,
                bytes=outcome.bytes_written,
                resumed=result.staged,
            )


_NUMBER: Final = struct.Struct("<Q")


def _sent(value: Any, name: str, parts: Any = None) -> bytes:
    try:
        data = dumps(value)
    except IcechunkError:
        raise  # it says why, as a session with changes does
    except Exception as error:
        raise unsendable(name, parts or value, dumps, error) from error
    return data


def run_task(shared: bytes, message: bytes) -> bytes:
    """The task: one item, with a fork of its own."""
    started = time.perf_counter()
    base, work, common, place, bulk = _unpacked(shared)
    (number,) = _NUMBER.unpack_from(message)
    # A retry may be for the sake of another task in the same partition, or of a result that got lost.
    if attempt() and place is not None and (known := place.get(number, work.__module__)) is not None:
        return known
    fork = base.fork()  # not `base`: this process keeps it for the next task
    outcome = work(fork, common, pickle.loads(message[_NUMBER.size :]))
    if not isinstance(outcome, Outcome):
        raise TypeError(f"the work of a job has to return an Outcome, found {type(outcome).__name__}")
    fork.workspace.writer.flush()  # nothing may refer to chunks that are not durable
    seconds = round(time.perf_counter() - started, 6)
    state = state_of(fork)
    changes, segments = unloaded(fork, bulk)
    told = state.ends(), attempt(), seconds, TRAFFIC.take_counts()
    tracker = fork.workspace.reads
    reads = NOTHING_READ if tracker is None else tracker.reads()
    result = encode_result(Result(changes, outcome, *told, segments=segments, reads=reads))
    if place is not None:
        place.put(number, result)
    return result


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[ForkSession, Work, Any, Round | None, str]:
    """Once in each process: snapshot and node table are read once, not for each task."""
    base: tuple[ForkSession, Work, Any, Round | None, str] = pickle.loads(shared)
    return base


@dataclass(slots=True)
class _Tally:
    """What is known of the tasks so far."""

    tasks: int = 0
    returned: int = 0
    results: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0

    def add(self, result: Result) -> None:
        outcome, stored = result.outcome, result.stored
        self.longest = max(self.longest, result.seconds)
        self.totals.update(
            retries=result.retries,
            resumed=int(result.staged),
            rows=outcome.rows,
            chunks=outcome.chunks,
            bytes_read=outcome.bytes_read,
            bytes_written=outcome.bytes_written,
            requests=stored.requests,
            stored_bytes_read=stored.bytes_read,
            stored_bytes_written=stored.bytes_written,
        )
        self.totals["task_microseconds"] += round(result.seconds * 1e6)

    def metrics(self, seconds: float) -> Metrics:
        """All of it, and what the driver itself has asked of storages."""
        own, totals = TRAFFIC.take_counts(), dict(self.totals)
        task_seconds = totals.pop("task_microseconds", 0) / 1e6
        totals["requests"] = totals.get("requests", 0) + own.requests
        totals["stored_bytes_read"] = totals.get("stored_bytes_read", 0) + own.bytes_read
        totals["stored_bytes_written"] = totals.get("stored_bytes_written", 0) + own.bytes_written
        return Metrics(
            tasks=self.tasks,
            returned=self.returned,
            seconds=round(seconds, 3),
            task_seconds=round(task_seconds, 3),
            longest_task_seconds=round(self.longest, 3),
            **totals,
        )


# Ids and lineage


def lineage(job: Job, id_: str, metrics: Metrics) -> dict[str, Any]:
    """What the metadata of the commit say of the job."""
    return {
        "id": id_,
        "name": job.name,
        "parameters": dict(job.parameters),
        "inputs": [each.as_json() for each in job.inputs],
        "outputs": list(job.writes),
        "work": _digest(job),
        "metrics": {name: getattr(metrics, name) for name in Metrics.__slots__},
    }


def derived_id(job: Job, *salt: str) -> str:
    """A hash of all that decides the result of a job."""
    said = [_digest(job, inputs=True), address(job.target.repo.storage), job.target.branch, salt]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:24]


def _digest(job: Job, *, inputs: bool = False) -> str:
    """A hash of what the job does, and of what it reads where that is asked for."""
    said = {
        "name": job.name,
        "parameters": job.parameters,
        "group": job.target.group,
        "writes": job.writes,
        "inputs": [(each.repository, each.paths, each.digest) for each in job.inputs] if inputs else [],
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:24]


def find_job(target: Target, id_: str, tip: str | None = None, *, until: str | None = None) -> str | None:
    """The snapshot that a job made, if that is in the history of the branch, or of ``tip``; only those after
    ``until`` are looked at, if that is given.
    """
    tip = tip or target.repo.lookup_branch(target.branch)
    found = _find(target, tip, id_, lambda told: told.get("id") == id_, until)
    return None if found is None else found[0]


def _find(
    target: Target, tip: str, text: str, wanted: Callable[[dict[str, Any]], bool], until: str | None = None
) -> tuple[str, dict[str, Any]] | None:
    """The newest snapshot with a job like that, and what is told of it, where ``text`` is.

    Only the metadata with this text are decoded: the history of a job that runs each hour is long.
    """
    info = context_of(target.repo).catalog.repo_info()
    end = None if until is None else id_from_text(until)
    for entry in mentioning(info, id_from_text(tip), JOB, text, until=end):
        told = entry.metadata.get(JOB)
        if isinstance(told, dict) and wanted(told):
            return id_to_text(entry.id), told
    return None


def _known(job: Job, tip: str) -> tuple[str, str | None]:
    """The id of a job, and the snapshot that it made if it is in the history of ``tip``."""
    if job.id is not None:
        found = _find(job.target, tip, job.id, lambda told: told.get("id") == job.id)
        if found is None:
            return job.id, None
        if found[1].get("work", _digest(job)) != _digest(job):
            raise InvalidInputError(
                f"the job `{job.id}` was done, and committed as {found[0]}, with another name or other "
                "parameters: an id is for one job",
                ErrorKind.NOT_ALLOWED,
            )
        return job.id, found[0]
    repo = job.target.repo
    id_ = derived_id(job)
    # Done again it has a longer name: that of the state that it was done again for.
    found = _find(job.target, tip, id_, lambda told: str(told.get("id")).partition("-")[0] == id_)
    if found is None:
        return id_, None
    now = digest(repo.readonly_session(snapshot_id=tip), job.writes)
    if now == digest(repo.readonly_session(snapshot_id=found[0]), job.writes):
        return found[1]["id"], found[0]
    return f"{id_}-{now[:8]}", None
