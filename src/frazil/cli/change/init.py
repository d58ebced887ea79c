"""``frazil init``: a new repository."""

from __future__ import annotations

from typing import Final

import click

import frazil
from frazil.cli.changes import dry_run_option, writable_storage
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.output import Output
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Create a repository in an empty folder or prefix, with the branch `main` on an empty version."""

_EXAMPLES: Final = """\
frazil init new                   in a folder
frazil init s3://bucket/prefix    in a bucket
frazil init new --dry-run         only check that the location is empty"""


@verb("init", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@click.option(
    "--spec-version", type=click.Choice(["1", "2"]), default="2", help="The version of the format (2)."
)
@dry_run_option
def command(output: Output, target: Target, spec_version: str, dry_run: bool) -> None:
    """Create the repository."""
    storage = writable_storage(target, dry_run)
    repo = frazil.Repository.create(storage, spec_version=int(spec_version))
    document = {
        "location": target.location,
        "spec_version": int(repo.spec_version),
        "id": repo.lookup_branch("main"),
        "dry_run": dry_run,
    }
    verb_text = "would create" if dry_run else "created"
    output.emit(document, [f"{verb_text} a repository of spec version {spec_version} in {storage.label()}"])
