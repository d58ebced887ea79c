"""The run of a job: rounds of tasks, and one commit.

    rounds     prepare on the driver, work on the executors (`frazil.jobs.task_rounds`)
    finish     driver: writes results that need the values of all items
    commit     driver: one version, with its inputs and metrics in the metadata (lineage)

The commit carries the id of the job (`frazil.jobs.job_identity`). A job whose commit exists does not run
again (`frazil.jobs.job_history`).
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil import host
from frazil.arguments import require_progress
from frazil.changes.reads import ReadSet, joined_reads
from frazil.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    JobRestartError,
    RebaseFailedError,
    SessionStateError,
    StaleReadError,
    TaskFailedError,
)
from frazil.jobs.alignment import warn_of_misalignment
from frazil.jobs.engine import Engine, EngineName, described, is_resumable
from frazil.jobs.engines import engine_of
from frazil.jobs.inputs import live_inputs, of_job, reads_of, require_current
from frazil.jobs.job import Job, Phase, Tasks
from frazil.jobs.job_history import JobStart, find_job, first_driver_note, job_state
from frazil.jobs.job_identity import commit_metadata, label, require_recordable, work_digest
from frazil.jobs.job_result import JobResult, Metrics
from frazil.jobs.progress import Progress
from frazil.jobs.run_options import RunOptions
from frazil.jobs.staging import Staging
from frazil.jobs.task_rounds import Rounds
from frazil.jobs.task_tally import Tally
from frazil.jobs.versions import Input, Target, Version
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.interior import state_of
from frazil.repository.session.read_tracker import ReadTracker
from frazil.repository.session.session import Session
from frazil.repository.session.staged_work import clean_up, place_of
from frazil.storage.traffic import TRAFFIC

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 2.0

#: The number of starts of a job if its staged results are unusable.
_STARTS: Final = 3
#: Errors of lost staged results, which were collected or have expired: the job starts again.
_LOST: Final = {ErrorKind.GARBAGE_COLLECTED, ErrorKind.SESSION_EXPIRED}


def run_job(
    job: Job, engine: Engine | EngineName | None = None, *, progress: Progress | None = None
) -> JobResult:
    """Run a job, and commit its result to the branch of its target, unless its commit already exists.

    With an engine that is ``resumable`` (all engines except ``Inline()``), the results of tasks are staged in
    the storage of the target until the commit. A second run of the same job then runs only the missing tasks.
    If a job fails, nothing is committed.

    Args:
        job: The `Job`.
        engine: The engine that runs the tasks: an `Engine`, or "inline", "local", "spark". None:
            `default_engine()`.
        progress: A `Progress` that shows the tasks.

    Returns:
        The `JobResult` with the new version, or with the version of the existing commit.

    Raises:
        TaskFailedError: If a task fails in all its attempts. The kind is that of the error of the task, or
            ``task-failed`` or ``worker-lost``.
        RebaseFailedError: If another session changed the same arrays during the job.
        StaleReadError: If another session changed the inputs on the branch of the target (see
            `run_again_if_stale`).
        ConflictError: If staged results are unusable several times, because another driver runs the same job.
        InvalidInputError: ``conflicting-arguments`` if the id belongs to a job with other parameters,
            ``bad-metadata`` if the metadata of a commit cannot hold the record of the job.
        Exception: Any error of ``prepare`` and ``finish``.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import Job, Target, Tasks, run_job
        >>> def prepare(session):
        ...     _ = zarr.create_group(session.store, path="results")
        ...     return Tasks([])
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> job = Job("make a group", Target(repo), prepare, work=print, id="job-1")
        >>> run_job(job, "inline").done_before, run_job(job, "inline").done_before
        (False, True)
    """
    started = host.monotonic_seconds()
    require_progress(progress, "expect", "advance")
    require_recordable(job)
    TRAFFIC.take_counts()
    reason = ""
    for _ in range(_STARTS):
        try:
            return _start(job, engine, progress, started)
        except JobRestartError as error:
            reason = str(error)
    raise ConflictError(
        message=f"the job `{job.id or job.name}` started {_STARTS} times, but its staged results were not "
        f"usable. The last reason: {reason}. Check whether another driver runs the same job"
    )


def run_with_options(job: Job, options: RunOptions) -> JobResult:
    """Run the job of an operation with the run options of the caller."""
    job = replace(job, id=options.get("job_id"), message=options.get("message"))
    return run_job(job, options.get("engine"), progress=options.get("progress"))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a job, and the state of the branch at that moment."""

    job: Job
    id: str
    start: JobStart
    engine: Engine
    progress: Progress | None
    started: float


def _start(
    job: Job, engine: Engine | EngineName | None, progress: Progress | None, started: float
) -> JobResult:
    target = job.target
    start = JobStart.of(target)
    state = job_state(job, start.tip)
    if state.snapshot_id is not None:
        return _earlier_result(target, state.id, state.snapshot_id)
    attempt = Attempt(job, state.id, start, engine_of(engine), progress, started)
    staging: Staging | None = None
    if is_resumable(attempt.engine):
        digest = work_digest(job, inputs=True)
        staging = Staging.open(target.repo, target.branch, attempt.id, job.name, digest)
    try:
        return _run(attempt, staging)
    except JobRestartError:
        raise
    except Exception as error:
        other = None if staging is None else _after_failure(attempt, staging, error)
        if other is not None:
            return _earlier_result(target, attempt.id, other)
        if isinstance(error, TaskFailedError):
            raise error.with_traceback(None) from error.__cause__  # without frames of the job machinery
        raise


def _earlier_result(target: Target, id_: str, snapshot_id: str) -> JobResult:
    """Return the result of a job that another run has committed, and clean up after that run."""
    clean_up(target.repo.storage, place_of(target.branch, id_))
    return JobResult(id_, Version(target.repo, snapshot_id, target.branch), Metrics(), done_before=True)


def _after_failure(attempt: Attempt, staging: Staging, error: Exception) -> str | None:
    """Return the snapshot of another driver, or None if the caller must raise the error.

    Staged results stay, unless another run would fail in the same way. If there are none, their lease is
    removed, because it delays garbage collections.
    """
    state_kind = error.kind if isinstance(error, SessionStateError) else None
    if isinstance(error, RebaseFailedError) or state_kind == ErrorKind.MERGE_FAILED:
        staging.discard()
        return None
    if staging.resumed and state_kind in _LOST:
        _log.warning("job %s: its staged results are lost, its tasks run again: %s", attempt.id, error)
        staging.discard()
        raise JobRestartError(str(error))
    if state_kind is None:
        # The driver that commits first deletes the staged results, and other drivers fail.
        snapshot_id = find_job(attempt.job.target, attempt.id, attempt.start)
        if snapshot_id is not None:
            _log.info("job %s: another driver has committed it; the error here: %s", attempt.id, error)
            return snapshot_id
    if not staging.has_results():
        staging.clean_up()
    return None


def _run(attempt: Attempt, staging: Staging | None) -> JobResult:
    job, target = attempt.job, attempt.job.target
    session = target.repo.writable_session(target.branch) if staging is None else staging.session
    if job.track_reads:
        session.workspace.reads = ReadTracker()
    other = find_job(target, attempt.id, attempt.start, session.snapshot_id)
    if other is not None:
        return _earlier_result(target, attempt.id, other)
    lease = _lease_until_end(session) if staging is None else nullcontext()
    with lease, described(label(job, attempt.id)):
        inputs = live_inputs(job.inputs, target)
        tally = Tally()
        rounds = Rounds(
            session, staging, attempt.engine, attempt.progress, tally, job.manifests_on_executors_above
        )
        values = rounds.run(functools.partial(_prepare_job, job, inputs), job.work)
        for phase in job.phases:
            values = rounds.run(functools.partial(_prepare_phase, phase, values), phase.work)
        if job.finish is not None:
            job.finish(session, values)
        metrics = tally.metrics(host.monotonic_seconds() - attempt.started)
        if session.has_uncommitted_changes:
            reads = joined_reads([reads_of(inputs), rounds.reads])
            snapshot_id, is_own = commit_job(attempt, session, metrics, reads)
            if staging is not None:
                staging.clean_up()
        else:
            snapshot_id, is_own = session.snapshot_id, False
            if staging is not None:
                staging.discard()
        version = Version(target.repo, snapshot_id, target.branch)
        return JobResult(attempt.id, version, metrics, done_before=not is_own, values=tuple(values))


def commit_job(attempt: Attempt, session: Session, metrics: Metrics, reads: ReadSet) -> tuple[str, bool]:
    """Commit the session, and rebase it as often as other sessions commit first.

    Each rebase checks the reads of the job, and whether another driver has committed the job. The update of
    the commit checks the latter again, because a reset may bring the branch back to the same tip. Returns the
    snapshot, and whether this run committed it.
    """
    job = attempt.job
    start = replace(attempt.start, tip=session.snapshot_id)
    metadata = commit_metadata(job, attempt.id, metrics)
    state_of(session).note = first_driver_note(attempt.id, work_digest(job), job.target, start)
    for tries in itertools.count():
        try:
            snapshot_id = session.commit(
                job.message or job.name, metadata, rebase_with=ConflictDetector(), rebase_tries=0
            )
            return snapshot_id, True
        except ConflictError as error:
            if error.kind != ErrorKind.COMMIT_CONFLICT:
                raise
        host.pause(host.random_between(0, min(2.0**tries * _FIRST_PAUSE_S, _LONGEST_PAUSE_S)))
        other = _rebase(attempt, session, start, reads)
        if other is not None:
            return other, False
    raise AssertionError("no end")


def _rebase(attempt: Attempt, session: Session, start: JobStart, reads: ReadSet) -> str | None:
    """Rebase the session. Return the snapshot if another driver has committed the same job, else None."""
    target = attempt.job.target
    try:
        session.rebase(ConflictDetector(), reads=[reads])
    except RebaseFailedError as error:
        other = find_job(target, attempt.id, start)
        if other is not None:
            return other
        if isinstance(error, StaleReadError):
            raise of_job(attempt.job.name, error) from error
        raise
    return find_job(target, attempt.id, start, session.snapshot_id)


@contextmanager
def _lease_until_end(session: Session) -> Iterator[None]:
    """Remove the lease of the session if the job ends without a commit: it delays garbage collections."""
    try:
        yield
    finally:
        lease = state_of(session).lease
        if lease is not None and not session.read_only:  # a commit makes the session read-only
            lease.give_back(session.workspace.context.storage)


def _prepare_job(job: Job, inputs: Sequence[Input], session: Session) -> Tasks:
    """Return the tasks. Checks the inputs, because other sessions may have committed before this session."""
    tasks = job.prepare(session)
    require_current(job.name, inputs, session)
    warn_of_misalignment(session, job.writes)
    return _require_tasks(tasks)


def _prepare_phase(phase: Phase, values: list[Any], session: Session) -> Tasks:
    return _require_tasks(phase.prepare(session, values))


def _require_tasks(tasks: Any) -> Tasks:
    if not isinstance(tasks, Tasks):
        raise InvalidInputError(
            f"`prepare` must return Tasks, got {type(tasks).__name__}", ErrorKind.INVALID_ARGUMENT
        )
    return tasks
