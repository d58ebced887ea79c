"""The commit of a job, on top of commits of other sessions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from frazil import host
from frazil.changes.reads import ReadSet
from frazil.errors import ConflictError, ErrorKind, RebaseFailedError, StaleReadError
from frazil.jobs.inputs import of_job
from frazil.jobs.job_history import JobStart, find_job, first_driver_note
from frazil.jobs.versions import Target
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.interior import state_of
from frazil.repository.session.session import Session

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class JobCommit:
    """The commit of a job, as one value. ``reads`` are checked at each rebase."""

    id: str
    name: str
    work: str
    target: Target
    message: str
    metadata: dict[str, Any]
    reads: ReadSet
    start: JobStart


@dataclass(frozen=True, slots=True)
class Committed:
    """The snapshot with the result of a job. ``is_own``: this run committed it, not another driver."""

    snapshot_id: str
    is_own: bool


def commit_job(commit: JobCommit, session: Session) -> Committed:
    """Commit the session, and rebase it as often as other sessions commit first.

    Each rebase checks the reads of the job, and whether another driver has committed the job. The update of
    the commit checks the latter again, because a reset may bring the branch back to the same tip.
    """
    start = replace(commit.start, tip=session.snapshot_id)
    state_of(session).note = first_driver_note(commit.id, commit.work, commit.target, start)
    for tries in itertools.count():
        try:
            snapshot_id = session.commit(
                commit.message, commit.metadata, rebase_with=ConflictDetector(), rebase_tries=0
            )
            return Committed(snapshot_id, is_own=True)
        except ConflictError as error:
            if error.kind != ErrorKind.COMMIT_CONFLICT:
                raise
        host.pause(host.random_between(0, min(2.0**tries * _FIRST_PAUSE_S, _LONGEST_PAUSE_S)))
        other = _rebase(commit, session, start)
        if other is not None:
            return Committed(other, is_own=False)
    raise AssertionError("no end")


def _rebase(commit: JobCommit, session: Session, start: JobStart) -> str | None:
    """Rebase the session. Return the snapshot if another driver has committed the same job, else None."""
    target = commit.target
    try:
        session.rebase(ConflictDetector(), reads=[commit.reads])
    except RebaseFailedError as error:
        other = find_job(target, commit.id, start)
        if other is not None:
            return other
        if isinstance(error, StaleReadError):
            raise of_job(commit.name, error) from error
        raise
    return find_job(target, commit.id, start, session.snapshot_id)
