"""Write, audit, publish: nobody reads what was not checked.

    branch     from the branch that is published to, or what an earlier run has left
    work       jobs and transactions on it
    audit      rules are checked; an empty commit keeps the report
    publish    fast-forward the branch, then delete the audit branch

A branch moves in one step, from exactly the version that the work started from; if others committed there
meanwhile, the commits of the audit branch are picked onto theirs and the rules are checked again: what is
published is what was checked. If they changed what jobs of the audit branch have read, nothing is published,
and the next run begins anew. Where the rules fail the audit branch stays, with the report, and the branch
that readers use has never moved.

Each step can be the last of a process. A second run finds what the first has left: work done by jobs alone
is kept (they find that they are done), unless others changed what they have read; other work is begun anew; a
checked version is only published.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from frazil.display import Record, Shown
from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    InvalidInputError,
    RebaseFailedError,
    SnapshotNotFoundError,
    StaleReadError,
)
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.repo_info import SnapshotEntry
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.inputs import live_inputs, of_job, reads_of
from frazil.jobs.job import JOB
from frazil.jobs.memory import Limits
from frazil.jobs.summary import Summary, brief
from frazil.jobs.versions import Input, Target, Version, takes_versions
from frazil.pipeline.validation.checks import validate
from frazil.pipeline.validation.report import Report
from frazil.pipeline.validation.rules import Rule, as_json, require_sound, rules_from
from frazil.repository.catalog.history import is_in_history, mentioning
from frazil.repository.catalog.presentation import snapshot_infos
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.repository.session.stale_reads import require_unchanged

#: Under this key of a commit's metadata is the report of an audit.
AUDIT: Final = "frazil_audit"
_TRIES: Final = 20


@dataclass(frozen=True, slots=True, repr=False)
class Published(Summary):
    """What became of it. ``done_before``: there was nothing to publish; then there is no report.

    ``value`` is what ``work`` returned.
    """

    version: Version
    report: Report | None
    done_before: bool = False
    value: Any = None

    shown_as: ClassVar[str] = "pipeline.Published"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "snapshot", self.version.place()
        if self.done_before:
            yield "done before", "there was nothing to publish"
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
) -> Published:
    """Let ``work`` write to a branch of its own, check it, and publish it to ``branch``.

    ``work`` gets a `Target` for its jobs (``target.repo.transaction(target.branch, ...)`` is good too).
    ``audit_branch`` is ``audit/<job_id or branch>`` unless told (with a ``-`` in repositories of spec version
    1): two pipelines that run at one time need two.
    With a ``job_id`` that was published before, nothing is done. ``tag``: a name for what is published.
    Rules compare statistics with ``branch`` as it is.

    Raises ``ValidationFailedError``, with the report, if a rule fails: the audit branch then stays until the
    next run; ``RebaseFailedError`` if others changed the same meanwhile; ``StaleReadError`` if they changed
    what a job of ``work`` has read (see ``run_again_if_stale``).

    >>> import frazil, zarr
    >>> from frazil.spark import Exists, Inline, write_audit_publish
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> def work(target):
    ...     with target.repo.transaction(target.branch, message="new data") as store:
    ...         zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
    >>> published = write_audit_publish(repo, work, [Exists("/t")], engine=Inline(), job_id="monday")
    >>> published.report.ok, repo.list_branches()
    (True, {'main'})
    >>> write_audit_publish(repo, work, [Exists("/t")], job_id="monday").done_before
    True
    """
    wanted = tuple(rules_from(rules) if isinstance(rules, str | Path) else map(require_sound, rules))
    audit = audit_branch or f"audit{'/' if repo.spec_version > 1 else '-'}{job_id or branch}"
    if audit == branch:
        raise InvalidInputError(
            f"audit_branch: expected another branch than `{branch}`", ErrorKind.INVALID_REF_NAME
        )
    if job_id is not None and (done := _published(repo, branch, job_id)) is not None:
        _delete_if_published(repo, audit, branch)
        _tag(repo, tag, done)
        return Published(Version(repo, done, branch), None, done_before=True)
    check = functools.partial(validate, rules=wanted, engine=engine, limits=limits)
    report = _checked_before(repo, audit, branch, wanted, job_id)
    value: Any = None
    if report is None:
        _begin(repo, audit, branch)
        value = work(Target(repo, audit))
        if _is_behind(repo, audit, branch):
            done = repo.lookup_branch(branch)
            _delete_if_published(repo, audit, branch)
            _tag(repo, tag, done)
            return Published(Version(repo, done, branch), None, done_before=True, value=value)
    _require_new(repo, tag)
    for _ in range(_TRIES):
        if not _is_behind(repo, branch, audit):  # others have committed
            _take_along(repo, audit, branch)
            report = None
        if report is None:
            report = _audited(repo, audit, branch, wanted, job_id, check)
        report.raise_if_failed()
        try:
            snapshot_id = publish(repo, audit, branch)
        except ConflictError:
            continue
        _tag(repo, tag, snapshot_id)
        _delete_if_published(repo, audit, branch)
        return Published(Version(repo, snapshot_id, branch), report, value=value)
    raise ConflictError(
        message=f"`{branch}` moved {_TRIES} times while `{audit}` was checked: run it again",
        kind=ErrorKind.BRANCH_UPDATE_CONFLICT,
    )


@takes_versions
def publish(repo: Repository, branch: str, onto: str = "main", *, tag: str | None = None) -> str:
    """Fast-forward ``onto`` to ``branch``; the snapshot. Does nothing if it has all of it already.

    Raises ``ConflictError`` (``branch-update-conflict``) if ``onto`` has commits that ``branch`` does not
    have, or gets some at this moment: ``repo.merge(branch, into=onto)`` brings both together, unchecked.
    """
    before, after = repo.lookup_branch(onto), repo.lookup_branch(branch)
    done = _is_behind(repo, branch, onto)
    after = before if done else after
    tagged = tag in repo.list_tags() and repo.lookup_tag(str(tag)) == after
    if not tagged:
        _require_new(repo, tag)
    if done:
        pass
    elif not _is_behind(repo, onto, branch):
        raise ConflictError(
            before,
            after,
            f"expected `{onto}` to be in the history of `{branch}`, found commits of its own: to bring "
            f'both together use repo.merge("{branch}", into="{onto}")',
            ErrorKind.BRANCH_UPDATE_CONFLICT,
        )
    else:
        repo.reset_branch(onto, after, from_snapshot_id=before)
    if tag is not None and not tagged:
        repo.create_tag(tag, after)
    return after


@takes_versions
def rollback_to(repo: Repository, branch: str, to: str | datetime) -> str:
    """Let a branch point to a version of its own past again: a snapshot, a tag, or the last one at a time.

    What came later stays in the repository until it is expired; ``repo.ops_log()`` tells. Raises
    ``InvalidInputError`` (``invalid-snapshot-id``) for a snapshot that the branch does not come from,
    ``SnapshotNotFoundError`` for a time before the first, and ``ConflictError`` if somebody commits at this
    moment.
    """
    tip = repo.lookup_branch(branch)
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise InvalidInputError(
                f"expected a time with a time zone, found {to.isoformat()}", ErrorKind.NOT_ALLOWED
            )
        found = next((info.id for info in repo.ancestry(branch=branch) if info.written_at <= to), None)
        if found is None:
            raise SnapshotNotFoundError(
                f"no snapshot of `{branch}` is as old as {to.isoformat()}", ErrorKind.NO_SNAPSHOT_AT_TIME
            )
    else:
        found = repo.lookup_tag(to) if to in repo.list_tags() else repo.lookup_snapshot(to).id
        if not is_in_history(context_of(repo).catalog.repo_info(), id_from_text(found), id_from_text(tip)):
            raise InvalidInputError(
                f"expected a snapshot in the history of `{branch}`, found {to}, which is not; to let the "
                "branch point there anyway use repo.reset_branch",
                ErrorKind.INVALID_SNAPSHOT_ID,
            )
    if found != tip:
        repo.reset_branch(branch, found, from_snapshot_id=tip)
    return found


# Steps


def _require_new(repo: Repository, tag: str | None) -> None:
    """Before anything is published: afterwards it would be without its tag."""
    if tag is None:
        return
    if tag in repo.list_tags():
        raise AlreadyExistsError(
            f"tag: expected a new name, found `{tag}` at {repo.lookup_tag(tag)}", ErrorKind.TAG_ALREADY_EXISTS
        )
    if tag in context_of(repo).catalog.repo_info().deleted_tags:
        raise AlreadyExistsError(
            f"tag: expected a new name, found `{tag}`, which was deleted and is never used again",
            ErrorKind.TAG_ALREADY_EXISTS,
        )


def _ahead(repo: Repository, audit: str, branch: str) -> list[SnapshotInfo]:
    """Commits of the audit branch that the branch has not, newest first."""
    info = context_of(repo).catalog.repo_info()
    snapshots = info.snapshots
    there, rows = (
        snapshots.chain(snapshots.find_snapshot(branch_tip(info, name))) for name in (branch, audit)
    )
    common = np.flatnonzero(np.isin(rows, there))
    return snapshot_infos(list(snapshots.entries(rows[: common[0]] if len(common) else rows)))


def _is_behind(repo: Repository, branch: str, other: str) -> bool:
    """Whether a branch is in the history of another."""
    info = context_of(repo).catalog.repo_info()
    return is_in_history(info, branch_tip(info, branch), branch_tip(info, other))


def _said(info: SnapshotInfo | SnapshotEntry) -> dict[str, Any]:
    told = info.metadata.get(AUDIT)
    return told if isinstance(told, dict) else {}


def _published(repo: Repository, branch: str, job_id: str) -> str | None:
    info = context_of(repo).catalog.repo_info()
    audits = mentioning(info, branch_tip(info, branch), AUDIT, job_id)
    return next((id_to_text(entry.id) for entry in audits if _said(entry).get("id") == job_id), None)


def _checked_before(
    repo: Repository, audit: str, branch: str, rules: tuple[Rule, ...], job_id: str | None
) -> Report | None:
    """The report of an earlier run that had only to publish."""
    if audit not in repo.list_branches():
        return None
    tip = next(iter(_ahead(repo, audit, branch)), None)
    told = {} if tip is None else _said(tip)
    if not told.get("ok") or told.get("rules") != list(map(as_json, rules)) or told.get("id") != job_id:
        return None
    return Report.from_json(told)


def _begin(repo: Repository, audit: str, branch: str) -> None:
    """An audit branch: a new one, or the one of an earlier run if jobs have written all of it."""
    tip = repo.lookup_branch(branch)
    if audit not in repo.list_branches():
        repo.create_branch(audit, tip)
        return
    ahead = _ahead(repo, audit, branch)
    is_whole = bool(ahead) and all(JOB in info.metadata for info in ahead)
    if not is_whole or not _is_current(repo, audit, branch, ahead):
        repo.reset_branch(audit, tip, from_snapshot_id=repo.lookup_branch(audit))


def _take_along(repo: Repository, audit: str, branch: str) -> None:
    """The commits of the audit branch again, on top of what others have committed to the branch.

    ``RebaseFailedError`` if both changed the same; the audit branch is then as it was. ``StaleReadError`` if
    others changed what was read; the audit branch is then empty, as its work is of no use.
    """
    tip = repo.lookup_branch(audit)
    ahead = _ahead(repo, audit, branch)
    try:
        _require_current(repo, audit, branch, ahead)
    except StaleReadError:
        repo.reset_branch(audit, repo.lookup_branch(branch), from_snapshot_id=tip)
        raise
    commits = [info for info in reversed(ahead) if not _said(info)]
    repo.reset_branch(audit, repo.lookup_branch(branch), from_snapshot_id=tip)
    try:
        for info in commits:
            repo.cherry_pick(info.id, onto=audit, metadata=info.metadata)
    except RebaseFailedError:
        repo.reset_branch(audit, tip)
        raise


def _require_current(repo: Repository, audit: str, branch: str, ahead: Sequence[SnapshotInfo]) -> None:
    """Raises ``StaleReadError`` if others changed on ``branch`` what jobs of these commits have read, there
    or on the audit branch, which is as ``branch`` was when it began.
    """
    context, tip = context_of(repo), id_from_text(repo.lookup_branch(branch))
    origin = ahead[-1].parent_id if ahead else None
    for info in reversed(ahead):
        name, inputs = _inputs(info)
        starts = [(each.snapshot, each) for each in live_inputs(inputs, Target(repo, branch))]
        starts += [(origin or each.snapshot, each) for each in live_inputs(inputs, Target(repo, audit))]
        for start, each in starts:
            try:
                require_unchanged(context, reads_of([each]), id_from_text(start), tip)
            except StaleReadError as error:
                raise of_job(name, error) from error


def _is_current(repo: Repository, audit: str, branch: str, ahead: Sequence[SnapshotInfo]) -> bool:
    try:
        _require_current(repo, audit, branch, ahead)
    except StaleReadError:
        return False
    return True


def _inputs(info: SnapshotInfo) -> tuple[str, list[Input]]:
    """The job of a commit, and the inputs that its metadata name."""
    told = info.metadata.get(JOB)
    if not isinstance(told, dict):
        return "", []
    inputs = [
        Input(each["repository"], each["branch"], each["snapshot"], tuple(each["paths"]), each["digest"])
        for each in told.get("inputs", ())
    ]
    return str(told.get("name")), inputs


def _audited(
    repo: Repository,
    audit: str,
    branch: str,
    rules: tuple[Rule, ...],
    job_id: str | None,
    check: Callable[..., Report],
) -> Report:
    """Check the tip of the audit branch, and keep the report in an empty commit."""
    checked = Version.of(repo, branch=audit)
    report = check(checked, against=Version.of(repo, branch=branch))
    told = {**report.as_json(), "id": job_id, "branch": branch, "rules": list(map(as_json, rules))}
    verdict = "all rules hold" if report.ok else f"{len(report.failed)} of {len(report.rows)} rules failed"
    session = repo.writable_session(audit)
    if session.snapshot_id != checked.snapshot_id:
        raise ConflictError(
            checked.snapshot_id,
            session.snapshot_id,
            f"expected nobody else to write to `{audit}` while it is checked, found another commit: give "
            "each pipeline an audit branch of its own",
        )
    session.commit(f"Audit: {verdict}", {AUDIT: told}, allow_empty=True)
    return report


def _delete_if_published(repo: Repository, audit: str, branch: str) -> None:
    if audit in repo.list_branches() and _is_behind(repo, audit, branch):
        repo.delete_branch(audit)


def _tag(repo: Repository, tag: str | None, snapshot_id: str) -> None:
    """Unless it is there: what was done before has its tag from then."""
    if tag is not None and tag not in repo.list_tags():
        repo.create_tag(tag, snapshot_id)
