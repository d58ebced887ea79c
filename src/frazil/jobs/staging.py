"""The staged results of a job, with which a second driver can continue the job.

    staging/<place>/plan                   JSON: the job, its snapshot, and the name of the folder below
    staging/<place>/<name>/0               the first round: the changes of the driver, a digest of the items
    staging/<place>/<name>/0.<hash>/17     the result of its task 17, see ``task_results``
    staging/<place>/<name>/1 ...           further rounds, if the job has phases

Each object is written once, as a whole, and only if it does not exist. If two attempts of a task, or two
drivers of a job, write the same object, the first one wins, and both can use it.

A second driver opens a session on the snapshot of the first driver, and runs ``prepare`` again, because
``finish`` and the tasks need its values, with valid credentials. Then it replaces its own changes with those
of the first driver: new nodes have random ids, and the staged results refer to the ids of the first driver.
The items must be the same, byte by byte. If they differ, or the snapshot was deleted, or other sessions
changed the same nodes, the driver discards the plan, and the job starts again.

The hash is that of the file of the round. So results are never used with a plan that they do not belong to.

Secrets are never staged: no storage, no shared value, no items. The lifetime of staged files, and their
protection from garbage collections: `frazil.repository.session.staged_work`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import ClassVar, Final

from frazil.about import __version__
from frazil.changes.change_set import ChangeSet
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, JobRestartError, StorageError
from frazil.format.ids import id_from_text, id_to_text, is_id_text
from frazil.jobs import wire
from frazil.jobs.job import takes_versions
from frazil.jobs.progress import Summary
from frazil.jobs.task_results import Result, decode_result
from frazil.jobs.wire import joined, split
from frazil.repository.catalog import repo_requirements
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.handle.repository import Repository, context_of
from frazil.repository.ids import new_object_id
from frazil.repository.session.commit import SessionState
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.session import Session, state_of
from frazil.repository.session.staged_work import (
    STAGING,
    clean_up,
    ends,
    give_up,
    has_ended,
    place_of,
    take_lease,
)
from frazil.repository.session.workspace import Workspace
from frazil.storage.base import IfAbsent, Storage, Stored
from frazil.threads import Purpose, thread_pool


@dataclass(frozen=True, slots=True)
class Folder:
    """Objects below one key, each written once. It can be pickled, with its storage."""

    storage: Storage
    key: str

    def put(self, name: str, data: bytes) -> bool:
        """Write an object. Returns False, and does not change the object, if it exists."""
        return isinstance(self.storage.put(f"{self.key}/{name}", data, IfAbsent()), Stored)

    def get(self, name: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Return an object, or a range of its bytes; None if the object does not exist."""
        try:
            return bytes(self.storage.get(f"{self.key}/{name}", start, stop))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return None

    def names(self) -> list[str]:
        """Return the names of all objects in the folder and its subfolders, relative to the folder."""
        return [info.key[len(self.key) + 1 :] for info in self.storage.list(self.key)]

    def subfolder(self, name: str) -> Folder:
        """Return a folder in this folder."""
        return Folder(self.storage, f"{self.key}/{name}")


#: The format of staged files. Files of another format or version of Frazil are discarded.
_FORMAT: Final = 1
_LARGEST_NUMBER: Final = 1 << 57


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """The start of a job, to which its staged results belong.

    ``base`` is the snapshot of the session of the job. ``seen`` and ``since`` are those of the session (see
    `frazil.repository.catalog.collection_guard`). ``started`` is the time of the first run, in microseconds
    since 1970. ``folder`` is the name of the folder of the rounds.
    """

    job: str
    name: str
    branch: str
    digest: str
    base: str
    seen: int
    since: int
    started: int
    folder: str
    software: str = __version__
    format: int = _FORMAT

    @property
    def is_of_this_version(self) -> bool:
        """Whether the same version of Frazil has staged the results."""
        return (self.format, self.software) == (_FORMAT, __version__)


def encode_plan(plan: StagedPlan) -> bytes:
    """Return a plan as JSON."""
    return json.dumps(asdict(plan)).encode()


def decode_plan(data: bytes) -> StagedPlan | None:
    """Return the plan in JSON bytes; None for damaged bytes."""
    try:
        plan = StagedPlan(**json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = plan.seen, plan.since, plan.started
    texts = plan.job, plan.name, plan.branch, plan.digest, plan.software
    ids = plan.base, plan.folder
    is_whole = all(isinstance(each, int) and 0 <= each < _LARGEST_NUMBER for each in numbers) and all(
        isinstance(each, str) for each in texts
    )
    return plan if is_whole and all(isinstance(id_, str) and is_id_text(id_) for id_ in ids) else None


def has_base(repo: Repository, plan: StagedPlan) -> bool:
    """Return whether the repository still has the snapshot of the plan."""
    return bool(context_of(repo).catalog.repo_info().snapshots.find_snapshot(id_from_text(plan.base)) >= 0)


def session_at_base(repo: Repository, branch: str, plan: StagedPlan) -> Session:
    """Return a session for the branch that starts from the snapshot of the plan."""
    context = context_of(repo)
    repo_requirements.branch_tip(context.catalog.repo_info(), branch)
    workspace = Workspace(context, id_from_text(plan.base), None, ChangeSet())
    return Session(
        SessionState(
            workspace,
            branch,
            SessionMode.writable,
            ends(plan.started),
            repo.default_commit_metadata(),
            seen=plan.seen,
            since=plan.since,
        )
    )


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StagedRound:
    """The results of tasks, by the number of the task. It can be pickled, because tasks write to it."""

    folder: Folder

    def put_result(self, number: int, data: bytes) -> None:
        """Stage the result of one task, unless another attempt has staged it."""
        self.folder.put(str(number), data)

    def get_result(self, number: int, module: str) -> bytes | None:
        """Return the result of one task; None if it is missing or unusable.

        ``module`` is the module of the work function.
        """
        data = self.folder.get(str(number))
        return None if data is None or _usable(number, data, module) is None else data

    def results(self, module: str) -> Iterator[tuple[int, Result]]:
        """Yield the usable results, with the numbers of their tasks."""
        numbers = [int(name) for name in self.folder.names() if name.isdecimal()]
        with thread_pool(Purpose.STAGED_READS) as pool:
            for number, data in zip(numbers, pool.map(self.folder.get, map(str, numbers)), strict=True):
                result = None if data is None else _usable(number, data, module)
                if result is not None:
                    yield number, result


def _usable(number: int, data: bytes, module: str) -> Result | None:
    try:
        result = decode_result(data, module)
    except IcechunkError as error:
        _log.warning("task %d runs again: %s", number, error)
        return None
    return result if result.ends > now_us() else None


@dataclass(frozen=True, slots=True, repr=False)
class StagedJob(Summary):
    """A job that was started, and was neither committed nor discarded.

    Attributes:
        id: The id of the job.
        name: The name of the operation.
        branch: The branch that the job commits to.
        snapshot_id: The id of the snapshot with which the job started.
        started_at: The time of the first run.
        tasks: The number of tasks with staged results.
    """

    id: str
    name: str
    branch: str
    snapshot_id: str
    started_at: datetime
    tasks: int

    shown_as: ClassVar[str] = "pipeline.StagedJob"


@dataclass(frozen=True, slots=True)
class Staging:
    """The staged results of one job, and the session that they belong to.

    ``resumed``: an earlier run has started the job. ``rounds`` is the folder of the rounds.
    """

    repo: Repository
    job: str
    place: str
    rounds: Folder
    session: Session
    resumed: bool

    @classmethod
    def open(cls, repo: Repository, branch: str, job: str, name: str, digest: str) -> Staging:
        """Continue a job with its staged results, or start it.

        ``digest`` is a hash of everything that decides the results of tasks.
        """
        place = place_of(branch, job)
        plan = _read_plan(repo, place)
        if plan is not None and plan.digest != digest:
            raise InvalidInputError(
                f"the job `{job}` was started with other parameters or inputs, and was not committed. Run it "
                "with these, give this job another id, or discard the staged results with discard_job",
                ErrorKind.CONFLICTING_ARGUMENTS,
            )
        if plan is not None and (has_ended(plan.started) or not has_base(repo, plan)):
            _log.info("job %s: its plan has expired, or its first snapshot was deleted", job)
            give_up(repo.storage, place)
            plan = None
        if plan is None:
            return cls._begin(repo, branch, job, name, digest)
        return cls._resume(repo, branch, plan)

    @classmethod
    def _begin(cls, repo: Repository, branch: str, job: str, name: str, digest: str) -> Staging:
        place, session = place_of(branch, job), repo.writable_session(branch)
        state = state_of(session)
        relied, started = state.session_start(), now_us()
        lease = take_lease(repo.storage, place, relied.since, started, _purpose(job, branch), name=job)
        plan = StagedPlan(
            job,
            name,
            branch,
            digest,
            session.snapshot_id,
            relied.update,
            relied.since,
            started,
            id_to_text(new_object_id()),
        )
        if not _folder(repo, place).put("plan", encode_plan(plan)):
            raise JobRestartError("another driver started the job at the same time")
        state.lease, state.since, state.expires_at = lease, relied.since, ends(started)
        rounds = _folder(repo, place).subfolder(plan.folder)
        return cls(repo, job, place, rounds, session, resumed=False)

    @classmethod
    def _resume(cls, repo: Repository, branch: str, plan: StagedPlan) -> Staging:
        place, session = place_of(branch, plan.job), session_at_base(repo, branch, plan)
        purpose = _purpose(plan.job, branch)
        state_of(session).lease = take_lease(
            repo.storage, place, plan.since, plan.started, purpose, name=plan.job, resumes=True
        )
        rounds = _folder(repo, place).subfolder(plan.folder)
        _log.info("job %s: continues with staged results", plan.job)
        conflict = _conflict(repo, branch, plan, rounds)
        if conflict is not None:
            clean_up(repo.storage, place)
            raise _unusable(plan.job, str(conflict))
        return cls(repo, plan.job, place, rounds, session, resumed=True)

    def stage_round(self, number: int, session: Session, items: Sequence[bytes]) -> StagedRound:
        """Stage a round of tasks, after ``prepare`` has changed the session.

        If another driver has staged this round, its changes replace those of the session.
        """
        session.workspace.writer.flush()  # staged changes must refer only to durable chunks
        hashed = hashlib.sha256(b"".join(hashlib.sha256(item).digest() for item in items)).hexdigest()
        header = json.dumps({"tasks": len(items), "items": hashed}).encode()
        data = joined([header, wire.encode(session.workspace.changes)])
        if not self.rounds.put(str(number), data):
            data = self.rounds.get(str(number)) or data
            staged_header, changes = split(data, 2)
            if staged_header != header:
                self.discard()
                raise _unusable(self.job, "`prepare` returned other items than before")
            session.workspace.replace_changes(wire.decode(changes))
        digest = hashlib.sha256(data).hexdigest()[:16]
        return StagedRound(self.rounds.subfolder(f"{number}.{digest}"))

    def has_results(self) -> bool:
        """Return whether any task has staged its result."""
        try:
            return any(name.count("/") > 1 for name in _folder(self.repo, self.place).names())
        except StorageError:
            return True

    def discard(self) -> None:
        """Delete the staged results, which can then never be committed."""
        give_up(self.repo.storage, self.place)

    def clean_up(self) -> None:
        """Delete the staged results after the commit."""
        clean_up(self.repo.storage, self.place)


def _folder(repo: Repository, place: str) -> Folder:
    return Folder(repo.storage, f"{STAGING}/{place}")


def _read_plan(repo: Repository, place: str) -> StagedPlan | None:
    """Return the plan of an earlier run, and discard a plan of another version of Frazil."""
    data = _folder(repo, place).get("plan")
    plan = None if data is None else decode_plan(data)
    if data is not None and (plan is None or not plan.is_of_this_version):
        _log.warning(
            "results of another version of Frazil are staged: the job discards them, and starts again"
        )
        give_up(repo.storage, place)
        return None
    return plan


def _conflict(repo: Repository, branch: str, plan: StagedPlan, rounds: Folder) -> IcechunkError | None:
    """Return the error that a rebase of the staged changes onto the tip of the branch raises, else None."""
    first = rounds.get("0")
    if first is None or repo.lookup_branch(branch) == plan.base:
        return None
    trial = session_at_base(repo, branch, plan)
    trial.workspace.replace_changes(wire.decode(split(first, 2)[1]))
    try:
        trial.rebase(ConflictDetector())
    except IcechunkError as error:
        return error
    return None


def _unusable(job: str, reason: str) -> JobRestartError:
    _log.warning("job %s: its staged results cannot be used and are discarded: %s", job, reason)
    return JobRestartError(reason)


def _purpose(job: str, branch: str) -> str:
    return f"job `{job}` on branch `{branch}`"


@takes_versions
def staged_jobs(repo: Repository) -> list[StagedJob]:
    """Return the jobs that were started, and were neither committed nor discarded.

    Args:
        repo: The repository.

    Returns:
        The jobs, the oldest first. A job whose last run failed can be continued by another run.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import staged_jobs
        >>> staged_jobs(frazil.Repository.create(frazil.in_memory_storage()))
        []
    """
    names = Folder(repo.storage, STAGING).names()
    jobs = []
    for name in names:
        place, _, rest = name.partition("/")
        if rest == "plan":
            data = _folder(repo, place).get("plan")
            if data is not None and (plan := decode_plan(data)) is not None:
                jobs.append(_staged_job(plan, place, names))
    return sorted(jobs, key=lambda job: job.started_at)


def _staged_job(plan: StagedPlan, place: str, names: Sequence[str]) -> StagedJob:
    prefix = f"{place}/{plan.folder}/"
    tasks = sum(name.startswith(prefix) and name[len(prefix) :].count("/") == 1 for name in names)
    return StagedJob(plan.job, plan.name, plan.branch, plan.base, to_datetime(plan.started), tasks)


@takes_versions
def discard_job(repo: Repository, job_id: str, branch: str = "main") -> None:
    """Delete the staged results of a job that was started and not committed.

    The chunks that the job has written become garbage. If there is no such job, nothing happens. Do not call
    this function while the job runs.

    Args:
        repo: The repository.
        job_id: The id of the job, as in `StagedJob`.
        branch: The branch that the job commits to. Default: ``main``.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import discard_job, staged_jobs
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> discard_job(repo, "daily-mean")
        >>> staged_jobs(repo)
        []
    """
    give_up(repo.storage, place_of(branch, job_id))
