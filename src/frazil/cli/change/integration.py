"""``frazil merge``, ``frazil cherry-pick`` and ``frazil revert``: changes of other versions, on a branch."""

from __future__ import annotations

from typing import Any, Final

import click

import frazil
from frazil.cli.changes import (
    dry_run_option,
    emit_tip,
    message_option,
    metadata_option,
    options,
    source_text,
    writable_repository,
)
from frazil.cli.command import VERSION, target_argument, verb
from frazil.cli.opening import branch_of
from frazil.cli.output import Output
from frazil.cli.target import Target

#: Whose chunks stay where both sides wrote: the answer of the solver.
_SIDES: Final = {"source": "UseOurs", "branch": "UseTheirs"}

_arguments: Final = options(
    target_argument(metavar="LOCATION[@BRANCH]"),
    click.argument("version", type=VERSION),
    message_option,
    metadata_option,
    click.option(
        "--conflicts",
        type=click.Choice(["fail", *_SIDES]),
        default="fail",
        help="Where both sides wrote a chunk: end with an error, or take the chunk of VERSION (source) or of "
        "the branch (fail).",
    ),
    dry_run_option,
)


@verb(
    "merge",
    commits=True,
    description="Bring the changes of VERSION into a branch (default: `main`). A branch without own changes "
    "moves to VERSION, unless --no-ff asks for a commit.",
    examples="""\
frazil merge ice dev                             the changes of `dev` into `main`
frazil merge ice@dev main -m "Catch up"          the changes of `main` into `dev`
frazil merge ice dev --dry-run                   show the result or the conflicts
frazil merge ice dev --conflicts source          chunks of `dev` win""",
)
@_arguments
@click.option("--no-ff", is_flag=True, help="Always make a commit.")
def merge(output: Output, target: Target, no_ff: bool, **settings: Any) -> None:
    """Merge the version."""
    _integrate(output, "merge", target, settings, fast_forward=not no_ff)


@verb(
    "cherry-pick",
    commits=True,
    description="Repeat on a branch (default: `main`) what the commit VERSION changed.",
    examples="""\
frazil cherry-pick ice dev               the newest commit of `dev`, on `main`
frazil cherry-pick ice dev --dry-run     show what it would change""",
)
@_arguments
def cherry_pick(output: Output, target: Target, **settings: Any) -> None:
    """Repeat the commit."""
    _integrate(output, "cherry_pick", target, settings)


@verb(
    "revert",
    commits=True,
    description="Undo on a branch (default: `main`) what the commit VERSION changed. Later commits stay.",
    examples="""\
frazil revert ice main                   undo the newest commit
frazil revert ice main~1 --dry-run       show what the revert of the commit before it would change""",
)
@_arguments
def revert(output: Output, target: Target, **settings: Any) -> None:
    """Undo the commit."""
    _integrate(output, "revert", target, settings)


def _integrate(output: Output, method: str, target: Target, settings: dict[str, Any], **further: Any) -> None:
    repo = writable_repository(target, settings["dry_run"])
    branch = branch_of(repo, target)
    before = repo.lookup_branch(branch)
    text = settings["version"]
    source = source_text(repo, text)
    message = settings["message"]
    if message is None and method == "merge" and source != text:
        message = f"Merge {text} into {branch}"  # the default has the id
    side = _SIDES.get(settings["conflicts"])
    solver = side and frazil.BasicConflictSolver(on_chunk_conflict=frazil.VersionSelection[side])
    getattr(repo, method)(
        source, branch, solver=solver, message=message, metadata=settings["metadata"] or None, **further
    )
    emit_tip(output, repo, branch, before, dry_run=settings["dry_run"])
