"""Write to an audit branch, check it, and move the branch that readers use.

    branch     the audit branch starts at the published branch, or has the work of an earlier run
    work       jobs and transactions on the audit branch
    audit      rules are checked; an empty commit holds the report
    publish    the branch is fast-forwarded, then the audit branch is deleted

The branch moves in one step, from exactly the version that the work started from. If other writers committed
to the branch meanwhile, the commits of the audit branch are rebased onto the new tip and checked again. So
every published version was checked. If other writers changed the inputs of jobs on the audit branch, the
version is not published, and the next run starts again. If a rule fails, the audit branch stays, with the
report, and the branch that readers use does not move.

A process may end after each step, and a second run continues. If jobs made all commits of the audit branch,
these commits stay, and the jobs return their results, unless other writers changed the inputs of the jobs.
Other work is repeated. A version that was checked is published without another check.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from frazil.display import Record, Shown
from frazil.errors import ConflictError, ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.memory import Limits
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


@dataclass(frozen=True, slots=True, repr=False)
class Published(Summary):
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

    shown_as: ClassVar[str] = "pipeline.Published"

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
) -> Published:
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
        engine: Where the tasks of the check run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``.
            The default, None, is Spark where Spark is in use, else processes of this machine
            (`default_engine`).
        limits: `Limits`, in bytes: how much a task of the check reads. The default, None, is ``Limits()``.

    Returns:
        The `Published` version, with the report of the check.

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
        raise InvalidInputError(
            f"audit_branch must not be the published branch, got `{branch}` for both",
            ErrorKind.INVALID_REF_NAME,
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
    check = functools.partial(validate, rules=all_rules, engine=engine, limits=limits)
    snapshot_id, report = _check_and_publish(audit, report, check)
    create_tag_once(repo, tag, snapshot_id)
    delete_if_published(audit)
    return Published(Version(repo, snapshot_id, branch), report, value=value)


def _done_before(audit: Audit, tag: str | None, snapshot_id: str, value: Any = None) -> Published:
    """Return the result of a call without new commits.

    An earlier run may have left its audit branch, and may not have created the tag.
    """
    delete_if_published(audit)
    create_tag_once(audit.repo, tag, snapshot_id)
    version = Version(audit.repo, snapshot_id, audit.branch)
    return Published(version, None, done_before=True, value=value)


def _check_and_publish(
    audit: Audit, report: Report | None, check: Callable[..., Report]
) -> tuple[str, Report]:
    """Check the audit branch unless ``report`` belongs to it, and publish it.

    The check is repeated after commits of other writers.
    """
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
        except ConflictError:
            continue
    raise ConflictError(
        message=f"`{branch}` moved {_ATTEMPTS} times while `{audit.audit_branch}` was checked. Call "
        "write_audit_publish again",
        kind=ErrorKind.BRANCH_UPDATE_CONFLICT,
    )
