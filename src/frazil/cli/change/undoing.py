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
    from frazil.repository.history.undo_report import UndoReport

_DRY_RUN: Final = "would change"
#: The value of a branch or tag that does not exist.
_NONE: Final = "none"


@verb(
    "undo",
    description="Undo the last operation of `frazil ops` that is not undone yet: a commit, a merge, a reset, "
    "a branch, the configuration. Repeat the command to go back step by step. The undo is a new operation.",
    examples="""\
frazil undo ice --dry-run       show what would change
frazil undo ice -y              undo the last operation
frazil undo ice --branch dev    undo the last operation on a branch""",
)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@click.option("--branch", metavar="NAME", help="Undo the last operation on this branch.")
@dry_run_option
@yes_option
def undo(output: Output, target: Target, branch: str | None, dry_run: bool, yes: bool) -> None:
    """Undo the operation, after a question if something cannot come back."""
    repo = repository_of(target)
    plan = repo.undo(branch=branch, dry_run=True)
    if not dry_run:
        if plan.notes:
            confirm(output, f"{' '.join(plan.notes)} Undo?", yes=yes)
        # the operation of the plan, even if another writer has made a later one since
        plan = repo.undo(update=plan.updates[0]) if plan.updates else repo.undo(branch=branch)
    _emit(output, plan)


@verb(
    "redo",
    description="Make the last operation again that `frazil undo` has undone.",
    examples="""\
frazil redo ice             make it again
frazil redo ice --dry-run   show what would change""",
)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@dry_run_option
def redo(output: Output, target: Target, dry_run: bool) -> None:
    """Make the operation again."""
    _emit(output, repository_of(target).redo(dry_run=dry_run))


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
    """Restore the state, after a question if something cannot come back."""
    repo = repository_of(target)
    at: Any = when if isinstance(when, datetime) else next(islice(repo.ops_log(), when, None), None)
    if at is None:
        raise click.UsageError(f"the operations log has fewer than {when} operations before this state")
    plan = repo.restore_to(at, dry_run=True)
    if not dry_run:
        if plan.notes:
            confirm(output, f"{' '.join(plan.notes)} Restore?", yes=yes)
        plan = repo.restore_to(at)
    _emit(output, plan)


def _emit(output: Output, report: UndoReport) -> None:
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
