"""``frazil doctor``: what makes a repository slow, expensive or unsafe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.opening import repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.display import counted

_DESCRIPTION: Final = """\
Look for what makes a repository slow, expensive or unsafe, and print the command that fixes each finding:
small chunk files, many backups, manifests that are too large or too small, stale leases, files of jobs,
containers, protections. It changes nothing. The exit status is 1 if there are findings. `frazil verify`
checks whether the files are correct."""

_EXAMPLES: Final = """\
frazil doctor ice          the findings
frazil doctor ice --json   for programs"""


@verb("doctor", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
def command(output: Output, target: Target) -> int:
    """Print the findings."""
    report = repository_of(target).upkeep.doctor()
    documents = [
        {
            "check": each.check,
            "subject": each.subject,
            "detail": each.detail,
            "command": each.remedy.for_shell(output.location),
        }
        for each in report.findings
    ]
    document = {"checks": list(report.checks), "findings": documents}
    output.emit(document, _lines(output, document), pages=True)
    return 0 if report.ok else 1


def _lines(output: Output, document: dict[str, Any]) -> Iterator[str]:
    if not document["findings"]:
        yield f"no findings in {counted(len(document['checks']), 'check')}"
    for each in document["findings"]:
        yield f"{output.paint(each['check'], 'change')}: {each['subject']}: {each['detail']}"
        yield f"    {each['command']}"
