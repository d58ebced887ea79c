"""Finds the commit of a branch that is the result of a job.

given id      the commit in the history of the branch whose job record has this id
derived id    the same, if the nodes that the commit wrote have not changed since. Otherwise the job runs
              again, and its id gets a suffix: a digest of the present state of these nodes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import id_from_text, id_to_text
from frazil.jobs.job import Job
from frazil.jobs.job_identity import JOB, derived_id, work_digest
from frazil.jobs.versions import Target, digest
from frazil.repository.catalog.history import mentioning
from frazil.repository.handle.interior import context_of


@dataclass(frozen=True, slots=True)
class JobState:
    """The id of a job, and the snapshot of its commit; None if the job has to run."""

    id: str
    snapshot_id: str | None


@dataclass(frozen=True, slots=True)
class _Commit:
    snapshot_id: str
    record: dict[str, Any]


def job_state(job: Job, tip: str) -> JobState:
    """Return the id of the job, and its commit if the history of the snapshot ``tip`` has it.

    Raises:
        InvalidInputError: ``conflicting-arguments`` if a commit of another job has the same id.
    """
    return _derived_state(job, tip) if job.id is None else _given_state(job, job.id, tip)


def _given_state(job: Job, id_: str, tip: str) -> JobState:
    commit = _find_commit(job.target, tip, id_, lambda record: record.get("id") == id_)
    if commit is None:
        return JobState(id_, None)
    if commit.record.get("work", work_digest(job)) != work_digest(job):
        raise InvalidInputError(
            f"the job `{id_}` was committed as {commit.snapshot_id}, with another name or other parameters. "
            "Give this job another id",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    return JobState(id_, commit.snapshot_id)


def _derived_state(job: Job, tip: str) -> JobState:
    repo, id_ = job.target.repo, derived_id(job)
    commit = _find_commit(job.target, tip, id_, lambda record: _without_suffix(record) == id_)
    if commit is None:
        return JobState(id_, None)
    current = digest(repo.readonly_session(snapshot_id=tip), job.writes)
    if current == digest(repo.readonly_session(snapshot_id=commit.snapshot_id), job.writes):
        return JobState(commit.record["id"], commit.snapshot_id)
    return JobState(f"{id_}-{current[:8]}", None)


def _without_suffix(record: dict[str, Any]) -> str:
    return str(record.get("id")).partition("-")[0]


def find_job(target: Target, id_: str, tip: str | None = None, *, until: str | None = None) -> str | None:
    """Return the snapshot of the commit of a job, if the history of ``tip`` (None: of the branch) has it.

    With ``until``, only commits after this snapshot are searched.
    """
    tip = tip or target.repo.lookup_branch(target.branch)
    commit = _find_commit(target, tip, id_, lambda record: record.get("id") == id_, until)
    return None if commit is None else commit.snapshot_id


def _find_commit(
    target: Target, tip: str, text: str, is_wanted: Callable[[dict[str, Any]], bool], until: str | None = None
) -> _Commit | None:
    """Return the newest commit whose job record contains ``text`` and is wanted; None if there is none.

    Only metadata with this text are decoded, because the history of a job that runs each hour is long.
    """
    info = context_of(target.repo).catalog.repo_info()
    end = None if until is None else id_from_text(until)
    for entry in mentioning(info, id_from_text(tip), JOB, text, until=end):
        record = entry.metadata.get(JOB)
        if isinstance(record, dict) and is_wanted(record):
            return _Commit(id_to_text(entry.id), record)
    return None
