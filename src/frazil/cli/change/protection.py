"""``frazil protect`` and ``frazil unprotect``: rules for who moves a branch, and to where."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from frazil.cli.changes import dry_run_option, writable_repository
from frazil.cli.command import LOCATION, VERSION, target_argument, verb
from frazil.cli.opening import repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.extras import needs
from frazil.lazy_names import value_of

_RULES: Final = "frazil.pipeline.validation.rules:rules_from"


@verb(
    "protect",
    description="Protect a branch, or all branches whose names match a pattern: it cannot be deleted, and it "
    "only moves to versions that contain its tip. Without NAME, list the protections. Protections prevent "
    "mistakes: other implementations ignore them.",
    examples="""\
frazil protect ice                            list the protections
frazil protect ice main                       no reset, no undo, no deletion
frazil protect ice 'release-*' --by ada       only ada moves these branches
frazil protect ice main --rules rules.yaml    only versions that an audit with these rules has passed""",
)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@click.argument("name", type=VERSION, required=False)
@click.option("--by", "principals", metavar="USER", multiple=True, help="Who may move it; may be repeated.")
@click.option("--allow-reset", is_flag=True, help="It may also move to versions without its tip.")
@click.option(
    "--rules", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Rules of an audit."
)
@dry_run_option
def protect(
    output: Output,
    target: Target,
    name: str | None,
    principals: tuple[str, ...],
    allow_reset: bool,
    rules: Path | None,
    dry_run: bool,
) -> None:
    """Protect the branch, or list the protections."""
    if name is None:
        protections = list(map(_document, repository_of(target).branch_protections()))
        output.emit(protections, map(_line, protections))
        return
    repo = writable_repository(target, dry_run)
    parsed: Any = ()
    if rules is not None:
        with needs("--rules", extra="pipeline"):
            parsed = value_of(_RULES)(rules)
    protection = repo.protect_branch(
        name, principals=principals, fast_forward_only=not allow_reset, rules=parsed
    )
    document = {**_document(protection), "dry_run": dry_run}
    output.emit(document, [f"{'would protect' if dry_run else 'protected'} {_line(document)}"])


@verb(
    "unprotect",
    description="Remove the protection of a branch or a pattern. `frazil protect LOCATION` lists them.",
    examples="""\
frazil unprotect ice main            remove the protection of `main`
frazil unprotect ice main --dry-run  only check whether it is possible""",
)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@click.argument("name", type=VERSION)
@dry_run_option
def unprotect(output: Output, target: Target, name: str, dry_run: bool) -> None:
    """Remove the protection."""
    writable_repository(target, dry_run).unprotect_branch(name)
    action = "would remove" if dry_run else "removed"
    output.emit({"pattern": name, "dry_run": dry_run}, [f"{action} the protection of {name}"])


def _document(protection: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"pattern": protection.pattern, **protection.document()}
    return document


def _line(document: dict[str, Any]) -> str:
    parts = ["no reset"] if document["fast_forward_only"] else []
    parts += [f"only {', '.join(document['principals'])}"] if document["principals"] else []
    parts += [f"{len(document['rules'])} rules"] if document["rules"] else []
    return f"{document['pattern']}: {'; '.join(['no deletion', *parts])}"
