"""``frazil bisect``: the first version that fails a check."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from frazil.cli.changes import source_text
from frazil.cli.command import VERSION, target_argument, verb
from frazil.cli.opening import repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.version_text import MAIN
from frazil.cli.versions import SHORT, clock
from frazil.display import counted
from frazil.extras import needs
from frazil.lazy_names import value_of

_DESCRIPTION: Final = """\
Find the first version that fails a check, by binary search between the version GOOD, which passes, and the
version of TARGET (default: `main`), which fails. The check is a file of rules (--rules, as for
`frazil.pipeline.validate`), or a program behind `--`: the exit status 0 means good, 1 to 127 bad. In its
arguments, {} stands for the location with the version to check.

With a path, versions whose commit did not change this node are not checked."""

_EXAMPLES: Final = """\
frazil bisect ice v1 --rules rules.yaml          with rules
frazil bisect ice:era5/t v1 -- python check.py {}
                                                 with a program, for one array"""

#: From this status on, a program was ended by a signal, or could not start.
_BROKEN: Final = 128


@verb("bisect", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(metavar="LOCATION[@VERSION][:PATH]")
@click.argument("good", type=VERSION)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM...]")
@click.option(
    "--rules", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A file with rules."
)
def command(output: Output, target: Target, good: str, program: tuple[str, ...], rules: Path | None) -> None:
    """Search the version, and print it."""
    if (rules is None) == (not program):
        raise click.UsageError("name either --rules FILE or a program behind `--`")
    repo = repository_of(target)
    check: Any = _program_check(output, target, program)
    if rules is not None:
        with needs("--rules", extra="pipeline"):
            from frazil.pipeline import RuleCheck, rules_from
        check = RuleCheck(repo, rules_from(rules))
    ends = [source_text(repo, text) for text in (good, target.version or MAIN)]
    report = repo.history.bisect(check, good=ends[0], bad=ends[1], path=target.path)
    document = {
        "first_bad": report.first_bad.id,
        "last_good": report.last_good.id,
        "message": report.first_bad.message,
        "versions": report.versions,
        "skipped": report.skipped,
        "checks": [{"id": id_, "good": is_good} for id_, is_good in report.checks],
    }
    lines = [
        f"{name}  {output.paint(each.id[:SHORT], 'id')}  {clock(each.written_at)}  {each.message}".partition(
            "\n"
        )[0]
        for name, each in (("first bad", report.first_bad), ("last good", report.last_good))
    ]
    checks = f"{counted(len(report.checks), 'check')} of {counted(report.versions, 'version')}"
    output.emit(document, [*lines, checks])


def _program_check(output: Output, target: Target, program: tuple[str, ...]) -> Callable[[Any], bool]:
    """Return a check that runs a program."""

    def check(session: Any) -> bool:
        text = str(replace(target, version=session.snapshot_id))
        arguments = [each.replace("{}", text) for each in program]
        try:
            # what the program prints is no part of the result
            run = value_of("subprocess:run")(arguments, stdout=2, env={**os.environ, "FRAZIL_TARGET": text})
        except OSError as error:
            raise click.UsageError(f"the program {program[0]} does not start: {error.strerror}") from error
        status: int = run.returncode
        if not 0 <= status < _BROKEN:
            raise click.ClickException(f"the program ended with the status {status} for {text}: no answer")
        if output.is_terminal:
            click.echo(f"{session.snapshot_id[:SHORT]} is {'bad' if status else 'good'}", err=True)
        return status == 0

    return check
