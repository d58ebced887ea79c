"""The staged results of a job, with which a second driver can continue the job.

    staging/<place>/plan                   JSON: the job, its snapshot, and the name of the folder below
    staging/<place>/<name>/0               the first round: the changes of the driver, a digest of the items
    staging/<place>/<name>/0.<hash>/17     the result of its task 17, with the hash of the round

Each object is written once, only if it does not exist: of two attempts or drivers, the first one wins. A
second driver runs ``prepare`` again on the snapshot of the first one, and then replaces its own changes with
the staged ones, because new nodes have random ids. If the items differ, the plan is discarded, and the job
starts again. Secrets are never staged: no storage, no shared value, no items.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import ClassVar, Final

from frazil import errors
from frazil.about import __version__
from frazil.arguments import check_fields, conflicting
from frazil.changes.change_set import ChangeSet
from frazil.format.envelope import reading
from frazil.format.ids import id_from_text, id_to_text, is_id_text
from frazil.handle.repository import Repository, context_of
from frazil.jobs.job import takes_versions
from frazil.jobs.progress import Summary
from frazil.jobs.task_results import TaskResult, decode_changes, decode_result, encode_changes, joined, split
from frazil.repository.catalog import repo_changes
from frazil.repository.catalog.collection_guard import STAGING, clean_up, ends, give_up, place_of, take_lease
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.repository.session.commit import SessionState
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.session import Session, state_of
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
        except errors.StorageError as error:
            if error.kind != errors.ErrorKind.OBJECT_NOT_FOUND:
                raise
            return None

    def names(self) -> list[str]:
        """Return the names of all objects in the folder and its subfolders, relative to the folder."""
        return [info.key[len(self.key) + 1 :] for info in self.storage.list(self.key)]


#: The format of staged files. Files of another format or version of Frazil are discarded.
_FORMAT: Final = 2
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


def encode_plan(plan: StagedPlan) -> bytes:
    """Return a plan as JSON."""
    return json.dumps(asdict(plan)).encode()


def decode_plan(data: bytes) -> StagedPlan | None:
    """Return the plan in JSON bytes; None for damaged bytes."""
    try:
        plan = StagedPlan(**json.loads(data))
        check_fields(plan)
    except (ValueError, TypeError, RecursionError):
        return None
    is_whole = all(0 <= each < _LARGEST_NUMBER for each in (plan.seen, plan.since, plan.started))
    return plan if is_whole and is_id_text(plan.base) and is_id_text(plan.folder) else None


def _session_at_base(repo: Repository, branch: str, plan: StagedPlan) -> Session:
    """Return a session for the branch that starts from the snapshot of the plan."""
    context = context_of(repo)
    repo_changes.branch_tip(context.catalog.repo_info(), branch)
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

    def put_result(self, number: int, data: bytes) -> bool:
        """Stage the result of one task. Returns False if another attempt has staged it."""
        return self.folder.put(str(number), data)

    def get_result(self, number: int, module: str) -> bytes | None:
        """Return the result of one task; None if it is missing or unusable."""
        data = self.folder.get(str(number))
        return None if data is None or _usable(number, data, module) is None else data

    def results(self, module: str) -> Iterator[tuple[int, TaskResult]]:
        """Yield the usable results, with the numbers of their tasks."""
        numbers = [int(name) for name in self.folder.names() if name.isdecimal()]
        with thread_pool(Purpose.STAGED_READS) as pool:
            for number, data in zip(numbers, pool.map(self.folder.get, map(str, numbers)), strict=True):
                result = None if data is None else _usable(number, data, module)
                if result is not None:
                    yield number, result


def _usable(number: int, data: bytes, module: str) -> TaskResult | None:
    try:
        result = decode_result(data, module)
    except errors.IcechunkError as error:
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
        """Continue a job with its staged results, or start it."""
        place = place_of(branch, job)
        data = _folder(repo, place).get("plan")
        plan = None if data is None else decode_plan(data)
        if data is not None and (plan is None or (plan.format, plan.software) != (_FORMAT, __version__)):
            _log.warning("the staged results are of another version of Frazil. They are discarded")
            give_up(repo.storage, place)
            plan = None
        if plan is not None:
            _require_digest(plan, digest)
            snapshots = context_of(repo).catalog.repo_info().snapshots
            if now_us() >= ends(plan.started) or snapshots.find_snapshot(id_from_text(plan.base)) < 0:
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
            raise errors.JobRestartError("another driver started the job at the same time")
        state.lease, state.since, state.expires_at = lease, relied.since, ends(started)
        rounds = _folder(repo, f"{place}/{plan.folder}")
        return cls(repo, job, place, rounds, session, resumed=False)

    @classmethod
    def _resume(cls, repo: Repository, branch: str, plan: StagedPlan) -> Staging:
        staging = cls._at_base(repo, branch, plan)
        _log.info("job %s: continues with staged results", plan.job)
        first = staging.rounds.get("0")
        if first is not None and repo.lookup_branch(branch) != plan.base:
            trial = _session_at_base(repo, branch, plan)
            trial.workspace.replace_changes(decode_changes(split(first, 2)[1]))
            try:
                trial.rebase(ConflictDetector())
            except errors.IcechunkError as error:  # the staged changes cannot be committed any more
                staging.clean_up()
                raise _unusable(plan.job, str(error)) from error
        return staging

    @classmethod
    def _at_base(cls, repo: Repository, branch: str, plan: StagedPlan) -> Staging:
        place, session = place_of(branch, plan.job), _session_at_base(repo, branch, plan)
        purpose = _purpose(plan.job, branch)
        state_of(session).lease = take_lease(
            repo.storage, place, plan.since, plan.started, purpose, name=plan.job, resumes=True
        )
        rounds = _folder(repo, f"{place}/{plan.folder}")
        return cls(repo, plan.job, place, rounds, session, resumed=True)

    @classmethod
    def join(
        cls, repo: Repository, branch: str, job: str, name: str, digest: str | None = None
    ) -> Staging | None:
        """Continue a job of another process, and never discard it; None if no such job can be continued."""
        data = _folder(repo, place_of(branch, job)).get("plan")
        plan = None if data is None else decode_plan(data)
        if plan is None or plan.name != name or now_us() >= ends(plan.started):
            return None
        if (plan.format, plan.software) != (_FORMAT, __version__):
            raise conflicting(
                f"all tasks of the job `{job}` must run the version of Frazil that opened it, "
                f"{plan.software}, got {__version__}. Install that version here"
            )
        if digest is not None:
            _require_digest(plan, digest)
        return cls._at_base(repo, branch, plan)

    def stage_round(self, number: int, session: Session, items: Sequence[bytes]) -> StagedRound:
        """Stage a round of tasks, after ``prepare`` has changed the session.

        If another driver has staged this round, its changes replace those of the session.
        """
        session.workspace.writer.flush()  # staged changes must refer only to durable chunks
        hashed = hashlib.sha256(b"".join(hashlib.sha256(item).digest() for item in items)).hexdigest()
        header = json.dumps({"tasks": len(items), "items": hashed}).encode()
        data = joined([header, encode_changes(session.workspace.changes)])
        if not self.rounds.put(str(number), data):
            data = self.rounds.get(str(number)) or data
            staged_header, changes = split(data, 2)
            if staged_header != header:
                self.discard()
                raise _unusable(self.job, "`prepare` returned other items than before")
            session.workspace.replace_changes(decode_changes(changes))
        return self._round_of(number, data)

    def _round_of(self, number: int, data: bytes) -> StagedRound:
        digest = hashlib.sha256(data).hexdigest()[:16]
        return StagedRound(Folder(self.repo.storage, f"{self.rounds.key}/{number}.{digest}"))

    def first_round(self) -> tuple[int, ChangeSet, StagedRound] | None:
        """Return the number of tasks, the changes of ``prepare``, and the results; None before they exist."""
        data = self.rounds.get("0")
        return None if data is None else (*decode_round(data), self._round_of(0, data))

    def has_results(self) -> bool:
        """Return whether any task has staged its result."""
        try:
            return any(name.count("/") > 1 for name in _folder(self.repo, self.place).names())
        except errors.StorageError:
            return True

    def discard(self) -> None:
        """Delete the staged results, which can then never be committed."""
        give_up(self.repo.storage, self.place)

    def clean_up(self) -> None:
        """Delete the staged results after the commit."""
        clean_up(self.repo.storage, self.place)


def _require_digest(plan: StagedPlan, digest: str) -> None:
    """Raise ``InvalidInputError`` (``conflicting-arguments``) if a plan is that of other parameters."""
    if plan.digest != digest:
        raise conflicting(
            f"the job `{plan.job}` was started with other parameters or inputs, and was not committed. Run "
            "it with these, give this job another id, or discard the staged results with discard_job"
        )


def decode_round(data: bytes) -> tuple[int, ChangeSet]:
    """Return the number of tasks and the changes of a staged round, or raise ``FormatError``."""
    header, changes = split(data, 2)
    with reading("a staged round", KeyError):
        tasks = json.loads(header)["tasks"]
        if not isinstance(tasks, int) or not 0 <= tasks < _LARGEST_NUMBER:
            raise errors.FormatError(f"expected a number of tasks, got {tasks!r:.40}")
    return tasks, decode_changes(changes)


def _folder(repo: Repository, place: str) -> Folder:
    return Folder(repo.storage, f"{STAGING}/{place}")


def _unusable(job: str, reason: str) -> errors.JobRestartError:
    _log.warning("job %s: its staged results cannot be used and are discarded: %s", job, reason)
    return errors.JobRestartError(reason)


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
        data = _folder(repo, place).get("plan") if rest == "plan" else None
        plan = None if data is None else decode_plan(data)
        if plan is not None:
            prefix = f"{place}/{plan.folder}/"
            tasks = sum(each.startswith(prefix) and each[len(prefix) :].count("/") == 1 for each in names)
            started = to_datetime(plan.started)
            jobs.append(StagedJob(plan.job, plan.name, plan.branch, plan.base, started, tasks))
    return sorted(jobs, key=lambda job: job.started_at)


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
