"""``frazil rewrite-manifests``: the manifests of a branch, with the splitting of the configuration."""

from __future__ import annotations

from typing import Any, Final

from frazil.cli.changes import dry_run_option, emit_tip, message_option, metadata_option, writable_repository
from frazil.cli.command import target_argument, verb
from frazil.cli.opening import branch_of
from frazil.cli.output import Output
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Write all manifests at the tip of a branch again, with the splitting of the saved configuration, in one
commit. Values do not change."""

_EXAMPLES: Final = """\
frazil rewrite-manifests ice                the manifests of `main`
frazil rewrite-manifests ice@dev --dry-run  only rehearse"""


@verb("rewrite-manifests", description=_DESCRIPTION, examples=_EXAMPLES, commits=True)
@target_argument(metavar="LOCATION[@BRANCH]")
@message_option
@metadata_option
@dry_run_option
def command(
    output: Output, target: Target, message: str | None, metadata: dict[str, Any], dry_run: bool
) -> None:
    """Write the manifests again."""
    repo = writable_repository(target, dry_run)
    branch = branch_of(repo, target)
    before = repo.lookup_branch(branch)
    repo.rewrite_manifests(message or "Rewrite the manifests", branch=branch, metadata=metadata or None)
    emit_tip(output, repo, branch, before, dry_run=dry_run)
