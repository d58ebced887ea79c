"""``frazil reset``: a branch moves to another version."""

from __future__ import annotations

from typing import Final

import click

from frazil.cli.changes import confirm, dry_run_option, emit_tip, source_text, writable_repository, yes_option
from frazil.cli.command import VERSION, target_argument, verb
from frazil.cli.opening import branch_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.versions import SHORT
from frazil.repository.catalog.history import is_in_history
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.handle.interior import context_of

_DESCRIPTION: Final = """\
Move a branch (default: `main`) to VERSION. Commits that the branch leaves stay in the repository until
they expire: `frazil ops` shows their ids. If another writer moves the branch at the same time, nothing
changes."""

_EXAMPLES: Final = """\
frazil reset ice main~1 -y         drop the newest commit of `main`
frazil reset ice@dev v1 --dry-run  show what `dev` would lose"""


@verb("reset", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(metavar="LOCATION[@BRANCH]")
@click.argument("version", type=VERSION)
@dry_run_option
@yes_option
def command(output: Output, target: Target, version: str, dry_run: bool, yes: bool) -> None:
    """Move the branch."""
    repo = writable_repository(target, dry_run)
    branch = branch_of(repo, target)
    info = context_of(repo).catalog.repo_info()
    source = source_text(repo, version)
    tip = info.branches[branch]
    goal = find_snapshot(source, lambda: info)
    if goal is not None and not is_in_history(info, tip, of=goal):
        name = repo.lookup_branch(branch)[:SHORT]
        question = f"Move {branch} from {name} to {version}? It loses the commits after {version}."
        confirm(output, question, yes=yes or dry_run)
    before = repo.lookup_branch(branch)
    repo.reset_branch(branch, source, from_snapshot_id=before)
    emit_tip(output, repo, branch, before, dry_run=dry_run)
