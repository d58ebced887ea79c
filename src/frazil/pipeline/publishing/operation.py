"""Write, audit, publish: work is checked on an audit branch before the branch of readers moves.

The branch moves in one step to a version that was checked. If other writers committed meanwhile, the commits
of the audit branch are rebased onto the new tip and checked again. A process may end after each step, and a
second run continues: the metadata of an empty commit hold the report.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from frazil import errors
from frazil.display import Record, Shown
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.handle.repository import Repository, context_of
from frazil.jobs.blocks import Limits
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.events import Run, run_events
from frazil.jobs.job import Target, Version, takes_versions
from frazil.jobs.job_history import entries_in_line, job_record
from frazil.jobs.job_run import live_inputs, of_job, reads_of
from frazil.jobs.progress import Summary, brief
from frazil.pipeline.derivation.refresh import refresh as refresh_arrays
from frazil.pipeline.validation.operation import validate
from frazil.pipeline.validation.rules import Report, Rule, require_sound, rules_from
from frazil.repository.catalog.ancestry import is_in_history, mentioning
from frazil.repository.catalog.history_records import (
    JOB,
    JobEntry,
    entries_of,
    publication_id,
    with_entries,
    without_entries,
)
from frazil.repository.catalog.presentation import snapshot_infos
from frazil.repository.catalog.protection import AUDIT
from frazil.repository.catalog.repo_changes import branch_tip
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.session.rebase import require_unchanged
from frazil.repository.session.session import state_of


@takes_versions
def publish(repo: Repository, branch: str, onto: str = "main", *, tag: str | None = None) -> str:
    """Fast-forward a branch to the tip of another branch.

    The branch does not move if it has all commits of the other branch already.

    Args:
        repo: The repository.
        branch: The name of the branch with the new commits.
        onto: The name of the branch that moves.
        tag: The name of a tag to create for the snapshot. The default, None, creates no tag.

    Returns:
        The id of the snapshot that ``onto`` points to.

    Raises:
        ConflictError: ``onto`` has commits that ``branch`` does not have, or gets a commit during the call
            (``branch-update-conflict``). ``repo.merge(branch, into=onto)`` merges both branches without a
            check.
        AlreadyExistsError: The tag exists at another snapshot, or was deleted (``tag-already-exists``).

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import publish
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.create_branch("new", repo.lookup_branch("main"))
        >>> with repo.transaction("new", message="data") as store:
        ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> publish(repo, "new") == repo.lookup_branch("main") == repo.lookup_branch("new")
        True
    """
    onto_tip, branch_tip_id = repo.lookup_branch(onto), repo.lookup_branch(branch)
    is_published = is_behind(repo, branch, onto)
    snapshot_id = onto_tip if is_published else branch_tip_id
    is_tagged = tag in repo.list_tags() and repo.lookup_tag(str(tag)) == snapshot_id
    if not is_tagged:
        require_new_tag(repo, tag)
    if not is_published:
        if not is_behind(repo, onto, branch):
            raise errors.ConflictError(
                onto_tip,
                branch_tip_id,
                f"`{onto}` must be in the history of `{branch}`, got commits on `{onto}` that `{branch}` "
                f'does not have. Merge both with repo.merge("{branch}", into="{onto}")',
                errors.ErrorKind.BRANCH_UPDATE_CONFLICT,
            )
        repo.reset_branch(onto, snapshot_id, from_snapshot_id=onto_tip)
    if tag is not None and not is_tagged:
        repo.create_tag(tag, snapshot_id)
    return snapshot_id


@takes_versions
def rollback_to(repo: Repository, branch: str, to: str | datetime) -> str:
    """Move a branch back to a version in its history.

    Later versions stay in the repository until they expire. ``repo.ops_log()`` lists the move.

    Args:
        repo: The repository.
        branch: The name of the branch that moves.
        to: The id of a snapshot, the name of a tag, or a time with a time zone, which means the last version
            at that time.

    Returns:
        The id of the snapshot that the branch points to.

    Raises:
        InvalidInputError: The snapshot is not in the history of the branch (``invalid-snapshot-id``), or the
            time has no time zone (``invalid-argument``).
        SnapshotNotFoundError: The time is before the first snapshot (``no-snapshot-at-time``).
        ConflictError: Another writer commits to the branch during the call.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import rollback_to
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> first = repo.lookup_branch("main")
        >>> later = repo.writable_session("main").commit("nothing new", allow_empty=True)
        >>> rollback_to(repo, "main", first) == repo.lookup_branch("main") == first
        True
    """
    tip = repo.lookup_branch(branch)
    snapshot_id = rollback_target(repo, branch, to)
    if snapshot_id != tip:
        repo.reset_branch(branch, snapshot_id, from_snapshot_id=tip)
    return snapshot_id


def rollback_target(repo: Repository, branch: str, to: str | datetime) -> str:
    """Return the id of the snapshot that a branch is moved back to: see `rollback_to`."""
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise errors.InvalidInputError(f"to must be a time with a time zone, got {to.isoformat()}")
        infos = repo.ancestry(branch=branch)
        last_id = next((info.id for info in infos if info.written_at <= to), None)
        if last_id is None:
            raise errors.SnapshotNotFoundError(
                f"to must not be before the first snapshot of `{branch}`, got {to.isoformat()}",
                errors.ErrorKind.NO_SNAPSHOT_AT_TIME,
            )
        return last_id
    snapshot_id = repo.lookup_tag(to) if to in repo.list_tags() else repo.lookup_snapshot(to).id
    info = context_of(repo).catalog.repo_info()
    if not is_in_history(info, id_from_text(snapshot_id), branch_tip(info, branch)):
        raise errors.InvalidInputError(
            f"to must be a snapshot in the history of `{branch}`, got {to}. Use repo.reset_branch to "
            "move the branch to any snapshot",
            errors.ErrorKind.INVALID_SNAPSHOT_ID,
        )
    return snapshot_id


def commits_ahead(repo: Repository, branch: str, base: str) -> list[SnapshotInfo]:
    """Return the commits of a branch that the branch ``base`` does not have, newest first."""
    info = context_of(repo).catalog.repo_info()
    snapshots = info.snapshots
    base_rows, rows = (
        snapshots.chain(snapshots.find_snapshot(branch_tip(info, name))) for name in (base, branch)
    )
    common = np.flatnonzero(np.isin(rows, base_rows))
    return snapshot_infos(list(snapshots.entries(rows[: common[0]] if len(common) else rows)))


def is_behind(repo: Repository, branch: str, other: str) -> bool:
    """Return whether the tip of a branch is in the history of another branch."""
    info = context_of(repo).catalog.repo_info()
    return is_in_history(info, branch_tip(info, branch), branch_tip(info, other))


def require_new_tag(repo: Repository, tag: str | None) -> None:
    """Raise ``AlreadyExistsError`` for a tag that cannot be created."""
    if tag is None:
        return
    if tag in repo.list_tags():
        raise errors.AlreadyExistsError(
            f"tag must be a new name, got `{tag}`, which points to {repo.lookup_tag(tag)}",
            errors.ErrorKind.TAG_ALREADY_EXISTS,
        )
    if tag in context_of(repo).catalog.repo_info().deleted_tags:
        raise errors.AlreadyExistsError(
            f"tag must be a new name, got `{tag}`, which was deleted. A deleted tag cannot be created again",
            errors.ErrorKind.TAG_ALREADY_EXISTS,
        )


def create_tag_once(repo: Repository, tag: str | None, snapshot_id: str) -> None:
    """Create a tag unless an earlier run has created it."""
    if tag is not None and tag not in repo.list_tags():
        repo.create_tag(tag, snapshot_id)


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
    """Return the snapshot of the branch whose audit has the job id, or None if no run has published it."""
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
    try:
        _require_current(audit, ahead if is_complete else [])
    except errors.StaleReadError:
        is_complete = False
    if not is_complete:
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
    except errors.StaleReadError:
        repo.reset_branch(name, repo.lookup_branch(audit.branch), from_snapshot_id=tip)
        raise
    commits = [info for info in reversed(ahead) if not _audit_of(info)]
    repo.reset_branch(name, repo.lookup_branch(audit.branch), from_snapshot_id=tip)
    try:
        for info in commits:
            repo.cherry_pick(info.id, onto=name, metadata=info.metadata)
    except errors.RebaseFailedError:
        repo.reset_branch(name, tip)
        raise


def _require_current(audit: Audit, ahead: Sequence[SnapshotInfo]) -> None:
    """Raise ``StaleReadError`` if other writers changed the inputs of these commits on the branch."""
    repo, context = audit.repo, context_of(audit.repo)
    tip = id_from_text(repo.lookup_branch(audit.branch))
    origin = ahead[-1].parent_id if ahead else None
    for info in reversed(ahead):
        record = job_record(info.metadata, info.id)
        name, inputs = ("", ()) if record is None else (str(record.name), record.inputs)
        starts = [(each.snapshot, each) for each in live_inputs(inputs, Target(repo, audit.branch))]
        audit_inputs = live_inputs(inputs, Target(repo, audit.audit_branch))
        starts += [(origin or each.snapshot, each) for each in audit_inputs]
        for start, each in starts:
            try:
                require_unchanged(context, reads_of([each]), id_from_text(start), tip)
            except errors.StaleReadError as error:
                raise of_job(name, error) from error


def commit_audit(audit: Audit, check: Callable[..., Report]) -> Report:
    """Check the tip of the audit branch, and store the report in an empty commit."""
    repo, name = audit.repo, audit.audit_branch
    version = Version.of(repo, branch=name)
    report = check(version, against=Version.of(repo, branch=audit.branch))
    rules = [rule.as_dict() for rule in audit.rules]
    record = {**report.as_json(), "id": audit.job_id, "branch": audit.branch, "rules": rules}
    verdict = "all rules hold" if report.ok else report.verdict()
    session = repo.writable_session(name)
    if session.snapshot_id != version.snapshot_id:
        raise errors.ConflictError(
            version.snapshot_id,
            session.snapshot_id,
            f"Another writer committed to `{name}` during the check. Pass another audit_branch to each "
            "pipeline",
        )
    if report.ok and audit.job_id is not None:
        id_ = publication_id(audit.job_id)

        def note(info: RepoInfo, snapshot: bytes) -> dict[str, Any]:  # replaces earlier records
            info = replace(info, metadata=without_entries(info, id_))
            return with_entries(info, [JobEntry(id_, snapshot, audit.branch)])

        state_of(session).note = note
    session.commit(f"Audit: {verdict}", {AUDIT: record}, allow_empty=True)
    return report


def delete_if_published(audit: Audit) -> None:
    """Delete the audit branch if the branch has all of its commits."""
    if audit.audit_branch in audit.repo.list_branches() and _is_published(audit):
        audit.repo.delete_branch(audit.audit_branch)


_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True, repr=False)
class PublishSummary(Summary):
    """The result of `write_audit_publish`.

    Attributes:
        version: The version of the branch.
        report: The report of the check; None if no commit had to be published.
        done_before: Whether no commit had to be published.
        value: The result of ``work``.
    """

    version: Version
    report: Report | None
    done_before: bool = False
    value: Any = None

    shown_as: ClassVar[str] = "pipeline.PublishSummary"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "snapshot", self.version.place()
        if self.done_before:
            yield "done before", "nothing had to be published"
        if self.report is not None:
            yield "rules", self.report.verdict()
        if self.value is not None:
            yield "value", brief(self.value)

    def _details(self) -> Iterable[tuple[str, Shown]]:
        if self.report is not None:
            yield "report", self.report
        if isinstance(self.value, Record):
            yield "value", self.value

    @property
    def snapshot_id(self) -> str:
        """The id of the snapshot of the version."""
        return self.version.snapshot_id


@takes_versions
def write_audit_publish(
    repo: Repository,
    work: Callable[[Target], Any],
    rules: Sequence[Rule] | str | Path,
    *,
    branch: str = "main",
    audit_branch: str | None = None,
    job_id: str | None = None,
    tag: str | None = None,
    engine: Engine | EngineName | None = None,
    limits: Limits | None = None,
    refresh: bool = False,
) -> PublishSummary:
    """Let a function write to an audit branch, check the result by rules, and publish it.

    Two pipelines that run at the same time need two audit branches.

    Args:
        repo: The repository.
        work: The function. It gets a `Target` for its jobs. ``target.repo.transaction(target.branch, ...)``
            works too.
        rules: A sequence of rules, or rules in YAML or JSON as a text or a file, see `rules_from`. Rules
            about statistics compare with ``branch``.
        branch: The name of the branch that is published to.
        audit_branch: The name of the audit branch. The default, None, is ``audit/<job_id or branch>``, with
            ``-`` instead of ``/`` in repositories of spec version 1.
        job_id: The id of the publication. If a publication with this id exists, the function is not called.
            The default, None, always calls the function.
        tag: The name of a tag to create for the published version. The default, None, creates no tag.
        engine: Where the tasks of the check run: an `Engine`, or ``"inline"``, ``"threads"``,
            ``"processes"``, ``"spark"`` or ``"sail"``. The default, None, is Spark where Spark is in use,
            else processes of this machine (`default_engine`).
        limits: `Limits`, in bytes: how much a task of the check reads. The default, None, is ``Limits()``.
        refresh: Whether the derived arrays of the audit branch are refreshed before the check, so that they
            are published together with the new data (`frazil.pipeline.refresh`).

    Returns:
        The `PublishSummary` version, with the report of the check.

    Raises:
        ValidationFailedError: A rule fails. The error has the report, and the audit branch stays until the
            next run.
        RebaseFailedError: Other writers changed the same nodes or chunks during the call.
        StaleReadError: Other writers changed the inputs of a job of ``work``, see `run_again_if_stale`.
        ConflictError: The branch moves 20 times during the checks, or another writer commits to the audit
            branch.
        AlreadyExistsError: The tag exists, or was deleted (``tag-already-exists``).
        InvalidInputError: ``audit_branch`` is the published branch (``invalid-ref-name``), or a rule is not
            valid (``invalid-argument``).

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import Exists, write_audit_publish
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> def work(target):
        ...     with target.repo.transaction(target.branch, message="new data") as store:
        ...         zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> published = write_audit_publish(repo, work, [Exists("/t")], engine="inline", job_id="monday")
        >>> published.report.ok, repo.list_branches()
        (True, {'main'})
        >>> write_audit_publish(repo, work, [Exists("/t")], job_id="monday").done_before
        True
    """
    all_rules = tuple(rules_from(rules) if isinstance(rules, str | Path) else map(require_sound, rules))
    audit_branch = audit_branch or f"audit{'/' if repo.spec_version > 1 else '-'}{job_id or branch}"
    if audit_branch == branch:
        raise errors.InvalidInputError(
            f"audit_branch must not be the published branch, got `{branch}` for both",
            errors.ErrorKind.INVALID_REF_NAME,
        )
    audit = Audit(repo, branch, audit_branch, all_rules, job_id)
    with run_events(Run("write_audit_publish", Target(repo, branch), writes=("/",), job_id=job_id)) as run:
        snapshot_id = published_snapshot(audit)
        if snapshot_id is not None:
            return run.set_result(_done_before(audit, tag, snapshot_id))
        report, value = earlier_report(audit), None
        if report is None:
            begin_audit_branch(audit)
            value = work(Target(repo, audit_branch))
            if refresh:
                refresh_arrays(repo, branch=audit_branch, engine=engine).apply()
            if is_behind(repo, audit_branch, branch):
                return run.set_result(_done_before(audit, tag, repo.lookup_branch(branch), value))
        require_new_tag(repo, tag)
        check = functools.partial(validate, rules=all_rules, engine=engine, limits=limits)
        snapshot_id, report = _check_and_publish(audit, report, check)
        create_tag_once(repo, tag, snapshot_id)
        delete_if_published(audit)
        return run.set_result(PublishSummary(Version(repo, snapshot_id, branch), report, value=value))


def _done_before(audit: Audit, tag: str | None, snapshot_id: str, value: Any = None) -> PublishSummary:
    """Return the result of a call without new commits."""
    delete_if_published(audit)
    create_tag_once(audit.repo, tag, snapshot_id)
    version = Version(audit.repo, snapshot_id, audit.branch)
    return PublishSummary(version, None, done_before=True, value=value)


def _check_and_publish(
    audit: Audit, report: Report | None, check: Callable[..., Report]
) -> tuple[str, Report]:
    """Check the audit branch unless ``report`` belongs to it, and publish it."""
    repo, branch = audit.repo, audit.branch
    for _ in range(_ATTEMPTS):
        if not is_behind(repo, branch, audit.audit_branch):  # other writers have committed
            rebase_audit_branch(audit)
            report = None
        if report is None:
            report = commit_audit(audit, check)
        report.raise_if_failed()
        try:
            return publish(repo, audit.audit_branch, branch), report
        except errors.ConflictError:
            continue
    raise errors.ConflictError(
        message=f"`{branch}` moved {_ATTEMPTS} times while `{audit.audit_branch}` was checked. Call "
        "write_audit_publish again",
        kind=errors.ErrorKind.BRANCH_UPDATE_CONFLICT,
    )
