"""The staged results of a job: what a second driver needs to continue the job.

    staging/<place>/plan                   JSON: the job, its snapshot, and the name of the folder below
    staging/<place>/<name>/0               the first round: the driver's changes, a digest of the items
    staging/<place>/<name>/0.<hash>/17     the result of its task 17, see ``task_results``
    staging/<place>/<name>/1 ...           further rounds, if the job has phases

Each object is put once, whole or not at all, and only if it does not exist: of two attempts of a task, or two
drivers of a job, the first wins, and both can use it. A second driver opens a session on the snapshot of the
first one, and runs ``prepare`` again: ``finish`` and the tasks need its values, with credentials that are
still valid. It then replaces its own changes with those of the first driver: new nodes have random ids, and
the staged results refer to these. The items have to be the same, byte by byte. If they are not, or the
snapshot is gone, or others changed the same nodes, the plan is discarded and the job starts again.

The hash is that of the round's file: results never meet a plan that they do not belong to.

Secrets are not staged: no storage, no shared value, no items. How long staged files live, and how garbage
collections spare them: `frazil.repository.session.staged_work`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, StorageError
from frazil.format.ids import id_to_text
from frazil.jobs import wire
from frazil.jobs.staged_round import StagedRound
from frazil.jobs.staging_folder import Folder
from frazil.jobs.staging_plan import Plan, decode_plan, encode_plan, has_base, session_at_base
from frazil.jobs.summary import Summary
from frazil.jobs.task_results import joined, split
from frazil.jobs.versions import takes_versions
from frazil.repository.clock import new_object_id, now_us, to_datetime
from frazil.repository.handle.repository import Repository
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.interior import state_of
from frazil.repository.session.session import Session
from frazil.repository.session.staged_work import (
    STAGING,
    clean_up,
    ends,
    give_up,
    has_ended,
    place_of,
    take_lease,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restart:
    """Why a job has to start again: its staged results are unusable, or another driver has started it."""

    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class StagedJob(Summary):
    """A job that started and has no commit yet. ``tasks`` counts its staged results."""

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

    ``resumed`` says that an earlier run has staged some of them. ``rounds`` is the folder of the rounds.
    """

    repo: Repository
    job: str
    place: str
    rounds: Folder
    session: Session
    resumed: bool

    @classmethod
    def open(cls, repo: Repository, branch: str, job: str, name: str, digest: str) -> Staging | Restart:
        """Continue what is staged for the job, or start.

        ``digest`` is a hash of all that decides what the tasks do. Raises ``InvalidInputError``
        (``conflicting-arguments``) if other work is staged under the same id.
        """
        place = place_of(branch, job)
        plan = _read_plan(repo, place)
        if plan is not None and plan.digest != digest:
            raise InvalidInputError(
                f"the job `{job}` started with other parameters or inputs, and was not committed: run it "
                "with these, give it another id, or give up its results with discard_job",
                ErrorKind.CONFLICTING_ARGUMENTS,
            )
        if plan is not None and (has_ended(plan.started) or not has_base(repo, plan)):
            _log.info("job %s: its plan has expired, or the snapshot that it started with", job)
            give_up(repo.storage, place)
            plan = None
        if plan is None:
            return cls._begin(repo, branch, job, name, digest)
        return cls._resume(repo, branch, plan)

    @classmethod
    def _begin(cls, repo: Repository, branch: str, job: str, name: str, digest: str) -> Staging | Restart:
        place, session = place_of(branch, job), repo.writable_session(branch)
        state = state_of(session)
        relied, started = state.session_start(), now_us()
        lease = take_lease(repo.storage, place, relied.since, started, _purpose(job, branch))
        plan = Plan(
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
            return Restart("another driver has started it at the same time")
        state.lease, state.since, state.expires_at = lease, relied.since, ends(started)
        rounds = _folder(repo, place).subfolder(plan.folder)
        return cls(repo, job, place, rounds, session, resumed=False)

    @classmethod
    def _resume(cls, repo: Repository, branch: str, plan: Plan) -> Staging | Restart:
        place, session = place_of(branch, plan.job), session_at_base(repo, branch, plan)
        purpose = _purpose(plan.job, branch)
        state_of(session).lease = take_lease(
            repo.storage, place, plan.since, plan.started, purpose, resumes=True
        )
        rounds = _folder(repo, place).subfolder(plan.folder)
        _log.info("job %s: continues with staged results", plan.job)
        conflict = _conflict(repo, branch, plan, rounds)
        if conflict is not None:
            clean_up(repo.storage, place)
            return _unusable(plan.job, str(conflict))
        return cls(repo, plan.job, place, rounds, session, resumed=True)

    def stage_round(self, number: int, session: Session, items: Sequence[bytes]) -> StagedRound | Restart:
        """A round of tasks, after ``prepare`` has changed the session. If another driver has staged this
        round, its changes replace those of the session.
        """
        session.workspace.writer.flush()  # nothing may refer to chunks that are not durable
        hashed = hashlib.sha256(b"".join(hashlib.sha256(item).digest() for item in items)).hexdigest()
        header = json.dumps({"tasks": len(items), "items": hashed}).encode()
        data = joined([header, wire.encode(session.workspace.changes)])
        if not self.rounds.put(str(number), data):
            data = self.rounds.get(str(number)) or data
            staged_header, changes = split(data, 2)
            if staged_header != header:
                self.discard()
                return _unusable(self.job, "`prepare` returned other items than before")
            session.workspace.replace_changes(wire.decode(changes))
        digest = hashlib.sha256(data).hexdigest()[:16]
        return StagedRound(self.rounds.subfolder(f"{number}.{digest}"))

    def has_results(self) -> bool:
        """Whether any task has staged its result."""
        try:
            return any(name.count("/") > 1 for name in _folder(self.repo, self.place).names())
        except StorageError:
            return True

    def discard(self) -> None:
        """Delete what is staged: it can never be committed."""
        give_up(self.repo.storage, self.place)

    def clean_up(self) -> None:
        """After the commit."""
        clean_up(self.repo.storage, self.place)


def _folder(repo: Repository, place: str) -> Folder:
    return Folder(repo.storage, f"{STAGING}/{place}")


def _read_plan(repo: Repository, place: str) -> Plan | None:
    """The plan of an earlier run. One of another version of Frazil is discarded."""
    data = _folder(repo, place).get("plan")
    plan = None if data is None else decode_plan(data)
    if data is not None and (plan is None or not plan.is_of_this_version):
        _log.warning("another version of Frazil has staged results: they are discarded, the job starts again")
        give_up(repo.storage, place)
        return None
    return plan


def _conflict(repo: Repository, branch: str, plan: Plan, rounds: Folder) -> IcechunkError | None:
    """Why the staged changes cannot be rebased to the tip of the branch: better known before the work."""
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


def _unusable(job: str, reason: str) -> Restart:
    _log.warning("job %s: its staged results cannot be used and are discarded: %s", job, reason)
    return Restart(reason)


def _purpose(job: str, branch: str) -> str:
    return f"job `{job}` on branch `{branch}`"


@takes_versions
def staged_jobs(repo: Repository) -> list[StagedJob]:
    """Jobs that started, and were neither committed nor given up, the oldest first."""
    names = Folder(repo.storage, STAGING).names()
    jobs = []
    for name in names:
        place, _, rest = name.partition("/")
        if rest == "plan":
            data = _folder(repo, place).get("plan")
            if data is not None and (plan := decode_plan(data)) is not None:
                jobs.append(_staged_job(plan, place, names))
    return sorted(jobs, key=lambda job: job.started_at)


def _staged_job(plan: Plan, place: str, names: Sequence[str]) -> StagedJob:
    prefix = f"{place}/{plan.folder}/"
    tasks = sum(name.startswith(prefix) and name[len(prefix) :].count("/") == 1 for name in names)
    return StagedJob(plan.job, plan.name, plan.branch, plan.base, to_datetime(plan.started), tasks)


@takes_versions
def discard_job(repo: Repository, job_id: str, branch: str = "main") -> None:
    """Give up a job that started and was not committed: what it has written is garbage from now on. Nothing
    happens if there is none. Do not call it while the job runs.
    """
    give_up(repo.storage, place_of(branch, job_id))
