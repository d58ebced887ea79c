"""The command ``frazil verify``: it looks for damaged and missing files of a repository."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from frazil.cli.command import LOCATION, verb
from frazil.cli.ingest_arguments import ENGINES
from frazil.cli.opening import repository_of, storage_of, virtual_access
from frazil.cli.output import Output, table
from frazil.cli.target import Target
from frazil.display import counted
from frazil.errors import ErrorKind, FormatError, IcechunkError, RepositoryNotFoundError
from frazil.extras import needs
from frazil.format.keys import REPO
from frazil.maintenance.verification.backups import newest_readable
from frazil.maintenance.verification.checks import LEVELS, Check, checks
from frazil.maintenance.verification.file_checks import read_finding
from frazil.maintenance.verification.findings import VerificationReport
from frazil.repository.handle.opening import HandleOptions, opened_before
from frazil.repository.handle.repository import Repository
from frazil.storage.base import Storage

#: The exit status if the repository has problems.
_PROBLEMS: Final = 1
#: The number of chunks of one finding that are printed. `--json` prints all.
_CHUNKS: Final = 5


_DESCRIPTION: Final = """\
Check a repository against the specification, and print what is damaged, missing or exchanged. The command
writes nothing into the repository, and may run beside writers. The exit status is 0 if there are no problems,
1 if there are some, and 2 for wrong arguments."""

_EXAMPLES: Final = """\
frazil verify s3://bucket/repo                          check the metadata
frazil verify repo --level exists                       also check that all files exist
frazil verify repo --level decode --state verify.state  decode every chunk; repeat the command to continue
frazil verify repo --json > report.json                 a report for programs
frazil verify --list-checks                             print all checks"""


@verb("verify", description=_DESCRIPTION, examples=_EXAMPLES)
@click.argument("location", type=LOCATION, required=False)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="metadata",
    help="How much is read: metadata, also which files exist, also every byte, also every chunk decoded "
    "(metadata).",
)
@click.option(
    "--state",
    metavar="FILE",
    help="Record the finished pieces of work in this file; a second run with it skips them.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    help="Where tasks run: in this process (inline), in processes of this machine (local), on Spark (auto: "
    "threads of this process).",
)
@click.option("--all", "everything", is_flag=True, help="Also print findings with the severity information.")
@click.option("--list-checks", is_flag=True, help="Only print all checks, and end.")
def command(
    output: Output, location: Target | None, list_checks: bool, everything: bool, **options: Any
) -> int:
    """Verify the repository, and print the report."""
    if list_checks:
        output.emit([_document(check) for check in checks], _listed_checks())
        return 0
    if location is None:
        raise click.UsageError("LOCATION is missing. --list-checks needs no LOCATION")
    try:
        report = _report(output, repository_of(location), **options)
    except (FormatError, RepositoryNotFoundError) as error:
        report = _of_damaged_repo(output, storage_of(location), error, **options)
    output.emit(json.loads(report.to_json()), [summary(report, everything=everything)])
    return 0 if report.ok else _PROBLEMS


def _of_damaged_repo(
    output: Output, storage: Storage, error: IcechunkError, **options: Any
) -> VerificationReport:
    """Verify the versions of the newest readable backup. Without a backup, ``repo`` is the only finding."""
    if error.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION:
        raise error
    backup = newest_readable(storage)
    if backup is not None:
        opened = opened_before(storage, HandleOptions(authorized=virtual_access()), backup[1])
        return _report(output, Repository(opened), **options)
    if storage.head(REPO) is None:  # there is no repository
        raise error
    return VerificationReport(options["level"], 0, 0, 0, 0, (read_finding(error, REPO),), {})


def _report(
    output: Output, repo: Repository, level: Any, state: str | None, engine: Any
) -> VerificationReport:
    if engine == "auto":
        with output.progress("verify") as bar:
            return repo.upkeep.verify(level, state=state, progress=bar)
    with needs("verify --engine", extra="pipeline"):
        from frazil.pipeline import Progress, verify

    with Progress("verify", 0) as progress:
        return verify(repo, level, engine=engine, state=state, progress=progress)


def _listed_checks() -> list[str]:
    return table(
        (check.name, check.level, check.severity.value, f"{check.rule} [{check.section}]") for check in checks
    )


def _document(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "section": check.section,
        "level": check.level,
        "severity": check.severity.value,
        "rule": check.rule,
        "action": check.action,
    }


def summary(report: VerificationReport, *, everything: bool = False) -> str:
    """Return a report as lines: one line of numbers, and two lines for each finding.

    >>> summary(VerificationReport("metadata", 2, 1, 7, 0, (), {}))
    'no problems: level metadata, 2 snapshots, 1 manifest, 7 references'
    """
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
