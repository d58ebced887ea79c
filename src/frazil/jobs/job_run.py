"""The run of a job: rounds of tasks, and one commit with its inputs and metrics in the metadata.

Inputs on the branch that the job writes to are checked before each commit, by transaction logs: a change
raises ``StaleReadError``. Inputs elsewhere are fixed: the commit records the version.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from frazil import errors, host
from frazil.about import PACKAGE_FOLDER
from frazil.arguments import conflicting, require_progress
from frazil.arrays.array import Array
from frazil.changes.reads import ReadSet, ReadTracker, joined_reads
from frazil.format.columns import distinct_rows, unshared
from frazil.format.ids import INITIAL_SNAPSHOT_ID, id_from_text, is_id_text
from frazil.format.nodes import NodeTable
from frazil.handle.repository import context_of
from frazil.jobs import job_history
from frazil.jobs.engine import Engine, EngineName, described, engine_of
from frazil.jobs.events import Run, run_events
from frazil.jobs.job import Input, Job, JobResult, Metrics, RunOptions, Target, Tasks, Version
from frazil.jobs.progress import Progress
from frazil.jobs.staging import Staging
from frazil.jobs.task_rounds import Rounds
from frazil.repository.catalog.collection_guard import clean_up, place_of
from frazil.repository.catalog.files_v1 import RefKind, ref_key
from frazil.repository.paths import absolute
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.rebase import require_unchanged
from frazil.repository.session.session import Session, state_of
from frazil.storage.base import storage_label
from frazil.storage.checks import TRAFFIC


def warn_of_misalignment(session: Session, writes: Sequence[str]) -> None:
    """Warn of the first group in ``writes`` that xarray cannot open as a tree with its parent groups."""
    nodes = session.workspace.node_table()
    numbers, outputs = np.arange(len(nodes)), set[str]()
    for path in ("/" + path.strip("/") for path in writes):
        row = nodes.find_node(path)
        outputs.add(path if row >= 0 and not nodes.is_array[row] else path.rpartition("/")[0] or "/")
    below = np.concatenate([numbers[:0], *(numbers[nodes.below(group)] for group in outputs)])
    groups = outputs.union(nodes.paths.take(below[~nodes.is_array[below]]).texts())
    sizes_of = functools.cache(functools.partial(_dimension_sizes, nodes))
    for group in sorted(groups):
        names = [name for name in group.split("/") if name]
        sizes = sizes_of(group)
        for depth in range(len(names)) if sizes else ():
            above = "/" + "/".join(names[:depth])
            if group not in outputs and above not in outputs:
                continue  # the job changes neither group
            common = sizes_of(above)
            for dim in sorted(sizes.keys() & common.keys()):
                differ = f"{dim} = {sizes[dim]} and {dim} = {common[dim]}"
                if sizes[dim] == common[dim]:
                    if not _have_other_labels(session, group, above, dim):
                        continue
                    differ = f"{differ} with other labels"
                message = (
                    "xarray.open_datatree cannot open the result of this job: dimensions of the group "
                    f"`{group}` must be those of its parent group `{above}`, got {differ}. Store the data "
                    "in another group, such as `/data`, and write results to other groups, or write "
                    "them to another branch or repository"
                )
                warnings.warn(message, errors.MisalignedGroupWarning, skip_file_prefixes=(PACKAGE_FOLDER,))
                return


def _dimension_sizes(nodes: NodeTable, group: str) -> dict[str, int]:
    """Return the sizes of the dimensions of the arrays directly in a group; of equal names, the last size."""
    below = nodes.below(group)
    paths = nodes.paths.take(np.arange(len(nodes))[below]).compact()
    slashes = np.concatenate([[0], np.cumsum(paths.values == ord("/"), dtype=np.int64)])
    depths = slashes[paths.starts + paths.lengths] - slashes[paths.starts]
    is_direct = depths == (group.count("/") + 1 if group != "/" else 1)
    rows = np.arange(len(nodes))[below][is_direct & nodes.is_array[below] & nodes.named[below]]
    name_rows = nodes.dim_rows.take(rows).compact().values
    sizes = nodes.array_length.take(rows).compact().values[name_rows >= 0]
    # Equal names share rows in a file.
    used_rows, position = np.unique(name_rows[name_rows >= 0], return_inverse=True)
    texts, numbers = distinct_rows(unshared(nodes.dim_names.take(used_rows), "dimension names"))
    distinct, first_reversed = np.unique(numbers[position][::-1], return_index=True)
    last = len(sizes) - 1 - first_reversed
    return dict(zip(texts.take(distinct).texts(), sizes[last].tolist(), strict=True))


def _have_other_labels(session: Session, group: str, above: str, dim: str) -> bool:
    """Return whether two coordinates with the same length and units have different values.

    Returns False if tasks have not written a coordinate yet, and if the job tracks its reads, because the
    check would add reads.
    """
    if session.workspace.reads is not None:
        return False
    nodes, pairs = session.workspace.node_table(), []
    for path in (f"{each.rstrip('/')}/{dim}" for each in (group, above)):
        row = nodes.find_node(path)
        node = nodes.node(row) if row >= 0 else None
        if node is None or node.array is None or node.array.dimension_names != (dim,):
            return False
        if len(session.chunk_table(path)) != node.array.num_chunks[0]:
            return False
        attributes = json.loads(node.user_data).get("attributes") or {}
        pairs.append(
            (np.asarray(Array(session, path)[...]), (attributes.get("units"), attributes.get("calendar")))
        )
    (one, units), (other, other_units) = pairs
    if units != other_units or one.dtype.kind != other.dtype.kind:
        return False
    return not np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


_ATTEMPTS: Final = 3


def live_inputs(inputs: Sequence[Input], target: Target) -> list[Input]:
    """Return the inputs that are on the branch of the target.

    The address of a storage is not enough to find them: one storage has several addresses (other credentials,
    a symbolic link, another endpoint), and all repositories in memory have the same address. But a snapshot
    is only in one repository and its copies, except the empty first snapshot, which all have.
    """
    named = [each for each in inputs if each.branch == target.branch]
    place = storage_label(target.repo.storage)
    if not named or (place != "in-memory" and all(each.repository == place for each in named)):
        return named
    snapshots = context_of(target.repo).catalog.repo_info().snapshots
    live = []
    for each in named:
        is_here = each.repository == place != "in-memory"
        if not is_here and is_id_text(each.snapshot.upper()):  # else it is not a version of a repository
            id_ = id_from_text(each.snapshot)
            is_here = id_ != INITIAL_SNAPSHOT_ID and snapshots.find_snapshot(id_) >= 0
        if is_here:
            live.append(each)
    return live


def reads_of(inputs: Sequence[Input]) -> ReadSet:
    """Return the inputs as a set of reads, for the check."""
    return ReadSet(trees=frozenset(absolute(path) for each in inputs for path in each.paths))


def of_job(name: str, error: errors.StaleReadError) -> errors.StaleReadError:
    """Return the error with a message for the user of the job ``name``."""
    details = "; ".join(map(str, error.reads))
    return errors.StaleReadError(
        error.snapshot,
        error.reads,
        f"another session changed inputs that the job `{name}` has read, first in snapshot {error.snapshot}: "
        f"{details}. Nothing was committed",
    ).with_remedy(
        "Run the job again with the new version. To read an older version on purpose, name it by its id: "
        "`Version.of(repo, snapshot_id=...)`",
        shell="Run the command again",
    )


def run_again_if_stale[R](run: Callable[[], R], attempts: int = _ATTEMPTS) -> R:
    """Call a function, and call it again while it raises ``StaleReadError``.

    Args:
        run: A function without arguments that calls an operation, or makes a job and runs it. Each call reads
            the present version of its inputs.
        attempts: The largest number of calls. Default: 3.

    Returns:
        The result of ``run``.

    Raises:
        InvalidInputError: ``invalid-argument`` if ``attempts`` is less than 1.
        StaleReadError: If the last call raises it.

    Examples:
        >>> import frazil, numpy, zarr
        >>> from frazil.pipeline import mean, run_again_if_stale
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="data") as store:
        ...     t = zarr.create_array(store, name="t", data=numpy.arange(4.0), dimension_names=["x"])
        >>> result = run_again_if_stale(lambda: mean(repo, "t", "x", engine="inline"))
        >>> float(zarr.open_array(result.version.session().store, path="mean/t")[()])
        1.5
    """
    if attempts < 1:
        raise errors.InvalidInputError(f"attempts must be at least 1, got {attempts}")
    for _ in range(attempts - 1):
        try:
            return run()
        except errors.StaleReadError:
            continue
    return run()


_log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 2.0

#: The number of starts of a job if its staged results are unusable.
_STARTS: Final = 3
#: Errors of lost staged results, which were collected or have expired: the job starts again.
_LOST: Final = {errors.ErrorKind.GARBAGE_COLLECTED, errors.ErrorKind.SESSION_EXPIRED}


def run_job(
    job: Job, engine: Engine | EngineName | None = None, *, progress: Progress | None = None
) -> JobResult:
    """Run a job, and commit its result to the branch of its target, unless its commit already exists.

    With an engine that is ``resumable`` (all engines except ``Inline()``), the results of tasks are staged in
    the storage of the target until the commit. A second run of the same job then runs only the missing tasks.
    If a job fails, nothing is committed.

    Args:
        job: The `Job`.
        engine: The engine of the tasks: an `Engine`, or "inline", "threads", "processes", "spark", "sail".
            None: `default_engine()`.
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
    require_progress(progress, "expect", "advance")
    job_history.require_recordable(job)
    TRAFFIC.take_counts()
    with run_events(Run(job.name, job.target, job.inputs, job.writes, job.id)) as run:
        reason = ""
        for _ in range(_STARTS):
            try:
                return run.set_result(_start(job, engine, progress, run))
            except errors.JobRestartError as error:
                reason = str(error)
        raise errors.ConflictError(
            message=f"the job `{job.id or job.name}` started {_STARTS} times, but its staged results were "
            f"not usable. The last reason: {reason}. Check whether another driver runs the same job"
        )


def same_storage(source: Version, target: Target) -> bool:
    """Return whether source and target are the same storage, even if it was opened twice."""
    one, other = source.repo.storage, target.repo.storage
    # All storages in memory have the same address.
    return one is other or (storage_label(one) == storage_label(other) != "in-memory")


def require_free(source: Version, to: Target, reads: Iterable[str], writes: Sequence[str]) -> None:
    """Raise ``InvalidInputError`` if results share a path, or would replace an array that the job reads."""
    if len(set(writes)) < len(writes):
        raise conflicting(f"Each result must have its own path, got {', '.join(writes)}")
    both = sorted({*reads} & {*writes})
    if both and same_storage(source, to) and to.branch == (source.branch or to.branch):
        raise conflicting(
            f"to must not contain arrays that the job reads, got `{both[0]}` in both. Pass another group, "
            f"`to=Target(repo, group='/{to.group.strip('/') or 'results'}')`, or another branch"
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
    start: job_history.JobStart
    engine: Engine
    progress: Progress | None
    run: Run


def _start(job: Job, engine: Engine | EngineName | None, progress: Progress | None, run: Run) -> JobResult:
    target = job.target
    start = job_history.JobStart.of(target)
    id_, earlier = job_history.job_state(job, start.tip)
    run.job_id = id_
    if earlier is not None:
        return earlier_result(target, id_, earlier)
    attempt = Attempt(job, id_, start, engine_of(engine), progress, run)
    run.engine = type(attempt.engine).__name__
    staging: Staging | None = None
    if getattr(attempt.engine, "resumable", False):
        digest = job_history.work_digest(job, inputs=True)
        staging = Staging.open(target.repo, target.branch, id_, job.name, digest)
    try:
        return run_attempt(attempt, staging)
    except (errors.JobRestartError, errors.OutcomeUnknownError):
        raise  # the results stay: a commit that is there may not be durable
    except Exception as error:
        other = None if staging is None else _after_failure(attempt, staging, error)
        if other is not None:
            return earlier_result(target, id_, other)
        if isinstance(error, errors.TaskFailedError):
            raise error.with_traceback(None) from error.__cause__  # without frames of the job machinery
        raise


def earlier_result(target: Target, id_: str, snapshot_id: str) -> JobResult:
    """Return the result of a job that another run has committed, and clean up after that run.

    That run may have ended before its commit was durable: without its staged results, nobody can repeat it.
    """
    storage, folder = target.repo.storage, ""
    if target.repo.spec_version < 2:
        folder = ref_key(storage, RefKind.BRANCH, target.branch).rpartition("/")[0]
    storage.flush_folders([folder])
    clean_up(storage, place_of(target.branch, id_))
    return JobResult(id_, Version(target.repo, snapshot_id, target.branch), Metrics(), done_before=True)


def _after_failure(attempt: Attempt, staging: Staging, error: Exception) -> str | None:
    """Return the snapshot of another driver, or None if the caller must raise the error.

    Staged results stay, unless another run would fail in the same way. If there are none, their lease is
    removed, because it delays garbage collections.
    """
    state_kind = error.kind if isinstance(error, errors.SessionStateError) else None
    if isinstance(error, errors.RebaseFailedError) or state_kind == errors.ErrorKind.MERGE_FAILED:
        staging.discard()
        return None
    if staging.resumed and state_kind in _LOST:
        _log.warning("job %s: its staged results are lost, its tasks run again: %s", attempt.id, error)
        staging.discard()
        raise errors.JobRestartError(str(error))
    if state_kind is None:
        # The driver that commits first deletes the staged results, and other drivers fail.
        snapshot_id = job_history.find_job(attempt.job.target, attempt.id, attempt.start)
        if snapshot_id is not None:
            _log.info("job %s: another driver has committed it; the error here: %s", attempt.id, error)
            return snapshot_id
    if not staging.has_results():
        staging.clean_up()
    return None


def run_attempt(attempt: Attempt, staging: Staging | None) -> JobResult:
    """Run the rounds of a job, and commit the result, unless another driver has committed the job."""
    job, target = attempt.job, attempt.job.target
    session = target.repo.writable_session(target.branch) if staging is None else staging.session
    if job.track_reads:
        session.workspace.reads = ReadTracker()
    other = job_history.find_job(target, attempt.id, attempt.start, session.snapshot_id)
    if other is not None:
        return earlier_result(target, attempt.id, other)
    rounds = Rounds(session, staging, attempt.engine, attempt.progress, job.manifests_on_executors_above)
    try:
        inputs = live_inputs(job.inputs, target)

        def prepare(session: Session) -> Tasks:
            tasks = job.prepare(session)
            workspace = session.workspace
            for each in inputs:  # other sessions may have committed before this session
                start = id_from_text(each.snapshot)
                try:
                    require_unchanged(workspace.context, reads_of([each]), start, workspace.snapshot_id)
                except errors.StaleReadError as error:
                    raise of_job(job.name, error) from error
            warn_of_misalignment(session, job.writes)
            return tasks

        with described(job_history.label(job, attempt.id)):
            values = rounds.run(prepare, job.work)
            for phase in job.phases:
                values = rounds.run(phase.prepare, phase.work, values)
            if job.finish is not None:
                rounds.on_driver(job.finish, session, values)
            metrics = attempt.run.metrics = rounds.metrics(attempt.run.seconds())
            snapshot_id, is_own = session.snapshot_id, False
            if session.has_uncommitted_changes:
                reads = joined_reads([reads_of(inputs), rounds.reads])
                snapshot_id, is_own = commit_job(attempt, session, metrics, reads)
                if staging is not None:
                    staging.clean_up()
            elif staging is not None:
                staging.discard()
    except BaseException:
        attempt.run.metrics = rounds.metrics(attempt.run.seconds())
        raise
    finally:
        state = state_of(session)
        state.has_tried = True  # the error of the job says that nothing was committed
        lease = state.lease
        if staging is None and lease is not None and not session.read_only:
            # The job ended without a commit, which would make the session read-only. The lease delays
            # garbage collections.
            lease.give_back(session.workspace.context.storage)
    version = Version(target.repo, snapshot_id, target.branch)
    return JobResult(attempt.id, version, metrics, done_before=not is_own, values=tuple(values))


def commit_job(attempt: Attempt, session: Session, metrics: Metrics, reads: ReadSet) -> tuple[str, bool]:
    """Commit the session, and rebase it as often as other sessions commit first.

    Each rebase checks the reads of the job, and whether another driver has committed the job. The update of
    the commit checks the latter again, because a reset may bring the branch back to the same tip. Returns the
    snapshot, and whether this run committed it.
    """
    job, target = attempt.job, attempt.job.target
    start = replace(attempt.start, tip=session.snapshot_id)
    metadata = job_history.commit_metadata(job, attempt.id, metrics)
    state_of(session).note = job_history.first_driver_note(
        attempt.id, job_history.work_digest(job), target, start
    )
    for tries in itertools.count():
        try:
            snapshot_id = session.commit(
                job.message or job.name, metadata, rebase_with=ConflictDetector(), rebase_tries=0
            )
            return snapshot_id, True
        except errors.ConflictError as error:
            if error.kind != errors.ErrorKind.COMMIT_CONFLICT:
                raise
        host.pause(host.random_between(0, min(2.0**tries * _FIRST_PAUSE_S, _LONGEST_PAUSE_S)))
        failure: errors.RebaseFailedError | None = None
        try:
            session.rebase(ConflictDetector(), reads=[reads])
        except errors.RebaseFailedError as error:
            failure = error
        other = job_history.find_job(target, attempt.id, start, None if failure else session.snapshot_id)
        if other is not None:
            return other, False
        if isinstance(failure, errors.StaleReadError):
            raise of_job(job.name, failure) from failure
        if failure is not None:
            raise failure.with_remedy("The branch has the commits of others. Run the job again", shell="")
    raise AssertionError("no end")
