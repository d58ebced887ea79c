"""A job's work before its commit, kept in the target's storage: what a second driver goes on from.

    staging/<place>/plan                   JSON: the job, what it is relative to, and a name for this try
    staging/<place>/<name>/0               the first round: the driver's changes, what the items were
    staging/<place>/<name>/0.<hash>/17     what its task 17 did, see ``results``
    staging/<place>/<name>/1 ...           further rounds, if the job has phases

Each is put once, whole or not at all, and only if it is not there: of two attempts of a task, or two drivers
of a job, the first is kept, and both can be used. A second driver opens a session on the snapshot that the
first one had, runs ``prepare`` again (for what it tells to ``finish`` and to the tasks, with credentials
that are still good), and then takes the first one's changes in place of its own: nodes that were created
have random ids, and the staged work is in terms of these. The items have to be the same, byte by byte. If
they are not, or the snapshot is gone, or somebody changed the same things, the plan is thrown away and begun
anew.

The hash is that of the round's file: work never meets a plan that it was not made for.

Secrets are not staged: no storage, no shared value, no items. How long all this is kept, and how garbage
collections spare it: `frazil.repository.session.staged_work`.
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
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, StorageError
from frazil.format.ids import id_from_text, id_to_text, is_id_text
from frazil.jobs import wire
from frazil.jobs.summary import Summary
from frazil.jobs.task_results import Result, decode_result, joined, split
from frazil.jobs.versions import takes_versions
from frazil.repository.catalog import repo_requirements
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.clock import new_object_id, now_us, to_datetime
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.interior import state_of
from frazil.repository.session.session import Session
from frazil.repository.session.session_state import SessionState
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

_log = logging.getLogger(__name__)

#: Of these files: another number, and what is there is thrown away.
_FORMAT: Final = 1


class Unusable(Exception):
    """What is staged cannot be gone on from: begin anew."""


class Begun(Exception):
    """Another driver has begun the same job at this moment: go on from what it has staged."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Objects below one key, each written once. Can be pickled, with its storage."""

    storage: Storage
    key: str

    def put(self, name: str, data: bytes) -> bool:
        """Write an object whole; False if there is one already, which stays."""
        return isinstance(self.storage.put(f"{self.key}/{name}", data, IfAbsent()), Stored)

    def get(self, name: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """An object, or a range of it; None if it is not there."""
        try:
            return bytes(self.storage.get(f"{self.key}/{name}", start, stop))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return None

    def names(self) -> list[str]:
        """Of all objects in it and below."""
        return [info.key[len(self.key) + 1 :] for info in self.storage.list(self.key)]

    def below(self, name: str) -> Folder:
        return Folder(self.storage, f"{self.key}/{name}")

    def delete(self) -> None:
        self.storage.delete([info.key for info in self.storage.list(self.key)])


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job that has begun is relative to.

    ``seen`` and ``since`` are those of its session (see `frazil.repository.catalog.collection_guard`).
    ``started`` is the time of its beginning: microseconds since 1970.
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


@dataclass(frozen=True, slots=True, repr=False)
class StagedJob(Summary):
    """A job that has begun and was not committed; ``tasks`` of it have staged what they did."""

    id: str
    name: str
    branch: str
    snapshot_id: str
    started_at: datetime
    tasks: int

    shown_as: ClassVar[str] = "pipeline.StagedJob"


class Staging:
    """What a run of a job stages, or has staged before.

    ``resumed`` says that there was a plan already. ``digest`` is a hash of all that decides what the tasks
    do. Raises ``InvalidInputError`` if the plan that is there is that of another work with the same id.
    """

    def __init__(self, repo: Repository, branch: str, job: str, name: str, digest: str) -> None:
        self._repo = repo
        self._branch = branch
        self._place = place_of(branch, job)
        self._folder = Folder(repo.storage, f"{STAGING}/{self._place}")
        found = self._read()
        if found is not None:
            if found.digest != digest:
                raise InvalidInputError(
                    f"the job `{job}` was begun with other parameters or inputs, and not committed: run it "
                    "with these, give it another id, or give up what it has done with discard_job",
                    ErrorKind.NOT_ALLOWED,
                )
            if has_ended(found.started) or not self._has_base(found):
                _log.info("job %s: its plan has expired, or the snapshot that it began with", job)
                give_up(repo.storage, self._place)
                found = None
        self.resumed = found is not None
        self.session = self._begin(job, name, digest) if found is None else self._resume(found)

    def _read(self) -> Plan | None:
        data = self._folder.get("plan")
        plan = None if data is None else _plan_of(data)
        if data is not None and (plan is None or (plan.format, plan.software) != (_FORMAT, __version__)):
            _log.warning("what another version of Frazil has staged is thrown away, and the job begun anew")
            give_up(self._repo.storage, self._place)
            return None
        return plan

    def _has_base(self, plan: Plan) -> bool:
        info = self._repo._context.catalog.repo_info()
        return bool(info.snapshots.find_snapshot(id_from_text(plan.base)) >= 0)

    def _begin(self, job: str, name: str, digest: str) -> Session:
        session = self._repo.writable_session(self._branch)
        state = state_of(session)
        relied, started = state.session_start(), now_us()
        storage = self._repo.storage
        lease = take_lease(storage, self._place, relied.since, started, _purpose(job, self._branch))
        plan = Plan(
            job,
            name,
            self._branch,
            digest,
            session.snapshot_id,
            relied.update,
            relied.since,
            started,
            id_to_text(new_object_id()),
        )
        if not self._folder.put("plan", json.dumps(asdict(plan)).encode()):
            raise Begun
        state.lease, state.since, state.expires_at = lease, relied.since, ends(started)
        self._rounds = self._folder.below(plan.folder)
        return session

    def _resume(self, plan: Plan) -> Session:
        repo = self._repo
        session = session_at(repo, self._branch, plan)
        state_of(session).lease = take_lease(
            repo.storage,
            self._place,
            plan.since,
            plan.started,
            _purpose(plan.job, self._branch),
            resumes=True,
        )
        self._rounds = self._folder.below(plan.folder)
        _log.info("job %s: goes on from what was staged", plan.job)
        first = self._rounds.get("0")
        if first is not None and repo.lookup_branch(self._branch) != plan.base:
            # Whoever changed what the job will change: better to know before the work than after.
            trial = session_at(repo, self._branch, plan)
            trial.workspace.replace_changes(wire.decode(split(first, 2)[1]))
            try:
                trial.rebase(ConflictDetector())
            except IcechunkError as error:
                raise Unusable(str(error)) from error
        return session

    def round(self, number: int, session: Session, items: Sequence[bytes]) -> Round:
        """A round of tasks, after the session was prepared for it. What another driver has prepared takes the
        place of that.

        Raises ``Unusable`` if that was for other items.
        """
        session.workspace.writer.flush()  # nothing may refer to chunks that are not durable
        hashed = hashlib.sha256(b"".join(hashlib.sha256(item).digest() for item in items)).hexdigest()
        said = json.dumps({"tasks": len(items), "items": hashed}).encode()
        data = joined([said, wire.encode(session.workspace.changes)])
        if not self._rounds.put(str(number), data):
            data = self._rounds.get(str(number)) or data
            known, changes = split(data, 2)
            if known != said:
                raise Unusable("`prepare` gave other items than before")
            session.workspace.replace_changes(wire.decode(changes))
        return Round(self._rounds.below(f"{number}.{hashlib.sha256(data).hexdigest()[:16]}"))

    def has_work(self) -> bool:
        """Whether any task has staged what it did."""
        try:
            return any(name.count("/") > 1 for name in self._folder.names())
        except StorageError:
            return True

    def throw_away(self) -> None:
        """Give up what is staged: it can never be committed."""
        give_up(self._repo.storage, self._place)

    def clean_up(self) -> None:
        """After the commit."""
        clean_up(self._repo.storage, self._place)


@dataclass(frozen=True, slots=True)
class Round:
    """Where the tasks of a round put what they did, by number."""

    folder: Folder

    def put(self, number: int, result: bytes) -> None:
        self.folder.put(str(number), result)

    def get(self, number: int, module: str) -> bytes | None:
        """What one task did, if that is there and can be used; ``module`` has the work function."""
        data = self.folder.get(str(number))
        return None if data is None or _usable(number, data, module) is None else data

    def results(self, module: str) -> Iterator[tuple[int, Result]]:
        """What is there and can be used."""
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
        _log.warning("task %d is done again: %s", number, error)
        return None
    return result if result.ends > now_us() else None


def _purpose(job: str, branch: str) -> str:
    return f"job `{job}` on branch `{branch}`"


def _plan_of(data: bytes) -> Plan | None:
    """None for damaged bytes."""
    try:
        plan = Plan(**json.loads(data))
    except (ValueError, TypeError):
        return None
    numbers = plan.seen, plan.since, plan.started
    texts = plan.job, plan.name, plan.branch, plan.digest, plan.software
    ids = plan.base, plan.folder
    is_whole = all(isinstance(each, int) and 0 <= each < 1 << 57 for each in numbers) and all(
        isinstance(each, str) for each in texts
    )
    return plan if is_whole and all(isinstance(id_, str) and is_id_text(id_) for id_ in ids) else None


def session_at(repo: Repository, branch: str, plan: Plan) -> Session:
    """A session for the branch that starts where the plan did."""
    context = context_of(repo)
    repo_requirements.branch_tip(context.catalog.repo_info(), branch)
    workspace = Workspace(context, id_from_text(plan.base), None, ChangeSet())
    return Session(
        SessionState(
            workspace,
            branch,
            SessionMode.writable,
            ends(plan.started),
            dict(repo._default_metadata),
            seen=plan.seen,
            since=plan.since,
        )
    )


@takes_versions
def staged_jobs(repo: Repository) -> list[StagedJob]:
    """Jobs that were begun and neither committed nor given up, the oldest first."""
    names = Folder(repo.storage, STAGING).names()
    out = []
    for name in names:
        place, _, rest = name.partition("/")
        if rest == "plan":
            data = Folder(repo.storage, f"{STAGING}/{place}").get("plan")
            if data is not None and (plan := _plan_of(data)) is not None:
                out.append(_listed(plan, place, names))
    return sorted(out, key=lambda job: job.started_at)


def _listed(plan: Plan, place: str, names: Sequence[str]) -> StagedJob:
    inside = f"{place}/{plan.folder}/"
    tasks = sum(name.startswith(inside) and name[len(inside) :].count("/") == 1 for name in names)
    return StagedJob(plan.job, plan.name, plan.branch, plan.base, to_datetime(plan.started), tasks)


@takes_versions
def discard_job(repo: Repository, job_id: str, branch: str = "main") -> None:
    """Give up a job that was begun and not committed: what it has written is garbage from now on. Nothing
    happens if there is none. Not to be called while it runs.
    """
    give_up(repo.storage, place_of(branch, job_id))
