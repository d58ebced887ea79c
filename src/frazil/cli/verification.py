"""Commands that look for damage and repair it: verify, repair."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

import click

from frazil.cli.arguments import LOCATION, Location
from frazil.cli.command import argument, option, verb
from frazil.cli.opening import Opened, author_metadata, storage_of, virtual_access
from frazil.cli.output import Output, table
from frazil.cli.target import Target
from frazil.display import counted
from frazil.errors import ErrorKind, FormatError, IcechunkError, RepositoryNotFoundError
from frazil.extras import needs
from frazil.format.ids import REPO
from frazil.maintenance.repair.repair_plan import DetachedSnapshot, RepairPlan
from frazil.maintenance.verification.files import read_finding
from frazil.maintenance.verification.findings import LEVELS, VerificationReport, VerifyLevel, checks
from frazil.maintenance.verification.repo_state import newest_readable
from frazil.repository.handle.opening import HandleOptions, opened_before
from frazil.repository.handle.repository import Repository
from frazil.storage.base import Storage

#: The number of chunks of one finding that are printed. `--json` prints all.
_CHUNKS: Final = 5
_Level = Annotated[VerifyLevel, option(type=click.Choice(LEVELS))]


@verb("verify")
def verify(
    output: Output,
    location: Annotated[Target | None, argument(type=LOCATION, required=False)],
    state: Annotated[str | None, option(metavar="FILE")],
    everything: Annotated[bool, option("--all")],
    list_checks: bool,
    level: _Level = "metadata",
    engine: Literal["auto", "inline", "local", "spark"] = "auto",
) -> int:
    """Check a repository against the specification, and print what is damaged, missing or exchanged.

    The command writes nothing into the repository, and may run beside writers. The exit status is 0 if there
    are no problems, 1 if there are some, and 2 for wrong arguments.

    Args:
        state: Record the finished pieces of work in this file; a second run with it skips them.
        everything: Also print findings with the severity information.
        list_checks: Only print all checks, and end.
        level: How much is read: metadata, also which files exist, also every byte, also every chunk decoded.
        engine: Where tasks run: in this process (inline), in processes of this machine (local), on Spark, or
            in threads of this process.

    Examples:
        frazil verify s3://bucket/repo                          check the metadata
        frazil verify repo --level exists                       also check that all files exist
        frazil verify repo --level decode --state verify.state  decode every chunk; repeat to continue
        frazil verify repo --json > report.json                 a report for programs
        frazil verify --list-checks                             print all checks
    """
    if list_checks:
        names = ("name", "section", "level", "severity", "rule", "action")
        documents = [{name: getattr(check, name) for name in names} for check in checks]
        rows = (
            (each.name, each.level, each.severity.value, f"{each.rule} [{each.section}]") for each in checks
        )
        output.emit(documents, table(rows))
        return 0
    if location is None:
        raise click.UsageError("LOCATION is missing. --list-checks needs no LOCATION")
    try:
        report = _report(output, Opened(location).repo, level, state, engine)
    except (FormatError, RepositoryNotFoundError) as error:
        report = _of_damaged_repo(output, storage_of(location), error, level, state, engine)
    output.emit(json.loads(report.to_json()), [summary(report, everything=everything)])
    return 0 if report.ok else 1


def _of_damaged_repo(
    output: Output, storage: Storage, error: IcechunkError, level: Any, state: str | None, engine: str
) -> VerificationReport:
    """Verify the versions of the newest readable backup. Without a backup, ``repo`` is the only finding."""
    if error.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION:
        raise error
    backup = newest_readable(storage)
    if backup is not None:
        opened = opened_before(storage, HandleOptions(authorized=virtual_access()), backup[1])
        return _report(output, Repository(opened), level, state, engine)
    if storage.head(REPO) is None:  # there is no repository
        raise error
    return VerificationReport(level, 0, 0, 0, 0, (read_finding(error, REPO),), {})


def _report(
    output: Output, repo: Repository, level: Any, state: str | None, engine: Any
) -> VerificationReport:
    if engine == "auto":
        with output.progress("verify") as bar:
            return repo.upkeep.verify(level, state=state, progress=bar)
    with needs("verify --engine", extra="pipeline"):
        from frazil.pipeline import Progress

    with Progress("verify", 0) as progress:
        return repo.upkeep.verify(level, engine=engine, state=state, progress=progress)


def summary(report: VerificationReport, *, everything: bool = False) -> str:
    """Return a report as lines: one line of numbers, and two lines for each finding."""
    shown = report.findings if everything else report.problems
    numbers = (
        f"level {report.level}, {counted(report.snapshots, 'snapshot')}, "
        f"{counted(report.manifests, 'manifest')}, {counted(report.references, 'reference')}"
    )
    numbers += f", {report.bytes_read:,} bytes of chunks" if report.bytes_read else ""
    problems = len(report.problems)
    lines = [f"{counted(problems, 'problem') if problems else 'no problems'}: {numbers}"]
    for each in shown:
        path = report.paths.get(each.node)
        chunks = [str(at) for at in each.coordinates[:_CHUNKS].tolist()]
        more = f" and {len(each.coordinates) - _CHUNKS} more" if len(each.coordinates) > _CHUNKS else ""
        where = f" of `{path}`" if path else ""
        lines.append(f"{each.severity.value}: {each.check}: {each.key}{where}: {each.detail}")
        if chunks:
            number = counted(len(each.coordinates), "chunk")
            lines.append(f"  {number}: {', '.join(chunks)}{more}")
        if each.affected.snapshots or each.affected.arrays:
            lines.append(f"  affected: {each.affected}")
        lines.append(f"  {each.action}")
    return "\n".join(lines)


@verb("repair", commits=True)
def repair(
    output: Output,
    location: Location,
    copy: Annotated[tuple[Target, ...], option(metavar="LOCATION", type=LOCATION)],
    recover: Annotated[tuple[tuple[str, str], ...], option(metavar="SNAPSHOT BRANCH", type=(str, str))],
    dry_run: bool,
    yes: bool,
    level: _Level = "exists",
    lost: Literal["keep", "fill", "previous"] = "keep",
) -> int:
    """Look for lost, damaged and exchanged files, and print the steps that repair them without a guess.

    With --yes, also make the steps. Files that are replaced are put aside below `quarantine/`; no file is
    deleted.

    The exit status is 0 if there is no damage, or if --yes repaired all damage. It is 1 if there is damage
    that was not repaired, and after an error. It is 2 for wrong arguments.

    Args:
        copy: A copy of the repository, also an older or partial one; may be repeated.
        recover: Put a detached snapshot of the plan on the branch that it belongs to; may be repeated, the
            oldest snapshot first.
        dry_run: Only print the plan (the default).
        yes: Apply the plan.
        level: How to look for damage, as in `frazil verify`.
        lost: Chunks without a copy: change nothing, or make a commit in which they have the fill value or the
            data of an older version.

    Examples:
        frazil repair ice                                   print the plan
        frazil repair ice --copy s3://bucket/backup --yes   repair, also with files of a copy
        frazil repair ice --lost fill --yes                 cells of chunks without a copy become missing
        frazil repair ice --recover KMT725G7Z0ZJ dev --yes  put a detached snapshot of the plan on a branch
    """
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other")
    storage = storage_of(location)
    copies = [storage_of(each) for each in copy]
    plan = Repository.upkeep.repair(storage, copies=copies, level=level, lost=lost)
    if yes:
        plan = plan.apply(metadata=author_metadata())
    recovered = [_recover(storage, plan, *each) for each in recover] if yes else []
    left = [each for each in plan.detached if each.id not in recovered]
    document = {**plan.as_dict(), "recovered": recovered}
    output.emit(document, [str(plan), *_next_commands(plan, left, location)])
    done = plan.complete and not left if yes else plan.ok
    return 0 if done else 1


def _recover(storage: Storage, plan: RepairPlan, snapshot: str, branch: str) -> str:
    """Put a snapshot on a branch. ``snapshot`` is an id, or the beginning of an id of the plan."""
    whole = [each.id for each in plan.detached if each.id.startswith(snapshot.upper())]
    return Repository.open(storage).upkeep.recover(whole[0] if len(whole) == 1 else snapshot, branch)


def _next_commands(plan: RepairPlan, left: Sequence[DetachedSnapshot], location: Target) -> Iterator[str]:
    """Yield the commands that go on where the plan needs a decision."""
    repair = f"frazil repair {location.location}"
    if plan.lost and not any(each.action == "commit" for each in plan.steps):
        yield f"to give lost chunks missing values: {repair} --lost fill --yes"
        yield f"to give lost chunks the data of an older version: {repair} --lost previous --yes"
    for each in left:
        for branch in each.branches or ("NEW_BRANCH",):
            yield f"to put {each.id} on `{branch}`: {repair} --recover {each.id} {branch} --yes"
