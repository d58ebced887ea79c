"""`write_audit_publish`: work on an audit branch, check it, and move the branch that readers use.

    branch     the audit branch starts at the branch that is published to, or has the work of an earlier run
    work       jobs and transactions on the audit branch
    audit      rules are checked; an empty commit holds the report
    publish    the branch is fast-forwarded, then the audit branch is deleted

A branch moves in one step, from exactly the version that the work started from. If others committed to the
branch meanwhile, the commits of the audit branch are rebased onto theirs and checked again: what is published
is what was checked. If others changed what jobs of the audit branch have read, nothing is published, and the
next run starts again. Where a rule does not hold the audit branch stays, with the report, and the branch that
readers use does not move.

A process may end after each step. A second run continues: work by jobs alone stays (the jobs return their
results), unless others changed what they have read; other work is done again; a checked version is only
published.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypedDict, Unpack

from frazil.display import Record, Shown
from frazil.errors import ConflictError, ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.memory import Limits
from frazil.jobs.run_options import with_options
from frazil.jobs.summary import Summary, brief
from frazil.jobs.versions import Target, Version, takes_versions
from frazil.pipeline.publishing.audit import (
    Audit,
    begin_audit_branch,
    commit_audit,
    delete_if_published,
    earlier_report,
    published_snapshot,
    rebase_audit_branch,
)
from frazil.pipeline.publishing.branches import create_tag_once, is_behind, publish, require_new_tag
from frazil.pipeline.validation.operation import validate
from frazil.pipeline.validation.report import Report
from frazil.pipeline.validation.rules import Rule, require_sound, rules_from
from frazil.repository.handle.repository import Repository

_ATTEMPTS: Final = 20


class AuditOptions(TypedDict, total=False):
    """How `write_audit_publish` checks the rules.

    engine      where the tasks of the check run: see `frazil.jobs.run_options.RunOptions`
    limits      `Limits`: how much a task of the check reads
    """

    engine: Engine | EngineName | None
    limits: Limits | None


@dataclass(frozen=True, slots=True)
class AuditRun:
    """The values of `AuditOptions`, with their defaults."""

    engine: Engine | EngineName | None = None
    limits: Limits | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Published(Summary):
    """The result of `write_audit_publish`: the version of the branch, and the report of its check.

    ``done_before``: nothing was to be published, and there is no report. ``value`` is the result of ``work``.
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
        """The id of the snapshot of the version."""
        return self.version.snapshot_id


@with_options(AuditOptions, AuditRun)
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
    **options: Unpack[AuditOptions],
) -> Published:
    """Let ``work`` write to a branch of its own, check it, and publish it to ``branch``.

    ``work`` gets a `Target` for its jobs; ``target.repo.transaction(target.branch, ...)`` works too.
    ``rules`` are rules, or rules in YAML or JSON, see `rules_from`; statistics are compared with ``branch``.
    ``audit_branch`` None is ``audit/<job_id or branch>`` (with a ``-`` in repositories of spec version 1):
    two pipelines that run at one time need two. With a ``job_id`` that was published before, nothing is
    done. ``tag`` is a name for the published version.

    Raises ``ValidationFailedError``, with the report, if a rule does not hold: the audit branch then stays
    until the next run; ``RebaseFailedError`` if others changed the same meanwhile; ``StaleReadError`` if they
    changed what a job of ``work`` has read (see ``run_again_if_stale``).

    >>> import frazil, zarr
    >>> from frazil.pipeline import Exists, Inline, write_audit_publish
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
    run = AuditRun(**options)
    all_rules = tuple(rules_from(rules) if isinstance(rules, str | Path) else map(require_sound, rules))
    audit_branch = audit_branch or f"audit{'/' if repo.spec_version > 1 else '-'}{job_id or branch}"
    if audit_branch == branch:
        raise InvalidInputError(
            f"audit_branch: expected another branch than `{branch}`", ErrorKind.INVALID_REF_NAME
        )
    audit = Audit(repo, branch, audit_branch, all_rules, job_id)
    snapshot_id = published_snapshot(audit)
    if snapshot_id is not None:
        return _done_before(audit, tag, snapshot_id)
    report, value = earlier_report(audit), None
    if report is None:
        begin_audit_branch(audit)
        value = work(Target(repo, audit_branch))
        if is_behind(repo, audit_branch, branch):
            return _done_before(audit, tag, repo.lookup_branch(branch), value)
    require_new_tag(repo, tag)
    check = functools.partial(validate, rules=all_rules, engine=run.engine, limits=run.limits)
    snapshot_id, report = _check_and_publish(audit, report, check)
    create_tag_once(repo, tag, snapshot_id)
    delete_if_published(audit)
    return Published(Version(repo, snapshot_id, branch), report, value=value)


def _done_before(audit: Audit, tag: str | None, snapshot_id: str, value: Any = None) -> Published:
    """The result where nothing is to be published. An earlier run may have left its branch, and no tag."""
    delete_if_published(audit)
    create_tag_once(audit.repo, tag, snapshot_id)
    version = Version(audit.repo, snapshot_id, audit.branch)
    return Published(version, None, done_before=True, value=value)


def _check_and_publish(
    audit: Audit, report: Report | None, check: Callable[..., Report]
) -> tuple[str, Report]:
    """Check the audit branch unless ``report`` is of it, and publish it: again after commits of others."""
    repo, branch = audit.repo, audit.branch
    for _ in range(_ATTEMPTS):
        if not is_behind(repo, branch, audit.audit_branch):  # others have committed
            rebase_audit_branch(audit)
            report = None
        if report is None:
            report = commit_audit(audit, check)
        report.raise_if_failed()
        try:
            return publish(repo, audit.audit_branch, branch), report
        except ConflictError:
            continue
    raise ConflictError(
        message=f"`{branch}` moved {_ATTEMPTS} times while `{audit.audit_branch}` was checked: run it again",
        kind=ErrorKind.BRANCH_UPDATE_CONFLICT,
    )
