"""``frazil rm``: delete a group or an array in one commit."""

from __future__ import annotations

from typing import Any, Final

import click

from frazil.cli.changes import dry_run_option, emit_tip, message_option, metadata_option, writable_repository
from frazil.cli.command import target_argument, verb
from frazil.cli.opening import branch_of
from frazil.cli.output import Output
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Delete a group or an array, with all nodes below it, in one commit. Older versions still have it: the
bytes stay until these versions expire."""

_EXAMPLES: Final = """\
frazil rm ice:era5/t              delete an array of `main`
frazil rm ice@dev:era5 --dry-run  show what the deletion of a group removes"""


@verb("rm", description=_DESCRIPTION, examples=_EXAMPLES, commits=True)
@target_argument(metavar="LOCATION[@BRANCH]:PATH")
@message_option
@metadata_option
@dry_run_option
def command(
    output: Output, target: Target, message: str | None, metadata: dict[str, Any], dry_run: bool
) -> None:
    """Delete the node."""
    if target.path in (None, "/"):
        raise click.UsageError("name the group or array to delete: LOCATION[@BRANCH]:PATH")
    path = target.path or "/"
    repo = writable_repository(target, dry_run)
    branch = branch_of(repo, target)
    before = repo.lookup_branch(branch)
    session = repo.writable_session(branch)
    session.workspace.require_node(path)
    session.workspace.delete_node(path)
    session.commit(message or f"Delete {path}", metadata)
    emit_tip(output, repo, branch, before, dry_run=dry_run)
