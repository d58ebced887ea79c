"""``frazil undo``, ``frazil redo`` and ``frazil restore``: earlier states of the repository."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from frazil.cli.changes import confirm, dry_run_option, yes_option
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.look.ops import update_document
from frazil.cli.opening import repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.times import STATE

if TYPE_CHECKING:
    from frazil.repository.history.undo_report import UndoPlan

_DRY_RUN: Final = "would change"
#: The value of a branch or tag that does not exist.
_NONE: Final = "none"


@verb(
    "undo",
    description="Undo the last operation of `frazil ops` that is not undone yet: a commit, a merge, a reset, "
    "a branch, the configuration. Repeat the command to go back step by step. LOCATION@BRANCH, or --branch, "
    "undoes the last operation on a branch. The undo is a new operation.",
    examples="""\
frazil undo ice --dry-run       show what would change
frazil undo ice -y              undo the last operation
frazil undo ice@dev             undo the last operation on a branch""",
)
@target_argument(metavar="[LOCATION[@BRANCH]]")
@click.option(
    "--branch", metavar="NAME", help="Undo the last operation on this branch, as LOCATION@NAME does."
)
@dry_run_option
@yes_option
def undo(output: Output, target: Target, branch: str | None, dry_run: bool, yes: bool) -> None:
    """Undo the operation, after a question if something is deleted."""
    if target.path is not None:
        raise click.UsageError("an undo concerns a whole branch or repository. Leave out :PATH")
    if None not in (branch, target.version) and branch != target.version:
        raise click.UsageError(f"name one branch, either {target.version} in the target or --branch {branch}")
    plan = repository_of(target).history.undo(branch=branch or target.version)
    _apply(output, "Undo", plan, dry_run, yes)


@verb(
    "redo",
    description="Make the last operation again that `frazil undo` has undone.",
    examples="""\
frazil redo ice             make it again
frazil redo ice --dry-run   show what would change""",
)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@dry_run_option
@yes_option
def redo(output: Output, target: Target, dry_run: bool, yes: bool) -> None:
    """Make the operation again, after a question if something is deleted."""
    _apply(output, "Redo", repository_of(target).history.redo(), dry_run, yes)


@verb(
    "restore",
    description="Return to an earlier state of the repository: all branches, tags, the configuration and "
    "the metadata. WHEN is a time (2026-11-01T06:00), an age (2h), or ~N for the state before the last N "
    "operations of `frazil ops`. The restoration is a new operation, and `frazil undo` undoes it.",
    examples="""\
frazil restore ice ~2 --dry-run    show what would change without the last two operations
frazil restore ice ~1 -y           take back the last operation""",
)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@click.argument("when", type=STATE)
@dry_run_option
@yes_option
def restore(output: Output, target: Target, when: datetime | int, dry_run: bool, yes: bool) -> None:
    """Restore the state, after a question if something is deleted."""
    repo = repository_of(target)
    at: Any = when if isinstance(when, datetime) else next(islice(repo.ops_log(), when, None), None)
    if at is None:
        raise click.UsageError(f"the operations log has fewer than {when} operations before this state")
    _apply(output, "Restore", repo.history.restore_to(at), dry_run, yes)


def _apply(output: Output, action: str, plan: UndoPlan, dry_run: bool, yes: bool) -> None:
    """Apply a plan unless it is a dry run, after a question about its notes, and print it."""
    if not dry_run:
        if plan.notes:
            notes = (f"{each[0].upper()}{each[1:]}." for each in plan.notes)
            confirm(output, " ".join([f"{action}?", *notes]), yes=yes)
        plan = plan.apply()
    _emit(output, plan)


def _emit(output: Output, report: UndoPlan) -> None:
    changes = [
        {"subject": each.subject, "before": each.before, "after": each.after} for each in report.changes
    ]
    document: dict[str, Any] = {
        "dry_run": not report.is_applied,
        "operations": list(map(update_document, report.updates)),
        "changes": changes,
        "notes": list(report.notes),
    }
    output.emit(document, _lines(document))


def _lines(document: dict[str, Any]) -> Iterator[str]:
    action = _DRY_RUN if document["dry_run"] else "changed"
    for each in document["changes"]:
        yield f"{action} {each['subject']}: {each['before'] or _NONE} -> {each['after'] or _NONE}"
    yield from (f"note: {each}" for each in document["notes"])
