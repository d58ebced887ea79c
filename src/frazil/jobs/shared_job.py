"""Shared jobs: tasks of a batch system write parts of arrays, and one commit follows, without a driver.

The state of a shared job is only in the storage, where `frazil.jobs.staging` keeps that of every job. Each
task joins the job, writes in a fork, and stages the result. The commit is a run of the job with an engine
that has no task to run. In the folder of the results, ``attempts/17.<id>`` is JSON about an attempt of the
task 17, for the message about a lost task.
"""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final, NoReturn

from frazil import errors, host
from frazil.about import PACKAGE_FOLDER
from frazil.arguments import check_fields, conflicting, wrong_type
from frazil.changes.change_set import ChangeSet
from frazil.display import Shown
from frazil.format.ids import id_to_text
from frazil.handle.addresses import virtual_access
from frazil.handle.repository import Repository
from frazil.jobs.engine import Task, Threads
from frazil.jobs.events import Run, run_events
from frazil.jobs.job import Job, JobResult, Target, Tasks
from frazil.jobs.job_history import JobStart, find_job, job_state, require_recordable, work_digest
from frazil.jobs.job_run import Attempt, earlier_result, run_attempt
from frazil.jobs.progress import Summary
from frazil.jobs.staging import StagedRound, Staging
from frazil.jobs.task_failures import dumps
from frazil.jobs.task_results import Outcome
from frazil.jobs.task_rounds import AFTER_TASK, encode_work, run_task, task_number
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.repository.session.session import ForkSession, Session
from frazil.repository.target import MAIN, parse_target
from frazil.storage.checks import TRAFFIC
from frazil.storage.profiles import storage_of_location
from frazil.threads import Purpose, thread_pool

#: The variables with which `frazil job task` tells its command the repository, the id and the task, and
#: whether the result replaces an earlier one.
JOB_TARGET: Final = "FRAZIL_JOB_TARGET"
JOB_ID: Final = "FRAZIL_JOB"
JOB_TASK: Final = "FRAZIL_TASK"
JOB_AGAIN: Final = "FRAZIL_TASK_AGAIN"
#: The largest number of tasks. The commit lists them all.
_MOST_TASKS: Final = 1_000_000
_NAME: Final = "shared"
_ATTEMPTS: Final = "attempts/"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class MissingTask:
    """A task of a shared job without a result.

    Attributes:
        number: The number of the task, from 0.
        attempts: The number of attempts. An attempt starts with the block of `SharedJob.task`.
        host: The host of the last attempt; empty if there is none.
        process: The process of the last attempt; 0 if there is none.
        started_at: The start of the last attempt, by the clock of its host; None if there is none.
        error: The error that ended the last attempt; empty if it still runs or was killed.
    """

    number: int
    attempts: int = 0
    host: str = ""
    process: int = 0
    started_at: datetime | None = None
    error: str = ""

    def __str__(self) -> str:
        if self.started_at is None:
            return f"task {self.number}: no attempt has reached `task()`"
        again = f"attempt {self.attempts}, " if self.attempts > 1 else ""
        end = f"failed with {self.error}" if self.error else "runs, or was killed"
        start = f"{self.started_at:%Y-%m-%d %H:%M:%SZ}"
        return f"task {self.number}: {again}on {self.host}, process {self.process}, since {start}, {end}"


@dataclass(frozen=True, slots=True)
class TaskStart:
    """The start of an attempt of a task, as it is staged. ``started`` is in microseconds since 1970."""

    host: str
    process: int
    started: int
    error: str = ""


def decode_start(data: bytes | None) -> TaskStart | None:
    """Return the start in JSON bytes; None for damaged bytes."""
    try:
        start = TaskStart(**json.loads(data or b""))
        check_fields(start)
        to_datetime(start.started)
    except (errors.FormatError, ValueError, TypeError, OverflowError, RecursionError):
        return None
    return start


@dataclass(frozen=True, slots=True, repr=False)
class SharedJob(Summary):
    """A job whose tasks run anywhere, with one commit at the end. It can be pickled.

    `open_shared` and `shared` make it.

    Attributes:
        repo: The repository.
        id: The id of the job.
        branch: The branch that the job commits to.
        tasks: The number of tasks. Their numbers are 0 to ``tasks - 1``. 0 if the job was committed before.
        snapshot_id: The snapshot of the commit; None if the job was not committed before.
    """

    repo: Repository
    id: str
    branch: str
    tasks: int = 0
    snapshot_id: str | None = None

    shown_as: ClassVar[str] = "jobs.SharedJob"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "id", self.id
        yield "branch", self.branch
        yield ("tasks", f"{self.tasks:,}") if self.snapshot_id is None else ("snapshot", self.snapshot_id)

    @contextmanager
    def task(self, number: int | None = None, *, again: bool = False) -> Iterator[ForkSession]:
        """Return a context in which a task writes. Its end stages the result, unless the block fails.

        A task may run several times, also at the same time: one result counts. Tasks must not write the same
        chunk or shard. Nobody sees the values before the commit.

        Args:
            number: The number of the task. None: the number in the variable ``FRAZIL_TASK``, which
                ``frazil job task`` sets.
            again: Whether this result replaces an earlier one. Default: False, the first result counts.

        Yields:
            A fork of the version with which the job was opened. After the block it refuses writes.

        Raises:
            InvalidInputError: ``invalid-argument`` if there is no task with this number.
            SessionStateError: ``not-allowed`` if the job was committed, was discarded or has expired.

        Examples:
            >>> import frazil, frazil.jobs, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     t = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> job = frazil.jobs.open_shared(repo, 2)
            >>> for number in range(job.tasks):
            ...     with job.task(number) as session:
            ...         zarr.open_array(session.store, path="t")[2 * number : 2 * number + 2] = number
            >>> result = job.commit("two parts")
            >>> zarr.open_array(result.version.session().store, path="t")[:].tolist()
            [0, 0, 1, 1]
        """
        started = host.monotonic_seconds()
        if number is None:
            again = again or bool(os.environ.get(JOB_AGAIN))
        number = self._checked(number)
        TRAFFIC.take_counts()
        session, changes, staged = self._join()
        start = TaskStart(socket.gethostname(), os.getpid(), now_us())
        record = f"{staged.folder.key}/{_ATTEMPTS}{number}.{id_to_text(new_object_id())}"
        storage = self.repo.storage
        storage.put(record, json.dumps(asdict(start)).encode())
        session.workspace.replace_changes(changes)
        fork = session.fork()
        session.discard_changes()  # those of the fork stay
        try:
            yield fork
        except BaseException as error:
            failed = asdict(start) | {"error": f"{type(error).__name__}: {error}"[:500]}
            with suppress(errors.StorageError):
                storage.put(record, json.dumps(failed).encode())
            raise
        finally:
            fork.workspace.end(*AFTER_TASK)
        chunks = sum(len(edits.table()) for edits in fork.workspace.own_changes().chunks.values())
        data = encode_work(fork, Outcome(chunks=chunks), f"{staged.folder.key}/references", started)
        is_first = staged.put_result(number, data)
        if not is_first and (again or staged.get_result(number, __name__) is None):
            storage.put(f"{staged.folder.key}/{number}", data)

    def has_result(self, number: int | None = None) -> bool:
        """Return whether a task needs not run, because its result is staged, or the job was committed.

        Args:
            number: The number of the task. None: the number in the variable ``FRAZIL_TASK``.

        Returns:
            Whether an attempt of the task has delivered a usable result.

        Raises:
            InvalidInputError: ``invalid-argument`` if there is no task with this number.

        Examples:
            >>> import frazil, frazil.jobs
            >>> job = frazil.jobs.open_shared(frazil.Repository.create(frazil.in_memory_storage()), 3)
            >>> with job.task(1) as session:
            ...     pass
            >>> [job.has_result(number) for number in range(3)]
            [False, True, False]
        """
        if self.snapshot_id is not None:
            return True
        number = self._checked(number)
        return self._join()[2].get_result(number, __name__) is not None

    def missing(self) -> list[MissingTask]:
        """Return the tasks without a result, with the host and the start of their last attempts.

        Returns:
            The tasks by number. Empty if the job can be committed, or was committed.

        Raises:
            SessionStateError: ``not-allowed`` if the job was committed, was discarded or has expired since
                this object was made.

        Examples:
            >>> import frazil, frazil.jobs
            >>> job = frazil.jobs.open_shared(frazil.Repository.create(frazil.in_memory_storage()), 2)
            >>> with job.task(1) as session:
            ...     pass
            >>> print(*job.missing())
            task 0: no attempt has reached `task()`
        """
        if self.snapshot_id is not None:
            return []
        folder = self._join()[2].folder
        names = folder.names()
        attempts: dict[int, list[str]] = {}
        for name in names:
            text = name.removeprefix(_ATTEMPTS).partition(".")[0]
            if name.startswith(_ATTEMPTS) and text.isdecimal():
                attempts.setdefault(int(text), []).append(name)
        results = {int(name) for name in names if name.isdecimal()}
        numbers = [number for number in range(self.tasks) if number not in results]
        every = [name for number in numbers for name in attempts.get(number, ())]
        with thread_pool(Purpose.STAGED_READS) as pool:
            starts = dict(zip(every, map(decode_start, pool.map(folder.get, every)), strict=True))
        tasks = []
        for number in numbers:
            names = attempts.get(number, [])
            entries = [start for name in names if (start := starts[name]) is not None]
            last = max(entries, key=lambda start: start.started, default=None)
            task = MissingTask(number, len(names))
            if last is not None:
                began = to_datetime(last.started)
                task = MissingTask(number, len(names), last.host, last.process, began, last.error)
            tasks.append(task)
        return tasks

    def commit(self, message: str | None = None, metadata: Mapping[str, Any] | None = None) -> JobResult:
        """Merge the results of all tasks, and commit them once.

        Another call, also at the same time and in another process, returns the same commit. If it fails, the
        results of the tasks stay: correct the cause, and commit again.

        Args:
            message: The message of the commit. None: ``shared``.
            metadata: More metadata of the commit. Default: none.

        Returns:
            The `frazil.pipeline.JobResult`, with the new version.

        Raises:
            SessionStateError: ``commit-not-allowed`` if tasks have no result; the message names them, and
                the hosts of their last attempts. ``merge-failed`` if two tasks wrote the same chunk or node.
                ``not-allowed`` if the job was discarded or has expired.
            RebaseFailedError: If another session changed the same arrays since the job was opened.

        Examples:
            >>> import frazil, frazil.jobs, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> job = frazil.jobs.open_shared(repo, 1, job_id="monday")
            >>> with job.task(0) as session:
            ...     group = zarr.create_group(session.store, path="results")
            >>> job.commit().metrics.tasks, frazil.jobs.shared(repo, "monday").tasks
            (1, 0)
        """
        job = _job(self.repo, self.branch, self.id, self.tasks, message, metadata or {})
        require_recordable(job)
        TRAFFIC.take_counts()
        with run_events(Run(job.name, job.target, writes=job.writes, job_id=self.id)) as run:
            return run.set_result(self._commit(job, run))

    def _commit(self, job: Job, run: Run) -> JobResult:
        start = JobStart.of(job.target)
        _, commit = job_state(job, start.tip)
        if commit is not None:
            return earlier_result(job.target, self.id, commit)
        attempt = Attempt(job, self.id, start, DeliveredTasks(self), None, run)
        try:
            staging = Staging.join(self.repo, self.branch, self.id, _NAME)
            return _raise_closed(self) if staging is None else run_attempt(attempt, staging)
        except errors.OutcomeUnknownError:
            raise  # a commit that is there may not be durable
        except (errors.IcechunkError, errors.JobRestartError) as error:
            # The process that commits first deletes the staged results, and others fail.
            commit = find_job(job.target, self.id, start)
            if commit is None and isinstance(error, errors.RebaseFailedError):
                error.with_remedy(
                    "The results stay, but cannot be committed on this tip. Discard the job with "
                    "`frazil.pipeline.discard_job`, open it again, and run its tasks again",
                    shell="The results stay, but cannot be committed on this tip. End the lease of the job "
                    "with `frazil lease`, open it again, and run its tasks again",
                )
            if commit is None:
                raise
            return earlier_result(job.target, self.id, commit)

    def _checked(self, number: int | None) -> int:
        if number is None:
            text = _from_environment(JOB_TASK)
            number = int(text) if text.isdecimal() else -1
        if self.snapshot_id is None and not 0 <= number < self.tasks:
            raise errors.InvalidInputError(
                f"the number of a task must be 0 to {self.tasks - 1}, got {number}"
            )
        return number

    def _join(self) -> tuple[Session, ChangeSet, StagedRound]:
        """Return the session of the job, the changes of ``prepare``, and the results of the tasks."""
        state = None if self.snapshot_id is not None else _open_round(self.repo, self.branch, self.id)
        if state is None:
            _raise_closed(self)
        session, _, changes, staged = state
        return session, changes, staged


def open_shared(
    repo: Repository | str,
    tasks: int,
    *,
    branch: str = MAIN,
    job_id: str | None = None,
    prepare: Callable[[Session], object] | None = None,
) -> SharedJob:
    """Open a job whose tasks run anywhere, such as an array of tasks in a batch system.

    The job starts from the tip of the branch. Its state is in the storage of the repository, so tasks need
    only the repository and the id. The job can be committed for seven days, and holds back garbage
    collection until then. `frazil.pipeline.discard_job` gives it up.

    Args:
        repo: The repository, or the text ``LOCATION[@BRANCH]`` as in the command line.
        tasks: The number of tasks, from 1 to 1,000,000.
        branch: The branch that the job commits to. Default: ``main``.
        job_id: The id of the job. If a job with this id is open or committed, it is returned. None: a new id.
        prepare: A function that changes the session of the job, such as to create the arrays. The tasks see
            its changes, and the commit contains them. It is not called if the job is open. Default: None.

    Returns:
        The job. If it was committed, it has the id of the snapshot, and a ``UserWarning`` says so.

    Raises:
        InvalidInputError: ``invalid-argument`` for a wrong number of tasks. ``conflicting-arguments`` if the
            job is open with another number of tasks or another ``prepare``, or the id is that of another kind
            of job.
        RefNotFoundError: If there is no such branch.

    Examples:
        >>> import frazil, frazil.jobs
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> job = frazil.jobs.open_shared(repo, 8, job_id="2026-11-27")
        >>> job.branch, job.tasks, frazil.jobs.shared(repo, "2026-11-27") == job
        ('main', 8, True)
    """
    repo, branch = _opened(repo, branch)
    if not 1 <= tasks <= _MOST_TASKS:
        raise errors.InvalidInputError(f"tasks must be from 1 to {_MOST_TASKS}, got {tasks}")
    job_id = id_to_text(new_object_id()) if job_id is None else job_id
    job = _job(repo, branch, job_id, tasks)
    require_recordable(job)
    digest = work_digest(replace(job, parameters={"prepare": _code_of(prepare)}))
    while (present := _present(repo, branch, job_id, None if prepare is None else digest)) is None:
        with suppress(errors.JobRestartError):  # another process opens it at the same time
            staging = Staging.open(repo, branch, job_id, _NAME, digest)
            try:
                if prepare is not None:
                    prepare(staging.session)
                staging.stage_round(0, staging.session, [dumps(None)] * tasks)
            except BaseException:
                if not staging.has_results():
                    staging.clean_up()
                raise
            staging.session.discard_changes()  # the staged ones stay
    if present.snapshot_id is None and present.tasks != tasks:
        raise conflicting(f"the job `{job_id}` is open with {present.tasks} tasks, got {tasks}").with_remedy(
            "Give this job another id, or discard the open job with discard_job",
            shell="Give this job another id, or end the lease of the open job with `frazil lease`",
        )
    if present.snapshot_id is not None:
        warnings.warn(
            f"the job `{job_id}` was committed before, as {present.snapshot_id}: its tasks and its commit do "
            "nothing. Give a new job another id",
            skip_file_prefixes=(PACKAGE_FOLDER,),
        )
    return present


def _code_of(prepare: Any) -> list[str]:
    """Return the name, the code and the simple values of a function, which are equal in all processes."""
    function = getattr(prepare, "func", prepare)  # of a partial function
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    values = [*getattr(prepare, "args", ()), *getattr(prepare, "keywords", {}).values()]
    values += [*(getattr(function, "__defaults__", None) or ()), *(each.cell_contents for each in cells)]
    texts = [getattr(function, "__qualname__", type(function).__qualname__)]
    if code is not None:
        texts += [code.co_code.hex(), *code.co_names]
        values += code.co_consts
    return texts + [repr(each) for each in values if isinstance(each, int | float | str | bytes)]


def shared(repo: Repository | str | None = None, job_id: str | None = None, branch: str = MAIN) -> SharedJob:
    """Return a job that `open_shared` or ``frazil job open`` has opened.

    Args:
        repo: The repository, or the text ``LOCATION[@BRANCH]`` as in the command line. None: that of
            ``frazil job task``, which runs this program.
        job_id: The id of the job. None: that of ``frazil job task``.
        branch: The branch that the job commits to. Default: ``main``.

    Returns:
        The job. If it was committed, it has the id of the snapshot.

    Raises:
        SessionStateError: ``not-allowed`` if there is no such job, or it has expired.
        InvalidInputError: ``invalid-argument`` without arguments outside of ``frazil job task``.
            ``conflicting-arguments`` if another version of Frazil has opened the job.

    Examples:
        >>> import frazil, frazil.jobs
        >>> job = frazil.jobs.open_shared(frazil.Repository.create(frazil.in_memory_storage()), 8)
        >>> frazil.jobs.shared(job.repo, job.id).tasks
        8
    """
    repo = _from_environment(JOB_TARGET) if repo is None else repo
    job_id = _from_environment(JOB_ID) if job_id is None else job_id
    repo, branch = _opened(repo, branch)
    return _present(repo, branch, job_id) or _raise_closed(SharedJob(repo, job_id, branch))


def _present(repo: Repository, branch: str, job_id: str, digest: str | None = None) -> SharedJob | None:
    """Return a job that is open or was committed; None if there is none."""
    state = _open_round(repo, branch, job_id, digest)
    if state is not None:
        return SharedJob(repo, job_id, branch, state[1])
    _, commit = job_state(_job(repo, branch, job_id), repo.lookup_branch(branch))
    return None if commit is None else SharedJob(repo, job_id, branch, snapshot_id=commit)


def _open_round(
    repo: Repository, branch: str, job_id: str, digest: str | None = None
) -> tuple[Session, int, ChangeSet, StagedRound] | None:
    """Return the session of an open job, its number of tasks, the changes of ``prepare``, and the results."""
    staging = Staging.join(repo, branch, job_id, _NAME, digest)
    state = None if staging is None else staging.first_round()
    if staging is None or state is None:
        return None
    if not 1 <= state[0] <= _MOST_TASKS:
        raise errors.FormatError(f"the job `{job_id}` must have 1 to {_MOST_TASKS} tasks, got {state[0]}")
    return staging.session, *state


def _raise_closed(job: SharedJob) -> NoReturn:
    if job.snapshot_id is not None:
        raise errors.SessionStateError(
            f"the job `{job.id}` was committed as {job.snapshot_id}: it takes no results"
        )
    raise errors.SessionStateError(
        f"no job `{job.id}` is open on the branch `{job.branch}`: it was never opened, was committed or "
        "discarded, or has expired"
    ).with_remedy("Open it with `open_shared`", shell="Open it with `frazil job open`")


def _opened(repo: Repository | str, branch: str) -> tuple[Repository, str]:
    """Return the repository and the branch that the arguments name."""
    if isinstance(repo, Repository):
        return repo, branch
    if not isinstance(repo, str):
        raise wrong_type("repo", repo, "Repository", "str")
    target = parse_target(repo)
    storage = storage_of_location(target.location)
    opened = Repository.open(storage, authorize_virtual_chunk_access=virtual_access())
    return opened, target.version or branch


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise errors.InvalidInputError(f"{name} must be set. Pass the argument, or use `frazil job task`")
    return value


def _job(
    repo: Repository,
    branch: str,
    job_id: str,
    tasks: int = 0,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Job:
    return Job(
        _NAME,
        Target(repo, branch),
        lambda session: Tasks([None] * tasks),
        _no_work,
        message=message,
        metadata=metadata or {},
        id=job_id,
    )


def _no_work(fork: ForkSession, shared_value: Any, item: Any) -> Outcome:
    raise AssertionError("tasks of a shared job run elsewhere")


@dataclass(frozen=True, slots=True)
class DeliveredTasks:
    """The engine of the commit. It runs no task of the job, but writes the manifests of a large commit."""

    job: SharedJob

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        """Run the tasks of the commit, or raise an error that names the tasks of the job without a result."""
        if task is not run_task:
            return Threads().run(task, tasks, shared)
        if not tasks:
            return iter(())
        reasons = {each.number: str(each) for each in self.job.missing()}
        numbers = list(map(task_number, tasks))
        lines = [reasons.get(each, f"task {each}: its result is damaged or has expired") for each in numbers]
        more = [f"and {len(lines) - _SHOWN} more tasks"] if len(lines) > _SHOWN else []
        raise errors.SessionStateError(
            f"{len(lines)} of {self.job.tasks} tasks of the job `{self.job.id}` have no result: "
            f"{'; '.join([*lines[:_SHOWN], *more])}. Run these tasks again, then commit",
            errors.ErrorKind.COMMIT_NOT_ALLOWED,
        )
