"""``frazil mv``: another path for a group or an array."""

from __future__ import annotations

from typing import Any, Final

import click

from frazil.cli.changes import dry_run_option, emit_tip, message_option, metadata_option, writable_repository
from frazil.cli.command import target_argument, verb
from frazil.cli.opening import branch_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.repository.paths import absolute

_DESCRIPTION: Final = """\
Move or rename a group or an array, with all nodes below it, in one commit. No chunk is copied."""

_EXAMPLES: Final = """\
frazil mv ice:era5/t era5/t2m                   rename an array of `main`
frazil mv ice@dev:era5 era5_old -m "Make room"  move a group of a branch"""


@verb("mv", description=_DESCRIPTION, examples=_EXAMPLES, commits=True)
@target_argument(metavar="LOCATION[@BRANCH]:PATH")
@click.argument("to")
@message_option
@metadata_option
@dry_run_option
def command(
    output: Output, target: Target, to: str, message: str | None, metadata: dict[str, Any], dry_run: bool
) -> None:
    """Move the node."""
    if target.path in (None, "/"):
        raise click.UsageError("name the group or array to move: LOCATION[@BRANCH]:PATH")
    path, goal = target.path or "/", absolute(to)
    repo = writable_repository(target, dry_run)
    branch = branch_of(repo, target)
    before = repo.lookup_branch(branch)
    session = repo.rearrange_session(branch)
    session.move(path, goal)
    session.commit(message or f"Move {path} to {goal}", metadata)
    emit_tip(output, repo, branch, before, dry_run=dry_run)
