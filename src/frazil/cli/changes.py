"""What commands that change a branch have in common: the question, the rehearsal, the result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from frazil.cli.documents import SHORT, diff_document, diff_lines
from frazil.cli.opening import Opened
from frazil.cli.output import Output
from frazil.cli.target import Target

#: The exit status if a question is not answered with yes.
REFUSED: Final = 3


def confirm(output: Output, question: str, *, yes: bool) -> None:
    """Ask before something is lost, and end the command with status 3 unless the answer is yes.

    Without a terminal nobody can answer: then the command ends, and its error names ``--yes``.
    """
    if yes:
        return
    if output.as_json or not sys.stdin.isatty():
        click.echo(f"frazil: {question} Pass --yes to do it. Nothing was changed", err=True)
    elif click.confirm(question, err=True):
        return
    else:
        click.echo("Nothing was changed", err=True)
    raise click.exceptions.Exit(REFUSED)


class BranchChange:
    """A change of a branch, or its rehearsal: the repository, the branch, and its tip before the change.

    The command makes the change between the construction and `emit`.
    """

    def __init__(self, output: Output, target: Target, dry_run: bool, *, node: str = "") -> None:
        if node and target.path in (None, "/"):
            raise click.UsageError(f"name {node}: LOCATION[@BRANCH]:PATH")
        self.opened = Opened(target, dry_run=dry_run)
        self.repo, self.branch = self.opened.repo, self.opened.branch
        self.path = self.opened.path
        self.before: str | None = self.repo.lookup_branch(self.branch)
        self.dry_run = dry_run
        self._output = output

    def emit(self, further: Sequence[str] = (), **members: Any) -> None:
        """Print the tip of the branch, what changed, and more lines and members of the document."""
        emit_tip(
            self._output,
            self.repo,
            self.branch,
            self.before,
            dry_run=self.dry_run,
            further=further,
            **members,
        )


def emit_tip(
    output: Output,
    repo: Any,
    branch: str,
    before: str | None,
    *,
    dry_run: bool,
    further: Sequence[str] = (),
    **members: Any,
) -> None:
    """Print the tip of a branch after a change, and what changed since ``before``."""
    tip = repo.lookup_snapshot(repo.lookup_branch(branch))
    changes: dict[str, Any] = {}
    if before is not None and before != tip.id:
        changes = diff_document(repo.diff(from_snapshot_id=before, to_snapshot_id=tip.id))
    document = {
        "branch": branch,
        "id": tip.id,
        "before": before,
        "message": tip.message,
        "dry_run": dry_run,
        "changes": changes,
        **members,
    }
    lines = [f"{branch} stays at {tip.id[:SHORT]}"]
    if before != tip.id:
        verb = "would be" if dry_run else "is"
        name = "a new version" if dry_run else output.paint(tip.id[:SHORT], "id")
        lines = [f"{branch} {verb} at {name}: {tip.message.partition(chr(10))[0]}"]
    output.emit(document, [*lines, *(diff_lines(output, changes) if changes else ()), *further])
