"""``frazil expire``: old versions leave the history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import click

import frazil
from frazil.cli.changes import confirm, dry_run_option, yes_option
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.opening import repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.times import TIME_AGO
from frazil.cli.versions import SHORT, clock
from frazil.display import counted
from frazil.maintenance.retention.report import VersionReason

_DESCRIPTION: Final = """\
Remove old versions from the history. A version stays if one of the rules selects it. The first version,
the tips of branches and the versions of tags always stay. `frazil gc` then deletes the files.

--daily 7 selects the newest version of each of the last seven days that have versions, and so on."""

_EXAMPLES: Final = """\
frazil expire ice --newer-than 30d --dry-run    show what would be removed, and why
frazil expire ice --newer-than 30d -y           versions of the last 30 days stay
frazil expire ice --last 10 --daily 7 -y        ten versions stay, and one for each of seven days"""

#: A rehearsal prints this number of the newest and of the oldest versions.
_LISTED: Final = 10
_PERIODS: Final = ("hourly", "daily", "weekly", "monthly", "yearly")


def _period_options(function: Any) -> Any:
    for name in reversed(_PERIODS):
        help_text = f"One version for each of N periods stays ({name})."
        option = click.option(f"--{name}", type=click.IntRange(min=0), default=0, metavar="N", help=help_text)
        function = option(function)
    return function


@verb("expire", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@click.option(
    "--newer-than", type=TIME_AGO, metavar="TIME", help="Versions from TIME on stay: 30d, 2026-11-01."
)
@click.option(
    "--last", type=click.IntRange(min=0), default=0, metavar="N", help="The newest N versions stay."
)
@_period_options
@dry_run_option
@yes_option
@click.option("-v", "--verbose", is_flag=True, help="With --dry-run: print all versions, not only some.")
def command(
    output: Output,
    target: Target,
    newer_than: datetime | None,
    dry_run: bool,
    yes: bool,
    verbose: bool,
    **counts: Any,
) -> None:
    """Plan the expiration, ask, and expire."""
    if newer_than is None and not any(counts.values()):
        raise click.UsageError("name a rule for the versions that stay: --newer-than, --last, --daily, ...")
    repo = repository_of(target)
    policy = frazil.Retention(newer_than=newer_than, **counts)
    report = repo.upkeep.retain(policy, dry_run=True)
    if not dry_run and len(report.removed):
        confirm(output, f"Remove {counted(len(report.removed), 'version')} from the history?", yes=yes)
        report = repo.upkeep.retain(policy)
    most = (None if verbose else _LISTED) if dry_run else 0
    output.emit(_document(report) if output.as_json else None, _lines(output, report, most), pages=dry_run)


def _document(report: frazil.RetentionReport) -> dict[str, Any]:
    def rows(versions: Any) -> list[dict[str, Any]]:
        return [
            {"id": each.id, "time": each.written_at, "message": each.message, "reasons": list(each.reasons)}
            for each in versions
        ]

    return {"dry_run": report.dry_run, "removed": rows(report.removed), "retained": rows(report.retained)}


def _lines(output: Output, report: frazil.RetentionReport, most: int | None) -> Iterator[str]:
    """Yield a summary, and the first and last ``most`` versions that leave and that stay."""
    removed, retained = len(report.removed), len(report.retained)
    action = "would remove" if report.dry_run and removed else "removed"
    yield f"{action} {counted(removed, 'version')}; {counted(retained, 'version')} in the history"
    for sign, versions in (("-", report.removed), (" ", report.retained)) if most != 0 else ():
        more = 0 if most is None else len(versions) - 2 * most
        first, last = (versions[:most], versions[-(most or 0) :]) if more > 0 else (versions[:], [])
        yield from (_line(output, sign, each) for each in first)
        if more > 0:
            yield f"{sign} ... {counted(more, 'version')} between these (--verbose prints them) ..."
        yield from (_line(output, sign, each) for each in last)


def _line(output: Output, sign: str, version: VersionReason) -> str:
    text = f"{version.message.partition(chr(10))[0]}  [{', '.join(version.reasons)}]"
    return output.cut(f"{sign} {version.id[:SHORT]}  {clock(version.written_at)}  {text}")
