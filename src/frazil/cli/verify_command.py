"""The command ``frazil verify``: it looks for damaged and missing files of a repository."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from frazil.cli.command import Command
from frazil.cli.ingest_arguments import ENGINES
from frazil.display import counted
from frazil.extras import needs
from frazil.repository.catalog.checks import LEVELS, Check, checks
from frazil.repository.catalog.findings import VerificationReport
from frazil.repository.handle.repository import Repository
from frazil.storage.url_parts import COMMON_URLS
from frazil.storage.urls import storage_from_url

#: The exit status if the repository has problems.
_PROBLEMS: Final = 1
_USAGE: Final = 2
#: The number of chunks of one finding that are printed. `--json` prints all.
_CHUNKS: Final = 5


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("location", metavar="LOCATION", nargs="?", help=COMMON_URLS)
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="metadata",
        help="how much is read: metadata, also which files exist, also every byte, also every chunk "
        "decoded (metadata)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--state",
        metavar="FILE",
        help="record the finished pieces of work in this file; a second run with it skips them",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="where tasks run: in this process (inline), in processes of this machine (local), on Spark "
        "(auto: threads of this process)",
    )
    parser.add_argument(
        "--all", action="store_true", help="also print findings with the severity information"
    )
    parser.add_argument("--list-checks", action="store_true", help="only print all checks, and end")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.list_checks:
        print(_listed_checks(as_json=arguments.json))
        return 0
    if arguments.location is None:
        print("frazil verify: LOCATION is missing. --list-checks needs no LOCATION", file=sys.stderr)
        return _USAGE
    report = _report(Repository.open(storage_from_url(arguments.location)), arguments)
    print(report.to_json() if arguments.json else summary(report, everything=arguments.all))
    return 0 if report.ok else _PROBLEMS


def _report(repo: Repository, arguments: argparse.Namespace) -> VerificationReport:
    if arguments.engine == "auto":
        return repo.verify(arguments.level, state=arguments.state)
    with needs("verify --engine", extra="pipeline"):
        from frazil.pipeline import Progress, verify

    with Progress("verify", 0) as progress:
        return verify(
            repo, arguments.level, engine=arguments.engine, state=arguments.state, progress=progress
        )


def _listed_checks(*, as_json: bool) -> str:
    if as_json:
        return json.dumps([_document(check) for check in checks], indent=2, ensure_ascii=False)
    names, levels, severities = (
        max(len(getattr(check, name)) for check in checks) for name in ("name", "level", "severity")
    )
    return "\n".join(
        f"{check.name:<{names}}  {check.level:<{levels}}  {check.severity.value:<{severities}}  "
        f"{check.rule} [{check.section}]"
        for check in checks
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
            lines.append(f"  chunks: {', '.join(chunks)}{more}")
        lines.append(f"  {each.action}")
    return "\n".join(lines)


VERIFY: Final = Command(
    "verify",
    help="look for damaged and missing files of a repository",
    description="""\
Check a repository against the specification, and print what is damaged, missing or exchanged. The command
writes nothing into the repository, and may run beside writers. The exit status is 0 if there are no problems,
1 if there are some, and 2 for wrong arguments.""",
    epilog="""\
examples:
  frazil verify s3://bucket/repo                          check the metadata
  frazil verify repo --level exists                       also check that all files exist
  frazil verify repo --level decode --state verify.state  decode every chunk; repeat the command to continue
  frazil verify repo --json > report.json                 a report for programs
  frazil verify --list-checks                             print all checks""",
    declare=_declare,
    run=_run,
)
