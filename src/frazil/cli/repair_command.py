"""The command ``frazil repair``: it makes a plan, and applies it with ``--yes``."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from frazil.cli.command import LOCATION, verb
from frazil.cli.opening import author_metadata, storage_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.extras import needs
from frazil.repository.catalog.checks import LEVELS
from frazil.repository.catalog.repairs import ChunkSource
from frazil.repository.handle.repository import Repository

_DESCRIPTION: Final = """\
Look for lost, damaged and exchanged files, and print the steps that repair them without a guess. With --yes,
also make the steps. Files that are replaced are put aside below `quarantine/`; no file is deleted.

The exit status is 0 if there is no damage, or if --yes repaired all damage. It is 1 if there is damage
that was not repaired, and after an error. It is 2 for wrong arguments."""

_EXAMPLES: Final = """\
frazil repair ice                                   print the plan
frazil repair ice --copy s3://bucket/backup --yes   repair, also with files of a copy
frazil repair ice --lost fill --yes                 chunks without a copy get the fill value"""


@verb("repair", description=_DESCRIPTION, examples=_EXAMPLES, commits=True)
@click.argument("location", type=LOCATION, default=".")
@click.option(
    "--copy",
    "copies",
    metavar="LOCATION",
    type=LOCATION,
    multiple=True,
    help="A copy of the repository, also an older or partial one; may be repeated.",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="exists",
    help="How to look for damage, as in `frazil verify` (exists).",
)
@click.option(
    "--lost",
    type=click.Choice(["keep", "fill", "previous"]),
    default="keep",
    help="Chunks without a copy: change nothing, or make a commit in which they have the fill value or the "
    "data of an older version (keep).",
)
@click.option(
    "--sources",
    is_flag=True,
    help="Also take chunks from the files that were ingested (needs the extra `pipeline`).",
)
@click.option("--dry-run", is_flag=True, help="Only print the plan (the default).")
@click.option("--yes", is_flag=True, help="Apply the plan.")
def command(output: Output, location: Target, dry_run: bool, yes: bool, **options: Any) -> int:
    """Make the plan, apply it with ``yes``, and print it."""
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other")
    sources: list[ChunkSource] = []
    if options["sources"]:
        with needs("repair --sources", extra="pipeline"):
            from frazil.pipeline import IngestedFiles

        sources.append(IngestedFiles())
    plan = Repository.repair(
        storage_of(location),
        copies=[storage_of(each) for each in options["copies"]],
        level=options["level"],
        lost=options["lost"],
        sources=sources,
    )
    if yes:
        plan = plan.apply(metadata=author_metadata())
    output.emit(json.loads(plan.to_json()), [str(plan)])
    done = plan.complete and not plan.detached if yes else plan.ok
    return 0 if done else 1
