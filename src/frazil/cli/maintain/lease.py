"""``frazil lease``: the leases of running and of killed work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Final

import click

import frazil
from frazil.cli.changes import confirm, yes_option
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.opening import repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.versions import clock
from frazil.display import counted

_DESCRIPTION: Final = """\
List the leases of a repository, or end some of them. Sessions with forks, jobs, copies and compactions hold
leases, so that `frazil gc` keeps the files that they have not committed yet. A lease is stale if its process
ran on this machine and has ended: nobody can use its files any more. The process of another machine may
still run. `frazil gc --dry-run` shows how many bytes a lease holds back."""

_EXAMPLES: Final = """\
frazil lease ice              list the leases
frazil lease ice --stale      end the leases of processes of this machine that have ended
frazil lease ice --end ID     end one lease, after a question"""

_RUNS: Final = {True: "runs", False: "has ended", None: "is not on this machine"}


@verb("lease", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@click.option("--end", metavar="ID", multiple=True, help="End the lease with this id; may be repeated.")
@click.option("--stale", is_flag=True, help="End the stale leases.")
@yes_option
def command(output: Output, target: Target, end: tuple[str, ...], stale: bool, yes: bool) -> None:
    """List the leases, or ask and end some."""
    repo = repository_of(target)
    leases = repo.upkeep.leases()
    if not (end or stale):
        output.emit(list(map(_document, leases)), [*map(_line, leases)] or ["no leases"])
        return
    chosen = [each for each in leases if each.id in end or (stale and each.is_stale)]
    unknown = sorted({*end} - {each.id for each in chosen})
    if unknown:
        repo.upkeep.break_lease(unknown[0])  # raises the error for an unknown id
    _ask(output, [each for each in chosen if not each.is_stale], yes=yes)
    for each in chosen:
        repo.upkeep.break_lease(each.id)
    text = f"ended {counted(len(chosen), 'lease')}" if chosen else "no stale leases"
    output.emit({"ended": [each.id for each in chosen]}, [text])


def _ask(output: Output, leases: Sequence[frazil.LeaseInfo], *, yes: bool) -> None:
    """Ask before leases end whose holders may still need their files."""
    now = datetime.now(UTC)
    needed = [each for each in leases if each.ends_at > now]
    if not needed:
        return
    staged = " Staged results of a job are deleted." if any(each.is_of_job for each in needed) else ""
    confirm(
        output,
        f"End {counted(len(needed), 'lease')}: {'; '.join(map(_holder, needed))}? A collection may then "
        f"delete the files of this work, and its commit is refused.{staged}",
        yes=yes,
    )


def _holder(lease: frazil.LeaseInfo) -> str:
    process = f", process {lease.process} {_RUNS[lease.running]}" if lease.process else ""
    return f"{lease.holder()}{process}"


def _line(lease: frazil.LeaseInfo) -> str:
    state = "stale" if lease.is_stale else "ended" if lease.ends_at < datetime.now(UTC) else "held"
    return (
        f"{lease.id}  {state}  {_holder(lease)}: taken {clock(lease.taken_at)}, protects files since "
        f"{clock(lease.protects_since)} until {clock(lease.ends_at)}"
    )


def _document(lease: frazil.LeaseInfo) -> dict[str, object]:
    values = {each.name: getattr(lease, each.name) for each in fields(lease)}
    return {**values, "stale": lease.is_stale}
