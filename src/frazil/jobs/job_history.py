"""Finds the commit of a branch that is the result of a job.

given id      the commit in the history of the branch whose job record has this id
derived id    the same, if the nodes that the commit wrote have not changed since. Otherwise the job runs
              again, and its id gets a suffix: a digest of the present state of these nodes

If the commit is not in the history any more, because of a squash, an expiration or an amend, a record in the
metadata of the repository names a version with its changes (`frazil.repository.catalog.job_records`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from frazil.errors import ConflictError, ErrorKind, InvalidInputError
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.jobs.job import Job
from frazil.jobs.job_identity import derived_id, work_digest
from frazil.jobs.later_changes import is_unchanged_since
from frazil.jobs.versions import Target, digest
from frazil.repository.catalog.history import mentioning
from frazil.repository.catalog.job_entry import JOB, JobEntry
from frazil.repository.catalog.job_records import entries_of, with_entries, with_replacements
from frazil.repository.catalog.line import BranchHistory
from frazil.repository.handle.interior import context_of


@dataclass(frozen=True, slots=True)
class JobState:
    """The id of a job, and the snapshot of its commit; None if the job has to run."""

    id: str
    snapshot_id: str | None


@dataclass(frozen=True, slots=True)
class JobStart:
    """The state of a branch when a driver starts: its tip, and the snapshots of all records of jobs."""

    tip: str
    recorded: frozenset[bytes] = field(default_factory=frozenset)

    @staticmethod
    def of(target: Target) -> JobStart:
        """Return the present state. The records are read first, so none of them is newer than the tip."""
        recorded = frozenset(each.snapshot for each in entries_of(_info(target)))
        return JobStart(target.repo.lookup_branch(target.branch), recorded)


@dataclass(frozen=True, slots=True)
class _Commit:
    """The commit of a job: its snapshot, and its record. ``removed`` is its id if it left the history."""

    snapshot_id: str
    record: dict[str, Any]
    removed: bytes | None = None


def _info(target: Target) -> RepoInfo:
    return context_of(target.repo).catalog.repo_info()


def job_state(job: Job, tip: str) -> JobState:
    """Return the id of the job, and its commit if the history of the snapshot ``tip`` has it."""
    return _derived_state(job, tip) if job.id is None else _given_state(job, job.id, tip)


def _given_state(job: Job, id_: str, tip: str) -> JobState:
    commit = _find_commit(job.target, tip, id_, lambda record: record.get("id") == id_)
    if commit is None:
        commit = next(iter(_removed_commits(job.target, tip, lambda entry: entry.id == id_)), None)
    if commit is None:
        return JobState(id_, None)
    if commit.record.get("work", work_digest(job)) != work_digest(job):
        raise InvalidInputError(
            f"the job `{id_}` was committed as {commit.snapshot_id}, with {_difference(job, commit.record)}. "
            "Give this job another id",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    return JobState(id_, commit.snapshot_id)


def _difference(job: Job, record: dict[str, Any]) -> str:
    """Return the first difference between a job and the record of a commit with the same id."""
    if "name" not in record:  # the record of a commit that has left the history
        return "another name or other parameters"
    if record["name"] != job.name:
        return f"the operation {record.get('name')!r} instead of {job.name!r}"
    before, now = record.get("parameters") or {}, json.loads(json.dumps(dict(job.parameters), default=str))
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return f"other {' and '.join(names) or 'targets'}"


def _derived_state(job: Job, tip: str) -> JobState:
    repo, id_ = job.target.repo, derived_id(job)
    commit = _find_commit(job.target, tip, id_, lambda record: _without_suffix(record) == id_)
    if commit is None:
        removed = _removed_commits(job.target, tip, lambda entry: entry.id.partition("-")[0] == id_)
        commit = next(iter(removed), None)
    if commit is None:
        return JobState(id_, None)
    current = digest(repo.readonly_session(snapshot_id=tip), job.writes)
    after = repo.readonly_session(snapshot_id=commit.snapshot_id)
    is_same = current == digest(after, job.writes)
    if is_same and (commit.removed is None or is_unchanged_since(commit.removed, after, job.writes)):
        return JobState(commit.record["id"], commit.snapshot_id)
    return JobState(f"{id_}-{current[:8]}", None)


def _without_suffix(record: dict[str, Any]) -> str:
    return str(record.get("id")).partition("-")[0]


def find_job(target: Target, id_: str, start: JobStart, tip: str | None = None) -> str | None:
    """Return the snapshot of the commit of a job that another driver has made since this one started."""
    tip = tip or target.repo.lookup_branch(target.branch)
    commit = _find_commit(target, tip, id_, lambda record: record.get("id") == id_, start.tip)
    if commit is not None:
        return commit.snapshot_id
    other = other_commit(_info(target), id_from_text(tip), (id_, target.branch), start.recorded)
    return None if other is None else id_to_text(other)


def _find_commit(
    target: Target, tip: str, text: str, is_wanted: Callable[[dict[str, Any]], bool], until: str | None = None
) -> _Commit | None:
    """Return the newest commit whose job record contains ``text`` and is wanted; None if there is none.

    With ``until``, only commits after this snapshot are searched. Only metadata with this text are decoded,
    because the history of a job that runs each hour is long.
    """
    end = None if until is None else id_from_text(until)
    for entry in mentioning(_info(target), id_from_text(tip), JOB, text, until=end):
        record = entry.metadata.get(JOB)
        if isinstance(record, dict) and is_wanted(record):
            return _Commit(id_to_text(entry.id), record)
    return None


def _removed_commits(target: Target, tip: str, is_wanted: Callable[[JobEntry], bool]) -> list[_Commit]:
    """Return versions with the changes of removed commits, for records that are wanted, newest first."""
    info = _info(target)
    wanted = filter(is_wanted, entries_of(info))
    return [
        _Commit(id_to_text(each.snapshot), _record_of(each), each.commit)
        for each in entries_in_line(info, id_from_text(tip), wanted)
    ]


def _record_of(entry: JobEntry) -> dict[str, Any]:
    return {"id": entry.id, "work": entry.work} if entry.work else {"id": entry.id}


def first_driver_note(
    id_: str, work: str, target: Target, start: JobStart
) -> Callable[[RepoInfo, bytes], dict[str, Any]]:
    """Return the change of the metadata of the repository in the commit of a job.

    It adds the record of the job. It raises ``ConflictError`` (``commit-conflict``) if another driver has
    committed the job, even if a reset or a squash has removed this commit from the branch since.
    """

    def note(info: RepoInfo, snapshot: bytes) -> dict[str, Any]:
        other = other_commit(info, snapshot, (id_, target.branch), start.recorded)
        if other is not None:
            raise ConflictError(start.tip, id_to_text(other), kind=ErrorKind.COMMIT_CONFLICT)
        return with_entries(info, [JobEntry(id_, snapshot, target.branch, work)])

    return note


def entries_in_line(info: RepoInfo, tip: bytes, entries: Iterable[JobEntry]) -> list[JobEntry]:
    """Return those of some records whose commits are in the history of a snapshot, with listed snapshots."""
    every = list(with_replacements(info, entries))
    if not every:
        return []
    line = BranchHistory.of(info, tip)
    contained = line.contains([each.snapshot for each in every]).tolist()
    return [
        entry.in_version(line.holder(entry.snapshot))
        for entry, is_in in zip(every, contained, strict=True)
        if is_in
    ]


def other_commit(
    info: RepoInfo, tip: bytes, job: tuple[str, str], earlier: Collection[bytes]
) -> bytes | None:
    """Return the commit of another driver of a job, or the version that has its changes; None if none has."""
    id_, branch = job
    entries = [each for each in entries_of(info) if each.id == id_ and each.snapshot not in earlier]
    contained = entries_in_line(info, tip, entries)
    reset = [each for each in entries if each.branch == branch]
    return next((each.snapshot for each in (*contained, *reset)), None)
