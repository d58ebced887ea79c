"""The audit branch: work is committed to it and checked on it, before another branch moves.

The metadata of an empty commit hold the report of the check. With it, a later run knows how far an earlier
run came. If this commit leaves the history, because of a squash, an expiration or an amend, a record in the
metadata of the repository names a version with its changes (``frazil.jobs``). Spec version 1 has no such
records: there, a publication whose commit was removed runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from frazil.errors import ConflictError, RebaseFailedError, StaleReadError
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.jobs.inputs import live_inputs, of_job, reads_of
from frazil.jobs.job_history import entries_in_line
from frazil.jobs.job_record import job_record
from frazil.jobs.versions import Input, Target, Version
from frazil.pipeline.publishing.branches import commits_ahead
from frazil.pipeline.validation.report import Report
from frazil.pipeline.validation.rules import Rule
from frazil.repository.catalog.history import mentioning
from frazil.repository.catalog.job_entry import JOB, JobEntry, publication_id
from frazil.repository.catalog.job_records import (
    entries_of,
    with_entries,
    without_entries,
)
from frazil.repository.catalog.protection import AUDIT
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.repository.session.interior import state_of
from frazil.repository.session.stale_reads import require_unchanged


@dataclass(frozen=True, slots=True)
class Audit:
    """One publication: the work on ``audit_branch`` is checked by ``rules``, then ``branch`` moves to it."""

    repo: Repository
    branch: str
    audit_branch: str
    rules: tuple[Rule, ...]
    job_id: str | None


def _audit_of(info: SnapshotInfo | SnapshotEntry) -> dict[str, Any]:
    """Return the audit that a commit records; empty for other commits."""
    record = info.metadata.get(AUDIT)
    return record if isinstance(record, dict) else {}


def published_snapshot(audit: Audit) -> str | None:
    """Return the snapshot of the branch whose audit has the job id, or None if no run has published it.

    If this snapshot was removed, it is the oldest version of the branch that has its changes.
    """
    if audit.job_id is None:
        return None
    info = context_of(audit.repo).catalog.repo_info()
    tip = branch_tip(info, audit.branch)
    for entry in mentioning(info, tip, AUDIT, audit.job_id):
        if _audit_of(entry).get("id") == audit.job_id:
            return id_to_text(entry.id)
    records = [each for each in entries_of(info) if each.id == publication_id(audit.job_id)]
    return next((id_to_text(each.snapshot) for each in entries_in_line(info, tip, records)), None)


def _is_published(audit: Audit) -> bool:
    """Return whether the branch has all commits of the audit branch, also those removed or replaced."""
    info = context_of(audit.repo).catalog.repo_info()
    commit = JobEntry("", branch_tip(info, audit.audit_branch))
    return bool(entries_in_line(info, branch_tip(info, audit.branch), [commit]))


def earlier_report(audit: Audit) -> Report | None:
    """Return the report of an earlier run that checked the audit branch by these rules without publishing."""
    if audit.audit_branch not in audit.repo.list_branches() or _is_published(audit):
        return None
    tip = next(iter(commits_ahead(audit.repo, audit.audit_branch, audit.branch)), None)
    record = {} if tip is None else _audit_of(tip)
    if not record.get("ok") or record.get("rules") != [rule.as_dict() for rule in audit.rules]:
        return None
    return Report.from_json(record) if record.get("id") == audit.job_id else None


def begin_audit_branch(audit: Audit) -> None:
    """Create the audit branch, or reset the audit branch of an earlier run.

    An existing audit branch stays if jobs made all of its commits, and the inputs of these jobs did not
    change since: the jobs of this run then return the earlier results.
    """
    repo, name = audit.repo, audit.audit_branch
    tip = repo.lookup_branch(audit.branch)
    if name not in repo.list_branches():
        repo.create_branch(name, tip)
        return
    ahead = commits_ahead(repo, name, audit.branch)
    is_complete = bool(ahead) and all(JOB in info.metadata for info in ahead)
    if not is_complete or not _is_current(audit, ahead):
        repo.reset_branch(name, tip, from_snapshot_id=repo.lookup_branch(name))


def rebase_audit_branch(audit: Audit) -> None:
    """Rebase the commits of the audit branch onto the commits of other writers to the published branch.

    Raises ``RebaseFailedError`` if both sides changed the same nodes or chunks; the audit branch stays
    unchanged then. Raises ``StaleReadError`` if other writers changed the inputs of the jobs; the audit
    branch is reset then, as its results are out of date.
    """
    repo, name = audit.repo, audit.audit_branch
    tip = repo.lookup_branch(name)
    ahead = commits_ahead(repo, name, audit.branch)
    try:
        _require_current(audit, ahead)
    except StaleReadError:
        repo.reset_branch(name, repo.lookup_branch(audit.branch), from_snapshot_id=tip)
        raise
    commits = [info for info in reversed(ahead) if not _audit_of(info)]
    repo.reset_branch(name, repo.lookup_branch(audit.branch), from_snapshot_id=tip)
    try:
        for info in commits:
            repo.cherry_pick(info.id, onto=name, metadata=info.metadata)
    except RebaseFailedError:
        repo.reset_branch(name, tip)
        raise


def _require_current(audit: Audit, ahead: Sequence[SnapshotInfo]) -> None:
    """Raise ``StaleReadError`` if other writers changed the inputs of these commits on the published branch.

    The jobs read the branch, or the audit branch, which starts as a copy of it.
    """
    repo, context = audit.repo, context_of(audit.repo)
    tip = id_from_text(repo.lookup_branch(audit.branch))
    origin = ahead[-1].parent_id if ahead else None
    for info in reversed(ahead):
        name, inputs = _job_inputs(info)
        starts = [(each.snapshot, each) for each in live_inputs(inputs, Target(repo, audit.branch))]
        audit_inputs = live_inputs(inputs, Target(repo, audit.audit_branch))
        starts += [(origin or each.snapshot, each) for each in audit_inputs]
        for start, each in starts:
            try:
                require_unchanged(context, reads_of([each]), id_from_text(start), tip)
            except StaleReadError as error:
                raise of_job(name, error) from error


def _is_current(audit: Audit, ahead: Sequence[SnapshotInfo]) -> bool:
    try:
        _require_current(audit, ahead)
    except StaleReadError:
        return False
    return True


def _job_inputs(info: SnapshotInfo) -> tuple[str, list[Input]]:
    """Return the name of the job of a commit, and the inputs that its metadata list."""
    record = job_record(info.metadata, info.id)
    return ("", []) if record is None else (str(record.name), list(record.inputs))


def commit_audit(audit: Audit, check: Callable[..., Report]) -> Report:
    """Check the tip of the audit branch, and store the report in an empty commit.

    ``check`` is called as `validate`. Raises ``ConflictError`` if another writer commits to the audit branch.
    """
    repo, name = audit.repo, audit.audit_branch
    version = Version.of(repo, branch=name)
    report = check(version, against=Version.of(repo, branch=audit.branch))
    rules = [rule.as_dict() for rule in audit.rules]
    record = {**report.as_json(), "id": audit.job_id, "branch": audit.branch, "rules": rules}
    verdict = "all rules hold" if report.ok else report.verdict()
    session = repo.writable_session(name)
    if session.snapshot_id != version.snapshot_id:
        raise ConflictError(
            version.snapshot_id,
            session.snapshot_id,
            f"Another writer committed to `{name}` during the check. Pass another audit_branch to each "
            "pipeline",
        )
    if report.ok and audit.job_id is not None:
        state_of(session).note = partial(_with_record, id_=publication_id(audit.job_id), branch=audit.branch)
    session.commit(f"Audit: {verdict}", {AUDIT: record}, allow_empty=True)
    return report


def _with_record(info: RepoInfo, snapshot: bytes, *, id_: str, branch: str) -> dict[str, Any]:
    """Return the metadata of the repository with the record of a publication. It replaces earlier ones."""
    info = replace(info, metadata=without_entries(info, id_))
    return with_entries(info, [JobEntry(id_, snapshot, branch)])


def delete_if_published(audit: Audit) -> None:
    """Delete the audit branch if the branch has all of its commits."""
    if audit.audit_branch in audit.repo.list_branches() and _is_published(audit):
        audit.repo.delete_branch(audit.audit_branch)
